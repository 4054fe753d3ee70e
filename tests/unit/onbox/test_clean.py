"""What `clean` removes from a box and what it keeps, with trees as a setup places them."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.boxes.trees import TreeBeside, clean_trees
from bootstrap.errors import BusyError, UsageError
from bootstrap.link import LocalWire
from bootstrap.onbox.git import trees_of
from bootstrap.onbox.results.complete_files import state_of
from bootstrap.onbox.results.run_results import HOME, LET_GO, MADE, digest_of, write_files
from bootstrap.onbox.work.made import look_at
from bootstrap.runs import upkeep
from bootstrap.ui.screens import make_screen
from bootstrap.value import document
from tests.box_programs import lay_programs
from tests.logins import login_on
from tests.run_states import identity
from tests.unit.onbox.test_place import Placed, beside

pytestmark = pytest.mark.slow  # each starts programs


class Beside:
    """A box with one tree next to its main one."""

    def __init__(self, folder: Path) -> None:
        self.placed = Placed(folder)
        files = {".gitignore": "_version.py\n", "a": "1\n", "b": "1\n", "out/kept": "1\n"}
        first = self.placed.state(**files)
        assert self.placed.place(first, beside(self.placed)) == (0, ""), self.placed.said
        self.tree, self.home = self.placed.tree.with_name("homework@2"), self.placed.home
        self.notes = self.home / "steps/k/beside/2"
        (self.notes / "repo.dir").write_text(f"{self.tree}\n")
        lay_programs(self.home / "box/current")
        self.add_run("run-1", "exit", "0\n")

    def add_run(self, name: str, *more: str) -> Path:
        """Add a run in the second tree, with one more file in its record."""
        run = self.home / "runs/k" / name
        run.mkdir(parents=True)
        (run / "dir").write_text(f"{self.tree}\n")
        (run / "venv").write_text(f"{self.tree}/.venv\n")
        (run / more[0]).write_text(more[1])
        return run

    def git(self, *arguments: str) -> None:
        own = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-C", str(self.tree))
        self.placed.repo.git(*own, *arguments)

    def clean(self, *discard: str, look: bool = False, key: str = "k") -> TreeBeside:
        """Clean; return what became of the tree."""
        wire = LocalWire()
        said = clean_trees(
            login_on(wire, str(self.home.parent)), repo_key=key, discard=discard, look=look
        ).trees
        assert len(said) == 1
        return said[0]


@pytest.fixture
def box(tmp_path: Path) -> Beside:
    return Beside(tmp_path)


def test_clean_removes_a_tree_with_nothing_but_sent_files_caches_and_links(box: Beside) -> None:
    """Placed files, caches, boxstrap's environment and links to what is shared or was pushed don't
    count; what destroys the box counts no such link either."""
    pushed = [tree / "corpus/d.txt" for tree in (box.tree, box.placed.tree)]
    for file in pushed:
        file.parent.mkdir()
    pushed[1].write_text("pushed\n")
    pushed[0].symlink_to(pushed[1])
    assert [row["kind"] for row in look_at(trees_of(str(box.home))[-1])] == ["tree"]
    (box.tree / "out/__pycache__").mkdir()
    (box.tree / "out/__pycache__/a.pyc").write_text("")
    (box.tree / "out/_version.py").write_text("")  # by an install of the tree itself
    (box.tree / ".venv/lib").mkdir(parents=True)
    for name in ("pyvenv.cfg", ".boxstrap", "lib/torch.py"):
        (box.tree / ".venv" / name).write_text("")
    (box.tree / "data/corpus").write_text("of the main tree\n")
    (box.tree / "b").unlink()
    os.utime(box.tree / "a")
    assert box.clean(look=True).state == "safe"
    assert box.tree.is_dir()
    became = box.clean()
    assert (became.state, became.holds, became.name) == ("removed", (), "homework@2")
    assert not box.tree.exists()
    assert not box.notes.exists()
    assert not (box.home / "trees").exists()
    assert (box.placed.tree / "data/corpus").exists()
    assert (box.home / "runs/k/run-1/exit").exists()


def test_clean_removes_a_tree_whose_results_were_pulled(box: Beside) -> None:
    """They go in the same call, before the trees are judged. A look counts their bytes once."""
    run = box.home / "runs/k/run-1"
    (run / "results").write_text("out/\n")
    (run / "pid").write_text("1 1 x\n")
    (box.tree / "out/kept").write_text("of the run\n")
    (box.tree / "out/model.pt").write_bytes(os.urandom(1 << 20))
    files = {name: state_of((box.tree / name).stat()) for name in ("out/kept", "out/model.pt")}
    write_files(str(run / MADE), files)
    kept = box.clean(look=True)
    assert kept.state == "kept"
    assert [str(one) for one in kept.holds] == ["results that are not at home, of run-1"]
    way = "Bring its results home (boxstrap pull --host gpu --run run-1), then:"
    assert upkeep._way_to_clean([kept], "gpu") == f"{way}\n  boxstrap clean --host gpu"
    for name in ("out/part.tmp", "notes", "own.tmp"):
        (box.tree / name).write_text("")
    # A result is let go of by a pattern, another file by its name alone.
    (run / LET_GO).write_text('["*.tmp", "notes"]')
    held = str(box.clean(look=True).holds[0])
    assert held == "files created there (1): own.tmp"
    (box.tree / "own.tmp").unlink()
    (run / HOME).write_text(f"{digest_of(files)}\n")
    (run / "exit").write_text("143\n")  # stopped, and perhaps resumed
    kept = box.clean(look=True)
    assert [str(one) for one in kept.holds] == ["results that are at home, of run-1"]
    way = "To remove it:\n  boxstrap clean --host gpu --discard homework@2"
    assert upkeep._way_to_clean([kept], "gpu") == way
    (run / "exit").write_text("0\n")
    looked = box.clean(look=True)
    assert (looked.state, looked.holds) == ("safe", ())
    assert looked.bytes < 1 << 20
    assert (box.tree / "out/model.pt").exists()
    assert box.clean().state == "removed"
    assert not box.tree.exists()


def edited(box: Beside) -> None:
    (box.tree / "a").write_text("mine\n")


def ignored(box: Beside) -> None:
    (box.tree / ".git/info/exclude").write_text("*.pt\n/data\n/a b/c\n")
    (box.tree / "out/model.pt").write_text("weights")


def staged(box: Beside) -> None:
    edited(box)
    box.git("add", "a")
    (box.tree / "a").write_text("1\n")


def committed(box: Beside) -> None:
    edited(box)
    box.git("commit", "-qam", "mine")
    box.git("checkout", "-q", "HEAD~1")
    box.git("branch", "-f", "own", "HEAD@{1}")


def stashed(box: Beside) -> None:
    edited(box)
    box.git("stash", "-q")


def own_repository(box: Beside) -> None:
    (box.tree / "lib").mkdir()
    subprocess.run(["git", "init", "-q", box.tree / "lib"], check=True)


def without_git(box: Beside) -> None:
    shutil.rmtree(box.tree / ".git")


def without_index(box: Beside) -> None:
    (box.notes / "placed/index").write_bytes(b"DIRC")


HELD = {
    **{ignored: "files created there (1): out/model.pt", staged: "staged (1): a"},
    **{
        committed: "commits that are only there (1): ",
        stashed: "commits that are only there (2): ",
    },
    **{own_repository: "files created there (1): lib/"},
    **{without_git: "git can't tell what was made there"},
    **{without_index: "git can't tell what was made there"},
}


@pytest.mark.parametrize("make", HELD, ids=lambda make: make.__name__)
def test_clean_keeps_a_tree_with_work_of_its_own_and_says_what(
    box: Beside, make: Callable[[Beside], None]
) -> None:
    make(box)
    kept = box.clean()
    assert kept.state == "kept"
    assert [str(one)[: len(HELD[make])] for one in kept.holds] == [HELD[make]]
    assert (box.tree / "b").exists()
    assert not kept.is_in_use


def test_clean_with_discard_removes_a_tree_with_everything_in_the_tree(box: Beside) -> None:
    edited(box)
    (box.tree / "env").mkdir()
    (box.tree / "env/pyvenv.cfg").write_text("")
    for number in range(9):
        (box.tree / f"out/model {number}.pt").write_text("weights")
    kept = box.clean()
    assert [str(one) for one in kept.holds] == [
        "edited (1): a",
        "files created there (10): env/pyvenv.cfg, 'out/model 0.pt', 'out/model 1.pt', "
        "'out/model 2.pt', 'out/model 3.pt', …",
    ]
    gone = box.clean("homework@2")
    assert (gone.state, gone.holds) == ("removed", kept.holds)
    assert not box.tree.exists()


def alive(box: Beside) -> None:
    box.add_run("run-2", "pid", f"{identity(os.getpid())}\n")


def left_behind(box: Beside) -> None:
    alive(box)
    run = box.home / "runs/k/run-2"
    (run / "pid").rename(run / "left")
    (run / "exit").write_text("0\n")


def linked(box: Beside) -> None:
    box.tree.rename(box.tree.with_name("elsewhere"))
    box.tree.symlink_to("elsewhere")


USED = {
    alive: "run-2 runs in it, or uses its environment",
    left_behind: "processes of run-2 still running: 1",
    linked: "it is a link to elsewhere",
}


@pytest.mark.parametrize("make", USED, ids=lambda make: make.__name__)
def test_clean_with_discard_keeps_a_tree_in_use_and_says_why(
    box: Beside, make: Callable[[Beside], None]
) -> None:
    make(box)
    kept = box.clean("homework@2")
    assert (kept.state, [str(one) for one in kept.holds]) == ("kept", [USED[make]])
    assert kept.is_in_use
    assert (box.tree / "b").exists()
    assert json.loads(json.dumps(document(kept)))["state"] == "kept"


def test_clean_without_a_terminal_is_wrong_usage_and_prints_the_command_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep.Prompt, "has_terminal", lambda _: False)
    with pytest.raises(UsageError) as refused:
        upkeep._ask_to_clean("gpu", 1, upkeep._discards(["h@2"]), make_screen(json=True))
    assert refused.value.hint.endswith("boxstrap clean --host gpu --discard h@2 --yes")


@pytest.mark.parametrize(
    ("key", "name", "what"),
    [
        ("k", "homework@3", "there is no tree homework@3 on this box; there is:\n  homework@2"),
        ("other", "homework@3", "there is no tree homework@3 on this box."),
        ("other", "homework@2", "homework@2 is a tree of k, another repository."),
    ],
)
def test_clean_removes_nothing_for_a_wrong_tree_name_and_says_whose_it_is(
    box: Beside, key: str, name: str, what: str
) -> None:
    with pytest.raises(UsageError) as refused:
        box.clean("homework@2", name, key=key)
    assert refused.value.what == what
    assert box.tree.is_dir()
    never_made = box.home / "steps/k/beside/3"  # by a run that a full disk refused
    never_made.mkdir()
    (never_made / "repo.dir").write_text(f"{box.tree.with_name('homework@3')}\n")
    assert box.clean(look=True).name == "homework@2"


def test_clean_removes_nothing_while_a_setup_runs(box: Beside) -> None:
    held = ["flock", box.home / "lock", "sh", "-c", "echo; cat"]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(BusyError):
            box.clean()
        assert box.tree.is_dir()
        assert holder.stdin
        holder.stdin.close()
