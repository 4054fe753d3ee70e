"""What became of a rental, by its account: one whose outcome is unknown is found by its mark, and
one that was made is there, was given back by another command, or may hold work."""

import dataclasses
from collections.abc import Callable, Mapping

from bootstrap.errors import BoxstrapError, NoOfferError, UnreachableError, UsageError
from bootstrap.providers.accounts import PROVIDERS, find_account
from bootstrap.providers.api import RefusedKeyError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.renting import cluster, rental
from bootstrap.renting.rental import Rental, RentalState
from bootstrap.renting.start import LOOK_S, SETTLES_S, RentingClock


def look_for(
    asked: Rental, account: CloudAccount, error: BoxstrapError, clock: RentingClock
) -> str:
    """Find the id of a rental that `error` left unknown, or raise a final NoOfferError."""
    until = clock.now() + rental.UNDECIDED_S
    while True:
        try:
            found = account.find_mark(asked.mark)
        except RefusedKeyError as refused:
            found, error, until = (), refused, clock.now()  # it would be refused again
        except UnreachableError:
            found = ()
        if found and not found[0].is_unfilled:
            return found[0].id
        if clock.now() >= until:
            raise _unknown(
                f"it is unknown whether a box was rented as {asked.mark}: {error.what}",
                account.name,
                "It is looked for before anything else is rented: run the same command "
                "again. Until it is known it is in: boxstrap boxes --all",
            ) from None
        clock.sleep(LOOK_S)


def decide(
    asked: Rental, accounts: Mapping[str, CloudAccount], now: float, say: Callable[[str], None]
) -> None:
    """Find out now whether it was rented. Raises a final NoOfferError if that stays unknown."""
    # Else those that are asked for offers, and all others with a key here.
    every = (accounts.get(name) or find_account(name) for name in PROVIDERS)
    asks = [account_for(asked, accounts)] if asked.provider else [each for each in every if each]
    found = [box for each in asks for box in each.find_mark(asked.mark)]
    known = rental.settled(asked, found, now)
    if unfilled := next((box for box in found if box.is_unfilled), None):
        raise _unknown(
            f"{unfilled.host} was ordered as {asked.mark}, and is there without pods: it may cost "
            "money, and nothing else is rented until that is over.",
            asked.provider,
            f"Run the same command again in a minute; to end it: boxstrap down --host "
            f"{unfilled.host} --discard",
        )
    if known is None:
        rental.forget_rental(asked)
    elif known.state is RentalState.ASKED:
        minutes = max(0.0, rental.NEVER_S - (now - asked.asked)) / 60 + 1
        raise _unknown(
            f"a box was perhaps rented as {asked.mark}, and its account doesn't list it: "
            "no other is rented until that is known.",
            asked.provider,
            f"Run the same command again, in {minutes:.0f} minutes at the latest, or look "
            "at the provider's page for that name.",
        )
    else:
        rental.save_rental(known.as_rented(known.box_id, now, asks[0].answered_at))
        say(f"{known.host} was rented, though no answer came: it is {known.mark}")


def account_for(box: Rental, accounts: Mapping[str, CloudAccount]) -> CloudAccount:
    """Return the account of a rental. Raises a final NoOfferError if its key is missing."""
    name = box.provider
    account = accounts.get(name) or (find_account(name) if name in PROVIDERS else None)
    if account is None:
        raise _unknown(
            f"{box.host or f'{box.mark} perhaps'} was rented there, and there is no key to look.",
            name,
            "Put the key back where it was, and run the same command again.",
        )
    return account


def _unknown(what: str, where: str, hint: str) -> NoOfferError:
    """Return a final error, since taking another offer might rent a second box."""
    return NoOfferError(what, where=where, hint=hint, is_final=True)


def find_live_rental(
    own: tuple[str, str],
    accounts: Mapping[str, CloudAccount],
    now: float,
    *,
    instead_of: frozenset[str] = frozenset(),
) -> Rental | None:
    """Return the rented box of this repository and profile, if there is one beside `instead_of`.
    Raises a final NoOfferError without its account's key; UsageError if that is not in
    `accounts`."""
    rented = [
        each
        for each in rental.all_rentals()
        if (each.repo_key, each.profile) == own
        and each.host not in instead_of
        and each.state is RentalState.RENTED
    ]
    in_use = {each.cluster for each in rented if each.ready}
    for each in rented:
        if each.cluster and each.cluster in in_use and not each.ready:
            continue  # another box of its cluster is good
        account = account_for(each, accounts)
        is_settled = each.ready or now - each.asked > SETTLES_S
        if is_settled and account.is_gone(each.box_id):
            if other := cluster.still_there(each, account):
                each = dataclasses.replace(each, box_id=other.id)  # noqa: PLW2901
                rental.save_rental(each)
                return each
            # When it ended, and what it cost, is unknown here.
            rental.save_rental(dataclasses.replace(each, state=RentalState.ENDED))
            continue
        if each.provider not in accounts:
            raise UsageError(
                f"{each.host} is already rented for this repository.",
                where="--provider",
                hint=f"To go on with it: boxstrap up --provider {each.provider}; to rent one more: "
                "boxstrap up --another",
            )
        return each
    return None


def is_still_rented(box: Rental) -> bool:
    """Whether no other command has given it back, or is doing so."""
    rented = (each for each in rental.all_rentals() if each.state is RentalState.RENTED)
    return any(each.host == box.host for each in rented)


def left_alone(box: Rental, why: str) -> UnreachableError:
    """Return the error for a box that can't be used but may hold work."""
    return UnreachableError(
        why,
        where=box.host,
        hint="It was set up before, so it may hold results, and is not given back. If it is "
        "stopped, the same command starts it at a terminal, or within --max-price. To rent another "
        f"one: boxstrap up --another; to give it back: boxstrap down --host {box.host}",
    )
