"""Invoke's own options in `boxstrap` and `inv`: what they mean, and that the rest is refused."""

from __future__ import annotations

import json

import pytest

from tests.cli import Completed, User
from tests.plain_environment import HERE

PROGRAMS = ["boxstrap", "inv"]
MEANINGLESS = {
    "--command-timeout": ["--command-timeout", "5"],
    "-T": ["-T", "5"],
    "--config": ["--config", "x.yaml"],
    "--echo": ["--echo"],
    "--hide": ["--hide", "both"],
    "--prompt-for-sudo-password": ["--prompt-for-sudo-password"],
    "--pty": ["--pty"],
    "-p": ["-p"],
    "--warn-only": ["--warn-only"],
    "-w": ["-w"],
}
HIDDEN = sorted(name for name in MEANINGLESS if name.startswith("--"))
REFUSED_DRY = {
    "init": ["init"],
    "demo": ["demo"],
    "stop": ["stop", "--host", "local"],
    "verify": ["verify", "--host", "local"],
    "boxes --forget": ["boxes", "--forget", "x"],
    "render --output": ["render", "--output", "x.sh"],
}
HARMLESS = {"boxes": ["boxes"], "profiles": ["profiles"], "status": ["status", "--host", "local"]}


@pytest.fixture
def at(user: User) -> User:
    """A user in a repository with tasks.py, which `inv` needs."""
    repository = user.repository()
    (repository.root / "tasks.py").symlink_to(HERE / "tasks.py")
    repository.commit({}, "With tasks")
    return user


def on_box(user: User) -> list[str]:
    """The files where a setup of this machine would put things."""
    return sorted(str(path) for path in (user.home / "box").rglob("*"))


def local_setup(user: User) -> list[str]:
    return ["setup", "--host", "local", "--set", f"box.workdir={user.home / 'box'}"]


@pytest.mark.parametrize("dry", ["--dry", "-R"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_dry_setup_shows_the_plan_and_changes_nothing(program: str, dry: str, at: User) -> None:
    done = at.run(dry, *local_setup(at), program=program).must(0)
    planned = [line.split()[:2] for line in done.out.splitlines()]
    assert ["runs", "train"] in planned
    assert ["runs", "repo"] in planned
    assert on_box(at) == []
    assert not (at.home / ".boxstrap").exists()


def test_a_dry_setup_among_its_own_options_with_json(at: User) -> None:
    found = at.run(*local_setup(at), "--dry", "--json").must(0).json()
    assert {"step": "train", "runs": True, "why": "after"} in found["steps"]
    assert on_box(at) == []


def test_a_dry_setup_refuses_what_a_setup_refuses(at: User) -> None:
    (at.place / ".env").write_text("x")
    done = at.run("--dry", *local_setup(at)).must(2)
    assert ".env" in done.err
    at.run("--dry", *local_setup(at), "--committed-only").must(0)


@pytest.mark.parametrize("case", REFUSED_DRY)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_task_that_changes_things_refuses_dry(program: str, case: str, at: User) -> None:
    before = sorted(at.place.iterdir())
    done = at.run("--dry", *REFUSED_DRY[case], program=program).must(2)
    assert "--dry" in done.err
    assert "boxstrap plan" in done.err
    assert sorted(at.place.iterdir()) == before


@pytest.mark.parametrize("case", HARMLESS)
def test_a_task_that_changes_nothing_takes_dry(case: str, at: User) -> None:
    at.run("--dry", *HARMLESS[case]).must(0)


def refused(done: Completed, name: str) -> None:
    assert name in done.err
    assert done.out == ""
    assert len(done.err.strip().splitlines()) <= 3


@pytest.mark.parametrize("name", MEANINGLESS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_would_be_ignored_is_refused(program: str, name: str, at: User) -> None:
    (at.place / "x.yaml").write_text("{}")
    said = {"-T": "--command-timeout", "-p": "--pty", "-w": "--warn-only"}.get(name, name)
    refused(at.run(*MEANINGLESS[name], "boxes", program=program).must(2), said)
    refused(at.run("boxes", *MEANINGLESS[name], program=program).must(2), said)


def test_the_help_shows_none_of_it(at: User) -> None:
    for words in ([], ["--help"]):
        shown = at.run(*words).must(0).out
        assert [name for name in [*HIDDEN, "--write-pyc"] if name in shown] == []
        assert "--dry" in shown
        assert "--list" in shown


@pytest.mark.parametrize("program", PROGRAMS)
def test_invokes_own_that_mean_something_still_do(program: str, at: User) -> None:
    assert "invoke.executor" in at.run("-d", "boxes", program=program).must(0).err
    assert "complete" in at.run("--print-completion-script=bash", program=program).must(0).out
    assert "Example: boxstrap setup" in at.run("-h", "setup", program=program).must(0).out


WRONG = {
    "help of no task": (["--help", "setpu"], "setup"),
    "list of no collection": (["--list", "setpu"], "setpu"),
    "no such format": (["--list", "--list-format", "xml"], "xml"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("program", PROGRAMS)
def test_wrong_core_options_are_2(program: str, case: str, at: User) -> None:
    words, said = WRONG[case]
    done = at.run(*words, program=program).must(2)
    assert said in done.err


MEANT = {
    "task": (["setpu"], "Did you mean setup?"),
    "task, options behind": (["stauts", "--host", "a"], "Did you mean status?"),
    "second task": (["boxes", "plna"], "Did you mean plan?"),
    "option": (["setup", "--hsot", "x"], "Did you mean --host?"),
    "option with its value": (["logs", "--folow=1"], "Did you mean --follow?"),
    "core option": (["--lits"], "Did you mean --list?"),
    "host": (["setup", "root@203.0.113.7:46769"], "Did you mean --host root@203.0.113.7:46769?"),
    "box": (["status", "my-box"], "Did you mean --host my-box?"),
    "host alone": (["root@203.0.113.7"], "Did you mean setup --host root@203.0.113.7?"),
}


@pytest.mark.parametrize("case", MEANT)
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_meant(program: str, case: str, at: User) -> None:
    words, said = MEANT[case]
    done = at.run(*words, program=program).must(2)
    assert said in done.err
    assert done.out == ""


def test_nothing_is_guessed_where_nothing_is_near(at: User) -> None:
    assert "Did you mean" not in at.run("xyzzy").must(2).err
    assert "Did you mean" not in at.run("setup", "--host", "local", "xyzzy").must(2).err
    assert "Did you mean" not in at.run("profiles", "xyzzy").must(2).err


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_list_begins_with_what_is_needed_first(program: str, at: User) -> None:
    shown = at.run("--list", program=program).must(0).out
    families = [
        [line.split()[0] for line in part.splitlines() if line.startswith("  ") and line[2] != " "]
        for part in shown.partition(":")[2].strip("\n").split("\n\n")
    ]
    assert families[0] == ["init", "setup", "logs", "status", "stop"]
    assert ["plan", "verify"] in families
    assert ["render", "oneliner"] in families
    listed = json.loads(at.run("--list", "--list-format=json").must(0).out)
    assert sorted(name for family in families for name in family) == sorted(
        task["name"] for task in listed["tasks"]
    )
