"""Questions on a real terminal."""

import contextlib
import fcntl
import os
import pty
import re
import subprocess
import sys
import termios
import time

import pytest

from bootstrap.link.prompt import Prompt
from tests.plain_environment import HERE


def on_a_terminal(
    code: str, *answers: str, unseen: bool = False, stdin: int = subprocess.DEVNULL
) -> tuple[str, str]:
    """Return what the terminal showed and what the code printed when these were the answers.

    Without the last one the terminal is closed instead, as with Ctrl-D. `unseen`: all output is
    captured, as a program does that runs boxstrap.
    """
    master, slave = pty.openpty()
    reading, writing = os.pipe()
    command = [sys.executable, "-c", f"from bootstrap.link.prompt import Prompt; {code}"]
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=writing,
        stderr=subprocess.DEVNULL if unseen else slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        pass_fds=[slave],
    )
    os.close(slave)
    os.close(writing)
    shown = b""
    for typed in answers:
        asked = b""
        while not asked.endswith((b" ", b": ")):
            asked += os.read(master, 100)
        shown += asked
        time.sleep(0.1)
        os.write(master, typed.encode() if typed == "\x04" else f"{typed}\n".encode())
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read().decode()
    process.wait()
    with contextlib.suppress(OSError):  # the terminal hangs up when its last program ends
        shown += os.read(master, 1000)
    os.close(master)
    return shown.decode(), printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        *(((yes,), "True") for yes in ("yes", "y", "Y", "YES", " Yes ")),
        *(((no,), "False") for no in ("no", "n", "N", "NO", "\x04")),
        (("", "yes!", "yess", "y"), "True"),
        (("ja", "n"), "False"),
        (("ja", "\x04"), "False"),
    ],
)
def test_a_yes_or_no_question_repeats_until_answered(typed: tuple[str, ...], answer: str) -> None:
    shown, printed = on_a_terminal("print(Prompt(print).confirm('Trust it?'))", *typed)
    assert "Trust it? (yes/no)" in shown
    assert shown.count("Please type yes or no") == len(typed) - 1
    assert printed.strip() == answer


@pytest.mark.slow
def test_a_question_says_that_it_is_answered_on_the_terminal_where_something_is_piped_in() -> None:
    code, note = "print(Prompt(print).confirm('Remove it?'))", "what is piped in is not read for it"
    with subprocess.Popen(["echo", "no"], stdout=subprocess.PIPE) as piped:
        assert piped.stdout
        shown, printed = on_a_terminal(code, "y", stdin=piped.stdout.fileno())
    assert (note in shown, printed) == (True, "True\n")
    assert note not in on_a_terminal(code, "y")[0]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [(("2",), "b"), (("",), "a"), (("9", "b", "2"), "b"), (("0", ""), "a"), (("\x04",), "a")],
)
def test_a_question_with_choices_takes_the_typed_number_and_else_the_first_choice(
    typed: tuple[str, ...], answer: str
) -> None:
    shown, printed = on_a_terminal("print(Prompt(print).choose('Which?', ['a', 'b']))", *typed)
    assert "2  b" in shown
    assert printed.strip() == answer


def test_a_typed_passphrase_is_not_shown_on_the_terminal() -> None:
    shown, printed = on_a_terminal("print(Prompt(print).secret('Passphrase: '))", "opensesame")
    assert "opensesame" not in shown
    assert printed.strip() == "opensesame"


@pytest.mark.slow
def test_a_yes_or_no_question_without_a_terminal_counts_as_answered_no() -> None:
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


@pytest.mark.parametrize(
    "asks", ["confirm('?')", "choose('?', ['a', 'b'])", "ask('?', bool, 'it')", "secret('?')"]
)
def test_a_question_on_a_terminal_nobody_sees_gets_its_default_answer_unasked(asks: str) -> None:
    """As by an agent: it has the terminal of whoever started it, and would wait forever."""
    shown, printed = on_a_terminal(f"print(Prompt(print).{asks})", unseen=True)
    assert not shown
    assert printed.strip() in ("False", "a", "None")


def test_a_text_said_by_a_prompt_is_printed_by_the_function_that_the_prompt_was_given() -> None:
    said: list[str] = []
    Prompt(said.append).say("hello")
    assert said == ["hello"]


def test_prompt_py_is_the_only_module_that_asks_on_the_terminal() -> None:
    """A question elsewhere would read other answers than these."""
    asks = re.compile(r'"/dev/tty"|\binput\(|getpass\.getpass\(|\(yes/no\)|\[y/')
    found = {
        path.name for path in (HERE / "bootstrap").rglob("*.py") if asks.search(path.read_text())
    }
    assert found == {"prompt.py"}
