"""Azure: sizes with GPUs, on demand and spot, by Resource Manager's REST API.

A box is a resource group of its own, named by its mark and with it as a tag: all that it consists
of is made by one deployment into that group, and is deleted with it. A box's id is the mark's
letters with a digest of its subscription (`0123456789ab_1f2e3d`).

What shuts itself down goes on being paid for, so a box can't hold its lease by that, and it gets
no identity. Azure's own daily schedule stops (deallocates) it after a lease of at most a day.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import AliasPath, Field

from bootstrap.errors import UnreachableError
from bootstrap.providers import api
from bootstrap.providers.api_key import ApiKey
from bootstrap.providers.azure_api import (
    NO_DEPLOYMENT,
    NO_GROUP,
    NO_THING,
    AzureApi,
    AzureLogin,
    reason_of,
)
from bootstrap.providers.azure_market import COMPUTE, MORE, NAME, AzureMarket
from bootstrap.providers.azure_template import (
    NETWORK,
    SCHEDULE,
    TIMES,
    USER,
    VM,
    image_of,
    inside,
    next_time,
    schedule_of,
    template_of,
    vm_path,
)
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import (
    LEASE_HOURS,
    Leftover,
    Offer,
    RentedBox,
    RentedState,
    RentOrder,
    StopRule,
    limit_s,
)

TAG = "boxstrap"
"""The tag with the mark: a group without it, or with another one than its name, is not ours."""
PRICE_TAG, HOLD_TAG = "boxstrap-price", "boxstrap-stops-after"
"""Dollars an hour at the rental; seconds after a start at which Azure itself stops the box."""
LONGEST_HOLD_S = 86400 - 600
"""A schedule names a time of the day: more than a day after a start it can't mean."""
_GROUPS = "api-version=2022-09-01"
_DISK_GB_HOUR = 0.15 / 730
"""Dollars of a premium disk, about: it is paid by steps, and differs by region."""
_ADDRESS_HOUR = 0.005
_MARK = re.compile(r"boxstrap-([0-9a-f]{12})")
_BOX_ID = re.compile(r"([0-9a-f]{12})_([0-9a-f]{6})")
_OFF_LOOKS, _OFF_S = 12, 5.0
_LOOKS_S = (2.0, 4.0, 5.0)  # seconds between two looks at a deployment; the last one repeats
_LONGEST_DEPLOYMENT_S = 300.0
_IS_THERE = "DeploymentActive"
_BEING_DELETED = "ResourceGroupBeingDeleted"
_FAILED = frozenset({"Failed", "Canceled", "Deleted"})
"""How a deployment may end; the other way is `Succeeded`."""
_GOES_ON = frozenset({"Creating", "Updating"})
_POWER = {
    "starting": RentedState.STARTING,
    "running": RentedState.RUNNING,
    # Paid for as if it ran, until somebody deallocates it: so a guard must end it, too.
    **dict.fromkeys(("stopping", "stopped"), RentedState.RUNNING),
    **dict.fromkeys(("deallocating", "deallocated"), RentedState.STOPPED),
}
_OFF = "it was shut down from within, which Azure bills as if it ran: az vm deallocate"


def _of(*path: str, default: object = ...) -> Any:  # noqa: ANN401 - as pydantic's own
    """Return the field that lies there below `properties`, where Azure has most."""
    return Field(default, validation_alias=AliasPath("properties", *path))


class _Group(api.CamelModel):
    name: str
    location: str = ""
    tags: Mapping[str, str] = {}
    state: str = _of("provisioningState", default="")

    @property
    def mark(self) -> str:
        """The mark of a group that is ours; else ""."""
        is_ours = _MARK.fullmatch(self.name) and self.tags.get(TAG) == self.name
        return self.name if is_ours else ""


class _Groups(api.Envelope[Sequence[_Group]], api.CamelModel):
    next_link: str | None = None


class _Deployment(api.CamelModel):
    state: str = _of("provisioningState")
    error: Any = _of("error", default=None)


class _Status(api.CamelModel):
    code: str = ""
    message: str = ""
    time: str | None = None


class _Vm(api.CamelModel):
    location: str = ""
    size: str = _of("hardwareProfile", "vmSize", default="")
    disk_gb: float | None = _of("storageProfile", "osDisk", "diskSizeGB", default=None)
    priority: str = _of("priority", default="Regular")
    making: str = _of("provisioningState", default="")
    time_created: str | None = _of("timeCreated", default=None)
    statuses: Sequence[_Status] = _of("instanceView", "statuses", default=())

    def status(self, what: str) -> str:
        """Return what its statuses say of its power, or its making; "" if nothing."""
        found = (one.code.partition("/") for one in self.statuses)
        return next((said for of, _, said in found if of == what), "").lower()

    @property
    def failure(self) -> str:
        """Why the last thing that was asked of it failed; "" if it didn't."""
        for one in self.statuses:
            if one.code.startswith("ProvisioningState/failed"):
                code = one.code.rpartition("/")[2]
                return f"{code}: {one.message}" if one.message else code
        return ""


class _Address(api.CamelModel):
    ip: str | None = _of("ipAddress", default=None)


class _Schedule(api.CamelModel):
    status: str = _of("status", default="")
    time: str | None = _of("dailyRecurrence", "time", default=None)


class Azure(CloudAccount):
    name = NAME
    title = "Azure"
    keys = AzureLogin("AZURE_CONFIG_DIR", ("~/.azure",))
    address = "https://management.azure.com"
    is_ambient = True
    stops = StopRule("its disk alone (no local disk)", "its disk and its address")
    loading_minutes = 20
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        **CloudAccount.refusals,
        **dict.fromkeys(
            ("AuthorizationFailed", "LinkedAuthorizationFailed"),
            api.Refusal("your login lacks this permission: docs/providers.md"),
        ),
        "RequestDisallowedByPolicy": api.BY_POLICY,
        "MissingSubscriptionRegistration": api.Refusal(
            "to switch it on: az provider register --namespace Microsoft.Compute (and "
            "Microsoft.Network, Microsoft.DevTestLab)"
        ),
        **dict.fromkeys(
            ("ReadOnlyDisabledSubscription", "SubscriptionNotRegistered", "DisabledSubscription"),
            api.Refusal(
                "your subscription is switched off: its credit is used up, or a balance is owed"
            ),
        ),
        "SubscriptionNotFound": api.Refusal("your login has no such subscription any more"),
        **dict.fromkeys(("QuotaExceeded", "OperationNotAllowed"), api.THIS_OFFER),
        **dict.fromkeys(
            (
                *("SkuNotAvailable", "AllocationFailed", "ZonalAllocationFailed"),
                *("OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest"),
            ),
            api.NONE_LEFT,
        ),
    }

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        self._azure = AzureApi(self.name, self.address, key.source if key else "")
        self._api = self._azure
        self._api.refusals = self.refusals
        self._market = AzureMarket(self._azure)
        self._ours = set[str]()
        """Ids of boxes that were seen to have our tag: what is destroyed must have it."""

    # Boxes

    def boxes(self) -> Sequence[RentedBox]:
        """Return the boxes that have our tag: a subscription may be a company's."""
        found, away = list[RentedBox](), dict[str, UnreachableError]()
        for one in self._groups():
            try:
                found.append(self._rented(one, self._azure.subscription))
            except api.RefusedKeyError:
                raise
            except UnreachableError as error:  # its region may be down
                away[f"{one.name} in {one.location}"] = error
        return self._unless_away([x for x in found if x.state is not RentedState.GONE], away)

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        """As `CloudAccount.find_mark`; also a group of that name in which nothing is yet."""
        found = self._box(f"{mark.rpartition('-')[2]}_{api.digest_of(self._azure.subscription)}")
        return [found] if found and found.state is not RentedState.GONE else []

    def _around(self, box_id: str) -> Sequence[RentedBox]:
        """As `CloudAccount._around`: it alone of those listed, as another's region may be down."""
        if not _BOX_ID.fullmatch(box_id):
            return ()
        subscription = self._subscription(box_id)
        found = (one for one in self._groups(subscription) if one.mark == _mark_of(box_id))
        return [self._rented(one, subscription) for one in found]

    def _groups(self, subscription: str = "") -> Iterator[_Group]:
        path = f"/subscriptions/{subscription or self._azure.subscription}/resourcegroups"
        place = f"{path}?{_GROUPS}&$filter=tagName%20eq%20%27{TAG}%27"
        for _ in range(api.MOST_PAGES):
            page = self._azure.get(place, _Groups)
            yield from (one for one in page.content if one.mark)
            if not page.next_link:
                return
            place = f"{path}?{page.next_link.partition('?')[2]}"
        raise api.too_many(self.name)

    def _box(self, box_id: str) -> RentedBox | None:
        found = self._group(box_id)
        return self._rented(found, self._subscription(box_id)) if found else None

    def _group(self, box_id: str) -> _Group | None:
        parts = _BOX_ID.fullmatch(box_id)
        if not parts:
            return None
        subscription = self._subscription(box_id)
        found = self._azure.find(_group_path(subscription, _mark_of(box_id)), _Group, (NO_GROUP,))
        if found is None or not found.mark:
            return None
        self._ours.add(box_id)
        return found

    def _subscription(self, box_id: str) -> str:
        return self._azure.subscription_of(box_id.rpartition("_")[2])

    def _rented(self, group: _Group, subscription: str) -> RentedBox:
        place = inside(subscription, group.name)
        vm = self._azure.find(
            f"{vm_path(place)}?{COMPUTE}&$expand=instanceView", _Vm, (NO_THING, NO_GROUP)
        )
        state, said = self._unmade(place, group) if vm is None else _state_of(vm)
        if group.state == "Deleting":
            state = RentedState.GONE if vm is None else RentedState.UNKNOWN
            said = "it is being deleted"
        is_running = state is RentedState.RUNNING and vm is not None
        is_on = is_running and said != _OFF
        box_id = f"{group.name.rpartition('-')[2]}_{api.digest_of(subscription)}"
        self._ours.add(box_id)
        size = (vm.disk_gb if vm else None) or 0.0
        price = _number(group.tags.get(PRICE_TAG, ""))
        return RentedBox(
            provider=self.name,
            id=box_id,
            name=group.name,
            state=state,
            gpu=vm.size if vm else "",
            address=self._address_of(place) if is_on else "",
            port=22,
            user=USER,
            price=price if vm or state is RentedState.STARTING else None,
            stopped_price=round(size * _DISK_GB_HOUR + _ADDRESS_HOUR, 6),
            since=_since(vm) if vm else None,
            ends=self._end_of(place) if is_running and HOLD_TAG in group.tags else None,
            said=said,
            is_spot=vm.priority == "Spot" if vm else None,
        )

    def _unmade(self, place: str, group: _Group) -> tuple[RentedState, str]:
        """Return the state of a group without a machine, and what to say of it."""
        if group.state == "Deleting":
            return RentedState.GONE, ""
        path = f"{_deployment_path(place)}?{_GROUPS}"
        made = self._azure.find(path, _Deployment, (NO_DEPLOYMENT, NO_THING, NO_GROUP))
        if made is None:
            return RentedState.BROKEN, "nothing was made in its resource group"
        state = made.state
        if state in _FAILED:
            return RentedState.BROKEN, ": ".join(reason_of(made.error))
        # Once it was made: Azure took it back, or somebody deleted it.
        return (RentedState.GONE if state == "Succeeded" else RentedState.STARTING), ""

    def _address_of(self, place: str) -> str:
        path = f"{place}/Microsoft.Network/publicIPAddresses/{VM}?{NETWORK}"
        found = self._azure.find(path, _Address, (NO_THING, NO_GROUP))
        return (found.ip or "") if found else ""

    def _end_of(self, place: str) -> float | None:
        """Return when Azure's schedule stops a box that runs; None if there is none."""
        path = f"{place}/Microsoft.DevTestLab/schedules/{SCHEDULE}?{TIMES}"
        found = self._azure.find(path, _Schedule, (NO_THING, NO_GROUP))
        if not found or found.time is None or found.status != "Enabled":
            return None
        return next_time(found.time, self._azure.now)

    # Offers

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        if order.volume:
            return ()
        image_of(order.image)
        return self._market.offers(order)

    # Changes

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        subscription = self._azure.subscription
        region, hold = offer.id.rpartition("/")[2], hold_s(order, offer.price)
        tags = {TAG: mark, PRICE_TAG: f"{offer.price:.6f}"}
        if hold:
            tags[HOLD_TAG] = str(hold)
        self._azure.put(_group_path(subscription, mark), {"location": region, "tags": tags}, _Group)
        place = inside(subscription, mark)
        path = f"{_deployment_path(place)}?{_GROUPS}"
        end = self._azure.now + hold if hold else None
        template = template_of(place, offer, order, public_key, end)
        wanted = {"properties": {"mode": "Incremental", "template": template}}
        try:
            failed = self._failure(path, self._azure.put(path, wanted, _Deployment))
        except api.RefusedError as refused:
            # One that is there already: a request before this one made it.
            failed = self._failure(path, None) if refused.code == _IS_THERE else refused
        except api.UndecidedError:
            raise
        except UnreachableError:  # it was never sent, or with a login that is over
            self._clear_group(subscription, mark)
            raise
        if failed:
            self._clear_group(subscription, mark)
            if "quota" in f"{failed.code} {failed.what}".lower():
                failed.what += f" To have more, {MORE}."
            raise failed
        return f"{mark.rpartition('-')[2]}_{api.digest_of(subscription)}"

    def _failure(self, path: str, made: _Deployment | None) -> api.RefusedError | None:
        """Wait until a deployment is over; return why it failed, or None. One that goes on, or
        can't be read, is no reason to doubt: the box has its name."""
        waited, looks = 0.0, 0
        while made is None or made.state not in {"Succeeded", *_FAILED}:
            pause = _LOOKS_S[min(looks, len(_LOOKS_S) - 1)]
            if waited + pause > _LONGEST_DEPLOYMENT_S:
                return None
            self._azure.pause(pause)
            waited, looks = waited + pause, looks + 1
            try:
                made = self._azure.get(path, _Deployment)
            except UnreachableError:
                return None
        if made.state == "Succeeded":
            return None
        code, said = reason_of(made.error)
        return api.RefusedError(f"it refuses: {code}: {said}", where=self.name, code=code)

    def _clear_group(self, subscription: str, mark: str) -> None:
        """Delete the group of a rental that failed, and wait until its machine is gone: it counts
        against the quota until then. Raises UndecidedError if it may cost."""

        def clear() -> None:
            self._delete(subscription, mark)
            if not self._is_off(subscription, mark):
                raise UnreachableError("its machine is still being deleted.", where=self.name)

        self._clear(clear, f"the resource group {mark}")

    def _is_off(self, subscription: str, mark: str) -> bool:
        """Whether a group that is being deleted has no machine any more, within a minute."""
        path = f"{vm_path(inside(subscription, mark))}?{COMPUTE}"
        for _ in range(_OFF_LOOKS):
            if self._azure.find(path, _Vm, (NO_THING, NO_GROUP)) is None:
                return True
            self._azure.pause(_OFF_S)
        return False

    def _delete(self, subscription: str, mark: str) -> None:
        # Not waiting for what runs there to shut down: it is paid for until it is off.
        path = f"{_group_path(subscription, mark)}&forceDeletionTypes={_FORCED}"
        try:
            self._azure.delete(path, api.NOTHING, (NO_GROUP,))
        except api.RefusedError as refused:
            if refused.code != _BEING_DELETED:
                raise

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`: its whole group, if that has our tag."""
        if box_id in self._ours or self._group(box_id):
            self._delete(self._subscription(box_id), _mark_of(box_id))

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`: what is only shut down would be paid for."""
        place = inside(self._subscription(box_id), _mark_of(box_id))
        self._azure.post(f"{vm_path(place)}/deallocate?{COMPUTE}", None, api.NOTHING)

    def start(self, box_id: str) -> None:
        """As `CloudAccount.start`, with Azure's own stop as far away as at the rental."""
        subscription, group = self._subscription(box_id), self._group(box_id)
        place = inside(subscription, _mark_of(box_id))
        hold = _number(group.tags.get(HOLD_TAG, "")) if group else None
        if group and hold:
            wanted = schedule_of(place, group.location, self._azure.now + hold)
            path = f"{place}/Microsoft.DevTestLab/schedules/{SCHEDULE}?{TIMES}"
            with self._before_rental("its schedule", "It was not started."):
                self._azure.put(path, wanted, _Schedule)
        self._azure.post(f"{vm_path(place)}/start?{COMPUTE}", None, api.NOTHING)

    def leftovers(self) -> Sequence[Leftover]:
        """Return groups of ours whose machine is gone: a spot box's, that Azure took back."""
        found = list[Leftover]()
        for group in self._groups():
            box = self._rented(group, self._azure.subscription)
            if box.state is RentedState.GONE and group.state != "Deleting":
                found.append(Leftover(self.name, group.name, group.name, "resource group"))
        return found


_FORCED = "Microsoft.Compute/virtualMachines"


def hold_s(order: RentOrder, price: float) -> int | None:
    """Return the seconds after which Azure is to stop a box; None for a lease of more than a day:
    its schedule names a time of the day."""
    limit = limit_s(order, price)
    most = limit_s(RentOrder(lease_hours=LEASE_HOURS), price)
    return min(limit, LONGEST_HOLD_S) if limit <= most else None


def _mark_of(box_id: str) -> str:
    return f"boxstrap-{box_id.partition('_')[0]}"


def _group_path(subscription: str, name: str) -> str:
    return f"/subscriptions/{subscription}/resourcegroups/{name}?{_GROUPS}"


def _deployment_path(place: str) -> str:
    return f"{place}/Microsoft.Resources/deployments/{VM}"


def _state_of(vm: _Vm) -> tuple[RentedState, str]:
    power, making = vm.status("PowerState"), vm.making
    if power in _POWER:
        return _POWER[power], _OFF if power in {"stopping", "stopped"} else vm.failure
    if making == "Failed":
        return RentedState.BROKEN, vm.failure
    return (RentedState.STARTING if making in _GOES_ON else RentedState.UNKNOWN), vm.failure


def _since(vm: _Vm) -> float | None:
    """Return when it was last started, as far as Azure says: when it was last changed."""
    times = [one.time for one in vm.statuses if one.time]
    seconds = [found for each in (*times, vm.time_created) if (found := api.time_of(each))]
    return max(seconds, default=None)


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        found = float(text)
        return found if math.isfinite(found) and found >= 0 else None
    return None
