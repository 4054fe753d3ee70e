"""Wrong usage is exit 2, in `inv` as in `boxstrap`: Invoke's own parser errors say 1.

Both programs run Invoke's `Program`, which prints a ParseError and leaves with
1, but leaves with an `Exit`'s own code. So the parser is given a ParseError
that is an Exit as well (docs/adr/0003-invoke.md).
"""

from __future__ import annotations

import sys

from invoke.exceptions import Exit, ParseError
from invoke.parser import parser
from invoke.parser.context import ParserContext

from bootstrap.errors import UsageError


class WrongUsageError(ParseError, Exit):
    """What the parser did not understand."""

    code = UsageError.code

    def __init__(self, text: str, context: ParserContext | None = None) -> None:
        from bootstrap.link.target import looks_like_unquoted_ssh

        quoted = looks_like_unquoted_ssh(sys.argv[1:])
        hint = f"Put the ssh command in quotes: {quoted}" if quoted else _HINT
        ParseError.__init__(self, text, context)
        self.text = f"{text}\n{hint}"
        self.message = None  # Invoke prints the ParseError itself

    def __str__(self) -> str:
        return self.text


_HINT = "See what there is: --list. What a task takes: TASK --help"


def wrong_usage_exits_2() -> None:
    """Make the parser raise it."""
    parser.ParseError = WrongUsageError  # type: ignore[attr-defined,assignment]
