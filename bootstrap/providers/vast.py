"""Vast.ai: instances, offers (`bundles`), asks, keys and volumes of its OpenAPI document."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, RootModel

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.onbox.verdict.gpu_models import least_gib
from bootstrap.providers import api
from bootstrap.providers.api_key import KeyPlaces, same_key
from bootstrap.providers.cloud_account import CloudAccount, no_volume
from bootstrap.providers.offer import Leftover, Offer, RentedBox, RentedState, RentOrder, StopRule

_MOST = 3000
_HOURS = 720  # hours in a month, as its disk prices count them
_IN_CENTER: Mapping[int | None, bool] = {0: False, 1: True}
"""What its `hosting_type` says. Where data centers alone were asked for, all found are in one."""


class VastOffer(api.ApiModel):
    """One offer of an answer."""

    id: int
    machine_id: int | None = None
    gpu_name: str
    num_gpus: int
    gpu_ram: float | None = None
    cuda_max_good: float | None = None
    cpu_arch: str | None = None
    dph_base: float | None = None
    dph_total: float
    min_bid: float | None = None
    storage_cost: float | None = None
    disk_space: float | None = None
    reliability2: float | None = None
    inet_down: float | None = None
    inet_up: float | None = None
    geolocation: str | None = None
    hosting_type: int | None = None
    duration: float | None = None  # seconds from now until its host's contract ends


def search_terms(order: RentOrder, machine: int | None) -> dict[str, object]:
    """Return the search; `machine`: only this one. It can't match part of a name, so `Offer.misses`
    checks that, and the rest again, since the offers found need not fit."""
    asked: dict[str, object] = {
        "type": "bid" if order.spot else "ondemand",
        "verified": {"eq": True},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "num_gpus": {"eq": order.gpu_count},
        "disk_space": {"gte": order.disk_gb},
        "direct_port_count": {"gte": 1},
        "order": [["dph_total", "asc"], ["reliability2", "desc"]],
        "allocated_storage": order.disk_gb,
        "limit": _MOST,
    }
    if order.arch:
        asked["cpu_arch"] = {"eq": order.arch}
    if order.min_memory_gib:
        asked["gpu_ram"] = {"gte": least_gib(order.min_memory_gib, ecc=True) * 1024}
    if order.min_cuda:
        asked["cuda_max_good"] = {"gte": float(".".join(order.min_cuda.split(".")[:2]))}
    if order.secure_only:
        asked["datacenter"] = {"eq": True}
    if order.min_reliability:
        asked["reliability"] = {"gte": order.min_reliability}
    if order.min_down_mbps:
        asked["inet_down"] = {"gte": order.min_down_mbps}
    if order.min_hours:
        asked["duration"] = {"gte": order.min_hours * 3600}
    if machine is not None:
        asked["machine_id"] = {"eq": machine}
    return asked


def offered(provider: str, offer: VastOffer, order: RentOrder) -> Offer:
    """Convert an offer, with the price that it has with the order's disk."""
    base = offer.min_bid if order.spot else offer.dph_base
    disk = (offer.storage_cost or 0.0) * order.disk_gb / _HOURS
    return Offer(
        provider=provider,
        id=str(offer.id),
        gpu=offer.gpu_name,
        gpu_count=offer.num_gpus,
        price=offer.dph_total if base is None else base + disk,
        bid=base if order.spot else None,
        memory_gib=None if offer.gpu_ram is None else offer.gpu_ram / 1024,
        max_cuda=str(offer.cuda_max_good or ""),
        arch=offer.cpu_arch or "",
        reliability=offer.reliability2,
        down_mbps=offer.inet_down,
        up_mbps=offer.inet_up,
        region=offer.geolocation or "",
        machine=str(offer.machine_id or offer.id),
        disk_gb=offer.disk_space,
        is_secure=order.secure_only or _IN_CENTER.get(offer.hosting_type),
        hours=None if offer.duration is None else offer.duration / 3600,
    )


_PAGE = 25
_IMAGE = "vastai/base-image:@vastai-automatic-tag"
_LOG_LOOKS = 5
_GONE = ("no_such_instance", "not_found")
_NO_TEAM_KEYS = "team_ssh_keys_not_supported"
_NEVER_STARTS = "oci runtime create failed"
"""What its status says of a container that no waiting will start."""
_COLUMNS = (
    *("id", "label", "actual_status", "cur_state", "intended_status", "status_msg"),
    *("gpu_name", "num_gpus", "public_ipaddr", "ports", "ssh_host", "ssh_port", "image_runtype"),
    *("dph_total", "storage_total_cost", "start_date", "uptime_mins", "end_date"),
)
_STATES = {
    "running": RentedState.RUNNING,
    "loading": RentedState.STARTING,
    "created": RentedState.STARTING,
    "scheduling": RentedState.STARTING,
    "rebooting": RentedState.STARTING,
    "exited": RentedState.STOPPED,
    "stopped": RentedState.STOPPED,
    # Its own advice: these never become running.
    "offline": RentedState.BROKEN,
    "unknown": RentedState.BROKEN,
}


class _VastPort(api.ApiModel):
    host_port: str = Field("", alias="HostPort")


def _mapped(ports: object) -> object:
    """Keep only a mapping of ports, as clients see it; the document also has a list of numbers."""
    return ports if isinstance(ports, dict) else None


class _VastInstance(api.ApiModel):
    id: int
    label: str | None = None
    actual_status: str | None = None
    cur_state: str | None = None
    intended_status: str | None = None
    status_msg: str | None = None
    gpu_name: str | None = None
    num_gpus: int | None = None
    public_ipaddr: str | None = None
    ports: Annotated[Mapping[str, Sequence[_VastPort]] | None, BeforeValidator(_mapped)] = None
    ssh_host: str | None = None
    ssh_port: int | None = None
    image_runtype: str | None = None
    dph_total: float | None = None
    storage_total_cost: float | None = None
    start_date: float | None = None  # when it was made, however often it was started since
    uptime_mins: float | None = None
    end_date: float | None = None


class _VastUser(api.ApiModel):
    credit: float | None = None
    balance: float | None = None


class _VastContract(api.ApiModel):
    success: bool
    new_contract: int | None = None


class _VastKey(api.ApiModel):
    key: str | None = None
    public_key: str | None = None


def _listed(keys: object) -> object:
    return keys.get("ssh_keys") if isinstance(keys, dict) and "ssh_keys" in keys else keys


_VastKeys = RootModel[Annotated[Sequence[_VastKey], BeforeValidator(_listed)]]
"""The account's public keys: a list, or a list in a field."""


class _VastIncrease(api.ApiModel):
    contract_id: int
    new_gpu_costpersec: float | None = None
    old_gpu_costpersec: float | None = None


class _VastIncreases(api.ApiModel):
    pending_price_increases: Sequence[_VastIncrease] = ()


class _VastLog(api.ApiModel):
    success: bool = False
    result_url: str = ""


class _VastPage(api.Envelope[Sequence[_VastInstance]]):
    next_token: str | None = None


class _VastVolume(api.ApiModel):
    id: int
    machine_id: int | None = None
    disk_space: float | None = None
    storage_total_cost: float | None = None


class _VastVolumes(api.ApiModel):
    volumes: Sequence[_VastVolume] = ()


class Vast(CloudAccount):
    name = "vast"
    title = "Vast.ai"
    keys = KeyPlaces("VAST_API_KEY", ("~/.config/vastai/vast_api_key", "~/.vast_api_key"))
    address = "https://console.vast.ai"
    offers_need_key = False
    is_container = True
    no_private_network = "its boxes share their hosts' public addresses, with mapped ports"
    stops = StopRule("everything", "its disk, typically at a higher price than while it runs")
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        **CloudAccount.refusals,
        "insufficient_credit": CloudAccount.refusals[402],
        "no_such_ask": api.NONE_LEFT,
        "invalid_volume": api.THIS_OFFER,
    }

    def boxes(self) -> Sequence[RentedBox]:
        found, token = list[RentedBox](), ""
        for _ in range(api.MOST_PAGES):
            query = {"limit": str(_PAGE), "select_cols": json.dumps(_COLUMNS)}
            if token:
                query["after_token"] = token
            page = self._api.get("/api/v1/instances/", _VastPage, **query)
            found += (self._rented(one) for one in page.content)
            token = page.next_token or ""
            if not token:
                return found
        raise api.too_many(self.name)

    def _box(self, box_id: str) -> RentedBox | None:
        if not box_id.isdecimal():
            return None
        answer = self._api.find(
            f"/api/v0/instances/{api.segment(box_id)}/", api.Envelope[_VastInstance | None], _GONE
        )
        one = answer.content if answer else None
        return self._rented(one) if one else None

    def _rented(self, one: _VastInstance) -> RentedBox:
        return _rented(one, self._api.answered_at or time.time())

    def balance(self) -> float | None:
        user = self._api.get("/api/v0/users/current", _VastUser)
        return user.credit if user.credit is not None else user.balance

    def increases(self) -> Mapping[str, float]:
        """As `CloudAccount.increases`; what the disk would cost more is not counted."""
        path = "/api/v0/instances/pending-price-increases/"
        rows = self._api.get(path, _VastIncreases).pending_price_increases
        return {
            str(one.contract_id): (one.new_gpu_costpersec - one.old_gpu_costpersec) * 3600
            for one in rows
            if one.new_gpu_costpersec is not None and one.old_gpu_costpersec is not None
        }

    def log(self, box_id: str) -> Sequence[str]:
        """As `CloudAccount.log`: the file that it says it has put the log into."""
        path = f"/api/v0/instances/request_logs/{api.segment(box_id)}/"
        told = self._api.put(path, {"tail": "20"}, _VastLog)
        for _ in range(_LOG_LOOKS if told.result_url else 0):
            with suppress(BoxstrapError):  # it takes a moment until it is there
                return self._api.text(told.result_url).splitlines()
            self._api.pause(1)
        return ()

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        machine = self._machine_of(order.volume) if order.volume else None
        wanted = search_terms(order, machine)
        found = self._api.search(
            "/api/v0/bundles/", wanted, api.Envelope[Sequence[VastOffer]]
        ).content
        return [offered(self.name, offer, order) for offer in found]

    def _machine_of(self, volume: str) -> int | None:
        """Return the machine that a volume is on: no other can mount it. None if unknown."""
        if not volume.isdecimal():
            raise UsageError("a volume at Vast.ai is a number.", where=volume)
        if not self.has_key:
            return None
        found = self._api.get("/api/v0/volumes/", _VastVolumes).volumes
        one = next((one for one in found if one.id == int(volume)), None)
        if one is None:
            raise no_volume(self.name, volume)
        return one.machine_id

    def add_key(self, public_key: str) -> None:
        """As `CloudAccount.add_key`. A team's API key can't add any: `_rent` sets it on the box."""
        # An account without any key answers with 404.
        known = self._api.find("/api/v0/ssh/", _VastKeys)
        keys = (one.key or one.public_key or "" for one in (known.root if known else ()))
        if any(same_key(public_key, key) for key in keys):
            return
        try:
            self._api.post("/api/v0/ssh/", {"ssh_key": public_key}, api.NOTHING)
        except api.RefusedError as error:
            if error.code != _NO_TEAM_KEYS:
                raise

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        wanted: dict[str, Any] = {
            "image": order.image or _IMAGE,
            "label": mark,
            "disk": order.disk_gb,
            "runtype": "ssh_direc ssh_proxy",
            "target_state": "running",
            "cancel_unavail": True,
        }
        if offer.bid is not None:
            wanted["price"] = offer.bid
        if order.volume:
            wanted["volume_info"] = {
                "create_new": False,
                "volume_id": int(order.volume),
                "mount_path": order.volume_at,
            }
        try:
            made = self._api.put(f"/api/v0/asks/{api.segment(offer.id)}/", wanted, _VastContract)
        except api.RefusedError as error:
            self._end_failed_bid(error.answer.get("new_contract"))
            raise
        if not made.success:
            self._end_failed_bid(made.new_contract)
            raise api.RefusedError("its bid failed.", where=self.name, code=api.TAKEN)
        if made.new_contract is None:
            raise api.UndecidedError(
                "it says that it rented a box, but not which.", where=self.name
            )
        box_id = str(made.new_contract)
        # The account already has the key, unless it is a team's. The box is rented, whatever this
        # request answers.
        with suppress(BoxstrapError):
            self._api.post(f"/api/v0/instances/{box_id}/ssh/", {"ssh_key": public_key}, api.NOTHING)
        return box_id

    def _end_failed_bid(self, contract: object) -> None:
        """Destroy the contract that a failed bid may have made anyway: it costs money."""
        if isinstance(contract, int):
            try:
                self.destroy(str(contract))
            except BoxstrapError as error:
                raise api.UndecidedError(
                    f"its bid failed, and left contract {contract}, which could not be destroyed: "
                    f"{error.what}",
                    where=self.name,
                ) from None

    def destroy(self, box_id: str) -> None:
        ended = self._api.delete(f"/api/v0/instances/{api.segment(box_id)}/", _VastContract, _GONE)
        if ended and not ended.success:
            raise api.UndecidedError(f"it didn't destroy {box_id}.", where=self.name)

    def stop(self, box_id: str) -> None:
        if not self._has_set(box_id, "stopped"):
            raise api.UndecidedError(f"it didn't stop {box_id}.", where=self.name)

    def start(self, box_id: str) -> None:
        """As `CloudAccount.start`. While another has its GPUs it is `scheduling`."""
        if not self._has_set(box_id, "running"):
            raise api.RefusedError(f"it didn't start {box_id}.", where=self.name)

    def _has_set(self, box_id: str, state: str) -> bool:
        path = f"/api/v0/instances/{api.segment(box_id)}/"
        return self._api.put(path, {"state": state}, _VastContract).success

    def leftovers(self) -> Sequence[Leftover]:
        found = self._api.get("/api/v0/volumes/", _VastVolumes).volumes
        return [
            Leftover(self.name, str(one.id), "", "volume", one.disk_space, one.storage_total_cost)
            for one in found
        ]


def _rented(one: _VastInstance, now: float) -> RentedBox:
    address, port = _reached(one)
    started = one.start_date if one.uptime_mins is None else now - one.uptime_mins * 60
    return RentedBox(
        provider=Vast.name,
        id=str(one.id),
        name=one.label or "",
        state=_state(one),
        gpu=f"{one.num_gpus or 1} x {one.gpu_name}" if one.gpu_name else "",
        address=address,
        port=port,
        user="root",
        price=one.dph_total,
        stopped_price=one.storage_total_cost,
        since=started,
        ends=one.end_date,
        said=one.status_msg or one.actual_status or "",
        other_ways=_proxy(one),
    )


def _state(one: _VastInstance) -> RentedState:
    """Return the state; after a request to stop that is STOPPED, whatever the container says."""
    if "stopped" in {one.intended_status, one.cur_state}:
        return RentedState.STOPPED
    if _NEVER_STARTS in (one.status_msg or "").lower() and one.actual_status != "running":
        return RentedState.BROKEN
    if one.actual_status is None:
        return RentedState.STARTING
    return _STATES.get(one.actual_status, RentedState.UNKNOWN)


def _reached(one: _VastInstance) -> tuple[str, int]:
    """Return its own address and port, else those of the proxy; "" and 0 if it isn't running."""
    if _state(one) is not RentedState.RUNNING:
        return "", 0
    mapped = (one.ports or {}).get("22/tcp") or ()
    port = mapped[0].host_port if mapped else ""
    if one.public_ipaddr and port.isdecimal():
        return one.public_ipaddr.strip(), int(port)
    return next(iter(_proxy(one)), ("", 0))


def _proxy(one: _VastInstance) -> tuple[tuple[str, int], ...]:
    """Return the proxy's address and this instance's own port there, one higher with Jupyter."""
    if not (one.ssh_host and one.ssh_port):
        return ()
    return ((one.ssh_host, one.ssh_port + ("jupyter" in (one.image_runtype or ""))),)
