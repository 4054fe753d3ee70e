"""Scripts sent to a box and their answers, under every login shell and with noisy rc files."""

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.boxes.probe import probe
from bootstrap.errors import UnreachableError
from bootstrap.link import LocalWire, exchange
from bootstrap.link.exchange import (
    LIMIT,
    run_script,
    run_script_checked,
    shell_command,
    stream_script,
)
from bootstrap.link.wire import NoAnswer, Wire
from bootstrap.steps.shell import SHELL_SETTINGS, functions
from tests.sshd import Sshd
from tests.unit.link.conftest import SshUser
from tests.waiting import PATIENCE_S, wait_until

STAND_INS = "QXJZKVWYUGjzq^@,%+78460BCDFLNPRST"  # all that can be printed
TRICKY = r"""
x='it'"'"'s $HOME `date` !! \n' # a comment, with 'quotes" and | & ; < > ( ) { } [ ] * ? ~
printf '%s\n' "$x" "${x#it}" "$((6 * 7))" 'ünïcødé 日本' "$(printf 'sub\tshell')"
case $x in *HOME*) echo matched ;; esac
cat <<'END'
here ! document $1 \ `x`
END
"""
EXPECTED = (
    "it's $HOME `date` !! \\n\n's $HOME `date` !! \\n\n42\nünïcødé 日本\nsub\tshell\n"
    "matched\nhere ! document $1 \\ `x`\n"
)


@pytest.fixture(params=("bash", "dash", "zsh", "fish", "tcsh", "csh", "ksh", "busybox"))
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A login shell as sshd would run it: `SHELL -c COMMAND`."""
    path = shutil.which(request.param)
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    if request.param != "busybox":
        return path
    wrapper = tmp_path / "ash"
    wrapper.symlink_to(path)
    return str(wrapper)


@pytest.mark.parametrize("foreign", ["ünïcødé 日本", "Q  q\t ", STAND_INS])
def test_any_script_reaches_a_box_intact_through_any_login_shell(shell: str, foreign: str) -> None:
    wire = LocalWire(shell)
    script, expected = (text.replace("ünïcødé 日本", foreign) for text in (TRICKY, EXPECTED))
    answer = run_script_checked(
        wire, script + "cat; echo oops >&2; exit 7", stdin=b"in\0put \xff\n"
    )
    assert answer.output == expected.encode() + b"in\0put \xff\n"
    assert answer.code == 7
    assert answer.errors == b"oops\n"


def test_a_script_of_50_kb_reaches_a_box_through_any_login_shell(shell: str) -> None:
    lines = "".join(f"n=$((n + {number}))\n" for number in range(4000))
    assert len(lines) > 50_000
    assert run_script(LocalWire(shell), f"n=0\n{lines}echo $n") == b"7998000\n"


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_printed_on_a_box_arrives_here_byte_for_byte(text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"
    assert run_script(LocalWire(), f"printf %s {quoted}") == text.encode()


def test_a_script_is_sent_to_a_box_as_one_line_that_every_login_shell_reads_alike() -> None:
    every = "".join(map(chr, range(32, 127)))
    for more in ("", f" {every}"):
        command = shell_command(f"echo 'a\nb!' \\{more}")
        assert "\n" not in command
        begin, program, name, others, text, end = command.split("'")
        assert begin.startswith("exec env -u BASHOPTS ")
        assert begin.endswith(" -u TMOUT /bin/sh -c ")
        assert (name, others, end) == (' /bin/sh "', '" \\! \\\\ ', "")
        assert not set("!\\") & set(program + text)


@pytest.mark.slow
@pytest.mark.parametrize("login", ["/bin/sh", "bash"])
@pytest.mark.parametrize("of", ["/bin/sh", "bash --norc"])
def test_a_script_sent_to_a_box_gives_the_same_output_whatever_its_shell_settings_are(
    login: str, of: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noise = tmp_path / "noise"
    noise.write_text("echo noise\n")
    for name in SHELL_SETTINGS:
        monkeypatch.setenv(name, "1")
    for name, value in {
        **{"BASH_ENV": str(noise), "ENV": str(noise), "GLOBIGNORE": "*", "CDPATH": "/"},
        **{"GLOBSORT": "-name", "SHELLOPTS": "noglob:nounset", "BASHOPTS": "nullglob"},
    }.items():
        monkeypatch.setenv(name, value)
    script = (
        "echo /et[c] /no-suc[h]; cd /; cd etc; echo $unset; sleep 1.5 | { read -r x; echo $?; }; "
    )
    stream = stream_script(LocalWire(login), f"{script}env; bash -c 'echo $- >&2'", of)
    said = stream.whole().decode()
    assert said.startswith("/etc /no-suc[h]\n\n1\n")
    assert not {line.partition("=")[0] for line in said.splitlines()} & {*SHELL_SETTINGS}


def test_a_pasted_setup_script_unsets_the_same_shell_settings_as_a_script_sent_by_ssh() -> None:
    found = functions("lib", "stage0", ("reset_shell",))
    assert {*re.findall(r"\b[A-Z_]{3,}\b(?![=:])", found)} - {"LC_ALL", "LANGUAGE", "TMPDIR"} == {
        *SHELL_SETTINGS
    }


def test_the_exit_code_of_a_script_sent_to_a_box_is_returned() -> None:
    wire = LocalWire()
    assert run_script_checked(wire, "false").code == 1
    assert run_script_checked(wire, "echo a; exit 3; echo b") == run_script_checked(
        wire, "echo a; exec sh -c 'exit 3'"
    )
    assert run_script_checked(wire, "printf '\\0\\377 no newline'").output == b"\0\xff no newline"


@pytest.mark.slow
def test_a_script_on_a_box_ends_though_a_background_process_of_it_lives_on() -> None:
    begun = time.monotonic()
    assert run_script(LocalWire(), "sleep 600 & echo done") == b"done\n"
    assert time.monotonic() - begun < 60


def test_a_script_on_a_box_reads_3_mib_of_input_while_it_prints_3_mib_without_hanging() -> None:
    data = os.urandom(3 << 20)
    assert run_script(LocalWire(), "cat", stdin=data) == data
    assert run_script(LocalWire(), "echo early", stdin=data) == b"early\n"


def force(*, then: str) -> list[str]:
    return [f"ForceCommand {then}"]


def test_noise_printed_by_login_files_of_a_box_is_not_in_a_scripts_output(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    noisy = 'echo "WELCOME  to your pod"; echo noise >&2; eval "$SSH_ORIGINAL_COMMAND"'
    server = start_server("box", ssh_user.key, options=force(then=noisy))
    ssh_user.write(ssh_user.alias("box", server))
    wire = ssh_user.login("box")
    assert run_script(wire, "echo clean") == b"clean\n"
    assert run_script_checked(wire, "cat", stdin=b"x" * 1_000_000).output == b"x" * 1_000_000
    assert probe(wire).is_noisy
    assert not probe(LocalWire()).is_noisy


@pytest.mark.parametrize(
    ("then", "printed", "hint"),
    [
        ("echo open terminal failed: not a terminal; exit 1", "open terminal", "no_auto_tmux"),
        ('echo "Error: Your SSH client doesn\'t support PTY"; exit 1', "PTY", "exposed TCP"),
        ("printf '\\033]0;evil\\007please log in at the web page\\n'", "please log in", "rc files"),
        ("exit 0", "printed nothing", "rc files"),
    ],
)
def test_if_a_box_gives_no_answer_the_error_quotes_what_it_printed_instead(
    ssh_user: SshUser, start_server: Callable[..., Sshd], then: str, printed: str, hint: str
) -> None:
    server = start_server("box", ssh_user.key, options=force(then=then))
    ssh_user.write(ssh_user.alias("box", server))
    with pytest.raises(NoAnswer) as caught:
        run_script(ssh_user.login("box"), "echo hello")
    assert printed in caught.value.what
    assert hint in caught.value.hint
    assert "\x1b" not in caught.value.text()


def test_a_script_killed_on_a_box_raises_a_no_answer_error(ssh_user: SshUser, server: Sshd) -> None:
    with pytest.raises(NoAnswer):
        run_script(LocalWire(), "echo half; kill -9 -$$")


def wires(ssh_user: SshUser) -> list[Wire]:
    return [LocalWire(), ssh_user.login("box")]


@pytest.mark.slow
def test_a_script_on_a_box_ends_at_its_timeout(ssh_user: SshUser, server: Sshd) -> None:
    for wire in wires(ssh_user):
        with pytest.raises(NoAnswer, match=r"within 1.5 s") as caught:
            run_script(wire, "echo working; sleep 600", timeout=1.5)
        assert "working" in caught.value.what
        assert run_script(wire, "echo again", timeout=PATIENCE_S) == b"again\n"


def test_endless_output_of_a_box_is_an_error(ssh_user: SshUser, server: Sshd) -> None:
    for wire in wires(ssh_user):
        with pytest.raises(NoAnswer, match=f"{LIMIT >> 20} MiB"):
            run_script(wire, "yes")
        assert run_script(wire, "echo again") == b"again\n"


@pytest.mark.slow
def test_forty_megabytes_of_errors_do_not_stall_a_script_and_only_the_last_4_kib_are_kept(
    ssh_user: SshUser, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        exchange, "_ERRORS_PATIENCE", PATIENCE_S
    )  # else a busy machine has a second
    for wire in wires(ssh_user):
        answer = run_script_checked(
            wire, "head -c 40000000 /dev/zero >&2; echo last words >&2; echo done"
        )
        assert answer.output == b"done\n"
        assert len(answer.errors) == 4096
        assert answer.errors.endswith(b"last words\n")


def test_a_box_whose_ssh_server_runs_no_commands_is_unreachable_with_hint_interactive_only(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", ssh_user.key, options=["MaxSessions 0"])
    ssh_user.write(ssh_user.alias("box", server))
    with pytest.raises(UnreachableError) as caught:
        run_script(ssh_user.login("box"), "echo hello")
    assert "interactive only" in caught.value.hint


@pytest.mark.slow
def test_a_command_on_host_local_starts_in_the_home_folder(tmp_path: Path) -> None:
    wire = LocalWire()
    assert run_script(wire, "pwd").decode().strip() == str(Path.home())
    begun, mark = tmp_path / "begun", tmp_path / "mark"
    stream = wire.start(f"setsid sh -c 'touch {begun}; sleep 0.5; touch {mark}' & sleep 600")
    wait_until(begun.exists)
    wire.close()
    assert not wire.alive()
    assert stream.exit_status() is None
    wait_until(mark.exists)
