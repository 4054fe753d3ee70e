"""Lambda: instances, their types, keys and file systems of its OpenAPI document (1.8.3). A box
there can't be stopped, only terminated. The API doesn't say when it was started."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from bootstrap.providers.api import (
    NONE_LEFT,
    NOTHING,
    THIS_OFFER,
    ApiModel,
    Envelope,
    Refusal,
    RefusedError,
    UndecidedError,
    segment,
)
from bootstrap.providers.api_key import ApiKey, KeyPlaces, same_key
from bootstrap.providers.cloud_account import CloudAccount, no_volume
from bootstrap.providers.offer import Leftover, Offer, RentedBox, RentedState, RentOrder

_GONE = "global/object-does-not-exist"
_LAUNCH_EVERY_S = 12.0
_MAY_MOUNT = re.compile(r"(?:/home|/lambda/nfs|/data)[/a-zA-Z0-9-]*")
_IMAGE_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ARM = re.compile(r"gh200|gb[23]00", re.IGNORECASE)
"""Types whose processors are arm64: its API doesn't say so."""
_STATES = {
    "booting": RentedState.STARTING,
    "active": RentedState.RUNNING,
    "unhealthy": RentedState.BROKEN,
    "terminating": RentedState.GONE,
    "terminated": RentedState.GONE,
    "preempted": RentedState.GONE,
}


class _LambdaType(ApiModel):
    description: str = ""
    price_cents_per_hour: float | None = None


class _LambdaInstance(ApiModel):
    id: str
    name: str | None = None
    ip: str | None = None
    status: str
    instance_type: _LambdaType | None = None


class _LambdaSpecs(ApiModel):
    gpus: int = 0
    storage_gib: float | None = None


class _LambdaRegion(ApiModel):
    name: str


class _LambdaKind(ApiModel):
    name: str
    gpu_description: str = ""
    price_cents_per_hour: float
    specs: _LambdaSpecs


class _LambdaOffer(ApiModel):
    instance_type: _LambdaKind
    regions_with_capacity_available: Sequence[_LambdaRegion] = ()


class _LambdaKey(ApiModel):
    name: str
    public_key: str


class _LambdaLaunch(ApiModel):
    instance_ids: Sequence[str]


class _LambdaEnd(ApiModel):
    terminated_instances: Sequence[_LambdaInstance]


class _LambdaFileSystem(ApiModel):
    id: str
    name: str
    region: _LambdaRegion | None = None
    bytes_used: float | None = None


class Lambda(CloudAccount):
    name = "lambda"
    title = "Lambda"
    keys = KeyPlaces("LAMBDA_API_KEY", ("~/.lambda_cloud/lambda_keys",), r"^\s*api_key\s*=\s*(\S+)")
    address = "https://cloud.lambda.ai"
    shares_network = True  # those of a region have one, whatever is asked for
    loading_minutes = 30
    refusals: ClassVar[Mapping[object, Refusal]] = {
        **CloudAccount.refusals,
        "account-inactive": Refusal("your account is not active"),
        "invalid-address": Refusal("your account's address is not valid"),
        "quota-exceeded": Refusal("your account's quota doesn't cover it"),
        "insufficient-capacity": NONE_LEFT,
        "file-system-in-wrong-region": THIS_OFFER,
    }

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        self._has_launched = False

    def boxes(self) -> Sequence[RentedBox]:
        answer = self._api.get("/api/v1/instances", Envelope[Sequence[_LambdaInstance]])
        return [_rented(one) for one in answer.content]

    def _box(self, box_id: str) -> RentedBox | None:
        answer = self._api.find(
            f"/api/v1/instances/{segment(box_id)}", Envelope[_LambdaInstance], [_GONE]
        )
        return _rented(answer.content) if answer else None

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return an offer for each type and region with capacity: single machines aren't listed."""
        if order.spot:
            return ()
        region = self._volume(order.volume).region if order.volume else None
        near = region.name if region else ""
        found = self._api.get(
            "/api/v1/instance-types", Envelope[Mapping[str, _LambdaOffer]]
        ).content
        return [
            _offered(one.instance_type, region.name)
            for one in found.values()
            for region in one.regions_with_capacity_available
            if near in {"", region.name}
        ]

    def _volume(self, name: str) -> _LambdaFileSystem:
        """Return a file system: only instances of its region can mount it."""
        found = self._api.get("/api/v1/file-systems", Envelope[Sequence[_LambdaFileSystem]]).content
        one = next((one for one in found if one.name == name), None)
        if one is None:
            raise no_volume(self.name, name)
        return one

    def add_key(self, public_key: str) -> None:
        if not self._key_name(public_key):
            name = f"boxstrap-{hashlib.sha256(public_key.encode()).hexdigest()[:12]}"
            self._api.post("/api/v1/ssh-keys", {"name": name, "public_key": public_key}, NOTHING)

    def _key_name(self, public_key: str) -> str:
        keys = self._api.get("/api/v1/ssh-keys", Envelope[Sequence[_LambdaKey]]).content
        return next((one.name for one in keys if same_key(one.public_key, public_key)), "")

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        kind, region = offer.id.split("/")
        wanted = {
            "region_name": region,
            "instance_type_name": kind,
            "ssh_key_names": [self._key_name(public_key)],
            "file_system_names": [order.volume] if order.volume else [],
            "file_system_mounts": self._mounts(order),
            "name": mark,
            **({"image": _image(order.image)} if order.image else {}),
        }
        if self._has_launched:  # it takes one launch in that time
            self._api.pause(_LAUNCH_EVERY_S)
        self._has_launched = True
        made = self._api.post("/api/v1/instance-operations/launch", wanted, Envelope[_LambdaLaunch])
        if len(made.content.instance_ids) != 1:
            raise UndecidedError("it says that it rented a box, but not which.", where=self.name)
        return made.content.instance_ids[0]

    def _mounts(self, order: RentOrder) -> Sequence[Mapping[str, str]]:
        """Return where the file system is mounted, if the working folder may be such a place."""
        if not order.volume or not _MAY_MOUNT.fullmatch(order.volume_at):
            return []
        return [{"mount_point": order.volume_at, "file_system_id": self._volume(order.volume).id}]

    @classmethod
    def volume_place(cls, order: RentOrder) -> str:
        may = _MAY_MOUNT.fullmatch(order.volume_at)
        return order.volume_at if may else f"/lambda/nfs/{order.volume}"

    def destroy(self, box_id: str) -> None:
        path, ids = "/api/v1/instance-operations/terminate", {"instance_ids": [box_id]}
        try:
            ended = self._api.post(path, ids, Envelope[_LambdaEnd])
        except RefusedError as error:
            if error.code != _GONE:
                raise
            return
        if box_id not in {one.id for one in ended.content.terminated_instances}:
            raise UndecidedError(f"it didn't terminate {box_id}.", where=self.name)

    def leftovers(self) -> Sequence[Leftover]:
        found = self._api.get("/api/v1/file-systems", Envelope[Sequence[_LambdaFileSystem]]).content
        return [
            Leftover(
                self.name, one.id, one.name, "file system", one.bytes_used and one.bytes_used / 1e9
            )
            for one in found
        ]


def _image(image: str) -> Mapping[str, str]:
    return {"id": image} if _IMAGE_ID.fullmatch(image) else {"family": image}


def _offered(kind: _LambdaKind, region: str) -> Offer:
    memory = re.search(r"(\d+) GB", kind.gpu_description)
    return Offer(
        provider=Lambda.name,
        id=f"{kind.name}/{region}",
        gpu=kind.gpu_description or kind.name,
        gpu_count=kind.specs.gpus,
        price=kind.price_cents_per_hour / 100,
        memory_gib=float(memory[1]) if memory else None,
        region=region,
        machine=f"{kind.name}/{region}",
        arch="arm64" if _ARM.search(f"{kind.name} {kind.gpu_description}") else "amd64",
        disk_gb=kind.specs.storage_gib,
    )


def _rented(one: _LambdaInstance) -> RentedBox:
    kind = one.instance_type
    cents = kind.price_cents_per_hour if kind else None
    state = _STATES.get(one.status, RentedState.UNKNOWN)
    return RentedBox(
        provider=Lambda.name,
        id=one.id,
        name=one.name or "",
        state=state,
        gpu=kind.description if kind else "",
        address=(one.ip or "") if state in {RentedState.RUNNING, RentedState.BROKEN} else "",
        port=22,
        user="ubuntu",
        price=None if cents is None else cents / 100,
    )
