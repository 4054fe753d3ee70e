"""Frames: the messages of both sides of a transfer, over any byte stream.

A frame is the lengths of its header and its body, four bytes each, followed by both. The header is
a JSON object; a frame without one continues the file of the frame before it. Several small ones go
as one, whose header has `frames`: the header of each, and the length of its part of the body. File
names are UTF-8 with surrogate escapes, so that every name a disk can hold is text here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, List, Tuple  # noqa: UP035 - an alias, which 3.8 has by these names alone

BLOCK = 256 * 1024  # most bytes of a file in one frame; a smaller file is one frame
AT_ONCE = 250  # files in a header
LONGEST_HEADER = 8 * 1024 * 1024
LENGTHS = struct.Struct(">II")
Frames = List[Tuple[Any, bytes]]  # noqa: UP006 - as above
_encode = json.JSONEncoder(separators=(",", ":")).encode


class BadFrame(Exception):  # noqa: N818 - said of a frame, not of us
    """The received bytes are no frame."""


class Bundle:
    """Frames that are sent as one: alone, each would cost more than a small file does."""

    def __init__(self) -> None:
        self.size = 0
        self._heads: list[str] = []
        self._bodies: list[bytes] = []

    def has_room(self, body: bytes) -> bool:
        """Return whether a frame with this body can be added."""
        return not self.size or self.size + len(body) <= BLOCK

    def add(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        self._heads.append(_encode(header) if header else "")
        self._bodies.append(body)
        self.size += len(self._heads[-1]) + len(body) + LENGTHS.size

    def take(self) -> bytes:
        """Return what was added, encoded, and begin anew."""
        heads, body = self._heads, b"".join(self._bodies)
        if len(heads) > 1:
            pairs = zip(heads, self._bodies)  # noqa: B905 - 3.8 knows no strict
            rows = ",".join(f"[{head or '{}'},{len(own)}]" for head, own in pairs)
            heads = [f'{{"frames":[{rows}]}}']
        head = "".join(heads).encode()
        is_any, self.size, self._heads, self._bodies = self.size, 0, [], []
        return LENGTHS.pack(len(head), len(body)) + head + body if is_any else b""


def read_frames(read: Callable[[int], bytes]) -> Frames | None:
    """Return the next frames; None if the stream ends, even within a frame.

    `read` returns exactly as many bytes as requested, fewer only at the end. Raises BadFrame.
    """
    lengths = read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    head_size, body_size = LENGTHS.unpack(lengths)
    if head_size > LONGEST_HEADER or body_size > BLOCK:
        raise BadFrame("a frame of an impossible length")
    head = read(head_size)
    body = read(body_size)
    if len(head) < head_size or len(body) < body_size:
        return None
    try:
        header = json.loads(head) if head else {}
    except (ValueError, RecursionError):
        raise BadFrame("a header that is no JSON") from None
    if not isinstance(header, dict):
        raise BadFrame("a header that is no object")
    if "frames" not in header:
        return [(header, body)]
    found, at = [], 0
    try:
        for own, size in header["frames"]:
            found.append((own, body[at : at + size]))
            at += size if size >= 0 else len(body) + 1  # else one part could be taken for ever
    except (TypeError, ValueError):
        raise BadFrame("a list of frames that is none") from None
    if at != len(body) or not all(isinstance(own, dict) for own, _ in found):
        raise BadFrame("frames that are not what is sent of them")
    return found


def encoded_name(name: str) -> bytes:
    """Return a file's name as it is on the disk."""
    return name.encode("utf-8", "surrogateescape")


def decoded_name(name: bytes) -> str:
    """Return a file's name as it is in frames."""
    return name.decode("utf-8", "surrogateescape")
