"""Which tree a new run gets, with runs and trees made by hand."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from bootstrap.render.parts import LIBRARY, shell_part

TRAIN = "python train.py"


class Trees:
    """A box's folder with runs in it."""

    def __init__(self, folder: Path) -> None:
        self.home, self.main = folder / "w/.boxstrap", folder / "w/homework"
        self.main.mkdir(parents=True)
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._alive = f"{os.getpid()} {stat[19]} {boot}\n"

    def beside(self, number: int) -> Path:
        return self.main.with_name(f"homework@{number}")

    def add_run(
        self,
        name: str,
        tree: Path,
        *,
        state: str = "running",
        venv: Path | None = None,
        content: str = "c1",
        command: str = TRAIN,
    ) -> None:
        """One that lives ("running"), waits for its turn ("queued"), or is over ("finished")."""
        run, venv = self.home / "runs/k" / name, venv or self.main / ".venv"
        run.mkdir(parents=True)
        typed = command.replace("python ", f"{venv}/bin/python ", 1)
        texts = {"dir": tree, "venv": venv, "tree": content, "command": typed, "commit": "0"}
        for file, text in texts.items():
            (run / file).write_text(f"{text}\n")
        if state == "running":
            (run / "pid").write_text(self._alive)
        elif state == "finished":
            (run / "exit").write_text("0\n")

    def add_tree(self, number: int) -> None:
        """As `choose_tree` leaves one that was placed."""
        folder, notes = self.beside(number), self.home / f"steps/k/beside/{number}"
        folder.mkdir()
        placed = notes / "placed"
        notes.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "--bare", placed], check=True)
        (folder / "a").write_text("1\n")
        git = ["git", f"--git-dir={placed}", f"--work-tree={folder}"]
        subprocess.run([*git, "add", "a"], cwd=folder, check=True)

    def choose(self, content: str = "c1", command: str = TRAIN) -> tuple[int, str, str]:
        """Number, folder and notes of the tree that a new run of this gets."""
        values = {
            **{"BOX_HOME": self.home, "REPO_KEY": "k", "MAIN_DIR": self.main, "VENV": ".venv"},
            **{"REPO_TREE": content, "TRAIN_COMMAND": command, "REPO_STORE": self.home / "store"},
        }
        lines = [f"{name}={shlex.quote(str(value))}" for name, value in values.items()]
        script = "\n".join(
            [
                *(shell_part("lib", name) for name in LIBRARY),
                *("set -eu", *lines, "exec 3>/dev/null 9>/dev/null", "choose_tree"),
                'printf "%s\\n" "$TREE_NUMBER" "$REPO_DIR" "${NOTES#"$BOX_HOME/"}"',
            ]
        )
        said = subprocess.check_output(["bash", "--norc", "-c", script], text=True).splitlines()
        return int(said[0]), Path(said[1]).name, said[2]


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


def test_a_free_main_tree_is_taken(trees: Trees) -> None:
    trees.add_run("train-1", trees.main, state="finished")
    assert trees.choose() == (1, "homework", "steps/k")
    assert not (trees.home / "steps").exists()


def test_a_held_one_stays_as_it_is(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    assert trees.choose() == (2, "homework@2", "steps/k/beside/2")
    assert (trees.home / "steps/k/beside/2/repo.dir").read_text() == f"{trees.beside(2)}\n"


def test_one_whose_environment_is_in_use_is_held(trees: Trees) -> None:
    trees.add_tree(2)
    trees.add_run("train-1", trees.beside(2))
    assert trees.choose()[0] == 3
    trees.add_run("train-2", trees.beside(3), venv=trees.beside(3) / ".venv")
    assert trees.choose()[0] == 3 + 1


def test_an_environment_of_its_own_holds_no_other_tree(trees: Trees) -> None:
    trees.add_run("train-1", trees.beside(2), venv=trees.beside(2) / ".venv")
    assert trees.choose()[0] == 1


def test_the_same_again_takes_the_tree_in_which_it_ran_last(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    for number, content, command in (
        (2, "c2", TRAIN),
        (3, "c1", "python other.py"),
        (4, "c1", TRAIN),
    ):
        trees.add_tree(number)
        trees.add_run(
            f"run-{number}",
            trees.beside(number),
            state="finished",
            content=content,
            command=command,
        )
    assert trees.choose()[0] == 4
    assert trees.choose("c2")[0] == 2
    assert trees.choose("c1", "python other.py")[0] == 3
    assert trees.choose("c3")[0] == 5
    (trees.beside(4) / "a").write_text("edited on the box\n")
    assert trees.choose()[0] == 5


def test_one_that_no_run_has_used_is_taken(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    trees.add_tree(2)
    assert trees.choose()[0] == 2


def test_what_somebody_has_there_is_left_alone(trees: Trees) -> None:
    trees.add_run("train-1", trees.main)
    trees.beside(2).mkdir()
    trees.beside(3).symlink_to("nowhere")
    assert trees.choose()[0] == 4
