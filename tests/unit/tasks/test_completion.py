"""Completion by one command, in the shells that are here: what Tab makes of a begun word."""

import shutil
from pathlib import Path

import pexpect
import pytest

from bootstrap.link import KnownBox, record
from bootstrap.tasks.completion import SCRIPTS
from tests.cli import User
from tests.plain_environment import BIN

pytestmark = pytest.mark.slow

STARTS = {
    "bash": ("--noprofile", "-i"),
    "zsh": ("-i",),
    "fish": ("-i", "--features", "no-query-term"),
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_tab_completes_commands_and_boxes_in_a_new_shell_after_installing(
    shell: str, user: User
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    record.save_box(KnownBox("one-box", "root@203.0.113.1", "203.0.113.1"))
    user.env |= {"PATH": f"{BIN}:{user.env['PATH']}", "SHELL": f"/bin/{shell}", "TERM": "dumb"}
    if shell == "zsh":  # as most who use it have
        (user.home / ".zshrc").write_text("autoload -U compinit\ncompinit -u\n")
    user.run("completion", "--install").must(0)
    again = user.run("completion", "--install").must(0).out
    assert "rc" not in again  # the line is there
    with pexpect.spawn(
        shell, [*STARTS[shell]], env=user.env, cwd=str(user.home), encoding="utf-8", timeout=60
    ) as typing:
        typing.setwinsize(40, 200)
        typing.send("boxstrap doct\t")
        typing.expect("boxstrap doctor")
        typing.send("--host one\t")
        typing.expect("--host one-box")
        typing.sendline("exit")


def test_installing_completion_keeps_what_a_shell_start_up_file_has(user: User) -> None:
    user.env["SHELL"] = "/usr/bin/zsh"
    rc = user.home / ".zshrc"
    rc.write_text("setopt nobeep")  # and no end of line
    done = user.run("completion", "--install", "--json").must(0).json()
    assert [Path(file).name for file in done["written"]] == ["completion.zsh", ".zshrc"]
    first, second = rc.read_text().splitlines()
    assert first == "setopt nobeep"
    assert second.endswith("# completion of boxstrap")


def test_an_unknown_shell_or_an_unwritable_start_up_file_is_an_error_without_traceback(
    user: User,
) -> None:
    user.env["SHELL"] = "/bin/tcsh"
    assert "Name one of: bash, zsh, fish" in user.run("completion").must(2).err
    assert "complete -F" in user.run("completion", "bash").must(0).out
    (user.home / ".bashrc").mkdir()
    failed = user.run("completion", "--shell", "bash", "--install")
    assert failed.rc
    assert str(user.home / ".bashrc") in failed.err
    assert "Traceback" not in failed.err
