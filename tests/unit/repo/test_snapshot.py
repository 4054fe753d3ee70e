"""The work that stands in the editor, as it travels: whole, raw, and nothing of it touched."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.repo.here import read
from bootstrap.repo.objects import ObjectStream, have_locally, parse_report, wanted_ref
from bootstrap.repo.snapshot import Snapshot, forget, take_snapshot
from bootstrap.repo.snapshot_store import RAW
from tests.unit.repo.repositories import SampleRepository, listing
from tests.unit.repo.standing import Entry, placed, standing
from tests.unit.repo.states import make_state

New = Callable[..., SampleRepository]
COUNT = 60


@pytest.fixture(autouse=True)
def stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stores are; the person ignores `*.orig` everywhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".state"))
    ignore = home / ".config" / "git" / "ignore"
    ignore.parent.mkdir(parents=True)
    ignore.write_text("*.orig\n")
    return home / ".cache" / "boxstrap" / "snapshots"


class Receiver:
    """A store as a box has it, and the files it places."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store.git"
        self.tree = folder / "tree"
        self.has: list[str] = []
        self.tree.mkdir(parents=True)

    def git(self, *words: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(
            ["git", "--git-dir", str(self.store), *words], input=stdin, capture_output=True,
            check=True,
        ).stdout  # fmt: skip

    def take(self, root: Path, snapshot: Snapshot) -> dict[bytes, Entry]:
        """Send it, check it out raw, and say what stands there then."""
        here = read(root)
        if not self.store.exists():
            self.git("init", "-q", "--bare", f"--object-format={here.object_format}")
            self.git("config", "receive.shallowUpdate", "true")
            (self.store / "info/attributes").write_text(RAW)
        if snapshot.id not in self.has:
            pieces = b"".join(
                ObjectStream(
                    here,
                    ref=wanted_ref(snapshot.id),
                    have=have_locally(here, self.has, snapshot),
                    snapshot=snapshot,
                )
            )
            parse_report(self.git("receive-pack", "--stateless-rpc", str(self.store), stdin=pieces))
            self.has.append(snapshot.id)
        self.git("--work-tree", str(self.tree), "checkout", "-q", "-f", "--detach", snapshot.id)
        return placed(self.tree)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A usual run samples the states; `--every`, as in `make chaos`, has all."""
    if "seed" in metafunc.fixturenames:
        every = metafunc.config.getoption("every")
        metafunc.parametrize("seed", range(0, COUNT, 1 if every else 4))


def test_what_stands_here_stands_on_the_box(seed: int, tmp_path: Path) -> None:
    repo, happens = make_state(seed, tmp_path / "state")
    box = Receiver(tmp_path / "box")
    rng = random.Random(seed)
    before = take_snapshot(read(repo.root))
    assert (before.id, before.changes) == (before.commit, (0, 0, 0))
    assert box.take(repo.root, before) == standing(repo.root)
    for each in happens:
        each(repo, rng)
    here_now = standing(repo.root)
    touched = listing(repo.root)
    here = read(repo.root)
    found = take_snapshot(here)
    assert box.take(repo.root, found) == here_now, [each.__name__ for each in happens]
    assert take_snapshot(read(repo.root)) == found
    forget(here)
    anew = take_snapshot(read(repo.root))
    assert (anew.id, anew.tree, anew.changes) == (found.id, found.tree, found.changes)
    assert listing(repo.root) == touched, "the repository was touched"
    assert not (repo.root.parent / "ran").exists(), "a filter ran"
