"""A link that comes back by itself: logs in again, with growing pauses, when it was lost."""

from __future__ import annotations

import time
from collections.abc import Callable

from bootstrap.errors import HostKeyError, UnreachableError
from bootstrap.link.errors import LinkLost
from bootstrap.link.wire import Wire

PAUSES_S = (0.5, 1, 2, 4, 8, 15)
"""Pauses between tries in seconds; the last one repeats."""
PATIENCE_S = 3600.0
"""How long to try before giving up, in seconds. The box goes on all the while."""


class SteadyLink:
    """The wire that stands now, and how to get another."""

    def __init__(
        self,
        login: Callable[[], Wire],
        *,
        lost: Callable[[float], None],
        back: Callable[[], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.wire = login()
        self.label = self.wire.label
        self.then: list[Callable[[], None]] = []
        """What else is to be done each time the link is back."""
        self._login = login
        self._lost = lost
        self._back = back
        self._patience = patience_s

    def again(self, why: LinkLost) -> None:
        """Log in again. Raises `why` when patience ends; HostKeyError at once."""
        began = time.monotonic()
        self.wire.close()
        tries = 0
        while True:
            waited = time.monotonic() - began
            if waited > self._patience:
                raise why
            self._lost(waited)
            try:
                self.wire = self._login()
                for action in self.then:
                    action()
            except HostKeyError:
                raise
            except UnreachableError:
                time.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            self._back()
            return

    def close(self) -> None:
        """Close the wire that stands."""
        self.wire.close()
