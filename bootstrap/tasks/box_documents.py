"""What `--json` prints of boxes: what they cost, who is billed, what they hold, as types.

Times are seconds since 1970, prices dollars an hour.
"""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from bootstrap.estimate import Row, Usage
from bootstrap.profile.consent import Grants
from bootstrap.protocol.probe import BoxLease
from bootstrap.protocol.trees import TreeBeside
from bootstrap.providers.offer import Leftover, RentOrder
from bootstrap.renting.guard import GuardedBox
from bootstrap.renting.loss_check import Loss
from bootstrap.renting.resumption import ResumedElsewhere
from bootstrap.runs.known_runs import MeasuredRun
from bootstrap.runs.upkeep import SecretRow


class NeededMemory(TypedDict):
    """Of each GPU, in GB."""

    gb: float
    low_gb: float
    high_gb: float
    parameters: float
    assumed: str
    other_methods_gb: dict[str, float]
    """By the methods of `--method` that take less."""
    sharded_gb: dict[str, float]
    """By number of GPUs, of each of them."""


class EstimateDocument(TypedDict):
    """What a training costs; `left_out`: providers of which no price is known here."""

    usage: Usage
    rows: list[Row]
    failed: dict[str, str]
    oldest: str
    past_runs: list[MeasuredRun]
    left_out: list[str]
    memory: NotRequired[NeededMemory]
    plot: NotRequired[str]


class FoundOffer(TypedDict):
    """An offer, what it lacks, and what it has beyond the order."""

    provider: str
    id: str
    gpu: str
    gpu_count: int
    price: float
    bid: float | None
    memory_gib: float | None
    max_cuda: str
    arch: str
    is_secure: bool | None
    reliability: float | None
    down_mbps: float | None
    up_mbps: float | None
    region: str
    machine: str
    disk_gb: float | None
    hours: float | None
    lacks: str
    boxes: int
    misses: list[str]
    exceeds: list[str]


class OffersDocument(TypedDict):
    """What `up --dry-run` shows; `left`: how many remain without that key, where none fits.

    `consent`: what `up` will ask the user for.
    """

    order: RentOrder
    offers: list[FoundOffer]
    nearest: list[FoundOffer]
    left: NotRequired[dict[str, int]]
    consent: NotRequired[Grants]


class DownDocument(TypedDict):
    """A box that was given back; refused with `unsafe`: what would be lost."""

    box: str
    destroyed: bool
    host: NotRequired[str | None]
    was_gone: NotRequired[bool]
    spent: NotRequired[float | None]
    discarded: NotRequired[list[Loss]]
    left: NotRequired[list[Leftover]]
    unsafe: NotRequired[list[Loss]]


class LeaseOfABox(TypedDict):
    """A box's lease; None if nothing ends the box."""

    box: str
    lease: BoxLease | None


class GuardDocument(TypedDict):
    """The boxes with a lease; names whose id is unknown; rented hosts without a lease."""

    boxes: list[GuardedBox]
    not_by_id: list[str]
    without_lease: list[str]
    resumed: NotRequired[list[ResumedElsewhere]]


class KnownBoxDocument(TypedDict):
    """A box that is known here, its repositories and live runs, and its cost so far."""

    name: str
    host: str
    address: str
    port: int | None
    user: str
    profile: str
    repositories: list[str]
    running: list[str]
    seen: float
    connected: bool
    price: float | None
    dollars: float | None


class EndedBox(TypedDict):
    """A box that was given back, and its cost."""

    name: str
    ended: float
    spent: float | None


class BoxesDocument(TypedDict):
    """The boxes that are known here."""

    boxes: list[KnownBoxDocument]
    unreadable: list[str]
    ended: list[EndedBox]


class AccountDocument(TypedDict):
    """An account; `error` if it did not answer."""

    provider: str
    balance: float | None
    error: str | None


class BilledBox(TypedDict):
    """A box that an account is billed for; `known_as`: its name here; `rented_here`: what `up`
    did with it, "" for one that was not rented from here."""

    host: str
    name: str
    state: str
    gpu: str
    address: str
    port: int | None
    price: float | None
    stopped_price: float | None
    since: float | None
    ends: float | None
    price_increase: float | None
    spot: bool | None
    spent: float | None
    known_as: str | None
    rented_here: str


class RentalDocument(TypedDict):
    """A box that was rented, or perhaps was (`state`: asked); its account doesn't tell now."""

    mark: str
    provider: str
    state: str
    host: str
    asked: float
    box_id: str
    gpu: str
    machine: str
    price: float
    repo_key: str
    profile: str
    ready: bool
    ended: float
    spent: float
    began: float
    agreed: float
    spot: bool
    hours: float
    cluster: str
    boxes: int


class AccountsDocument(TypedDict):
    """What the accounts are billed for; `price`: of all, an hour."""

    accounts: list[AccountDocument]
    boxes: list[BilledBox]
    price: float | None
    perhaps_rented: list[RentalDocument]


class ForgottenBox(TypedDict):
    """A box that is no longer known here, and what went with it."""

    forgotten: str
    removed: list[str]


class CleanedThing(TypedDict):
    """Results that are at home (of a run, KEY/NAME), or downloads (a folder of `.boxstrap/cache`).
    `state`: removed, safe (to remove), used."""

    kind: str
    name: str
    state: str
    bytes: int


class CleanDocument(TypedDict):
    """The trees, the bytes of copies of results that were removed, and what else can go."""

    box: str
    trees: list[TreeBeside]
    copies_of_results: int
    things: list[CleanedThing]


class SecretsDocument(TypedDict):
    """The secrets, by name."""

    box: str | None
    secrets: list[SecretRow]


class WipedSecretsDocument(TypedDict):
    """Secrets that a box no longer holds, and runs that still use them."""

    box: str
    wiped: list[str]
    running: list[str]
