"""The link to a box: its interface to the rest of boxstrap, its errors, how it is made again.

A `Wire` starts commands, each is a `Stream`. `SshWire` (link/ssh.py) and `LocalWire`
(link/local.py) implement it. Code above this module doesn't know which one it uses.

UnreachableError       can't reach the box or log in
├── LinkLost           the link died; what runs on the box continues
├── LoginRefused       the box answers, but accepts none of our keys
├── LoginBroken        the box answers, but the login broke off half-way
│   └── NotNow         its SSH server takes no more logins for the moment
└── NoAnswer           the box printed something other than an answer

A `ReconnectingLink` logs in again on its own after it was lost, with growing pauses.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from bootstrap.cancel import CancelToken
from bootstrap.errors import HostKeyError, UnreachableError
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import duration

if TYPE_CHECKING:
    from bootstrap.link.target import Endpoint

PIECE = 64 * 1024
"""Bytes written at a time: one huge write can hang for minutes (docs/adr/0004)."""


class Stream(Protocol):
    """One command on the box.

    Its errors are collected in parallel with its output, so that a command that
    prints much of both never blocks; the last 64 KiB of them are kept.
    """

    def read(self, n: int) -> bytes:
        """Read up to `n` bytes of output, as soon as there are any; `b""` at the end.

        Raises LinkLost if the link died before the output's end.
        """

    def read_err(self) -> bytes:
        """Return the last 64 KiB of errors so far; complete once `read` returned `b""`."""

    def write(self, b: bytes) -> None:
        """Send all of `b` to the command's input.

        Raises LinkLost if the link died, BrokenPipeError if the command no
        longer reads.
        """

    def close_write(self) -> None:
        """End the command's input."""

    def exit_status(self) -> int | None:
        """Wait for the command's exit code; None if it ended without one.

        Call it after the output's end. Raises LinkLost.
        """

    def close(self) -> None:
        """Close the stream. A command that detached itself continues."""


class Pipe(Protocol):
    """A connection made by the box, to one of its ports or to one that it can reach."""

    def recv(self, n: int, /) -> bytes:
        """Read up to `n` bytes, as soon as there are any; `b""` at the end. Raises OSError."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of `data`. Raises OSError."""

    def shutdown_write(self) -> None:
        """Close the sending side. Raises OSError, EOFError."""

    def close(self) -> None:
        """Close both directions, and wake up a blocked reader."""


class Wire(Protocol):
    """A link to a box, logged in."""

    label: str
    """The box's name in messages: `user@address:port`."""

    def start(self, command: str) -> Stream:
        """Run `command` with the login shell of the box. Raises LinkLost."""

    def connect(self, host: str, port: int) -> Pipe:
        """Connect from the box to `port` of `host`.

        Raises ConnectionRefusedError if nothing answers there, PermissionError if the box doesn't
        allow forwarding, LinkLost.
        """

    def alive(self) -> bool:
        """Whether the link is still up."""

    def close(self) -> None:
        """Close the link and every stream on it."""


_STARTING = "A box that was just rented may still be starting: try again in a minute."
_KNOWN = "You were last on this box {ago} ago: it may be off, restarting, or given back."
_ADDRESS = "Compare address and port with the provider's page; ports change when a box restarts."


class LinkLost(UnreachableError):  # noqa: N818 - a name of the contract
    """The link to the box died. Following again is safe: the box continues."""

    def __init__(self, label: str, why: str = "the link was lost") -> None:
        super().__init__(
            why,
            where=label,
            hint="What runs on the box continues. Run the same command again to follow it.",
        )


class LoginRefused(UnreachableError):  # noqa: N818 - likewise
    """The box answers, but accepts none of our keys."""


class LoginBroken(UnreachableError):  # noqa: N818 - likewise
    """The box answers, but the login broke off half-way: on a bad link a retry may succeed."""


class NotNow(LoginBroken):
    """The box's SSH server takes no more logins for the moment: it has too many, or punishes."""


class NoAnswer(UnreachableError):  # noqa: N818 - likewise
    """The box was reached, but its output is not the expected answer."""


def _starting(seen: float) -> str:
    """Return a hint why a box doesn't answer. `seen`: when it last did, 0 for never."""
    return _KNOWN.format(ago=duration(time.time() - seen)) if seen else _STARTING


def silence_error(endpoint: Endpoint, seconds: float) -> UnreachableError:
    """Return the error for a connection without an SSH greeting."""
    return LoginBroken(
        f"it accepted the connection but said nothing for {seconds:g} s: "
        "that is not an SSH server, or one that hangs.",
        where=endpoint.address,
        hint=_ADDRESS,
    )


def closed_early(endpoint: Endpoint, proxy_said: str | None, seen: float = 0.0) -> UnreachableError:
    """Return the error for an end before the greeting; `proxy_said`: errors of a proxy command."""
    if proxy_said is not None:
        return UnreachableError(
            f"the connection through the proxy failed: "
            f"{proxy_said or 'the proxy command printed no error.'}",
            where=endpoint.address,
            hint=f"Try it with OpenSSH: ssh {endpoint.alias}",
        )
    return LoginBroken(
        "it closed the connection before any login.",
        where=endpoint.address,
        hint=f"{_starting(seen)} Too many logins at once, or a provider's proxy that doesn't know "
        "this box, look the same.",
    )


_NOT_NOW = {
    "Exceeded MaxStartups": (
        "its SSH server has too many logins at a time (MaxStartups).",
        "Try again in a moment, with fewer commands at a time.",
    ),
    "Not allowed at this time": (
        "its SSH server lets nobody in from this machine's address for a while, after logins that "
        "failed or broke off (PerSourcePenalties).",
        "It ends by itself, mostly within a minute, at the latest after ten: try again then.",
    ),
}
"""What OpenSSH's server says in place of its greeting, and what that means."""


def not_ssh(endpoint: Endpoint, seen: bytes) -> UnreachableError:
    """Return the error for a greeting that is not SSH's, or one that OpenSSH refuses with."""
    said = sanitize(seen[:80]).strip().splitlines()
    if said and said[0] in _NOT_NOW:
        what, hint = _NOT_NOW[said[0]]
        return NotNow(what, where=endpoint.address, hint=hint)
    return UnreachableError(
        f"what answers there is not an SSH server; it said: {said[0] if said else '(unprintable)'}",
        where=endpoint.address,
        hint=_ADDRESS,
    )


def timed_out(endpoint: Endpoint, seen: float = 0.0) -> UnreachableError:
    """Return the error for no answer in time."""
    return UnreachableError(
        f"no answer within {endpoint.connect_timeout:.0f} s.",
        where=endpoint.address,
        hint=f"{_starting(seen)} A firewall looks the same. {_ADDRESS}",
    )


def not_found(endpoint: Endpoint) -> UnreachableError:
    """Return the error for a name that the resolver doesn't find, with the known box that has
    nearly that name."""
    import difflib  # here, as most starts need neither

    from bootstrap.link.record import all_boxes

    near = difflib.get_close_matches(endpoint.hostname, [box.name for box in all_boxes()], 1, 0.7)
    return UnreachableError(
        "the name was not found.",
        where=endpoint.hostname,
        hint=(f"Did you mean {near[0]}? " if near else "")
        + "Check the spelling, your network, and that the alias is in your ssh config.",
    )


def unreachable(endpoint: Endpoint, error: OSError, seen: float = 0.0) -> UnreachableError:
    """Return the error for what the system reported."""
    if isinstance(error, socket.gaierror):
        return not_found(endpoint)
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return timed_out(endpoint, seen)
    if error.errno == errno.ECONNREFUSED:
        return UnreachableError(
            "the connection was refused: nothing listens on that port.",
            where=endpoint.address,
            hint=f"{_starting(seen)} {_ADDRESS}",
        )
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL):
        return UnreachableError(
            "there is no route to it from here.",
            where=endpoint.address,
            hint="Check this machine's network and VPN; the box may be gone.",
        )
    return UnreachableError(
        f"the connection failed: {error.strerror or error}.", where=endpoint.address, hint=_ADDRESS
    )


_Answer = TypeVar("_Answer")

PAUSES_S = (0.5, 1, 2, 4, 8, 15)
"""Pauses between tries in seconds; the last one repeats."""
FIRST_PAUSES_S = (1, 3)
"""Pauses after a first login that broke off half-way, in seconds."""
FIRST_PATIENCE_S = 20.0
"""How long such a login is retried, in seconds."""
NOT_NOW_PAUSES_S = (1, 2, 2, 3, 4, 5)
"""Pauses where the server takes no more for the moment: it hangs up at once, so more fit in."""
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
        """Whether the login was made, or failed."""
        return self._thread is not None and not self._thread.is_alive()

    def alive(self) -> bool:
        """Whether it was made, and is still up."""
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

    def wire(self) -> Wire:
        """Return the login, made beside another one. As `first`, but LinkLost if it broke off,
        which is tried again where the link is asked."""
        try:
            return self.first(CancelToken())
        except LoginBroken as error:
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
