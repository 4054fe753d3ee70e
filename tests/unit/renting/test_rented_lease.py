"""The lease of a box that `up` rents: it always ends, and nothing is lost without asking."""

from __future__ import annotations

import pytest

from bootstrap.link import record
from bootstrap.link.prompt import Prompt
from bootstrap.profile.load import load
from bootstrap.providers.offer import Offer
from bootstrap.renting import rented_lease
from bootstrap.renting.rented_lease import RentedLease
from tests.providers.renting_world import Heard

DAY = "lease.hours=24"
DESTROY = "lease.then=destroy"


def offer(provider: str) -> Offer:
    return Offer(provider, "11", "RTX 4090", 1, 24, 0.5)


@pytest.mark.parametrize(
    ("given", "sets"),
    [
        ((), [DAY]),
        (("lease.idle=30m",), [DAY]),
        (("lease.stall=2h", "lease.then=destroy"), [DAY]),
        (("lease.hours=2",), []),
        (("lease.dollars=3", "lease.idle=30m"), []),
    ],
)
def test_a_day_is_the_end_unless_hours_or_dollars_are(given: list[str], sets: list[str]) -> None:
    heard = Heard()
    assert [*RentedLease(load(None, sets=given), heard).sets("vast:1")] == sets
    assert ("after 24 hours" in "".join(heard.lines)) == (sets == [DAY])


@pytest.mark.parametrize(
    ("provider", "given", "is_asked"),
    [
        ("vast", (), False),
        ("runpod", (), False),
        ("runpod", ("box.workdir=/data",), False),  # where its volume is mounted
        ("runpod", ("box.workdir=~/work",), True),
        ("lambda", (), True),
        ("lambda", ("lease.then=stop",), False),
    ],
)
@pytest.mark.parametrize("answer", [0, 1, None], ids=["money", "results", "no terminal"])
def test_what_yields_is_asked_where_a_stop_would_lose_something(
    provider: str,
    given: list[str],
    is_asked: bool,
    answer: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[str]()

    def choose(_: Prompt, question: str, choices: list[str]) -> str:
        asked.append(question)
        return choices[answer or 0]

    monkeypatch.setattr(Prompt, "has_terminal", lambda _: answer is not None)
    monkeypatch.setattr(Prompt, "choose", choose)
    heard = Heard()
    lease = RentedLease(load(None, sets=given), heard)
    for _ in range(2):
        lease.ask(offer(provider))
    assert len(asked) == (is_asked and answer is not None)
    results = is_asked and answer == 1
    assert [*lease.sets(f"{provider}:1")] == [*([DESTROY] if results else []), DAY]
    said = "".join(heard.lines)
    assert ("is destroyed after 24 hours" in said) == results
    goes_on = not results and (is_asked or provider == "lambda")
    assert ("nothing but you ends" in said and "To let results yield" in said) == goes_on


def test_what_was_answered_stays_when_it_is_set_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = record.KnownBox("a", "lambda:1", lease={"then": "destroy", "seconds": 1.0})
    monkeypatch.setattr(rented_lease, "all_boxes", lambda: [known])
    assert [*RentedLease(load(None), Heard()).sets("lambda:1")] == [DESTROY, DAY]
    assert [*RentedLease(load(None), Heard()).sets("lambda:2")] == [DAY]
    stop = load(None, sets=("lease.then=stop",))
    assert [*RentedLease(stop, Heard()).sets("lambda:1")] == [DAY]
