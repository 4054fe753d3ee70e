"""Google Cloud: machine types with GPUs, on demand and spot, by Compute Engine's REST API.

A box's id is its instance's number with its zone and a digest of its project
(`4611…_us-central1-a_1f2e3d`): an instance that is looked for in another project would seem to be
gone. Google itself deletes an instance after the end of its lease (`maxRunDuration`); before that
the box holds its lease by shutting itself down, which stops it.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pydantic import AliasPath, Field

from bootstrap.errors import NoOfferError, UsageError
from bootstrap.providers import api
from bootstrap.providers.api_key import ApiKey
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.google_api import (
    GONE,
    POLICY,
    POLICY_OF_PLACES,
    GoogleApi,
    GoogleKeys,
    GoogleOperation,
    request_id,
)
from bootstrap.providers.google_market import MORE, NAME, GoogleMarket, kind_of
from bootstrap.providers.offer import (
    Leftover,
    Offer,
    RentedBox,
    RentedState,
    RentOrder,
    StopRule,
    limit_s,
)

LABEL = "boxstrap"
"""The label with the mark, on an instance and its disk; also the network tag that the firewall
rule is for."""
MARKER = "/etc/boxstrap-gcp"
"""Says to the box what shutting down does to it, and what it costs: its lease ends it by that."""
USER = "ubuntu"
RULE = "boxstrap-ssh"
_IMAGE = (
    "projects/ubuntu-os-accelerator-images/global/images/family/"
    "ubuntu-accelerator-2404-amd64-with-nvidia-580"
)
_IMAGE_NAME = re.compile(r"projects/[a-z0-9.:-]+/global/images/(?:family/)?[a-z][a-z0-9-]*")
_NETWORK = "global/networks/default"
_LONGEST_RUN_S = 120 * 86400
_DISK_GB_HOUR = 0.10 / 730  # dollars of a balanced disk, about: it differs by region
_STATES = {
    **dict.fromkeys(("PENDING", "PROVISIONING", "STAGING"), RentedState.STARTING),
    "RUNNING": RentedState.RUNNING,
    "REPAIRING": RentedState.BROKEN,
    **dict.fromkeys(
        ("STOPPING", "PENDING_STOP", "STOPPED", "TERMINATED", "SUSPENDING", "SUSPENDED"),
        RentedState.STOPPED,
    ),
    "DEPROVISIONING": RentedState.GONE,
}
_BOX_ID = re.compile(r"([0-9]{1,20})(?:_([a-z0-9-]+)_([0-9a-f]{6}))?")
_MADE_BEFORE = "alreadyExists"
_LACKS_RIGHT = ("forbidden", "IAM_PERMISSION_DENIED", "insufficientPermissions")
_IS_OFF = ("SERVICE_DISABLED", "accessNotConfigured")


class _Way(api.CamelModel):
    address: str | None = Field(None, alias="natIP")


class _Nic(api.CamelModel):
    access_configs: Sequence[_Way] = ()


class _AttachedDisk(api.CamelModel):
    disk_size_gb: str = "0"


class _Instance(api.CamelModel):
    id: str
    name: str
    zone: str
    status: str
    status_message: str | None = None
    machine_type: str = ""
    labels: Mapping[str, str] = {}
    network_interfaces: Sequence[_Nic] = ()
    model: str = Field("STANDARD", validation_alias=AliasPath("scheduling", "provisioningModel"))
    ends: str | None = Field(
        None, validation_alias=AliasPath("resourceStatus", "scheduling", "terminationTimestamp")
    )
    disks: Sequence[_AttachedDisk] = ()
    last_start_timestamp: str | None = None
    creation_timestamp: str | None = None


class _Disk(api.CamelModel):
    id: str
    name: str
    zone: str = ""
    size_gb: str = "0"
    users: Sequence[str] = ()
    labels: Mapping[str, str] = {}


class _Allowed(api.CamelModel):
    protocol: str = Field("", alias="IPProtocol")
    ports: Sequence[str] = ()

    @property
    def has_ssh(self) -> bool:
        ranges = [each.partition("-") for each in self.ports]
        return self.protocol in {"tcp", "all", "6"} and (
            not ranges or any(int(low) <= 22 <= int(high or low) for low, _, high in ranges)
        )


class _Rule(api.CamelModel):
    name: str
    network: str = ""
    direction: str = "INGRESS"
    disabled: bool = False
    allowed: Sequence[_Allowed] = ()
    source_ranges: Sequence[str] = ()
    target_tags: Sequence[str] = ()
    target_service_accounts: Sequence[str] = ()

    @property
    def lets_in(self) -> bool:
        """Whether it lets SSH from anywhere reach our boxes."""
        return (
            (self.direction, self.disabled) == ("INGRESS", False)
            and self.network.endswith(f"/{_NETWORK}")
            and "0.0.0.0/0" in self.source_ranges
            and (not self.target_tags or LABEL in self.target_tags)
            and not self.target_service_accounts
            and any(each.has_ssh for each in self.allowed)
        )


class _Console(api.CamelModel):
    contents: str = ""


class GoogleCloud(CloudAccount):
    name = NAME
    title = "Google Cloud"
    shares_network = True
    keys = GoogleKeys(
        "GOOGLE_APPLICATION_CREDENTIALS", ("~/.config/gcloud/application_default_credentials.json",)
    )
    address = "https://compute.googleapis.com"
    is_ambient = True
    stops = StopRule("its boot disk alone (no local SSD)", "its disk")
    destroys_itself = False
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        **CloudAccount.refusals,
        **dict.fromkeys(_LACKS_RIGHT, api.LACKS_RIGHT),
        **dict.fromkeys(
            _IS_OFF, api.Refusal("to switch it on: gcloud services enable compute.googleapis.com")
        ),
        "BILLING_DISABLED": api.Refusal("your project has no billing account, or owes a balance"),
        "GPUS_ALL_REGIONS": api.Refusal(f"your project may have no GPU more, in no region: {MORE}"),
        "noProject": api.Refusal(
            "your settings name a project, a network or an image that is not there"
        ),
        POLICY: api.BY_POLICY,
        POLICY_OF_PLACES: api.BY_POLICY._replace(is_final=False),
        **dict.fromkeys(("QUOTA_EXCEEDED", "quotaExceeded"), api.THIS_OFFER),
        **dict.fromkeys(
            (
                *("ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"),
                *("STOCKOUT", "resourcePoolExhausted", "RESOURCE_POOL_EXHAUSTED"),
            ),
            api.NONE_LEFT,
        ),
    }

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        self._google = GoogleApi(self.name, self.address, key.source if key else "")
        self._api = self._google
        self._api.refusals = self.refusals
        self._market = GoogleMarket(self._google)
        self._zones = dict[str, str]()  # of instances whose id names none, once they were met

    # Boxes

    def boxes(self) -> Sequence[RentedBox]:
        """Return the boxes that have our label, of every zone: a project may be a company's."""
        found = list[RentedBox]()
        try:
            for one in self._listed(f"labels.{LABEL}:*"):
                found.append(self._rented(one))
        except api.PartialListError as error:
            error.boxes = found
            raise
        return found

    def _around(self, box_id: str) -> Sequence[RentedBox]:
        """As `CloudAccount._around`: those of its zone, as another one may be down."""
        place = self._place(box_id).rpartition("/instances/")[0]
        if not place:
            return self.boxes()
        found = self._google.every("instances", _Instance, place, filter=f"labels.{LABEL}:*")
        digest = _digest_of(box_id)
        return [self._rented(one, digest) for one in found]

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        found = self._listed(f"labels.{LABEL}={mark}")
        return [self._rented(one) for one in found if one.labels.get(LABEL) == mark]

    def _listed(self, wanted: str) -> Iterator[_Instance]:
        return self._google.every("aggregated/instances", _Instance, filter=wanted)

    def _box(self, box_id: str) -> RentedBox | None:
        if not (place := self._place(box_id)):
            return None
        found = self._google.find(place, _Instance, GONE)
        return self._rented(found, _digest_of(box_id)) if found else None

    def _place(self, box_id: str) -> str:
        """Return the path of an instance; "" if there is none with that number. Raises
        UnreachableError if it is in a project that no setting names."""
        parts = _BOX_ID.fullmatch(box_id)
        if not parts:
            return ""
        number, zone = parts[1], parts[2] or self._zones.get(parts[1], "")
        project = self._google.project_of(parts[3] or "")
        if not zone:
            self._zones |= {one.id: _last(one.zone) for one in self._listed(f"id={number}")}
            zone = self._zones.get(number, "")
        return f"{self._google.path(zone, project)}/instances/{number}" if zone else ""

    def _rented(self, one: _Instance, digest: str | None = None) -> RentedBox:
        zone, kind = _last(one.zone), kind_of(_last(one.machine_type))
        state = _STATES.get(one.status, RentedState.UNKNOWN)
        is_spot = one.model == "SPOT"
        ways = (way.address for nic in one.network_interfaces for way in nic.access_configs)
        is_running = state is RentedState.RUNNING
        size = sum(int(disk.disk_size_gb) for disk in one.disks)
        # One that was named by its number alone goes on being called that.
        own = api.digest_of(self._google.project) if digest is None else digest
        return RentedBox(
            provider=self.name,
            id=f"{one.id}_{zone}_{own}" if own else one.id,
            name=one.labels.get(LABEL, one.name),
            state=state,
            gpu=_last(one.machine_type),
            address=next(filter(None, ways), "") if is_running else "",
            port=22,
            user=USER,
            price=kind.price(zone, is_spot=is_spot) if kind else None,
            stopped_price=round(size * _DISK_GB_HOUR, 6),
            since=api.time_of(one.last_start_timestamp) or api.time_of(one.creation_timestamp),
            ends=api.time_of(one.ends) if is_running else None,
            said=one.status_message or "",
            is_spot=is_spot,
        )

    def log(self, box_id: str) -> Sequence[str]:
        """As `CloudAccount.log`: what it printed on its console."""
        place = self._place(box_id)
        found = self._google.get(f"{place}/serialPort", _Console) if place else _Console()
        return found.contents.splitlines()

    # Offers

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return an offer for each type and zone that has a price: what is free, nobody says."""
        if order.volume:
            return ()
        if order.image and not _IMAGE_NAME.fullmatch(order.image):
            raise UsageError(
                f"{order.image} is no image of Google Cloud.",
                where="box.image",
                hint="There it is projects/PROJECT/global/images/NAME, or …/images/family/NAME.",
            )
        return self._market.offers(order)

    # Changes

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        zone = offer.id.partition("/")[2]
        with self._before_rental("its firewall"):
            self._make_rules(order.network)
        wanted = {**_instance(offer, order, public_key), "name": mark}
        wanted |= {"labels": {LABEL: mark}, "disks": [_boot_disk(offer, order, mark)]}
        path = self._google.path(zone)
        try:
            made = self._google.post(
                f"{path}/instances?requestId={request_id(self._google.project, mark)}",
                wanted,
                GoogleOperation,
            )
        except api.RefusedError as refused:
            if refused.code == _MADE_BEFORE:  # by a request that nobody knows of any more
                raise api.UndecidedError(refused.what, where=self.name, hint=refused.hint) from None
            raise self._with_quota(refused) from None
        if not made.target_id:
            raise api.UndecidedError("it says that it makes a box, but not which.", where=self.name)
        with contextlib.suppress(
            api.UndecidedError
        ):  # it has a number: that says what became of it
            made = self._google.settled(path, made)
        if failed := made.refusal(self.name):
            path = self._google.path(zone)
            self._clear(lambda: self._delete_parts(path, mark), f"{mark} in {zone}")
            raise self._with_quota(failed)
        return f"{made.target_id}_{zone}_{api.digest_of(self._google.project)}"

    def _with_quota(self, refused: api.RefusedError) -> api.RefusedError:
        if refused.code.lower().replace("_", "") == "quotaexceeded":
            refused.what += f" To have more, {MORE}."
        return refused

    def _delete_parts(self, path: str, mark: str) -> None:
        """Delete an instance of this name and its disk, if they are ours. Raises as `GoogleApi`."""
        left = self._google.find(f"{path}/instances/{mark}", _Instance, GONE)
        if left and left.labels.get(LABEL) == mark:
            gone = self._google.delete(f"{path}/instances/{left.id}", GoogleOperation, GONE)
            if gone and (kept := self._google.settled(path, gone).refusal(self.name)):
                raise kept
        disk = self._google.find(f"{path}/disks/{mark}", _Disk, GONE)
        if disk and disk.labels.get(LABEL) == mark and not disk.users:
            self._google.delete(f"{path}/disks/{mark}", GoogleOperation, GONE)

    def _make_rules(self, network: str) -> None:
        """Make the firewall rules that our boxes need, unless they are there already.

        One lets SSH in; one of their own lets the boxes of a `network` reach each other.
        Raises NoOfferError, which is final, and UnreachableError; nothing is rented then.
        """
        rules = [*self._google.every("global/firewalls", _Rule)]
        if not any(rule.lets_in for rule in rules):
            self._make_rule(
                RULE,
                "SSH to boxes that it rented, by key alone",
                {"allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}
                | {"sourceRanges": ["0.0.0.0/0"], "targetTags": [LABEL]},
                f"--allow tcp:22 --target-tags {LABEL}",
            )
        if network and (tag := network_tag(network)) not in {rule.name for rule in rules}:
            self._make_rule(
                tag,
                "boxes of this group among themselves",
                {"allowed": [{"IPProtocol": "all"}], "sourceTags": [tag], "targetTags": [tag]},
                f"--allow all --source-tags {tag} --target-tags {tag}",
            )

    def _make_rule(self, name: str, use: str, rule: dict[str, object], options: str) -> None:
        """Make this rule; `options` make it with `gcloud`."""
        head = {"name": name, "network": _NETWORK, "direction": "INGRESS"}
        asked = head | {"description": f"boxstrap: {use}"} | rule
        try:
            self._google.post(f"{self._google.path()}/global/firewalls", asked, GoogleOperation)
        except api.RefusedError as error:
            if error.code == _MADE_BEFORE:
                return
            raise NoOfferError(
                f"the network default has no firewall rule for {use}, and none could be made: "
                f"{error.what}",
                where=self.name,
                hint=f"Let somebody make it who may: gcloud compute firewall-rules create {name} "
                f"--network default {options}",
                is_final=True,
            ) from None

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`: with its disk."""
        if place := self._place(box_id):
            self._google.delete(place, GoogleOperation, GONE)

    def stop(self, box_id: str) -> None:
        self._google.post(f"{self._place(box_id)}/stop?discardLocalSsd=true", None, GoogleOperation)

    def start(self, box_id: str) -> None:
        """As `CloudAccount.start`: the operation says whether there is room for it."""
        place = self._place(box_id)
        began = self._google.post(f"{place}/start", None, GoogleOperation)
        done = self._google.settled(place.partition("/instances/")[0], began)
        if refused := done.refusal(self.name):
            raise self._with_quota(refused)

    def leftovers(self) -> Sequence[Leftover]:
        """Return disks of ours that no box uses."""
        found = list[Leftover]()
        for one in self._google.every("aggregated/disks", _Disk, filter=f"labels.{LABEL}:*"):
            if not one.users:
                size, where = float(one.size_gb), f"{one.name}, {_last(one.zone)}"
                found.append(Leftover(self.name, one.id, where, "disk", size, size * _DISK_GB_HOUR))
        return found


def network_tag(network: str) -> str:
    """Return the tag of a group's boxes, which is also the name of their rule. Google takes
    lowercase letters, digits and hyphens, 63 at most."""
    return f"{LABEL}-{re.sub('[^a-z0-9]+', '-', network.lower())}"[:63].rstrip("-")


def _instance(offer: Offer, order: RentOrder, public_key: str) -> dict[str, object]:
    """Return what is asked for: no service account, so that the box has no key of the project."""
    kind, zone = offer.id.split("/")
    metadata = {
        "ssh-keys": f"{USER}:{public_key.strip()}",
        # The project's own keys would let in others; OS Login would let in no key of ours.
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",
        "startup-script": f"#!/bin/sh\necho '{NAME} stop {offer.price:.6f}' >{MARKER}\n",
    }
    return {
        "description": "rented by boxstrap",
        "machineType": f"zones/{zone}/machineTypes/{kind}",
        "tags": {"items": [LABEL, *([network_tag(order.network)] if order.network else [])]},
        "networkInterfaces": [
            {
                "network": _NETWORK,
                "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
            }
        ],
        "metadata": {"items": [{"key": key, "value": text} for key, text in metadata.items()]},
        "scheduling": {
            "provisioningModel": "SPOT" if order.spot else "STANDARD",
            "onHostMaintenance": "TERMINATE",
            # Restarted by Google it would cost, and its run would be gone.
            "automaticRestart": False,
            "maxRunDuration": {"seconds": str(min(limit_s(order, offer.price), _LONGEST_RUN_S))},
            "instanceTerminationAction": "DELETE",
        },
    }


def _boot_disk(offer: Offer, order: RentOrder, mark: str) -> dict[str, object]:
    """Return the disk that is asked for, which is deleted with its instance."""
    kind, zone = offer.id.split("/")
    known = kind_of(kind)
    return {
        **{"boot": True, "autoDelete": True},
        "initializeParams": {
            "sourceImage": order.image or _IMAGE,
            "diskSizeGb": str(order.disk_gb),
            "diskType": f"zones/{zone}/diskTypes/{known.of.disk if known else 'pd-balanced'}",
            "labels": {LABEL: mark},
        },
    }


def _digest_of(box_id: str) -> str:
    return box_id.rpartition("_")[2] if "_" in box_id else ""


def _last(link: str) -> str:
    """Return the last word of what Google names by an address."""
    return link.rpartition("/")[2]
