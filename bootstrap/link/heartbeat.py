"""Notice a dead link within 12 s, on any system and behind any proxy.

After 4 s of silence the box is asked for an answer (a global request that it
doesn't know: a refusal is an answer too); after 12 s without a single byte the
transport is closed, and every read on it raises LinkLost. Asking blocks if a
full send buffer never drains, so it has its own thread. Any received byte counts
as a sign of life, otherwise slow uploads would look dead.
"""

from __future__ import annotations

import contextlib
import threading
import time

import paramiko

from bootstrap.link.transport import BoxTransport

ASK_AFTER = 4.0
DEAD_AFTER = 12.0
_TICK = 0.5


class Heartbeat:
    """Watches one transport until it closes."""

    def __init__(
        self, transport: BoxTransport, ask_after: float = ASK_AFTER, dead_after: float = DEAD_AFTER
    ) -> None:
        self._transport = transport
        self._ask_after = ask_after
        # Less than `dead_after`, so that even with late ticks it is noticed in time.
        self._dead_after = dead_after - 2 * _TICK
        self._stopped = threading.Event()
        self.died = False
        transport.heard_socket.heard = time.monotonic()
        threading.Thread(target=self._watch, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def _watch(self) -> None:
        asking: threading.Thread | None = None
        asked = tick = time.monotonic()
        while not self._stopped.wait(_TICK) and self._transport.is_active():
            now = time.monotonic()
            if now - tick > 4 * _TICK:
                # This program was stopped (Ctrl-Z, a frozen machine), so the silence says nothing
                # about the box. It is asked once more, and gets time to answer.
                heard = self._transport.heard_socket.heard
                self._transport.heard_socket.heard = max(heard, now - self._ask_after)
            tick = now
            silence = now - self._transport.heard_socket.heard
            if silence >= self._dead_after:
                self.died = True
                self._transport.close()
                return
            free = asking is None or not asking.is_alive()
            if silence >= self._ask_after and now - asked >= self._ask_after / 2 and free:
                asked = now
                asking = threading.Thread(target=self._ask, name="heartbeat-ask", daemon=True)
                asking.start()

    def _ask(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._transport.global_request("keepalive@openssh.com", wait=True)
