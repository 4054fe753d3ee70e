"""A simulated account, a user who rents there, and what must hold whatever goes wrong."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.providers import PROVIDERS, Api, ApiKey, Offer, RentedBox, RentOrder
from bootstrap.renting import Rental, RentalState, offers_of, rental, teardown
from bootstrap.renting.rent import Renter, RentOptions
from bootstrap.renting.start import Arrival, RentingClock
from bootstrap.setup import Reporter
from tests.providers.accounts import KEY, SimulatedAccount, SimulatedBox, SimulatedOffer, simulated
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
_ORDERS = {"gcp": "/instances?requestId=", "azure": "/deployments/"}
"""Parts of such a request that nothing else has, where its beginning is not enough."""
ANY = RentOrder()
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
    def account(self) -> Any:
        """The program's client for this account, made anew."""
        return PROVIDERS[self.simulation.provider](ApiKey(KEY, "a test"))

    def offers(self, order: RentOrder = ANY) -> list[Offer]:
        """What fits an order, the best first."""
        return offers_of([self.account], order)[0]

    def rent(self, order: RentOrder = ANY, mark: str = MARK, at: int = 0) -> str:
        """Rent an offer without anything around it; return the box's id."""
        account = self.account
        account.add_key(PUBLIC)
        return str(account.rent(self.offers(order)[at], order, mark, PUBLIC))

    def seen(self, box_id: str) -> RentedBox:
        """A box of the account, as the program sees it."""
        found: RentedBox | None = self.account.box(box_id)
        assert found
        return found

    @property
    def creates(self) -> list[str]:
        """The requests that ordered a box."""
        way = _ORDERS.get(self.simulation.provider, CREATES[self.simulation.provider])
        return [each for each in self.simulation.changed if way in each]

    @property
    def ours(self) -> list[SimulatedBox]:
        """The boxes in the account that have a mark."""
        return [box for box in self.simulation.boxes if str(box.label).startswith("boxstrap-")]

    def renter(self, **changed: Any) -> Renter:
        """A renter with this order."""
        order = changed.pop("order", RentOrder(max_price=MOST.get(self.simulation.provider, 1.0)))
        wish = RentOptions(order, PUBLIC, "repo", "homework", **changed)
        clock = RentingClock(lambda: self.simulation.clock.now, self.sleep)
        arrival = Arrival(clock, answers=lambda _: True)
        return Renter([self.account], wish, self.heard, self.asked.append, arrival)

    def up(self, **changed: Any) -> tuple[Rental, str]:
        """Rent, with a setup that only ends as `ends` says."""
        return self.renter(**changed).run(self._set_up)

    def down(self, box: Rental) -> None:
        """Give it back, as the last part of a teardown does."""
        teardown.destroy(self.account, box.box_id, self.heard.say)
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

    def take_time(self) -> None:
        """Let what the account is asked for go on for some seconds, where it may."""
        if self.simulation.provider in {"gcp", "azure"}:
            name = {"gcp": "operation_s", "azure": "deployment_s"}[self.simulation.provider]
            setattr(self.simulation.own, name, 3.0)

    def check(self) -> None:
        """Check what must always hold: no unknown box, never two of ours, no other's box gone."""
        known = rental.all_rentals()
        alive = [each for each in known if each.state is not RentalState.ENDED]
        listed = {each.box_id for each in alive} | {each.mark for each in alive}
        for box in self.ours:
            assert {box.id, box.label} & listed, f"{box} is in no list: {known}"
        assert self.most_at_once <= 1, "rented twice"
        self.check_others()

    def check_others(self) -> None:
        """Check that boxes which aren't ours are there, and nothing was rented on suspicion."""
        assert self.most_unknown <= 1, "rented again while nobody knew"
        assert {"71", "72"} <= {box.id for box in self.simulation.boxes}, "not ours, and gone"


_OFFERS: dict[str, list[tuple[str, float, str, str]]] = {
    "paperspace": [
        *(("M4000", 0.45, "ny2", "M4000"), ("P4000", 0.51, "ca1", "P4000")),
        *(("RTX4000", 0.56, "ny2", "RTX4000"), ("A4000", 0.76, "ams1", "A4000")),
    ],
    "ec2": [
        (kind, 0.3 + at / 10, "us-east-1a", kind)
        for at, kind in enumerate(("g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g6e.xlarge"))
    ],
    "hf": [
        *(("t4-small", 0.4, "", "T4"), ("t4-medium", 0.6, "", "T4")),
        *(("l4x1", 0.8, "", "L4"), ("a10g-small", 1.0, "", "A10G")),
    ],
    "gcp": [
        (f"g2-standard-{size}", price, ZONE, "L4")
        for size, price in ((4, 0.706832), (8, 0.853624), (12, 1.000416), (16, 1.147208))
    ],
    "azure": [
        (f"Standard_NC{size}as_T4_v3", price, region, "T4")
        for size, price, region in (
            *((4, 0.526, REGION), (8, 0.752, REGION), (16, 1.204, REGION), (4, 1.3, "westus2")),
        )
    ],
}
"""What these providers have: name, dollars an hour, place and GPU; at Google Cloud the shipped
table's prices."""


def offers_at(provider: str, place: str = "") -> list[SimulatedOffer]:
    """Offers of what a provider has, each at a price of its own; `place`: all are there."""
    known = _OFFERS.get(provider) or [
        (str(10 + at), 0.3 + at / 10, f"us-{at}", "RTX 4090") for at in range(4)
    ]
    return [
        SimulatedOffer(
            kind, price=price, region=place or region, gpu=gpu, memory_gib=16 if gpu == "T4" else 24
        )
        for kind, price, region, gpu in known
    ]


@contextlib.contextmanager
def renting_world(
    provider: str, monkeypatch: pytest.MonkeyPatch, *, is_held: bool = True
) -> Iterator[RentingWorld]:
    """An account with two boxes that aren't ours, and four offers."""
    with simulated(provider, is_held=is_held, used_by=monkeypatch) as simulation:
        simulation.boxes = [SimulatedBox("71"), SimulatedBox("72", label="theirs")]
        simulation.offers = offers_at(provider)
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
