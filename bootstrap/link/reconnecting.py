"""A link that logs in again on its own after it was lost, with growing pauses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from bootstrap.cancel import CancelToken
from bootstrap.errors import HostKeyError, UnreachableError
from bootstrap.link.wire import LinkLost, LoginBroken, LoginRefused, Wire

_Answer = TypeVar("_Answer")

PAUSES_S = (0.5, 1, 2, 4, 8, 15)
"""Pauses between tries in seconds; the last one repeats."""
FIRST_PAUSES_S = (1, 3)
"""Pauses after a first login that broke off half-way, in seconds."""
FIRST_PATIENCE_S = 20.0
"""How long such a login is retried, in seconds."""
PATIENCE_S = 3600.0
"""How long to try before giving up, in seconds. The box continues in the meantime."""
REFUSED_PATIENCE_S = 120.0
"""How long a box that answers may refuse our keys, in seconds: after a restart sshd is often up
before the keys are back in place. After that, the box is likely someone else's."""


class Backoff:
    """Growing pauses, with a limit, for a link that is lost repeatedly before anything was read.

    `ReconnectingLink.reconnect` waits when a login fails; this waits when each login succeeds but
    the link is lost right after it. Call `lost` before each reconnect.
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
        """Wait, longer each time, if `news` has not changed since the last loss.

        `news` counts what was read. Raises `why` if it did not change for too long,
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
    """The current wire, and how to get a new one."""

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
        """Closes the wire, and ends every wait for a new one with CancelledError."""
        self.wire = self._first(login)
        self.label = self.wire.label
        self.on_reconnect: list[Callable[[], None]] = []
        """Called each time the link is back."""
        self._login = login
        self._lost = lost
        self._back = back
        self._patience = patience_s
        self.cancel.on_cancel(self._cut)

    def _cut(self) -> None:
        self.wire.close()

    def _first(self, login: Callable[[], Wire]) -> Wire:
        """Log in for the first time; a login that breaks off, as on bad links, is retried."""
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
        """Log in again, retrying until it works; each new reason for a failure is reported.

        Raises the last such reason when patience ends; HostKeyError and CancelledError
        immediately.
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
        """Return the answer to `question`, asked again on a new wire if the link was lost.

        Only for questions that may be asked twice. Raises what they raise, and as `reconnect`.
        """
        while True:
            self.cancel.check()
            try:
                return question(self.wire)
            except LinkLost as lost:
                self.reconnect(lost)

    def close(self) -> None:
        """Close the current wire."""
        self.cancel.forget(self._cut)
        self.wire.close()


def _since(refused_at: float | None, error: UnreachableError) -> float | None:
    """Return since when every login has been refused; None if the last one was not."""
    if not isinstance(error, LoginRefused):
        return None
    return time.monotonic() if refused_at is None else refused_at


def _too_long(refused_at: float | None) -> bool:
    return refused_at is not None and time.monotonic() - refused_at > REFUSED_PATIENCE_S
