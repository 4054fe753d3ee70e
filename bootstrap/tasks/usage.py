"""Make wrong usage exit with 2 in `inv` and `boxstrap`; Invoke's own parser errors exit with 1.

Both programs run Invoke's `Program`, which exits with 1 on a ParseError, and with
an `Exit`'s own code on an `Exit`. So the parser gets a ParseError that is also an Exit
(docs/adr/0003-invoke.md).
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator

from invoke.exceptions import Exit, ParseError
from invoke.parser import parser
from invoke.parser.context import ParserContext

from bootstrap.errors import EXIT_CODES, UsageError


class WrongUsageError(ParseError, Exit):
    """A command line that the parser did not understand."""

    code = EXIT_CODES[UsageError]

    def __init__(self, text: str, context: ParserContext | None = None) -> None:
        from bootstrap.link.target import looks_like_unquoted_ssh

        quoted = looks_like_unquoted_ssh(sys.argv[1:])
        meant = _meant(text, context)
        task = context.name if context is not None else None
        takes = f"What it takes: boxstrap {task} --help" if task else _HINT
        hint = f"Put the ssh command in quotes: {quoted}" if quoted else f"{meant}{takes}"
        text = _in_our_words(_ARGUMENT.sub(r"--\1", text), task)
        ParseError.__init__(self, text, context)
        self.error = UsageError(text, hint=hint)
        self.message = None  # Invoke prints the ParseError itself

    def __str__(self) -> str:
        return self.error.text()


@contextlib.contextmanager
def told_as_json() -> Iterator[None]:
    """Print the document of a command line that is wrong, if it asks for one."""
    try:
        yield
    except WrongUsageError as wrong:
        typed = sys.argv[1:]
        if "--json" in typed[: typed.index("--") if "--" in typed else None]:
            from bootstrap.ui.screens import make_screen

            screen = make_screen(json=True)
            screen.failed(wrong.error, wrong.code)
            screen.close()
        raise


_HINT = "See what there is: boxstrap --list. What a task takes: boxstrap TASK --help"
_UNKNOWN = re.compile(r"No idea what (['\"])(.*)\1 is!")
_ARGUMENT = re.compile(r"<Argument: ([\w-]+)[^>]*>")
"""How Invoke's parser prints one of its options."""
WITH_COMMAND = ("exec", "run")
"""Tasks that take a command after `--`."""
OTHERS_WORDS = {
    "ps": "status",
    "list": "status",
    "inspect": "status",
    "describe": "status",
    "ls": "boxes",
    "instances": "boxes",
    "ssh": "shell",
    "connect": "shell",
    "login": "shell",
    "start": "setup",
    "provision": "setup",
    "deploy": "setup",
    "bootstrap": "setup",
    "apply": "setup",
    "install": "setup",
    "train": "run -- COMMAND",
    "launch": "up",
    "rent": "up",
    "create": "up",
    "new": "up",
    "destroy": "down",
    "terminate": "down",
    "delete": "down",
    "rm": "down",
    "kill": "stop",
    "cancel": "stop",
    "queue": "run --queue -- COMMAND",
    "submit": "run --queue -- COMMAND",
    "tail": "logs -f",
    "log": "logs",
    "watch": "top",
    "nvidia-smi": "top",
    "gpus": "top",
    "upload": "push",
    "download": "pull",
    "results": "pull",
    "cp": "push or pull",
    "scp": "push or pull",
    "rsync": "sync",
    "check": "verify",
    "test": "verify",
    "vscode": "code",
    "cursor": "code --editor cursor",
    "jupyter": "tunnel --jupyter",
    "notebook": "tunnel --jupyter",
    "tensorboard": "tunnel --tensorboard",
    "forward": "tunnel",
    "port-forward": "tunnel",
    "tmux": "attach",
    "offers": "up --dry-run",
    "search": "up --dry-run",
    "price": "up --dry-run",
    "autostop": "lease",
    "config": "profiles",
    "dryrun": "plan",
    "diff": "plan",
}
"""What people call it in other tools of this field, and the task here."""
OTHERS_OPTIONS = {
    **dict.fromkeys(("--gpu", "--gpu-name", "--gpu-type"), "gpu.name"),
    **dict.fromkeys(("--gpus", "--gpu-count", "--num-gpus"), "gpu.count"),
    **dict.fromkeys(("--hours", "--max-hours"), "lease.hours"),
    **dict.fromkeys(("--idle", "--idle-minutes-to-autostop"), "lease.idle"),
    **dict.fromkeys(("--disk", "--disk-size"), "box.disk_gb"),
    "--image": "box.image",
    "--region": "rent.region",
    "--spot": "rent.spot",
    "--env": "env.NAME",
}
"""What is an option in other tools, and here a key of the profile."""
_NEAR = 0.7
"""Least similarity (0 to 1) for which a word is taken for a misspelt name."""


def _in_our_words(text: str, task: str | None) -> str:
    """Return the sentence of Invoke's parser about an unknown word as one of ours."""
    unknown = _UNKNOWN.fullmatch(text)
    if not unknown:
        return text
    word = unknown[2]
    if word.startswith("-"):
        return f"there is no option {word!r}" + (f" of {task}." if task else ".")
    return f"{task} takes no {word!r}." if task else f"there is no command {word!r}."


def _meant(text: str, context: ParserContext | None) -> str:
    """Return a sentence that suggests what an unknown word was meant to be; "" if unclear."""
    from bootstrap.profile.values import nearest

    unknown = _UNKNOWN.fullmatch(text)
    if not unknown:
        return ""
    word = unknown[2]
    in_task = context is not None and context.name
    if context is not None and context.name in WITH_COMMAND and not word.startswith("-"):
        rest = sys.argv[sys.argv.index(word) :] if word in sys.argv else []
        near = f"{context.name} -- {shlex.join(rest)}" if rest else ""
    elif word.startswith("-"):
        core = ("--list", "--help", "--version", "--dry")
        flags = context.flags if context else {}
        key = OTHERS_OPTIONS.get(word.partition("=")[0]) if "--set" in flags else None
        near = f"--set {key}=…" if key else nearest(word, [*flags, *core], _NEAR)
    elif looks_like_a_host(word):
        near = "" if in_task else f"setup --host {word}"
    elif not in_task and word in OTHERS_WORDS:
        near = OTHERS_WORDS[word]
    else:
        from bootstrap.tasks import namespace

        near = nearest(word, namespace.task_names, _NEAR)
    host = context.flags.get("--host") if context and in_task else None
    if not near and not word.startswith("-") and host is not None and not host.got_value:
        near = f"--host {word}"
    return f"Did you mean {near}?\n" if near else ""


def looks_like_a_host(word: str) -> bool:
    """Whether a word is an address, or a user at one."""
    return "@" in word or re.fullmatch(r"[\d.]+(:\d+)?", word) is not None


def wrong_usage_exits_2() -> None:
    """Make Invoke's parser raise WrongUsageError."""
    parser.ParseError = WrongUsageError  # type: ignore[attr-defined,assignment]
