r"""A link that comes back and is lost again before it brought anything: not for ever, nor at once.

`ReconnectingLink\.reconnect` waits where a login fails. Where each login succeeds and
what follows ends at once, it would be asked again without a pause, for ever.
"""

from __future__ import annotations

import time

from bootstrap.link.errors import LinkLost
from bootstrap.link.reconnecting import PATIENCE_S, PAUSES_S


class Backoff:
    """Call `lost` before a link is taken up again."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience = patience_s
        self._news = -1
        self._since = time.monotonic()
        self._tries = 0

    def lost(self, why: LinkLost, news: int) -> None:
        """Wait a while, longer each time, where `news` is what it was at the last loss.

        `news` counts what was read. Raises `why` once there was none for too long.
        """
        if news != self._news:
            self._news, self._since, self._tries = news, time.monotonic(), 0
            return
        if time.monotonic() - self._since > self._patience:
            raise why
        time.sleep(PAUSES_S[min(self._tries, len(PAUSES_S) - 1)])
        self._tries += 1
