"""From a profile to an order, the accounts to ask, and their offers."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import BoxstrapError, NoOfferError, UsageError
from bootstrap.paths import open_regular
from bootstrap.profile.load import LoadedProfile
from bootstrap.profile.schema import Profile
from bootstrap.providers import accounts
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import KEYS, Offer, RentOrder, version_tuple, volume_at
from bootstrap.sizes import dollars
from bootstrap.value import Document

_TORCH_CUDA = re.compile(r"cu(\d\d)\d")
_LOCKED_CUDA = re.compile(
    r'name = "nvidia-cuda-runtime(?:-cu\d+)?"\nversion = "(\d+)\.'
    r'|name = "torch"\nversion = "[^"+]+\+cu(\d\d)\d"'
)
_IMAGE_CUDA = re.compile(r"(?:cuda-?|cu|cuda:)(\d\d)\.?(\d)")
_LONGEST_LOCK = 32 * 1024**2
_DISK_GB = 50
_LOW_HOURS = 24.0
_NEAREST = 5


def order_of(profile: Profile, max_price: float | None, root: Path | None = None) -> RentOrder:
    """Return what the profile orders; `max_price` overrides the profile's. `root`: the repository,
    whose lock says which CUDA its torch needs."""
    box, gpu, rent = profile.box, profile.gpu, profile.rent
    return RentOrder(
        gpu_names=gpu.names,
        gpu_count=gpu.count or 1,
        min_memory_gib=gpu.min_memory_gib,
        min_cuda=gpu.min_cuda
        or max(_torch_cuda(profile, root), _image_cuda(box.image), key=version_tuple),
        arch=box.arch,
        secure_only=rent.secure_only,
        image=box.image or "",
        disk_gb=max(box.disk_gb or _DISK_GB, round((box.min_disk_gib or 0) * 1.074 + 0.5)),
        volume=box.volume or "",
        volume_at=volume_at(box.workdir),
        spot=rent.spot,
        region=rent.region or "",
        max_price=rent.max_price if max_price is None else max_price,
        min_reliability=rent.min_reliability,
        min_down_mbps=rent.min_down_mbps,
        min_hours=rent.min_hours,
        lease_hours=profile.lease.hours if profile.lease else None,
        lease_dollars=profile.lease.dollars if profile.lease else None,
    )


def _torch_cuda(profile: Profile, root: Path | None) -> str:
    """Return the oldest CUDA that the locked torch runs on; "" if nothing says that. That is the
    first of its major version: a driver runs every later minor version's builds."""
    python, text = profile.python, ""
    if root is not None:
        with contextlib.suppress(OSError), open_regular(root / (python.lock or "uv.lock")) as file:
            text = file.read(_LONGEST_LOCK).decode(errors="replace")
    found = _TORCH_CUDA.fullmatch(python.torch_backend) or _LOCKED_CUDA.search(text)
    return f"{next(filter(None, found.groups()))}.0" if found else ""


def _image_cuda(image: str | None) -> str:
    """Return the CUDA in an image's name. Its driver must support exactly that: a container that
    needs more never starts."""
    found = _IMAGE_CUDA.search((image or "").rpartition("/")[2])
    return f"{found[1]}.{found[2]}" if found else ""


def accounts_for(
    named: str | None, loaded: LoadedProfile, *, only_look: bool = False, network: str = ""
) -> list[CloudAccount]:
    """Return the accounts to ask: that of the named provider, else all that have a key. `network`:
    only those whose boxes can share one. Raises UsageError if there is none."""
    profile = loaded.profile
    name = named or profile.rent.provider or profile.provider.account
    if name and name not in accounts.PROVIDERS:
        why = accounts.BROKEN.get(name, f"{name} is no provider.")
        raise UsageError(why, where="--provider", hint=f"One of: {', '.join(accounts.PROVIDERS)}")
    found = list[CloudAccount]()
    # An ambient key, as AWS's or Hugging Face's, is no wish to rent there.
    unasked = (each for each, kind in accounts.PROVIDERS.items() if not kind.is_ambient)
    for each in [name] if name else unasked:
        account = accounts.find_account(each)
        if account is None and only_look and not accounts.PROVIDERS[each].offers_need_key:
            account = accounts.PROVIDERS[each](None)
        found += [account] if account else []
    if not found and name and accounts.PROVIDERS[name].keys.missing:
        raise accounts.PROVIDERS[name].no_key(name)
    if not found:
        every = accounts.PROVIDERS.values()
        meant = (one for one in every if one.name == name or not (name or one.is_ambient))
        raise accounts.no_keys(meant)
    if network and not any(account.shares_network for account in found):
        able = (one.title for one in accounts.PROVIDERS.values() if one.shares_network)
        raise UsageError(
            "boxes can't be rented into one network at "
            f"{', '.join(account.title for account in found)}.",
            where="--one-network",
            hint=f"They can be at {', '.join(able)}, as in: --provider ec2",
        )
    return [account for account in found if account.shares_network or not network]


def offers_of(
    account_list: Sequence[CloudAccount], order: RentOrder
) -> tuple[list[Offer], list[Offer]]:
    """Return offers that fit the order, the first named GPU's first, then the cheapest; and the
    others, nearest first. If none fits, the others are all that there are."""
    catalog = _catalogs(account_list, order)
    fitting = [offer for offer in catalog if not offer.misses(order)]
    others = [offer for offer in catalog if offer.misses(order)]
    if not fitting:
        others = _catalogs(account_list, order.loosened())
    fitting.sort(
        key=lambda offer: (offer.preference(order), offer.price, -(offer.reliability or 0.0))
    )
    others.sort(key=lambda offer: (len(offer.misses(order)), offer.price))
    return fitting, others


def _catalogs(account_list: Sequence[CloudAccount], order: RentOrder) -> list[Offer]:
    found = list[Offer]()
    for account in account_list:
        with accounts.blaming(type(account)):
            found += account.catalog(order)
    return found


@dataclass(frozen=True)
class FoundOffer(Document):
    """An offer, what it lacks, and what it has beyond the order."""

    KEYS = "**offer, misses, exceeds"

    offer: Offer
    order: RentOrder

    @property
    def misses(self) -> list[str]:
        return self.offer.misses(self.order)

    @property
    def exceeds(self) -> list[str]:
        return self.offer.exceeds(self.order)

    def cells(self) -> tuple[str, ...]:
        offer = self.offer
        return (
            offer.provider,
            offered_gpus(offer),
            dollars(offer.price),
            f"{offer.reliability:.1%} reliable" if offer.reliability is not None else "",
            f"{offer.down_mbps:.0f}/{offer.up_mbps or 0:.0f} Mbit/s" if offer.down_mbps else "",
            offer.region,
            ", ".join([*self.misses, *self.exceeds]),
        )


def left_by(others: Sequence[Offer], order: RentOrder) -> dict[str, int]:
    """Return how many offers are left after each key of the profile that some miss, in turn."""
    missed = [offer.missed(order) for offer in others]
    found = dict[str, int]()
    for key in KEYS:
        if any(key in each for each in missed):
            missed = [each for each in missed if key not in each]
            found[key] = len(missed)
    return found


def no_offer(others: Sequence[Offer], order: RentOrder) -> NoOfferError:
    """Return the error when no offer fits, with the nearest ones."""
    lines = [
        f"  {offer.provider}: {offered_gpus(offer)} at {dollars(offer.price)} an hour: "
        f"{', '.join(offer.misses(order)) or 'not for this order, its provider says'}"
        for offer in others[:_NEAREST]
    ]
    left = left_by(others, order)
    told = ", ".join(f"{key} leaves {count or 'none'}" for key, count in left.items())
    if not left or min(left.values()):
        # Offers don't say these; a provider looks for them itself.
        told += (
            f"{', and ' if told else ''}the driver's CUDA, box.volume or box.disk_gb leaves none"
        )
    near = "\n".join(
        [
            f"Of {len(others)} offers {told}.",
            "The nearest:",
            *lines,
            "Ask for less in gpu, box or rent of the profile, or wait: --wait-offer 2h",
        ]
    )
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
    memory = f" {offer.memory_gib:.0f} GiB" if offer.memory_gib else ""
    return f"{offer.gpu_count} x {offer.gpu}{memory}"
