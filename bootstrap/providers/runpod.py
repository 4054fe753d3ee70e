"""RunPod: `/v2/pods` and `/v2/pods/{id}` of its OpenAPI document.

Its proxy is a terminal and nothing else, so only a pod's own address is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bootstrap.providers.api import CamelModel, segment
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.keys import KeyPlaces
from bootstrap.providers.rented import RentedBox, RentedState

_STATES = {
    "PROVISIONING": RentedState.STARTING,
    "STARTING": RentedState.STARTING,
    "RUNNING": RentedState.RUNNING,
    "EXITED": RentedState.STOPPED,
    "ERROR": RentedState.BROKEN,
    "TERMINATED": RentedState.GONE,
}


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


class RunPod(CloudAccount):
    """An account at RunPod."""

    name = "runpod"
    title = "RunPod"
    keys = KeyPlaces(
        "RUNPOD_API_KEY", ("~/.runpod/config.toml",), r"""^\s*api_?key\s*=\s*["']([^"'\n]+)["']"""
    )
    address = "https://api.runpod.io"

    def boxes(self) -> Sequence[RentedBox]:
        """As `CloudAccount.boxes`."""
        answer = self._api.get("/v2/pods", _Pods)
        return [_rented(pod) for pod in answer.pods]

    def box(self, box_id: str) -> RentedBox | None:
        """As `CloudAccount.box`."""
        pod = self._api.find(f"/v2/pods/{segment(box_id)}", _Pod)
        return _rented(pod) if pod else None


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
