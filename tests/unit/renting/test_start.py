"""A stopped box is started once, at a price that was agreed to, and isn't paid for in vain."""

import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bootstrap.errors import ReturnBoxError, UnreachableError
from bootstrap.providers import (
    RefusedError,
    RefusedKeyError,
    RentedBox,
    RentedState,
    UndecidedError,
)
from bootstrap.renting import ownership, start
from bootstrap.renting.start import Arrival, RentingClock, start_rented

OFF = RentedBox("vast", "1", "", RentedState.STOPPED, price=1.0)
ON = RentedBox("vast", "1", "", RentedState.RUNNING, "H100", 1, "203.0.113.7", 22, price=1.0)


class StartedAccount:
    """An account whose box is seen in these states in turn, the last one for ever."""

    name, title, loading_minutes, stops = "vast", "Vast.ai", 5, True

    def __init__(self, *seen: RentedBox | Exception | None, refuses: Any = None) -> None:
        self.did: list[str] = []
        self._seen, self._refuses = list(seen), refuses

    def start(self, box_id: str) -> None:
        self.did.append(f"start {box_id}")
        if self._refuses:
            raise self._refuses

    def stop(self, box_id: str) -> None:
        self.did.append(f"stop {box_id}")

    def box(self, box_id: str) -> RentedBox | None:
        seen = self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]
        if isinstance(seen, Exception):
            raise seen
        return seen


def begin(account: Any, *, answers: bool = True, most: float = 1.0) -> tuple[list[str], float]:
    """Start it; return what was said, and the seconds that it took."""
    now, said = [1000.0], list[str]()
    clock = RentingClock(lambda: now[0], lambda wait: now.__setitem__(0, now[0] + wait))
    start_rented(account, OFF, most, Arrival(clock, lambda _: answers), said.append)
    return said, now[0] - 1000.0


@pytest.mark.parametrize(
    ("seen", "refuses"),
    [
        ((OFF, ON), None),
        ((OFF, None, UnreachableError("it does not answer."), ON), None),
        ((ON,), UndecidedError("no answer came.")),
    ],
    ids=["soon", "not seen for a while", "no answer to the start"],
)
def test_a_stopped_rented_box_is_started_once_and_waited_for_until_it_runs(
    seen: Sequence[RentedBox | Exception | None], refuses: Exception | None
) -> None:
    account = StartedAccount(*seen, refuses=refuses)
    said, waited = begin(account)
    assert account.did == ["start 1"]
    assert waited == start.LOOK_S * (len(seen) - 1)
    assert ("Looking whether it starts" in " ".join(said)) == bool(refuses)


@pytest.mark.parametrize(
    ("seen", "answers", "says"),
    [
        (ON, False, "it doesn't answer 5 minutes after its start (running)"),
        (OFF, False, "it doesn't answer 1 minutes after its start (stopped)"),
        (None, False, "after its start (its account doesn't list it)"),
        (UnreachableError("no way."), False, "after its start (no way.)"),
        (replace(OFF, state=RentedState.BROKEN, said="no disk"), True, "is broken (no disk)"),
        (replace(ON, price=1.5), True, "$1.50 an hour now, not"),
    ],
    ids=["silent", "stays off", "not listed", "no account", "broken", "dearer"],
)
def test_a_stopped_box_that_is_started_but_never_usable_is_stopped_again_with_an_error(
    seen: Any, answers: bool, says: str
) -> None:
    account = StartedAccount(seen)
    with pytest.raises(UnreachableError) as found:
        begin(account, answers=answers)
    assert says in found.value.what
    assert account.did == ["start 1", "stop 1"]


@pytest.mark.parametrize(
    ("account", "error", "says"),
    [
        (StartedAccount(OFF, refuses=RefusedError("no GPU is free.")), UnreachableError, "no GPU"),
        (StartedAccount(RentedBox("vast", "1", "", RentedState.GONE)), UnreachableError, "is gone"),
        (StartedAccount(RefusedKeyError("the key is refused.")), RefusedKeyError, "the key"),
        (StartedAccount(replace(ON, gpu_count=0)), ReturnBoxError, "GPU"),
    ],
    ids=["refused", "gone", "no key", "no GPU"],
)
def test_a_box_start_that_fails_for_good_raises_an_error_and_requests_no_stop(
    account: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        begin(account)
    assert account.did == ["start 1"]


def test_ctrl_c_while_a_box_starts_warns_that_it_may_cost_money() -> None:
    said: list[str] = []

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    account: Any = StartedAccount(OFF)
    clock = RentingClock(lambda: 0.0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        start_rented(account, OFF, 1.0, Arrival(clock, lambda _: False), said.append)
    assert "may be running now, or start later, and cost money" in said[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "is_ssh"), [(b"SSH-2.0-x\r\n", True), (b"HTTP/1.1", False)])
def test_a_started_box_is_reachable_only_once_it_sends_an_ssh_banner(
    first: bytes, is_ssh: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            with server.accept()[0] as one:
                one.sendall(first)

        thread = threading.Thread(target=answer)
        thread.start()
        box = RentedBox("vast", "1", "", RentedState.RUNNING, address="127.0.0.1", port=port)
        assert start.answers_ssh(box) is is_ssh
        thread.join()
    assert not start.answers_ssh(box)  # nobody listens there any more


def test_an_unusable_started_box_that_can_not_be_stopped_gives_an_error_that_it_costs_money(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: str) -> None:
        raise UnreachableError("no way.")

    account: Any = StartedAccount(OFF)
    monkeypatch.setattr(account, "stop", fail)
    with pytest.raises(UnreachableError, match="could not be stopped again, and costs money"):
        begin(account, answers=False)


@pytest.mark.parametrize(
    ("seen", "stops", "agrees", "started"),
    [
        (OFF, True, True, True),
        (OFF, True, False, False),
        (OFF, False, True, False),  # its account starts none
        (ON, True, True, False),
        (None, True, True, False),
    ],
)
def test_a_stopped_box_is_started_only_if_the_user_agrees(
    monkeypatch: pytest.MonkeyPatch,
    seen: RentedBox | None,
    stops: bool,
    agrees: bool,
    started: bool,
) -> None:
    account: Any = StartedAccount(seen, ON)
    account.stops = stops
    asked: list[str] = []
    monkeypatch.setattr(ownership, "account_of", lambda host: (account, host.partition(":")[2]))
    monkeypatch.setattr(start, "answers_ssh", lambda _: True)

    def confirm(question: str) -> bool:
        asked.append(question)
        return agrees

    assert start.start_asked("vast:1", 9.0, confirm, asked.append) is started
    assert account.did == (["start 1"] if started else [])
    assert (asked[:1] == ["vast:1 is stopped. Start it at $1.00 an hour?"]) == (
        seen is OFF and stops
    )
