"""Questions on a real terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import subprocess
import sys
import termios
import time

import pytest

from bootstrap.link.prompt import Prompt


def on_a_terminal(code: str, typed: str) -> tuple[str, str]:
    """Return what the terminal showed and what the code printed when `typed` was the answer."""
    master, slave = pty.openpty()
    reading, writing = os.pipe()
    command = [sys.executable, "-c", f"from bootstrap.link.prompt import Prompt; {code}"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        pass_fds=[slave],
    )
    os.close(slave)
    os.close(writing)
    shown = b""
    while not shown.endswith((b" ", b": ")):
        shown += os.read(master, 100)
    time.sleep(0.1)
    os.write(master, f"{typed}\n".encode())
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read().decode()
    process.wait()
    with contextlib.suppress(OSError):  # the terminal hangs up when its last program ends
        shown += os.read(master, 1000)
    os.close(master)
    return shown.decode(), printed


@pytest.mark.parametrize(("typed", "answer"), [("yes", "True"), ("y", "False"), ("no", "False")])
def test_confirm_wants_a_whole_yes(typed: str, answer: str) -> None:
    shown, printed = on_a_terminal("print(Prompt(print).confirm('Trust it?'))", typed)
    assert "Trust it? (yes/no)" in shown
    assert printed.strip() == answer


@pytest.mark.parametrize(("typed", "answer"), [("2", "b"), ("", "a"), ("9", "a"), ("b", "a")])
def test_one_of_several_is_chosen_by_its_number(typed: str, answer: str) -> None:
    shown, printed = on_a_terminal("print(Prompt(print).choose('Which?', ['a', 'b']))", typed)
    assert "2  b" in shown
    assert printed.strip() == answer


def test_a_passphrase_is_not_shown() -> None:
    shown, printed = on_a_terminal("print(Prompt(print).secret('Passphrase: '))", "opensesame")
    assert "opensesame" not in shown
    assert printed.strip() == "opensesame"


def test_without_a_terminal_nothing_is_asked() -> None:
    code = "from bootstrap.link.prompt import Prompt; t = Prompt(print); "
    code += "print(t.has_terminal(), t.confirm('?'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.stdout.strip() == "False False"


def test_say() -> None:
    said: list[str] = []
    Prompt(said.append).say("hello")
    assert said == ["hello"]
