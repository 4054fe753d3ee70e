"""Words on what goes on, on standard error: the table alone is on standard output."""

from __future__ import annotations

import os
import sys
import time


def tell(text: str) -> None:
    """One line, with the time and the load of the machine."""
    print(f"{time.strftime('%H:%M:%S')}  load {load()}  {text}", file=sys.stderr, flush=True)


def load() -> str:
    """The load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"
