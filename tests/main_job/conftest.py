"""Boxes as they are rented, and people who rent them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.boxes import Box, Rig
from tests.cli import User
from tests.main_job.rented import Rented

Rent = Callable[..., Rented]


@pytest.fixture
def rent(mirror_rig: Rig, user: User) -> Iterator[Rent]:
    """Rent a box: `rent("vast")`. It is given back at the end of the test."""
    boxes: list[Box] = []

    def start(kind: str, **variant: Any) -> Rented:
        boxes.append(mirror_rig.start(kind, **variant))
        return Rented(user, boxes[-1])

    yield start
    for box in boxes:
        box.stop()
