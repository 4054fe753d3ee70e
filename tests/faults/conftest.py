"""Boxes for the table of faults, rented in the same way as for the main job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import cast

import pytest

from tests.boxes import RigBox
from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.main_job.conftest import account, card, nvml_library, rent
from tests.main_job.rented import Rented

__all__ = ["account", "anywhere", "card", "nvml_library", "rent"]


@pytest.fixture
def anywhere(request: pytest.FixtureRequest, user: User) -> Iterator[Rented]:
    """An account without sudo: on a box of its own as root, else on loopback."""
    box: RigBox | LoopbackBox
    if os.geteuid() == 0:
        box = request.getfixturevalue("mirror_rig").start("nosudo")
    else:
        box = LoopbackBox()
    yield Rented(user, cast(RigBox, box))  # these tests use only what both can do
    box.stop()
