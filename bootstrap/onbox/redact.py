"""Redact secrets in whatever leaves boxstrap: screens, logs, reports.

A secret is searched for as it is and in the forms that programs often print:
base64 at each of its three alignments, on one line or in lines of 76 or 64
characters, URL-quoted, JSON-quoted. Of a secret with several lines (a key in
PEM) each long line is searched for in the same forms. A secret that was
encrypted or cut into pieces before it was printed is not found.

A box runs this file too (`link/query.py` sends it), so it imports no other boxstrap module.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import os
import re
import select
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

_BYTES = ("utf-8", "surrogateescape")
"""As in the environment."""
SHORTEST = 6  # characters; a shorter value would redact half of any log
_SHORTEST_BASE64 = 8
_LONG_LINE = 10
"""Characters of a line that is redacted on its own: a shorter one may be in any log."""
_WRAPPED = (76, 64)
"""Characters in a line of base64, in MIME and in PEM."""
_RARE = 16
"""Characters of a word searched for instead of all forms, and of a last line of base64."""
_LONG_WORD = 16
_MANY = 8
"""From so many long words on, only the long words of the data are searched: a log has few."""
_IS_WORD = bytes(
    b"w"[0] if bytes([code]).isalnum() or code in b"+/=_-.%~\\" else b" "[0] for code in range(256)
)
_PATIENCE_S = 1.0


class TooShortError(ValueError):
    """A secret, by its name, that is too short to redact."""


class Redactor:
    """Redacts the values of `secrets` (name → value) as `[NAME hidden]`.

    `earlier` are more values by name; with `same_length` a replacement is as long as the secret.
    Raises TooShortError, with only the name, for a value under `SHORTEST` characters.
    """

    def __init__(
        self,
        secrets: Mapping[str, str],
        earlier: Iterable[tuple[str, str]] = (),
        *,
        same_length: bool = False,
    ) -> None:
        self.secrets = dict(secrets)
        self._same_length = same_length
        self._replacements: dict[bytes, bytes] = {}
        needles: list[bytes] = []
        for name, given in (*secrets.items(), *earlier):
            value = given.strip()  # a newline at the end of a token isn't printed with it
            if len(value) < SHORTEST:
                raise TooShortError(name)
            for text in (value, *_lines(value)):
                for forms in (_quoted(text), _encoded(text)):
                    needles += _needles(text, forms)
                    for form in forms:
                        self._replacements.setdefault(form, f"[{name} hidden]".encode())
        # Longest first: if a form is the beginning of another one, all of that is replaced.
        self.forms = sorted(self._replacements, key=lambda form: (-len(form), form))
        self.pattern = re.compile(b"|".join(map(re.escape, self.forms)) or b"(?!)")
        needles = _shortest(needles)
        self._words = [each for each in needles if len(each) >= _LONG_WORD and _is_word(each)]
        if len(self._words) < _MANY:
            self._words = []
        self._needles = [each for each in needles if each not in self._words]

    def redact(self, data: bytes) -> bytes:
        return self.pattern.sub(self.replacement, data) if self.may_hold(data) else data

    def text(self, text: str) -> str:
        return self.redact(text.encode(*_BYTES)).decode(*_BYTES)

    def stream(self) -> RedactStream:
        """Return a redactor for data that arrives in pieces."""
        return RedactStream(self)

    def may_hold(self, data: bytes) -> bool:
        """Whether the data may hold a secret. Fast."""
        if any(needle in data for needle in self._needles):
            return True
        words = _long_words(data) if self._words else b""
        return bool(words) and any(word in words for word in self._words)

    def replacement(self, found: re.Match[bytes]) -> bytes:
        shown, size = self._replacements[found[0]], len(found[0])
        if not self._same_length:
            return shown
        return shown[:-1].ljust(size - 1, b"*") + b"]" if len(shown) <= size else b"*" * size

    def unfinished_at(self, data: bytes, start: int) -> int:
        """Return where, from `start` on, a secret begins that the end of the data cuts off."""
        return min((_beginning_at(data, start, form) for form in self.forms), default=len(data))


class RedactStream:
    """Redacts secrets in a byte stream, also those that are split between two pieces.

    Only what may be the beginning of a secret is held back for the next piece, so
    a line normally passes immediately. Call `flush` when the stream pauses or ends:
    it returns what was held back, with whole secrets redacted.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return the data so far that can no longer be part of a secret, redacted."""
        data, redactor = self._held + piece, self._redactor
        done: list[bytes] = []
        at = 0
        cut = redactor.unfinished_at(data, at)
        if redactor.may_hold(data):
            # A match that begins before the cut is a whole secret; it may end after the cut.
            while (found := redactor.pattern.search(data, at)) and found.start() < cut:
                done += data[at : found.start()], redactor.replacement(found)
                at = found.end()
                if cut < at:
                    cut = redactor.unfinished_at(data, at)
        done.append(data[at:cut])
        self._held = data[cut:]
        return b"".join(done)

    @property
    def is_waiting(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def flush(self) -> bytes:
        """Return what was held back."""
        rest, self._held = self._redactor.redact(self._held), b""
        return rest


def _quoted(text: str) -> list[bytes]:
    """Return the text as it is, URL-quoted and JSON-quoted."""
    raw = text.encode(*_BYTES)
    urls = [found.encode() for found in (quote(raw, safe=""), quote(raw), quote_plus(raw))]
    lower = [re.sub(b"%..", lambda code: code[0].lower(), url) for url in urls]
    jsons = [
        json.dumps(text)[1:-1].encode(),
        json.dumps(text, ensure_ascii=False)[1:-1].encode(*_BYTES),
    ]
    slashed = [form.replace(b"/", b"\\/") for form in jsons]
    return [*dict.fromkeys((raw, *urls, *lower, *jsons, *slashed))]


def _encoded(text: str) -> list[bytes]:
    """Return the text in base64, alone and after other bytes."""
    raw = text.encode(*_BYTES)
    forms: list[bytes] = []
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw)
        forms += whole, whole.rstrip(b"=")
        for width in _WRAPPED if len(whole) > min(_WRAPPED) else ():
            forms += [whole[at : at + width] for at in range(0, len(whole) - _RARE, width)]
        for before in range(3):
            forms += _aligned(encode(b"\0" * before + raw), before, len(raw))
    return [*dict.fromkeys(forms)]


def _needles(text: str, forms: list[bytes]) -> list[bytes]:
    """Return what is searched for first: a long word that all forms have, else all forms."""
    words = re.findall(rb"[A-Za-z0-9_.~-]+", text.encode(*_BYTES))
    longest = max(words, key=len, default=b"")
    return [longest] if len(longest) >= _RARE and all(longest in form for form in forms) else forms


def _is_word(data: bytes) -> bool:
    return b" " not in data.translate(_IS_WORD)


def _long_words(data: bytes) -> bytes:
    """Return the long words of `data`, one per line; each step runs at memory speed."""
    words: list[bytes] = []
    shape, at = data.translate(_IS_WORD), 0
    while (at := shape.find(b"w" * _LONG_WORD, at)) >= 0:
        end = shape.find(b" ", at)
        words.append(data[at : end if end >= 0 else len(data)])
        at += len(words[-1])
    return b"\n".join(words)


def _lines(value: str) -> Iterator[str]:
    """Yield the long lines of a value that has several, also if they are divided by `\\n`."""
    lines = [line.strip() for line in re.split(r"[\r\n]+|\\n", value)]
    for line in lines if len(lines) > 1 else []:
        if len(line) >= _LONG_LINE:
            yield line


def _aligned(encoded: bytes, before: int, size: int) -> Iterator[bytes]:
    """Yield the characters that depend on the secret alone, with `before` bytes ahead of it."""
    first = -(-before * 8 // 6)
    core = encoded[first : (before + size) * 8 // 6]
    if len(core) >= _SHORTEST_BASE64:
        yield core


def _beginning_at(data: bytes, start: int, form: bytes) -> int:
    """Return where a beginning of `form` starts that the end of the data cuts off."""
    head, at = form[:4], max(start, len(data) - len(form) + 1)
    while (at := data.find(head, at)) >= 0:
        if form.startswith(data[at:]):
            return at
        at += 1
    for size in range(min(len(head) - 1, len(data) - start), 0, -1):
        if data.endswith(head[:size]):
            return len(data) - size
    return len(data)


def _shortest(forms: list[bytes]) -> list[bytes]:
    """Return the shortest forms; every other form contains one, so these are enough to search."""
    kept: list[bytes] = []
    for form in sorted(forms, key=len):
        if not any(short in form for short in kept):
            kept.append(form)
    return kept


def redactor_of_box(names: Collection[str], home: str, *, same_length: bool = False) -> Redactor:
    """Return a redactor for the values that these variables have on a box: those that it keeps or
    kept, and those that a run was started with."""
    files, values = [f"{home}/secrets", f"{home}/secrets.earlier"], []
    for run in glob.iglob(f"{glob.escape(home)}/runs/*/*/pid") if names else ():
        with contextlib.suppress(OSError), open(run, encoding="ascii") as processes:
            files += [f"/proc/{line.split(' ')[0]}/environ" for line in processes]
    for file in files:
        with contextlib.suppress(OSError), open(file, "rb") as held:
            pairs = [pair.decode(*_BYTES).partition("=") for pair in held.read().split(b"\0")]
            values += [(name, value) for name, _, value in pairs if name in names]
    values = [(name, value) for name, value in values if len(value.strip()) >= SHORTEST]
    return Redactor(dict(values), values, same_length=same_length)


def main() -> None:
    """Redact standard input: SKIP SAME_LENGTH NAMES BOX_HOME. The first SKIP bytes are dropped.

    What is held back is written after a second without input: a reader may count bytes.
    """
    at, same_length, names, home = sys.argv[1:]
    skip = int(at)
    stream = redactor_of_box(names.split(), home, same_length=bool(same_length)).stream()

    def put(data: bytes) -> None:
        nonlocal skip
        sys.stdout.buffer.write(data[skip:])
        sys.stdout.buffer.flush()
        skip = max(0, skip - len(data))

    while piece := os.read(0, 1024 * 1024):
        put(stream.feed(piece))
        if stream.is_waiting and not select.select([0], [], [], _PATIENCE_S)[0]:
            put(stream.flush())
    put(stream.flush())
