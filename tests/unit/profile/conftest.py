"""Fixtures: a current folder, a separate config folder, and profiles written in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap import paths
from bootstrap.profile.yaml_source import WrongProfileError

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def here(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: empty, and not a home."""
    folder = own_home.with_name(f"{own_home.name}-here")
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def config(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's config folder."""
    folder = own_home.with_name(f"{own_home.name}-config")
    folder.mkdir()
    monkeypatch.setattr(paths, "config_dir", lambda: folder)
    return folder


@pytest.fixture
def write(here: Path) -> Write:
    """Write a profile and return its path."""

    def write_(text: str, name: str = "a.yaml", folder: Path = here) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_


@pytest.fixture
def wrong(write: Write) -> Callable[..., str]:
    """Return the text of the error that a profile raises; fails if it raises none."""
    from bootstrap.profile.load import read_profile

    def wrong_(text: str, *sets: str) -> str:
        write(text)
        with pytest.raises(WrongProfileError) as caught:
            read_profile("./a.yaml", sets=sets)
        return caught.value.text()

    return wrong_
