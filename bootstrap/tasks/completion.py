"""completion: what Tab offers (commands, options, names that are known here), and how to get it."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bootstrap import providers
from bootstrap.errors import UsageError, write_error
from bootstrap.paths import config_dir, write_users_file
from bootstrap.tasks import NAMES, find
from bootstrap.tasks.command import JSON, Call, command
from bootstrap.tasks.options import Option

_RCS = {"bash": ".bashrc", "zsh": ".zshrc"}
_MARK = "# completion of boxstrap"
SCRIPTS = {
    "bash": """\
_complete_boxstrap() {
  COMPREPLY=($(compgen -W "$(boxstrap --complete -- "${COMP_WORDS[*]}")" -- "$2"))
}
complete -F _complete_boxstrap -o default boxstrap
""",
    "zsh": """\
_complete_boxstrap() {
  local typed
  read -Ac typed
  reply=($(boxstrap --complete -- $typed))
}
compctl -K _complete_boxstrap + -f boxstrap
""",
    "fish": """\
complete -c boxstrap --no-files -a '(boxstrap --complete -- (commandline --tokenize))'
""",
}
"""For each shell, the script that asks `boxstrap --complete`: in zsh by `compctl`, the older way,
which works before a completion system is loaded."""


@command(
    JSON,
    Option(
        "shell", f"For which shell: {', '.join(SCRIPTS)}; default: yours, by $SHELL.", bare=True
    ),
    Option("install", "Write it where that shell reads it at its start.", False),
    changes=("install",),
)
def completion(call: Call) -> None:
    """Print what makes a shell complete tasks, options, boxes, runs; or install it.
    Example: boxstrap completion --install"""
    shell = call.given["shell"] or Path(os.environ.get("SHELL", "")).name
    if shell not in SCRIPTS:
        raise UsageError(
            f"there is no completion for {shell or 'an unknown shell'}.",
            where="--shell",
            hint=f"Name one of: {', '.join(SCRIPTS)}",
        )
    if call.given["install"]:
        files = [str(file) for file in install_completion(shell)]
        text = "\n".join([*(f"written: {file}" for file in files), "It is there in a new shell."])
        call.screen.result({"written": files}, text)
    elif call.is_json:
        call.screen.result({"text": SCRIPTS[shell].splitlines()})
    else:
        sys.stdout.write(SCRIPTS[shell])


def install_completion(shell: str) -> list[Path]:
    """Write the script, and a line that reads it into the shell's start-up file, once; return the
    files that were written. Raises BoxstrapError."""
    home = Path.home()
    if shell == "fish":
        config = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
        script = Path(config) / "fish/completions/boxstrap.fish"
    else:
        script = config_dir() / f"completion.{shell}"
    written, at = [script], script
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        write_users_file(script, SCRIPTS[shell])
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


def _runs() -> Iterable[str]:
    """Runs of boxes that are here, and runs at home, as this machine knows them."""
    from bootstrap.boxes.at_home import all_kept, seen_on
    from bootstrap.link.record import all_boxes

    seen = (one.run.name for box in all_boxes() for one in seen_on(box))
    return {*seen, *(one.run.name for one in all_kept())}


def _doors() -> Iterable[str]:
    from bootstrap.fleet.export import EXPORTS
    from bootstrap.setup.door_table import DOORS

    return [*DOORS, *EXPORTS]


def _of(module: str, names: Callable[[Any], Iterable[str]]) -> Callable[[], Iterable[str]]:
    return lambda: names(import_module(f"bootstrap.{module}"))


VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    **dict.fromkeys(
        ("host", "forget", "give_up"),
        _of("link.record", lambda record: (box.name for box in record.all_boxes())),
    ),
    **dict.fromkeys(("hosts", "group"), _of("fleet.hosts", lambda hosts: hosts.group_names())),
    **dict.fromkeys(("run", "resume", "after", "after_any"), _runs),
    **dict.fromkeys(
        ("profile", "show", "validate"),
        _of("profile.load", lambda load: (item.name for item in load.listed())),
    ),
    "step": _of("steps.plan", lambda plan: plan.NAMES),
    "redo": _of("steps.plan", lambda plan: (name for name in plan.NAMES if name != "train")),
    "for_": _doors,
    "provider": lambda: [*providers.NAMES, *providers.outside()],
    "editor": _of("runs.editors", lambda editors: editors.EDITORS),
}
"""The values of an option that are known without asking a box; other values are left to the
shell, which offers files."""


def candidates(line: str) -> list[str]:
    """Return what may stand where the cursor is, at the end of a command line with the program's
    name. The shell compares it with what the user has begun to type."""
    words = _words(line)[1:]
    if words[:1] == ["help"]:
        from bootstrap.tasks.help import TOPICS

        return [*NAMES, *TOPICS] if len(words) < 3 else []
    name = next((word for word in words if word in NAMES), "")
    if not name:
        return [*NAMES, "help"]
    behind = words[words.index(name) + 1 :]
    if "--" in behind:
        return []  # a command of the user's own: files
    flags = {flag: option for option in find(name).options for flag in option.flags}
    for word in behind[-1:-3:-1]:  # the value's option is the last word, or the one before
        option = flags.get(word.partition("=")[0])
        if option is not None and option.default is not False:
            return sorted(VALUES.get(option.name, list)())
    bare = find(name).bare
    begins_option = behind[-1:] and behind[-1].startswith("-")
    values = VALUES.get(bare.name, list) if bare and not begins_option else list
    return [*sorted(values()), *flags]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # inside quotes
        return line.split()
