"""How a rental stands now: whether it is there, was given back by another command, was used."""

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
    """The box of this repository and profile that is there already.

    Raises NoOfferError, final, where its account can't be asked for want of a key; UsageError where
    that isn't one of those that were asked for.
    """
    for each in rental.all_rentals():
        if each.state is not RentalState.RENTED or (each.repo_key, each.profile) != own:
            continue
        account = account_for(each, accounts)
        is_settled = each.ready or now - each.asked > SETTLES_S
        if is_settled and destruction.is_gone(account, each.box_id):
            # When it ended, and what it came to, nobody here saw.
            rental.save(dataclasses.replace(each, state=RentalState.ENDED))
            continue
        if each.provider not in accounts:
            raise UsageError(
                f"{each.host} was rented for this repository already, and is there.",
                where="--provider",
                hint="To go on with it: boxstrap up; to rent one more: boxstrap up --another",
            )
        return each
    return None


def is_still_rented(box: Rental) -> bool:
    """Whether no other command has given it back, or is about to."""
    rented = (each for each in rental.all_rentals() if each.state is RentalState.RENTED)
    return any(each.host == box.host for each in rented)


def was_met_since(box: Rental, now: float) -> bool:
    """Whether somebody may have worked there after it was to be given back: who logged in, or,
    where it was in use before, whoever came in an hour."""
    is_old = may_hold(box) and now - box.ended > rental.LEAVES_S
    return is_old or any(one.host_text == box.host and one.seen > box.ended for one in all_boxes())


def may_hold(box: Rental) -> bool:
    """Whether somebody may have put work there since: whoever logged in, by whatever command."""
    return box.ready or any(one.host_text == box.host and one.seen for one in all_boxes())


def left_alone(box: Rental, why: str) -> UnreachableError:
    """What is raised of a box that can't be used, and may hold something."""
    return UnreachableError(
        why,
        where=box.host,
        hint="It was set up before, so it may hold results, and is not given back. If it is "
        "stopped, start it on the provider's page, and run the same command again. To rent another "
        f"one: boxstrap up --another; to give it back: boxstrap down --host {box.host}",
    )
