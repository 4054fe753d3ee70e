"""The boxes that were met before: one folder each below the state folder.

    boxes/NAME/box.json      how it is reached, its last profile and repository
    boxes/NAME/known_hosts   its host keys, for boxstrap and for OpenSSH alike

Rented addresses are reused, so one address may have several boxes; the newest
one is meant, and `--new-box` makes another (docs/adr/0004).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bootstrap import paths
from bootstrap.errors import UsageError
from bootstrap.link.resolve import Endpoint
from bootstrap.link.target import Target, parse_host

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class KnownBox:
    """A box as this machine remembers it. Nothing here is secret."""

    name: str
    host_text: str
    address: str = ""
    port: int = 22
    user: str = ""
    profile: str = ""
    repo_key: str = ""
    key: str = ""
    """Fingerprint of the key that logged in last: it is tried first."""
    own_pin: bool = False
    """Made with `--new-box`: what ~/.ssh/known_hosts says of its address is of an earlier box."""
    created: float = 0.0
    """When it was first met, seconds since 1970."""
    seen: float = 0.0
    """When it was last logged in to, seconds since 1970."""
    extra: dict[str, object] = dataclasses.field(default_factory=dict)
    """What else is worth keeping of it; JSON values only."""

    @property
    def folder(self) -> Path:
        """Where everything about it is kept."""
        return _boxes() / self.name

    @property
    def known_hosts(self) -> Path:
        """Its pinned host keys."""
        return self.folder / "known_hosts"


def all_boxes() -> list[KnownBox]:
    """Every known box, the newest first. A folder that can't be read is left out."""
    boxes = [_load(folder) for folder in _boxes().glob("*/")]
    return sorted((b for b in boxes if b), key=lambda box: box.created, reverse=True)


def by_name(name: str) -> KnownBox | None:
    """The box called `name`."""
    return _load(_boxes() / name) if _NAME.fullmatch(name) else None


def find(target: Target, endpoint: Endpoint | None = None) -> KnownBox | None:
    """The newest box that `target` means: by its name, by what was typed, by address and port."""
    named = by_name(target.text)
    if named:
        return named
    for box in all_boxes():
        same_text = box.host_text == target.text
        same_place = endpoint and (box.address, box.port) == (endpoint.hostname, endpoint.port)
        if same_text or same_place:
            return box
    return None


def aim(text: str) -> tuple[Target, KnownBox | None]:
    """The target that `text` means, and the box where `text` is a known box's name.

    Raises UsageError, see `parse_host`.
    """
    target = parse_host(text)
    box = by_name(target.text)
    return (parse_host(box.host_text), box) if box else (target, None)


def meet(
    target: Target, endpoint: Endpoint, *, name: str | None = None, new_box: bool = False
) -> KnownBox:
    """The known box of this host, brought up to date, or a new one. Nothing is written.

    `name` wins over the host: a box of that name is now reached here, and its
    pin decides whether it is the same. `new_box` makes another box even if one
    is known. Raises UsageError for a `name` that can't be one or isn't free.
    """
    if name is not None:
        check_name(name)
    owner = entry_owner(endpoint)
    if owner is not None:
        target = parse_host(owner.host_text)  # an entry of ours is no way that lasts
    box = (by_name(name) if name else None) or find(target, endpoint)
    if box and not new_box and name in (None, box.name):
        return _at(box, target, endpoint)
    if new_box and name and by_name(name):
        raise UsageError(
            f"there is a box {name} already.",
            where="--name",
            next_="Give the new box another name.",
        )
    fresh = KnownBox(
        name=name or _free_name(name_for(target, endpoint)),
        host_text=target.text,
        own_pin=new_box,
        created=time.time(),
    )
    return _at(fresh, target, endpoint)


def entry_owner(endpoint: Endpoint) -> KnownBox | None:
    """The box whose entry in the ssh config, which boxstrap wrote, led to this endpoint."""
    box = by_name(endpoint.host_key_alias or "")
    return box if box and box.known_hosts in endpoint.user_known_hosts_files else None


def check_name(name: str) -> None:
    """Raise UsageError where a box can't be called that."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be a box's name.",
            where="--name",
            next_="Use letters, digits, dots, dashes and underscores, 63 at most.",
        )


def name_for(target: Target, endpoint: Endpoint) -> str:
    """A readable default: an alias as it is, else address-port."""
    is_alias = endpoint.hostname.lower() != target.address.lower()
    text = target.address if is_alias else f"{endpoint.hostname}-{endpoint.port}"
    if not is_alias and endpoint.port == 22:
        text = endpoint.hostname
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.replace(":", "-")).strip("-._")
    return name[:56] or "box"


def save(box: KnownBox) -> None:
    """Write the box's record, whole or not at all."""
    make_folder(box)
    record = json.dumps(dataclasses.asdict(box), indent=1, sort_keys=True) + "\n"
    write_private(box.folder / "box.json", record)


def forget(box: KnownBox) -> None:
    """Remove everything known of the box, its pin included."""
    shutil.rmtree(box.folder, ignore_errors=True)


def make_folder(box: KnownBox) -> None:
    """The box's folder, for this user alone."""
    box.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    box.folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _boxes() -> Path:
    return paths.state_dir() / "boxes"


def _at(box: KnownBox, target: Target, endpoint: Endpoint) -> KnownBox:
    """The box where it is reached now; a host text that is its own name is no way to reach it."""
    text = box.host_text if target.text == box.name else target.text
    return dataclasses.replace(
        box,
        host_text=text,
        address=endpoint.hostname,
        port=endpoint.port,
        user=endpoint.user,
    )


def _free_name(name: str) -> str:
    candidate, number = name, 2
    while (_boxes() / candidate).exists():
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _load(folder: Path) -> KnownBox | None:
    try:
        record = json.loads((folder / "box.json").read_text(encoding="utf-8"))
        fields = {f.name for f in dataclasses.fields(KnownBox)}
        box = KnownBox(**{key: value for key, value in record.items() if key in fields})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return box if box.name == folder.name else None
