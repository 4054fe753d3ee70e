"""completion: what makes a shell complete tasks, options and the names that this machine knows."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from pathlib import Path

from bootstrap.errors import UsageError, write_error
from bootstrap.tasks.command import JSON, Call, Option, command

_RCS = {"bash": ".bashrc", "zsh": ".zshrc"}
SHELLS = (*_RCS, "fish")
_MARK = "# completion of boxstrap"
# Invoke's reads `words`, which compctl's functions don't have: it offers tasks alone.
_ZSH = """\
_complete_boxstrap() {
  local typed
  read -Ac typed
  reply=($(boxstrap --complete -- $typed))
}
compctl -K _complete_boxstrap + -f boxstrap
"""


@command(
    JSON,
    Option("shell", f"For which shell: {', '.join(SHELLS)}; default: yours, by $SHELL."),
    Option("install", "Write it where that shell reads it at its start.", False),
    changes=("install",),
)
def completion(call: Call) -> None:
    """Print what makes a shell complete tasks, options, boxes, runs; or install it.

    Example: boxstrap completion --install
    """
    import sys

    shell = call.given["shell"] or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise UsageError(
            f"there is no completion for {shell or 'an unknown shell'}.",
            where="--shell",
            hint=f"Name one of: {', '.join(SHELLS)}",
        )
    if call.given["install"]:
        files = [str(file) for file in install_completion(shell)]
        text = "\n".join([*(f"written: {file}" for file in files), "It is there in a new shell."])
        call.screen.result({"written": files}, text)
    elif call.is_json:
        call.screen.result({"text": completion_script(shell).splitlines()})
    else:
        sys.stdout.write(completion_script(shell))


def completion_script(shell: str) -> str:
    """Return the script for the shell, which asks `boxstrap --complete`; Invoke's if it works."""
    if shell == "zsh":
        return _ZSH
    from invoke.completion.complete import print_completion_script

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print_completion_script(shell, ["boxstrap"])
    return said.getvalue().strip() + "\n"


def install_completion(shell: str) -> list[Path]:
    """Write the script, and a line that reads it into the shell's start-up file, once; return the
    files that were written. Raises BoxstrapError."""
    from bootstrap.paths import config_dir, write_users_file

    home = Path.home()
    if shell == "fish":
        config = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
        script = Path(config) / "fish/completions/boxstrap.fish"
    else:
        script = config_dir() / f"completion.{shell}"
    written, at = [script], script
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        write_users_file(script, completion_script(shell))
        if shell in _RCS:
            zsh = os.environ.get("ZDOTDIR") if shell == "zsh" else None
            at = Path(zsh or home) / _RCS[shell]
            before = at.read_text(encoding="utf-8", errors="surrogateescape") if at.exists() else ""
            if _MARK not in before:
                gap = "" if not before or before.endswith("\n") else "\n"
                named = shlex.quote(str(script))
                with at.open("a", encoding="utf-8", newline="\n") as file:
                    file.write(f"{gap}[ -r {named} ] && . {named} {_MARK}\n")
                written.append(at)
    except OSError as error:
        raise write_error(at, error) from None
    return written
