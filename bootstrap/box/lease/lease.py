"""A lease: how long a box may go on, cost what, and be idle how long. Pure: it reads no clock.

Time is counted by the clock that runs from boot to boot, so that setting the clock of the wall
changes nothing. What passed while the box was down only its account knows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NamedTuple

VERSION = 1
END_RUNS, LOOK, STOP, DESTROY = "end-runs", "look", "stop", "destroy"
"""What there is to do; `look`: whether anything on the box is nowhere else."""
LIMITS = ("hours", "dollars", "idle", "stall")
STOP_AGAIN_S = 10.0
"""Seconds between two times that the account is asked to end the box."""
SLACK_S = 5.0
"""What a run may take beyond its grace before the box is stopped all the same."""
LOOK_S = 20.0
"""How long such a look may take; what was not told by then is not safe."""
LOOK_AGAIN_S = 6.0
"""The same where the account was asked in vain: what was read then is not read again."""
SOON = 0.8
"""From this part of a limit on it is said that it is near."""
CAN_END = frozenset({"yes", "no-boot"})
"""What a box says of itself where its own key can end it."""
WIPES = "wipes"
"""What a box says of itself where a stop is all that may be asked for, and would lose something."""
_SAME_START_S = 2.0
"""By how much the start of a box, worked out twice, may differ."""


@dataclass(frozen=True)
class LeaseTerms:
    """What a profile says of a lease. None: without that limit. Seconds, dollars."""

    seconds: float | None = None
    dollars: float | None = None
    idle: float | None = None
    stall: float | None = None
    then: Literal["stop", "destroy"] = "stop"
    """`destroy`: where nothing on the box is unsafe; else it is stopped all the same."""
    price: float | None = None
    """Dollars an hour, where the account says none."""
    rented: float | None = None
    """When it was rented, by the account's clock (seconds since 1970): it counts from then on, else
    from the first look on."""

    @staticmethod
    def read(text: str) -> LeaseTerms:
        """As the file beside the box's runs has them. Raises ValueError."""
        said = json.loads(text)
        names = {field.name for field in fields(LeaseTerms)}
        if not isinstance(said, dict) or not names >= said.keys():
            raise ValueError("these are no terms of a lease")
        if said.get("then", STOP) not in (STOP, DESTROY):
            raise ValueError("a lease ends in no such way")
        return LeaseTerms(**said)


class AccountWord(NamedTuple):
    """What the account said of the box, by its own clock (seconds since 1970)."""

    now: float
    started: float | None
    price: float | None


class UseLook(NamedTuple):
    """What was seen of the box's use over the last so many seconds."""

    over: float
    used: bool
    """By a GPU, a processor, a log or results that grow, a setup, a transfer, a person."""
    computes: bool
    grew: bool
    """A log, or results."""


@dataclass(frozen=True)
class Tick:
    """The box at one moment. `at` and `since` are of the clock that began when the machine did."""

    boot: str
    at: float
    since: float
    """When the box, or its container, was started."""
    look: UseLook | None = None
    said: AccountWord | None = None
    extended: float = 0.0
    """Seconds that a person added, all in all."""
    can_end: bool = True
    """Whether the box can end itself: where it can't, its runs go on too."""
    has_runs: bool = False
    grace: float = 10.0
    """Seconds that the runs have to end."""
    is_safe: bool | None = None
    """What the look says that was asked for last; None while it says nothing."""


@dataclass
class LeaseState:
    """What is counted so far; it outlives the monitor, and the box's restart."""

    boot: str = ""
    at: float = 0.0
    since: float = 0.0
    elapsed: float = 0.0
    """Seconds that are paid for since the lease began."""
    spent: float = 0.0
    unpriced: float = 0.0
    """Seconds that no price was known for."""
    price: float | None = None
    idle: float = 0.0
    still: float = 0.0
    """Seconds that it computed while nothing grew."""
    extended: float = 0.0
    kept_until: float = 0.0
    """A person extended it: until so much has elapsed it is not ended for being idle or hung."""
    lacks_rent: bool = False
    """Whether what was paid for before the first look is not counted yet."""
    account_now: float | None = None
    """The account's clock at `at`."""
    down_from: float | None = None
    """The same before a restart, of which the account has not yet said how long it took."""
    since_down: float = 0.0
    """Seconds that were counted after that restart."""
    over: str = ""
    """Which limit was reached: hours, dollars, idle, stall."""
    over_for: float = 0.0
    asked_at: float | None = None
    """The value of `over_for` when the account was last asked to end the box."""
    looks_since: float | None = None
    """The same for when it was asked whether anything is unsafe; None where nobody looks."""

    @property
    def looks(self) -> bool:
        """Whether the box's end waits for what a look tells; that grows old."""
        longest = LOOK_S if self.asked_at is None else LOOK_AGAIN_S
        return self.looks_since is not None and self.over_for - self.looks_since < longest

    @staticmethod
    def read(said: dict[str, Any]) -> LeaseState:
        """As it was written down; what is not there, or of no use, begins anew."""
        known = {field.name: said[field.name] for field in fields(LeaseState) if field.name in said}
        return LeaseState(**known)

    def as_dict(self) -> dict[str, Any]:
        """To be written down."""
        return asdict(self)


def advance(terms: LeaseTerms, state: LeaseState, tick: Tick) -> list[str]:
    """Count what passed until this moment, and say what is to be done now."""
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
    """Seconds that the box ran since it was looked at last, as far as it knows itself."""
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


def _hear(terms: LeaseTerms, state: LeaseState, said: AccountWord, ran: float) -> float:
    """Take what the account says; the seconds that were paid for before the box was looked at, or
    while it was restarted, and that are not counted."""
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


def _notice(state: LeaseState, look: UseLook) -> None:
    state.idle = 0.0 if look.used else state.idle + look.over
    if look.grew:
        state.still = 0.0
    elif look.computes:
        state.still += look.over


def limits(terms: LeaseTerms, state: LeaseState) -> dict[str, tuple[float, float]]:
    """How much there is of each thing that has a limit, and the limit."""
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
    """The first limit that is reached, or so large a part of it; "" for none."""
    for name, (is_, most) in limits(terms, state).items():
        is_kept = name in {"idle", "stall"} and state.elapsed < state.kept_until
        if is_ >= most * part and not is_kept:
            return name
    return ""


def _decide(terms: LeaseTerms, state: LeaseState, tick: Tick, ran: float) -> list[str]:
    over = reached(terms, state) if tick.can_end else ""
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
    if tick.has_runs:
        state.looks_since = None  # what it writes nobody looked at
        if state.over_for < tick.grace + SLACK_S:
            return []
    if state.asked_at is not None and state.over_for - state.asked_at < STOP_AGAIN_S:
        return []
    return _end(terms, state, tick)


def _end(terms: LeaseTerms, state: LeaseState, tick: Tick) -> list[str]:
    """How to end the box now: destroyed where a look says that all of it is safe."""
    is_safe = None
    if terms.then == DESTROY and not tick.has_runs:
        if state.looks_since is None:
            state.looks_since = state.over_for
            return [LOOK]
        is_safe = tick.is_safe
        if is_safe is None and state.looks:
            return []
        if is_safe and not state.looks:  # told by a look that began long ago
            is_safe = None
            if state.asked_at is not None:  # and the account did not answer: there is time again
                state.looks_since = state.over_for
                return [LOOK]
    state.asked_at = state.over_for
    # What is safe is so for one request: meanwhile somebody may go on there.
    state.looks_since = None if is_safe else state.over_for - LOOK_S
    return [DESTROY if is_safe else STOP]
