"""The lease of a box that `up` rents: it always ends, and nothing is lost without asking."""

from dataclasses import replace

import pytest

from bootstrap.errors import UsageError
from bootstrap.link import record
from bootstrap.link.prompt import Prompt
from bootstrap.profile.load import read_profile
from bootstrap.providers import Offer
from bootstrap.renting import up
from bootstrap.renting.up import RentedLease
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
def test_a_rented_box_gets_a_lease_of_24_hours_unless_hours_or_dollars_are_set(
    given: list[str], sets: list[str]
) -> None:
    heard = Heard()
    assert [*RentedLease(read_profile(None, sets=given), heard).sets("vast:1")] == sets
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
def test_up_asks_if_the_lease_should_stop_or_destroy_a_box_that_loses_files_at_a_stop(
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
    lease = RentedLease(read_profile(None, sets=given), heard)
    for _ in range(2):
        lease.ask(offer(provider))
    assert len(asked) == (is_asked and answer is not None)
    results = is_asked and answer == 1
    assert [*lease.sets(f"{provider}:1")] == [*([DESTROY] if results else []), DAY]
    said = "".join(heard.lines)
    assert ("is destroyed after 24 hours" in said) == results
    goes_on = not results and (is_asked or provider == "lambda")
    assert ("nothing but you ends" in said and "To let results yield" in said) == goes_on


def test_up_warns_that_the_lease_of_a_box_that_can_not_end_itself_needs_guard() -> None:
    for provider, then, says in (
        ("paperspace", "stop", "is stopped after 24 hours"),
        ("paperspace", "destroy", "is destroyed after 24 hours"),
        ("lambda", "destroy", "is destroyed after 24 hours"),
        ("vast", "stop", ""),
        ("runpod", "destroy", ""),
    ):
        heard = Heard()
        profile = read_profile(None, sets=(f"lease.then={then}",))
        assert [*RentedLease(profile, heard).sets(f"{provider}:1")] == [DAY]
        (said,) = heard.lines
        assert says in said
        assert ("if a machine of yours guards it: boxstrap guard" in said) == bool(says)


def test_a_hugging_face_job_is_always_destroyed_at_its_lease_end_and_a_stop_is_refused() -> None:
    heard = Heard()
    lease = RentedLease(read_profile(None, sets=("lease.hours=3",)), heard)
    lease.ask(offer("hf"))
    assert [*lease.sets("hf:1")] == [DESTROY]
    (said,) = heard.lines
    assert "hf:1 is destroyed when its lease is over" in said
    assert "by its own limit half an hour later; if something on it is not safe at home" in said
    assert said.endswith("then, that is lost")
    stop = RentedLease(read_profile(None, sets=("lease.hours=3", "lease.then=stop")), heard)
    with pytest.raises(UsageError, match="Hugging Face Jobs stops no box") as refused:
        stop.ask(offer("hf"))
    assert "lease.then=destroy" in refused.value.hint


@pytest.mark.parametrize(
    ("given", "hours", "is_told"),
    [
        ((), 20.0, True),
        ((), 25.0, False),
        ((), None, False),
        (("lease.hours=48",), 25.0, True),
        (("lease.dollars=3",), 2.0, False),
    ],
)
def test_up_warns_of_an_offer_that_ends_before_the_lease(
    given: list[str], hours: float | None, is_told: bool
) -> None:
    heard = Heard()
    RentedLease(read_profile(None, sets=given), heard).ask(replace(offer("vast"), hours=hours))
    assert ("--set rent.min_hours=" in "".join(heard.lines)) == is_told


def test_a_later_up_of_a_box_set_to_be_destroyed_at_its_lease_end_does_not_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = record.KnownBox("a", "lambda:1", lease={"then": "destroy"})
    monkeypatch.setattr(up, "all_boxes", lambda: [known])
    assert [*RentedLease(read_profile(None), Heard()).sets("lambda:1")] == [DESTROY, DAY]
    assert [*RentedLease(read_profile(None), Heard()).sets("lambda:2")] == [DAY]
    stop = read_profile(None, sets=("lease.then=stop",))
    assert [*RentedLease(stop, Heard()).sets("lambda:1")] == [DAY]


def test_up_repeats_the_lease_of_a_known_box_unless_the_profile_sets_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = {"seconds": 21600.0, "dollars": 3.5, "idle": 1800, "then": "stop", "set": 1e9}
    known = record.KnownBox("a", "vast:1", lease=terms)
    monkeypatch.setattr(up, "all_boxes", lambda: [known])
    kept = ["lease.hours=6", "lease.dollars=3.5", "lease.idle=1800s"]
    assert [*RentedLease(read_profile(None), Heard()).sets("vast:1")] == kept
    assert read_profile(None, sets=kept).profile.lease
    named = read_profile(None, sets=("lease.hours=2",))
    assert [*RentedLease(named, Heard()).sets("vast:1")] == []


@pytest.mark.parametrize(
    ("provider", "given", "says"),
    [
        ("lambda", ["box.volume=data"], "mounted at /lambda/nfs/data there"),
        ("lambda", ["box.volume=data", "box.workdir=/lambda/nfs/data"], ""),
        ("lambda", ["box.volume=data", "box.workdir=/data/work"], ""),
        ("lambda", ["box.volume=data", "box.workdir=/opt/work"], "/opt/work is not on it"),
        ("lambda", [], ""),
        ("runpod", ["box.volume=v5"], ""),
        ("vast", ["box.volume=5"], ""),
    ],
)
def test_up_warns_once_of_a_workdir_outside_the_mounted_volume(
    provider: str, given: list[str], says: str
) -> None:
    heard = Heard()
    lease = RentedLease(read_profile(None, sets=[*given, "lease.then=stop"]), heard)
    lease.ask(offer(provider))
    lease.ask(offer(provider))
    warned = [line for line in heard.lines if "volume" in line]
    assert len(warned) == bool(says)
    assert says in "".join(warned)
