"""Read `.env` strictly: refuse what programs read differently, and expand nothing."""

from __future__ import annotations

import re
from collections.abc import Collection

from bootstrap.errors import UsageError

_ASSIGNMENT = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>[^'"\n][^\n]*)?)
    (?:[ \t]+\#[^\n]*|[ \t]*)(?=\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_NOTHING = re.compile(r"[ \t]*(?:#[^\n]*)?(?=\n|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "$": "$", "\n": ""}
_FILLED_IN = re.compile(r"(?<!\\)(\$[({A-Za-z_]|`)")
_COMMENT = re.compile(r"[ \t]#")
_SPLIT = re.compile(r"[\s'\"\\]|^#")


def read_dotenv(text: str, wanted: Collection[str], where: str) -> dict[str, str]:
    """Return those values of `wanted` that the text of a `.env` has.

    Raises UsageError with the line number if a line isn't `NAME=VALUE`, or a wanted value is given
    twice or is one that programs read differently. No message contains a value.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    values: dict[str, str] = {}
    at, number = 0, 1
    while at < len(text):
        line = f"{where}:{number}"
        if not (found := _NOTHING.match(text, at)):
            found = _ASSIGNMENT.match(text, at)
            if not found:
                raise UsageError(
                    "this line is not NAME=VALUE.",
                    where=line,
                    hint="Put a value with a quote or a newline in quotes: NAME='…'",
                )
            if found["name"] in wanted:
                name = found["name"]
                if name in values:
                    raise UsageError(f"{name} is given twice.", where=line, hint="Keep one line.")
                values[name] = _value(found, line)
        number += found[0].count("\n") + 1
        at = found.end() + 1
    return values


def _value(found: re.Match[str], where: str) -> str:
    if found["single"] is not None:
        return found["single"]
    given = found["double"]
    if given is None:
        given = _COMMENT.split(found["bare"] or "", 1)[0].rstrip(" \t")
    if _FILLED_IN.search(given) or (found["double"] is None and _SPLIT.search(given)):
        raise UsageError(
            f"programs read the value of {found['name']} differently.",
            where=where,
            hint=f"In single quotes it is taken as it is: {found['name']}='…'",
        )
    if found["double"] is None:
        return given
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[0]), given)
