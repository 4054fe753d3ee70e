"""RunPod: pods, the catalog of GPUs and network volumes of its OpenAPI document.

Its SSH proxy offers only a terminal, so only a pod's own address is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bootstrap.providers.api import NOTHING, CamelModel, segment
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.keys import KeyPlaces
from bootstrap.providers.offer import Leftover, Offer, RentOrder, StopRule
from bootstrap.providers.rented import RentedBox, RentedState

_STATES = {
    "PROVISIONING": RentedState.STARTING,
    "STARTING": RentedState.STARTING,
    "RUNNING": RentedState.RUNNING,
    "EXITED": RentedState.STOPPED,
    "ERROR": RentedState.BROKEN,
    "TERMINATED": RentedState.GONE,
}


_CLOUDS = ("SECURE", "COMMUNITY")
_IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
_CONTAINER_DISK = 20
"""GB in addition to the volume, which holds everything of ours."""


class _Endpoint(CamelModel):
    host: str
    port: int
    username: str


class _Ssh(CamelModel):
    direct: _Endpoint | None = None


class _Gpu(CamelModel):
    id: str
    count: int = 1


class _Pod(CamelModel):
    id: str
    name: str | None = None
    status: str
    ssh: _Ssh | None = None
    gpu: _Gpu | None = None
    cost: float | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None


class _Pods(CamelModel):
    pods: Sequence[_Pod]


class _CloudPrices(CamelModel):
    secure: float
    community: float


class _CloudCounts(CamelModel):
    secure: int
    community: int


class _DataCenter(CamelModel):
    id: str
    availability: str = ""


class _GpuType(CamelModel):
    id: str
    name: str
    memory: float
    price: _CloudPrices
    max_count: _CloudCounts
    availability: str = "NONE"
    data_centers: Sequence[_DataCenter] = ()


class _Gpus(CamelModel):
    gpus: Sequence[_GpuType]


class _NetworkVolume(CamelModel):
    id: str
    name: str = ""
    size: float | None = None
    data_center: str = ""


class _NetworkVolumes(CamelModel):
    network_volumes: Sequence[_NetworkVolume]


class RunPod(CloudAccount):
    """An account at RunPod."""

    name = "runpod"
    title = "RunPod"
    keys = KeyPlaces(
        "RUNPOD_API_KEY", ("~/.runpod/config.toml",), r"""^\s*api_?key\s*=\s*["']([^"'\n]+)["']"""
    )
    address = "https://api.runpod.io"
    stops = StopRule(
        "its volume alone (/workspace)",
        "its volume; at a balance of $0 a pod without a network volume is terminated",
        only_volume=True,
    )

    def boxes(self) -> Sequence[RentedBox]:
        """As `CloudAccount.boxes`."""
        answer = self._api.get("/v2/pods", _Pods)
        return [_rented(pod) for pod in answer.pods]

    def box(self, box_id: str) -> RentedBox | None:
        """As `CloudAccount.box`."""
        pod = self._api.find(f"/v2/pods/{segment(box_id)}", _Pod)
        return _rented(pod) if pod else None

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return one offer for each GPU type and data center: single machines aren't listed."""
        near = None
        if order.volume:
            volume = f"/v2/network-volumes/{segment(order.volume)}"
            near = self._api.get(volume, _NetworkVolume).data_center
        found = list[Offer]()
        for cloud in _CLOUDS:
            asked = {"include": "AVAILABILITY", "product": "POD", "cloud": cloud}
            asked["count"] = str(order.gpu_count)
            types = self._api.get("/v2/catalog/gpus", _Gpus, **asked).gpus
            found += (offer for kind in types for offer in _offered(kind, cloud, order))
        return [offer for offer in found if near is None or offer.region == near]

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        kind, cloud, center = offer.id.rsplit("/", 2)
        mount: dict[str, object] = {
            "persistent": {"size": max(10, order.disk_gb), "path": order.volume_at}
        }
        if order.volume:
            mount = {"network": [{"volumeId": order.volume, "path": order.volume_at}]}
        wanted = {
            "name": mark,
            "image": order.image or _IMAGE,
            "disk": _CONTAINER_DISK,
            "cloud": cloud,
            "gpu": {"id": kind, "count": order.gpu_count},
            "mounts": mount,
            "ports": ["22/tcp"],
            "startSsh": True,
            # Set for the pod: the account's list of keys can only be replaced as a whole.
            "env": {"PUBLIC_KEY": public_key},
            **({"dataCenterIds": [center]} if center else {}),
        }
        return self._api.post("/v2/pods", wanted, _Pod).id

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`."""
        self._api.delete(f"/v2/pods/{segment(box_id)}", NOTHING)

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`."""
        self._api.post(f"/v2/pods/{segment(box_id)}/action", {"action": "stop"}, NOTHING)

    def leftovers(self) -> Sequence[Leftover]:
        """As `CloudAccount.leftovers`."""
        found = self._api.get("/v2/network-volumes", _NetworkVolumes).network_volumes
        return [Leftover(self.name, one.id, one.name, "network volume", one.size) for one in found]


def _offered(kind: _GpuType, cloud: str, order: RentOrder) -> Sequence[Offer]:
    has_it = order.gpu_count <= getattr(kind.max_count, cloud.lower())
    price = getattr(kind.price, cloud.lower())
    if not has_it or not price or kind.availability == "NONE" or order.spot:
        return ()
    centers = [one.id for one in kind.data_centers if one.availability != "NONE"]
    return [
        Offer(
            provider=RunPod.name,
            id=f"{kind.id}/{cloud}/{center}",
            gpu=kind.name,
            gpu_count=order.gpu_count,
            price=price * order.gpu_count,
            memory_gib=kind.memory,
            region=center,
            machine=f"{cloud}/{center}",
        )
        for center in centers or [""]
    ]


def _rented(pod: _Pod) -> RentedBox:
    state = _STATES.get(pod.status, RentedState.UNKNOWN)
    direct = pod.ssh.direct if pod.ssh and state is RentedState.RUNNING else None
    began = pod.started_at or pod.created_at
    return RentedBox(
        provider=RunPod.name,
        id=pod.id,
        name=pod.name or "",
        state=state,
        gpu=f"{pod.gpu.count} x {pod.gpu.id}" if pod.gpu else "",
        address=direct.host if direct else "",
        port=direct.port if direct else 0,
        user=direct.username if direct else "",
        price=pod.cost if state is not RentedState.STOPPED else None,
        stopped_price=pod.cost if state is RentedState.STOPPED else None,
        since=began.timestamp() if began else None,
        said="it has no address of its own yet, or no public IP"
        if state is RentedState.RUNNING and not direct
        else "",
    )
