"""A kill or power cut in a switch of snapshots: the next placing finishes it, and nothing made on
the box is lost.

Runs the box's own placing with this machine's git and disk, without a box: a second per try.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootstrap.onbox import MAIN
from tests.cli import User, UserRepository
from tests.faults.plugin import Faults
from tests.programs import captured

pytestmark = pytest.mark.sampled(of="module")

PLACES = """
import json, os, sys
synced, package, given = sys.argv[1:]
sync = os.fsync
def noted(file):
    sync(file)
    found = os.fstat(file)
    with open(synced, "a") as log:
        print(found.st_ino, found.st_mtime_ns, file=log)
os.fsync = noted
sys.path.insert(0, package)
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.values import Values
from bootstrap.onbox.work.place import Placing, WantedTree
home, tree, values = json.loads(given)
Placing(WantedTree(BoxTree(home, "homework-1", tree), tree, Values(values))).place()
"""
"""Places a state, and logs which files are synced to disk."""
MADE_THERE = {
    "out/model.bin": "what training made\n",
    "kept/notes.txt": "one\nan edit of the box\n",
}
"""Made on the box, in files that no state touches."""


@dataclass
class Switched:
    """A repository and its three states, each a commit and a snapshot with changes."""

    source: UserRepository
    states: tuple[tuple[str, str], ...] = ()
    """Commit and snapshot of each."""

    def stand(self, number: int) -> None:
        """Write a state's files: changed, new, removed, another mode; a folder where a file was."""
        chance, root = random.Random(number), self.source.root
        for at in range(60):
            (root / f"data{at}.bin").write_bytes(chance.randbytes(20_000))
        for name in ("turns", "turns/1.txt", "link"):
            path = root / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(True)
        self.source.write(
            {"turns" if number % 2 else "turns/1.txt": f"{number}\n", f"only{number}.txt": "new\n"}
        )
        (root / "link").symlink_to(f"data{number}.bin")
        (root / "train.py").chmod(0o755 if number % 2 else 0o644)
        (root / f"only{number - 1}.txt").unlink(missing_ok=True)

    def snapshot(self) -> str:
        """Commit the raw bytes of all files on top of HEAD; return the commit."""
        attributes = self.source.root / ".git/info/attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -text -ident -filter -working-tree-encoding\n")
        self.source.git("add", "--all")
        tree = self.source.git("write-tree").strip()
        self.source.git("read-tree", "HEAD")
        attributes.unlink()
        return self.source.git("commit-tree", "-p", "HEAD", "-m", "Snapshot", tree).strip()


@pytest.fixture(scope="module")
def switched(tmp_path_factory: pytest.TempPathFactory) -> Switched:
    user = User(tmp_path_factory.mktemp("switched"))
    attributes = {"_gitattributes": "*.txt text eol=crlf\n", "_gitignore": "out/\n"}
    made = Switched(user.repository(**attributes))
    made.source.commit({"kept/notes.txt": "one\n"})
    states = []
    for number in range(3):
        made.stand(number)
        if number == 1:  # from here on, states are based on another commit
            made.source.commit({})
            made.source.write({"data1.bin": "changed since\n"})
        states.append((made.source.head, made.snapshot()))
    made.states = tuple(states)
    return made


class SwitchedBox:
    """A folder like a box's, and the placing in it."""

    def __init__(self, folder: Path, switched: Switched) -> None:
        self.folder, self.switched = folder, switched
        self.tree = folder / "homework"
        self.placed = folder / ".boxstrap/steps/homework-1/placed"
        self._store = folder / ".boxstrap/store/homework-1.git"
        self._synced = folder.with_name(f"{folder.name}-synced")

    def lose_power(self, before: SwitchedBox, chance: random.Random) -> None:
        """Cut files written since `before` and not synced to a random length: file systems keep
        the order of names, but write contents at any time."""
        synced = self._synced.read_text().splitlines() if self._synced.exists() else []
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.parent.name == "pack":  # git syncs
                continue
            old, now = before.folder / path.relative_to(self.folder), path.stat()
            same = old.is_file() and old.stat().st_mtime_ns == now.st_mtime_ns
            if not same and f"{now.st_ino} {now.st_mtime_ns}" not in synced:
                kept = chance.choice([now.st_size, 0, chance.randrange(0, now.st_size + 1, 4096)])
                if kept < now.st_size:
                    os.truncate(path, kept)

    def begin(self, number: int) -> subprocess.Popen[str]:
        """Start placing a state, in a process group of its own."""
        commit, snapshot = self.switched.states[number]
        values = {"repo_commit": commit, "repo_snapshot": snapshot, "repo_branch": "main"}
        values.update(repo_url="", shared="", results="")
        given = json.dumps([f"{self.folder}/.boxstrap", str(self.tree), values])
        package = Path(MAIN).parents[2]
        words = ("-I", "-S", "-B", "-c", PLACES, self._synced, package, given)
        return subprocess.Popen(
            [sys.executable, *words],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def place(self, number: int) -> None:
        """Place a state, and wait for the end."""
        going = self.begin(number)
        said, _ = going.communicate(timeout=60)
        assert going.returncode == 0, said

    def await_moment(
        self, chance: random.Random, seconds: float, going: subprocess.Popen[str]
    ) -> None:
        """Wait for a random moment: anywhere, or while the files are switched."""
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0, seconds))
            return
        while not (self.placed.parent / "repo.switch").exists() and going.poll() is None:
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.03))

    def make_store(self) -> None:
        """Make the store with all that would be sent, and the folders that a setup makes."""
        self.placed.parent.mkdir(parents=True)
        self._store.parent.mkdir()
        subprocess.run(["git", "init", "-q", "--bare", "--template=", self._store], check=True)
        for _, snapshot in self.switched.states:
            ref = f"{snapshot}:refs/boxstrap/{snapshot}"
            self.switched.source.git("push", "-q", str(self._store), ref)

    def files(self) -> dict[str, tuple[str, bytes]]:
        """Return mode and content of each file of the tree."""
        return files_of(self.tree)

    def git(self, *arguments: str) -> str:
        """Return the output of the user's git in the tree."""
        argv = ["git", "-C", str(self.tree), *arguments]
        return captured(argv).stdout


def files_of(tree: Path) -> dict[str, tuple[str, bytes]]:
    found = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if name.partition("/")[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        link = path.is_symlink()
        content = os.fsencode(path.readlink()) if link else path.read_bytes()
        found[name] = ("link" if link else oct(path.stat().st_mode & 0o111), content)
    return found


@pytest.fixture(scope="module")
def begun(switched: Switched, tmp_path_factory: pytest.TempPathFactory) -> SwitchedBox:
    """A box on which the first state was placed, and files were made since."""
    box = SwitchedBox(tmp_path_factory.mktemp("begun") / "box", switched)
    box.folder.mkdir()
    box.make_store()
    box.place(0)
    for name, text in MADE_THERE.items():
        (box.tree / name).parent.mkdir(exist_ok=True)
        (box.tree / name).write_text(text)
    return box


def another(box: SwitchedBox, folder: Path) -> SwitchedBox:
    """Copy the box; links stay links, and times are kept."""
    subprocess.run(["cp", "-a", box.folder, folder], check=True)
    return SwitchedBox(folder, box.switched)


def switched_once(begun: SwitchedBox, folder: Path) -> tuple[SwitchedBox, float]:
    """Return a copy with a complete switch, and the seconds that it took."""
    usual = another(begun, folder / "usual")
    began = time.monotonic()
    usual.place(1)
    return usual, time.monotonic() - began


def kill(going: subprocess.Popen[str]) -> None:
    """Kill an update, which may be over by then."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(going.pid, signal.SIGKILL)
    going.communicate()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.getoption("tries")))


def test_the_next_update_of_a_tree_finishes_an_update_that_was_killed(
    begun: SwitchedBox, tmp_path: Path, seeded: random.Random, faults: Faults, number: int
) -> None:
    usual, seconds = switched_once(begun, tmp_path)
    box = another(begun, tmp_path / "box")
    with faults.attempt("kill -9 in a switch of snapshots"):
        for _ in range(seeded.randint(1, 3)):
            going = box.begin(1)
            box.await_moment(seeded, seconds, going)
            kill(going)
        converges(box, usual, seeded)
        # The next switch works too.
        box.place(0)
        assert box.files() == begun.files()


def test_damaged_boxstrap_refs_on_the_box_are_repaired_by_the_next_update(
    begun: SwitchedBox, tmp_path: Path, seeded: random.Random
) -> None:
    usual, _ = switched_once(begun, tmp_path)
    box = another(begun, tmp_path / "box")
    store = box.folder / ".boxstrap/store/homework-1.git/refs/boxstrap"
    for ref in (box.tree / ".git/refs/boxstrap/placed", store / begun.switched.states[1][0]):
        ref.write_bytes(b"\0" * 41)
    converges(box, usual, seeded)


def test_the_next_update_of_a_tree_finishes_an_update_cut_by_power_loss(
    begun: SwitchedBox, tmp_path: Path, seeded: random.Random, faults: Faults, number: int
) -> None:
    usual, seconds = switched_once(begun, tmp_path)
    box = another(begun, tmp_path / "box")
    with faults.attempt("power cut in a switch of snapshots"):
        going = box.begin(1)
        box.await_moment(seeded, seconds, going)
        kill(going)
        box.lose_power(begun, seeded)
        converges(box, usual, seeded)


def converges(box: SwitchedBox, usual: SwitchedBox, seeded: random.Random) -> None:
    """Check that the next placing makes the box equal to an undisturbed one."""
    if seeded.random() < 0.3:  # the next placing is of another state
        usual.place(2)
        box.place(2)
    else:
        box.place(1)
    assert box.files() == usual.files()
    assert {name: box.files()[name][1].decode() for name in MADE_THERE} == MADE_THERE
    looks = [("rev-parse", "HEAD"), ("symbolic-ref", "HEAD"), ("status", "--porcelain")]
    assert [box.git(*look) for look in looks] == [usual.git(*look) for look in looks]
    assert not [*box.folder.rglob("*.lock"), *box.folder.rglob("repo.switch")]
    assert box.placed.joinpath("HEAD").read_text() == usual.placed.joinpath("HEAD").read_text()
