"""RunPod: pods, the catalog of GPUs and network volumes of its OpenAPI document. Its SSH proxy
offers only a terminal, so only a pod's own address is used."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from pydantic import AliasPath, Field

from bootstrap.errors import UnreachableError
from bootstrap.providers import api
from bootstrap.providers.api_key import KeyPlaces
from bootstrap.providers.cloud_account import CloudAccount, no_volume
from bootstrap.providers.offer import (
    Leftover,
    Offer,
    RentedBox,
    RentedState,
    RentOrder,
    StopRule,
    version_tuple,
)

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
_CONTAINER_DISK = 20  # GB in addition to the volume, which holds everything of ours
_IMAGE_CUDA = "12.8"
"""What `_IMAGE` needs: on an older driver its container never starts, and is paid for."""
_NONE_LEFT = "no instances currently available"
"""A refusal, though it may come with a 500, after which nobody knows what was done."""
_STOPPED_GB_HOUR = 0.20 / 720  # dollars an hour for each GB of the volume of a stopped pod


class _Endpoint(api.CamelModel):
    host: str
    port: int
    username: str


class _Gpu(api.CamelModel):
    id: str
    count: int = 1


class _Cluster(api.CamelModel):
    id: str


class _Pod(api.CamelModel):
    id: str
    name: str | None = None
    status: str
    ssh: _Endpoint | None = Field(None, validation_alias=AliasPath("ssh", "direct"))
    gpu: _Gpu | None = None
    cpu: object = None  # set instead of `gpu` for a pod that was ordered without GPUs
    kept: float | None = Field(None, validation_alias=AliasPath("mounts", "persistent", "size"))
    cost: float | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    cluster: _Cluster | None = None


_Pods = api.Envelope[Sequence[_Pod]]


class _NamedCluster(_Cluster):
    name: str
    created_at: datetime | None = None


class _CloudPrices(api.CamelModel):
    secure: float
    community: float


class _CloudCounts(api.CamelModel):
    secure: int
    community: int


class _DataCenter(api.CamelModel):
    id: str
    availability: str = ""


class _GpuType(api.CamelModel):
    id: str
    name: str
    memory: float
    price: _CloudPrices
    max_count: _CloudCounts
    availability: str = "NONE"
    data_centers: Sequence[_DataCenter] = ()


class _NetworkVolume(api.CamelModel):
    id: str
    name: str = ""
    size: float | None = None
    data_center: str = ""


class RunPod(CloudAccount):
    name = "runpod"
    title = "RunPod"
    keys = KeyPlaces(
        "RUNPOD_API_KEY", ("~/.runpod/config.toml",), r"""^\s*api_?key\s*=\s*["']([^"'\n]+)["']"""
    )
    address = "https://api.runpod.io"
    is_container = True
    shares_network = True
    rents_clusters = True
    no_private_network = "a pod's ports are mapped, and its global network has 100 Mbit/s"
    loading_minutes = 20
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        **CloudAccount.refusals,
        400: api.NONE_LEFT,
        422: api.Refusal("it would refuse the same request for any other offer"),
    }
    stops = StopRule(
        "its volume alone (/workspace)",
        "its volume; at a balance of $0 a pod without a network volume is terminated",
        only_volume=True,
    )

    def boxes(self) -> Sequence[RentedBox]:
        pods = self._api.get("/v2/pods", _Pods, includeClusterPods="true").content
        clusters = self._clusters(may_be_refused=not any(pod.cluster for pod in pods))
        names = {cluster.id: cluster.name for cluster in clusters}
        filled = {pod.cluster.id for pod in pods if pod.cluster}
        empty = [_unfilled(cluster) for cluster in clusters if cluster.id not in filled]
        return [*(_rented(pod, names) for pod in pods), *empty]

    def _clusters(self, *, may_be_refused: bool) -> Sequence[_NamedCluster]:
        """Return the account's clusters; none for a key that may not see any, where that may be."""
        try:
            return self._api.get("/v2/clusters", api.Envelope[Sequence[_NamedCluster]]).content
        except api.RefusedKeyError:
            if may_be_refused:
                return ()
            raise

    def _box(self, box_id: str) -> RentedBox | None:
        pod = self._api.find(f"/v2/pods/{api.segment(box_id)}", _Pod)
        if pod is None or pod.cluster is None:
            return _rented(pod, {}) if pod else None
        found = self._api.find(f"/v2/clusters/{api.segment(pod.cluster.id)}", _NamedCluster)
        return _rented(pod, {found.id: found.name} if found else {})

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return an offer for each GPU type, and data center of the secure cloud: single machines
        aren't listed. A volume is in one data center, and community machines can't mount it."""
        near = None
        if order.volume:
            volume = f"/v2/network-volumes/{api.segment(order.volume)}"
            found_volume = self._api.find(volume, _NetworkVolume)
            if found_volume is None:
                raise no_volume(self.name, order.volume)
            near = found_volume.data_center
        found = list[Offer]()
        is_cluster = order.boxes > 1
        is_secure = is_cluster or near is not None or order.secure_only
        for cloud in _CLOUDS[:1] if is_secure else _CLOUDS:
            product = "CLUSTER" if is_cluster else "POD"
            asked = {"include": "AVAILABILITY", "product": product, "cloud": cloud}
            asked["count"] = str(order.gpu_count)
            if cuda := _min_cuda(order):
                asked["minCudaVersion"] = cuda
            types = self._api.get(
                "/v2/catalog/gpus", api.Envelope[Sequence[_GpuType]], **asked
            ).content
            found += (offer for kind in types for offer in _offered(kind, cloud, order))
        return [offer for offer in found if near is None or offer.region == near]

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        """As `CloudAccount._rent`; of a cluster any pod's id, once one is there."""
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
            "mounts": mount,
            "ports": ["22/tcp"],
            "startSsh": True,
            # Set for the pod: the account's list of keys can only be replaced as a whole.
            "env": {"PUBLIC_KEY": public_key},
            **({"dataCenterIds": [center]} if center else {}),
        }
        try:
            if offer.boxes > 1:
                shape = {"gpuTypeId": kind, "gpuCountPerPod": order.gpu_count}
                shape["podCount"] = offer.boxes
                wanted |= {"type": "TRAINING", "compute": shape}
                return self._first_pod(self._api.post("/v2/clusters", wanted, _Cluster).id)
            gpu: dict[str, object] = {"id": kind, "count": order.gpu_count}
            if cuda := _min_cuda(order):
                gpu["minCudaVersion"] = cuda
            wanted |= {"cloud": cloud, "gpu": gpu}
            return self._api.post("/v2/pods", wanted, _Pod).id
        except api.UndecidedError as error:
            if _NONE_LEFT not in error.what.lower():
                raise
            said = f"it has none left: {error.what}"
            raise api.RefusedError(said, where=self.name, code=api.TAKEN) from None

    def _first_pod(self, cluster: str) -> str:
        """Return the id of one of its pods. Raises UndecidedError while it has none: like a box
        whose answer was lost, it is found by its name."""
        said = f"the cluster {cluster} has no pods yet."
        try:
            pods = self._api.get(f"/v2/clusters/{api.segment(cluster)}/pods", _Pods).content
        except UnreachableError as error:
            pods, said = (), f"the pods of the cluster {cluster} are unknown: {error.what}"
        if not pods:
            raise api.UndecidedError(said, where=self.name)
        return min(pods, key=lambda pod: pod.id).id

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`. One of a cluster is refused."""
        self._api.delete(f"/v2/pods/{api.segment(box_id)}", api.NOTHING)

    def destroy_cluster(self, cluster: str) -> None:
        self._api.delete(f"/v2/clusters/{api.segment(cluster)}", api.NOTHING)

    def stop(self, box_id: str) -> None:
        self._api.post(f"/v2/pods/{api.segment(box_id)}/action", {"action": "stop"}, api.NOTHING)

    def start(self, box_id: str) -> None:
        """As `CloudAccount.start`. If others have its GPUs it may start without any."""
        self._api.post(f"/v2/pods/{api.segment(box_id)}/action", {"action": "start"}, api.NOTHING)

    def log(self, box_id: str) -> Sequence[str]:
        return self._api.events(f"/v2/pods/{api.segment(box_id)}/logs?tail=20", "line")

    def leftovers(self) -> Sequence[Leftover]:
        found = self._api.get("/v2/network-volumes", api.Envelope[Sequence[_NetworkVolume]]).content
        return [Leftover(self.name, one.id, one.name, "network volume", one.size) for one in found]


def _offered(kind: _GpuType, cloud: str, order: RentOrder) -> Sequence[Offer]:
    has_it = order.gpu_count <= getattr(kind.max_count, cloud.lower())
    price = getattr(kind.price, cloud.lower())
    if not has_it or not price or kind.availability == "NONE" or order.spot:
        return ()
    # A community pod that names any data center is refused; so it is placed anywhere.
    is_secure = cloud == _CLOUDS[0]
    every = kind.data_centers if is_secure else ()
    centers = [one.id for one in every if one.availability != "NONE"]
    return [
        Offer(
            provider=RunPod.name,
            id=f"{kind.id}/{cloud}/{center}",
            gpu=kind.name,
            gpu_count=order.gpu_count,
            price=price * order.gpu_count,
            memory_gib=kind.memory,
            region=center,
            machine=f"{kind.id}/{cloud}/{center}",
            is_secure=is_secure,
            boxes=order.boxes,
        )
        for center in centers or [""]
    ]


def _min_cuda(order: RentOrder) -> str:
    """Return the oldest CUDA, as MAJOR.MINOR, that the host's driver must support; "" for any."""
    of_image = "" if order.image else _IMAGE_CUDA
    oldest = max(order.min_cuda, of_image, key=version_tuple)
    return ".".join([*oldest.split("."), "0"][:2]) if oldest else ""


def _gpu_count(pod: _Pod) -> int | None:
    """Return how many GPUs it has: 0 after a start for which its machine had none left."""
    if pod.gpu is not None:
        return pod.gpu.count
    return None if pod.cpu is not None else 0


def _unfilled(cluster: _NamedCluster) -> RentedBox:
    """Return a cluster that has no pods yet as a box, by its own id: it may cost money."""
    return RentedBox(
        provider=RunPod.name,
        id=cluster.id,
        name=cluster.name,
        state=RentedState.STARTING,
        since=cluster.created_at.timestamp() if cluster.created_at else None,
        cluster=cluster.id,
        said="a cluster whose pods are not there yet",
    )


def _rented(pod: _Pod, clusters: Mapping[str, str]) -> RentedBox:
    """Return a pod as a box. Its mark is its cluster's name, if it is of one: `clusters` by id."""
    state = _STATES.get(pod.status, RentedState.UNKNOWN)
    direct = pod.ssh if state is RentedState.RUNNING else None
    began = pod.started_at or pod.created_at
    return RentedBox(
        provider=RunPod.name,
        id=pod.id,
        name=(clusters.get(pod.cluster.id) if pod.cluster else pod.name) or "",
        state=state,
        gpu=f"{pod.gpu.count} x {pod.gpu.id}" if pod.gpu else "",
        gpu_count=_gpu_count(pod) if state is RentedState.RUNNING else None,
        address=direct.host if direct else "",
        port=direct.port if direct else 0,
        user=direct.username if direct else "",
        price=pod.cost if state is not RentedState.STOPPED else None,
        # A stopped pod has a price of 0 in the API, though its volume costs.
        stopped_price=None if pod.kept is None else round(pod.kept * _STOPPED_GB_HOUR, 6),
        since=began.timestamp() if began else None,
        cluster=pod.cluster.id if pod.cluster else "",
        said="it has no address of its own yet, or no public IP"
        if state is RentedState.RUNNING and not direct
        else "",
    )
