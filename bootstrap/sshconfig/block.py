"""The lines with which the user's ssh config includes ours. Pure; in bytes, to keep the rest.

They are at the very top, because an `Include` after a `Host` or `Match` applies
only to that host or match (ssh_config(5)).
"""

from __future__ import annotations

import re

_BOM = b"\xef\xbb\xbf"
_WORDS = b"# The boxes of boxstrap. To take this out: boxstrap ssh-config --remove"
_MADE = b" (which removes this file too, if nothing else is in it)"


def with_block(data: bytes, include: str, *, is_new: bool = False) -> bytes:
    """Return the file with our lines at its top; unchanged if it has them already.

    `is_new`: there was no such file. Line ends are those of its first line; a
    byte order mark stays first.
    """
    if has_block(data, include):
        return data
    end = b"\r\n" if re.match(rb"[^\n]*\r\n", data) else b"\n"
    made = _MADE if is_new else b""
    block = end.join([_WORDS + made, b"Include " + include.encode(), b"", b""])
    mark = _BOM if data.startswith(_BOM) else b""
    return mark + block + data[len(mark) :]


def without_block(data: bytes, include: str) -> bytes | None:
    """Return the file without our lines; None if we created it and nothing else is in it."""
    found = _pattern(include).search(data)
    if not found:
        return data
    rest = data[: found.start()] + data[found.end() :]
    return None if found["made"] and not rest else rest


def has_block(data: bytes, include: str) -> bool:
    """Whether the file includes our file."""
    return _pattern(include).search(data) is not None


def _pattern(include: str) -> re.Pattern[bytes]:
    """Match our lines, wherever they were moved; the comment and empty line may be missing."""
    words = rb"(?:" + re.escape(_WORDS) + rb"(?P<made>" + re.escape(_MADE) + rb")?\r?\n)?"
    line = rb"[ \t]*Include[ \t]+" + re.escape(include.encode()) + rb"[ \t]*(?:\r?\n|\Z)"
    return re.compile(rb"(?:^|(?<=\xef\xbb\xbf))" + words + line + rb"(?:\r?\n)?", re.MULTILINE)
