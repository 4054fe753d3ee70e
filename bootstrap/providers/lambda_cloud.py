"""Lambda: `/api/v1/instances` and `/api/v1/instances/{id}`, as its API documents them.

A box there can't be stopped, only terminated; when it was started the API doesn't say.
"""

from __future__ import annotations

from collections.abc import Sequence

from bootstrap.providers.api import ApiModel, segment
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.keys import KeyPlaces
from bootstrap.providers.rented import RentedBox, RentedState

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


class _LambdaMany(ApiModel):
    data: Sequence[_LambdaInstance]


class _LambdaOne(ApiModel):
    data: _LambdaInstance


class Lambda(CloudAccount):
    """An account at Lambda."""

    name = "lambda"
    title = "Lambda"
    keys = KeyPlaces("LAMBDA_API_KEY", ("~/.lambda_cloud/lambda_keys",), r"^\s*api_key\s*=\s*(\S+)")
    address = "https://cloud.lambda.ai"

    def boxes(self) -> Sequence[RentedBox]:
        """As `CloudAccount.boxes`."""
        answer = self._api.get("/api/v1/instances", _LambdaMany)
        return [_rented(one) for one in answer.data]

    def box(self, box_id: str) -> RentedBox | None:
        """As `CloudAccount.box`."""
        answer = self._api.find(f"/api/v1/instances/{segment(box_id)}", _LambdaOne)
        return _rented(answer.data) if answer else None


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
