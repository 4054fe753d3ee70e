"""From a profile to an order, the accounts to ask, and their offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError, NoOfferError, UsageError
from bootstrap.providers import accounts
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Offer, RentOrder
from bootstrap.text.sizes import dollars

if TYPE_CHECKING:
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.profile.schema import Profile

_DISK_GB = 50
_LOW_HOURS = 24.0
_SHOWN = 20
_NEAREST = 5


def order_of(profile: Profile, max_price: float | None) -> RentOrder:
    """Return what the profile orders; `max_price` overrides the profile's."""
    box, gpu, rent = profile.box, profile.gpu, profile.rent
    workdir = box.workdir if box.workdir.startswith("/") else "/workspace"
    return RentOrder(
        gpu_name=gpu.name or "",
        gpu_count=gpu.count or 1,
        min_memory_gib=gpu.min_memory_gib,
        min_cuda=gpu.min_cuda or "",
        image=box.image or "",
        disk_gb=max(box.disk_gb or _DISK_GB, round((box.min_disk_gib or 0) * 1.074 + 0.5)),
        volume=box.volume or "",
        volume_at=workdir,
        spot=rent.spot,
        region=rent.region or "",
        max_price=rent.max_price if max_price is None else max_price,
    )


def accounts_for(
    named: str | None, loaded: LoadedProfile, *, only_look: bool = False
) -> list[CloudAccount]:
    """Return the accounts to ask: that of the named provider, else all that have a key.

    Raises UsageError if there is none, NoOfferError if boxstrap can't rent from that provider.
    """
    profile = loaded.profile
    name = named or profile.rent.provider or profile.provider.account
    if name and name not in accounts.PROVIDERS:
        raise UsageError(f"{name} is no provider.", where="--provider", hint=f"One of: {_listed()}")
    if name and (why := accounts.PROVIDERS[name].cant_rent):
        raise NoOfferError(why, where=name)
    found = list[CloudAccount]()
    for each in [name] if name else _renting():
        account = accounts.find_account(each)
        if account is None and only_look and not accounts.PROVIDERS[each].offers_need_key:
            account = accounts.PROVIDERS[each](None)
        found += [account] if account else []
    if not found:
        places = "\n".join(
            f"  {one.title}: {one.keys}"
            for one in accounts.PROVIDERS.values()
            if one.name == name or (not name and not one.cant_rent)
        )
        raise UsageError(
            f"no key of an account was found. Looked at:\n{places}",
            hint="Put the key of yours there; it stays on this machine.",
        )
    return found


def offers_of(
    account_list: Sequence[CloudAccount], order: RentOrder
) -> tuple[list[Offer], list[Offer]]:
    """Return offers that fit the order, cheapest first, and the others, nearest first."""
    catalog = [offer for account in account_list for offer in account.catalog(order)]
    fitting = [offer for offer in catalog if not offer.misses(order)]
    others = [offer for offer in catalog if offer.misses(order)]
    fitting.sort(key=lambda offer: (offer.price, -(offer.reliability or 0.0)))
    others.sort(key=lambda offer: (len(offer.misses(order)), offer.price))
    return fitting, others


def offer_rows(offers: Sequence[Offer], order: RentOrder) -> list[tuple[str, ...]]:
    """Return a table row for each of the first offers."""
    return [
        (
            offer.provider,
            offered_gpus(offer),
            dollars(offer.price),
            f"{offer.reliability:.1%} reliable" if offer.reliability is not None else "",
            f"{offer.down_mbps:.0f}/{offer.up_mbps or 0:.0f} Mbit/s" if offer.down_mbps else "",
            offer.region,
            ", ".join([*offer.misses(order), *offer.exceeds(order)]),
        )
        for offer in offers[:_SHOWN]
    ]


def as_dict(offer: Offer, order: RentOrder) -> dict[str, object]:
    """Return the offer as `--json` prints it."""
    price = round(offer.price, 6)
    return {
        **vars(offer),
        "price": price,
        "misses": offer.misses(order),
        "exceeds": offer.exceeds(order),
    }


def no_offer(others: Sequence[Offer], order: RentOrder) -> NoOfferError:
    """Return the error when no offer fits, with the nearest ones."""
    lines = [
        f"  {offer.provider}: {offered_gpus(offer)} at {dollars(offer.price)} an hour: "
        f"{', '.join(offer.misses(order))}"
        for offer in others[:_NEAREST]
    ]
    near = "\n".join(["The nearest:", *lines, "Ask for less in gpu, box or rent of the profile."])
    return NoOfferError(
        "no offer fits the order.", hint=near if lines else "Look again later, or elsewhere."
    )


def low_balance(account: CloudAccount, price: float) -> str:
    """Return a warning if the balance lasts less than a day at this price; else ""."""
    try:
        left = account.balance()
    except BoxstrapError:
        return ""  # renting reports it, if it matters
    if left is None or left >= price * _LOW_HOURS:
        return ""
    hours = max(0.0, left) / price if price else 0.0
    return f"{account.title}: {dollars(left)} left, about {hours:.1f} hours of this box"


def offered_gpus(offer: Offer) -> str:
    """Describe an offer's GPUs."""
    memory = f" {offer.memory_gib:.0f} GiB" if offer.memory_gib else ""
    return f"{offer.gpu_count} x {offer.gpu}{memory}"


def _renting() -> list[str]:
    return [name for name, one in accounts.PROVIDERS.items() if not one.cant_rent]


def _listed() -> str:
    return ", ".join(_renting())
