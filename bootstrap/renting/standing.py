"""Current state of a rental: whether it is there, was given back by another command, was used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.link.record import all_boxes
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.renting import destruction, rental
from bootstrap.renting.arrival import SETTLES_S
from bootstrap.renting.rental import Rental, RentalState
from bootstrap.renting.undecided import account_for


def find_live(
    own: tuple[str, str], accounts: Mapping[str, CloudAccount], now: float
) -> Rental | None:
    """Return the rented box of this repository and profile, if there is one.

    Raises a final NoOfferError if there is no key for its account; UsageError if its account is
    not among `accounts`.
    """
    for each in rental.all_rentals():
        if each.state is not RentalState.RENTED or (each.repo_key, each.profile) != own:
            continue
        account = account_for(each, accounts)
        is_settled = each.ready or now - each.asked > SETTLES_S
        if is_settled and destruction.is_gone(account, each.box_id):
            # When it ended, and what it cost, is unknown here.
            rental.save(dataclasses.replace(each, state=RentalState.ENDED))
            continue
        if each.provider not in accounts:
            raise UsageError(
                f"{each.host} is already rented for this repository.",
                where="--provider",
                hint="To go on with it: boxstrap up; to rent one more: boxstrap up --another",
            )
        return each
    return None


def is_still_rented(box: Rental) -> bool:
    """Whether no other command has given it back, or is doing so."""
    rented = (each for each in rental.all_rentals() if each.state is RentalState.RENTED)
    return any(each.host == box.host for each in rented)


def may_be_used_since(box: Rental, now: float) -> bool:
    """Whether someone may have used the box after it was to be given back: someone logged in, or
    it was in use before and an hour has passed."""
    is_old = may_hold(box) and now - box.ended > rental.LEAVES_S
    return is_old or any(one.host_text == box.host and one.seen > box.ended for one in all_boxes())


def may_hold(box: Rental) -> bool:
    """Whether the box may hold work: a setup succeeded, or any command has logged in."""
    return box.ready or any(one.host_text == box.host and one.seen for one in all_boxes())


def left_alone(box: Rental, why: str) -> UnreachableError:
    """Return the error for a box that can't be used but may hold work."""
    return UnreachableError(
        why,
        where=box.host,
        hint="It was set up before, so it may hold results, and is not given back. If it is "
        "stopped, start it on the provider's page, and run the same command again. To rent another "
        f"one: boxstrap up --another; to give it back: boxstrap down --host {box.host}",
    )
