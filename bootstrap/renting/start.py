"""Start a stopped or just rented box, and wait until it answers by SSH, or never will. A stopped
one is paid for again from then on."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bootstrap.errors import BoxstrapError, ReturnBoxError, UnreachableError
from bootstrap.providers.api import RefusedError, RefusedKeyError, UndecidedError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState
from bootstrap.renting.rental import SAME_PRICE, Rental, is_another
from bootstrap.sizes import dollars


@dataclass(frozen=True)
class RentingClock:
    """The time in seconds since 1970, and a way to sleep."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


LOOK_S = 5.0  # seconds between looks at an account
SETTLES_S = 60.0  # how long an account may take to list a box that it just rented out, in seconds
_LOG_LINES = 4
_LONGEST_LOG = 600


class NeverUpError(BoxstrapError):
    was_off: bool = False
    """Whether this wait never started it; so a new one has cost no more than its disk."""
    is_silent: bool = False  # whether it ran all the time, and nothing answered at its address


@dataclass(frozen=True)
class Arrival:
    """How to watch for a box's arrival; tests pass their own clock and answers."""

    clock: RentingClock
    answers: Callable[[RentedBox], bool]

    def wait(
        self, account: CloudAccount, box: Rental, longest_s: float, say: Callable[[str], None]
    ) -> RentedBox:
        """Wait until its SSH answers; return the box as its account lists it then.

        A box that was rented without being started is started once its price is known. Raises
        NeverUpError if it won't answer, or costs more than was agreed to.
        """
        began, said = self.clock.now(), ""
        start = _FirstStart(account, say) if account.rents_stopped and not box.ready else None
        while True:
            now = self.clock.now()
            try:
                seen = account.box(box.box_id)
            except RefusedKeyError:
                raise
            except UnreachableError as error:
                seen, said = None, error.what
            else:
                is_off = seen is not None and seen.state is RentedState.STOPPED
                why = _why_never(seen, now - box.asked, may_be_off=start is not None)
                why = why or _too_dear(box, seen)
                if seen and is_off and start and not why:
                    why = start.why_never(seen, now)
                if why:
                    raise _never_up(f"{why}{_log(account, seen)}", box, start)
                said = seen.said if seen else ""
            if seen and seen.address and self.answers(seen):
                return seen
            if now - began >= longest_s:
                waited = f"it can't be reached after {(now - began) / 60:.0f} minutes"
                why = f"{waited}{f' ({said})' if said else ''}{_log(account, seen)}"
                never = _never_up(why, box, start)
                never.is_silent = bool(seen and seen.address)
                raise never
            if now == began:
                longest = f"{longest_s / 60:.0f} minutes"
                say(f"waiting until {box.host} can be reached, {longest} at the most")
            self.clock.sleep(LOOK_S)


def _never_up(why: str, box: Rental, start: _FirstStart | None) -> NeverUpError:
    error = NeverUpError(why, where=box.host)
    error.was_off = start is not None and not start.may_run
    return error


class _FirstStart:
    """Starts a box that was rented without being started."""

    def __init__(self, account: CloudAccount, say: Callable[[str], None]) -> None:
        self._account, self._say = account, say
        self._tried = float("-inf")
        self._is_refused = False
        self.may_run = False

    def why_never(self, box: RentedBox, now: float) -> str:
        """Start it, unless that was done just now; return why it never will be, else ""."""
        if box.price is None:
            told = f" ({box.said})" if box.said else ""
            return f"nothing says what an hour of it costs{told}, so it was never started"
        if now - self._tried < SETTLES_S:
            return ""
        self._tried = now
        try:
            self._account.start(box.id)
            self.may_run = True
        except RefusedKeyError:
            raise
        except RefusedError as error:
            if self._is_refused:
                return f"it was not started: {error.what}"
            self._is_refused = True
            self._say(f"{box.host}: {error.what} Trying once more.")
        except UnreachableError as error:
            self.may_run = True
            self._say(f"{box.host}: {error.what} Looking whether it starts.")
        return ""


def _log(account: CloudAccount, box: RentedBox | None) -> str:
    """Return the end of the provider's own log of the box, to follow why it won't come up."""
    lines: Sequence[str] = ()
    if box is not None:
        with contextlib.suppress(BoxstrapError):
            lines = [line.strip() for line in account.log(box.id) if line.strip()]
    return f". Its log ends: {' / '.join(lines[-_LOG_LINES:])[-_LONGEST_LOG:]}" if lines else ""


def _why_never(box: RentedBox | None, age_s: float, *, may_be_off: bool) -> str:
    """Return why a box will not come up; "" if it may."""
    if box is None:
        return "its account no longer has it" if age_s > SETTLES_S else ""
    if is_another(box):
        return "its account gave that id to another rental"
    if may_be_off and box.state is RentedState.STOPPED:
        return ""
    costs = ""
    if box.stopped_price is not None:
        costs = f", and costs {dollars(box.stopped_price)} an hour as it is"
    bad = {
        RentedState.BROKEN: "it is broken",
        RentedState.STOPPED: f"it is stopped{costs}",
        RentedState.GONE: "its account ended it",
    }
    why = bad.get(box.state, "")
    return f"{why} ({box.said})" if why and box.said else why


def _too_dear(box: Rental, seen: RentedBox | None) -> str:
    """Return why its price is too high; "" if that was agreed to, or the box is in use."""
    if box.ready or seen is None or seen.price is None or not box.is_dearer(seen.price):
        return ""
    return (
        f"it costs {dollars(seen.price)} an hour, and {dollars(box.agreed)} was agreed to "
        "(--max-price allows more)"
    )


def answers_ssh(box: RentedBox) -> bool:
    try:
        with socket.create_connection((box.address, box.port), timeout=5) as connection:
            connection.settimeout(5)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


Say = Callable[[str], None]


def question(box: RentedBox, price: float) -> str:
    """Return what the user is asked; `price` is what an hour of it was last known to cost."""
    costs = f"at {dollars(price)} an hour" if price else "(its account tells no price)"
    return f"{box.host} is stopped. Start it {costs}?"


def start_asked(host: str, price: float, confirm: Callable[[str], bool], say: Say) -> bool:
    """Start a box that is still stopped, if the user agrees; return whether. Raises as `start`."""
    from bootstrap.renting.ownership import account_of

    account, box_id = account_of(host)
    seen = account.box(box_id)
    if seen is None or seen.state is not RentedState.STOPPED or not account.stops:
        return False
    price = seen.price or price
    if not confirm(question(seen, price)):
        return False
    start_rented(account, seen, price, Arrival(RentingClock(), answers_ssh), say)
    return True


def start_rented(
    account: CloudAccount, box: RentedBox, most: float, arrival: Arrival, say: Say
) -> None:
    """Start a stopped box, once, and wait until its SSH answers; `most`: 0 for any price.

    Raises ReturnBoxError if it has no GPU now. Raises UnreachableError if it doesn't start, can't
    be reached, or costs more; then it is stopped again, so that nobody pays for it later.
    """
    clock, host, began = arrival.clock, box.host, arrival.clock.now()
    longest = account.loading_minutes * 60.0
    say(f"{host} is started; waiting until it can be reached, {longest / 60:.0f} minutes at most")
    try:
        try:
            account.start(box.id)
        except UndecidedError as error:
            say(f"{error.what} Looking whether it starts.")
        except RefusedError as error:
            raise UnreachableError(f"it was not started: {error.what}", where=host) from None
        while True:
            seen, why = _seen(account, box.id)
            waited = clock.now() - began
            if seen and seen.price and most and seen.price > most + SAME_PRICE:
                why = f"it costs {dollars(seen.price)} an hour now, not {dollars(most)}"
                break
            if seen and seen.address and arrival.answers(seen):
                check_gpus(seen)
                return
            if seen and seen.state is RentedState.GONE:
                raise UnreachableError("it was started, and is gone", where=host)
            if seen and seen.state is RentedState.BROKEN:
                why = f"it was started, and is broken{why}"
                break
            is_stopped = seen and seen.state is RentedState.STOPPED
            if waited >= longest or (is_stopped and waited > SETTLES_S):
                why = f"it doesn't answer {waited / 60:.0f} minutes after its start{why}"
                break
            clock.sleep(LOOK_S)
    except KeyboardInterrupt:
        say(f"{host} may be running now, or start later, and cost money: boxstrap boxes --all")
        raise
    raise UnreachableError(
        f"{why}; {_stopped_again(account, box.id)}",
        where=host,
        hint="Try again later, or rent another one: boxstrap up --another",
    )


def _seen(account: CloudAccount, box_id: str) -> tuple[RentedBox | None, str]:
    """Return the box, and in brackets what is said of it, or of why nobody knows."""
    try:
        seen = account.box(box_id)
    except RefusedKeyError:
        raise
    except UnreachableError as error:
        return None, f" ({error.what})"
    said = seen.said or seen.state.value if seen else "its account doesn't list it"
    return seen, f" ({said})"


def check_gpus(box: RentedBox) -> None:
    """Raise ReturnBoxError if a box that was stopped once runs without any GPU."""
    if box.gpu_count == 0:
        costs = f" at {dollars(box.price)} an hour" if box.price else ""
        raise ReturnBoxError(
            "it was started without a GPU: others have those of its machine now.",
            where=box.host,
            hint=f"It runs{costs}, so that what it has can be fetched; then: boxstrap down --host "
            f"{box.host}",
        )


def _stopped_again(account: CloudAccount, box_id: str) -> str:
    try:
        account.stop(box_id)
    except UnreachableError as error:
        return f"it could not be stopped again, and costs money once it runs: {error.what}"
    return "it is stopped again"
