"""Placing a snapshot with obstacles on the box: no disk space, a folder that is a link."""

import io
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.work.place import Placing, WantedTree, check, set_user
from bootstrap.onbox.work.shared import SharedFolders
from bootstrap.steps.shell import Value, shell_part
from tests.unit.repo.repositories import SampleRepository
from tests.unit.setup.scripts import values_of

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]

LARGE = 400 * 1024


class Placed:
    """A box's store and tree, into which states of a repository are placed."""

    def __init__(self, folder: Path) -> None:
        self.home, self.tree = folder / "w/.boxstrap", folder / "w/homework"
        self.commit, self.said = "", ""
        (self.home / "steps/k").mkdir(parents=True)
        self.store = self.home / "store/k.git"
        self.repo = SampleRepository(folder / "repo")
        self.repo.root.mkdir()
        self.repo.git("init", "-q", "-b", "main")
        self.repo.git("config", "user.name", "me")
        self.repo.git("config", "user.email", "me@example.org")
        self.repo.git("init", "-q", "--bare", str(self.store))

    def state(self, **files: str) -> str:
        """Commit these files too (`a__b` is a/b) and push; return the commit."""
        made = self.repo.commit(**{name.replace("__", "/"): text for name, text in files.items()})
        self.repo.git("push", "-q", str(self.store), f"HEAD:refs/boxstrap/{made}")
        self.commit = self.commit or made
        return made

    def wanted(
        self, snapshot: str, beside: str = "", *, adopts: bool = False, **own: Value
    ) -> WantedTree:
        """`beside`: the number of the tree, and its folder after the main one's."""
        tree = BoxTree(str(self.home), "k", f"{self.tree}{beside}", beside[1:] or "1")
        values = values_of(repo_commit=self.commit, repo_snapshot=snapshot, **own)
        return WantedTree(tree, str(self.tree), values, str(self.tree), adopts=adopts)

    def place(self, snapshot: str, given: Mapping[str, Any] = {}) -> tuple[int, str]:
        """Place a snapshot; return the exit code and the failure's code."""
        wanted = self.wanted(snapshot, **given)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            try:
                Placing(wanted).place()
                code = ""
            except StepError as error:
                code = error.code
                said.write("\n".join(error.sentences))
        self.said = said.getvalue()
        return bool(code), code

    def files(self) -> dict[str, str]:
        """Return the files of the tree and their content."""
        found = (path for path in self.tree.rglob("*") if ".git" not in path.parts)
        return {str(p.relative_to(self.tree)): p.read_text() for p in found if p.is_file()}


@pytest.fixture
def placed(tmp_path: Path) -> Placed:
    return Placed(tmp_path)


@pytest.fixture
def no_room(tmp_path: Path) -> str:
    """The PATH of a git whose files are limited to 200 KiB, which looks like a full disk to it."""
    program = tmp_path / "limited/git"
    program.parent.mkdir()
    limits = "trap '' XFSZ; ulimit -f 200"
    program.write_text(f'#!/bin/sh\n{limits}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def test_a_tree_is_not_updated_on_a_full_disk_until_there_is_room(
    placed: Placed, monkeypatch: pytest.MonkeyPatch, no_room: str
) -> None:
    first = placed.state(a="1\n", b="1\n")
    second = placed.state(a="2\n", large="x" * LARGE, z="2\n")
    assert placed.place(first) == (0, "")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", no_room)
        assert placed.place(second) == (1, "disk-full"), placed.said
        assert "unable to write file" in placed.said
        assert placed.files() == {"a": "2\n", "b": "1\n", "z": "2\n"}
        assert placed.place(second) == (1, "disk-full"), placed.said
    assert placed.place(second) == (0, ""), placed.said
    assert placed.files() == {"a": "2\n", "b": "1\n", "large": "x" * LARGE, "z": "2\n"}


def test_a_full_disk_at_the_first_setup_leaves_no_tree(
    placed: Placed, monkeypatch: pytest.MonkeyPatch, no_room: str
) -> None:
    first = placed.state(a="1\n", large="x" * LARGE)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", no_room)
        assert placed.place(first) == (1, "disk-full"), placed.said
    assert not placed.tree.exists()
    assert placed.place(first) == (0, ""), placed.said
    assert placed.files() == {"a": "1\n", "large": "x" * LARGE}


def test_a_full_disk_while_commits_are_copied_gives_disk_full_and_not_git_damaged(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = placed.state(a="1\n"), placed.state(a="2\n")
    placed.place(first)
    placed.commit = second
    for said, code in (("No space left on device", "disk-full"), ("bad object", "git-damaged")):
        failed = Mock(side_effect=OSError(f"fatal: {said}"))
        monkeypatch.setattr(Placing, "_fetch_from_store", failed)
        assert placed.place(second) == (1, code), placed.said
    assert placed.files() == {"a": "1\n"}


def test_updating_a_tree_does_not_replace_a_symlink_that_the_user_put_for_a_folder(
    placed: Placed,
) -> None:
    first = placed.state(a="1\n", data__x="1\n")
    second, third = placed.state(a="2\n"), placed.state(data__x="2\n")
    placed.place(first)
    elsewhere = placed.home / "larger"
    (placed.tree / "data").rename(elsewhere)
    (placed.tree / "data").symlink_to(elsewhere)
    assert placed.place(second) == (0, ""), placed.said
    assert placed.place(third) == (1, "box-edits")
    assert "data is a link on the box" in placed.said
    assert (placed.tree / "data").is_symlink()
    assert (elsewhere / "x").read_text() == "1\n"


def note_pushed(home: Path, *files: Path) -> None:
    """Note files of one folder as a push does."""
    (home / "data").mkdir(parents=True, exist_ok=True)
    rows = [[file.name, len(file.read_bytes()), file.stat().st_mtime_ns] for file in files]
    lines = map(json.dumps, ({"target": str(files[0].parent)}, *rows))
    (home / f"data/{files[0].name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_files_that_were_pushed_stay_in_a_tree_whose_snapshot_lacks_them_now(
    placed: Placed,
) -> None:
    """They were sent before they had their line in .gitignore; the next run removed them."""
    data = {"data/x": "1\n", "data/y": "1\n", "data/z": "1\n"}
    first = placed.state(a="1\n", old="1\n", **{n.replace("/", "__"): t for n, t in data.items()})
    placed.place(first)
    (placed.tree / "data/y").write_text("pushed\n")
    note_pushed(placed.home, placed.tree / "data/x", placed.tree / "data/y")
    (placed.tree / "data/z").unlink()
    placed.repo.git("rm", "-qr", "--cached", "data", "old")
    (placed.repo.root / "old").unlink()
    for number in "23":
        snapshot = placed.state(a=number, **{".gitignore": "data/\n"})
        assert placed.place(snapshot) == (0, ""), placed.said
        left = {".gitignore": "data/\n", "data/x": "1\n", "data/y": "pushed\n"}
        assert placed.files() == {"a": number, **left}
        assert "removed" not in placed.said


def test_setup_goes_on_after_an_edit_on_the_box_was_merged_here(placed: Placed) -> None:
    first = placed.state(a="1\n", b="1\n")
    placed.place(first)
    (placed.tree / "a").write_text("the box's\n")
    git = placed.repo.git
    git("checkout", "-q", "-b", "box")
    edits = placed.state(a="the box's\n")
    git("checkout", "-q", "main")
    placed.commit = placed.state(a="mine\n")
    assert placed.place(placed.commit) == (1, "box-edits")
    git("merge", "-q", "-s", "ours", "-m", "Merge what was edited on the box", edits)
    placed.commit = placed.state(a="mine, and the box's\n")
    (placed.tree / "b").write_text("another edit\n")
    assert placed.place(placed.commit) == (0, ""), placed.said
    assert placed.files() == {"a": "mine, and the box's\n", "b": "another edit\n"}
    # Resolved in the merge itself, of edits on top of commits of the box's own.
    (placed.tree / "b").write_text("1\n")
    (placed.tree / "a").write_text("again the box's\n")
    git("checkout", "-q", "-b", "second", "main")
    git("merge", "-q", "-s", "ours", "-m", "The box's own", "box")
    edits = placed.state(a="again the box's\n")
    git("checkout", "-q", "main")
    git("merge", "-q", "-s", "ours", "--no-commit", "--no-ff", edits)
    placed.commit = placed.state(a="of both\n")
    assert placed.place(placed.commit) == (0, ""), placed.said
    # A mode of the box's own is an edit, though the content is what was placed.
    (placed.tree / "a").chmod(0o755)
    placed.commit = placed.state(a="of both, and more\n")
    assert placed.place(placed.commit) == (1, "box-edits"), placed.said
    (placed.tree / "a").chmod(0o644)
    assert placed.place(placed.commit) == (0, ""), placed.said
    # It is not known what else is made there, nor what it was long before.
    for text in ("of now\n", "1\n"):
        (placed.tree / "a").write_text(text)
        placed.commit = placed.state(a=f"mine, after {text}")
        assert placed.place(placed.commit) == (1, "box-edits"), placed.said


def test_updating_a_tree_lists_files_edited_on_the_box_and_overwrites_none(placed: Placed) -> None:
    """Also if nothing is to be placed; but not those that only their times tell apart."""
    names = ("a", "b", "c__x", "mode", "touched", "gone", "deleted", "linked__x")
    first = placed.state(**dict.fromkeys(names, "1\n"))
    note = placed.home / "steps/k/repo.edited"

    def edited(snapshot: str) -> list[str]:
        assert placed.place(snapshot) == (0, ""), placed.said
        return note.read_text().splitlines() if note.exists() else []

    assert edited(first) == []
    tree = placed.tree
    (tree / "a").write_text("the box's\n")
    (tree / "b").unlink()
    (tree / "b").symlink_to("a")
    (tree / "c/x").unlink()
    (tree / "c/x").mkdir()
    (tree / "mode").chmod(0o755)
    os.utime(tree / "touched", (1, 1))
    (tree / "gone").unlink()
    placed.repo.git("-C", str(tree), "rm", "-q", "deleted")
    (tree / "linked").rename(placed.home / "larger")
    (tree / "linked").symlink_to(placed.home / "larger")
    there = ["a", "b", "c/x", "mode", "deleted"]
    assert edited(first) == there
    assert (tree / "gone").read_text() == "1\n"
    second = placed.state(touched="2\n")
    assert edited(second) == there
    assert (tree / "a").read_text() == "the box's\n"
    # What came home, and comes back as it stands there, is edited no more.
    placed.commit = placed.state(a="the box's\n")
    assert edited(placed.commit) == there[1:]
    (tree / "b").unlink()
    (tree / "b").write_text("1\n")
    (tree / "c/x").rmdir()
    (tree / "c/x").write_text("1\n")
    (tree / "mode").chmod(0o644)
    placed.repo.git("-C", str(tree), "checkout", "-q", "HEAD", "--", "deleted")
    assert edited(placed.commit) == []


@pytest.mark.parametrize("notes", ["kept", "lost"])
@pytest.mark.parametrize("when", ["half of the files", "a file half-written", "before HEAD"])
def test_the_next_update_of_a_tree_finishes_one_cut_short_and_overwrites_no_later_edit(
    placed: Placed, when: str, notes: str
) -> None:
    """As a kill in the middle of git's checkout leaves it."""
    text = "".join(f"line {number} of the notes\n" for number in range(200))
    first = placed.state(notes=text, train="1\n")
    second = placed.state(notes=f"new\n{text}", a="a\n", z="z\n")
    assert placed.place(first) == (0, ""), placed.said
    steps, tree, git = placed.home / "steps/k", placed.tree, placed.repo.git
    (steps / "repo.switch").write_text(f"{second} {second}\n")
    own = ("--git-dir", str(steps / "placed" if notes == "kept" else tree / ".git"))
    if notes == "lost":
        shutil.rmtree(steps / "placed")
    if when == "before HEAD":
        git(*own, "--work-tree", str(tree), "-C", str(tree), "read-tree", "-m", "-u", first, second)
    elif when == "half of the files":
        (tree / "a").write_text("a\n")
        (tree / "notes").unlink()
    else:
        (tree / "notes").write_text(f"new\n{text}"[:300])
    if when != "before HEAD":
        Path(own[1], "index.lock").touch()
    (tree / "train").write_text("mine\n")
    placed.commit = second
    assert placed.place(second) == (0, ""), placed.said
    assert placed.files() == {"notes": f"new\n{text}", "a": "a\n", "z": "z\n", "train": "mine\n"}
    assert git("-C", str(tree), "rev-parse", "HEAD") == second
    assert git("-C", str(tree), "status", "--porcelain").split() == ["M", "train"]


def test_an_update_of_a_tree_counts_files_also_beyond_those_that_it_names(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.onbox.work.place._MOST_FILES", 2)
    first, second = placed.state(a="1\n"), placed.state(a="2\n", b="1\n", c="1\n")
    assert placed.place(first) == (0, ""), placed.said
    placing = Placing(placed.wanted(second))
    placing.place()
    assert [*placing.rows()] == ["M\ta", "A\tb", "A\t…"]


def test_an_update_of_a_tree_fails_with_box_edits_if_a_file_was_edited_since_one_cut_short(
    placed: Placed,
) -> None:
    first, second = placed.state(a="1\n", b="1\n"), placed.state(a="2\n", b="2\n")
    assert placed.place(first) == (0, ""), placed.said
    (placed.home / "steps/k/repo.switch").write_text(f"{second} {first}\n")
    (placed.tree / "a").write_text("mine\n")
    assert placed.place(second) == (1, "box-edits"), placed.said
    assert placed.said.splitlines()[0] == "\ta"
    assert placed.files() == {"a": "mine\n", "b": "1\n"}


def test_an_update_of_a_tree_runs_no_program_named_by_its_git_config_or_attributes(
    placed: Placed,
) -> None:
    (placed.repo.root / ".gitattributes").write_text("* filter=trap diff=trap merge=trap\n")
    first = placed.state(a="1\n", b="1\n")
    second = placed.state(a="2\n")
    assert placed.place(first) == (0, ""), placed.said
    trap, git = placed.home / "trap", ("-C", str(placed.tree), "config")
    trap.write_text(f"#!/bin/sh\necho $0 $* >>{placed.home}/sprung\ncat\n")
    trap.chmod(0o755)
    keys = ("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.external")
    # A filter for cleaning that was set on the box is its user's: their git runs it on new files.
    own = ("filter.trap.smudge", "diff.trap.textconv")
    for key in (
        *keys,
        *own,
        "diff.trap.command",
        "merge.trap.driver",
        "uploadpack.packObjectsHook",
    ):
        placed.repo.git(*git, key, str(trap))
    hooks = placed.tree / ".git/hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        (hooks / hook).symlink_to(trap)
    (placed.tree / "b").write_text("mine\n")
    placed.commit = second
    assert placed.place(second) == (0, ""), placed.said
    assert check(placed.wanted(second), notes=False)
    assert (placed.files()["a"], placed.files()["b"]) == ("2\n", "mine\n")
    sprung = placed.home / "sprung"
    assert not sprung.exists(), sprung.read_text()


def test_setup_restores_a_tree_on_the_box_that_lost_its_git_objects(placed: Placed) -> None:
    snapshot = placed.state(a="1\n")
    placed.place(snapshot)
    assert check(placed.wanted(snapshot), notes=False)
    shutil.rmtree(placed.tree / ".git/objects")
    (placed.tree / ".git/objects").mkdir()
    assert not check(placed.wanted(snapshot), notes=False)
    assert placed.place(snapshot) == (0, ""), placed.said
    assert check(placed.wanted(snapshot), notes=False)


def test_an_update_of_a_tree_replaces_a_symlink_by_a_folder(placed: Placed) -> None:
    (placed.repo.root / "data").symlink_to("elsewhere")
    first = placed.state(a="1\n")
    (placed.repo.root / "data").unlink()
    second = placed.state(data__x="1\n")
    placed.place(first)
    assert placed.place(second) == (0, ""), placed.said
    assert placed.files() == {"a": "1\n", "data/x": "1\n"}


def beside(placed: Placed) -> dict[str, Any]:
    """Return what makes `place` use a tree next to the main one."""
    notes = placed.home / "steps/k/beside/2"
    notes.mkdir(parents=True, exist_ok=True)
    placed.tree.mkdir(exist_ok=True)
    return {"beside": "@2", "shared": ["data", "a b/c"]}


def test_a_shared_folder_in_a_second_tree_is_a_symlink_to_the_main_trees(placed: Placed) -> None:
    first, before = placed.state(a="1\n"), beside(placed)
    assert placed.place(first, before) == (0, ""), placed.said
    tree = placed.tree.with_name("homework@2")
    for name in ("data", "a b/c"):
        assert (tree / name).readlink() == placed.tree / name
    (tree / "data/corpus").write_text("large\n")
    assert (placed.tree / "data/corpus").read_text() == "large\n"
    said = placed.repo.git("-C", str(tree), "status", "--porcelain")
    assert said == ""
    assert placed.place(placed.state(a="2\n"), before) == (0, ""), placed.said
    assert (tree / "a").read_text() == "2\n"
    # Links are put back in place of nothing or an empty folder; a folder with files is kept.
    (tree / "data").unlink()
    (tree / "a b/c").unlink()
    (tree / "a b/c").mkdir()
    assert not placed.wanted(first, **before).shared.are_linked()
    assert placed.place(first, before) == (0, ""), placed.said
    assert (tree / "data").is_symlink()
    assert (tree / "a b/c").is_symlink()
    (tree / "data").unlink()
    (tree / "data").mkdir()
    (tree / "data/mine").write_text("")
    assert placed.place(first, before) == (1, "shared-in-the-way")
    assert (tree / "data/mine").exists()


def test_a_tree_beside_lacks_no_ignored_file_that_its_own_install_makes(
    placed: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    ignores = "build/\n*.so\n_version.py\n*.egg-info/\n*.bin\n"
    first = placed.state(a="1\n", **{".gitignore": ignores})
    assert placed.place(first) == (0, ""), placed.said
    shared = placed.wanted(first, **beside(placed)).shared
    made = ("build/lib/a", "a.egg-info/x", "_version.py", "lib.cpython-312-x86_64-linux-gnu.so")
    for name, is_told in (*((name, False) for name in made), ("corpus.bin", True)):
        (placed.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (placed.tree / name).write_text("")
        shared.warn_of_ignored(".venv", ["out"])
        assert ("tree-lacks-ignored" in capsys.readouterr().out) is is_told, name


@pytest.mark.parametrize(
    ("name", "made", "is_told"),
    [
        ("homework", "homework-k", True),
        ("homework", "homework-k@2", False),  # it was told with the main tree
        ("renamed", "homework", False),
        ("home", "homework", False),
    ],
)
def test_setup_says_own_folder_if_another_repository_has_the_usual_folder_name(
    placed: Placed, capsys: pytest.CaptureFixture[str], name: str, made: str, is_told: bool
) -> None:
    folders = (made, made.partition("@")[0], name)
    path, main, usual = (str(placed.tree.with_name(each)) for each in folders)
    tree, values = BoxTree(str(placed.home), "k", path), placed.wanted(placed.state(a="1")).values
    Placing(WantedTree(tree, main, values, usual)).place()
    assert ("own-folder" in capsys.readouterr().out) == is_told


def test_a_shared_folder_with_files_in_git_gives_the_error_shared_tracked(placed: Placed) -> None:
    first, before = placed.state(data__x="1\n"), beside(placed)
    assert placed.place(first, before) == (1, "shared-tracked")
    assert not placed.tree.with_name("homework@2").exists()


def test_a_shared_folder_below_a_symlink_out_of_the_tree_gives_an_error(placed: Placed) -> None:
    (placed.repo.root / "a b").symlink_to(placed.home)
    first, before = placed.state(a="1\n"), beside(placed)
    assert placed.place(first, before) == (1, "shared-in-the-way"), placed.said
    assert not (placed.home / "c").exists()


def test_boxstraps_program_on_a_box_reads_any_file_name_in_any_locale(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.flags.utf8_mode, sys.argv[1])\n")
    line = f"BOX_HOME={tmp_path}; ONBOX={program}; onbox $'caf\\xe9'"
    script = f"{shell_part('lib', 'stage0')}\n{line}"
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, check=True)
    assert done.stdout == b"1 caf\xe9\n"


@pytest.mark.parametrize("name", ["Me Myself", "Zoë D'Arc", "me; you # they", '"me" \\ you'])
def test_the_users_git_name_and_email_are_set_in_the_tree(tmp_path: Path, name: str) -> None:
    """Git reads back exactly the given name; a different one is noticed and replaced."""
    placed = Placed(tmp_path)
    first = placed.state(a="1\n")
    assert placed.place(first) == (0, "")
    user = placed.wanted(first, git_user_name=name, git_user_email="me@example.org")
    git = ("-C", str(placed.tree), "config")
    for told in ("", "other"):
        if told:
            placed.repo.git(*git, "user.name", told)
        assert not check(user, notes=False)
        set_user(user)
        assert check(user, notes=False)
        assert placed.repo.git(*git, "--get-all", "user.name").strip() == name
        assert placed.repo.git(*git, "--get-all", "user.email").strip() == "me@example.org"


def test_a_second_tree_gets_a_symlink_to_each_pushed_folder_that_holds_no_results(
    tmp_path: Path,
) -> None:
    """Results that were sent so that a run goes on were found there by each later run."""
    home, main, beside = (tmp_path / name for name in (".boxstrap", "homework", "homework@2"))
    beside.mkdir()
    for name in ("data/corpus", "out/state"):
        file = main / name
        file.parent.mkdir(parents=True)
        file.write_text("sent")
        note_pushed(home, file)
    tree = BoxTree(str(home), "k", str(beside), "2")
    shared = SharedFolders(tree, str(main), [], ["out/"])
    shared.link()
    assert (beside / "data/corpus").read_text() == "sent"
    assert not (beside / "out").exists()
    assert shared.are_linked()
