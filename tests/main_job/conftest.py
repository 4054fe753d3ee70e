"""The `rent` fixture: boxes as they are rented, each with a user."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import Rig, RigBox
from tests.cli import User
from tests.main_job.rented import Rented
from tests.main_job.used import start_used
from tests.nvml import stub
from tests.providers.accounts import SimulatedAccount, simulated

Rent = Callable[..., Rented]
Card = Callable[[Rented, str], None]


@pytest.fixture
def rent(mirror_rig: Rig, user: User, shared_folder: Path) -> Iterator[Rent]:
    """Rent a box: `rent("vast")`. It is given back at the end of the test.

    `used=True`: it was set up before, for another repository (`used.py`).
    """
    boxes: list[RigBox] = []

    def start(kind: str, *, used: bool = False, **variant: Any) -> Rented:
        if used:
            boxes.append(start_used(mirror_rig, kind, shared_folder, **variant))
        else:
            boxes.append(mirror_rig.start(kind, **variant))
        return Rented(user, boxes[-1])

    yield start
    for box in boxes:
        box.stop()


@pytest.fixture
def rented(rent: Rent) -> Rented:
    """A box at Vast.ai, used before."""
    return rent("vast", used=True)


@pytest.fixture
def account() -> Iterator[SimulatedAccount]:
    """An account at Vast.ai."""
    with simulated("vast") as made:
        yield made


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if stub.compiler() is None:
        pytest.skip("no C compiler: NVML's stand-in can't be built, boxes have no GPU")
    return stub.build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def card(nvml_library: Path) -> Card:
    """Put a card into a box."""
    return lambda rented, scenario: rented.box.show_card(nvml_library, scenario)
