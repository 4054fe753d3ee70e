"""`up`: from an order to a box that is set up. Whatever happens, no unknown box is left behind.

Nothing is created again after an unknown answer. A box that never comes up, or should be returned,
is given back immediately, and the next offer is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bootstrap.errors import (
    BoxstrapError,
    NoOfferError,
    ReturnBoxError,
    UnreachableError,
)
from bootstrap.providers.api import UndecidedError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Offer, RentOrder
from bootstrap.renting import destruction, rental
from bootstrap.renting.arrival import Arrival, NeverUpError, answers_ssh
from bootstrap.renting.clock import LOOK_S, RentingClock
from bootstrap.renting.ending import put_aside
from bootstrap.renting.order import low_balance, no_offer, offered_gpus, offers_of
from bootstrap.renting.rental import Rental, RentalState
from bootstrap.renting.standing import (
    find_live,
    is_still_rented,
    left_alone,
    may_be_used_since,
    may_hold,
)
from bootstrap.renting.undecided import account_for, decide, look_for
from bootstrap.text.sizes import dollars
from bootstrap.ui.reporter import Reporter

TRIES = 3
"""Boxes to rent at most until one is good."""
_REFUSALS = 10
"""Offers to try at most until one is not refused."""
_LOGIN_S = 180.0
"""How long a box that answers may take until it accepts our login, in seconds."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class RentWish:
    """What to rent, for which repository and profile, and what it may cost."""

    order: RentOrder
    public_key: str
    repo_key: str = ""
    profile: str = ""
    limit: float | None = None
    """Dollars to spend on boxes that turn out to be unusable; by default an hour of one."""
    another: bool = False
    loading_s: float = 900.0
    ask: Callable[[Offer], None] = lambda _: None
    """Called before an offer is taken, to ask the user whatever else is needed."""


class Renter:
    """Rents one box, or finds the one that is there. Every call raises BoxstrapError.

    `confirm` is called for a price that was not agreed to yet, and raises if it is refused.
    """

    def __init__(
        self,
        accounts: Sequence[CloudAccount],
        wish: RentWish,
        reporter: Reporter,
        confirm: Callable[[Offer], None],
        arrival: Arrival | None = None,
    ) -> None:
        self._accounts = {account.name: account for account in accounts}
        self._wish = wish
        self._reporter = reporter
        self._confirm = confirm
        self._arrival = arrival or Arrival(RentingClock(), answers_ssh)
        self._clock = self._arrival.clock
        self._offers: list[Offer] | None = None
        self._tried = set[tuple[str, str]]()
        self._failed = list[str]()
        self._spent = 0.0
        self._limit = wish.limit
        self._agreed = wish.order.max_price

    def run(self, set_up: Callable[[str], _T]) -> tuple[Rental, _T]:
        """Return the box, and what `set_up` returned for its host.

        Raises NoOfferError if nothing could be rented, and whatever `set_up` raises.
        """
        with rental.one_at_a_time():
            self._settle()
            box, is_new = self._next()
        while True:
            try:
                account = self._accounts[box.provider]
                box = dataclasses.replace(box, agreed=max(box.agreed, self._agreed or 0.0))
                seen = self._arrival.wait(account, box, self._longest(box), self._reporter.say)
                box = self._at_its_price(box, seen.price)
                result = self._set_up(box, set_up)
            except NeverUpError as error:
                if not is_new and may_hold(box) and is_still_rented(box):
                    raise left_alone(box, error.what) from None
                self._give_back(box, error)
            except ReturnBoxError as error:
                if not is_new:
                    raise
                self._give_back(box, error)
            else:
                box = dataclasses.replace(box, ready=True)
                if is_still_rented(box):  # else another command has given it back
                    rental.save(box)
                return box, result
            with rental.one_at_a_time():
                box, is_new = self._next()

    def _next(self) -> tuple[Rental, bool]:
        """Return the box that is there, or rent one; and whether it is new."""
        wish = self._wish
        own = (wish.repo_key, wish.profile)
        live = None if wish.another else find_live(own, self._accounts, self._clock.now())
        if live is None:
            return self._rent_next(), True
        self._reporter.note("box", f"{live.host}, rented as {live.mark}")
        return live, False

    def _settle(self) -> None:
        """Find out what became of each undecided rental; raise if that stays unknown."""
        for each in rental.all_rentals():
            if each.state is RentalState.ASKED:
                decide(each, self._accounts, self._clock.now(), self._reporter.say)
            elif each.state is RentalState.LEAVING and may_be_used_since(each, self._clock.now()):
                rental.save(dataclasses.replace(each, state=RentalState.RENTED, ready=True))
                self._reporter.warn(
                    f"{each.host} was to be given back, and somebody may have come since: it goes "
                    f"on and costs {dollars(each.price)} an hour. boxstrap down --host {each.host}"
                )
            elif each.state is RentalState.LEAVING:
                self._end(each)

    def _rent_next(self) -> Rental:
        """Rent the best offer that wasn't tried yet. Raises NoOfferError."""
        order = self._wish.order
        if self._offers is None:
            self._offers, others = offers_of([*self._accounts.values()], order)
            if not self._offers:
                raise no_offer(others, order)
            self._limit = self._limit or order.max_price or self._offers[0].price
        if len(self._failed) >= TRIES or self._spent >= (self._limit or 0.0):
            raise self._none_good()
        refusals = list[str]()
        for offer in self._offers:
            place = (offer.provider, offer.machine)
            if place in self._tried or len(refusals) >= _REFUSALS:
                continue
            self._agree(offer)
            self._tried.add(place)
            try:
                return self._rent(offer)
            except NoOfferError as error:
                if error.is_final:
                    raise
                refusals.append(error.what)
        if self._failed:
            raise self._none_good()
        raise NoOfferError(
            "every offer that fits was refused: " + " ".join(dict.fromkeys(refusals)),
            hint="Offers go quickly: run the same command again.",
        )

    def _agree(self, offer: Offer) -> None:
        if self._agreed is None or offer.price > self._agreed:
            self._confirm(offer)
            self._agreed = offer.price
        self._wish.ask(offer)

    def _rent(self, offer: Offer) -> Rental:
        wish, account = self._wish, self._accounts[offer.provider]
        if said := low_balance(account, offer.price):
            self._reporter.warn(said)
        try:
            account.add_key(wish.public_key)
        except UndecidedError as error:
            raise UnreachableError(
                f"your key could not be put into the account: {error.what} Nothing was rented.",
                where=account.name,
                hint="Run the same command again.",
            ) from None
        asked = Rental(
            rental.new_mark(),
            offer.provider,
            asked=self._clock.now(),
            gpu=offered_gpus(offer),
            machine=offer.machine,
            price=offer.price,
            agreed=self._agreed or 0.0,
            repo_key=wish.repo_key,
            profile=wish.profile,
        )
        rental.save(asked)  # before the call: whatever its outcome, the mark finds the box
        try:
            box_id = account.rent(offer, wish.order, asked.mark, wish.public_key)
        except UndecidedError as error:
            self._reporter.say(f"{account.name}: {error.what} Looking for {asked.mark} there.")
            box_id = look_for(asked, account, error, self._clock)
        except BoxstrapError:
            rental.forget(asked)
            raise
        rented = asked.as_rented(box_id, self._clock.now(), account.answered_at)
        rental.save(rented)
        self._reporter.note(
            "rented", f"{rented.host}: {rented.gpu} at {dollars(offer.price)} an hour"
        )
        return rented

    def _at_its_price(self, box: Rental, price: float | None) -> Rental:
        """Return the box with the price from its account, which may differ from the offer's."""
        if price is None or abs(price - box.price) <= rental.SAME_PRICE:
            return box
        self._reporter.warn(f"{box.host} costs {dollars(price)} an hour, not {dollars(box.price)}")
        box = dataclasses.replace(box, price=price)
        if is_still_rented(box):
            rental.save(box)
        return box

    def _longest(self, box: Rental) -> float:
        """Return for how many seconds to wait until it answers: no longer than the limit lasts."""
        left = (self._limit or 0.0) - self._spent
        if box.ready or not box.price or left <= 0:
            return self._wish.loading_s
        return min(self._wish.loading_s, max(60.0, left / box.price * 3600))

    def _set_up(self, box: Rental, set_up: Callable[[str], _T]) -> _T:
        """Set the box up; retry for a while, since it may not have our key yet."""
        until = self._clock.now() + (0 if box.ready else _LOGIN_S)
        try:
            while True:
                try:
                    return set_up(box.host)
                except UnreachableError as error:
                    if self._clock.now() >= until:
                        raise
                    self._reporter.say(f"{box.host}: {error.what} Trying again.")
                    self._clock.sleep(LOOK_S * 2)
        except ReturnBoxError:
            raise
        except BoxstrapError:
            if is_still_rented(box):
                self._reporter.warn(
                    f"{box.host} goes on and costs {dollars(box.price)} an hour. To go on with it: "
                    f"boxstrap up; to give it back: boxstrap down --host {box.host}"
                )
            raise

    def _give_back(self, box: Rental, error: BoxstrapError) -> None:
        with rental.one_at_a_time():
            if not is_still_rented(box):
                raise UnreachableError(
                    f"{error.what}: it was given back meanwhile, by another command.",
                    where=box.host,
                    hint="To rent another one: boxstrap up",
                )
            leaving = dataclasses.replace(box, state=RentalState.LEAVING, ended=self._clock.now())
            rental.save(leaving)
        self._reporter.warn(f"{box.host} is given back: {error.what}")
        self._failed.append(f"{box.host} ({box.gpu}): {error.what}")
        self._tried.add((box.provider, box.machine))
        self._end(box)
        self._spent += box.cost(self._clock.now())

    def _end(self, box: Rental) -> None:
        """Destroy it, and make sure it is gone. Raises UnreachableError if that is unknown."""
        account = account_for(box, self._accounts)
        there = account.box(box.box_id)
        if there is None or not rental.is_another(there):
            destruction.destroy(account, box.box_id, self._reporter.say)
        over = box.over(self._clock.now())
        rental.save(over)
        put_aside(over, self._reporter)

    def _none_good(self) -> NoOfferError:
        told = "\n".join(f"  {each}" for each in self._failed)
        limit = f", of {dollars(self._limit)} at the most" if self._limit else ""
        return NoOfferError(
            f"none of the rented boxes is usable, and all were given back:\n{told}",
            hint=f"That cost about {dollars(self._spent)}{limit}. Run the same command again, ask "
            "for something else in the profile, or allow more: --limit",
        )
