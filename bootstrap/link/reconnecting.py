"""A link that comes back by itself: logs in again, with growing pauses, when it was lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from bootstrap.cancel import CancelToken
from bootstrap.errors import HostKeyError, UnreachableError
from bootstrap.link.errors import LinkLost, LoginBroken, LoginRefused
from bootstrap.link.wire import Wire

_Answer = TypeVar("_Answer")

PAUSES_S = (0.5, 1, 2, 4, 8, 15)
"""Pauses between tries in seconds; the last one repeats."""
FIRST_PAUSES_S = (1, 3)
"""Pauses after a first login that broke off half-way, in seconds."""
FIRST_PATIENCE_S = 20.0
"""How long such logins are tried again, in seconds."""
PATIENCE_S = 3600.0
"""How long to try before giving up, in seconds. The box goes on all the while."""
REFUSED_PATIENCE_S = 120.0
"""How long a box that answers may refuse us, in seconds: after a restart its sshd is often up
before its keys are back in place. Longer would be knocking at a stranger's door."""


class Backoff:
    """Pauses between reconnects that bring nothing before the link is lost again, and their end.

    `ReconnectingLink.reconnect` waits where a login fails; where each login succeeds and what
    follows ends at once, this waits. Call `lost` before the link is taken up again.
    """

    def __init__(
        self, patience_s: float = PATIENCE_S, *, cancel: CancelToken | None = None
    ) -> None:
        self._patience = patience_s
        self._cancel = cancel or CancelToken()
        self._news = -1
        self._since = time.monotonic()
        self._tries = 0

    def lost(self, why: LinkLost, news: int) -> None:
        """Wait a while, longer each time, where `news` is what it was at the last loss.

        `news` counts what was read. Raises `why` once there was none for too long,
        CancelledError.
        """
        if news != self._news:
            self._news, self._since, self._tries = news, time.monotonic(), 0
            return
        if time.monotonic() - self._since > self._patience:
            raise why
        self._cancel.wait(PAUSES_S[min(self._tries, len(PAUSES_S) - 1)])
        self._tries += 1


class ReconnectingLink:
    """The wire that stands now, and how to get another."""

    def __init__(  # noqa: PLR0913 - each has its own name where it is called
        self,
        login: Callable[[], Wire],
        *,
        lost: Callable[[float], None],
        back: Callable[[], None],
        warn: Callable[[str], None],
        patience_s: float = PATIENCE_S,
        cancel: CancelToken | None = None,
    ) -> None:
        self._warn = warn
        self.cancel = cancel or CancelToken()
        """Ends the wire, and every wait for another, with CancelledError."""
        self.wire = self._first(login)
        self.label = self.wire.label
        self.on_reconnect: list[Callable[[], None]] = []
        """What else is to be done each time the link is back."""
        self._login = login
        self._lost = lost
        self._back = back
        self._patience = patience_s
        self.cancel.on_cancel(self._cut)

    def _cut(self) -> None:
        self.wire.close()

    def _first(self, login: Callable[[], Wire]) -> Wire:
        """The first login; one that breaks off half-way is tried again, since bad links do that."""
        began = time.monotonic()
        for pause in FIRST_PAUSES_S:
            try:
                return login()
            except LoginBroken as error:
                if time.monotonic() - began > FIRST_PATIENCE_S:
                    raise
                self._warn(f"{error.what} Trying again in {pause} s.")
                self.cancel.wait(pause)
        return login()

    def reconnect(self, why: LinkLost) -> None:
        """Log in again, and say once why that doesn't succeed.

        Raises, when patience ends, what stood in the way last; HostKeyError and CancelledError
        at once.
        """
        began = time.monotonic()
        refused_at: float | None = None
        reason: UnreachableError = why
        self.wire.close()
        tries = 0
        while True:
            self.cancel.check()
            waited = time.monotonic() - began
            self._lost(waited)
            try:
                self.wire = self._login()
                for action in self.on_reconnect:
                    action()
            except HostKeyError:
                raise
            except UnreachableError as error:
                if not isinstance(error, LinkLost) and error.what != reason.what:
                    reason = error
                    self._warn(f"the link can't be made yet: {error.what}")
                refused_at = _since(refused_at, error)
                if waited > self._patience or _too_long(refused_at):
                    raise reason from None
                self.cancel.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            self._back()
            return

    def ask(self, question: Callable[[Wire], _Answer]) -> _Answer:
        """The answer to `question`, which is asked anew on a new wire when the link was lost.

        Only for what may be asked twice. Raises what the question raises, and as `reconnect`.
        """
        while True:
            self.cancel.check()
            try:
                return question(self.wire)
            except LinkLost as lost:
                self.reconnect(lost)

    def close(self) -> None:
        """Close the wire that stands."""
        self.cancel.forget(self._cut)
        self.wire.close()


def _since(refused_at: float | None, error: UnreachableError) -> float | None:
    """Since when the box has refused us without a break; None where it doesn't."""
    if not isinstance(error, LoginRefused):
        return None
    return time.monotonic() if refused_at is None else refused_at


def _too_long(refused_at: float | None) -> bool:
    return refused_at is not None and time.monotonic() - refused_at > REFUSED_PATIENCE_S
