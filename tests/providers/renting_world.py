"""A simulated account, a user who rents there, and what must hold whatever goes wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.providers.accounts import PROVIDERS
from bootstrap.providers.api import Api, ApiKey
from bootstrap.providers.offer import Offer, RentOrder
from bootstrap.renting import rental, teardown
from bootstrap.renting.order import offers_of
from bootstrap.renting.rent import Renter, RentOptions
from bootstrap.renting.rental import Rental, RentalState
from bootstrap.renting.start import Arrival, RentingClock
from bootstrap.ui.screen import Reporter
from tests.providers.accounts import (
    KEY,
    SimulatedAccount,
    SimulatedBox,
    SimulatedOffer,
    simulated,
)
from tests.providers.azure_account import REGION, SUBSCRIPTION
from tests.providers.google_account import PROJECT, ZONE

_IN_GROUPS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/"
_INSTANCES = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances"
CREATES = {
    "vast": "PUT /api/v0/asks/",
    "runpod": "POST /v2/pods",
    "lambda": "POST /api/v1/instance-operations/launch",
    "paperspace": "POST /v1/machines",
    "ec2": "POST /RunInstances",
    "hf": "POST /api/jobs/me",
    "gcp": f"POST {_INSTANCES}?",
    "azure": f"PUT {_IN_GROUPS}",
}
STARTS = {
    "vast": "PUT /api/v0/instances/",
    "runpod": "POST /v2/pods/",
    "paperspace": "PATCH /v1/machines/",
    "ec2": "POST /StartInstances",
    "gcp": f"POST {_INSTANCES}/",
    "azure": f"POST {_IN_GROUPS}",
}
MARK = "boxstrap-0123456789ab"
MOST = {"gcp": 1.5, "azure": 1.5}
"""Dollars an hour that all offers cost at the most, where that is not one."""
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO8WbUd2c2Vzc2lvbi1rZXktb2YtYm94c3RyYXA= me"
FATES = (
    *("runs", "runs", "stuck", "dies", "unknown", "taken", "failed bid", "never starts"),
    "none left",
)


class Heard(Reporter):
    """Keeps what is reported to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)

    def note(self, label: str, text: str) -> None:
        self.lines.append(f"{label}: {text}")


@dataclasses.dataclass
class RentingWorld:
    """The account, what was set up there, and the most of our boxes that ever existed at once."""

    simulation: SimulatedAccount
    heard: Heard = dataclasses.field(default_factory=Heard)
    set_up: list[str] = dataclasses.field(default_factory=list)
    asked: list[Offer] = dataclasses.field(default_factory=list)
    ends: list[type[BaseException] | None] = dataclasses.field(default_factory=list)
    """How the next setups end; None, or an empty list, is success."""
    most_at_once: int = 0
    most_unknown: int = 0
    """The most rentals that were undecided when one was asked for, itself included."""
    interrupt_at: float | None = None
    """When, by the account's clock, Ctrl-C interrupts a wait."""

    @property
    def ours(self) -> list[SimulatedBox]:
        """The boxes in the account that have a mark."""
        return [box for box in self.simulation.boxes if str(box.label).startswith("boxstrap-")]

    def renter(self, **changed: Any) -> Renter:
        """A renter with this order."""
        order = changed.pop("order", RentOrder(max_price=MOST.get(self.simulation.provider, 1.0)))
        wish = RentOptions(order, PUBLIC, "repo", "homework", **changed)
        account = PROVIDERS[self.simulation.provider](ApiKey(KEY, "a test"))
        clock = RentingClock(lambda: self.simulation.clock.now, self.sleep)
        arrival = Arrival(clock, answers=lambda _: True)
        return Renter([account], wish, self.heard, self.asked.append, arrival)

    def up(self, **changed: Any) -> tuple[Rental, str]:
        """Rent, with a setup that only ends as `ends` says."""
        return self.renter(**changed).run(self._set_up)

    def down(self, box: Rental) -> None:
        """Give it back, as the last part of a teardown does."""
        account = PROVIDERS[self.simulation.provider](ApiKey(KEY, "a test"))
        teardown.destroy(account, box.box_id, self.heard.say)
        rental.save_rental(box.over(self.simulation.clock.now))

    def sleep(self, seconds: float) -> None:
        """Advance the account's clock; Ctrl-C may interrupt this."""
        self.simulation.clock.sleep(seconds)
        if self.interrupt_at is not None and self.simulation.clock.now >= self.interrupt_at:
            self.interrupt_at = None
            raise KeyboardInterrupt

    def _set_up(self, host: str) -> str:
        self.set_up.append(host)
        end = self.ends.pop(0) if self.ends else None
        if end is not None:
            raise end("it went wrong")
        return host

    def check(self) -> None:
        """Check what must always hold: no unknown box, never two of ours, no other's box gone."""
        known = rental.all_rentals()
        alive = [each for each in known if each.state is not RentalState.ENDED]
        listed = {each.box_id for each in alive} | {each.mark for each in alive}
        for box in self.ours:
            assert {box.id, box.label} & listed, f"{box} is in no list: {known}"
        assert self.most_at_once <= 1, "rented twice"
        assert self.most_unknown <= 1, "rented again while nobody knew"
        assert {"71", "72"} <= {box.id for box in self.simulation.boxes}, "not ours, and gone"


def rent(world: RentingWorld, order: RentOrder = RentOrder(), mark: str = MARK) -> str:  # noqa: B008
    """Rent the cheapest offer without anything around it; return the box's id."""
    account = PROVIDERS[world.simulation.provider](ApiKey("", "a test"))
    return account.rent(offers_of([account], order)[0][0], order, mark, PUBLIC)


def paperspace_offers() -> list[SimulatedOffer]:
    """Offers of types and regions that Paperspace has, at their list prices."""
    return [
        SimulatedOffer(kind, price=price, region=region, gpu=kind)
        for kind, price, region in (
            *(("M4000", 0.45, "ny2"), ("P4000", 0.51, "ca1")),
            *(("RTX4000", 0.56, "ny2"), ("A4000", 0.76, "ams1")),
        )
    ]


def ec2_offers(zone: str = "us-east-1a") -> list[SimulatedOffer]:
    """Offers of types that EC2 has, each with a price of its own."""
    kinds = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g6e.xlarge")
    return [
        SimulatedOffer(kind, price=0.3 + at / 10, region=zone, gpu=kind)
        for at, kind in enumerate(kinds)
    ]


def gcp_offers(zone: str = ZONE) -> list[SimulatedOffer]:
    """Offers of types that Google Cloud has, at the prices of the shipped table."""
    kinds = {"g2-standard-4": 0.706832, "g2-standard-8": 0.853624, "g2-standard-12": 1.000416}
    kinds["g2-standard-16"] = 1.147208
    return [
        SimulatedOffer(kind, price=price, region=zone, gpu="L4") for kind, price in kinds.items()
    ]


def azure_offers(region: str = REGION) -> list[SimulatedOffer]:
    """Offers of sizes that Azure has, each with a price of its own."""
    kinds = {"Standard_NC4as_T4_v3": 0.526, "Standard_NC8as_T4_v3": 0.752}
    kinds |= {"Standard_NC16as_T4_v3": 1.204}
    found = [SimulatedOffer(kind, price=price, region=region) for kind, price in kinds.items()]
    return [*found, SimulatedOffer("Standard_NC4as_T4_v3", price=1.3, region="westus2")]


def hf_offers() -> list[SimulatedOffer]:
    """Offers of hardware that Hugging Face has."""
    return [
        SimulatedOffer(kind, price=price, gpu=gpu, memory_gib=memory)
        for kind, gpu, memory, price in (
            *(("t4-small", "T4", 16, 0.4), ("t4-medium", "T4", 16, 0.6)),
            *(("l4x1", "L4", 24, 0.8), ("a10g-small", "A10G", 24, 1.0)),
        )
    ]


@contextlib.contextmanager
def renting_world(
    provider: str, monkeypatch: pytest.MonkeyPatch, *, is_held: bool = True
) -> Iterator[RentingWorld]:
    """An account with two boxes that aren't ours, and four offers."""
    with simulated(provider, is_held=is_held) as simulation:
        for name, value in simulation.environment().items():
            monkeypatch.setenv(name, value)
        simulation.boxes = [SimulatedBox("71"), SimulatedBox("72", label="theirs")]
        simulation.offers = [
            SimulatedOffer(str(10 + at), price=0.3 + at / 10, region=f"us-{at}") for at in range(4)
        ]
        if provider == "paperspace":
            simulation.offers = paperspace_offers()
        if provider == "ec2":
            simulation.offers = ec2_offers()
        if provider == "hf":
            simulation.offers = hf_offers()
        if provider == "gcp":
            simulation.offers = gcp_offers()
        if provider == "azure":
            simulation.offers = azure_offers()
        world = RentingWorld(simulation)
        rent = simulation.rent

        def counting(*asked: Any) -> SimulatedBox:
            unknown = [each for each in rental.all_rentals() if each.state is RentalState.ASKED]
            world.most_unknown = max(world.most_unknown, len(unknown))
            box = rent(*asked)
            world.most_at_once = max(world.most_at_once, len(world.ours))
            return box

        monkeypatch.setattr(simulation, "rent", counting)
        now = simulation.clock
        clock = SimpleNamespace(monotonic=lambda: now.now, sleep=world.sleep, time=time.time)
        monkeypatch.setattr(teardown, "time", clock)
        monkeypatch.setattr(Api, "pause", lambda _, seconds: world.sleep(seconds))
        yield world
