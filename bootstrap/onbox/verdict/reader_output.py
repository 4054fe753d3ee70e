"""How a reader reports: `[gpu, key]` before it reads, `[gpu, key, value]` after.

One JSON list a line, unbuffered, so that it survives a hang: the parent then
knows what was read last. `gpu` is null for readings of the box.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

Reading = Any


def emit(*line: Reading) -> None:
    """Write one line to the parent."""
    os.write(1, json.dumps(line).encode() + b"\n")


def emit_reading(gpu: int | None, key: str, read: Callable[[], Reading]) -> Reading:
    """Announce a reading, make it, report it, and return it."""
    emit(gpu, key)
    value = read()
    emit(gpu, key, value)
    return value
