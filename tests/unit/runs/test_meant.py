"""Two repositories and three boxes: which box each command means without `--host`, by the page."""

import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bootstrap.link import KnownBox, forget_box, record, registry
from bootstrap.repo.local import read_repository
from bootstrap.tasks import NAMES
from tests.cli import Completed, Running, User
from tests.listener import Listener
from tests.plain_environment import BIN, HERE
from tests.used_here import seem_set_up

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]

WORDS = {
    "push": ("train.py", "--to", "x"),
    "exec": ("--", "true"),
    "run": ("--", "true"),
    "tunnel": ("8888",),
    "down": ("--discard",),
    "stop": ("--all",),
    "lease": ("--release",),
    "top": ("--looks", "1"),
}
"""What is typed after a command."""
ON_A_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
PAGE = (
    (HERE / "docs/commands.md").read_text().partition("**Without `--host`.**")[2].partition("\n## ")
)
ROWS = re.findall(r"^\| (`.*`) \| (.*) \| (.*) \| (.*) \| (.*) \|$", PAGE[0], re.MULTILINE)
TABLE = {
    task.strip(" `"): dict(zip(("none", "one", "several", "nowhere"), cells, strict=True))
    for tasks, *cells in ROWS
    for task in tasks.split(",")
}
NO_BOX = {"boxes", "secrets", "ssh-config", "guard", "up", "runs"} | {
    *("init", "estimate", "profiles", "doctor", "render", "oneliner", "demo"),
    *("schema", "skill", "mcp", "completion"),
}


@dataclass
class NamedBox:
    """A box that hangs up on everybody, and counts them."""

    name: str
    knocks: int = 0
    listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        self.listener = Listener(self._hang_up)

    def _hang_up(self, line: socket.socket) -> None:
        self.knocks += 1
        line.close()


@dataclass
class ThreeBoxes:
    """Repository `one` has box a; `several` has a (with `one`), b and c; `none` has none."""

    user: User
    places: dict[str, Path]
    machines: list[NamedBox]

    def typed(self, task: str, place: str) -> tuple[Completed, set[str]]:
        """Type the command there; return how it ended, and the boxes that were called."""
        before = {machine.name: machine.knocks for machine in self.machines}
        self.user.place = self.places[place]
        words = [*task.split(), *WORDS.get(task, ())]
        path = f"{self.user.home}/bin:{self.user.env['PATH']}"
        if task in {"attach", "shell"}:
            argv = [sys.executable, "-c", ON_A_TERMINAL, str(BIN / "boxstrap"), *words]
            done = Running(argv, self.user.place, {**self.user.env, "PATH": path}).end()
        else:
            done = self.user.run(*words, PATH=path)
        return done, {each.name for each in self.machines if each.knocks > before[each.name]}


@pytest.fixture
def world(user: User) -> Iterator[ThreeBoxes]:
    places = {name: user.repository(name).root for name in ("none", "one", "several")}
    places["nowhere"] = user.home
    (user.home / "train.py").write_text("")
    editor = user.home / "bin/code"
    editor.parent.mkdir()
    editor.write_text("#!/bin/sh\n")
    editor.chmod(0o755)
    machines = [NamedBox(name) for name in "abc"]
    for machine in machines:
        save(machine, [places["several"], *([places["one"]] if machine.name == "a" else [])])
    yield ThreeBoxes(user, places, machines)
    for machine in machines:
        machine.listener.close()


def save(machine: NamedBox, repositories: list[Path]) -> None:
    """Record the machine as a box on which these were set up."""
    port = machine.listener.port
    box = KnownBox(machine.name, f"root@127.0.0.1:{port}", "127.0.0.1", port, "root", "ssh")
    box = replace(box, workdir="/root", created=float(ord(machine.name)))
    for root in repositories:
        box = box.using(read_repository(root).key, workdir="/root")
    key = f"[127.0.0.1]:{port} ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}\n"
    assert record.save_with_pin(box, key, is_new=True)


def test_the_table_of_commands_without_host_lists_every_command() -> None:
    assert {task.partition(" ")[0] for task in TABLE} | NO_BOX == {*NAMES}
    assert {cell for row in TABLE.values() for cell in row.values()} == {
        *("asks on a terminal, else the list", "the list", "that one", "exit 2"),
        *("all of its boxes", "all known boxes", "says so"),
    }


@pytest.mark.parametrize("task", TABLE)
def test_each_command_without_host_connects_to_the_box_of_the_table_in_the_docs(
    task: str, world: ThreeBoxes
) -> None:
    for place, meant in TABLE[task].items():
        done, called = world.typed(task, place)
        where = f"{task} in {place}: {meant}\n{done.text}"
        if "list" in meant:
            shown = done.text.replace("\r", "")
            rows = re.findall(r"^  (\w)  127.0.0.1:\d+, of (.+)$", shown, re.MULTILINE)
            assert (done.rc, called) == (2, set()), where
            assert rows == [("c", "several"), ("b", "several"), ("a", "one, several")], where
            words = " ".join((task, *WORDS.get(task, ())))
            head, dashes, tail = words.partition(" -- ")
            assert f": boxstrap {head} --host c{dashes}{tail}\n" in shown, where
        elif meant in ("exit 2", "says so"):
            assert (done.rc, called) == (2 if meant == "exit 2" else 0, set()), where
        else:
            boxes = {"that one": "a", "all of its boxes": "abc", "all known boxes": "abc"}[meant]
            assert (done.rc, called) == (3, set(boxes)), where


def test_down_without_host_never_destroys_the_only_box_of_another_repository(
    world: ThreeBoxes,
) -> None:
    """In a repository without a box, with one box of another repository."""
    for machine in world.machines[:2]:
        forget_box(KnownBox(machine.name, ""))
    for task in ("down", "stop", "exec", "push", "setup"):
        done, called = world.typed(task, "none")
        assert (done.rc, called) == (2, set()), done.text
        assert "none has none; known here:\n  c  127.0.0.1:" in done.text
    _, called = world.typed("down", "several")
    assert called == {"c"}


ASKED = """
import os, pty, sys
def typed(terminal):
    said = os.read(terminal, 4096)
    if said.endswith(b"> "):
        os.write(terminal, sys.argv[1].encode() + b"\\n")
    return said
sys.exit(pty.spawn(sys.argv[2:], typed) >> 8)
"""


@pytest.mark.parametrize("answer", ["b", "root@127.0.0.1:{a}", "ssh -p {a} root@127.0.0.1"])
def test_setup_on_a_terminal_asks_for_the_box_where_the_repository_has_none(
    answer: str, world: ThreeBoxes
) -> None:
    answer = answer.format(a=world.machines[0].listener.port)
    argv = [sys.executable, "-c", ASKED, answer, str(BIN / "boxstrap"), "setup"]
    shown = Running(argv, world.places["none"], world.user.env).end().must(3).text
    assert "which box? none has none; known here:" in shown
    called = {each.name for each in world.machines if each.knocks}
    assert called == {"b" if answer == "b" else "a"}


def test_a_box_set_up_with_option_repo_belongs_to_that_repository_and_the_current_one() -> None:
    box = KnownBox("a", "a").using("named-00000001", stood_in="here-00000002", workdir="/work")
    assert box.of("named-00000001") == box.of("here-00000002") == box.last
    assert box.workdir_of("here-00000002") == "/work"
    assert box.of("other-00000003") is box.of("") is None


def test_without_host_no_box_is_chosen_that_merely_claims_to_have_runs_of_the_repository(
    world: ThreeBoxes,
) -> None:
    """A box is told the repository of each command that asks it, and may say that it has runs."""
    own = read_repository(world.places["one"]).key
    claimed = registry.box_by_name("c")
    assert claimed is not None
    record.save_box(claimed.found_on(own, workdir="/root"))
    for task in ("down", "exec", "push"):
        assert world.typed(task, "one")[1] == {"a"}
    # It counts as soon as work is sent there from here.
    record.save_box(claimed.using(own, workdir="/root"))
    assert world.typed("exec", "one")[1] == set()


def test_a_box_belongs_to_a_repository_after_setup_but_not_after_plan_or_verify_alone(
    user: User,
) -> None:
    seem_set_up(user, "box").repository()
    options = ("--host", "local", "--set", f"box.workdir={user.home}/box")
    user.run("plan", *options).must(0)
    user.run("verify", *options).must(0)
    told = user.run("logs").must(2).err
    assert "which box? homework has none; known here:\n  local  local, of no repository" in told
    # A setup that fails, here for want of a GPU, does: so `status` finds the box.
    user.run("setup", *options, "--set", "gpu.require=true").must(6)
    assert user.run("status").must(0).out.startswith("local: ")
