"""Snapshots of a working tree: complete, raw, and taken without touching the repository."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import UsageError
from bootstrap.repo.git import GitError
from bootstrap.repo.local import read_repository
from bootstrap.repo.objects import ObjectStream, have_locally, parse_report
from bootstrap.repo.snapshot import (
    Include,
    Snapshot,
    checked,
    forget_snapshot,
    remember_snapshot,
    take_snapshot,
    unreadable_error,
)
from bootstrap.repo.snapshot_store import KEPT, RAW
from bootstrap.repo.working_files import LEADS_OUT, LEADS_TO_IGNORED
from tests.unit.repo.repositories import SampleRepository, listing
from tests.unit.repo.standing import Entry, placed, standing
from tests.unit.repo.states import make_state, put_into

pytestmark = pytest.mark.slow

New = Callable[..., SampleRepository]
COUNT = 60


@pytest.fixture(autouse=True)
def stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stores; the user ignores `*.orig` everywhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".state"))
    ignore = home / ".config" / "git" / "ignore"
    ignore.parent.mkdir(parents=True)
    ignore.write_text("*.orig\n")
    return home / ".cache" / "boxstrap" / "snapshots"


class Receiver:
    """A store like a box's, and the tree that is checked out from it."""

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
        """Send the snapshot, check it out raw, and return the files that are there then."""
        here = read_repository(root)
        if not self.store.exists():
            self.git("init", "-q", "--bare", f"--object-format={here.object_format}")
            self.git("config", "receive.shallowUpdate", "true")
            (self.store / "info/attributes").write_text(RAW)
        if snapshot.id not in self.has:
            pieces = b"".join(
                ObjectStream(here, have=have_locally(here, self.has, snapshot), snapshot=snapshot)
            )
            parse_report(self.git("receive-pack", "--stateless-rpc", str(self.store), stdin=pieces))
            self.has.append(snapshot.id)
        self.git("--work-tree", str(self.tree), "checkout", "-q", "-f", "--detach", snapshot.id)
        return placed(self.tree)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Sample the states in a usual run; use all with `--every`, as in `make chaos`."""
    if "seed" in metafunc.fixturenames:
        every = metafunc.config.getoption("every")
        metafunc.parametrize("seed", range(0, COUNT, 1 if every else 4))


def test_the_tree_on_the_box_equals_the_working_tree_in_any_random_state(
    seed: int, tmp_path: Path
) -> None:
    repo, happens = make_state(seed, tmp_path / "state")
    box = Receiver(tmp_path / "box")
    rng = random.Random(seed)
    before = take_snapshot(read_repository(repo.root))
    assert (before.id, before.changes) == (before.commit, (0, 0, 0))
    assert box.take(repo.root, before) == standing(repo.root)
    for each in happens:
        put_into(repo, each, rng)
    here_now = standing(repo.root)
    touched = listing(repo.root)
    here = read_repository(repo.root)
    found = take_snapshot(here)
    assert box.take(repo.root, found) == here_now, happens
    assert take_snapshot(read_repository(repo.root)) == found
    forget_snapshot(here)
    anew = take_snapshot(read_repository(repo.root))
    assert (anew.id, anew.tree, anew.changes) == (found.id, found.tree, found.changes)
    assert listing(repo.root) == touched, "the repository was touched"
    assert not (repo.root.parent / "ran").exists(), "a filter ran"


# What git itself calls changed, and what it leaves out


def take(repo: SampleRepository, include: Include = "all") -> Snapshot:
    return take_snapshot(read_repository(repo.root), include)


def counted(repo: SampleRepository) -> str:
    return str(take(repo).changes)


def touch_all(repo: SampleRepository) -> None:
    """Make every file stat-stale, as a copied working tree is."""
    for place in repo.root.iterdir():
        if place.is_file():
            os.utime(place, (1, 1))


def test_a_snapshot_counts_modified_new_and_deleted_files(repo: SampleRepository) -> None:
    repo.commit(**{".gitignore": "*.pt\n", "both": "1\n", "gone": "1\n", "unlinked": "1\n"})
    assert counted(repo) == ""
    repo.write("train.py", "print(2)\n")
    repo.write("staged.py")
    repo.git("add", "staged.py")
    repo.write("both", "2\n")
    repo.git("add", "both")
    repo.write("both", "3\n")
    repo.git("rm", "-q", "gone")
    (repo.root / "unlinked").unlink()
    repo.write("data/a")
    repo.write("data/b")
    repo.write("model.pt")
    (repo.root / "README").unlink()
    (repo.root / "README").symlink_to("train.py")
    touch_all(repo)
    assert counted(repo) == "3 modified, 3 new, 2 deleted"
    found = take(repo)
    assert found.new == ("data/a", "data/b")
    tracked = take(repo, "tracked")
    assert str(tracked.changes) == "3 modified, 1 new, 2 deleted"
    assert (tracked.new, take(repo, "commit").id) == ((), found.commit)
    assert take(repo) == found


def test_a_snapshot_and_a_later_commit_of_the_same_files_have_one_content_id(
    repo: SampleRepository,
) -> None:
    repo.write("train.py", "print(2)\n")
    repo.write("new")
    before = take(repo)
    commit = repo.commit("All of it")
    after = take(repo)
    assert (after.id, after.tree, after.content) == (commit, before.tree, before.content)
    repo.git("commit", "-q", "--amend", "-m", "Said better")
    assert take(repo).content == before.content


def test_a_snapshot_has_the_files_as_they_are_now_and_no_staged_edit_undone_since(
    repo: SampleRepository,
) -> None:
    """Only the content of the working tree counts."""
    repo.write("train.py", "print(2)\n")
    repo.git("add", "train.py")
    repo.write("train.py", "print(1)\n")
    assert take(repo).id == repo.git("rev-parse", "HEAD")


@pytest.mark.parametrize("attributes", ["* text=auto\n", ""])
def test_line_ends_that_git_converts_are_no_change_in_a_snapshot_and_sent_as_they_are(
    new: New, attributes: str
) -> None:
    repo = new()
    repo.commit(**{".gitattributes": attributes, "a.txt": "1\n"})
    repo.git("config", "core.autocrlf", "true")
    (repo.root / "a.txt").unlink()
    repo.git("checkout", "a.txt")
    assert (repo.root / "a.txt").read_bytes() == b"1\r\n"
    touch_all(repo)
    found = take(repo)
    assert not found.changes
    shown = repo.git("--git-dir", str(found.folders.git_dir), "show", f"{found.id}:a.txt")
    assert (found.id != found.commit, shown) == (True, "1")
    assert found.tree != read_repository(repo.root).tree


def test_a_snapshot_reports_no_change_for_a_committed_utf_16_file(repo: SampleRepository) -> None:
    repo.commit(**{".gitattributes": "*.txt working-tree-encoding=UTF-16LE\n"})
    repo.write("a.txt", "größe\n".encode("utf-16le"))
    repo.commit()
    touch_all(repo)
    assert not take(repo).changes


@pytest.fixture
def crypt(new: New, home: Path, tmp_path: Path) -> SampleRepository:
    """A fresh clone with a filter of the user's own, like git-crypt's; only git may run it."""
    (home / "ran").touch()
    for way, turn in (("clean", "a-z A-Z"), ("smudge", "A-Z a-z")):
        program = home / way
        program.write_text(f"#!/bin/sh\necho {way} >>{home}/ran\nexec tr {turn}\n")
        program.chmod(0o755)
    source = new("source")
    source.git("config", "--global", "filter.crypt.clean", str(home / "clean"))
    source.git("config", "--global", "filter.crypt.smudge", str(home / "smudge"))
    source.git("config", "--global", "filter.crypt.required", "true")
    source.commit(**{".gitattributes": "*.key filter=crypt\n", "a.key": "secret\n", "b": "1\n"})
    assert source.git("show", "HEAD:a.key") == "SECRET"
    source.git("clone", "-q", ".", str(tmp_path / "clone"))
    (home / "ran").write_text("")
    return SampleRepository(tmp_path / "clone")


def test_taking_a_snapshot_never_runs_a_git_filter(crypt: SampleRepository, home: Path) -> None:
    assert (crypt.root / "a.key").read_text() == "secret\n"
    os.utime(crypt.root / "b", (1, 1))
    found = take(crypt)
    assert not found.changes
    assert found.id != found.commit, "what was decrypted here travels so"
    (crypt.root / "a.key").write_text("others\n")
    assert counted(crypt) == "1 modified"
    assert not (home / "ran").read_text(), "a filter ran"


def test_a_file_missing_in_one_snapshot_and_back_again_is_in_the_next(
    repo: SampleRepository,
) -> None:
    """Git lists a tracked file whether or not it is there, so the two looks seemed alike."""
    file, aside = repo.root / "train.py", repo.root.parent / "aside"
    file.rename(aside)
    repo.write("new.py", "new\n")
    without = take_snapshot(read_repository(repo.root))
    aside.rename(file)
    found = take_snapshot(read_repository(repo.root))
    assert found.tree != without.tree
    forget_snapshot(read_repository(repo.root))
    assert take_snapshot(read_repository(repo.root)).tree == found.tree


def test_an_lfs_file_is_sent_as_it_is_here_and_named_if_only_a_pointer(
    repo: SampleRepository,
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n"
    repo.commit(**{".gitattributes": "*.pt filter=lfs\n", "a.pt": pointer, "b.pt": pointer})
    repo.git("config", "filter.lfs.clean", "false")
    repo.git("config", "filter.lfs.required", "true")
    assert [path for path, _ in take(repo).left] == ["a.pt", "b.pt"]
    repo.write("a.pt", "the whole of it")
    found = take(repo)
    assert [path for path, _ in found.left] == ["b.pt"]
    assert [path for path, _ in take(repo, "commit").left] == ["a.pt", "b.pt"]
    repo.write("huge.pt", bytes(3 * 2**20))
    take_snapshot(read_repository(repo.root), max_file_mib=2)
    repo.write("huge.bin", bytes(3 * 2**20))
    with pytest.raises(UsageError, match=r"huge\.bin(.|\n)*boxstrap push"):
        take_snapshot(read_repository(repo.root), max_file_mib=2)


def test_a_staged_new_file_above_the_size_limit_is_refused(repo: SampleRepository) -> None:
    """They are not in the commit, though git tracks them; a file that is in it may grow."""
    repo.commit(grown="1")
    repo.write("grown", bytes(3 * 2**20))
    take_snapshot(read_repository(repo.root), max_file_mib=2)
    repo.write("huge.bin", bytes(3 * 2**20))
    repo.git("add", "huge.bin")
    for include in ("all", "tracked"):
        with pytest.raises(UsageError, match=r"huge\.bin"):
            take_snapshot(read_repository(repo.root), include, max_file_mib=2)  # type: ignore[arg-type]


def test_setup_names_a_symlink_to_a_file_that_git_ignores(repo: SampleRepository) -> None:
    """It dangles on the box: `data` is not sent, and nobody said so."""
    repo.commit(**{".gitignore": "/data/\n*.bin\n"})
    for file in ("data/train/x", "sent/deep/y", "sent/a.bin"):
        repo.write(file)
    links = {"to-data": "data", "inner": "data/train/x", "weights": "sent/a.bin", "gone": "no"}
    links |= {"folder": "sent/deep", "file": "sent/deep/y", "all": ".", "by-way": "folder/y"}
    for name, to in links.items():
        (repo.root / name).symlink_to(to)
    assert take(repo).left == tuple(
        (name, LEADS_TO_IGNORED) for name in ("inner", "to-data", "weights")
    )


def test_setup_names_files_that_it_cannot_send(repo: SampleRepository) -> None:
    repo.commit(**{".gitignore": "*.tmp\n"})
    inner = SampleRepository(repo.root / "inner")
    inner.root.mkdir()
    inner.git("init", "-q")
    inner.commit(a="1")
    os.mkfifo(repo.root / "pipe")
    os.mkfifo(repo.root / "pipe.tmp")
    (repo.root / "train.py").unlink()
    os.mkfifo(repo.root / "train.py")
    repo.write("git~1/x")
    repo.write("deep/file")
    for name, to in {"up": "../..", "far": "/data", "near": "../train.py", "gone": "no"}.items():
        (repo.root / "deep" / name).symlink_to(to)
    (repo.root / "far.tmp").symlink_to("/data")
    (repo.root / "beside").symlink_to("../beside")
    found = take(repo)
    led = [path for path, why in found.left if why == LEADS_OUT]
    assert led == ["beside", "deep/far", "deep/up"]
    others = [path for path, _ in found.left if path not in led]
    assert others == ["git~1/x", "inner/", "pipe", "train.py"]
    assert str(found.changes) == "6 new, 1 deleted"
    assert take(repo).left == found.left


def test_setup_announces_new_files_not_in_git_once(repo: SampleRepository) -> None:
    repo.write("a")
    found = take(repo)
    assert (found.new, found.first_time) == (("a",), ("a",))
    assert take(repo).first_time == ("a",)
    remember_snapshot(read_repository(repo.root), found)
    repo.write("b")
    assert (take(repo).new, take(repo).first_time) == (("a", "b"), ("b",))


# Submodules


@pytest.fixture
def with_submodule(repo: SampleRepository, new: New) -> SampleRepository:
    inner = new("inner")
    inner.commit(a="1")
    repo.git("submodule", "--quiet", "add", str(inner.root), "vendor/inner")
    repo.commit("Add a submodule")
    return repo


def test_a_submodule_is_sent_as_a_plain_folder(with_submodule: SampleRepository) -> None:
    repo, inner = with_submodule, SampleRepository(with_submodule.root / "vendor/inner")
    clean = take(repo)
    assert (str(clean.changes), clean.left) == ("", ())
    assert clean.id != clean.commit
    assert take(repo, "commit").tree == clean.tree
    inner.write("a", "2")
    inner.write("new")
    assert counted(repo) == "1 modified, 1 new"
    assert take(repo, "commit").tree == clean.tree
    inner.commit("Second")
    assert counted(repo) == "1 modified, 1 new"
    assert take(repo).id == take(repo).id != clean.id


def test_a_submodule_whose_folder_is_gone_counts_as_deleted(
    with_submodule: SampleRepository,
) -> None:
    shutil.rmtree(with_submodule.root / "vendor")
    found = take(with_submodule)
    assert str(found.changes) == "1 deleted"
    assert found.id != found.commit


def test_a_submodule_whose_git_file_leads_elsewhere_is_not_sent_and_is_named(
    with_submodule: SampleRepository, new: New
) -> None:
    """A hostile repository may point a submodule at another repository on this machine."""
    private = new("private")
    private.commit(secret="s3cret")
    place = with_submodule.root / "vendor/inner"
    (place / ".git").write_text(f"gitdir: {private.root}/.git\n")
    for include in ("all", "commit"):
        found = take(with_submodule, include)  # type: ignore[arg-type]
        ((path, why),) = found.left
        assert (path, "elsewhere" in why) == ("vendor/inner", True)
        private_blob = private.git("rev-parse", "HEAD:secret")
        with pytest.raises(AssertionError):
            private.git("--git-dir", str(found.folders.git_dir), "cat-file", "-e", private_blob)
    (place / ".git").unlink()
    place.rename(with_submodule.root / "moved")
    place.symlink_to(private.root)
    found = take(with_submodule)
    shown = with_submodule.git("--git-dir", str(found.folders.git_dir), "ls-tree", "-r", found.id)
    assert "secret" not in shown
    assert "120000 blob" in shown
    assert found.left == (("vendor/inner", LEADS_OUT),)


def test_a_submodule_that_is_not_checked_out_is_named_as_left_out(
    with_submodule: SampleRepository,
) -> None:
    with_submodule.git("submodule", "deinit", "-q", "-f", "vendor/inner")
    for include in ("all", "commit"):
        found = take(with_submodule, include)  # type: ignore[arg-type]
        assert found.id == found.commit
        ((path, why),) = found.left
        assert (path, "submodule" in why) == ("vendor/inner", True)


# The store


def test_other_users_can_not_enter_the_folder_of_snapshots(
    repo: SampleRepository, stores: Path
) -> None:
    repo.write("new")
    found = take(repo)
    (folder,) = stores.glob("homework-*/")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert stores.stat().st_mode & 0o777 == 0o700
    assert found.folders.git_dir.parent == folder


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing left": shutil.rmtree,
    "index cut": lambda store: os.truncate(store / "index", 20),
    "index of zeros": lambda store: (store / "index").write_bytes(bytes(200)),
    "index gone": lambda store: (store / "index").unlink(),
    "state of another kind": lambda store: (store / "state.json").write_text('{"commit": {}}'),
    "state cut": lambda store: (store / "state.json").write_text('{"comm'),
    "paths gone": lambda store: (store / "paths").unlink(),
    "config gone": lambda store: (store / "config").unlink(),
    "objects gone": lambda store: [shutil.rmtree(each) for each in store.glob("objects/[0-9a-f]*")],
    "objects empty": lambda store: [
        (each.chmod(0o644), each.write_bytes(b"")) for each in store.glob("objects/[0-9a-f]*/*")
    ],
    "no alternates": lambda store: (store / "all/objects/info/alternates").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_snapshot_is_the_same_after_its_damaged_store_was_replaced(
    repo: SampleRepository, stores: Path, damage: str, tmp_path: Path
) -> None:
    repo.write("train.py", "print(2)\n")
    repo.write("new", "n\n")
    before = take(repo)
    DAMAGES[damage](next(stores.glob("homework-*/")))
    here = read_repository(repo.root)
    found = checked(here, take_snapshot(here))
    assert (found.id, found.tree, found.changes) == (before.id, before.tree, before.changes)
    assert Receiver(tmp_path / "box").take(repo.root, found) == standing(repo.root)


def test_two_snapshots_taken_at_the_same_time_are_equal(repo: SampleRepository) -> None:
    for number in range(200):
        repo.write(f"new/{number}", str(number))
    code = (
        "import sys; from pathlib import Path; from bootstrap.repo.local import read_repository\n"
        "from bootstrap.repo.snapshot import take_snapshot, forget_snapshot\n"
        "here = read_repository(Path(sys.argv[1]))\n"
        "for turn in range(3): print(take_snapshot(here).id); forget_snapshot(here)\n"
    )
    going = [
        subprocess.Popen([sys.executable, "-c", code, str(repo.root)], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    said = {line for each in going for line in each.communicate()[0].split()}
    assert [each.returncode for each in going] == [0, 0, 0]
    assert said == {take(repo).id.encode()}


def test_git_objects_of_old_snapshots_are_deleted_on_this_machine(
    repo: SampleRepository, stores: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo.write("new", "first")
    first = take(repo)
    remember_snapshot(read_repository(repo.root), first)
    big = []
    for turn in range(KEPT + 4):
        repo.write("new", f"{turn}")
        repo.write("big.bin", os.urandom(17 * 2**20) if turn == 0 else f"{turn}")
        big.append(take(repo))
    size = sum(each.stat().st_size for each in stores.rglob("*") if each.is_file())
    assert size > 17 * 2**20
    monkeypatch.setattr("bootstrap.repo.snapshot_store.MOST", 1)
    repo.write("new", "last")
    last = take(repo)
    size = sum(each.stat().st_size for each in stores.rglob("*") if each.is_file())
    assert size < 2**20, "the large file that nothing needs is there"
    receiver = Receiver(tmp_path / "box")
    for kept in (first, big[-KEPT + 1], big[-1], last):
        assert have_locally(read_repository(repo.root), [kept.id], last) == [kept.id]
        receiver.take(repo.root, kept)
    assert not have_locally(read_repository(repo.root), [big[0].id], last)


def test_setup_names_a_file_it_cannot_read(repo: SampleRepository) -> None:
    """Given git's message as text, because root can read every file."""
    said = 'error: open("a/new"): Permission denied\nfatal: Unable to process path a/new'
    error = unreadable_error(read_repository(repo.root), GitError(128, said))
    assert error
    assert error.what.startswith("a/new can't be read")
    assert (
        unreadable_error(read_repository(repo.root), GitError(128, "fatal: something else")) is None
    )
