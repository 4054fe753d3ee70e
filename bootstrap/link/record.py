"""What is known of a box: one folder each below the state folder.

    boxes/NAME/box.json      how it is reached, its last profile and repository
    boxes/NAME/known_hosts   its host keys, for boxstrap and for OpenSSH alike

The two files of a new box come into being together: a folder that lacks one, or
where it can't be read, is a box whose key nobody can compare any more
(docs/adr/0004). An older record is read as it is: what it lacks has its default, and
what a newer program added stays in it (docs/adr/0027).
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
"""Beside `box.json`: what `guard` counted of its lease."""
VERSION = 1
"""Of `box.json`; a record without one is of version 1. Raise it only where an earlier
program would misread the record: a key that it doesn't know, it keeps."""


@dataclass(frozen=True)
class KnownBox:
    """A box as this machine knows it. Nothing here is secret."""

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
    folder_name: str = ""
    """Where an earlier version named it by its bare address: that."""
    route: Route = field(default_factory=Route)
    provider: str = ""
    """The provider that it was recognised as."""
    workdir: str = ""
    venv: str = ""
    console: str = ""
    """The provider's page where it is paid for."""
    price: float = 0.0
    """Dollars an hour that it costs; 0 where nobody said."""
    since: float = 0.0
    """When its account says that it was started, seconds since 1970; 0 where none does."""
    repo_root: str = ""
    """The first commit of the repository `repo_key`."""
    script: str = ""
    """The id of the last setup's script."""
    snapshot: str = ""
    """What was placed last in that repository's tree on the box, as far as this machine knows."""
    secrets: tuple[str, ...] | None = None
    """Names of the secrets that it was ever given; None where nobody noted that."""
    proved: str = ""
    """The variables that were proved there, by their fingerprint."""
    held_secrets: tuple[str, ...] | None = None
    """Names of those that it holds by the last setup or wipe; None where nobody noted that."""
    editor_settings: Mapping[str, object] = field(default_factory=dict)
    """What was last written to an editor's settings on the box."""
    ended: float = 0.0
    """When it was destroyed, or found to be gone, seconds since 1970."""
    spent: float = 0.0
    """Dollars that it cost since its last start, as far as its account said; 0 where it didn't."""
    lease: Mapping[str, object] = field(default_factory=dict)
    """Its lease by the last setup that set one: its terms, see `box/lease.py`; when it was `set`,
    what a person `extended` it by, and whether the box itself has it `held`."""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The record as it was read: what this program doesn't know in it is written again."""

    @property
    def costs_since(self) -> float:
        """Since when it costs, as far as this machine knows: it was met after it was rented."""
        return self.since or self.created

    @property
    def folder(self) -> Path:
        """Where everything about it is kept."""
        return boxes_folder() / self.host_key_alias

    @property
    def host_key_alias(self) -> str:
        """What its known_hosts calls it."""
        return self.folder_name or self.name

    @property
    def known_hosts(self) -> Path:
        """Its pinned host keys."""
        return self.folder / "known_hosts"


_DEFAULT = KnownBox("", "")
_ROUTE = tuple(f.name for f in dataclasses.fields(Route))
_TOP = (
    "name", "host_text", "address", "port", "user", "profile", "repo_key", "key", "own_pin",
    "created", "seen", "folder_name",
)  # fmt: skip
"""These stand at the top of the file, and a record in which one is of another type is damaged."""
_FACTS = tuple(
    f.name for f in dataclasses.fields(KnownBox) if f.name not in (*_TOP, "route", "raw")
)
"""All others, and the route, stand below `extra`, where programs from before `v` look for them."""


def boxes_folder() -> Path:
    """Where the folders of boxes lie."""
    return paths.state_dir() / "boxes"


def all_boxes() -> list[KnownBox]:
    """Every known box, the newest first. A folder that can't be read is left out."""
    boxes = [_load(folder) for folder in boxes_folder().glob("*/")]
    return sorted((b for b in boxes if b), key=lambda box: box.created, reverse=True)


def by_name(name: str) -> KnownBox | None:
    """The box called `name`; a bare address, once a name itself, is the box at its port 22.

    Raises UsageError where a newer boxstrap wrote its record.
    """
    if NAME.fullmatch(name):
        refuse_newer(boxes_folder() / name)
        for folder in (name, f"{name}-22", name.rpartition("-")[0]):
            box = _load(boxes_folder() / folder) if folder else None
            if box and name in (box.name, box.folder_name, box.address):
                return box
    return None


def unreadable() -> list[KnownBox]:
    """Boxes of which nothing is known but the name: their record can't be read."""
    folders = (folder for folder in boxes_folder().glob("*/") if NAME.fullmatch(folder.name))
    lost = (folder.name for folder in folders if any(folder.iterdir()) and not _load(folder))
    return [KnownBox(name, name) for name in sorted(lost)]


def is_newer(folder: Path) -> bool:
    """Whether a newer boxstrap wrote the record in `folder`: this one doesn't know what it says."""
    version = _read(folder).get("v")
    return type(version) is int and version > VERSION


def refuse_newer(folder: Path) -> None:
    """Raise UsageError where `is_newer`."""
    if is_newer(folder):
        raise UsageError(
            "a newer boxstrap wrote what is known of this box, so this one leaves it alone: "
            "update boxstrap.",
            where=str(folder / "box.json"),
        )


def save(box: KnownBox, *, is_new: bool = True) -> None:
    """Write the box's record, whole or not at all. Raises OSError, and as `refuse_newer`.

    FileNotFoundError where it is not new, and another command put its record aside.
    """
    refuse_newer(box.folder)
    write_private(box.folder / "box.json", _text(box), make_folder=is_new)


def save_with_pin(box: KnownBox, pins: str, *, is_new: bool) -> bool:
    """Write record and known_hosts; of a box that was never met both or neither.

    False where somebody else met it first; nothing is written then. Raises as `save`.
    """
    folder = box.folder
    if not is_new:
        save(box, is_new=False)  # first: a pin that no record leads to would be looked up by nobody
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
    """The names and keys that are pinned for the box; none where they can't be read."""
    try:
        text = box.known_hosts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(names, key) for marker, names, key in key_lines(text) if not marker]


def forget(box: KnownBox) -> None:
    """Remove everything known of the box, its pin included. Raises OSError."""
    aside = box.folder.with_name(f".{box.folder.name}.forgotten")
    shutil.rmtree(aside, ignore_errors=True)
    box.folder.rename(aside)  # at once: half of it would be a known box that is refused
    shutil.rmtree(aside, ignore_errors=True)


def name_with_port(name: str, address: str, port: int) -> str:
    """An entry of the ssh config for the bare address would speak for every other port there."""
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
    """The record in this folder; None where it is damaged, or a newer boxstrap's."""
    return _box_of(_read(folder))


def _load(folder: Path) -> KnownBox | None:
    box = read_box(folder)
    if box is None or box.host_key_alias != folder.name:
        return None
    name = name_with_port(box.name, box.address, box.port)
    return box if name == box.name else dataclasses.replace(box, name=name, folder_name=folder.name)


def _box_of(record: dict[str, Any]) -> KnownBox | None:
    """None for a record that is damaged, or a newer boxstrap's."""
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
    """A fact as its field has it; `default` where it is of another type, or not there."""
    if isinstance(value, list) and (default is None or isinstance(default, tuple)):
        return tuple(item for item in value if isinstance(item, str))
    return value if type(value) is type(default) else default


def _is_sound(value: object, like: object) -> bool:
    if isinstance(like, float):
        return isinstance(value, int | float) and type(value) is not bool and abs(value) < 1e300
    return type(value) is type(like)
