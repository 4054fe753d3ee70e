"""A lease keeps its limits, on a simulated box and account with failing clocks and monitor."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bootstrap.boxes import parse_lease
from bootstrap.onbox.lease import keeper
from bootstrap.onbox.lease.instance import APIS, KeyRefusedError, NoAnswerError, OwnInstance
from bootstrap.onbox.lease.keeper import LeaseKeeper
from bootstrap.onbox.lease.rules import (
    DESTROY,
    END_RUNS,
    LOOK,
    LOOK_S,
    STOP,
    AccountReading,
    LeaseState,
    LeaseTerms,
    Tick,
    UseReading,
    advance,
    reached,
)
from tests.providers.accounts import FAULTS, KEY, POD_KEY, SimulatedBox, simulated

TICK_S, USE_S = 10.0, 30.0
HOUR = 3600.0
SLACK_S = 120.0


@dataclass
class SimulatedWorld:
    """A rented box, its account, and the monitor that holds its lease; times in real seconds."""

    terms: LeaseTerms
    price: float = 2.0
    grace: float = 30.0
    now: float = 0.0
    boot: str = "boot-0"
    booted: float = -5000.0
    """When the machine booted, in real seconds; its own clock starts then."""
    up_since: float = 0.0
    account_started: float = 0.0
    is_up: bool = True
    has_monitor: bool = True
    api_down_until: float = -1.0
    used_until: float = 1e9
    growing: bool = True
    runs_end_at: float | None = 1e9
    """When the live run ends; None if there is none."""
    extended: float = 0.0
    kept: str = ""
    """The state as JSON, as the monitor saves it."""
    spent: float = 0.0
    unreachable: float = 0.0
    """Seconds in which the box was due to be stopped but its account could not be reached."""
    warned_at: float | None = None
    asked: list[float] = field(default_factory=list)
    content: int = 0
    """Content of the box: a number that changes with every write."""
    pulled: int | None = None
    """The content that was last pulled to this machine."""
    look_s: float = 5.0
    """Seconds that a look at what is safe takes."""
    ended_by: str = ""
    ended_late: bool = False
    """Whether the box was destroyed while something existed only there."""
    wall: float = 1e9
    """The wall clock, which faults change; nothing may read it."""
    _looked: float = 0.0
    _state: LeaseState | None = None
    _ask_at: float = 0.0
    _look_from: tuple[float, int] | None = None
    """When the look at what is safe started, and the content at that time."""

    def pass_time(self, seconds: float = TICK_S) -> None:
        """Let real time pass, then let the monitor take one turn."""
        self.now += seconds
        if not self.is_up:
            return
        self.spent += seconds / HOUR * self.price
        if self.runs_end_at is not None:
            self.content += 1
        if self.warned_at is not None and self.now >= self.warned_at + self.grace:
            self.runs_end_at = None
        if self.runs_end_at is not None and self.now >= self.runs_end_at:
            self.runs_end_at = None
        paid = self.spent / self.price * HOUR
        allowed = (
            self.terms.seconds or (self.terms.dollars or 1e9) / self.price * HOUR
        ) + self.extended
        if paid > allowed and not self.api:
            self.unreachable += seconds
        if self.has_monitor:
            self._turn()

    @property
    def api(self) -> bool:
        return self.now >= self.api_down_until

    @property
    def hurries(self) -> bool:
        """Whether the monitor takes a turn each second: the result of a look soon gets old."""
        return self._state is not None and self._state.looks

    def kill_monitor(self) -> None:
        if self._state:
            self.kept = json.dumps(self._state.as_dict())
        self.has_monitor, self._state, self._look_from = False, None, None

    def start_monitor(self) -> None:
        self.has_monitor, self._looked, self._ask_at = True, self.now, self.now

    def restart(self, down: float, *, machine: bool) -> None:
        """Stop the box from outside and start it again: a new boot, or only a new container."""
        self.kill_monitor()
        self.now += down
        self.up_since = self.account_started = self.now
        if machine:
            self.boot, self.booted = f"boot-{self.now}", self.now
        self.runs_end_at = None
        self.start_monitor()

    def _turn(self) -> None:
        state = self._state or LeaseState.read(json.loads(self.kept or "{}"))
        self._state, said = state, None
        if self.now >= self._ask_at:
            if self.api:
                said = AccountReading(1.7e9 + self.now, 1.7e9 + self.account_started, self.price)
            self._ask_at = self.now + (HOUR if self.api else 60.0)
        tick = Tick(
            boot=self.boot,
            at=self.now - self.booted,
            since=self.up_since - self.booted,
            look=self._look(),
            said=said,
            extended=self.extended,
            has_runs=self.runs_end_at is not None,
            grace=self.grace,
            is_safe=self._told_safe(),
        )
        for action in advance(self.terms, state, tick):
            if action == END_RUNS:
                self.warned_at = self.now
            elif action == LOOK:
                self._look_from = self.now, self.content
            else:
                self.asked.append(self.now)
                if self.api:
                    self.is_up, self.ended_by = False, action
                    self.ended_late = action == DESTROY and self.content != self.pulled
        if state.looks and self._look_from is None:
            self._look_from = self.now, self.content

    def _told_safe(self) -> bool | None:
        if self._look_from is None or self.now - self._look_from[0] < self.look_s:
            return None
        (_, then), self._look_from = self._look_from, None
        return self.content == then == self.pulled

    def _look(self) -> UseReading | None:
        if self.now - self._looked < USE_S:
            return None
        over, self._looked = self.now - self._looked, self.now
        used = self.now - over < self.used_until
        return UseReading(over, used, computes=used, grew=self.growing and used)

    def until_stopped(self, most: float = 400 * HOUR) -> SimulatedWorld:
        while self.is_up and self.now < most:
            self.pass_time(1.0 if self.hurries else TICK_S)
        return self


def world(**given: float) -> SimulatedWorld:
    return SimulatedWorld(LeaseTerms(**given))


def overdrawn(simulated: SimulatedWorld, allowed: float) -> float:
    """Seconds paid beyond the lease, its grace and the time without a reachable account."""
    paid = simulated.spent / simulated.price * HOUR
    return paid - allowed - simulated.grace - simulated.unreachable


@pytest.mark.parametrize("account_answers", [True, False])
@pytest.mark.parametrize("limit", [{"seconds": 2 * HOUR}, {"dollars": 4.0}])
def test_a_box_rented_for_its_lease_counts_hours_and_dollars_from_the_rental(
    limit: dict[str, float], *, account_answers: bool
) -> None:
    """Loading the image and the setup take an hour before the monitor starts."""
    held = world(**limit, rented=1.7e9)
    held.has_monitor, held.runs_end_at = False, None
    held.pass_time(600.0)
    held.up_since = held.account_started = held.now  # its container starts
    held.pass_time(HOUR - 600.0)
    held.start_monitor()
    if not account_answers:
        held.api_down_until = held.now + 1800.0
    for _ in range(3):
        held.pass_time()
    assert held._state
    known = held.now if account_answers else held.now - 600.0  # by its own clock until then
    assert held._state.elapsed == pytest.approx(known, abs=1)
    assert held.until_stopped().now == pytest.approx(2 * HOUR, abs=TICK_S)
    assert held.spent <= 4.0 + 2.0 * SLACK_S / HOUR


def test_a_lease_set_on_a_box_that_runs_for_days_counts_from_when_it_was_set() -> None:
    """A state of an earlier version, and a new lease on a box that has been up for days."""
    state = LeaseState.read({"boot": "b", "at": 50.0, "elapsed": 50.0})
    said = AccountReading(1.7e9 + 9e5, 1.7e9, 2.0)
    advance(LeaseTerms(seconds=HOUR, rented=1.7e9), state, Tick("b", 60.0, 0.0, said=said))
    assert state.elapsed == 60.0
    state = LeaseState()
    advance(LeaseTerms(seconds=HOUR), state, Tick("b", 9e5, 0.0, said=said))
    assert state.elapsed == 0.0


def test_a_lease_of_dollars_counts_by_the_price_the_account_reports_now() -> None:
    held = world(dollars=3.0, price=100.0)
    held.price = 1.0
    while held.now < HOUR:
        held.pass_time()
    held.price = 4.0  # the account says so within the hour
    assert held.until_stopped().spent <= 3.0 + 4.0 * (HOUR + SLACK_S + held.grace) / HOUR
    assert held.spent >= 3.0
    own = SimulatedWorld(LeaseTerms(dollars=3.0, price=2.0), api_down_until=1.2 * HOUR)
    assert own.until_stopped().spent == pytest.approx(3.0, abs=0.1)


def test_a_lease_of_dollars_never_ends_a_box_while_its_price_is_unknown() -> None:
    state = LeaseState()
    for at in range(0, 100_000, 1000):
        assert advance(LeaseTerms(dollars=0.01), state, Tick("b", float(at), 0.0)) == []
    assert state.unpriced == 99_000
    assert advance(LeaseTerms(dollars=0.01, price=1.0), state, Tick("b", 99_000.0, 0.0)) == [STOP]


@pytest.mark.parametrize("run", [True, False])
def test_a_lease_of_idle_time_counts_from_the_last_use_of_the_box(run: bool) -> None:
    held = world(idle=1800.0)
    held.used_until, held.runs_end_at = 5 * HOUR, 1e9 if run else None
    held.until_stopped()
    grace = held.grace if run else 0.0
    assert 1800 <= held.now - 5 * HOUR <= 1800 + grace + 60


def test_a_lease_ends_a_box_whose_run_computes_but_writes_nothing() -> None:
    held = world(stall=HOUR)
    while held.now < 3 * HOUR:
        held.pass_time()
    held.growing = False
    terms = held.terms
    while held.now < 3.9 * HOUR:
        held.pass_time()
    assert held._state
    assert reached(terms, held._state) == ""
    assert reached(terms, held._state, 0.8) == "stall"  # and a warning comes before
    assert held.until_stopped().now == pytest.approx(4 * HOUR + held.grace, abs=60)
    off = world(seconds=50 * HOUR)
    off.growing = False
    assert off.until_stopped().now >= 50 * HOUR


def test_extending_a_lease_by_an_hour_postpones_its_end_even_after_the_run_was_warned() -> None:
    held = world(seconds=HOUR, dollars=2.0, idle=600.0)
    held.used_until = 0.0
    held.extended = HOUR
    assert held.until_stopped().now == pytest.approx(HOUR, abs=60)  # and not by idleness before
    late = world(seconds=HOUR)
    while not late.warned_at:
        late.pass_time()
    late.extended = HOUR  # while the run ends
    assert late.until_stopped().now >= 2 * HOUR


def test_a_lease_of_hours_counts_sleep_of_the_box_but_no_change_of_its_clock() -> None:
    held = world(seconds=2 * HOUR)
    for shift in (-1e8, 1e8, -5e9):
        held.wall += shift
        held.pass_time()
    held.pass_time(HOUR)  # asleep, or no monitor turn: it is paid for
    assert held.until_stopped().now == pytest.approx(2 * HOUR + held.grace, abs=3 * TICK_S)


def test_a_lease_counts_the_hour_in_which_its_monitor_was_killed() -> None:
    held = world(seconds=2 * HOUR, idle=600.0)
    for _ in range(100):
        held.pass_time()
    held.kill_monitor()
    held.pass_time(HOUR)
    held.start_monitor()
    held.pass_time()
    assert held._state
    assert held._state.elapsed == pytest.approx(held.now, abs=2 * TICK_S)
    assert held._state.idle == 0.0  # nothing observed whether it was idle
    assert held.until_stopped().now == pytest.approx(2 * HOUR + held.grace, abs=3 * TICK_S)


def test_the_lease_counts_the_downtime_of_a_restart_that_the_account_has_not_noticed() -> None:
    held = world(seconds=2 * HOUR)
    while held.now < HOUR:
        held.pass_time()
    held.kill_monitor()
    held.pass_time(1800.0)  # down, and billed
    started = held.account_started
    held.restart(0.0, machine=True)
    held.account_started = started
    assert held.until_stopped().now == pytest.approx(2 * HOUR, abs=60)


def test_at_its_end_a_lease_repeats_its_stop_request_until_a_silent_account_answers() -> None:
    held = world(seconds=HOUR)
    held.api_down_until = 3 * HOUR
    held.until_stopped()
    assert held.now == pytest.approx(3 * HOUR, abs=2 * TICK_S)
    gaps = [late - early for early, late in zip(held.asked, held.asked[1:], strict=False)]
    assert max(gaps) <= 2 * TICK_S
    assert overdrawn(held, HOUR) <= SLACK_S


def test_under_random_faults_a_box_never_costs_much_more_than_its_lease(
    seeded: random.Random,
) -> None:
    """Except two minutes, the grace, and the time in which the account can't be reached."""
    for _ in range(60):
        number = seeded.randrange(1_000_000)
        try:
            a_random_lease(random.Random(number))
        except AssertionError as error:
            raise AssertionError(f"seed {number}") from error


def a_random_lease(chance: random.Random) -> None:
    hours, price = chance.choice([0.1, 1.0, 5.0]), chance.choice([0.2, 3.0, 30.0])
    in_dollars = chance.random() < 0.4
    terms = LeaseTerms(dollars=hours * price) if in_dollars else LeaseTerms(seconds=hours * HOUR)
    held = SimulatedWorld(
        dataclasses.replace(terms, then=chance.choice(["stop", "destroy"])),
        price=price,
        grace=chance.choice([0.0, 10.0, 300.0]),
        runs_end_at=chance.choice([None, 1e9, hours * HOUR / 2]),
        # Not LOOK_S itself: the duration of a look is a sum of fractions.
        look_s=chance.choice([0.0, 5.0, LOOK_S + 0.001, 1e9]),
    )
    held.pass_time(0.0)  # a setup waits for the monitor's first turn
    # A look at what is safe takes part of the two minutes, so a starved monitor has less left.
    longest = 50.0 if held.terms.then == STOP else 35.0
    faults = 0
    if chance.random() < 0.5:  # rented with this lease, and the setup takes a while
        held.terms = dataclasses.replace(held.terms, rented=1.7e9)
        held.has_monitor = False
        held.pass_time(chance.uniform(1.0, hours * HOUR / 2))
        held.start_monitor()
    while held.is_up:
        pause = chance.choice([TICK_S, TICK_S, 12.0, 35.0]) if chance.random() < 0.9 else longest
        held.pass_time(1.0 if held.hurries else pause)
        fault = chance.random() if faults < 12 else 1.0
        if fault < 0.01:
            held.kill_monitor()
            held.pass_time(chance.uniform(1, 15))  # its supervisor starts it again
            held.start_monitor()
        elif fault < 0.02:
            held.restart(chance.choice([5.0, 4 * HOUR]), machine=chance.random() < 0.5)
            held.warned_at = None
        elif fault < 0.04:
            held.api_down_until = held.now + chance.choice([30.0, 2 * HOUR])
        elif fault < 0.05:
            held.wall += chance.uniform(-1e9, 1e9)
        elif fault < 0.052:
            held.extended += 600.0
        if chance.random() < 0.3:
            held.pulled = held.content
        elif chance.random() < 0.02:
            held.content += 1  # by somebody who is logged in
        if fault < 0.02:
            held.pass_time(0.0)  # the monitor takes a turn as soon as it starts
        faults += fault < 1.0 and fault < 0.052
        assert held.now < 500 * HOUR
    assert overdrawn(held, hours * HOUR + held.extended) <= SLACK_S
    # And it is not ended early: time that is not paid for is not counted.
    paid = held.spent / held.price * HOUR
    assert paid >= hours * HOUR - 60
    assert not held.ended_late
    assert held.ended_by == STOP or (held.terms.then == DESTROY and held.look_s < LOOK_S)


def test_a_lease_destroys_a_box_only_after_a_fresh_safety_check_and_else_stops_the_box() -> None:
    terms, state = LeaseTerms(seconds=60.0, then="destroy"), LeaseState()

    def at(seconds: float, **given: Any) -> list[str]:
        return advance(terms, state, Tick("b", seconds, 0.0, grace=0.0, **given))

    assert at(0.0) == []
    assert at(60.0, has_runs=True) == [END_RUNS]
    assert at(70.0, has_runs=True, is_safe=True) == [STOP]
    assert at(80.0, is_safe=None) == [STOP]
    state = LeaseState()
    assert [at(0.0), at(60.0)] == [[], [LOOK]]
    assert at(61.0, has_runs=True) == []
    # A look from before says nothing about what a run wrote since.
    assert at(62.0, is_safe=True) == [LOOK]
    assert at(63.0, is_safe=True) == [DESTROY]
    assert at(64.0, is_safe=True) == []
    # Somebody may have worked there since: a new look comes before the next request.
    assert at(73.0, is_safe=True) == [LOOK]
    assert at(74.0, is_safe=False) == [STOP]
    assert at(84.0) == [STOP]
    # Stopping failed, and an outdated look says that all is safe: a new look comes first.
    assert at(94.0, is_safe=True) == [LOOK]
    assert at(95.0, is_safe=True) == [DESTROY]


def test_a_lease_file_is_read_back_equal_and_a_nonsense_one_raises_an_error() -> None:
    terms = LeaseTerms(seconds=HOUR, idle=60.0)
    text = json.dumps({k: v for k, v in dataclasses.asdict(terms).items() if v is not None})
    assert LeaseTerms.read(text) == terms
    for wrong in ("[]", '{"colour": 1}', '{"then": "explode"}', "x", ""):
        with pytest.raises(ValueError, match=r"."):
            LeaseTerms.read(wrong)
    state = LeaseState(boot="b", elapsed=5.0, account_now=7.0)
    assert LeaseState.read(json.loads(json.dumps(state.as_dict()))) == state
    assert LeaseState.read({"novelty": 1}) == LeaseState()


def test_the_lease_counts_the_downtime_of_a_restart_while_the_account_gives_no_answer() -> None:
    held = world(seconds=2 * HOUR)
    while held.now < HOUR:
        held.pass_time()
    held.restart(5.0, machine=True)
    held.api_down_until = held.now + 3 * HOUR
    held.kill_monitor()
    held.pass_time(1200.0)  # until a setup starts the monitor
    held.start_monitor()
    held.until_stopped()
    assert held.asked[0] == pytest.approx(2 * HOUR, abs=60)


def test_a_lease_stops_its_box_once_the_grace_of_a_run_that_does_not_end_is_over() -> None:
    state = LeaseState()
    said = [
        advance(LeaseTerms(seconds=60.0), state, Tick("b", at, 0.0, has_runs=True, grace=30.0))
        for at in map(float, range(0, 200, 10))
    ]
    assert said.index([END_RUNS]) == 6
    assert said.index([STOP]) == 6 + 4


def test_a_lease_asks_the_runs_to_end_before_the_provider_ends_the_box() -> None:
    for ends in (False, True):
        terms, state = LeaseTerms(seconds=100.0, then="destroy", ends=ends), LeaseState()
        done = [
            advance(terms, state, Tick("b", at, 0.0, can_end=False, has_runs=at < 150))
            for at in range(0, 200, 10)
        ]
        asked = [at * 10 for at, actions in enumerate(done) if actions]
        assert asked == ([100] if ends else [])
        assert [action for actions in done for action in actions] == ([END_RUNS] if ends else [])


RUNS = 24
STEP_S, LOOKING_S = 20.0, 1.0
"""Between two turns; and while a look at what is safe is waited for, as the monitor does."""
PRICE = 0.5
ENDS_WITHIN_S = 2 * 3600.0
"""An account that was silent is asked again within minutes, one that refused within an hour."""
NOT_HELD = ("nothing on this box holds it", "did not answer", "not counted")
TROUBLES = (*FAULTS, "revoked", "expired", "deaf", "fine", "fine")


class LeaseUnderFaults:
    """One box with a lease, its account, and what a person is told."""

    def __init__(self, home: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.chance = home, chance
        self.now, self.trouble, self.failed = 1000.0, "fine", False
        self.said = list[str]()
        self.tells_price = chance.random() < 0.7
        self._patch = monkeypatch
        monkeypatch.setattr(keeper, "boot_id", lambda: "boot")

    def run(self, provider: str) -> None:
        chance = self.chance
        hours = chance.random() < 0.5
        limit = {"seconds": 3600.0} if hours else {"dollars": PRICE}
        terms = {**limit, "then": chance.choice(("stop", "destroy"))}
        (self.home / "lease.json").write_text(json.dumps(terms))
        with simulated(provider, is_held=False) as self.account:
            own = {"vast": ("1000", KEY), "runpod": ("pod-a", POD_KEY)}[provider]
            self.account.boxes = [SimulatedBox(own[0], price=PRICE), SimulatedBox("2000")]
            self.account.pod = own[0]
            self._patch.setenv(f"BOXSTRAP_{provider.upper()}_API", self.account.url)
            self.instance = OwnInstance(provider, *own)
            self._wrap()
            keeps = chance.random() < 0.8
            self._patch.setattr(OwnInstance, "keeps", lambda *_: keeps)
            keeper = self._keeper()
            began = self.now
            while self.now - began < 2.5 * 3600 and self._runs:
                self._choose()
                for _ in range(chance.randrange(1, 40)):
                    self._turn(keeper, began)
                if chance.random() < 0.2:  # the monitor was killed, and is started again
                    keeper = self._keeper()
            self._be("fine")
            calm = self.now
            while self._runs and self.now - calm < ENDS_WITHIN_S:
                self._turn(keeper, began)
            is_said = any(word in self.said[-1] for word in ("it keeps running", "not counted"))
            assert is_said or not self._runs, self.said[-1]
            assert [box.id for box in self.account.boxes if box.id == "2000"] == ["2000"]

    @property
    def _runs(self) -> bool:
        """Whether the box costs money."""
        box = next((box for box in self.account.boxes if box.id != "2000"), None)
        return box is not None and box.state == "running"

    def _keeper(self) -> LeaseKeeper:
        keeper = LeaseKeeper(
            self.home, clock=lambda: self.now, since=lambda: 0.0, find=lambda: self.instance
        )
        unsafe = ["train-1: never pulled"] if self.chance.random() < 0.3 else []
        self._patch.setattr(keeper._activity, "look", lambda *_: None)
        self._patch.setattr(keeper._safety, "begin", lambda: None)
        self._patch.setattr(keeper._safety, "tell", lambda: unsafe)
        return keeper

    def _choose(self) -> None:
        self._be(self.chance.choice(TROUBLES))

    def _be(self, trouble: str) -> None:
        self.trouble, account = trouble, self.account
        account.is_expired, account.is_edgy = trouble == "expired", trouble == "edge"
        account.fault_on = {}

    def _wrap(self) -> None:
        """Let the account fail as the trouble says, and note whether a request failed."""
        send, ask, account = OwnInstance._send, OwnInstance.ask, self.account
        destroy = account.destroy

        def sending(one: OwnInstance, method: str, path: str, body: object) -> object:
            if self.trouble in FAULTS and self.trouble != "edge":
                account.fault_on = {"": self.trouble}
            key = "revoked" if self.trouble == "revoked" else self._key
            self._patch.setattr(one, "_key", key)
            try:
                found = send(one, method, path, body)  # type: ignore[arg-type]
            except (KeyRefusedError, NoAnswerError):
                self.failed = True
                raise
            self.failed = False
            return found

        def asking(one: OwnInstance) -> AccountReading:
            try:
                said = ask(one)
            except (KeyRefusedError, NoAnswerError):
                self.failed = True
                raise
            return said if self.tells_price else said._replace(price=None)

        def destroying(box_id: str) -> bool:
            return True if self.trouble == "deaf" else destroy(box_id)

        self._key = self.instance._key
        self._patch.setattr(OwnInstance, "_send", sending)
        self._patch.setattr(OwnInstance, "ask", asking)
        self._patch.setattr(account, "destroy", destroying)

    def _turn(self, keeper: LeaseKeeper, began: float) -> None:
        before = [(box.id, box.state) for box in self.account.boxes]
        keeper.turn([], [])
        if self.trouble == "deaf":  # it says that it did it, and doesn't
            for box, (_, state) in zip(self.account.boxes, before, strict=True):
                box.state = state
        self.now += LOOKING_S if keeper.looks else STEP_S
        lease = parse_lease(f"kept\t{(self.home / 'lease.state').read_text()}")
        assert lease is not None
        line = lease.lines()[0]
        self.said.append(line)
        if not self._runs:
            return
        if self.failed:
            assert any(word in line for word in (*NOT_HELD, "keeps running")), (self.trouble, line)
        # Both limits are an hour of it. Whatever counts, past it nothing is quiet.
        if self.now - began > 3600 + 120:
            told = ("over (", *NOT_HELD)
            assert any(word in line for word in told), (self.trouble, line)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("provider", sorted(APIS))
@pytest.mark.parametrize("number", range(RUNS))
def test_under_random_account_faults_a_box_says_so_whenever_nothing_enforces_its_lease(
    number: int,
    provider: str,
    seeded: random.Random,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = seeded.randrange(1_000_000) + number
    world = LeaseUnderFaults(tmp_path, random.Random(seed), monkeypatch)
    try:
        world.run(provider)
    except Exception as error:
        raise AssertionError(f"seed {seed} at {provider}") from error
