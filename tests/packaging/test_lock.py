"""The lock files for development fit pyproject.toml, and name no place to fetch from."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement

toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / ".ci/requirements.txt"
DEV_LOCK = ROOT / ".ci/requirements-dev.txt"
SITE_LOCK = ROOT / ".ci/requirements-site.txt"
PROJECT = toml.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = PROJECT["project"]["dependencies"]
DEV = PROJECT["dependency-groups"]["dev"]
SITE = PROJECT["dependency-groups"]["site"]
HASHES = re.compile(r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def locked(lock: Path) -> dict[str, list[Requirement]]:
    """The pinned versions of each package: several if they differ between Pythons."""
    found: dict[str, list[Requirement]] = {}
    for pin in map(Requirement, filter(None, HASHES.split(lock.read_text()))):
        found.setdefault(pin.name, []).append(pin)
    return found


@pytest.mark.parametrize("lock", [LOCK, DEV_LOCK, SITE_LOCK], ids=lambda lock: lock.stem)
def test_each_lock_file_pins_exact_versions_and_names_no_address(lock: Path) -> None:
    for pins in locked(lock).values():
        for pin in pins:
            assert [specifier.operator for specifier in pin.specifier] == ["=="], pin
            assert pin.url is None
    assert "://" not in lock.read_text()


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize(
    ("lock", "wanted"), [(LOCK, RUNTIME), (DEV_LOCK, RUNTIME + DEV), (SITE_LOCK, SITE)]
)
def test_each_requirement_of_pyproject_is_locked_once_for_every_python(
    lock: Path, wanted: list[str], python: str
) -> None:
    """If this fails after a change of pyproject.toml, run `make lock`."""
    pins = locked(lock)
    where = {"python_version": python, "python_full_version": f"{python}.0"}
    for requirement in map(Requirement, wanted):
        if requirement.marker is not None and not requirement.marker.evaluate(where):
            continue
        found = [
            pin
            for pin in pins.get(requirement.name, [])
            if pin.marker is None or pin.marker.evaluate(where)
        ]
        assert len(found) == 1, requirement
        (version,) = (specifier.version for specifier in found[0].specifier)
        assert requirement.specifier.contains(version), requirement
