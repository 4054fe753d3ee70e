"""`shell` and `exec`: in the repository's folder and environment; arguments arrive unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from bootstrap.errors import UNREAD
from tests.boxes import Rig
from tests.boxes.environment_probe import WAYS
from tests.cli import User
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.used import start_used
from tests.plain_environment import BIN, HERE
from tests.used_here import seem_set_up

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: "it's a \\"day\\""}
train: {command: python train.py}
"""
ODD = (
    "", " ", "two words", "it's", '"', "a\nb\n", "*", "$HOME", "`id`", "--", "-n", "\\", "é",
    "\udcff",
)  # fmt: skip
SAYS = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
WHERE = (
    "import os, sys; print(os.getcwd()); print(sys.prefix); print(os.environ['VIRTUAL_ENV']); "
    "print(os.environ['GREETING'])"
)


@pytest.fixture(scope="module")
def rented(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rented]:
    user = User(tmp_path_factory.mktemp("enter") / "home")
    user.repository(boxstrap__yaml=PROFILE)
    box = start_used(mirror_rig, "vast", shared_folder)
    there = Rented(user, box)
    there.run("setup").must(0)
    # As in an image that activates its own environment in each shell.
    box.write(
        "/root/.bashrc", box.read("/root/.bashrc") + 'export PATH="/opt/own/bin:$PATH"\ncd /\n'
    )
    yield there
    box.stop()


def argv(rented: Rented, program: str, *command: str) -> list[str]:
    place = ["--host", rented.box.host_string, "--identity", str(rented.box.identity)]
    repo = ["--repo", str(rented.user.place)]
    return [str(BIN / program), "exec", *place, *repo, "--", *command]


def raw(
    rented: Rented, *command: str, program: str = "boxstrap", stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        argv(rented, program, *command),
        input=stdin,
        cwd=HERE if program == "inv" else rented.user.place,  # inv needs a tasks.py
        env=rented.user.env,
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_exec_runs_a_command_in_the_repository_folder_and_its_environment(rented: Rented) -> None:
    done = raw(rented, "python", "-c", WHERE)
    tree = "/workspace/homework"
    assert done.stdout.decode() == f'{tree}\n{tree}/.venv\n{tree}/.venv\nit\'s a "day"\n'
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("program", ["boxstrap", "inv"])
def test_exec_passes_arguments_to_the_box_unchanged(rented: Rented, program: str) -> None:
    done = raw(rented, "python", "-c", SAYS, *ODD, program=program)
    assert done.stdout == b"\0".join(map(os.fsencode, ODD)), done.stderr
    assert done.returncode == 0


def test_exec_ends_with_the_exit_code_of_its_command(rented: Rented) -> None:
    for code in (1, 2, 10, 130, 255):
        assert raw(rented, "sh", "-c", f"exit {code}").returncode == code
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):  # 255 would be a lost link
        killed = raw(rented, "sh", "-c", f"kill -{number:d} $$")
        assert (killed.returncode, killed.stderr) == (128 + number, b"")
    with subprocess.Popen(
        argv(rented, "boxstrap", "yes"),
        cwd=rented.user.place,
        env=rented.user.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as unread:
        assert unread.stdout is not None
        assert unread.stdout.readline() == b"y\n"
        unread.stdout.close()
        assert unread.wait(20) == UNREAD
    missing = raw(rented, "no-such-program")
    assert (missing.returncode, missing.stdout) == (127, b"")
    assert b"no-such-program" in missing.stderr


def test_a_box_that_was_set_up_has_an_agents_file_with_what_not_to_edit(rented: Rented) -> None:
    said = rented.ssh("cat .boxstrap/AGENTS.md")
    assert said.startswith("# A box of boxstrap\n")
    assert "Do not change or delete anything in this folder" in said
    assert "Do not edit tracked files here" in said


def test_exec_with_json_prints_output_and_exit_code_and_cuts_long_output(rented: Rented) -> None:
    done = rented.run("exec", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.must(7).json()["output"], done.json()["code"]) == ("out\nerr\n", 7)
    assert done.json()["exit"] == 7
    long = rented.run("exec", "--json", "--", "sh", "-c", "yes | head -c 200000").must(0).json()
    assert (long["cut"], len(long["output"])) == (["output"], 100_000)
    assert "200,000 characters" in long["warnings"][0]
    way_in = rented.run("shell", "--json").must(0).json()["argv"]
    assert way_in[:2] == ["ssh", "-o"]
    assert "-t" in way_in


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_exec_ends_with_its_signal_code_and_leaves_no_ssh_process(
    rented: Rented, number: int
) -> None:
    """ssh ends with 255 then, as it does for a lost link."""
    began = subprocess.Popen(
        argv(rented, "boxstrap", "sh", "-c", "echo on; sleep 100"),
        cwd=rented.user.place,
        env=rented.user.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with began:
        assert began.stdout is not None
        assert began.stdout.readline() == "on\n"
        if number == signal.SIGINT:
            os.killpg(began.pid, number)  # as a terminal does
        else:
            os.kill(began.pid, number)
        assert began.wait(20) == (-number if number == signal.SIGKILL else 128 + number)
        assert began.stdout.read() == ""  # its end: nobody has it open any more


def test_exec_of_pip_says_where_it_is_the_boxs_and_not_of_the_environment(rented: Rented) -> None:
    told = b"the environment has no pip; this is the box's own"
    assert told in raw(rented, "pip", "--version").stderr
    rented.ssh("ln -s /bin/true /workspace/homework/.venv/bin/pip")
    assert raw(rented, "pip", "--version").stderr == b""


def test_exec_passes_stdin_stdout_and_stderr_on_unchanged(rented: Rented) -> None:
    data = os.urandom(3_000_000)
    done = raw(rented, "sh", "-c", "echo beside >&2; cat", stdin=data)
    assert (done.stdout == data, done.stderr, done.returncode) == (True, b"beside\n", 0)


def terminal(rented: Rented, *words: str) -> pexpect.spawn[str]:
    there = ["--host", rented.box.host_string, "--identity", str(rented.box.identity)]
    return pexpect.spawn(
        str(BIN / "boxstrap"),
        [words[0], *there, *words[1:]],
        cwd=str(rented.user.place),
        env={**rented.user.env, "TERM": "xterm-256color"},
        timeout=120,
        dimensions=(31, 101),
        encoding="utf-8",
    )


def test_shell_opens_a_resizable_terminal_in_the_repository_folder(rented: Rented) -> None:
    shell = terminal(rented, "shell")
    shell.sendline("echo $PWD=$VIRTUAL_ENV=$(command -v python)=$(stty size)=")
    tree = "/workspace/homework"
    shell.expect_exact(f"{tree}={tree}/.venv={tree}/.venv/bin/python=31 101=")
    shell.setwinsize(20, 70)
    shell.sendline("sleep 0.3; echo size=$(stty size)=")
    shell.expect_exact("size=20 70=")
    shell.sendline("exit 3")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 3


def test_exec_from_a_terminal_gives_its_command_a_terminal(rented: Rented) -> None:
    shown = terminal(rented, "exec", "--", "test -t 0 && test -t 1 && stty size")
    shown.expect_exact("31 101")
    shown.expect(pexpect.EOF)
    shown.close()
    assert shown.exitstatus == 0


def exec_and_shell_work(rented: Rented) -> None:
    """On a box that was set up with PROFILE, whatever its login shell is."""
    seen = {way: has.get("GREETING") for way, has in rented.environments().items()}
    assert seen == dict.fromkeys(WAYS, 'it\'s a "day"')
    done = raw(rented, "python", "-c", SAYS, *ODD)
    assert done.stdout == b"\0".join(map(os.fsencode, ODD)), done.stderr
    shell = terminal(rented, "shell")
    shell.sendline("python -c 'import sys; print(sys.prefix)' ; pwd | tr a-z A-Z")
    shell.expect_exact("/homework/.venv")
    shell.expect_exact("/HOMEWORK")
    shell.sendline("exit")
    shell.expect(pexpect.EOF)
    shell.close()


def test_exec_and_shell_work_on_a_box_with_zsh(rent: Rent) -> None:
    rented = rent("zsh")
    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.run("setup").must(0)
    exec_and_shell_work(rented)


def test_a_banner_printed_by_bashrc_on_the_box_is_no_output_of_exec(rent: Rent) -> None:
    rented = rent("runpod", used=True)
    assert "documentation" in rented.box.read("/etc/rig-banner")
    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.run("setup").must(0)
    for command in (["printf", "a\\0b"], ["bash", "-c", "printf 'a\\0b'"]):
        assert raw(rented, *command).stdout == b"a\0b"
    told = rented.run("exec", "--json", "--", "echo said").must(0).json()
    assert told["output"] == "said\n"


def test_exec_works_on_this_machine_as_host_local(user: User) -> None:
    local = "version: 1\nextends: local\nbox: {workdir: ~/box}\n"
    seem_set_up(user, "box").repository(boxstrap__yaml=local)
    user.run("setup", "--host", "local").must(0)
    done = user.run(
        "exec", "--host", "local", "--", "python", "-c", "import sys; print(sys.prefix)"
    )
    assert done.must(0).out == f"{user.home}/box/homework/.venv\n"
    assert user.run("exec", "--host", "local", "--", sys.executable, "-c", "exit(9)").rc == 9
