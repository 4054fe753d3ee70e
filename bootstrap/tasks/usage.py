"""Make wrong usage exit with 2 in `inv` and `boxstrap`; Invoke's own parser errors exit with 1.

Both programs run Invoke's `Program`, which exits with 1 on a ParseError, and with
an `Exit`'s own code on an `Exit`. So the parser gets a ParseError that is also an Exit
(docs/adr/0003-invoke.md).
"""

from __future__ import annotations

import re
import shlex
import sys

from invoke.exceptions import Exit, ParseError
from invoke.parser import parser
from invoke.parser.context import ParserContext

from bootstrap.errors import UsageError
from bootstrap.tasks.exit_codes import EXIT_CODES


class WrongUsageError(ParseError, Exit):
    """A command line that the parser did not understand."""

    code = EXIT_CODES[UsageError]

    def __init__(self, text: str, context: ParserContext | None = None) -> None:
        from bootstrap.link.target import looks_like_unquoted_ssh

        quoted = looks_like_unquoted_ssh(sys.argv[1:])
        meant = _meant(text, context)
        hint = f"Put the ssh command in quotes: {quoted}" if quoted else f"{meant}{_HINT}"
        text = _ARGUMENT.sub(r"--\1", text)
        ParseError.__init__(self, text, context)
        self.text = f"{text}\n{hint}"
        self.message = None  # Invoke prints the ParseError itself

    def __str__(self) -> str:
        return self.text


_HINT = "See what there is: --list. What a task takes: TASK --help"
_UNKNOWN = re.compile(r"No idea what (['\"])(.*)\1 is!")
_ARGUMENT = re.compile(r"<Argument: ([\w-]+)[^>]*>")
"""How Invoke's parser prints one of its options."""
_WITH_COMMAND = ("exec", "run")
_NEAR = 0.7
"""Least similarity (0 to 1) for which a word is taken for a misspelt name."""


def _meant(text: str, context: ParserContext | None) -> str:
    """Return a sentence that suggests what an unknown word was meant to be; "" if unclear."""
    from bootstrap.text.nearest import nearest

    unknown = _UNKNOWN.fullmatch(text)
    if not unknown:
        return ""
    word = unknown[2]
    in_task = context is not None and context.name
    if context is not None and context.name in _WITH_COMMAND and not word.startswith("-"):
        rest = sys.argv[sys.argv.index(word) :] if word in sys.argv else []
        near = f"{context.name} -- {shlex.join(rest)}" if rest else ""
    elif word.startswith("-"):
        core = ("--list", "--help", "--version", "--dry")
        near = nearest(word, [*(context.flags if context else ()), *core], _NEAR)
    elif _looks_like_a_host(word):
        near = "" if in_task else f"setup --host {word}"
    else:
        from bootstrap.tasks import namespace

        near = nearest(word, namespace.task_names, _NEAR)
    host = context.flags.get("--host") if context and in_task else None
    if not near and not word.startswith("-") and host is not None and not host.got_value:
        near = f"--host {word}"
    return f"Did you mean {near}?\n" if near else ""


def _looks_like_a_host(word: str) -> bool:
    return "@" in word or re.fullmatch(r"[\d.]+(:\d+)?", word) is not None


def wrong_usage_exits_2() -> None:
    """Make Invoke's parser raise WrongUsageError."""
    parser.ParseError = WrongUsageError  # type: ignore[attr-defined,assignment]
