"""Make Ctrl-C work, also when Python drops it."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

_SOON_S = 0.1
"""Seconds after which Python has left the cleanup in which it dropped the Ctrl-C."""


@contextlib.contextmanager
def resend_dropped_interrupts() -> Iterator[None]:
    """Send a Ctrl-C again if Python drops it: it does so in cleanup, such as `__del__`."""
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
            # Thread.start() would wait here, and a signal inside this hook would be dropped too.
            _thread.start_new_thread(send_again, ())

    sys.unraisablehook = hook
    try:
        yield
    finally:
        waiting[0] = False
        sys.unraisablehook = before
