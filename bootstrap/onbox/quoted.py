"""Words as bash's `printf %q` writes them: stamps of steps hold them, and bash reads them back."""

from __future__ import annotations

import os
import re

_SPECIAL = re.compile(rb"""[] !"$&'()*,;<>?\[\\^`{|}]|^#|(?<![^:=])~""")
_UNPRINTABLE = re.compile(rb"[^ -~]")
_ESCAPED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\E"}


def quoted(*words: str) -> str:
    """Return them so that no two lists look alike, each followed by a blank."""
    return "".join(f"{_quoted(os.fsencode(word))} " for word in words)


def _quoted(word: bytes) -> str:
    if _UNPRINTABLE.search(word):
        return f"$'{''.join(map(_escaped, word))}'"
    return _SPECIAL.sub(rb"\\\g<0>", word).decode("ascii") or "''"


def _escaped(byte: int) -> str:
    if chr(byte) in "\\'":
        return f"\\{chr(byte)}"
    return chr(byte) if 32 <= byte < 127 else _ESCAPED.get(byte, f"\\{byte:03o}")
