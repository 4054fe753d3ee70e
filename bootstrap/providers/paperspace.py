"""Paperspace: machines, templates, startup scripts and availability of its OpenAPI document.

Nothing there says what a machine will cost. So it is made without being started, its own rate is
read, and only then is it started, or destroyed. What the rate is of is not documented: it counts
as dollars an hour if it is about the type's list price.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bootstrap.providers import api
from bootstrap.providers.api_key import KeyPlaces
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Offer, RentedBox, RentedState, RentOrder, StopRule

_STATES = {
    "ready": RentedState.RUNNING,
    "provisioning": RentedState.STARTING,
    "starting": RentedState.STARTING,
    "restarting": RentedState.STARTING,
    "serviceready": RentedState.STARTING,
    "upgrading": RentedState.STARTING,
    "stopping": RentedState.STOPPED,
    "off": RentedState.STOPPED,
}
_REGIONS = {"ny2": "New York, US", "ca1": "California, US", "ams1": "Amsterdam, NL"}
_DISKS_GB = (50, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000)
_LABEL = re.compile(r"(.+?)(?:x([248]))?")
_NVLINK = ("H100", "A100-80G")
_SAME_UNIT = 4.0
"""By what factor a rate may differ from the list price. The nearest other unit, dollars a day,
would be 24 times that."""
_TEMPLATE = "mlinabox"  # in the name of its templates that have NVIDIA's driver


class _Type(NamedTuple):
    gpu: str
    memory_gib: float
    price: float
    """Dollars an hour of one GPU: paperspace.com/pricing, read on 2026-09-20. That of the A100 had
    a footnote, as those with a commitment."""
    regions: str


_TYPES = {
    "M4000": _Type("M4000", 8, 0.45, "ny2 ams1"),
    "P4000": _Type("P4000", 8, 0.51, "ny2 ams1 ca1"),
    "RTX4000": _Type("RTX 4000", 8, 0.56, "ny2 ams1 ca1"),
    "P5000": _Type("P5000", 16, 0.78, "ny2 ams1 ca1"),
    "RTX5000": _Type("RTX 5000", 16, 0.82, "ny2"),
    "A4000": _Type("RTX A4000", 16, 0.76, "ny2 ams1 ca1"),
    "P6000": _Type("P6000", 24, 1.10, "ny2 ams1 ca1"),
    "A5000": _Type("RTX A5000", 24, 1.38, "ny2 ca1"),
    "A6000": _Type("RTX A6000", 48, 1.89, "ny2 ca1"),
    "V100": _Type("V100", 16, 2.30, "ny2 ams1"),
    "A100-80G": _Type("A100 80GB", 80, 1.15, "ny2"),
    "H100": _Type("H100", 80, 3.09, "ny2"),
}
"""What its API doesn't say of a type before it makes a machine."""


class _Accelerator(api.CamelModel):
    count: float


class _PaperspaceMachine(api.CamelModel):
    id: str
    name: str | None = None
    state: str
    machine_type: str | None = None
    public_ip: str | None = None
    accelerators: Sequence[_Accelerator] | None = None
    usage_rate: float | None = None
    dt_deleted: str | None = None


class _TypeOfTemplate(api.CamelModel):
    machine_type_label: str
    is_available: bool


class _PaperspaceTemplate(api.CamelModel):
    id: str
    name: str
    agent_type: str
    dt_created: str
    available_machine_types: Sequence[_TypeOfTemplate]

    def has(self, kind: str) -> bool:
        types = self.available_machine_types
        return any(one.machine_type_label == kind and one.is_available for one in types)


class _PaperspaceScript(api.CamelModel):
    id: str
    name: str
    is_enabled: bool
    dt_deleted: str | None = None


class _PaperspaceAvailability(api.CamelModel):
    available: bool


class _PaperspaceEvent(api.CamelModel):
    name: str
    error: str | None = None


class _Page(api.Envelope[Sequence[api.T]], api.CamelModel):
    has_more: bool = False
    next_page: str | None = None


class Paperspace(CloudAccount):
    name = "paperspace"
    title = "Paperspace"
    keys = KeyPlaces(
        "PAPERSPACE_API_KEY",
        ("~/.paperspace/credentials.toml", "~/.paperspace/config.json"),
        # The key of the only team of `pspace`, else that of the older program.
        r'^\[keys\]\s*\n[^=\[\n]+=\s*"([^"\n]+)"\s*(?![^\[=]*=)|"apiKey"\s*:\s*"([^"\n]+)"',
    )
    address = "https://api.paperspace.com"
    stops = StopRule("everything", "its disk")
    rents_stopped = True
    loading_minutes = 20

    def boxes(self) -> Sequence[RentedBox]:
        return [_rented(one) for one in self._every("machines", _PaperspaceMachine)]

    def _every(self, what: str, model: type[api.T], **query: str) -> Iterator[api.T]:
        for _ in range(api.MOST_PAGES):
            page = self._api.get(f"/v1/{what}", _Page[model], **query)  # type: ignore[valid-type]
            yield from page.content
            if not page.has_more or not page.next_page:
                return
            query["after"] = page.next_page
        raise api.too_many(self.name)

    def _box(self, box_id: str) -> RentedBox | None:
        machine = self._api.find(f"/v1/machines/{api.segment(box_id)}", _PaperspaceMachine)
        return _rented(machine) if machine else None

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return an offer for each type and region; one that fits only if a machine is free."""
        if order.spot or order.volume:
            return ()
        templates = self._templates(order)
        kinds = {
            one.machine_type_label
            for template in templates
            for one in template.available_machine_types
            if one.is_available
        }
        offers = (
            _offered(kind, *known, region)
            for kind in sorted(kinds)
            if (known := _type_of(kind))
            for region in known[0].regions.split()
        )
        return [offer for offer in offers if offer.misses(order) or self._is_free(offer)]

    def _is_free(self, offer: Offer) -> bool:
        kind, region = offer.id.split("/")
        asked = {"machineType": kind, "region": region}
        return self._api.get("/v1/machine-availability", _PaperspaceAvailability, **asked).available

    def _templates(self, order: RentOrder) -> Sequence[_PaperspaceTemplate]:
        """Return the templates that the order may mean, the newest first."""
        found = self._every("os-templates", _PaperspaceTemplate)
        every = [one for one in found if one.agent_type.startswith("Linux")]
        if order.image:
            named = [one for one in every if order.image in {one.id, one.name}]
            return named or every  # else it is the id of a template of one's own
        ready = [one for one in every if _TEMPLATE in re.sub(r"[^a-z]", "", one.name.lower())]
        return sorted(ready, key=lambda one: one.dt_created, reverse=True)

    def _template(self, order: RentOrder, kind: str) -> str:
        for one in self._templates(order):
            if one.has(kind) and (not order.image or order.image in {one.id, one.name}):
                return one.id
        if not order.image:
            raise api.RefusedError(f"it has no template of its own for a {kind}.", where=self.name)
        return order.image

    def add_key(self, public_key: str) -> None:
        """As `CloudAccount.add_key`: a startup script that lets the key in, as nothing else can."""
        if self._script_with(public_key) is None:
            script = _script(public_key)
            body = {"name": _script_name(public_key), "script": script, "isRunOnce": True}
            self._api.post("/v1/startup-scripts", body, api.NOTHING)

    def _script_with(self, public_key: str) -> str | None:
        name = _script_name(public_key)
        for one in self._every("startup-scripts", _PaperspaceScript, name=name):
            if one.name == name and one.is_enabled and not one.dt_deleted:
                return one.id
        return None

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        kind, region = offer.id.split("/")
        script = self._script_with(public_key)
        if script is None:
            raise api.RefusedError(
                "your account has no startup script with your key.", where=self.name
            )
        wanted = {
            "name": mark,
            "machineType": kind,
            "templateId": self._template(order, kind),
            "diskSize": next(size for size in _DISKS_GB if size >= order.disk_gb),
            "region": region,
            "publicIpType": "dynamic",
            "startupScriptId": script,
            "emailPassword": False,
            "startOnCreate": False,
            **({"enableNvlink": True} if kind in {f"{one}x8" for one in _NVLINK} else {}),
        }
        return self._api.post("/v1/machines", wanted, api.Envelope[_PaperspaceMachine]).content.id

    def log(self, box_id: str) -> Sequence[str]:
        """As `CloudAccount.log`: the errors of its events, oldest first."""
        page = self._api.get("/v1/machine-events", _Page[_PaperspaceEvent], machineId=box_id)
        return [f"{one.name}: {one.error}" for one in page.content if one.error][::-1]

    def destroy(self, box_id: str) -> None:
        self._api.delete(f"/v1/machines/{api.segment(box_id)}", api.NOTHING)

    def stop(self, box_id: str) -> None:
        self._api.patch(f"/v1/machines/{api.segment(box_id)}/stop", None, api.NOTHING)

    def start(self, box_id: str) -> None:
        self._api.patch(f"/v1/machines/{api.segment(box_id)}/start", None, api.NOTHING)


def _script(public_key: str) -> str:
    """Return the startup script, which its machines run as root."""
    folder, key = "/home/paperspace/.ssh", shlex.quote(public_key.strip())
    return (
        "#!/bin/sh\n"
        f"mkdir -p {folder}\n"
        f"grep -qxF {key} {folder}/authorized_keys 2>/dev/null ||\n"
        f"  printf '\\n%s\\n' {key} >>{folder}/authorized_keys\n"
        f"chown -R paperspace: {folder}\n"
        f"chmod 700 {folder}\n"
        f"chmod 600 {folder}/authorized_keys\n"
    )


def _script_name(public_key: str) -> str:
    """Return a name that says which script it is: the list of them doesn't have their texts."""
    return f"boxstrap-{hashlib.sha256(_script(public_key).encode()).hexdigest()[:12]}"


def _type_of(label: str) -> tuple[_Type, int] | None:
    """Return a machine type and its number of GPUs, as in A4000x2; None if its price is unknown."""
    found = _LABEL.fullmatch(label)
    known = _TYPES.get(found[1]) if found else None
    return (known, int(found[2] or 1)) if found and known else None


def _offered(kind: str, one: _Type, count: int, region: str) -> Offer:
    return Offer(
        provider=Paperspace.name,
        id=f"{kind}/{region}",
        gpu=one.gpu,
        gpu_count=count,
        price=one.price * count,
        memory_gib=one.memory_gib,
        arch="amd64",
        is_secure=True,
        region=f"{region}, {_REGIONS[region]}",
        machine=f"{kind}/{region}",
        disk_gb=_DISKS_GB[-1],
    )


def _rented(machine: _PaperspaceMachine) -> RentedBox:
    state = _STATES.get(machine.state, RentedState.UNKNOWN)
    if machine.dt_deleted:
        state = RentedState.GONE
    gpus = machine.accelerators
    price = _price(machine)
    rate = machine.usage_rate
    odd = f"a usage rate of {rate:g} is not its list price an hour" if rate else ""
    return RentedBox(
        provider=Paperspace.name,
        id=machine.id,
        name=machine.name or "",
        state=state,
        gpu=machine.machine_type or "",
        gpu_count=None if gpus is None else round(sum(one.count for one in gpus)),
        address=(machine.public_ip or "") if state is RentedState.RUNNING else "",
        port=22,
        user="paperspace",
        price=price,
        said="" if price is not None else odd,
    )


def _price(machine: _PaperspaceMachine) -> float | None:
    """Return its rate if that can only be dollars an hour."""
    known, rate = _type_of(machine.machine_type or ""), machine.usage_rate
    if known is None or rate is None:
        return None
    listed = known[0].price * known[1]
    return rate if listed / _SAME_UNIT <= rate <= listed * _SAME_UNIT else None
