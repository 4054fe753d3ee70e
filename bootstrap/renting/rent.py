"""`up`: from an order to a box that is set up. Whatever happens, no unknown box is left behind.

Nothing is created again after an unknown answer. A box that never comes up, or should be returned,
is given back immediately, and the next offer is taken.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bootstrap.errors import (
    BoxstrapError,
    NoOfferError,
    NotSafeError,
    ReturnBoxError,
    UnreachableError,
)
from bootstrap.providers.api import RefusedKeyError, UndecidedError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import LEASE_HOURS, Offer, RentedState, RentOrder
from bootstrap.renting import cluster, rental, start, teardown
from bootstrap.renting.money import (
    NO_CAPS,
    MoneyCaps,
    RentalTerms,
    check_caps,
    lease_hours,
    too_dear,
)
from bootstrap.renting.order import low_balance, no_offer, offered_gpus, offers_of
from bootstrap.renting.rental import Rental, RentalState, may_be_used_since, may_hold
from bootstrap.renting.rental_check import (
    account_for,
    decide,
    find_live_rental,
    is_still_rented,
    left_alone,
    look_for,
)
from bootstrap.renting.start import LOOK_S, Arrival, NeverUpError, RentingClock, answers_ssh
from bootstrap.renting.teardown import put_aside
from bootstrap.sizes import dollars, duration
from bootstrap.ui.screen import Reporter

TRIES = 3  # boxes to rent at most until one is good
_REFUSALS = 10  # offers to try at most until one is not refused
_LOGIN_S = 180.0  # how long a box that answers may take until it accepts our login, in seconds
_WAIT_S = 60.0  # seconds between two looks for an offer, where one is waited for
_T = TypeVar("_T")


@dataclass(frozen=True)
class RentOptions:
    """What to rent, for which repository and profile, and what it may cost."""

    order: RentOrder
    public_key: str
    repo_key: str = ""
    profile: str = ""
    limit: float | None = None
    """Dollars to spend on boxes that turn out to be unusable; by default an hour of one."""
    another: bool = False
    loading_s: float | None = None
    """How long a box may take until it can be reached; None: what its provider's usually take."""
    wait_s: float = 0.0  # for how long to wait for an offer that fits
    instead_of: frozenset[str] = frozenset()  # hosts of rented boxes that are not to be used
    ask: Callable[[Offer], None] = lambda _: None
    """Called before an offer is taken, to ask the user whatever else is needed."""
    may_start: Callable[[str], bool] = lambda _: False
    """Asks the user whether to start a stopped box at a price that was not agreed to yet."""
    caps: MoneyCaps = NO_CAPS  # what the user's own configuration allows, whatever was asked for


def _all_refused(which: str, refusals: Sequence[NoOfferError]) -> NoOfferError:
    """Return the error for offers that were all refused, with advice that can help."""
    may_pass = {each.may_pass for each in refusals}
    error = NoOfferError(which + " ".join(dict.fromkeys(each.what for each in refusals)))
    if True in may_pass:
        error.hint = "Offers go quickly: run the same command again."
    elif None in may_pass or not refusals:
        error.hint = (
            "If that is for want of a free box, the same command may find one later; "
            "otherwise change what it names."
        )
    else:
        error.is_final = True
        error.hint = (
            "The same command will be refused again: change what is named there, or order another "
            "gpu.name, rent.region or rent.provider."
        )
    return error


def _perhaps_kept_out(box: Rental, account: CloudAccount) -> NoOfferError:
    """Return the error for a box that ran unheard: another one would most likely be the same."""
    return NoOfferError(
        f"{box.host} ran, and nothing answered at its address; it was given back, and no other one "
        f"is rented. {account.title} lets in ssh from {account.lets_in} alone.",
        hint="If your ssh leaves by another address than https does (a VPN, a proxy, a second "
        "line), name the range that it comes from, as in: export BOXSTRAP_LET_IN=198.51.100.0/24",
        is_final=True,
    )


class Renter:
    """Rents one box, or finds the one that is there. Every call raises BoxstrapError.

    `confirm` is called for a price that was not agreed to yet, and raises if it is refused.
    """

    def __init__(
        self,
        accounts: Sequence[CloudAccount],
        wish: RentOptions,
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
        self._refused = set[tuple[str, str]]()  # offers that were asked for: provider and id
        self._bad = set[tuple[str, str]]()  # machines of boxes that were given back
        self._failed = list[str]()
        self._spent = 0.0
        self._limit = wish.limit
        self._agreed = wish.order.max_price
        self._until = self._clock.now() + wish.wait_s

    def run(self, set_up: Callable[[str], _T]) -> tuple[Rental, _T]:
        """Return the box, and what `set_up` made of it. Raises NoOfferError, and as that."""
        wish = self._wish
        box, is_new = self._next()
        while True:
            try:
                account = self._accounts[box.provider]
                if not is_new:
                    self._start_stopped(account, box)
                    with contextlib.suppress(BoxstrapError):  # its answer says whether it is
                        account.let_in(box.box_id)
                if not (is_new and wish.caps):  # its own price was counted, and no more
                    box = dataclasses.replace(box, agreed=max(box.agreed, self._agreed or 0.0))
                seen = self._arrival.wait(account, box, self._longest(box), self._reporter.say)
                box = cluster.note_members(self._at_its_price(box, seen.price), account, seen)
                result = self._set_up(box, set_up)
            except RefusedKeyError:
                self._tell_it_goes_on(box)
                raise
            except NeverUpError as error:
                if not is_new and may_hold(box) and is_still_rented(box):
                    raise left_alone(box, error.what) from None
                if error.was_off and is_new:  # its hours are not paid for until it is started
                    box = dataclasses.replace(box, price=0.0)
                self._give_back(box, error)
                if error.is_silent and account.lets_in:
                    raise _perhaps_kept_out(box, account) from None
            except ReturnBoxError as error:
                if not is_new:
                    raise
                self._give_back(box, error)
            else:
                box = dataclasses.replace(box, ready=True)
                if is_still_rented(box):  # else another command has given it back
                    rental.save_rental(box)
                return box, result
            box, is_new = self._next()

    def _next(self) -> tuple[Rental, bool]:
        """Return the box that is there, or rent one, and whether it is new; wait for an offer as
        long as was wished. Others may rent in the meantime."""
        while True:
            try:
                with rental.one_at_a_time():
                    self._settle()
                    return self._find_or_rent()
            except NoOfferError as error:
                left = self._until - self._clock.now()
                if error.is_final or left <= 0:
                    raise
                price = self._wish.order.max_price
                within = f" within {dollars(price)} an hour" if price else ""
                self._reporter.say(
                    f"waiting for an offer{within}, {duration(left)} more: {error.what}"
                )
                self._clock.sleep(min(_WAIT_S, left))
                self._offers = None
                self._refused.clear()

    def _find_or_rent(self) -> tuple[Rental, bool]:
        wish = self._wish
        own = (wish.repo_key, wish.profile)
        now = self._clock.now()
        live = None
        if not wish.another:
            live = find_live_rental(own, self._accounts, now, instead_of=wish.instead_of)
        if live is None:
            return self._rent_next(), True
        hours = lease_hours(wish.order, live.price)
        named = wish.order.lease_hours or wish.order.lease_dollars  # else its lease stays
        costs_more = hours > (live.hours or LEASE_HOURS)  # than was counted
        if named and wish.caps and costs_more:
            check_caps(wish.caps, RentalTerms(live.price, hours), now, instead_of=live)
            live = dataclasses.replace(live, hours=hours)
            rental.save_rental(live)
        self._reporter.note("box", f"{live.host}, rented as {live.mark}")
        return live, False

    def _start_stopped(self, account: CloudAccount, box: Rental) -> None:
        """Start a box that was used before, if it is stopped and the user agrees to its price."""
        seen = account.box(box.box_id) if may_hold(box) and account.stops else None
        if seen is None or rental.is_another(seen):
            return
        start.check_gpus(seen)
        if seen.state is not RentedState.STOPPED:
            return
        price = seen.price or box.price
        is_agreed = self._agreed is not None and price <= self._agreed + rental.SAME_PRICE
        if is_agreed or self._wish.may_start(start.question(seen, price)):
            start.start_rented(account, seen, price, self._arrival, self._reporter.say)

    def _settle(self) -> None:
        """Find out what became of each undecided rental; raise if that stays unknown."""
        for each in rental.all_rentals():
            if each.state is RentalState.ASKED:
                decide(each, self._accounts, self._clock.now(), self._reporter.say)
            elif each.state is RentalState.LEAVING:
                self._end_leaving(each)

    def _end_leaving(self, box: Rental) -> None:
        """End a box that was to be given back before, unless somebody may have come since."""
        if not may_be_used_since(box, self._clock.now()):
            with contextlib.suppress(NotSafeError):  # to one of its cluster
                self._end(box)
                return
        rental.save_rental(dataclasses.replace(box, state=RentalState.RENTED, ready=True))
        self._reporter.warn(
            f"{box.host} was to be given back, and somebody may have come since: it goes "
            f"on and costs {dollars(box.price)} an hour. boxstrap down --host {box.host}"
        )

    def _rent_next(self) -> Rental:
        """Rent the best offer that wasn't tried yet. Raises NoOfferError."""
        order = self._wish.order
        if self._offers is None:
            self._offers, others = self._look()
            if not self._offers:
                raise no_offer(others, order)
            cap = self._wish.caps.max_price
            within = [each for each in self._offers if cap is None or each.price <= cap]
            if not within:
                raise too_dear(self._wish.caps, min(each.price for each in self._offers))
            self._offers = within
            self._limit = self._limit or order.max_price or self._offers[0].price
        if len(self._failed) >= TRIES or self._spent >= (self._limit or 0.0):
            raise self._none_good()
        refusals, left = list[NoOfferError](), 0
        for offer in self._offers:
            named, machine = (offer.provider, offer.id), (offer.provider, offer.machine)
            if named in self._refused or machine in self._bad:
                continue
            if len(refusals) >= _REFUSALS:
                left += 1
                continue
            if self._agreed is None or offer.price > self._agreed:
                self._confirm(offer)
                self._agreed = offer.price
            self._wish.ask(offer)
            self._refused.add(named)
            try:
                return self._rent(offer)
            except NoOfferError as error:
                if error.is_final:
                    raise
                refusals.append(error)
        if self._failed:
            raise self._none_good()
        which = "every offer that fits was refused: "
        if left:
            which = f"{len(refusals)} offers were refused, and {left} more were not asked for: "
        raise _all_refused(which, refusals)

    def _look(self) -> tuple[list[Offer], list[Offer]]:
        """Return offers as `offers_of`; while waiting, no answer is no offer yet."""
        try:
            return offers_of([*self._accounts.values()], self._wish.order)
        except RefusedKeyError:
            raise
        except UnreachableError as error:
            if not self._wish.wait_s:
                raise
            raise NoOfferError(error.what, where=error.where, hint=error.hint) from None

    def _rent(self, offer: Offer) -> Rental:
        wish, account = self._wish, self._accounts[offer.provider]
        hours = lease_hours(wish.order, offer.price)
        if wish.caps:
            check_caps(wish.caps, RentalTerms(offer.price, hours, offer.boxes), self._clock.now())
        if said := low_balance(account, offer.price * offer.boxes):
            self._reporter.warn(said)
        try:
            account.add_key(wish.public_key)
        except UndecidedError as error:
            raise UnreachableError(
                f"your key could not be put into the account: {error.what} Nothing was rented.",
                where=account.name,
                hint="Run the same command again.",
            ) from None
        if account.keys_page:
            self._reporter.say(
                f"{account.title} lets in the keys of {account.keys_page} alone: yours must be "
                f"there, {wish.public_key}"
            )
        asked = Rental(
            rental.new_mark(),
            offer.provider,
            asked=self._clock.now(),
            gpu=offered_gpus(offer),
            machine=offer.machine,
            price=offer.price,
            agreed=offer.price if wish.caps else self._agreed or 0.0,
            repo_key=wish.repo_key,
            profile=wish.profile,
            spot=offer.bid is not None,
            hours=hours,
            boxes=offer.boxes,
        )
        rental.save_rental(asked)  # before the call: whatever its outcome, the mark finds the box
        try:
            box_id = account.rent(offer, wish.order, asked.mark, wish.public_key)
        except UndecidedError as error:
            self._reporter.say(f"{account.name}: {error.what} Looking for {asked.mark} there.")
            box_id = look_for(asked, account, error, self._clock)
        except BoxstrapError:
            rental.forget_rental(asked)
            raise
        rented = asked.as_rented(box_id, self._clock.now(), account.answered_at)
        rental.save_rental(rented)
        if account.lets_in:
            self._reporter.note("lets in", f"ssh from {account.lets_in} alone")
        first = f"the first of {offer.boxes} boxes, each " if offer.boxes > 1 else ""
        self._reporter.note(
            "rented", f"{rented.host}: {first}{rented.gpu} at {dollars(offer.price)} an hour"
        )
        return rented

    def _at_its_price(self, box: Rental, price: float | None) -> Rental:
        """Return the box with the price from its account, which may differ from the offer's."""
        if price is None or abs(price - box.price) <= rental.SAME_PRICE:
            return box
        self._reporter.warn(f"{box.host} costs {dollars(price)} an hour, not {dollars(box.price)}")
        box = dataclasses.replace(box, price=price)
        if is_still_rented(box):
            rental.save_rental(box)
        return box

    def _longest(self, box: Rental) -> float:
        """Return for how many seconds to wait until it answers: no longer than the limit lasts."""
        left, longest = (self._limit or 0.0) - self._spent, self._wish.loading_s
        if longest is None:
            longest = self._accounts[box.provider].loading_minutes * 60.0
        if box.ready or not box.price or left <= 0:
            return longest
        return min(longest, max(60.0, left / box.price * 3600))

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
        except (ReturnBoxError, RefusedKeyError):
            raise
        except BoxstrapError:
            self._tell_it_goes_on(box)
            raise

    def _tell_it_goes_on(self, box: Rental) -> None:
        if is_still_rented(box):
            self._reporter.warn(
                f"{box.host} goes on and costs {dollars(box.price)} an hour. To go on with it: "
                f"boxstrap up; to give it back: boxstrap down --host {box.host}"
            )

    def _give_back(self, box: Rental, error: BoxstrapError) -> None:
        if box.boxes > 1 or box.cluster:
            self._refuse_with_others(box, error)
        with rental.one_at_a_time():
            if not is_still_rented(box):
                raise UnreachableError(
                    f"{error.what}: it was given back meanwhile, by another command.",
                    where=box.host,
                    hint="To rent another one: boxstrap up",
                )
            leaving = dataclasses.replace(box, state=RentalState.LEAVING, ended=self._clock.now())
            rental.save_rental(leaving)
        self._reporter.warn(f"{box.host} is to be given back: {error.what}")
        self._failed.append(f"{box.host} ({box.gpu}): {error.what}")
        self._bad.add((box.provider, box.machine))
        try:
            self._end(box)
        except UnreachableError as unknown:
            self._reporter.note("rented", f"{box.host}: perhaps not given back, it may cost money")
            unknown.where = box.host
            unknown.what = (
                f"it was to be given back ({error.what}), and it is unknown whether it is gone: "
                f"{unknown.what}"
            )
            first = f"{unknown.hint}\n" if isinstance(unknown, RefusedKeyError) else ""
            unknown.hint = (
                f"{first}It may still cost {dollars(box.price)} an hour. Once its account answers: "
                f"boxstrap down --host {box.host}; it is gone if `boxstrap boxes --all` ends with "
                "exit 0 and doesn't list it."
            )
            raise
        boxes = max(box.boxes, self._wish.order.boxes if box.cluster else 1)
        cost = box.price * max(0.0, self._clock.now() - box.asked) / 3600
        self._reporter.note(
            "rented", f"{box.host}: given back, it cost about {dollars(cost * boxes)}"
        )
        self._spent += cost  # what several may cost was divided among them

    def _refuse_with_others(self, box: Rental, error: BoxstrapError) -> None:
        """Raise UnreachableError if the box is of a cluster of which another one may hold work."""
        account = account_for(box, self._accounts)
        try:
            cluster.others_to_end(account, cluster.still_there(box, account), self._clock.now())
        except NotSafeError as kept:
            raise UnreachableError(
                f"{error.what}; {kept.what}", where=box.host, hint=kept.hint
            ) from None
        except UnreachableError:
            return  # its end says that its account can't be asked

    def _end(self, box: Rental) -> None:
        """Destroy it, and make sure it is gone. Raises UnreachableError if that is unknown;
        NotSafeError if another box of its cluster may hold work."""
        account = account_for(box, self._accounts)
        there = cluster.still_there(box, account)
        others = cluster.others_to_end(account, there, self._clock.now())
        if there is None or not rental.is_another(there):
            of_cluster = there.cluster if there else ""
            teardown.destroy(account, box.box_id, self._reporter.say, of_cluster=of_cluster)
        members = (rental.of_host(each.host) for each in others if each.host != box.host)
        for each in (box, *filter(None, members)):
            over = each.over(self._clock.now())
            rental.save_rental(over)
            put_aside(over, self._reporter)

    def _none_good(self) -> NoOfferError:
        told = "\n".join(f"  {each}" for each in self._failed)
        limit = f", of {dollars(self._limit)} at the most" if self._limit else ""
        return NoOfferError(
            f"none of the rented boxes is usable, and all were given back:\n{told}",
            hint=f"That cost about {dollars(self._spent)}{limit}. Run the same command again, ask "
            "for something else in the profile, or allow more: --limit",
            is_final=True,  # money is spent on each: that is not waited for
        )
