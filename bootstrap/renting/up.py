"""`up`: the request, and how it is done; the profile is the order, and a setup follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bootstrap.consent import EVERYTHING, TO_RENT, load_profile
from bootstrap.errors import UsageError
from bootstrap.providers.offer import Offer, RentOrder
from bootstrap.renting import rental
from bootstrap.renting.order import accounts_for, offers_of, order_of
from bootstrap.renting.rent import Renter, RentWish
from bootstrap.renting.rental import Rental
from bootstrap.renting.rented_lease import RentedLease

if TYPE_CHECKING:
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.result import SetupResult
    from bootstrap.ui.reporter import Reporter


@dataclass(frozen=True)
class UpRequest:
    """A box to rent, and the setup that follows."""

    setup: SetupRequest
    provider: str | None = None
    max_price: float | None = None
    """Dollars an hour."""
    limit: float | None = None
    """Dollars to spend on boxes that turn out to be unusable."""
    another: bool = False


@dataclass(frozen=True)
class FoundOffers:
    """Offers that fit, cheapest first, and others, the nearest to the order first."""

    order: RentOrder
    fitting: Sequence[Offer]
    others: Sequence[Offer]


def find_offers(request: UpRequest) -> FoundOffers:
    """Get offers without renting. Raises as `accounts_for` and `CloudAccount.catalog`."""
    loaded = load_profile(request.setup)
    order = order_of(loaded.profile, request.max_price)
    accounts = accounts_for(request.provider, loaded, only_look=True)
    return FoundOffers(order, *offers_of(accounts, order))


def rent_and_set_up(
    request: UpRequest, reporter: Reporter, confirm: Callable[[Offer], None]
) -> tuple[Rental, SetupResult]:
    """Rent a box and set it up, or set up the one already there. Raises as `Renter.run`."""
    from bootstrap.profile.detect_provider import FALLBACK
    from bootstrap.setup.payload import build_payload
    from bootstrap.setup.sequence import run_setup

    setup = request.setup
    # Which account pays is named by the user on the command line, or needs their consent.
    loaded = load_profile(setup, kinds=EVERYTHING if request.provider else TO_RENT)
    accounts = accounts_for(request.provider, loaded)
    # Raise whatever a setup would raise, before anything is paid for.
    build_payload(loaded.for_provider(FALLBACK), setup, local=False)

    lease = RentedLease(loaded, reporter)

    @cache  # report the lease once per box, however often its setup is retried
    def leased(host: str) -> SetupRequest:
        ours = rental.of_host(host)
        began = (ours.began or ours.asked) if ours and not ours.ready else None
        sets = (*setup.sets, *lease.sets(host))
        return dataclasses.replace(setup, host=host, sets=sets, rented=began)

    def set_up(host: str) -> SetupResult:
        return run_setup(leased(host), reporter)

    wish = _wish(request, loaded, lease)
    return Renter(accounts, wish, reporter, confirm).run(set_up)


def _wish(request: UpRequest, loaded: LoadedProfile, lease: RentedLease) -> RentWish:
    """Return the wish of `Renter`. Raises UsageError without an ssh key that a box could accept."""
    from bootstrap.link.keys import own_public_key
    from bootstrap.repo.here import read

    profile, setup = loaded.profile, request.setup
    key = own_public_key(setup.identity or profile.ssh.identity)
    if key is None:
        raise UsageError(
            "there is no ssh key that a box could let in, and none can be put there later.",
            where="--identity",
            hint="Make one with `ssh-keygen -t ed25519`, or name one with --identity.",
        )
    return RentWish(
        order_of(profile, request.max_price),
        key.line,
        repo_key=read(setup.place).key,
        profile=setup.profile or profile.name,
        limit=request.limit,
        another=request.another,
        loading_s=profile.rent.loading_minutes * 60.0,
        ask=lease.ask,
    )
