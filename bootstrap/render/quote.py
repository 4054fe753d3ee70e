"""Quote values for shell, so that they arrive byte for byte and are never executed.

Everything is quoted by default: a template must ask explicitly to write a value
unquoted, and then it may consist of harmless characters only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Value = str | bool | int | Sequence[str] | Mapping[str, str]

_HARMLESS = re.compile(r"[A-Za-z0-9_./:@%+=, -]*")


def quote(value: Value) -> str:
    """Return `value` in a form that bash reads back unchanged.

    Text is single-quoted; a flag is `yes` or empty; a sequence is an array, and a
    mapping an associative one, to be declared (`declare -A`).

    Raises ValueError on a NUL, which no shell can hold.
    """
    if isinstance(value, bool):
        return "'yes'" if value else "''"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a NUL byte cannot be written into a shell script")
        return "'" + value.replace("'", "'\\''") + "'"
    if not value:
        return "()"
    if isinstance(value, Mapping):
        rows = (f"  [{quote(key)}]={quote(item)}\n" for key, item in value.items())
        return "(\n" + "".join(rows) + ")"
    return "(\n" + "".join(f"  {quote(item)}\n" for item in value) + ")"


def harmless(text: str) -> str:
    """Return `text` for a comment or a name: any special character becomes `?`."""
    return "".join(c if _HARMLESS.fullmatch(c) else "?" for c in text)


def assignments(values: dict[str, Value]) -> str:
    """Return lines of `name=value`, for the beginning of a query."""
    return "".join(f"{name}={quote(value)}\n" for name, value in values.items())
