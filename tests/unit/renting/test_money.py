"""Caps on money: which hold, what is counted, and that no day costs more, whatever is rented."""

import dataclasses
import math
import random
from collections.abc import Iterable

import pytest

from bootstrap.errors import NotSafeError, UsageError
from bootstrap.link import KnownBox
from bootstrap.providers import RentOrder
from bootstrap.renting import Rental, RentalState, money, rental
from bootstrap.renting.money import (
    MoneyCaps,
    OverCapError,
    RentalTerms,
    check_caps,
    lease_hours,
    read_caps,
)
from bootstrap.value import document

HOUR = 3600.0
NOW = 1_800_000_000.0


def write(text: str) -> None:
    money.caps_file().parent.mkdir(parents=True, exist_ok=True)
    money.caps_file().write_text(text)


@pytest.mark.parametrize(
    ("text", "env", "caps"),
    [
        ("", {}, MoneyCaps()),
        ("money: {max_price: 2.50, max_box_dollars: 20}", {}, MoneyCaps(2.5, 20.0)),
        ("", {"BOXSTRAP_MAX_PRICE": "$1.5"}, MoneyCaps(1.5)),
        ("money: {max_price: 1}", {"BOXSTRAP_MAX_PRICE": "9"}, MoneyCaps(1.0)),
        ("money: {max_dollars: 40}", {"BOXSTRAP_MAX_DOLLARS": "0"}, MoneyCaps(max_dollars=0.0)),
    ],
)
def test_of_two_money_caps_in_file_and_environment_the_lower_one_applies(
    text: str, env: dict[str, str], caps: MoneyCaps
) -> None:
    if text:
        write(text)
    assert read_caps(env) == caps


@pytest.mark.parametrize(
    ("text", "env", "says"),
    [
        ("", {"BOXSTRAP_MAX_PRICE": ""}, "BOXSTRAP_MAX_PRICE"),
        ("", {"BOXSTRAP_MAX_DOLLARS": "ten"}, "never ignored"),
        ("", {"BOXSTRAP_MAX_DOLLARS": "nan"}, "never ignored"),
        ("money: {max_price: -1}", {}, "never ignored"),
        ("money: {max_prize: 1}", {}, "no such cap"),
        ("money: 5", {}, "max_box_dollars"),
        ("cash: {max_price: 1}", {}, "max_box_dollars"),
        ("money: {max_price: [1]}", {}, "never ignored"),
        ("money: {", {}, "config.yaml"),
    ],
)
def test_a_money_cap_that_can_not_be_parsed_is_a_usage_error(
    text: str, env: dict[str, str], says: str
) -> None:
    if text:
        write(text)
    with pytest.raises(UsageError) as found:
        read_caps(env)
    assert says in found.value.text()


@pytest.mark.parametrize(
    ("order", "hours"),
    [
        (RentOrder(), 24),
        (RentOrder(lease_hours=3), 3),
        (RentOrder(lease_dollars=4), 8),
        (RentOrder(lease_hours=3, lease_dollars=1), 2),
    ],
)
def test_a_lease_of_hours_and_dollars_lasts_until_the_first_of_the_two_is_used_up(
    order: RentOrder, hours: float
) -> None:
    assert lease_hours(order, 0.5) == hours


def rented(mark: int, price: float, began: float, hours: float, **more: object) -> Rental:
    one = Rental(f"boxstrap-{mark:012x}", "vast", RentalState.RENTED, NOW + began * HOUR, str(mark))
    one = dataclasses.replace(one, price=price, hours=hours, **more)
    rental.save_rental(one)
    return one


@pytest.mark.parametrize(
    ("began", "hours", "ended", "left"),
    [
        (-1, 24, None, 24.0),  # all that it may still cost, and what it did
        (-1, 2, None, 2.0),
        (-30, 48, None, 24 + 18),  # a day back, and a day ahead
        (-30, 24, None, 18),
        (-5, 24, -2, 3),
        (-40, 24, -25, 0),
    ],
)
def test_max_dollars_counts_what_rentals_cost_from_24_hours_ago_to_24_hours_ahead(
    began: float, hours: float, ended: float | None, left: float
) -> None:
    over = {"state": RentalState.ENDED, "ended": NOW + (ended or 0) * HOUR} if ended else {}
    rented(1, 1.0, began, hours, **over)
    check_caps(MoneyCaps(max_dollars=left + 2.0), RentalTerms(1.0, 2), NOW)
    with pytest.raises(OverCapError) as found:
        check_caps(MoneyCaps(max_dollars=left + 1.9), RentalTerms(1.0, 2), NOW)
    assert document(found.value)["sum"] == pytest.approx(left + 2)
    assert "max_dollars allows" in found.value.what


def test_an_offer_above_max_price_or_max_box_dollars_is_an_error_that_names_the_cap() -> None:
    check_caps(MoneyCaps(max_price=0.5, max_box_dollars=12), RentalTerms(0.5, 24), NOW)
    with pytest.raises(OverCapError, match=r"\$0.51 an hour is more than max_price") as dear:
        check_caps(MoneyCaps(max_price=0.5), RentalTerms(0.51, 1), NOW)
    with pytest.raises(OverCapError) as found:
        check_caps(MoneyCaps(max_box_dollars=12), RentalTerms(0.5, 25), NOW)
    assert found.value.hint.startswith("A shorter lease fits: --set lease.hours=24")
    for one in (found, dear):
        assert f"The cap is in {money.caps_file()}, or in the environment." in one.value.hint


def test_a_lease_can_not_be_extended_beyond_the_money_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    rented(1, 1.0, -1, 10, ready=True)
    box = KnownBox("gpu", "vast:1", lease={"seconds": 10 * HOUR, "extended": HOUR})
    monkeypatch.setattr(money, "all_boxes", lambda: [box])
    money.check_longer_lease(box, math.inf, NOW)  # no cap
    monkeypatch.setenv("BOXSTRAP_MAX_DOLLARS", "12")
    write("money: {max_box_dollars: 12}")
    monkeypatch.setattr(money, "read_caps", lambda: MoneyCaps(1.0, 12.0, 20.0))
    money.check_longer_lease(box, HOUR, NOW)
    with pytest.raises(OverCapError, match=r"Its lease is as it was\.") as found:
        money.check_longer_lease(box, 1.1 * HOUR, NOW)
    assert found.value.hint.startswith("To give it back: boxstrap down --host gpu. The cap is in ")
    with pytest.raises(NotSafeError, match="nothing limits"):
        money.check_longer_lease(box, math.inf, NOW)
    money.check_longer_lease(KnownBox("mine", "root@203.0.113.7"), math.inf, NOW)
    # One whose lease was released before there was a cap counts for the whole day.
    monkeypatch.setattr(money, "all_boxes", lambda: [KnownBox("gpu", "vast:1")])
    with pytest.raises(OverCapError, match=r"\$25.00 for vast:1"):
        check_caps(MoneyCaps(max_dollars=25), RentalTerms(1.0, 1), NOW)


def dearest_day(rentals: Iterable[Rental]) -> float:
    """The most that any 24 hours cost, if each lease is used to its end."""
    spans = [(one.asked, one.ended or one.asked + one.hours * HOUR, one.price) for one in rentals]
    ends = [end for _, end, _ in spans]
    days = (
        sum(price * max(0.0, min(end, to) - max(begin, to - 86_400)) for begin, end, price in spans)
        / HOUR
        for to in [*ends, *(begin + 86_400 for begin, _, _ in spans)]
    )
    return max(days, default=0.0)


@pytest.mark.slow
def test_random_sequences_of_rentals_never_cost_more_than_max_dollars_in_24_hours(
    seeded: random.Random,
) -> None:
    for _ in range(20):
        caps = MoneyCaps(max_dollars=seeded.uniform(5, 60))
        for each in rental.all_rentals():
            rental.forget_rental(each)
        now, refused = NOW, 0
        for mark in range(30):
            now += seeded.expovariate(1 / 4) * HOUR
            alive = [
                one
                for one in rental.all_rentals()
                if one.state is RentalState.RENTED and one.asked + one.hours * HOUR > now
            ]
            if alive and seeded.random() < 0.4:
                rental.save_rental(seeded.choice(alive).over(now))
                continue
            price, hours = seeded.uniform(0.2, 4), seeded.uniform(0.5, 40)
            try:
                check_caps(caps, RentalTerms(price, hours), now)
                rented(mark, price, (now - NOW) / HOUR, hours)
            except OverCapError:
                refused += 1
        assert dearest_day(rental.all_rentals()) <= (caps.max_dollars or 0) + 1e-6
        assert refused
