"""What is remembered of a box: one folder each below the state folder.

    boxes/NAME/box.json      how it is reached, its last profile and repository
    boxes/NAME/known_hosts   its host keys, for boxstrap and for OpenSSH alike

The two files of a new box come into being together: a folder that lacks one, or
where it can't be read, is a box whose key nobody can compare any more
(docs/adr/0004).
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bootstrap import paths
from bootstrap.paths import write_private

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


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
    folder_name: str = ""
    """Where an earlier version named it by its bare address: that."""

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


_BLANK = KnownBox("", "")


def boxes_folder() -> Path:
    """Where the folders of boxes lie."""
    return paths.state_dir() / "boxes"


def all_boxes() -> list[KnownBox]:
    """Every known box, the newest first. A folder that can't be read is left out."""
    boxes = [_load(folder) for folder in boxes_folder().glob("*/")]
    return sorted((b for b in boxes if b), key=lambda box: box.created, reverse=True)


def by_name(name: str) -> KnownBox | None:
    """The box called `name`; a bare address, once a name itself, is the box at its port 22."""
    if NAME.fullmatch(name):
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


def save(box: KnownBox) -> None:
    """Write the box's record, whole or not at all. Raises OSError."""
    write_private(box.folder / "box.json", _record(box))


def save_with_pin(box: KnownBox, pins: str, *, is_new: bool) -> bool:
    """Write record and known_hosts; of a box that was never met both or neither.

    False where somebody else met it first; nothing is written then. Raises OSError.
    """
    folder = box.folder
    if not is_new:
        save(box)  # first: a pin that no record leads to would be looked up by nobody
        write_private(box.known_hosts, pins)
        return True
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        write_private(made / "box.json", _record(box))
        write_private(made / "known_hosts", pins)
        made.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return True


def forget(box: KnownBox) -> None:
    """Remove everything known of the box, its pin included. Raises OSError."""
    aside = box.folder.with_name(f".{box.folder.name}.forgotten")
    shutil.rmtree(aside, ignore_errors=True)
    box.folder.rename(aside)  # at once: half of it would be a known box that is refused
    shutil.rmtree(aside, ignore_errors=True)


def never_bare(name: str, address: str, port: int) -> str:
    """An entry of the ssh config for the bare address would speak for every other port there."""
    return f"{name}-{port}" if name.lower() == address.lower() else name


def _record(box: KnownBox) -> str:
    return json.dumps(dataclasses.asdict(box), indent=1, sort_keys=True) + "\n"


def _load(folder: Path) -> KnownBox | None:
    try:
        record = json.loads((folder / "box.json").read_text(encoding="utf-8"))
        fields = {f.name for f in dataclasses.fields(KnownBox)}
        box = KnownBox(**{key: value for key, value in record.items() if key in fields})
        if not all(_is_sound(getattr(box, name), getattr(_BLANK, name)) for name in fields):
            return None
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    if box.host_key_alias != folder.name:
        return None
    name = never_bare(box.name, box.address, box.port)
    return box if name == box.name else dataclasses.replace(box, name=name, folder_name=folder.name)


def _is_sound(value: object, like: object) -> bool:
    if isinstance(like, float):
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    return type(value) is type(like)
