"""Caps on money: the user's own, whatever a repository, an option or an agent says.

They are in `config.yaml` of the configuration folder, or in the environment; where both have one,
the lower holds:

    money:
      max_price: 2.50         # dollars an hour, of one box
      max_box_dollars: 20     # of one box, until its lease is over
      max_dollars: 40         # of all boxes rented from this machine, in a day

A rental is counted with all that its lease allows, from before its provider is asked.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bootstrap.errors import NotSafeError, UsageError
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.paths import config_dir
from bootstrap.providers.offer import LEASE_HOURS, RentOrder
from bootstrap.renting.rental import Rental, RentalState, all_rentals
from bootstrap.sizes import dollars

DAY_S = 86_400.0
_ROUNDING = 1e-6
_VARIABLES = {"max_price": "BOXSTRAP_MAX_PRICE", "max_dollars": "BOXSTRAP_MAX_DOLLARS"}
_MOST_NAMED = 5


@dataclass(frozen=True)
class MoneyCaps:
    """The caps in dollars; None where there is none."""

    max_price: float | None = None  # an hour, of one box
    max_box_dollars: float | None = None  # of one box, until its lease is over
    max_dollars: float | None = None  # of all boxes rented from here: in any 24 hours

    def __bool__(self) -> bool:
        return any(cap is not None for cap in vars(self).values())


NO_CAPS = MoneyCaps()


class OverCapError(NotSafeError, keys="sum=total, cap"):
    """A cap on money would be exceeded; nothing was rented. `total` and `cap` are dollars."""

    def __init__(self, what: str, *, total: float, cap: float, hint: str) -> None:
        super().__init__(what, hint=hint)
        self.total, self.cap = round(total, 4), cap


def caps_file() -> Path:
    return config_dir() / "config.yaml"


def read_caps(env: Mapping[str, str] = os.environ) -> MoneyCaps:
    """Return the caps that hold. Raises UsageError for one that can't be read: none is ignored."""
    found = _from_file(caps_file())
    for name, variable in _VARIABLES.items():
        if variable in env:
            cap = _amount(env[variable], variable)
            found[name] = min(cap, found.get(name, cap))
    return MoneyCaps(**found)


def _from_file(file: Path) -> dict[str, float]:
    from bootstrap.profile.load import profile_label, read_own_yaml
    from bootstrap.profile.yaml_source import Keys, Scalar

    where = profile_label(file)
    caps: dict[str, float] = {}
    for section, keys in read_own_yaml(file):
        if section.text != "money" or not isinstance(keys, Keys):
            raise UsageError(
                f"line {section.line}: {section.text!r} is not a section of it.",
                where=where,
                hint="There is one: money, with max_price, max_box_dollars and max_dollars.",
            )
        for name, value in keys.entries:
            place = f"{where}:{name.line}: money.{name.text}"
            if name.text not in vars(MoneyCaps()):
                raise UsageError("there is no such cap.", where=place, hint=f"There are: {_CAPS}")
            caps[name.text] = _amount(value.text if isinstance(value, Scalar) else "", place)
    return caps


_CAPS = ", ".join(vars(MoneyCaps()))


def _amount(text: str, where: str) -> float:
    try:
        amount = float(text.strip().removeprefix("$"))
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise UsageError(
            f"{text!r} is no amount of dollars, and a cap is never ignored.",
            where=where,
            hint="As in: 2.50",
        )
    return amount


def lease_hours(order: RentOrder, price: float) -> float:
    """Return for how many hours the lease of an order lets a box of that price live."""
    by_dollars = order.lease_dollars / price if order.lease_dollars and price else None
    return min((each for each in (order.lease_hours, by_dollars) if each), default=LEASE_HOURS)


class RentalTerms(NamedTuple):
    """What is to be rented: its dollars an hour, and hours of its lease, for each of the boxes."""

    price: float
    hours: float
    boxes: int = 1


def check_caps(
    caps: MoneyCaps, asks: RentalTerms, now: float, *, instead_of: Rental | None = None
) -> None:
    """Raise OverCapError if that exceeds a cap.

    `instead_of`: the box that is there already, if it is that one. Call it while no other command
    can rent (`rental.one_at_a_time`), and save the rental before letting go.
    """
    price, hours, boxes = asks
    if caps.max_price is not None and price > caps.max_price + _ROUNDING:
        raise too_dear(caps, price)
    alone, most = price * hours, caps.max_box_dollars
    if most is not None and alone > most + _ROUNDING:
        raise OverCapError(
            f"a box at {dollars(price)} an hour costs {dollars(alone)} in the {hours:g} hours of "
            f"its lease; max_box_dollars allows {dollars(most)}. Nothing was rented.",
            total=alone,
            cap=most,
            hint=f"{_shorter(most / price)}\n{_where()}",
        )
    if caps.max_dollars is None:
        return
    known = {box.host_text: box for box in all_boxes()}
    rows = [
        (each, _in_a_day(each, known.get(each.host), now))
        for each in all_rentals()
        if instead_of is None or each.mark != instead_of.mark
    ]
    before = sum(cost for _, cost in rows)
    asked = now if instead_of is None else instead_of.asked
    own = boxes * price * _counted(asked, asked + hours * 3600, now)
    if before + own > caps.max_dollars + _ROUNDING:
        left = max(0.0, caps.max_dollars - before)
        raise OverCapError(
            f"{dollars(own)} for {'this box' if boxes == 1 else f'these {boxes} boxes'} "
            f"({dollars(price)} an hour, {hours:g} hours of lease)"
            f"{_named(rows)} is {dollars(before + own)} in a day; max_dollars allows "
            f"{dollars(caps.max_dollars)}. Nothing was rented.",
            total=before + own,
            cap=caps.max_dollars,
            hint=f"{_shorter(left / (boxes * price)) if left else _WAIT}\n{_where()}",
        )


def too_dear(caps: MoneyCaps, price: float) -> OverCapError:
    cap = caps.max_price or 0.0
    return OverCapError(
        f"{dollars(price)} an hour is more than max_price allows: {dollars(cap)}. Nothing was "
        "rented.",
        total=price,
        cap=cap,
        hint=f"See what there is: boxstrap up --dry-run. {_where()}",
    )


def _where() -> str:
    return f"The cap is in {caps_file()}, or in the environment."


def check_longer_lease(box: KnownBox, added_s: float, now: float) -> None:
    """Raise NotSafeError if a rented box may not go on for so many seconds more; inf: for ever."""
    ours = next((each for each in all_rentals() if each.host == box.host_text), None)
    caps = read_caps()
    if ours is None or not caps:
        return
    hint = f"To give it back: boxstrap down --host {box.name}. {_where()}"
    if math.isinf(added_s):
        raise NotSafeError(
            "without its lease nothing limits what the box costs, and there is a cap on money.",
            where=box.name,
            hint=hint,
        )
    hours = (_until(ours, box) - ours.asked + added_s) / 3600
    try:
        check_caps(caps, RentalTerms(ours.price, hours), now, instead_of=ours)
    except OverCapError as error:
        error.what = error.what.replace("Nothing was rented.", "Its lease is as it was.")
        error.hint = hint
        raise


def _in_a_day(rental: Rental, box: KnownBox | None, now: float) -> float:
    """Return what it cost in the last 24 hours, and may still cost in the next."""
    over = rental.state is RentalState.ENDED
    until = rental.ended if over and rental.ended else _until(rental, box)
    hours = _counted(rental.asked, min(until, now) if over else until, now)
    return rental.boxes * rental.price * hours


def _until(rental: Rental, box: KnownBox | None) -> float:
    """Return when its lease is over, counted from when it was asked for."""
    hours = rental.hours or LEASE_HOURS
    if rental.ready and box and not box.lease:
        return math.inf  # it was released
    if box and box.lease and rental.price:
        by_time = (box.of_lease("seconds") or math.inf) / 3600
        by_dollars = (box.of_lease("dollars") or math.inf) / rental.price
        hours = min(by_time, by_dollars)
    extended = box.of_lease("extended") if box else None
    return rental.asked + hours * 3600 + (extended or 0.0)


def _counted(asked: float, until: float, now: float) -> float:
    """Return the hours from `asked` to `until` that lie within a day of now, before or after."""
    return max(0.0, min(until, now + DAY_S) - max(asked, now - DAY_S)) / 3600


def _named(rows: Sequence[tuple[Rental, float]]) -> str:
    paid = [(each, cost) for each, cost in rows if cost >= 0.005]
    names = [f"{dollars(cost)} for {each.host or each.mark}" for each, cost in paid[:_MOST_NAMED]]
    if more := paid[_MOST_NAMED:]:
        names.append(f"{dollars(sum(cost for _, cost in more))} for {len(more)} more")
    return f" and {', '.join(names)}" if names else ""


_WAIT = "Give back what you no longer need (boxstrap boxes --all); what was spent counts for a day."


def _shorter(hours: float) -> str:
    least = math.floor(hours * 100) / 100
    return f"A shorter lease fits: --set lease.hours={least:g}" if least >= 0.1 else _WAIT
