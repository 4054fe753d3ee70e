"""The one-liner, pasted into the terminal of a fresh box, as a user does it."""

from pathlib import Path

import pytest

from bootstrap.setup.door_table import NARROWEST
from bootstrap.setup.doors import PASTE_LIMIT
from tests.boxes import RigBox
from tests.cli import User
from tests.doors.conftest import Hosted
from tests.doors.terminal import Terminal, terminal
from tests.main_job.conftest import Rent
from tests.programs import captured

pytestmark = pytest.mark.sampled(of="module")

TOKEN = "tok-91c2e5ab"
LEFT = "find /tmp -name 'tmp.*'"
PLACES = {"vast": "/workspace", "bare": "/root"}


def login(box: RigBox) -> list[str]:
    """An interactive login with a terminal."""
    program, *words = box.ssh_command()
    return [program, "-tt", *words]


def settled(shown: Terminal) -> None:
    """Wait for a shell that accepts input, in the provider's own tmux if there is one."""
    shown.wait_for("# ", "$ ", timeout=120)
    shown.type_lines("printf 'rea''dy\\n'")
    shown.wait_for("ready", timeout=120)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "words", "how"),
    [
        ("vast", [], "keys"),
        ("bare", [], "paste"),
        ("vast", ["--push"], "paste"),
        ("bare", ["--push"], "keys"),
    ],
    ids=lambda value: value if isinstance(value, str) else "".join(value) or "usual",
)
def test_a_oneliner_pasted_twice_on_a_fresh_box_trains_once(
    kind: str,
    words: list[str],
    how: str,
    rent: Rent,
    hosted: Hosted,
    user: User,
    tmp_path: Path,
) -> None:
    box = rent(kind).box
    repository, _ = hosted(box, extends="vast" if kind == "vast" else "ssh")
    paste = user.run("oneliner", *words).must(0)
    assert len(paste.out) <= (NARROWEST if words else PASTE_LIMIT)
    place = PLACES[kind]
    with terminal(tmp_path, login(box)) as shown:
        settled(shown)
        (shown.type_lines if how == "keys" else shown.paste)(paste.out)
        shown.wait_for("its log: ")
        said = box.run(f"cat {place}/.boxstrap/runs/*/train-1/log")
        assert said == f"step 1 it's $HOME - {place}/homework/.venv\n"
        # As seen from a laptop that never met this box.
        there = ["--host", box.host_string, "--identity", str(box.identity)]
        (run,) = user.run("status", "--json", *there).must(0).json()["runs"]
        assert (run["name"], run["commit"]) == ("train-1", repository.head)
        assert (run["state"], run["rc"]) == ("finished", 0)
        # Pasted again: the same training is not started twice.
        shown.type_lines("clear")
        shown.paste(paste.out)
        shown.wait_for("its log: ", "already run")
        assert box.run(f"ls {place}/.boxstrap/runs/*").split() == ["train-1"]
    keys = box.read(f"{box.home}/.ssh/authorized_keys")
    assert keys.count(Path(f"{box.identity}.pub").read_text().split()[1]) == 1
    # A setup over SSH sees that this work is done.
    again = user.run("setup", *there, "--committed-only").must(0)
    assert "train-1: finished" in again.out


def test_a_pasted_script_of_a_private_repository_asks_for_a_token_and_writes_it_to_no_file(
    rent: Rent, hosted: Hosted, user: User, tmp_path: Path
) -> None:
    box = rent("vast", used=True).box
    seen = "grep -ls tok-91c2e[5]ab /proc/[0-9]*/environ >/workspace/seen || true"
    more = f"secrets: [API_KEY]\nprepare: [{seen!r}]\n"
    _, host = hosted(box, token=TOKEN, extends="vast", more=more)
    paste = user.run("oneliner").must(0)
    assert "is private" in paste.err
    with terminal(tmp_path, login(box)) as shown:
        settled(shown)
        shown.paste(paste.out)
        shown.wait_for("API_KEY (it is not shown)")
        shown.type_lines("key-51c0'$x")
        shown.wait_for("a token that may read")
        shown.type_lines(TOKEN)
        shown.wait_for("its log: ")
        assert TOKEN not in shown.screen()
    assert host.given[-1] == TOKEN
    assert box.read("/workspace/seen") == ""
    assert "step 1 it's $HOME key-51c0'$x " in box.run(
        "cat /workspace/.boxstrap/runs/*/train-1/log"
    )
    look = "grep -rls --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev {} / || true"
    assert box.run(look.format(TOKEN)) == ""
    # The search does find things: the profile's secret is where the training reads it.
    found = {"/workspace/.boxstrap/env", "/workspace/.boxstrap/secrets"}
    assert found <= set(box.run(look.format("key-51c0")).split())
    assert (
        box.run("stat -c %a /workspace/.boxstrap/env /workspace/.boxstrap/secrets") == "600\n600\n"
    )


def test_a_pasted_script_of_a_private_repository_changes_nothing_without_terminal_or_token(
    rent: Rent, hosted: Hosted, user: User
) -> None:
    box = rent("vast").box
    hosted(box, token=TOKEN, extends="vast")
    paste = user.run("oneliner").must(0).out
    before = (box.listing(["/root", "/workspace", "/etc"]), box.run(LEFT))
    done = captured(box.ssh_command("bash -s"), input=paste, check=False)
    assert "is private: put a token into GIT_TOKEN" in done.stderr
    assert "Nothing was changed" in done.stderr
    assert (box.listing(["/root", "/workspace", "/etc"]), box.run(LEFT)) == before


def test_a_oneliner_that_is_cut_while_pasted_changes_nothing_on_the_box(
    rent: Rent, hosted: Hosted, user: User
) -> None:
    box = rent("vast").box
    hosted(box, extends="vast")
    paste = user.run("oneliner").must(0).out
    before = box.listing(["/root", "/workspace", "/etc"])
    lines = paste.splitlines(keepends=True)
    # Cutting only the last line would lose nothing: bash ends a here-document at end of input.
    cut = (
        paste[: len(paste) // 2],
        paste[:-40],
        "".join([*lines[:5], *lines[6:]]),
        "".join([lines[0], *reversed(lines[1:-1]), lines[-1]]),
    )
    for text in cut:
        box.run(["bash", "-s"], stdin=text, check=False)
        assert box.run(LEFT) == ""
        assert box.listing(["/root", "/workspace", "/etc"]) == before
