"""Frames: the messages of both sides of a transfer, over any byte stream.

A frame is the lengths of its header and its body, four bytes each, followed by both. The header is
a JSON object; a frame without one continues the file of the frame before it. File names are UTF-8
with surrogate escapes, so that every name a disk can hold is text here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

BLOCK = 256 * 1024  # most bytes of a file in one frame; a smaller file is one frame
LONGEST_HEADER = 8 * 1024 * 1024
LENGTHS = struct.Struct(">II")


class BadFrame(Exception):  # noqa: N818 - said of a frame, not of us
    """The received bytes are no frame."""


def pack_frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Encode a frame."""
    head = json.dumps(header, separators=(",", ":")).encode() if header else b""
    return LENGTHS.pack(len(head), len(body)) + head + body


def read_frame(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Return the next frame; None if the stream ends, even within a frame.

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
    return header, body


def encoded_name(name: str) -> bytes:
    """Return a file's name as it is on the disk."""
    return name.encode("utf-8", "surrogateescape")


def decoded_name(name: bytes) -> str:
    """Return a file's name as it is in frames."""
    return name.decode("utf-8", "surrogateescape")
