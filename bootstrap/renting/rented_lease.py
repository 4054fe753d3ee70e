"""The lease of a box that `up` rents, so that a forgotten box ends automatically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.link.prompt import Prompt
from bootstrap.link.record import all_boxes
from bootstrap.providers.accounts import PROVIDERS
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Offer
from bootstrap.renting.order import order_of

if TYPE_CHECKING:
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.ui.reporter import Reporter

LEASE_HOURS = 24
"""Hours for a rented box whose profile's lease has neither hours nor dollars."""
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

    def ask(self, offer: Offer) -> None:
        """Ask whether to give up results or money at the end, if a stop would lose something."""
        provider = PROVIDERS[offer.provider]
        prompt = Prompt(self._reporter.say)
        if offer.provider in self._then or "lease.then" in self._loaded.origins:
            return
        self._then[offer.provider] = "stop"
        loses = self._loses(provider)
        if loses and prompt.has_terminal():
            question = f"{provider.title} {loses}. What yields when the lease is over?"
            results = prompt.choose(question, _YIELDS) == _YIELDS[1]
            self._then[offer.provider] = "destroy" if results else "stop"

    def _loses(self, provider: type[CloudAccount]) -> str:
        """Return why a stop at this provider loses something; "" if it doesn't."""
        stops = provider.stops
        if stops is None:
            return "can't stop a box"
        volume = order_of(self._loaded.profile, None).volume_at
        workdir = self._loaded.for_provider(provider.name).profile.box.workdir
        if not stops.only_volume or f"{workdir}/".startswith(f"{volume}/"):
            return ""
        return f"keeps {stops.keeps} of a stopped box, and {workdir} is not on it"

    def sets(self, host: str) -> Sequence[str]:
        """Return the settings for a setup of this box, and report them; later setups keep them."""
        name, lease = host.partition(":")[0], self._loaded.profile.lease
        known = next((one for one in all_boxes() if one.host_text == host and one.lease), None)
        sets = []
        if "lease.then" not in self._loaded.origins:
            then = str(known.lease.get("then")) if known else self._then.get(name)
            sets = ["lease.then=destroy"] if then == "destroy" else []
        destroys = bool(sets) or (lease is not None and lease.then == "destroy")
        when, why = "when its lease is over", ""
        if lease is None or not (lease.hours or lease.dollars):
            sets.append(f"lease.hours={LEASE_HOURS}")
            when = f"after {LEASE_HOURS} hours"
            why = ", as the profile names neither hours nor dollars of a lease"
        self._tell(host, when, why, destroys=destroys)
        return sets

    def _tell(self, host: str, when: str, why: str, *, destroys: bool) -> None:
        provider = PROVIDERS[host.partition(":")[0]]
        loses, stops = self._loses(provider), provider.stops
        if destroys:
            unsafe = "stopped" if stops else "lost"
            self._reporter.say(
                f"{host} is destroyed {when}{why}; what is not safe at home then is {unsafe}"
            )
        elif loses:
            self._reporter.warn(
                f"nothing but you ends {host}: {provider.title} {loses}. It goes on {when}{why}, "
                "and on costing, and each command says so. To let results yield: "
                "--set lease.then=destroy"
            )
        elif stops and why:
            self._reporter.say(
                f"{host} is stopped {when}{why}; stopped it still costs {stops.costs}, and keeps "
                f"{stops.keeps}"
            )
