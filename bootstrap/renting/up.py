"""`up`: the profile is the order, and a setup follows. A lease ends a forgotten box."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from bootstrap.errors import NoOfferError, UsageError
from bootstrap.link.prompt import Prompt
from bootstrap.link.record import all_boxes
from bootstrap.link.registry import check_new_name, name_is_taken
from bootstrap.onbox.lease.instance import HOLD
from bootstrap.profile.consent import EVERYTHING, TO_RENT, Grants, load_profile, not_agreed
from bootstrap.profile.detect_provider import FALLBACK
from bootstrap.profile.load import LoadedProfile
from bootstrap.providers import FIXED_END, ONLY_END, STOPPED_END
from bootstrap.providers.accounts import PROVIDERS, never_stops
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import LEASE_HOURS, Offer, RentOrder, StopRule
from bootstrap.renting import rental
from bootstrap.renting.money import read_caps
from bootstrap.renting.order import accounts_for, offers_of, order_of
from bootstrap.renting.rent import Renter, RentOptions
from bootstrap.renting.rental import Rental
from bootstrap.repo.local import read_repository
from bootstrap.setup.request import SetupRequest
from bootstrap.sizes import duration
from bootstrap.ui.screen import Reporter

_GUARD = "boxstrap guard"
_YIELDS = (
    "money: it keeps running and costing, and each command says so",
    "results: it is ended, and what of it is not safe at home then is lost",
)
"""The first is the default."""


class RentedLease:
    """The lease's settings, as `--set` takes them, once the box's provider is known."""

    def __init__(self, loaded: LoadedProfile, reporter: Reporter) -> None:
        self._loaded, self._reporter = loaded, reporter
        self._then: dict[str, str] = {}
        self._told = set[str]()  # providers whose volume was warned about
        self._in_cluster = False

    def ask(self, offer: Offer) -> None:
        """Ask whether to give up results or money at the end, if a stop would lose something."""
        provider = PROVIDERS[offer.provider]
        lease = self._loaded.profile.lease
        self._in_cluster = offer.boxes > 1
        if offer.provider in ONLY_END:
            if lease and lease.then == "stop" and "lease.then" in self._loaded.origins:
                raise never_stops(provider.name)
            self._then[offer.provider] = "destroy"
        self._tell_volume(provider)
        self._tell_contract(offer)
        prompt = Prompt(self._reporter.say)
        if offer.provider in self._then or "lease.then" in self._loaded.origins:
            return
        self._then[offer.provider] = "stop"
        loses = self._loses(provider)
        if loses and prompt.has_terminal():
            question = f"{provider.title} {loses}. What yields when the lease is over?"
            results = prompt.choose(question, _YIELDS) == _YIELDS[1]
            self._then[offer.provider] = "destroy" if results else "stop"

    def _tell_volume(self, provider: type[CloudAccount]) -> None:
        """Warn once if the working folder is not on the volume that is rented with the box."""
        profile = self._loaded.for_provider(provider.name).profile
        order, workdir = order_of(profile, None), profile.box.workdir
        place = provider.volume_place(order)
        is_on_it = f"{workdir}/".startswith(f"{place}/")
        if order.volume and not is_on_it and provider.name not in self._told:
            self._told.add(provider.name)
            self._reporter.warn(
                f"the volume {order.volume} is mounted at {place} there, and the working folder "
                f"{workdir} is not on it: what is made there is lost with the box. To put it "
                f"there: --set box.workdir={place}"
            )

    def _tell_contract(self, offer: Offer) -> None:
        """Warn if the box can't go on for as long as its lease: its host's contract ends."""
        lease = self._loaded.profile.lease
        wanted = lease.hours if lease else None
        if wanted is None and not (lease and lease.dollars):
            wanted = LEASE_HOURS
        if offer.hours is not None and wanted is not None and offer.hours < wanted:
            self._reporter.warn(
                f"its host's contract ends in {duration(offer.hours * 3600)}, and the box with it: "
                f"before the {wanted:g} hours of the lease are over. For one that goes on for "
                f"longer: --set rent.min_hours={wanted:g}"
            )

    def _stops(self, provider: type[CloudAccount]) -> StopRule | None:
        return provider.stop_rule(
            is_spot=self._loaded.profile.rent.spot, in_cluster=self._in_cluster
        )

    def _loses(self, provider: type[CloudAccount]) -> str:
        """Return why a stop at this provider loses something; "" if it doesn't."""
        stops = self._stops(provider)
        if stops is None and self._in_cluster:
            return "can't stop a box of a cluster, nor destroy it without the others"
        if stops is None:
            return "can't stop a spot box" if provider.stops else "can't stop a box"
        volume = order_of(self._loaded.profile, None).volume_at
        workdir = self._loaded.for_provider(provider.name).profile.box.workdir
        if not stops.only_volume or f"{workdir}/".startswith(f"{volume}/"):
            return ""
        return f"keeps {stops.keeps} of a stopped box, and {workdir} is not on it"

    def sets(self, host: str) -> Sequence[str]:
        """Return the settings for a setup of this box, and report them; later setups keep them."""
        name, lease = host.partition(":")[0], self._loaded.profile.lease
        ours = rental.of_host(host)
        self._in_cluster = ours is not None and bool(ours.cluster)
        known = next((one for one in all_boxes() if one.host_text == host and one.lease), None)
        sets = []
        if "lease.then" not in self._loaded.origins:
            then = str(known.lease.get("then")) if known else self._then.get(name)
            then = "destroy" if name in ONLY_END else then
            sets = ["lease.then=destroy"] if then == "destroy" else []
        destroys = bool(sets) or (lease is not None and lease.then == "destroy")
        when, why = "when its lease is over", ""
        names_limit = lease is not None and (lease.hours or lease.dollars)
        if not names_limit and known and (kept := _limits_of(known.lease)):
            sets += kept  # what was agreed on when it was rented: no day instead of six hours
        elif not names_limit:
            sets.append(f"lease.hours={LEASE_HOURS}")
            when = f"after {LEASE_HOURS} hours"
            why = ", as the profile names neither hours nor dollars of a lease"
        provider = PROVIDERS[host.partition(":")[0]]
        loses, stops = self._loses(provider), self._stops(provider)
        holds = provider.name in HOLD and not self._in_cluster
        guarded = "" if holds else f", if a machine of yours guards it: {_GUARD}"
        deleted = ""
        stops_itself = provider.name in STOPPED_END
        if stops_itself:
            deleted = f". Else {provider.title} stops it within half an hour of that{_OF_A_DAY}"
        elif provider.name in FIXED_END and stops:
            deleted = f". Else {provider.title} deletes it, with its disk, half an hour later"
        if destroys and stops and not provider.destroys_itself:
            self._reporter.say(
                f"{host} is stopped {when}{why}: it can't destroy itself. Then it costs "
                f"{stops.costs} until you give it back: boxstrap down --host {host}{deleted}"
            )
        elif destroys:
            instead = "it is stopped instead" if stops else "that is lost"
            anyway = (
                ", and by its own limit half an hour later" if provider.name in ONLY_END else ""
            )
            self._reporter.say(
                f"{host} is destroyed {when}{why}{guarded}{anyway}; if something on it is not safe "
                f"at home then, {instead}{deleted if stops_itself else ''}"
            )
        elif loses:
            self._reporter.warn(
                f"nothing but you ends {host}: {provider.title} {loses}. It goes on {when}{why}, "
                "and on costing, and each command says so. To let results yield: "
                "--set lease.then=destroy"
            )
        elif stops_itself and stops:
            self._reporter.warn(
                f"{provider.title} gives a box no key to end itself with: {host} is stopped {when}"
                f"{why}{guarded}{deleted}. Stopped it still costs {stops.costs}"
            )
        elif guarded:
            self._reporter.warn(
                f"{provider.title} gives a box no key to end itself with: {host} is stopped {when}"
                f"{why}{guarded}; without that it goes on, and on costing, and each command says so"
            )
        elif stops and why:
            self._reporter.say(
                f"{host} is stopped {when}{why}; stopped it still costs {stops.costs}, and keeps "
                f"{stops.keeps}{deleted}"
            )
        return sets


_OF_A_DAY = ", after a lease of at most a day; a longer one nothing else ends"
_KEPT = {
    "seconds": ("hours", 3600, ""),
    "dollars": ("dollars", 1, ""),
    "idle": ("idle", 1, "s"),
    "stall": ("stall", 1, "s"),
}
"""Of a recorded limit: its key of the profile, what its number is divided by, and the unit."""


def _limits_of(terms: Mapping[str, object]) -> list[str]:
    """Return the settings of a recorded lease; none if it has no limit of time or money."""
    found = {name: each for name, each in terms.items() if isinstance(each, int | float) and each}
    if found.keys().isdisjoint(("seconds", "dollars")):
        return []
    return [
        f"lease.{key}={found[name] / per:.10g}{unit}"
        for name, (key, per, unit) in _KEPT.items()
        if name in found
    ]


_T = TypeVar("_T")


@dataclass(frozen=True)
class UpOptions:
    setup: SetupRequest
    provider: str | None = None
    max_price: float | None = None  # dollars an hour
    limit: float | None = None  # dollars to spend on boxes that turn out to be unusable
    another: bool = False
    wait_s: float = 0.0  # for how long to wait for an offer that fits
    instead_of: frozenset[str] = frozenset()  # hosts of rented boxes that are not to be used
    network: str = ""  # the group whose boxes share a private network
    boxes: int = 1  # how many boxes that network is to have
    beside: str = ""  # a box of that network, as `RentOrder.beside`


def shared_among(request: UpOptions, count: int) -> UpOptions:
    """Return the request for one of `count` boxes: what all may cost together is divided."""
    loaded = load_profile(request.setup, kinds=EVERYTHING if request.provider else TO_RENT)
    sets, lease = request.setup.sets, loaded.profile.lease
    if lease and lease.dollars:
        sets = (*sets, f"lease.dollars={_cents(lease.dollars / count)}")
    limit = None if request.limit is None else _cents(request.limit / count)
    return dataclasses.replace(
        request, setup=dataclasses.replace(request.setup, sets=sets), limit=limit
    )


def _cents(amount: float) -> float:
    return math.floor(amount * 100 + 1e-6) / 100


def rented_before(request: UpOptions) -> tuple[list[str], list[str]]:
    """Return the hosts of this repository's and profile's rentals, the first one first, and those
    of them that the request can use."""
    loaded = load_profile(request.setup, kinds=EVERYTHING if request.provider else TO_RENT)
    own = (read_repository(request.setup.place).key, request.setup.profile or loaded.profile.name)
    found = [
        each.host
        for each in rental.all_rentals()
        if (each.repo_key, each.profile) == own and each.state is rental.RentalState.RENTED
    ]
    found.reverse()
    return found, in_one_network(found) if request.network else found


def nodes_of(request: UpOptions) -> int:
    train = load_profile(request.setup).profile.train
    return train.nodes if train else 1


def place_of(host: str) -> str:
    """Return the provider and machine of a rented box, as `RentOrder.beside`; "" if unknown."""
    ours = rental.of_host(host)
    return f"{ours.provider}:{ours.machine}" if ours else ""


def in_one_network(hosts: Sequence[str]) -> list[str]:
    """Return those of rented boxes that can share a network: where that is a cluster, those of the
    first one alone."""
    ours = {each.host: each for each in rental.all_rentals()}

    def cluster_of(host: str) -> str:
        """Return what its cluster is known by: until its boxes are recorded, its mark."""
        box = ours[host]
        return box.cluster or (box.mark if box.boxes > 1 else "")

    first = next(filter(None, map(cluster_of, hosts)), "")
    clusters = {name for name, provider in PROVIDERS.items() if provider.rents_clusters}
    return [
        host
        for host in hosts
        if ours[host].provider not in clusters or cluster_of(host) == first != ""
    ]


def refuse_incomplete(hosts: Sequence[str], count: int, reporter: Reporter) -> None:
    """Raise NoOfferError if these are fewer boxes than wanted, and of a cluster, to which none can
    be added; warn if they are more."""
    ours = rental.of_host(hosts[0])
    if ours is None or not ours.cluster or len(hosts) == count:
        return
    every = " ".join(f"--host {host}" for host in hosts)
    said = f"the cluster {ours.cluster} has {len(hosts)} boxes, not {count}"
    if len(hosts) > count:
        reporter.warn(
            f"{said}: each of them costs, until all are given back: boxstrap down {every}"
        )
        return
    raise NoOfferError(
        f"{said}, and none can be added to it.",
        where=hosts[0],
        hint="If it was rented just now, run the same command again in a minute. To give it back: "
        f"boxstrap down {every}",
    )


@dataclass(frozen=True)
class FoundOffers:
    """Offers that fit, cheapest first, and others, the nearest to the order first."""

    order: RentOrder
    fitting: Sequence[Offer]
    others: Sequence[Offer]
    asks: Grants | None = None
    """What the profile takes from the user, if they have yet to agree to it."""


def find_offers(request: UpOptions) -> FoundOffers:
    """Get offers without renting. Raises as `accounts_for` and `CloudAccount.catalog`."""
    loaded = load_profile(request.setup, kinds=())  # only looks: that takes nothing
    asks = not_agreed(loaded, request.setup, EVERYTHING if request.provider else TO_RENT)
    root = read_repository(request.setup.place).root
    order = dataclasses.replace(
        order_of(loaded.profile, request.max_price, root),
        network=request.network,
        boxes=request.boxes,
    )
    accounts = accounts_for(request.provider, loaded, only_look=True, network=request.network)
    return FoundOffers(order, *offers_of(accounts, order), asks=asks)


def rent_and(
    do: Callable[[SetupRequest], _T],
    request: UpOptions,
    reporter: Reporter,
    confirm: Callable[[Offer], None],
) -> tuple[Rental, _T]:
    """Rent a box, or take the one already there, and return what `do`, which sets it up, does.
    Raises as `Renter.run`."""
    from bootstrap.setup.payload import build_payload
    from bootstrap.setup.sequence import refuse_alone

    setup = request.setup
    # Which account pays is named by the user on the command line, or needs their consent.
    loaded = load_profile(setup, kinds=EVERYTHING if request.provider else TO_RENT)
    accounts = accounts_for(request.provider, loaded, network=request.network)
    # Raise whatever a setup would raise, before anything is paid for.
    build_payload(loaded.for_provider(FALLBACK), setup, local=False)
    if not setup.holds:
        refuse_alone(loaded.profile)
    if setup.run:
        setup.run.of(loaded.profile)
    if setup.name is not None:
        _check_name(request, setup.name)
    lease = RentedLease(loaded, reporter)

    @cache  # report the lease once per box, however often its setup is retried
    def leased(host: str) -> SetupRequest:
        ours = rental.of_host(host)
        began = (ours.began or ours.asked) if ours and not ours.ready else None
        sets = (*setup.sets, *lease.sets(host))
        return dataclasses.replace(setup, host=host, sets=sets, rented=began)

    wish = _wish(request, loaded, lease)
    return Renter(accounts, wish, reporter, confirm).run(lambda host: do(leased(host)))


def _check_name(request: UpOptions, name: str) -> None:
    """Refuse what a setup would not call the box. Raises UsageError."""
    its = next((box for box in all_boxes() if box.name.lower() == name.lower()), None)
    if its is None:
        check_new_name(name)
        return
    usable = {*rented_before(request)[0]} - request.instead_of
    if request.another or its.host_text not in usable:
        raise name_is_taken(its.name)


def _wish(request: UpOptions, loaded: LoadedProfile, lease: RentedLease) -> RentOptions:
    """Return the wish of `Renter`. Raises UsageError without an ssh key that a box could accept."""
    from bootstrap.link.keys import own_public_key

    profile, setup = loaded.profile, request.setup
    key = own_public_key(setup.identity or profile.ssh.identity)
    if key is None:
        raise UsageError(
            "there is no ssh key that a box could let in, and none can be put there later.",
            where="--identity",
            hint="Make one with `ssh-keygen -t ed25519`, or name one with --identity.",
        )
    here = read_repository(setup.place)
    order = dataclasses.replace(
        order_of(profile, request.max_price, here.root),
        network=request.network,
        beside=request.beside,
        boxes=request.boxes,
    )
    if request.wait_s and order.max_price is None:
        raise UsageError(
            "nobody may be there to agree to a price when an offer comes.",
            where="--wait-offer",
            hint="Say what it may cost: --max-price 0.60",
        )
    return RentOptions(
        order,
        key.line,
        repo_key=here.key,
        profile=setup.profile or profile.name,
        limit=request.limit,
        another=request.another,
        wait_s=request.wait_s,
        instead_of=request.instead_of,
        loading_s=profile.rent.loading_minutes and profile.rent.loading_minutes * 60.0,
        ask=lease.ask,
        may_start=Prompt(print).confirm,
        caps=read_caps(),
    )
