"""A login made in the background, and made again, with growing pauses, after it was lost."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from bootstrap.errors import HostKeyError, UnreachableError
from bootstrap.link.cancel import CancelToken
from bootstrap.link.wire import LinkLost, LoginBroken, LoginRefused, NotNow, Wire

_Answer = TypeVar("_Answer")

PAUSES_S = (0.5, 1, 2, 4, 8, 15)  # pauses between tries in seconds; the last one repeats
FIRST_PAUSES_S = (1, 3)  # pauses after a first login that broke off half-way, in seconds
FIRST_PATIENCE_S = 20.0  # how long such a login is retried, in seconds
NOT_NOW_PAUSES_S = (1, 2, 2, 3, 4, 5)
"""Pauses where the server takes no more for the moment: it hangs up at once, so more fit in."""
PATIENCE_S = 3600.0
"""How long to try before giving up, in seconds. The box continues in the meantime."""
ENDED_PATIENCE_S = 60.0
"""How long an account may say that a box is stopped or gone, in seconds: it may be restarting."""
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
        """Wait, longer each time, if `news`, a count of what was read, has not changed since the
        last loss. Raises `why` if it didn't for too long, CancelledError."""
        if news != self._news:
            self._news, self._since, self._tries = news, time.monotonic(), 0
            return
        if time.monotonic() - self._since > self._patience:
            raise why
        self._cancel.wait(PAUSES_S[min(self._tries, len(PAUSES_S) - 1)])
        self._tries += 1


class DeferredLogin:
    """A login that is made in the background, once; its error is raised each time.

    `then` is called with it there, before the login counts as over.
    """

    def __init__(
        self, login: Callable[[], Wire], then: Callable[[Wire], object] | None = None
    ) -> None:
        self._login, self._then = login, then
        self._wire: Wire | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_made = threading.Event()
        self._closed = False

    @property
    def is_over(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def alive(self) -> bool:
        return self._wire is not None and self._wire.alive()

    def begin(self) -> None:
        """Start to log in, unless that was done."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="login", daemon=True)
                self._thread.start()

    def join(self) -> None:
        """Wait until `then` has ended too."""
        if self._thread is not None:
            self._thread.join()

    def first(self, cancel: CancelToken) -> Wire:
        """Wait for the login and return it. Raises what it raised, and CancelledError."""
        self.begin()
        cancel.on_cancel(self._is_made.set)
        self._is_made.wait()
        cancel.forget(self._is_made.set)
        cancel.check()
        if self._error is not None:
            raise self._error
        assert self._wire is not None  # noqa: S101 - one of the two is there
        return self._wire

    def wire(self, *, has_answered: bool) -> Wire:
        """Return the login, made beside another one, over which the box `has_answered` or not.

        As `first`, but LinkLost, which is tried again where the link is asked, if it broke off, or
        if a box that has answered is out of reach now.
        """
        try:
            return self.first(CancelToken())
        except UnreachableError as error:
            is_away = has_answered and not isinstance(error, LoginRefused)
            if not is_away and not isinstance(error, LoginBroken):
                raise
            raise LinkLost(error.where, error.what) from None

    def close(self) -> None:
        """Log out, now or as soon as the login is made."""
        self._closed = True
        if self._wire is not None:
            self._wire.close()

    def _run(self) -> None:
        try:
            self._wire = self._login()
        except BaseException as error:
            self._error = error
        finally:
            self._is_made.set()
        if self._wire is not None and self._closed:
            self._wire.close()
        elif self._wire is not None and self._then is not None:
            self._then(self._wire)


class ReconnectingLink:
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
        self.on_reconnect: list[Callable[[], None]] = []  # called each time the link is back
        self._login = login
        self._lost = lost
        self._back = back
        self._patience = patience_s
        self.cancel.on_cancel(self._cut)

    def _cut(self) -> None:
        self.wire.close()

    def _first(self, login: Callable[[], Wire]) -> Wire:
        """Log in for the first time; a login that breaks off, as on bad links, is retried."""
        began, tries = time.monotonic(), 0
        while True:
            try:
                return login()
            except LoginBroken as error:
                pauses = NOT_NOW_PAUSES_S if isinstance(error, NotNow) else FIRST_PAUSES_S
                if tries == len(pauses) or time.monotonic() - began > FIRST_PATIENCE_S:
                    raise
                self._warn(f"{error.what} Trying again in {pauses[tries]} s.")
                self.cancel.wait(pauses[tries])
                tries += 1

    def reconnect(self, why: LinkLost) -> None:
        """Log in again until it works; each new reason for a failure is reported. Raises the last
        one when patience ends, soon if the box has ended; HostKeyError and CancelledError
        immediately."""
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
                refused_s = time.monotonic() - refused_at if refused_at is not None else 0.0
                patience = ENDED_PATIENCE_S if error.has_ended else self._patience
                if waited > patience or refused_s > REFUSED_PATIENCE_S:
                    raise reason from None
                self.cancel.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            self._back()
            return

    def ask(self, question: Callable[[Wire], _Answer]) -> _Answer:
        """Return the answer to `question`, asked again on a new wire if the link was lost. Only for
        questions that may be asked twice. Raises what they raise, and as `reconnect`."""
        while True:
            self.cancel.check()
            try:
                return question(self.wire)
            except LinkLost as lost:
                self.reconnect(lost)

    def close(self) -> None:
        self.cancel.forget(self._cut)
        self.wire.close()


def _since(refused_at: float | None, error: UnreachableError) -> float | None:
    """Return since when every login has been refused; None if the last one was not."""
    if not isinstance(error, LoginRefused):
        return None
    return time.monotonic() if refused_at is None else refused_at
