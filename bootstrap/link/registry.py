"""The known boxes, and which of them a host means.

Rented addresses are reused, so several boxes may have one address: the newest
is meant, and `--new-box` makes another.
"""

from __future__ import annotations

import dataclasses
import re
import time

from bootstrap.errors import HostKeyError, UsageError
from bootstrap.link.record import (
    NAME,
    KnownBox,
    all_boxes,
    boxes_folder,
    by_name,
    name_with_port,
    pins_of,
    refuse_newer,
    unreadable,
)
from bootstrap.link.resolve import Endpoint
from bootstrap.link.target import Target, parse_host


def find(target: Target, endpoint: Endpoint | None = None) -> KnownBox | None:
    """Return the newest box that `target` means: by name, by host text, by address and port."""
    box = _named(target.text)
    if box:
        return box
    for box in all_boxes():
        if box.host_text == target.text or (endpoint and _is_at(box, endpoint)):
            return None if _is_another(box, target) else box
    return None


def _is_another(box: KnownBox, target: Target) -> bool:
    """Whether the account ids show that it is another box: accounts never reuse an id."""
    both = target.is_rented and parse_host(box.host_text).is_rented
    return both and box.host_text != target.text


def at(endpoint: Endpoint) -> KnownBox | None:
    """Return the newest box at this address and port."""
    return next((box for box in all_boxes() if _is_at(box, endpoint)), None)


def lookup(text: str) -> tuple[Target, KnownBox | None]:
    """Return the target that `text` means, and the box if `text` is a known box's name.

    Raises UsageError, see `parse_host`.
    """
    target = parse_host(text)
    box = _named(target.text)
    return (parse_host(box.host_text), box) if box else (target, None)


def get_or_create(
    target: Target, endpoint: Endpoint, *, name: str | None = None, new_box: bool = False
) -> KnownBox:
    """Return the known box of this host, updated, or a new one. Nothing is written.

    `name` wins over the host: the box of that name is now reached here, and its
    pin decides whether it is the same. `new_box` makes a new box even if one is
    known. Raises UsageError for a `name` that is invalid or taken.
    """
    if name is not None:
        check_name(name)
        name = name_with_port(name, endpoint.hostname, endpoint.port)
    owner = entry_owner(endpoint)
    if owner is not None:
        target = parse_host(owner.host_text)  # keep where it leads: boxstrap's entry may change
    box = (by_name(name) if name else None) or find(target, endpoint)
    if box and not new_box and name in (None, box.name):
        return _at(box, target, endpoint)
    default = name_for(target, endpoint)
    if not new_box:
        _refuse_lost({name or default, target.text, target.address}, endpoint)
    taken = _taken()
    if name and name.lower() in taken:
        raise UsageError(
            f"there is a box {taken[name.lower()]} already.",
            where="--name",
            hint="Give the new box another name.",
        )
    # An earlier box must not be the newest one because the clock was wrong once.
    newest = max((box.created for box in all_boxes()), default=0.0)
    before = at(endpoint)
    fresh = KnownBox(
        name=name or _free_name(default, taken),
        host_text=target.text,
        own_pin=new_box or (before is not None and _is_another(before, target)),
        created=max(time.time(), newest + 0.001),
    )
    return _at(fresh, target, endpoint)


def entry_owner(endpoint: Endpoint) -> KnownBox | None:
    """Return the box whose ssh config entry, written by boxstrap, led to this endpoint."""
    box = by_name(endpoint.host_key_alias or "")
    return box if box and box.known_hosts in endpoint.user_known_hosts_files else None


def check_name(name: str) -> None:
    """Raise UsageError if a box can't have that name."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a box's name.",
            where="--name",
            hint="Use letters, digits, dots, dashes and underscores, 63 at most.",
        )


def name_for(target: Target, endpoint: Endpoint) -> str:
    """Return a readable default name: the alias, the account's id, or address-port."""
    if target.is_rented:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", target.text)[:56]
    is_alias = endpoint.hostname.lower() != target.address.lower()
    text = target.address if is_alias else f"{endpoint.hostname}-{endpoint.port}"
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.replace(":", "-")).strip("-._")
    return name[:56] or "box"


def incomplete_record_error(box: KnownBox, endpoint: Endpoint, what: str) -> HostKeyError:
    """Return the error that refuses a known box of which `what` can't be read any more."""
    pins = sorted((key for _, key in pins_of(box)), key=str)
    expect = pins[0].fingerprint if pins else "and what the provider's page shows"
    return HostKeyError(
        f"the box {box.name} is known here, but its {what} can't be read: {box.folder}",
        where=endpoint.label,
        hint="Nothing was sent. If this is another box than before, set it up with --new-box. If "
        f"it should be the same: boxstrap boxes --forget {box.name}\n"
        f"and log in with --host-key {expect}, so that no other key is accepted.",
    )


def _named(text: str) -> KnownBox | None:
    """Return the box of that name; if the name is also a host, the newest box there."""
    box = by_name(text)
    if box is None or (text == box.name and text != box.host_text):
        return box
    place = (box.address, box.port)
    there = (b for b in all_boxes() if b.host_text == text or (b.address, b.port) == place)
    return next(there, box)


def _is_at(box: KnownBox, endpoint: Endpoint) -> bool:
    return (box.address.lower(), box.port) == (endpoint.hostname.lower(), endpoint.port)


def _at(box: KnownBox, target: Target, endpoint: Endpoint) -> KnownBox:
    """Update how the box is reached; its own name is not stored as host text: it leads nowhere."""
    text = box.host_text if target.text in (box.name, box.folder_name) else target.text
    return dataclasses.replace(
        box,
        host_text=text,
        address=endpoint.hostname,
        port=endpoint.port,
        user=endpoint.user,
        price=target.price or box.price,
        since=target.since or box.since,
    )


def _taken() -> dict[str, str]:
    """Map lower-case to used names: URIs and some file systems don't distinguish case."""
    names = [folder.name for folder in boxes_folder().glob("*/")]
    return {name.lower(): name for name in (*names, *(box.name for box in all_boxes()))}


def _free_name(name: str, taken: dict[str, str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _refuse_lost(names: set[str], endpoint: Endpoint) -> None:
    """Raise HostKeyError if a box without a readable record has such a name, or this address."""
    for box in unreadable():
        if box.name in names or endpoint.pin_name in (name for name, _ in pins_of(box)):
            refuse_newer(box.folder)
            raise incomplete_record_error(box, endpoint, "record")
