"""A lease: limits on a box's time, cost and idle time. Pure: it reads no clock.

Time is counted by the clock since boot, so setting the wall clock changes nothing. Only the
provider's account knows how much time passed while the box was down.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

VERSION = 1
END_RUNS, LOOK, STOP, DESTROY = "end-runs", "look", "stop", "destroy"
"""Actions; `look`: check whether anything on the box exists nowhere else."""
STOP_AGAIN_S = 10.0
"""Seconds between two requests to the account to end the box."""
SLACK_S = 5.0
"""Seconds that a run may take beyond its grace before the box is stopped anyway."""
LOOK_S = 20.0
"""Seconds that a look may take; without a result by then the box is not safe."""
LOOK_AGAIN_S = 6.0
"""The same after a request to end the box had no effect: known digests are reused."""
SOON = 0.8
"""Fraction of a limit from which on it is reported as near."""
CAN_END = frozenset({"yes", "no-boot"})
"""Values of `held` in `lease.state` when the box's own key can end it."""
WIPES = "wipes"
"""The value when the lease allows only a stop, and a stop would lose something."""
_SAME_START_S = 2.0
"""Seconds by which two computations of a box's start may differ."""


@dataclass(frozen=True)
class LeaseTerms:
    """A profile's terms of a lease, in seconds and dollars; None is no limit."""

    seconds: float | None = None
    dollars: float | None = None
    idle: float | None = None
    stall: float | None = None
    then: Literal["stop", "destroy"] = "stop"
    """`destroy`: if nothing on the box is unsafe; otherwise it is only stopped."""
    price: float | None = None
    """Dollars an hour, if the account reports none."""
    rented: float | None = None
    """When it was rented, by the account's clock (seconds since 1970): the lease counts from then.
    None: it counts from the first look."""
    ends: bool = False
    """Whether its provider ends it soon after, whatever holds the lease: its runs have to end."""

    @staticmethod
    def read(text: str) -> LeaseTerms:
        """Parse the text of `lease.json`. Raises ValueError."""
        said = json.loads(text)
        names = {field.name for field in fields(LeaseTerms)}
        if not isinstance(said, dict) or not names >= said.keys():
            raise ValueError("not valid terms of a lease")
        if said.get("then", STOP) not in (STOP, DESTROY):
            raise ValueError("`then` must be `stop` or `destroy`")
        return LeaseTerms(**said)


class AccountReading(NamedTuple):
    """The account's answer about the box; times are by its own clock (seconds since 1970)."""

    now: float
    started: float | None
    price: float | None


class UseReading(NamedTuple):
    """How the box was used during the last `over` seconds."""

    over: float
    used: bool
    """By a GPU, a CPU, a growing log or results, a setup, a transfer, a person."""
    computes: bool
    grew: bool
    """Whether a log or results grew."""


@dataclass(frozen=True)
class Tick:
    """The box at one moment. `at` and `since` are seconds since the machine's boot."""

    boot: str
    at: float
    since: float
    """When the box, or its container, was started."""
    look: UseReading | None = None
    said: AccountReading | None = None
    extended: float = 0.0
    """Seconds that the user added, in total."""
    can_end: bool = True
    """Whether the box can end itself; if it can't, its runs continue too."""
    has_runs: bool = False
    grace: float = 10.0
    """Seconds that the runs have to end."""
    is_safe: bool | None = None
    """The result of the last look; None while there is none."""


@dataclass
class LeaseState:
    """What is counted so far; it survives restarts of the monitor and of the box."""

    boot: str = ""
    at: float = 0.0
    since: float = 0.0
    elapsed: float = 0.0
    """Paid seconds since the lease started."""
    spent: float = 0.0
    unpriced: float = 0.0
    """Seconds for which no price is known yet."""
    price: float | None = None
    idle: float = 0.0
    still: float = 0.0
    """Seconds during which it computed and nothing grew."""
    extended: float = 0.0
    kept_until: float = 0.0
    """After an extension: the value of `elapsed` until which idle and stall don't end the box."""
    lacks_rent: bool = False
    """Whether the paid time before the first look is still to be counted."""
    account_now: float | None = None
    """The account's clock at `at`."""
    down_from: float | None = None
    """The same before a restart, while the account hasn't yet said how long that took."""
    since_down: float = 0.0
    """Seconds counted since that restart."""
    over: str = ""
    """Which limit was reached: hours, dollars, idle, stall."""
    over_for: float = 0.0
    asked_at: float | None = None
    """The value of `over_for` when the account was last asked to end the box."""
    looks_since: float | None = None
    """The value of `over_for` when a look was last requested; None if none was."""

    @property
    def looks(self) -> bool:
        """Whether the box's end waits for a look; an old look no longer counts."""
        longest = LOOK_S if self.asked_at is None else LOOK_AGAIN_S
        return self.looks_since is not None and self.over_for - self.looks_since < longest

    @staticmethod
    def read(said: dict[str, Any]) -> LeaseState:
        """Restore a saved state; missing fields get their defaults, unknown ones are ignored."""
        known = {field.name: said[field.name] for field in fields(LeaseState) if field.name in said}
        return LeaseState(**known)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def advance(terms: LeaseTerms, state: LeaseState, tick: Tick) -> list[str]:
    """Count the time up to this moment, and return the actions that are due."""
    ran = _count(terms, state, tick)
    if tick.said:
        ran += _hear(terms, state, tick.said, ran)
    _spend(terms, state, ran)
    _extend(state, tick.extended)
    if tick.look:
        _notice(state, tick.look)
    state.boot, state.at, state.since = tick.boot, tick.at, tick.since
    return _decide(terms, state, tick, ran)


def _count(terms: LeaseTerms, state: LeaseState, tick: Tick) -> float:
    """Return the seconds that the box ran since the last tick, as far as it knows itself."""
    if not state.boot:
        state.lacks_rent = terms.rented is not None
        return max(0.0, tick.at - tick.since) if state.lacks_rent and not tick.said else 0.0
    if state.boot == tick.boot and abs(state.since - tick.since) <= _SAME_START_S:
        ran = max(0.0, tick.at - state.at)
        if state.account_now is not None:
            state.account_now += ran
    else:
        ran = max(0.0, tick.at - tick.since)
        if state.down_from is None:
            state.down_from, state.since_down = state.account_now, 0.0
        state.account_now = None
        state.idle = state.still = 0.0  # somebody started it
    if state.down_from is not None:
        state.since_down += ran
    return ran


def _hear(terms: LeaseTerms, state: LeaseState, said: AccountReading, ran: float) -> float:
    """Take the answer; return paid seconds missed before the first look or during a restart."""
    missed = 0.0
    if said.price is not None:
        state.price = said.price
    if state.lacks_rent:
        paid = said.now - (said.now if terms.rented is None else terms.rented)
        missed = max(0.0, paid - state.elapsed - ran)
        state.lacks_rent = False
    elif state.down_from is not None and said.started is not None:
        paid = said.now - max(said.started, state.down_from)
        missed = max(0.0, paid - state.since_down)
        state.down_from = None
    state.account_now = said.now
    return missed


def _spend(terms: LeaseTerms, state: LeaseState, ran: float) -> None:
    state.elapsed += ran
    price = terms.price if state.price is None else state.price
    state.unpriced += ran
    if price is not None:
        state.spent += state.unpriced / 3600 * price
        state.unpriced = 0.0


def _extend(state: LeaseState, extended: float) -> None:
    added = extended - state.extended
    if added > 0:
        state.extended = extended
        state.kept_until = max(state.kept_until, state.elapsed) + added
        state.idle = state.still = 0.0


def _notice(state: LeaseState, look: UseReading) -> None:
    state.idle = 0.0 if look.used else state.idle + look.over
    if look.grew:
        state.still = 0.0
    elif look.computes:
        state.still += look.over


def limits(terms: LeaseTerms, state: LeaseState) -> dict[str, tuple[float, float]]:
    """Return the current value and the limit of each thing that has a limit."""
    price = (terms.price if state.price is None else state.price) or 0.0
    found: dict[str, tuple[float, float | None]] = {
        "hours": (state.elapsed, _plus(terms.seconds, state.extended)),
        "dollars": (state.spent, _plus(terms.dollars, state.extended / 3600 * price)),
        "idle": (state.idle, terms.idle),
        "stall": (state.still, terms.stall),
    }
    return {name: (is_, most) for name, (is_, most) in found.items() if most is not None}


def _plus(limit: float | None, more: float) -> float | None:
    return None if limit is None else limit + more


def reached(terms: LeaseTerms, state: LeaseState, part: float = 1.0) -> str:
    """Return the first limit of which this part is reached; "" if there is none."""
    for name, (is_, most) in limits(terms, state).items():
        is_kept = name in {"idle", "stall"} and state.elapsed < state.kept_until
        if is_ >= most * part and not is_kept:
            return name
    return ""


def _decide(terms: LeaseTerms, state: LeaseState, tick: Tick, ran: float) -> list[str]:
    over = reached(terms, state) if tick.can_end or terms.ends else ""
    if not over:
        state.over, state.over_for = "", 0.0
        state.asked_at = state.looks_since = None
        return []
    if not state.over:
        state.over, state.over_for = over, 0.0
        state.asked_at = state.looks_since = None
        if tick.has_runs:
            return [END_RUNS]
    else:
        state.over_for += ran
    if not tick.can_end:
        return []
    if tick.has_runs:
        state.looks_since = None  # a look misses what a live run writes
        if state.over_for < tick.grace + SLACK_S:
            return []
    if state.asked_at is not None and state.over_for - state.asked_at < STOP_AGAIN_S:
        return []
    return _end(terms, state, tick)


def _end(terms: LeaseTerms, state: LeaseState, tick: Tick) -> list[str]:
    """Decide how to end the box now: it is destroyed only if a look found everything safe."""
    is_safe = None
    if terms.then == DESTROY and not tick.has_runs:
        if state.looks_since is None:
            state.looks_since = state.over_for
            return [LOOK]
        is_safe = tick.is_safe
        if is_safe is None and state.looks:
            return []
        if is_safe and not state.looks:  # the look started too long ago
            is_safe = None
            if state.asked_at is not None:  # no answer from the account: look again
                state.looks_since = state.over_for
                return [LOOK]
    state.asked_at = state.over_for
    # A look holds for one request only: somebody may use the box before the next one.
    state.looks_since = None if is_safe else state.over_for - LOOK_S
    return [DESTROY if is_safe else STOP]
