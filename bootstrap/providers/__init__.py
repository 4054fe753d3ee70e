"""What people rent boxes from: one module each, a subclass of `CloudAccount`.

Other packages add theirs: an entry point of the group `boxstrap.providers` names the class.
Who stands outside takes these names from here; each is imported when asked for.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoint

    from bootstrap.providers.accounts import PROVIDERS, find_account, find_rented
    from bootstrap.providers.api import (
        Api,
        PartialListError,
        RefusedError,
        RefusedKeyError,
        UndecidedError,
    )
    from bootstrap.providers.api_key import ApiKey, KeyPlaces
    from bootstrap.providers.offer import AFTER_LEASE_S, Offer, RentedBox, RentedState, RentOrder

__all__ = ["AFTER_LEASE_S", "PROVIDERS", "Api", "ApiKey", "CloudAccount", "KeyPlaces", "Offer"]
__all__ += ["PartialListError", "RefusedError", "RefusedKeyError", "RentOrder", "RentedBox"]
__all__ += ["RentedState", "UndecidedError", "digest_of", "find_account", "find_rented"]
_MODULES = {"accounts": "PROVIDERS find_account find_rented", "cloud_account": "CloudAccount"}
_MODULES |= {"api": "Api PartialListError RefusedError RefusedKeyError UndecidedError digest_of"}
_MODULES |= {"api_key": "ApiKey KeyPlaces"}
_MODULES |= {"offer": "AFTER_LEASE_S Offer RentOrder RentedBox RentedState"}
GROUP = "boxstrap.providers"
CLASSES = {
    "vast": "vast.Vast",
    "runpod": "runpod.RunPod",
    "lambda": "lambda_cloud.Lambda",
    "paperspace": "paperspace.Paperspace",
    "ec2": "ec2.Ec2",
    "hf": "hf_jobs.HuggingFaceJobs",
    "gcp": "google_cloud.GoogleCloud",
    "azure": "azure.Azure",
}
"""Each provider's name, and its module and class. A table of words, so that a command that asks no
provider imports none. The profile's keys, `--host NAME:ID` and what help says follow from it."""
NAMES = tuple(CLASSES)
NAME = re.compile(r"[a-z][a-z0-9-]{1,30}")
WITH_CONTRACTS = ("vast", "hf")
"""Those whose boxes end at a time that is known: with the contract of a host, who may ask for more,
or by a limit of their own."""
ONLY_END = ("hf",)
"""Those whose boxes can't be stopped, and end with all that is on them at a time that is fixed when
they are rented."""
FIXED_END = (*ONLY_END, "gcp", "azure")
"""Those that end a box themselves, at a time that nothing moves while it runs: with all that is on
it, if they aren't in `STOPPED_END`."""
STOPPED_END = ("azure",)
"""Those that only stop it then, and do so only after a lease of at most a day."""
LOST_THEN = "all that is on it is lost then"
KEPT_THEN = "it is stopped then, which keeps its disk"
_SHARED = ("ssh.hf.jobs",)
"""Addresses at which all boxes of a provider are reached; the user's name says which is meant."""


@cache
def outside() -> Mapping[str, EntryPoint]:
    """Return the providers of other packages by name. Looking for them takes a tenth of a second,
    so a command that needs none must not ask."""
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=GROUP), key=lambda point: point.value)
    return {
        point.name: point
        for point in found
        if NAME.fullmatch(point.name) and point.name not in (*CLASSES, "local", "ssh")
    }


def is_provider(name: str) -> bool:
    """Whether there is such a provider, of ours or of another package."""
    return name in CLASSES or (NAME.fullmatch(name) is not None and name in outside())


def end_does(provider: str) -> str:
    """Return what the end does to a box that its provider itself puts to it."""
    return KEPT_THEN if provider in STOPPED_END else LOST_THEN


def is_shared(address: str) -> bool:
    """Whether many boxes are reached at this address and port."""
    return address.lower() in _SHARED


def place_of(address: str, port: int, user: str) -> tuple[str, int, str]:
    """Return what tells a box from others by how it is reached."""
    return address.lower(), port, user if is_shared(address) else ""


__getattr__ = front(__name__, _MODULES)
