"""Paperspace: `/v1/machines`, as its API documents them.

The API does not report a machine's price.
"""

from __future__ import annotations

from collections.abc import Sequence

from bootstrap.providers.api import MOST_PAGES, NOTHING, CamelModel, segment, too_many
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.keys import KeyPlaces
from bootstrap.providers.offer import StopRule
from bootstrap.providers.rented import RentedBox, RentedState

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


class _PaperspaceMachine(CamelModel):
    id: str
    name: str | None = None
    state: str
    machine_type: str | None = None
    public_ip: str | None = None


class _PaperspacePage(CamelModel):
    items: Sequence[_PaperspaceMachine]
    has_more: bool = False
    next_page: str | None = None


class Paperspace(CloudAccount):
    """An account at Paperspace."""

    name = "paperspace"
    title = "Paperspace"
    keys = KeyPlaces(
        "PAPERSPACE_API_KEY", ("~/.paperspace/config.json",), r'"apiKey"\s*:\s*"([^"\n]+)"'
    )
    address = "https://api.paperspace.com"
    cant_rent = (
        "Paperspace's API reports no prices, so no price limit could be kept. Rent on its page, "
        "then: "
        "boxstrap setup --host paperspace:ID"
    )
    stops = StopRule("everything", "its disk")

    def boxes(self) -> Sequence[RentedBox]:
        """As `CloudAccount.boxes`."""
        found, query = list[RentedBox](), dict[str, str]()
        for _ in range(MOST_PAGES):
            page = self._api.get("/v1/machines", _PaperspacePage, **query)
            found += map(_rented, page.items)
            if not page.has_more or not page.next_page:
                return found
            query = {"after": page.next_page}
        raise too_many(self.name)

    def box(self, box_id: str) -> RentedBox | None:
        """As `CloudAccount.box`."""
        machine = self._api.find(f"/v1/machines/{segment(box_id)}", _PaperspaceMachine)
        return _rented(machine) if machine else None

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`."""
        self._api.delete(f"/v1/machines/{segment(box_id)}", NOTHING)

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`."""
        self._api.patch(f"/v1/machines/{segment(box_id)}/stop", None, NOTHING)


def _rented(machine: _PaperspaceMachine) -> RentedBox:
    state = _STATES.get(machine.state, RentedState.UNKNOWN)
    return RentedBox(
        provider=Paperspace.name,
        id=machine.id,
        name=machine.name or "",
        state=state,
        gpu=machine.machine_type or "",
        address=(machine.public_ip or "") if state is RentedState.RUNNING else "",
        port=22,
        user="paperspace",
    )
