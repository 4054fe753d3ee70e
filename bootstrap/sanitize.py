"""Remove from a box's text what could control the user's terminal.

Removed: escape sequences (CSI, OSC, DCS, APC, PM, SOS and the short ones),
all other C0 and C1 controls but newline and tab, DEL, bidirectional controls
and the Unicode line separators. Invalid UTF-8 becomes U+FFFD. What remains can
be printed as it is.

The grammar is local: each introducer starts a new sequence and a sequence has
a maximum length, so cost and memory are bounded, and the result does not depend
on the pieces in which a text arrives. What a box writes beyond that length is
shown as text.
"""

import codecs
import re

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
