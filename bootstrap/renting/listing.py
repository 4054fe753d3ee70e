"""What this machine rented, for `boxes --all`, which shows it with the accounts' boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bootstrap.providers.rented import RentedBox
from bootstrap.renting import rental
from bootstrap.renting.rental import Rental, RentalState
from bootstrap.text.sizes import duration

_SAID = {
    RentalState.RENTED: "rented by boxstrap up: run it again to go on",
    RentalState.LEAVING: "to be destroyed, and still there: boxstrap up tries again",
}


@dataclass(frozen=True)
class RentedHere:
    """The hosts that were rented from here, and the rentals with an unknown outcome."""

    hosts: Mapping[str, str]
    unknown: Sequence[Rental]
    now: float

    def lines(self) -> list[str]:
        """Return a line for each rental with an unknown outcome."""
        return [
            f"{each.provider or 'somewhere'}  {each.mark}  perhaps rented, "
            f"{duration(max(0.0, self.now - each.asked))} ago: its account doesn't list it. "
            "Nothing else is rented until that is known: boxstrap up"
            for each in self.unknown
        ]


def rented_here(answers: Iterable[tuple[str, Sequence[RentedBox]]], now: float) -> RentedHere:
    """Update the rentals by the accounts' answers; what these don't decide stays unknown."""
    by_provider = dict(answers)
    everywhere = [box for boxes in by_provider.values() for box in boxes]
    for each in rental.all_rentals():
        if each.state is RentalState.ASKED and (each.provider in by_provider or not each.provider):
            known = rental.settled(each, by_provider.get(each.provider, everywhere), now)
            if known is None:
                if each.provider:  # if unknown, an account that didn't answer may have it
                    rental.forget(each)
            elif known != each:
                rental.save(known)
    rentals = rental.all_rentals()
    return RentedHere(
        {each.host: _SAID[each.state] for each in rentals if each.state in _SAID},
        [each for each in rentals if each.state is RentalState.ASKED],
        now,
    )
