"""Which tree a new run gets, with runs and trees made by hand."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, current_thread
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.python.build import Build
from bootstrap.onbox.python.environment import BoxEnvironment
from bootstrap.onbox.retries import Retries
from bootstrap.onbox.runs import new_run, resume, start
from bootstrap.onbox.runs.status import BoxRuns, details
from bootstrap.onbox.setup import run as run_program
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.work.trees import choose
from bootstrap.steps.shell import Value
from tests.run_states import identity
from tests.unit.boxes.conftest import DEAD
from tests.unit.setup.scripts import values_of
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each starts programs

TRAIN = "python train.py"


class Trees:
    """A box's folder with runs in it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.main = folder / "w/.boxstrap", folder / "w/homework"
        self.main.mkdir(parents=True)
        self._alive = f"{identity(os.getpid())}\n"

    def beside(self, number: int) -> Path:
        return self.main.with_name(f"homework@{number}")

    def add_run(
        self, name: str, tree: Path, state: str = "running", venv: Path | None = None, **notes: str
    ) -> None:
        """Add the record of a run that is "running", "finished", "died" or not started."""
        run, venv = self.home / "runs/k" / name, venv or self.main / ".venv"
        run.mkdir(parents=True)
        typed = notes.get("command", TRAIN).replace("python ", f"{venv}/bin/python ", 1)
        texts = {"dir": tree, "venv": venv, "tree": notes.get("content", "c1"), "command": typed}
        for file, text in {**texts, "commit": "0", "started": "0"}.items():
            (run / file).write_text(f"{text}\n")
        if state == "running":
            (run / "pid").write_text(self._alive)
        elif state == "finished":
            (run / "exit").write_text("0\n")
        elif state == "died":
            (run / "pid").write_text(f"{DEAD}\n{DEAD}\n")

    def add_tree(self, number: int) -> None:
        """Add a tree as `choose` and a setup leave it."""
        folder, notes = self.beside(number), self.home / f"steps/k/beside/{number}"
        folder.mkdir()
        placed = notes / "placed"
        notes.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "--bare", placed], check=True)
        (folder / "a").write_text("1\n")
        git = ["git", f"--git-dir={placed}", f"--work-tree={folder}"]
        subprocess.run([*git, "add", "a"], cwd=folder, check=True)

    def make_environment(self, files: dict[str, str]) -> None:
        """Make the main tree's environment, as a setup leaves it."""
        self._write(self.main, files)
        packages = self.main / ".venv/lib/python3/site-packages"
        (packages / "torch").mkdir(parents=True)
        (self.main / ".venv/bin").mkdir()
        (self.main / ".venv/bin/python").symlink_to(sys.executable)
        notes = self.home / "steps/k"
        notes.mkdir(parents=True)
        (notes / "python.ok").write_text(f"{self.inputs(1)}\n")
        (notes / "python.folders").write_text("lib/python3/site-packages/torch\n")

    def environment_of(self, number: int, venv: str = ".venv", **values: Value) -> BoxEnvironment:
        path = self.main if number == 1 else self.beside(number)
        tree = BoxTree(str(self.home), "k", str(path), str(number))
        own = values_of(venv=venv, **values)
        return BoxEnvironment(own, tree, str(self.main), str(self.main / venv))

    def inputs(self, number: int, venv: str = ".venv") -> str:
        """Return what the environment of a tree depends on."""
        return self.environment_of(number, venv).inputs

    def environment(
        self, files: dict[str, str], venv: str = ".venv", *, is_cell: bool = False
    ) -> str:
        """Return the environment that tree 2 gets with these files."""
        self._write(self.beside(2), files)
        environment = self.environment_of(2, venv)
        environment.share(is_cell=is_cell)
        return environment.folder.removeprefix(f"{self.main.parent}/")

    def choose(
        self, content: str = "c1", command: str = TRAIN, **values: str
    ) -> tuple[int, str, str]:
        """Return number, folder and notes of the tree that a new run of this work gets."""
        own = [values.get(name, "") for name in ("session", "beside", "cell")]
        tree = choose(str(self.home), "k", str(self.main), content, command, *own)
        return int(tree.number), tree.name, tree.notes[len(f"{self.home}/") :]

    def _write(self, tree: Path, files: dict[str, str]) -> None:
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trees:
    monkeypatch.chdir(tmp_path)
    return Trees(tmp_path)


def test_a_new_run_uses_the_main_tree_if_no_live_run_is_there(trees: Trees) -> None:
    trees.add_run("train-1", trees.main, state="finished")
    assert trees.choose() == (1, "homework", "steps/k")
    assert not (trees.home / "steps").exists()


def test_a_new_run_gets_a_second_tree_while_a_run_uses_the_main_tree(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    assert trees.choose() == (2, "homework@2", "steps/k/beside/2")
    assert (trees.home / "steps/k/beside/2/repo.dir").read_text() == f"{trees.beside(2)}\n"
    # `status` lists it once it is made: the next choice may be the main one again.
    told = lambda: [row.get("name") for row in details(BoxRuns(str(trees.home)), "k", ())]  # noqa: E731
    assert "homework@2" not in told()
    trees.beside(2).mkdir()
    assert "homework@2" in told()


def test_a_new_run_gets_no_tree_whose_environment_a_live_run_uses(trees: Trees) -> None:
    trees.add_tree(2)
    trees.add_run("train-1", trees.beside(2))
    assert trees.choose()[0] == 3
    trees.add_run("train-2", trees.beside(3), venv=trees.beside(3) / ".venv")
    assert trees.choose()[0] == 3 + 1


def test_a_new_run_gets_the_main_tree_if_live_runs_use_other_environments(trees: Trees) -> None:
    trees.add_run("train-1", trees.beside(2), venv=trees.beside(2) / ".venv")
    assert trees.choose()[0] == 1


def test_a_repeated_run_uses_the_tree_of_its_last_run_else_a_new_one(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    for number, content, command in ((2, "c2", TRAIN), (3, "c1", "python b.py"), (4, "c1", TRAIN)):
        trees.add_tree(number)
        place = trees.beside(number)
        trees.add_run(f"run-{number}", place, "finished", content=content, command=command)
    assert trees.choose()[0] == 4
    assert trees.choose("c2")[0] == 2
    assert trees.choose("c1", "python b.py")[0] == 3
    assert trees.choose("c3")[0] == 5
    # A number is never reused: a record of a removed tree must not mean another one.
    trees.add_run("run-5", trees.beside(5), state="finished", content="c5")
    (trees.home / "steps/k/beside/5/repo.dir").unlink()
    (trees.home / "steps/k/beside/5").rmdir()
    assert trees.choose("c3")[0] == 6
    (trees.beside(4) / "a").write_text("edited on the box\n")
    assert trees.choose()[0] == 6


def test_a_new_run_reuses_a_second_tree_without_runs(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    trees.add_tree(2)
    assert trees.choose()[0] == 2


CELL = {"beside": "yes", "cell": "0", "session": "lr-0"}
OWN_TREE = {
    "a run": ({}, 1),
    "a run beside": ({"beside": "yes"}, 4),
    "a cell that ran": (CELL, 3),
    "another cell of the same command": ({**CELL, "session": "lr-1"}, 4),
    "a run beside of a cell's name": ({**CELL, "cell": ""}, 4),
}


@pytest.mark.parametrize(("values", "number"), OWN_TREE.values(), ids=OWN_TREE)
def test_a_sweep_cell_gets_a_tree_without_results_of_other_runs(
    trees: Trees, values: dict[str, str], number: int
) -> None:
    assert trees.choose(**values)[0] == 1  # it is not made yet
    (trees.main / ".git").mkdir()
    notes = trees.home / "steps/k"
    notes.mkdir(parents=True)
    (notes / "repo.placed").touch()
    trees.add_run("train-1", trees.main, state="finished")
    for tree, session in ((2, "train"), (3, "lr-0")):
        trees.add_tree(tree)
        trees.add_run(f"{session}-9", trees.beside(tree), state="died")
    assert trees.choose(**values)[0] == number


def test_a_new_run_skips_a_users_folder_or_symlink_in_place_of_a_tree(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    trees.beside(2).mkdir()
    trees.beside(3).symlink_to("nowhere")
    assert trees.choose()[0] == 4


LOCKED = '[[package]]\nname = "homework"\nsource = {{ {} = "." }}\n'
SOURCES = {
    "the same requirements": ({"requirements.txt": "torch\n"}, True),
    "a lock without the project": (
        {"uv.lock": LOCKED.format("virtual"), "pyproject.toml": ""},
        True,
    ),
    "a lock with the project": (
        {"uv.lock": LOCKED.format("editable"), "pyproject.toml": ""},
        False,
    ),
    "a project that is not built": ({"pyproject.toml": "[project]\n"}, True),
    "a project that is built": ({"pyproject.toml": "[build-system]\n"}, False),
    "a link to the project": ({"requirements.txt": "torch\n-e .\n"}, False),
    "a copy of it": ({"requirements.txt": "torch\n./libs/own[extra]\n"}, False),
    "a part of it by name": ({"requirements.txt": "own @ file:libs/own\n"}, False),
    "included requirements": (
        {"requirements.txt": "-r more.txt\n", "more.txt": "libs/own\n"},
        False,
    ),
    "a project from elsewhere": ({"requirements.txt": "own @ https://example.org/own.zip\n"}, True),
}


@pytest.mark.parametrize(("files", "shared"), SOURCES.values(), ids=SOURCES)
def test_a_second_tree_shares_the_environment_only_if_requirements_are_equal(
    trees: Trees, files: dict[str, str], shared: bool
) -> None:
    trees.make_environment(files)
    assert trees.environment(files) == ("homework/.venv" if shared else "homework@2/.venv")
    other = {name: f"# other\n{text}" for name, text in files.items()}
    assert trees.environment(other) == "homework@2/.venv"
    # Those of a sweep's cells are made once, unless a run needs the main tree's.
    place = "homework/.venv" if shared else "homework@2/.venv"
    assert trees.environment(other, is_cell=True) == place
    trees.add_run("train-1", trees.main)
    assert trees.environment(other, is_cell=True) == "homework@2/.venv"


def test_a_second_tree_gets_its_own_environment_if_the_main_ones_is_broken(trees: Trees) -> None:
    files = {"requirements.txt": "torch\n"}
    trees.make_environment(files)
    (trees.main / ".venv/lib/python3/site-packages/torch").rmdir()
    assert trees.environment(files) == "homework@2/.venv"


def test_a_second_tree_also_uses_the_environment_named_by_python_venv(trees: Trees) -> None:
    files = {"requirements.txt": "-e .\n"}
    trees.make_environment(files)
    venv = trees.home.parent / "env"
    assert trees.environment(files, str(venv)) == "env"
    # With a link to the project it is rebuilt for each tree.
    main, second = (trees.inputs(number, str(venv)) for number in (1, 2))
    assert main != second
    assert str(trees.beside(2)) in second


def test_an_environment_that_a_live_run_uses_is_not_changed(trees: Trees) -> None:
    files = {"requirements.txt": "torch\n"}
    trees.make_environment(files)
    trees.add_run("run-2", trees.beside(2))
    (trees.home / "uv").write_text(f"{sys.executable}\n")
    with pytest.raises(StepError) as refused:
        Build(trees.environment_of(1), str(trees.home), Retries("")).build()
    assert refused.value.code == "environment-in-use"
    assert "run-2" in str(refused.value)


def test_a_copy_of_earlier_results_is_finished_even_if_the_update_of_the_tree_fails(
    trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that was cut off would stay in the folder of its run."""
    begun, goes_on = Event(), Event()
    kept: list[bool] = []

    def keep(*_: object) -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)
        kept.append(current_thread().daemon)

    monkeypatch.setattr(start, "keep_ahead", keep)
    monkeypatch.setattr(
        run_program, "choose", lambda *_: BoxTree(str(trees.home), "k", str(trees.main))
    )
    monkeypatch.setattr(run_program, "is_placed", bool)
    state: Any = SimpleNamespace(content="", place=lambda _: not begun.wait(PATIENCE_S))
    names = ("key", "main", "command", "session", "beside", "cell", "result")
    asked = {**dict.fromkeys(names, ""), "home": "", "keeps": True}
    wanted: Any = SimpleNamespace(values=SimpleNamespace(results=()))
    run_program._begin(asked, state, wanted)
    goes_on.set()
    assert wait_until(lambda: kept) == [False]


def test_a_repeated_request_for_a_started_run_starts_no_second(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    run = trees.home / "runs/k/train-1"
    (run / "id").write_text("id1\n")
    asked = {**dict.fromkeys((*new_run.ALWAYS, *new_run.IF_ASKED), ""), "id": "id1"}
    asked |= {"home": str(trees.home), "key": "k", "restart": "yes", "resume_all": ""}
    with suppress(KeyError):  # it would be made again
        start.begin(asked)
    assert (run / "pid").exists()


def test_a_run_that_died_in_a_second_tree_is_not_restarted_at_boot(trees: Trees) -> None:
    trees.add_run("train-1", trees.main, state="finished")
    trees.add_run("run-2", trees.beside(2), state="died")
    assert not resume.last_died(str(trees.home), "k")
    trees.add_run("train-3", trees.main, state="died")
    assert resume.last_died(str(trees.home), "k")


def test_setup_with_restart_ends_a_run_of_the_same_work_in_a_second_tree(trees: Trees) -> None:
    trees.add_run("run-2", trees.beside(2), state="finished")
    run = trees.home / "runs/k/run-2"
    (run / "work").write_text("w\n")
    (run / "exit").unlink()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as training:
        (run / "pid").write_text(f"{identity(training.pid)}\n" * 2)
        asked = {"home": str(trees.home), "restart": "yes", "id": "", "resume_all": ""}
        for work in ("other", "w"):
            assert training.poll() is None
            with pytest.raises(KeyError):  # it would begin again
                start.begin({**asked, "work": work})
        assert training.wait(5) != 0
