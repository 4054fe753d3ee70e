"""Hugging Face Jobs: jobs with SSH, by the Hub's OpenAPI document.

`huggingface_hub` finds the token. The requests are our own, as at the other providers: its calls
have no time limit, and leave out when a job ends.

A job ends by its own time limit, is never stopped, and everything on it is lost then.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import ClassVar

from pydantic import AliasPath, AwareDatetime, Field, RootModel

from bootstrap.errors import UsageError
from bootstrap.providers import api
from bootstrap.providers.api_key import ApiKey, KeyPlaces, checked_key
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Offer, RentedBox, RentedState, RentOrder, limit_s

_STATES = {
    "SCHEDULING": RentedState.STARTING,
    "RUNNING": RentedState.RUNNING,
    **dict.fromkeys(("COMPLETED", "CANCELED", "ERROR", "DELETED"), RentedState.GONE),
}
_ALIVE = "stage=RUNNING&stage=SCHEDULING"  # jobs that have ended stay in the list for ever
_IMAGE = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel"
"""Root, apt, bash and a torch that also knows the newest GPUs that are for rent there."""
_COMMAND = ["sleep", "infinity"]
_MARK = {"BOXSTRAP_JOB": "1"}
"""By this a setup sees what the box is: a job has nothing else that only it has."""
_DEFAULT_S = 1800.0  # the limit of a job that was started without one
_MAY_HAVE_ENDED = {400, 404, 409}
"""Refusals of a cancel that a job may answer with that has ended already."""
_HOURLY = {"second": 3600, "minute": 60, "hour": 1}
_SSH = re.compile(r"ssh://([A-Za-z0-9_-]+)@([A-Za-z0-9.-]+)(?::([0-9]{1,5}))?/?")
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?)\s*([GT])B")
_KEYS_PAGE = "https://huggingface.co/settings/keys"


@dataclass(frozen=True)
class _HubToken(KeyPlaces):
    """The token of the Hub, wherever its own library looks for it."""

    library, extra = "huggingface_hub", "hf"

    @property
    def places(self) -> str:
        return f"{self.variable}, or log in: hf auth login"

    def find(self) -> ApiKey | None:
        if self.missing:
            return None
        from huggingface_hub import get_token

        try:
            token = get_token()
        except Exception as error:  # of a token that is exchanged or renewed, with many reasons
            raise UsageError(
                f"the Hub gives out no token ({type(error).__name__}).",
                where=self.variable,
                hint="Log in again: hf auth login",
            ) from None
        of = self.variable if os.environ.get(self.variable) else "hf auth login"
        return checked_key(token, of) if token else None


class _User(api.ApiModel):
    name: str


class _Job(api.CamelModel):
    id: str = Field(min_length=1)
    stage: str = Field(min_length=1, validation_alias=AliasPath("status", "stage"))
    message: str | None = Field(None, validation_alias=AliasPath("status", "message"))
    ssh_url: str | None = Field(None, validation_alias=AliasPath("status", "sshUrl"))
    flavor: str | None = None
    labels: Mapping[str, str] | None = None
    created_at: AwareDatetime | None = None
    started_at: AwareDatetime | None = None
    timeout: float | None = None  # its limit in seconds


class _JobAccelerator(api.CamelModel):
    type: str
    quantity: str = Field(max_length=9)
    model: str
    vram: str


class _Flavor(api.CamelModel):
    """One kind of machine."""

    name: str
    pretty_name: str
    accelerator: _JobAccelerator | None = None
    unit_label: str
    unit_cost_usd: float = Field(alias="unitCostUSD")
    ephemeral_storage: str = ""


class HuggingFaceJobs(CloudAccount):
    """A user's own namespace at Hugging Face Jobs."""

    name = "hf"
    title = "Hugging Face Jobs"
    keys = _HubToken("HF_TOKEN", ())
    keys_page = _KEYS_PAGE
    is_ambient = True
    address = "https://huggingface.co"
    is_container = True
    no_private_network = "a job reaches no other job"
    loading_minutes = 20
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        **CloudAccount.refusals,
        403: api.Refusal("your plan or your token's rights don't cover it"),
    }

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        from huggingface_hub import constants

        self._api = api.Api(self.name, constants.ENDPOINT, key)

    @cached_property
    def _place(self) -> str:
        """The path of the jobs of the user whose token it is."""
        return f"/api/jobs/{api.segment(self._api.get('/api/whoami-v2', _User).name)}"

    @cached_property
    def _hardware(self) -> Mapping[str, _Flavor]:
        found = self._api.get("/api/jobs/hardware", RootModel[Sequence[_Flavor]]).root
        return {one.name: one for one in found}

    def boxes(self) -> Sequence[RentedBox]:
        """Return all jobs that have not ended; without SSH, too: they cost as much."""
        found, path = list[RentedBox](), f"{self._place}?{_ALIVE}"
        for _ in range(api.MOST_PAGES):
            page = self._api.get(path, RootModel[Sequence[_Job]]).root
            path = self._api.next_path
            found += map(self._rented, page)
            if not path:
                return found
        raise api.too_many(self.name)

    def _box(self, box_id: str) -> RentedBox | None:
        found = self._api.find(f"{self._place}/{api.segment(box_id)}", _Job)
        return self._rented(found) if found else None

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return an offer for each kind of machine: nothing says how many are free."""
        if order.spot or order.volume:  # a bucket is no disk
            return ()
        return [*filter(None, map(_offered, self._hardware.values()))]

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:  # noqa: ARG002 - it lets in the keys of the user's page
        wanted = {
            "command": _COMMAND,
            "arguments": [],
            "environment": _MARK,
            "flavor": offer.id,
            "timeoutSeconds": limit_s(order, offer.price),
            "labels": {"name": mark},
            "ssh": {"enabled": True},
            "dockerImage": order.image or _IMAGE,
        }
        made = self._api.post(self._place, wanted, _Job)
        self.__dict__.pop("_hardware", None)  # its price is asked for once more
        return made.id

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`; what a job has made is lost with it."""
        path = f"{self._place}/{api.segment(box_id)}"
        try:
            self._api.post(f"{path}/cancel", None, _Job)
        except api.RefusedError as error:
            if error.status not in _MAY_HAVE_ENDED:
                raise
            left = self._api.find(path, _Job)
            if left and _STATES.get(left.stage) is not RentedState.GONE:
                raise

    def log(self, box_id: str) -> Sequence[str]:
        return self._api.events(f"{self._place}/{api.segment(box_id)}/logs?tail=20", "data")

    def _rented(self, job: _Job) -> RentedBox:
        flavor = self._hardware.get(job.flavor or "")
        state = _STATES.get(job.stage, RentedState.UNKNOWN)
        is_running = state is RentedState.RUNNING
        way = _SSH.fullmatch(job.ssh_url or "") if is_running else None
        # Whether the limit counts from its start is unknown: so the earliest end.
        made = _seconds(job.created_at)
        of = flavor.accelerator if flavor else None
        return RentedBox(
            provider=self.name,
            id=job.id,
            name=(job.labels or {}).get("name", ""),
            state=state,
            gpu=f"{of.quantity} x {of.model}" if of else flavor.pretty_name if flavor else "",
            address=way[2] if way else "",
            port=int(way[3] or 22) if way else 0,
            user=way[1] if way else "",
            price=_price(flavor) if flavor else None,
            since=_seconds(job.started_at) or made,
            ends=made and made + (job.timeout or _DEFAULT_S),
            said=job.message or ("it was started without --ssh" if is_running and not way else ""),
        )


def _offered(flavor: _Flavor) -> Offer | None:
    price, of = _price(flavor), flavor.accelerator
    if of is None or of.type != "gpu" or not price or not of.quantity.isdecimal():
        return None
    count, memory = int(of.quantity), _gigabytes(of.vram)
    return Offer(
        provider=HuggingFaceJobs.name,
        id=flavor.name,
        gpu=of.model,
        gpu_count=count,
        price=price,
        memory_gib=memory / count if memory and count else None,
        machine=flavor.name,
        arch="amd64",
        is_secure=True,
        disk_gb=_gigabytes(flavor.ephemeral_storage),
    )


def _price(flavor: _Flavor) -> float | None:
    """Return the dollars an hour; None if they are of an unknown unit."""
    per_hour = _HOURLY.get(flavor.unit_label)
    return round(flavor.unit_cost_usd * per_hour, 6) if per_hour else None


def _gigabytes(text: str) -> float | None:
    found = _SIZE.search(text)
    return float(found[1]) * (1000 if found[2] == "T" else 1) if found else None


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at else None
