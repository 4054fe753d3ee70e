"""Rentals with an unknown outcome: find out by the mark whether a box was rented."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bootstrap.errors import BoxstrapError, NoOfferError, UnreachableError
from bootstrap.providers.accounts import PROVIDERS, find_account
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.renting import rental
from bootstrap.renting.clock import LOOK_S, RentingClock
from bootstrap.renting.rental import Rental, RentalState


def look_for(
    asked: Rental, account: CloudAccount, error: BoxstrapError, clock: RentingClock
) -> str:
    """Find the id of a rental that `error` left unknown, or raise a final NoOfferError."""
    until = clock.now() + rental.UNDECIDED_S
    while True:
        try:
            found = account.find_mark(asked.mark)
        except UnreachableError:
            found = ()
        if found:
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
    asks = [account_for(asked, accounts)] if asked.provider else _all_accounts(accounts)
    known = rental.settled(asked, [box for each in asks for box in each.find_mark(asked.mark)], now)
    if known is None:
        rental.forget(asked)
    elif known.state is RentalState.ASKED:
        minutes = (rental.NEVER_S - (now - asked.asked)) / 60 + 1
        raise _unknown(
            f"a box was perhaps rented as {asked.mark}, and its account doesn't list it: "
            "no other is rented until that is known.",
            asked.provider,
            f"Run the same command again, in {minutes:.0f} minutes at the latest, or look "
            "at the provider's page for that name.",
        )
    else:
        rental.save(known.as_rented(known.box_id, now, asks[0].answered_at))
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


def _all_accounts(accounts: Mapping[str, CloudAccount]) -> list[CloudAccount]:
    """Return the accounts that are asked for offers, and all others with a key here."""
    found = (accounts.get(name) or find_account(name) for name in PROVIDERS)
    return [account for account in found if account]


def _unknown(what: str, where: str, hint: str) -> NoOfferError:
    """Return a final error, since taking another offer might rent a second box."""
    error = NoOfferError(what, where=where, hint=hint)
    error.is_final = True
    return error
