"""What a box at Azure consists of: a template of everything in its resource group. There are no
expressions in it, as whatever it names is written out."""

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone

from bootstrap.errors import UsageError
from bootstrap.providers.azure_market import COMPUTE
from bootstrap.providers.offer import Offer, RentOrder

USER = "azureuser"
VM = "box"
SCHEDULE = f"shutdown-computevm-{VM}"
"""The one name under which Azure looks for a machine's schedule."""
NETWORK = "api-version=2023-09-01"
TIMES = "api-version=2018-09-15"
_TEMPLATE = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_IMAGE = "microsoft-dsvm:ubuntu-hpc:2204:latest"
_LEAST_DISK_GB = 64  # what that image needs
_URN = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+):([\w.-]+)")
_IMAGE_ID = re.compile(r"/(?:subscriptions|CommunityGalleries)/[\w./-]+", re.ASCII)


def inside(subscription: str, group: str) -> str:
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers"


def vm_path(place: str) -> str:
    return f"{place}/Microsoft.Compute/virtualMachines/{VM}"


def next_time(daily: str, now: float) -> float | None:
    if not re.fullmatch("[0-9]{4}", daily):
        return None
    today = math.floor(now / 86400) * 86400
    at = today + int(daily[:2]) * 3600 + int(daily[2:]) * 60
    return float(at if at > now else at + 86400)


def image_of(image: str) -> dict[str, str]:
    """Return an image as a template names it. Raises UsageError for what is none."""
    if named := _URN.fullmatch(image or _IMAGE):
        return dict(zip(("publisher", "offer", "sku", "version"), named.groups(), strict=True))
    if _IMAGE_ID.fullmatch(image):
        kind = "id" if image.startswith("/subscriptions/") else "communityGalleryImageId"
        return {kind: image}
    raise UsageError(
        f"{image} is no image of Azure.",
        where="box.image",
        hint="There it is PUBLISHER:OFFER:SKU:VERSION, as az vm image list has it, or the id of "
        "one of yours: /subscriptions/…/images/NAME.",
    )


def template_of(
    place: str, offer: Offer, order: RentOrder, public_key: str, end: float | None
) -> dict[str, object]:
    """Return all that a box consists of, in the order in which it is made."""
    size, region = offer.id.split("/")
    network = f"{place}/Microsoft.Network"
    ids = {
        kind: f"{network}/{kind}/{VM}"
        for kind in ("networkSecurityGroups", "virtualNetworks", "publicIPAddresses")
    }
    nic = f"{network}/networkInterfaces/{VM}"
    subnet = f"{ids['virtualNetworks']}/subnets/{VM}"

    def one(
        kind: str, version: str, needs: Sequence[str] = (), **more: object
    ) -> dict[str, object]:
        head = {"type": kind, "apiVersion": version.partition("=")[2], "name": VM}
        return {**head, "location": region, "dependsOn": list(needs), **more}

    way_in = {
        **{"priority": 100, "direction": "Inbound", "access": "Allow", "protocol": "Tcp"},
        **{"sourceAddressPrefix": "*", "sourcePortRange": "*"},
        **{"destinationAddressPrefix": "*", "destinationPortRange": "22"},
    }
    address = {"id": ids["publicIPAddresses"], "properties": {"deleteOption": "Delete"}}
    made = [
        one(
            "Microsoft.Network/networkSecurityGroups",
            NETWORK,
            properties={"securityRules": [{"name": "ssh", "properties": way_in}]},
        ),
        one(
            "Microsoft.Network/virtualNetworks",
            NETWORK,
            properties={
                "addressSpace": {"addressPrefixes": ["10.0.0.0/24"]},
                "subnets": [{"name": VM, "properties": {"addressPrefix": "10.0.0.0/24"}}],
            },
        ),
        one(
            "Microsoft.Network/publicIPAddresses",
            NETWORK,
            sku={"name": "Standard"},
            properties={"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
        ),
        one(
            "Microsoft.Network/networkInterfaces",
            NETWORK,
            [*ids.values()],
            properties={
                "networkSecurityGroup": {"id": ids["networkSecurityGroups"]},
                "ipConfigurations": [
                    {
                        "name": VM,
                        "properties": {
                            **{"subnet": {"id": subnet}, "publicIPAddress": address},
                            "privateIPAllocationMethod": "Dynamic",
                        },
                    }
                ],
            },
        ),
        one(
            "Microsoft.Compute/virtualMachines",
            COMPUTE,
            [nic],
            properties=_machine(size, order, nic, public_key),
        ),
    ]
    if end is not None:
        schedule = one("Microsoft.DevTestLab/schedules", TIMES, [vm_path(place)])
        made.append({**schedule, "name": SCHEDULE, **schedule_of(place, region, end)})
    return {"$schema": _TEMPLATE, "contentVersion": "1.0.0.0", "resources": made}


def _machine(size: str, order: RentOrder, nic: str, public_key: str) -> dict[str, object]:
    """Return the machine itself: without an identity, so that the box has no right to anything."""
    key = {"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": public_key.strip()}
    found: dict[str, object] = {
        "hardwareProfile": {"vmSize": size},
        "storageProfile": {
            "imageReference": image_of(order.image),
            "osDisk": {
                **{"createOption": "FromImage", "deleteOption": "Delete"},
                "diskSizeGB": max(order.disk_gb, _LEAST_DISK_GB),
                "managedDisk": {"storageAccountType": "Premium_LRS"},
            },
        },
        "osProfile": {
            **{"computerName": VM, "adminUsername": USER},
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {"publicKeys": [key]},
            },
        },
        "networkProfile": {
            "networkInterfaces": [
                {"id": nic, "properties": {"primary": True, "deleteOption": "Delete"}}
            ]
        },
        "priority": "Regular",
    }
    if order.spot:
        # -1: up to the price on demand.
        cap = -1 if order.max_price is None else round(order.max_price, 5)
        found |= {
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "billingProfile": {"maxPrice": cap},
        }
    return found


def schedule_of(place: str, region: str, end: float) -> dict[str, object]:
    """Return the schedule by which Azure stops (deallocates) the box, each day at that time."""
    whole_minute = math.ceil(end / 60) * 60  # never earlier
    daily = datetime.fromtimestamp(whole_minute, timezone.utc).strftime("%H%M")
    return {
        "location": region,
        "properties": {
            **{"status": "Enabled", "taskType": "ComputeVmShutdownTask"},
            **{"dailyRecurrence": {"time": daily}, "timeZoneId": "UTC"},
            "notificationSettings": {"status": "Disabled", "timeInMinutes": 30},
            "targetResourceId": vm_path(place),
        },
    }
