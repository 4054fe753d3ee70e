"""What is known of each box, in a folder of its own below the state folder.

    boxes/NAME/box.json      how it is reached, its last profile and repository
    boxes/NAME/known_hosts   its host keys, for both boxstrap and OpenSSH

The two files of a new box are created together: if one is missing or unreadable,
the box's host key can't be checked any more, and the box is refused
(docs/adr/0004). An older record is read as it is: missing fields get their
defaults, and keys that a newer program added are kept (docs/adr/0027).
"""

from __future__ import annotations

import dataclasses
import errno
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootstrap import paths
from bootstrap.errors import UsageError
from bootstrap.link.known_hosts import key_lines
from bootstrap.link.route import Route
from bootstrap.paths import write_private
from bootstrap.public_key import PublicKey

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
GUARD = "guard.json"
"""Next to `box.json`: what `guard` counted of the box's lease."""
VERSION = 1
"""Version of `box.json`; a record without one has version 1. Raise it only if an earlier program
would misread the record: new keys need no new version, since programs keep unknown keys."""


@dataclass(frozen=True)
class KnownBox:
    """A box as this machine knows it. Contains no secrets."""

    name: str
    host_text: str
    address: str = ""
    port: int = 22
    user: str = ""
    profile: str = ""
    repo_key: str = ""
    key: str = ""
    """Fingerprint of the key that logged in last, which is tried first."""
    own_pin: bool = False
    """~/.ssh/known_hosts has an earlier box's key for its address: `--new-box`, or a new rental."""
    created: float = 0.0
    """When it was first met, seconds since 1970."""
    seen: float = 0.0
    """When it was last logged in to, seconds since 1970."""
    folder_name: str = ""
    """The bare address, if an earlier version named the box by it; else empty."""
    route: Route = field(default_factory=Route)
    provider: str = ""
    """The provider that was recognised."""
    workdir: str = ""
    venv: str = ""
    console: str = ""
    """The provider's page where the box is managed and paid for."""
    price: float = 0.0
    """Dollars an hour that it costs; 0 if unknown."""
    since: float = 0.0
    """When it was started, according to its account, seconds since 1970; 0 if unknown."""
    repo_root: str = ""
    """The first commit of the repository `repo_key`."""
    script: str = ""
    """The id of the last setup's script."""
    snapshot: str = ""
    """The snapshot placed last in that repository's tree on the box, as far as known here."""
    secrets: tuple[str, ...] | None = None
    """Names of all secrets that it was ever given; None if that was not recorded."""
    proved: str = ""
    """Fingerprint of the variables that were proved there."""
    held_secrets: tuple[str, ...] | None = None
    """Names of those that it holds after the last setup or wipe; None if not recorded."""
    editor_settings: Mapping[str, object] = field(default_factory=dict)
    """The values that were written last to an editor's settings on the box."""
    ended: float = 0.0
    """When it was destroyed, or found to be gone, seconds since 1970."""
    spent: float = 0.0
    """Dollars that it cost since its last start, according to its account; 0 if unknown."""
    lease: Mapping[str, object] = field(default_factory=dict)
    """The lease that the last setup set: its terms, see `box/lease/lease.py`; when it was `set`,
    by how much a user `extended` it, and whether the box itself has it `held`."""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The record as it was read; keys that this program doesn't know are written back."""

    @property
    def costs_since(self) -> float:
        """Since when it costs money; if unknown, since it was first met, which is later."""
        return self.since or self.created

    @property
    def folder(self) -> Path:
        """The folder with everything that is known of it."""
        return boxes_folder() / self.host_key_alias

    @property
    def host_key_alias(self) -> str:
        """Its name in its known_hosts file."""
        return self.folder_name or self.name

    @property
    def known_hosts(self) -> Path:
        """The file with its pinned host keys."""
        return self.folder / "known_hosts"


_DEFAULT = KnownBox("", "")
_ROUTE = tuple(f.name for f in dataclasses.fields(Route))
_TOP = (
    "name", "host_text", "address", "port", "user", "profile", "repo_key", "key", "own_pin",
    "created", "seen", "folder_name",
)  # fmt: skip
"""Fields at the file's top level; if one has the wrong type, the record counts as damaged."""
_FACTS = tuple(
    f.name for f in dataclasses.fields(KnownBox) if f.name not in (*_TOP, "route", "raw")
)
"""All other fields; they and the route are in `extra`, where programs without `v` expect them."""


def boxes_folder() -> Path:
    """Return the folder that has a folder for each box."""
    return paths.state_dir() / "boxes"


def all_boxes() -> list[KnownBox]:
    """List every known box, newest first. A folder that can't be read is left out."""
    boxes = [_load(folder) for folder in boxes_folder().glob("*/")]
    return sorted((b for b in boxes if b), key=lambda box: box.created, reverse=True)


def by_name(name: str) -> KnownBox | None:
    """Return the box called `name`; a bare address, once used as a name, means its port 22.

    Raises UsageError if a newer boxstrap wrote its record.
    """
    if NAME.fullmatch(name):
        refuse_newer(boxes_folder() / name)
        for folder in (name, f"{name}-22", name.rpartition("-")[0]):
            box = _load(boxes_folder() / folder) if folder else None
            if box and name in (box.name, box.folder_name, box.address):
                return box
    return None


def unreadable() -> list[KnownBox]:
    """List boxes whose record can't be read, so that only the name is known."""
    folders = (folder for folder in boxes_folder().glob("*/") if NAME.fullmatch(folder.name))
    lost = (folder.name for folder in folders if any(folder.iterdir()) and not _load(folder))
    return [KnownBox(name, name) for name in sorted(lost)]


def is_newer(folder: Path) -> bool:
    """Whether a newer boxstrap wrote the record in `folder`, so that this one can't read it."""
    version = _read(folder).get("v")
    return type(version) is int and version > VERSION


def refuse_newer(folder: Path) -> None:
    """Raise UsageError if `is_newer`."""
    if is_newer(folder):
        raise UsageError(
            "a newer boxstrap wrote what is known of this box, so this one leaves it alone: "
            "update boxstrap.",
            where=str(folder / "box.json"),
        )


def save(box: KnownBox, *, is_new: bool = True) -> None:
    """Write the box's record atomically. Raises OSError, and as `refuse_newer`.

    Raises FileNotFoundError if it is not new and another command moved its record aside.
    """
    refuse_newer(box.folder)
    write_private(box.folder / "box.json", _text(box), make_folder=is_new)


def save_with_pin(box: KnownBox, pins: str, *, is_new: bool) -> bool:
    """Write record and known_hosts; for a new box both or neither.

    Returns False, writing nothing, if another command was first. Raises as `save`.
    """
    folder = box.folder
    if not is_new:
        save(box, is_new=False)  # first, because a pin without a record is never looked up
        write_private(box.known_hosts, pins, make_folder=False)
        return True
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        write_private(made / "box.json", _text(box))
        write_private(made / "known_hosts", pins)
        made.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return True


def pins_of(box: KnownBox) -> list[tuple[str, PublicKey]]:
    """List the names and keys that are pinned for the box; empty if they can't be read."""
    try:
        text = box.known_hosts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(names, key) for marker, names, key in key_lines(text) if not marker]


def forget(box: KnownBox) -> None:
    """Remove everything known of the box, including its pin. Raises OSError."""
    aside = box.folder.with_name(f".{box.folder.name}.forgotten")
    shutil.rmtree(aside, ignore_errors=True)
    box.folder.rename(aside)  # in one step: a half-removed folder would be a box that is refused
    shutil.rmtree(aside, ignore_errors=True)


def name_with_port(name: str, address: str, port: int) -> str:
    """Add the port to a name that is the bare address: its ssh entry would match every port."""
    return f"{name}-{port}" if name.lower() == address.lower() else name


def _text(box: KnownBox) -> str:
    values = dataclasses.asdict(box)
    extra = {**values["route"], **{name: values[name] for name in _FACTS}}
    for name in ("secrets", "held_secrets"):
        if values[name] is None:
            del extra[name]
    record = {name: values[name] for name in _TOP}
    extra = {**box.raw.get("extra", {}), **extra}
    whole = {**box.raw, **record, "v": VERSION, "extra": extra}
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def _read(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / "box.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def read_box(folder: Path) -> KnownBox | None:
    """Read the record in this folder; None if it is damaged, or a newer boxstrap's."""
    return _box_of(_read(folder))


def _load(folder: Path) -> KnownBox | None:
    box = read_box(folder)
    if box is None or box.host_key_alias != folder.name:
        return None
    name = name_with_port(box.name, box.address, box.port)
    return box if name == box.name else dataclasses.replace(box, name=name, folder_name=folder.name)


def _box_of(record: dict[str, Any]) -> KnownBox | None:
    """Return None for a record that is damaged, or a newer boxstrap's."""
    extra, version = record.get("extra", {}), record.get("v", VERSION)
    own = {name: record[name] for name in _TOP if name in record}
    if not {"name", "host_text"} <= own.keys() or type(extra) is not dict or version != VERSION:
        return None
    if not all(_is_sound(value, getattr(_DEFAULT, name)) for name, value in own.items()):
        return None
    return KnownBox(
        **own,
        **{name: _like(extra.get(name), getattr(_DEFAULT, name)) for name in _FACTS},
        route=Route(**{name: _like(extra.get(name), getattr(Route(), name)) for name in _ROUTE}),
        raw=record,
    )


def _like(value: object, default: object) -> Any:  # noqa: ANN401 - of the field's type
    """Return the value for a field; `default` if it is missing or has another type."""
    if isinstance(value, list) and (default is None or isinstance(default, tuple)):
        return tuple(item for item in value if isinstance(item, str))
    return value if type(value) is type(default) else default


def _is_sound(value: object, like: object) -> bool:
    if isinstance(like, float):
        return isinstance(value, int | float) and type(value) is not bool and abs(value) < 1e300
    return type(value) is type(like)
