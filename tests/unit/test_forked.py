"""A forked program behaves like an executed one: output, exit, what it sees of its caller."""

import os
import signal
import socket
import subprocess

import pytest

from tests.cli import Completed, User
from tests.forked import INV, PROGRAM, Forked, can_fork

pytestmark = pytest.mark.slow  # each starts programs

EXECUTED = {"PYTHONHASHSEED": "0"}
"""Read by Python at its start, so a program with it is executed, not forked."""


def both(user: User, *words: str, **env: str) -> tuple[Completed, Completed]:
    return user.run(*words, **env), user.run(*words, **env, **EXECUTED)


def test_tests_fork_only_the_boxstrap_program_and_only_in_a_plain_python_environment(
    user: User,
) -> None:
    assert can_fork([PROGRAM], user.env)
    assert can_fork([INV], user.env)
    assert not can_fork([f"{PROGRAM}s"], user.env)
    for name in ("PYTHONHASHSEED", "PYTHONPATH", "LC_ALL", "LANG", "LD_PRELOAD"):
        assert not can_fork([PROGRAM], {**user.env, name: "x"}), name


@pytest.mark.parametrize(
    "words",
    [("--version",), ("boxes", "--json"), ("status", "--host", "root@127.0.0.1:1"), ("nothing",)],
    ids=" ".join,
)
def test_a_command_forked_by_the_test_rig_prints_and_exits_as_an_executed_one(
    user: User, words: tuple[str, ...]
) -> None:
    forked, executed = both(user, *words)
    assert (forked.rc, forked.out, forked.err) == (executed.rc, executed.out, executed.err)


def test_a_forked_command_of_the_test_rig_runs_with_the_tests_environment_and_folder(
    user: User,
) -> None:
    user.repository()
    user.place = user.place.rename(user.home / "moved")
    for done in both(user, "render"):
        assert "moved" in done.must(0).out
    forked, executed = both(user, "boxes", "--json", XDG_STATE_HOME="/proc/1/nowhere")
    assert (forked.rc, forked.err) == (executed.rc, executed.err)


def test_a_signal_ends_a_forked_command_with_the_exit_code_of_an_executed_one(user: User) -> None:
    user.repository()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        host = f"root@127.0.0.1:{silent.getsockname()[1]}"
        for end, rc in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            going = user.begin("setup", "--host", host)
            assert isinstance(going.process, Forked)
            with silent.accept()[0]:
                with pytest.raises(subprocess.TimeoutExpired):
                    going.process.wait(0)
                assert going.process.poll() is None
                assert os.getsid(going.process.pid) == going.process.pid
                os.killpg(going.process.pid, end)
                assert going.end().rc == rc
