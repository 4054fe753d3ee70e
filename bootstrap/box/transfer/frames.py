"""Frames: what both sides of a transfer say, over any stream of bytes.

A frame is the lengths of its header and its body, four bytes each, and then both. The header is
a JSON object; a frame without one goes on with the file of the frame before it. Names of files
are UTF-8 with surrogate escapes, so that each name that a disk can hold is text here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

BLOCK = 256 * 1024  # bytes of a file in one frame, at the most; a smaller file is one frame
LONGEST_HEADER = 8 * 1024 * 1024
LENGTHS = struct.Struct(">II")


class BadFrame(Exception):  # noqa: N818 - said of a frame, not of us
    """What came is no frame."""


def pack_frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A frame as it travels."""
    head = json.dumps(header, separators=(",", ":")).encode() if header else b""
    return LENGTHS.pack(len(head), len(body)) + head + body


def read_frame(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None where the stream ends, within a frame too.

    `read` gives exactly as many bytes as asked for, fewer only at the end. Raises BadFrame.
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
    """A file's name as the disk has it."""
    return name.encode("utf-8", "surrogateescape")


def decoded_name(name: bytes) -> str:
    """A file's name as frames have it."""
    return name.decode("utf-8", "surrogateescape")
