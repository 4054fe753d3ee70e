"""Redact secrets in whatever leaves boxstrap: screens, logs, reports.

A secret is looked for as it is and as programs like to disguise it: base64 at
each of its three alignments, URL-quoted, JSON-quoted; of one that has several
lines (a key in PEM) each line that is long, too. Nothing else is known of it: a
secret that was encrypted or cut into pieces by the one who prints it is not
found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, quote_plus

SHORTEST = 6  # characters; a shorter value would redact half of any log
_SHORTEST_BASE64 = 8
_LONG_LINE = 10
"""Characters of a line that is redacted by itself: a shorter one may stand in any log."""


class TooShortError(ValueError):
    """A secret, by its name, that is too short to redact."""


class Redactor:
    """Redacts the values of `secrets` (name → value) as `[NAME hidden]`.

    Raises TooShortError for a value under `SHORTEST` characters, with its name alone.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self.secrets = dict(secrets)
        self._replacements: dict[bytes, bytes] = {}
        for name, given in secrets.items():
            value = given.strip()  # a newline at the end of a token isn't printed with it
            if len(value) < SHORTEST:
                raise TooShortError(name)
            for form in (*_forms(value), *_lines(value)):
                self._replacements.setdefault(form, f"[{name} hidden]".encode())
        # Longest first: where one form begins another, the whole of it goes.
        self.forms = sorted(self._replacements, key=lambda form: (-len(form), form))
        self.pattern = re.compile(b"|".join(map(re.escape, self.forms)) or b"(?!)")
        self._needles = _shortest(self.forms)

    def redact(self, data: bytes) -> bytes:
        """The data with every secret redacted."""
        return self.pattern.sub(self.replacement, data) if self.may_hold(data) else data

    def text(self, text: str) -> str:
        """The text with every secret redacted."""
        return self.redact(text.encode("utf-8", "surrogateescape")).decode(
            "utf-8", "surrogateescape"
        )

    def stream(self) -> RedactStream:
        """A redactor for data that arrives in pieces."""
        return RedactStream(self)

    def may_hold(self, data: bytes) -> bool:
        """Whether the data may hold a secret. Fast."""
        return any(needle in data for needle in self._needles)

    def replacement(self, found: re.Match[bytes]) -> bytes:
        """What replaces a secret."""
        return self._replacements[found[0]]

    def unfinished_at(self, data: bytes, start: int) -> int:
        """Where, from `start` on, a secret begins that the end of the data cuts off."""
        return min((_beginning_at(data, start, form) for form in self.forms), default=len(data))


class RedactStream:
    """Redacts secrets in a byte stream, also those that a piece's end cuts in two.

    Only what may be the beginning of a secret waits for the next piece, so a
    line normally passes at once. `flush` when the stream pauses or ends: it
    lets out what waits, redacting the secrets that are whole.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """The data so far that can no longer be part of a secret, redacted."""
        data, redactor = self._held + piece, self._redactor
        done: list[bytes] = []
        at = 0
        cut = redactor.unfinished_at(data, at)
        if redactor.may_hold(data):
            # A secret that begins before the cut is decided; it may reach over the cut.
            while (found := redactor.pattern.search(data, at)) and found.start() < cut:
                done += data[at : found.start()], redactor.replacement(found)
                at = found.end()
                if cut < at:
                    cut = redactor.unfinished_at(data, at)
        done.append(data[at:cut])
        self._held = data[cut:]
        return b"".join(done)

    def flush(self) -> bytes:
        """Return what was held back."""
        rest, self._held = self._redactor.redact(self._held), b""
        return rest


def _forms(value: str) -> Iterator[bytes]:
    raw = value.encode("utf-8", "surrogateescape")  # as the environment had it
    yield raw
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted.encode()
        yield re.sub("%..", lambda code: code[0].lower(), quoted).encode()
    yield json.dumps(value)[1:-1].encode()
    yield json.dumps(value, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw)
        yield encode(raw).rstrip(b"=")
        for before in range(3):
            yield from _aligned(encode(b"\0" * before + raw), before, len(raw))


def _lines(value: str) -> Iterator[bytes]:
    """The long lines of a value that has several, or has `\\n` in their place."""
    lines = [line.strip() for line in re.split(r"[\r\n]+|\\n", value)]
    for line in lines if len(lines) > 1 else []:
        if len(line) >= _LONG_LINE:
            yield line.encode("utf-8", "surrogateescape")
            yield json.dumps(line)[1:-1].encode()


def _aligned(encoded: bytes, before: int, size: int) -> Iterator[bytes]:
    """The characters that depend on the secret alone, with `before` bytes ahead of it."""
    first = -(-before * 8 // 6)
    core = encoded[first : (before + size) * 8 // 6]
    if len(core) >= _SHORTEST_BASE64:
        yield core


def _beginning_at(data: bytes, start: int, form: bytes) -> int:
    """Where the first proper beginning of `form` lies that the end of the data cuts off."""
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
    """The shortest forms; every other form contains one, so looking for these finds all."""
    kept: list[bytes] = []
    for form in sorted(forms, key=len):
        if not any(short in form for short in kept):
            kept.append(form)
    return kept
