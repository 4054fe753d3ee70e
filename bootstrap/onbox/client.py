"""Whether the machine that started a setup may still send what a step waits for."""

from __future__ import annotations

import os
import time

from .processes import is_alive
from .run_folder import RunFolder, lines_of

SENDER_PATIENCE_S = 600
"""For how long a step waits once the process that takes what is sent is gone."""
CLIENT_PATIENCE_S = 120
"""The same after that machine itself is gone."""


class Client:
    """While it follows the setup, it writes another word into `client` every few seconds."""

    def __init__(self, setup: str) -> None:
        """`setup`: the setup's folder."""
        self._folder = RunFolder(setup)
        self._sender_at = self._client_at = time.monotonic()
        self._sign = ""

    def may_send(self, name: str, sender: str = "") -> bool:
        """Return whether it may; `sender`, usually `NAME.sender`, names the process that takes what
        it sends."""
        if not os.environ.get("CLIENT_SENDS") or self._folder.has(f"{name}.refused"):
            return False
        now, sign = time.monotonic(), self._folder.first("client")
        if sign != self._sign:
            self._sign, self._client_at = sign, now
        if is_alive("".join(lines_of(sender or f"{self._folder.path}/{name}.sender")[:1])):
            self._sender_at = now
        until = min(self._sender_at + SENDER_PATIENCE_S, self._client_at + CLIENT_PATIENCE_S)
        return now < until

    def brings(self, name: str, file: str = "") -> bool:
        """Wait for a file of the setup's folder, usually NAME itself; return whether it came. The
        link over which it comes may break and come back."""
        while not self._folder.has(file or name):
            if not self.may_send(name):
                return False
            time.sleep(0.1)
        return True
