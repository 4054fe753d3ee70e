"""Ctrl-C, also where Python would drop it."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

_SOON_S = 0.1
"""Seconds in which Python is out of what it was tidying away."""


@contextlib.contextmanager
def interrupted_for_certain() -> Iterator[None]:
    """A Ctrl-C that Python drops, since it was tidying something away, is sent again."""
    before, waiting, main = sys.unraisablehook, [False], threading.get_ident()

    def send_again() -> None:
        time.sleep(_SOON_S)
        if waiting[0]:
            waiting[0] = False
            signal.pthread_kill(main, signal.SIGINT)

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            before(dropped)
        elif not waiting[0]:
            waiting[0] = True
            # Its beginning is not waited for: the signal would find this hook, and be dropped.
            _thread.start_new_thread(send_again, ())

    sys.unraisablehook = hook
    try:
        yield
    finally:
        waiting[0] = False
        sys.unraisablehook = before
