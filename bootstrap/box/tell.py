"""How a reader tells what it read: `[gpu, key]` before it asks, `[gpu, key, value]` after.

One JSON list a line, unbuffered, so that it outlives a hang: whoever reads the
lines knows what was asked last. `gpu` is null for what belongs to the box.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

Reading = Any


def say(*line: Reading) -> None:
    """One line to the parent."""
    os.write(1, json.dumps(line).encode() + b"\n")


def tell(key: str, read: Callable[[], Reading]) -> None:
    """One reading of the box: said before it is asked for, and after."""
    say(None, key)
    say(None, key, read())
