"""Disposable boxes on one Debian machine, for tests: see README.md beside this file."""

from tests.boxes.box import Box, CommandError
from tests.boxes.proc import RigError
from tests.boxes.rig import Rig

__all__ = ["Box", "CommandError", "Rig", "RigError"]
