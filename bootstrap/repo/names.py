"""Decode, show and clean names that others chose: of files, repositories, hosts."""

import ast
import re
import unicodedata

LONGEST = 64

_QUOTED = r'"([ !#-\[\]-~]|\\([0-3][0-7]{2}|[abtnvfr"\\]))*"'

# Control, format (direction marks, joiners), surrogate, private, unassigned,
# and every space but the ordinary one: printed, none of them can be recognised.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})

IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""What some file systems ignore when they compare names."""
_GIT = re.compile(r"\.git[ .]*|git~[0-9]+", re.IGNORECASE)
"""git obeys a folder of that name, also as these file systems spell it."""


def is_gits(part: str) -> bool:
    """Whether git would take a folder of this name for its own, as any file system spells it."""
    return bool(_GIT.fullmatch(IGNORED.sub("", part)))


def decoded(name: bytes) -> str:
    """Decode a name as git prints it; bytes that aren't UTF-8 become surrogates."""
    return name.decode("utf-8", "surrogateescape")


def unquoted(name: str) -> str:
    """Undo git's quoting of a name (`core.quotePath`); other names are returned unchanged."""
    # It quotes as Python does.
    return decoded(ast.literal_eval(f"b{name}")) if re.fullmatch(_QUOTED, name) else name


def shown(name: str) -> str:
    r"""Return a name that is safe to print: on one line, with nothing that moves the cursor.

    What can't be shown becomes an escape: `caf\xe9`, `a\x1b[2J`, `x\u202ey`.
    """
    if name.isascii() and name.isprintable():
        return name
    return "".join(
        character
        if character == " " or unicodedata.category(character) not in _UNSHOWN
        else _escape(character)
        for character in name
    )


def slug(name: str) -> str:
    """Turn `name` into a folder name: letters, digits, `._-`, at most 64 characters. It never
    starts with a dot or a dash, so it is neither hidden nor an option."""
    spelled = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", spelled)
    return cleaned.lstrip(".-_")[:LONGEST].rstrip(".-") or "repo"


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that surrogateescape kept
        number -= 0xDC00
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
