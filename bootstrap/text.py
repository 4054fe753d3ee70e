"""Texts: what a box says without what could control the terminal, and numbers as people read them.

Removed: escape sequences (CSI, OSC, DCS, APC, PM, SOS and the short ones),
all other C0 and C1 controls but newline and tab, DEL, bidirectional controls
and the Unicode line separators. Invalid UTF-8 becomes U+FFFD. What remains can
be printed as it is.

The grammar is local: each introducer starts a new sequence and a sequence has
a maximum length, so cost and memory are bounded, and the result does not depend
on the pieces in which a text arrives. What a box writes beyond that length is
shown as text.

Bytes are decimal (1 MB = 1,000,000 bytes), as disks and links are sold and as
transfer tools show them; a GPU's memory is GiB everywhere and isn't printed here.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

_MAX_PARAMETERS = 64
_MAX_STRING = 4096  # the payload of a title, a link, a picture

_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SEPARATORS = r"\u2028\u2029"
_STRING_C1 = r"\x90\x98\x9d-\x9f"  # DCS, SOS, OSC, PM, APC

_PARAMETERS = rf"[0-?]{{0,{_MAX_PARAMETERS}}}[ -/]{{0,8}}"
_PAYLOAD = rf"[^\x00-\x1f\x7f-\x9f]{{0,{_MAX_STRING}}}"
_SHORT = r"[ -/]{0,8}"
_COLOUR = r"\[[0-9;]{0,32}m"


def _sequences(*, on_terminal: bool) -> re.Pattern[str]:
    """Match sequences; one character class comes first, to skip clean text quickly."""
    spare = rf"(?!{_COLOUR})" if on_terminal else ""
    after_esc = rf"\[{_PARAMETERS}[@-~]?|[\]PX^_]{_PAYLOAD}|{_SHORT}[0-~]?"
    return re.compile(
        rf"[\x1b\x9b{_STRING_C1}]"
        rf"(?:(?<=\x1b){spare}(?:{after_esc})"
        rf"|(?<=\x9b){_PARAMETERS}[@-~]?"
        rf"|(?<=[{_STRING_C1}]){_PAYLOAD})"
    )


def _lone(*, on_terminal: bool) -> re.Pattern[str]:
    """Match single controls; after `_sequences`, ESC is only in kept colours."""
    kept = r"\t\n\r\x1b" if on_terminal else r"\t\n\x1b"
    codes = "".join(chr(code) for code in [*range(32), *range(0x7F, 0xA0)])
    return re.compile(f"[{re.escape(re.sub(f'[{kept}]', '', codes))}{_BIDI}{_SEPARATORS}]+")


_SEQUENCES = _sequences(on_terminal=False)
_LONE = _lone(on_terminal=False)
_SURROGATE = re.compile("[\ud800-\udfff]")

# At the end of a piece: a sequence that the next piece may continue.
_UNFINISHED = re.compile(
    rf"[\r\x1b\x9b{_STRING_C1}]"
    rf"(?:(?<=\r)|(?<=\x1b)(?:\[{_PARAMETERS}|[\]PX^_]{_PAYLOAD}|{_SHORT})"
    rf"|(?<=\x9b){_PARAMETERS}|(?<=[{_STRING_C1}]){_PAYLOAD})\Z"
)
_LONGEST = _MAX_STRING + 2

# Bytes that send a piece down the slow path, in ASCII and in UTF-8.
_BAD = bytes(byte for byte in range(32) if byte not in b"\n\t\r") + b"\x7f"
_BAD_WIDE = rb"\xc2[\x80-\x9f]|\xd8\x9c|\xe2(?:\x80[\x8e\x8f\xa8-\xae]|\x81[\xa6-\xa9])"


def sanitize(text: bytes | str) -> str:
    """Return the text without anything that a terminal would obey.

    Newlines are kept. A carriage return starts a new line, as it would on a screen.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    elif _SURROGATE.search(text):
        text = _SURROGATE.sub("\ufffd", text)
    return _LONE.sub("", _SEQUENCES.sub("", _without_returns(text)))


def one_line(text: bytes | str) -> str:
    """Return the text sanitized, as one line: what a box says in one never becomes several."""
    return sanitize(text).replace("\n", " ")


def _without_returns(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class SanitizeStream:
    """`sanitize` for a log that arrives in pieces: bytes in, bytes out.

    For a terminal, carriage returns, which draw progress bars, are kept (else they become
    newlines), and `ESC [ … m` of digits and semicolons, but nothing else that begins with ESC.
    """

    def __init__(self, *, on_terminal: bool = False) -> None:
        self._on_terminal = on_terminal
        self._sequences = _sequences(on_terminal=on_terminal)
        self._lone = _lone(on_terminal=on_terminal)
        self._coloured = False
        self._held = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> bytes:
        """Return the clean part of the data so far; an unfinished sequence is held back."""
        if self._is_clean(piece):
            return piece
        return self._slowly(piece, end=False)

    def finish(self) -> bytes:
        """Return what was still held back; colours that were left on are switched off."""
        rest = self._slowly(b"", end=True)
        return rest + b"\x1b[0m" if self._coloured else rest

    def _is_clean(self, piece: bytes) -> bool:
        # Each test runs at memory speed; a regular expression over the whole piece would not.
        if self._held or self._decoder.getstate()[0]:
            return False
        if len(piece.translate(None, _BAD)) != len(piece):
            return False
        if not self._on_terminal and b"\r" in piece:
            return False
        if piece.isascii():
            return True
        try:
            piece.decode()
        except UnicodeDecodeError:
            return False
        return not re.search(_BAD_WIDE, piece)

    def _slowly(self, piece: bytes, *, end: bool) -> bytes:
        text = self._held + self._decoder.decode(piece, final=end)
        self._held = ""
        if not end:
            cut = self._unfinished_at(text)
            text, self._held = text[:cut], text[cut:]
        return self._scrub(text).encode()

    def _unfinished_at(self, text: str) -> int:
        if self._on_terminal and text.endswith("\r"):
            return len(text)
        tail = _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        return tail.start() if tail else len(text)

    def _scrub(self, text: str) -> str:
        if not self._on_terminal:
            text = _without_returns(text)
        text = self._lone.sub("", self._sequences.sub("", text))
        if self._on_terminal and (last := text.rfind("\x1b")) >= 0:
            self._coloured = not text.startswith(("\x1b[m", "\x1b[0m"), last)
        return text


# -- numbers

LATEST = 1 << 35  # seconds since 1970 in a year that every calendar has
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"([0-9]{1,9})([smhd])")
_TYPED = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kMGTP]?)B?", re.IGNORECASE)


def size(count: float) -> str:
    """Bytes: `812 B`, `4.2 kB`, `38 MB`, `1.3 GB`."""
    value, unit = max(0.0, float(count)), 0
    # 999.5 would be rounded to 1000 of the smaller unit.
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 1 if unit and value < 9.95 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def bytes_of(text: str) -> int | None:
    """Parse a size as a user types it, `50G` or `1.5 TB`; None if it is not one."""
    typed = _TYPED.fullmatch(text.strip())
    if not typed:
        return None
    return int(float(typed[1]) * 1000 ** "_kmgtp".index(typed[2].lower() or "_"))


def size_of(done: float, total: float) -> str:
    """How much of how much, in the total's unit: `12 of 38 MB`, `0.4 of 1.3 GB`."""
    value, unit = size(total).split()
    scaled = done / 1000 ** _UNITS.index(unit)
    digits = 1 if "." in value else 0
    return f"{scaled:.{digits}f} of {value} {unit}"


def speed(count: float) -> str:
    """Bytes per second: `12 MB/s`."""
    return f"{size(count)}/s"


_LEAST_TIMED = 1_000_000  # of fewer bytes the time says nothing about the link


def transferred(count: int, seconds: float) -> str:
    """Bytes that were sent or fetched: `120 MB in 3.0 s (40 MB/s)`, `7 B in 0.1 s`."""
    took = f"{size(count)} in {duration(seconds)}"
    return f"{took} ({speed(count / max(seconds, 0.001))})" if count >= _LEAST_TIMED else took


def rate(count: float) -> str:
    """Things per second: `1,200/s`, `4.2/s`."""
    return f"{count:.1f}/s" if count < 9.95 else f"{grouped_number(count)}/s"


def grouped_number(count: float) -> str:
    """A count: `12,345`."""
    return f"{count:,.0f}"


def file_count(count: int) -> str:
    """`1 file`, `12 files`."""
    return f"{grouped_number(count)} file{'' if count == 1 else 's'}"


def first_of(rows: Sequence[str], most: int) -> list[str]:
    """The first of many rows, and one that says how many more there are."""
    more = len(rows) - most
    return [*rows[:most], *([f"and {grouped_number(more)} more"] if more > 0 else [])]


def duration(seconds: float) -> str:
    """Seconds: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def seconds_of(text: str) -> int | None:
    """Parse a time as a user types it, `30m` or `2h`; None if it is not one."""
    typed = _TIME.fullmatch(text)
    return int(typed[1]) * _SECONDS[typed[2]] if typed else None


def dollars(amount: float) -> str:
    """US dollars: `$0.0042` under a cent, else `$0.12`, `$1,234.50`."""
    if abs(amount) < 0.00005:
        return "$0.00"
    return f"${amount:.4f}" if abs(amount) < 0.00995 else f"${amount:,.2f}"


def took_in_words(seconds: float, price: float | None) -> str:
    """How long something took, and what that cost: `3 h 10 min, $1.58`."""
    return ", ".join(filter(None, (duration(seconds), spent_in_words(seconds, price))))


def spent(seconds: float | None, price: float | None) -> float | None:
    """Return the cost in US dollars of a time at a price per hour; None if either isn't known."""
    return None if seconds is None or not price else round(seconds / 3600 * price, 4)


def spent_in_words(seconds: float | None, price: float | None) -> str:
    """Return `spent` as people read it; "" if it isn't known."""
    amount = spent(seconds, price)
    return "" if amount is None else dollars(amount)
