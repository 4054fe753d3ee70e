"""pytest fixtures: `rig` (one per session or xdist worker) and `box` (a factory).

Import them in a conftest: `from tests.boxes.fixtures import *`. Tests that use
them have the marker `boxes`, by themselves where they use `mirror_rig`; without
root they are skipped, and counted at the end of the report.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import Rig, RigBox

__all__ = [
    "box",
    "mirror_rig",
    "pytest_collection_modifyitems",
    "pytest_terminal_summary",
    "rig",
    "shared_folder",
]

_REASON = "boxes need root"
LEFT_OUT = {_REASON: "root", "no CPU build of torch": "a CPU build of torch"}


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """The rig of this session; its boxes use the same package sources as this machine."""
    with Rig() as made:
        yield made


@pytest.fixture(scope="session")
def mirror_rig() -> Iterator[Rig]:
    """A rig whose boxes take packages from its caching mirror."""
    with Rig(mirror=True) as made:
        yield made


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all xdist workers share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture
def box(rig: Rig) -> Iterator[Callable[..., RigBox]]:
    """Start boxes that end with the test: `box("vast")`."""
    started: list[RigBox] = []

    def start(kind: str, **variant: Any) -> RigBox:
        made = rig.start(kind, **variant)
        started.append(made)
        return made

    yield start
    for made in started:
        made.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with boxes of the mirror's rig; skip all that need boxes when not root."""
    for item in items:
        if "mirror_rig" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.boxes)
        if os.geteuid() and item.get_closest_marker("boxes"):
            item.add_marker(pytest.mark.skip(reason=_REASON))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count the tests that were skipped because this machine lacks something."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, need in LEFT_OUT.items():
        count = sum(reason in str(report.longrepr) for report in skipped)
        if count:
            terminalreporter.write_line(f"left out: {count} tests need {need}")
