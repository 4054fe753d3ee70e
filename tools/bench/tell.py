"""Progress messages on standard error: standard output has only the table."""

from __future__ import annotations

import os
import sys
import time


def tell(text: str) -> None:
    """Print one line, with the time and the load of the machine."""
    print(f"{time.strftime('%H:%M:%S')}  load {load()}  {text}", file=sys.stderr, flush=True)


def load() -> str:
    """Return the load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"
