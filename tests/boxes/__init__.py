"""Disposable boxes on one Debian machine, for tests: see README.md beside this file."""

from tests.boxes.box import CommandError, RigBox
from tests.boxes.proc import RigError
from tests.boxes.rig import Rig

__all__ = ["CommandError", "Rig", "RigBox", "RigError"]
