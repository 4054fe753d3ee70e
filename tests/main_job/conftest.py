"""The `rent` fixture: boxes as they are rented, each with a user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import Box, Rig
from tests.cli import User
from tests.main_job.rented import Rented
from tests.main_job.used import start_used

Rent = Callable[..., Rented]


@pytest.fixture
def rent(mirror_rig: Rig, user: User, shared_folder: Path) -> Iterator[Rent]:
    """Rent a box: `rent("vast")`. It is given back at the end of the test.

    `used=True`: it was set up before, for another repository (`used.py`); `by` an earlier program.
    """
    boxes: list[Box] = []

    def start(kind: str, *, used: bool = False, by: Path | None = None, **variant: Any) -> Rented:
        if used or by:
            boxes.append(start_used(mirror_rig, kind, shared_folder, by, **variant))
        else:
            boxes.append(mirror_rig.start(kind, **variant))
        return Rented(user, boxes[-1])

    yield start
    for box in boxes:
        box.stop()
