"""The end of a file on the box."""

from __future__ import annotations

from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import build_query


def file_tail(wire: Wire, file: str, workdir: str, most: int) -> bytes:
    """The last `most` bytes of a file below boxstrap's folder; empty where there is none.

    Raises LinkLost, NoAnswer.
    """
    return exchange(wire, build_query("tail", workdir=workdir, file=file, bytes=most), timeout=60)
