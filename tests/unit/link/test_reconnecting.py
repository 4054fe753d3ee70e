"""A lost link is made again, with growing pauses, for as long as is sensible."""

from collections.abc import Callable

import pytest

from bootstrap.errors import HostKeyError, UnreachableError
from bootstrap.link import CancelToken
from bootstrap.link.reconnecting import PAUSES_S, REFUSED_PATIENCE_S, Backoff, ReconnectingLink
from bootstrap.link.wire import LinkLost, LoginBroken, LoginRefused, Stream, Wire


class FakeWire:
    """A wire that only counts how often it is closed."""

    label = "root@box:22"

    def __init__(self) -> None:
        self.closed = 0

    def start(self, command: str) -> Stream:
        raise NotImplementedError

    def alive(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed += 1


class RefusingWorld:
    """A clock that only pauses advance, and a box that refuses logins for a while."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.errors: list[Exception] = []
        self.wires: list[FakeWire] = []
        self.told: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def login(self) -> FakeWire:
        if self.errors:
            raise self.errors.pop(0)
        self.wires.append(FakeWire())
        return self.wires[-1]

    def link(self, patience_s: float = 3600) -> ReconnectingLink:
        lost: Callable[[float], None] = lambda seconds: self.told.append(f"lost {seconds:g}")  # noqa: E731
        return ReconnectingLink(
            self.login,
            lost=lost,
            back=lambda: self.told.append("back"),
            warn=self.told.append,
            patience_s=patience_s,
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> RefusingWorld:
    made = RefusingWorld()
    monkeypatch.setattr(CancelToken, "wait", lambda _, seconds: made.sleep(seconds))
    monkeypatch.setattr("bootstrap.link.wire.time.monotonic", lambda: made.now)
    return made


LOST = LinkLost("root@box:22")


def test_a_lost_link_to_a_box_is_first_reconnected_without_a_pause(world: RefusingWorld) -> None:
    link = world.link()
    link.reconnect(LOST)
    assert (world.pauses, world.told) == ([], ["lost 0", "back"])
    assert link.wire is world.wires[1]
    assert world.wires[0].closed == 1


def test_a_first_login_is_tried_three_times_if_cut_and_once_if_refused(
    world: RefusingWorld,
) -> None:
    broken = LoginBroken("it hung up.")
    world.errors = [broken, broken]
    link = world.link()
    assert (world.pauses, link.wire) == ([1, 3], world.wires[0])
    world.errors = [broken] * 3
    with pytest.raises(LoginBroken):
        world.link()
    world.errors = [LoginRefused("no key fits."), broken]
    with pytest.raises(LoginRefused):
        world.link()


def test_a_lost_link_is_given_up_a_minute_after_its_account_said_that_the_box_ended(
    world: RefusingWorld,
) -> None:
    link = world.link()
    stopped = UnreachableError("it is stopped.")
    stopped.has_ended = True
    world.errors = [UnreachableError("no route.")] * 3 + [stopped] * 99
    with pytest.raises(UnreachableError, match="it is stopped"):
        link.reconnect(LOST)
    assert 60 < sum(world.pauses) < 90


def test_a_query_to_a_box_is_repeated_after_the_link_came_back(world: RefusingWorld) -> None:
    link = world.link()
    asked: list[Wire] = []

    def question(wire: Wire) -> str:
        asked.append(wire)
        if len(asked) < 3:
            raise LOST
        return "answer"

    assert link.ask(question) == "answer"
    assert asked == world.wires
    assert len(world.wires) == 3


def test_pauses_between_tries_to_reconnect_grow_up_to_a_maximum(world: RefusingWorld) -> None:
    link = world.link()
    world.errors = [UnreachableError("no")] * 9
    link.reconnect(LOST)
    assert world.pauses == [*PAUSES_S, *[PAUSES_S[-1]] * (9 - len(PAUSES_S))]
    assert world.told[-1] == "back"
    assert world.told.count("back") == 1


def test_reconnecting_raises_the_last_error_once_its_time_limit_is_over(
    world: RefusingWorld,
) -> None:
    link = world.link(patience_s=60)
    world.errors = [UnreachableError("no route")] * 3 + [UnreachableError("no answer")] * 1000
    with pytest.raises(UnreachableError, match="no answer"):
        link.reconnect(LOST)
    assert 60 < sum(world.pauses) <= 60 + 2 * PAUSES_S[-1]


def test_each_reason_why_reconnecting_fails_is_printed_once(world: RefusingWorld) -> None:
    link = world.link()
    world.errors = [UnreachableError("no route")] * 5 + [LoginRefused("no key fits")] * 3
    link.reconnect(LOST)
    said = [line for line in world.told if "the link can't be made yet" in line]
    assert said == [
        "the link can't be made yet: no route",
        "the link can't be made yet: no key fits",
    ]


def test_reconnecting_gives_up_early_on_a_box_that_refuses_the_login(world: RefusingWorld) -> None:
    link = world.link()
    world.errors = [LoginRefused("no key fits")] * 1000
    with pytest.raises(LoginRefused):
        link.reconnect(LOST)
    assert REFUSED_PATIENCE_S < sum(world.pauses) <= REFUSED_PATIENCE_S + 2 * PAUSES_S[-1]


def test_a_changed_host_key_ends_reconnecting_at_once(world: RefusingWorld) -> None:
    link = world.link()
    world.errors = [HostKeyError("changed")]
    with pytest.raises(HostKeyError):
        link.reconnect(LOST)
    assert world.pauses == []


def test_functions_set_for_a_reconnection_are_called_after_each_one(world: RefusingWorld) -> None:
    link = world.link()
    done: list[int] = []
    link.on_reconnect.append(lambda: done.append(len(done)))
    link.reconnect(LOST)
    link.reconnect(LOST)
    assert done == [0, 1]


def test_a_link_lost_again_just_after_reconnecting_is_reconnected(world: RefusingWorld) -> None:
    link = world.link()
    broken = [LinkLost("root@box:22")]

    def action() -> None:
        if broken:
            raise broken.pop()

    link.on_reconnect.append(action)
    link.reconnect(LOST)
    assert len(world.wires) == 3
    assert world.told[-1] == "back"


def test_the_pause_before_reconnecting_is_short_again_after_a_new_event(
    world: RefusingWorld,
) -> None:
    backoff = Backoff()
    for news in (1, 1, 1, 1, 2, 2):
        backoff.lost(LinkLost("the link broke"), news)
    first, second, third, *_ = PAUSES_S
    assert world.pauses == [first, second, third, first]
