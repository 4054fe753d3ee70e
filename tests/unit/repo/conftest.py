"""Real repositories, made by git with a temporary home."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.repo.repositories import SampleRepository, listing


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a git identity, separate from that of the user who runs the tests."""
    for name in list(os.environ):
        if name.startswith("GIT_") and name != "GIT_TEMPLATE_DIR":
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Me Myself\n\temail = me@example.org\n"
        '[init]\n\tdefaultBranch = main\n[protocol "file"]\n\tallow = always\n'
        "[maintenance]\n\tauto = false\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return home


@pytest.fixture
def new(tmp_path: Path) -> Callable[..., SampleRepository]:
    """Make an empty repository below the test's folder."""

    def make(name: str = "homework", *options: str) -> SampleRepository:
        root = tmp_path / name
        root.mkdir()
        repository = SampleRepository(root)
        repository.git("init", "-q", *options)
        return repository

    return make


@pytest.fixture
def repo(new: Callable[..., SampleRepository]) -> SampleRepository:
    """A repository with one commit of two files."""
    repository = new()
    repository.commit("Train a little", train_py="print(1)\n", README="read me\n")
    return repository


@pytest.fixture
def untouched(repo: SampleRepository) -> Iterator[Callable[[], None]]:
    """Call it to remember the `.git` of `repo`; when the test ends, nothing in it may differ."""
    folder = repo.root / ".git"
    remembered: list[dict[str, tuple[str, int, int]]] = []
    yield lambda: remembered.append(listing(folder))
    assert remembered, "the test never remembered .git"
    assert listing(folder) == remembered[-1]
