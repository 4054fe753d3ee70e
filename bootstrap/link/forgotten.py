"""Boxes that were forgotten here, until they show their key at their place again. Of each the name
is kept, whose runs it had, and which of its results are at home: that is about files here."""

import contextlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bootstrap import paths
from bootstrap.errors import UsageError
from bootstrap.link.record import LOCAL, KnownBox, box_of, pins_of
from bootstrap.providers import place_of

_MOST = 500  # names that are kept, those of the boxes forgotten last
_AT_HOME = ("pulls", "receipts")  # the folders of a record that tell which results are at home
_OF_REPOSITORY = ("key", "stood_in", "root", "workdir", "left", "place")


def forget_box(box: KnownBox) -> None:
    """Remove all that is known of the box, with its pin, but what is kept. Raises OSError."""
    import shutil  # late: each login asks `met_again`, and few forget

    theirs = [{name: getattr(one, name) for name in _OF_REPOSITORY} for one in box.repositories]
    former: dict[str, Any] = {"name": box.name, "host_text": "", "created": box.created}
    former["extra"] = {"repositories": theirs}
    with contextlib.suppress(UsageError):  # a damaged record has no place
        _write({**_names(), **dict.fromkeys(_shown(box), former)})
    aside = box.folder.with_name(f".{box.folder.name}.forgotten")
    shutil.rmtree(aside, ignore_errors=True)
    box.folder.rename(aside)  # in one step: a half-removed folder would be a box that is refused
    _move_what_is_home(aside, _kept_of(box))
    shutil.rmtree(aside, ignore_errors=True)


def is_forgotten(name: str, created: float | None = None) -> bool:
    """Whether a box of this name, or the one that was met at `created`, was forgotten here, and was
    not met again since."""
    found = [former for former in _names().values() if former.get("name") == name]
    return any(created in (None, former.get("created")) for former in found)


def met_again(box: KnownBox, own: Collection[float] = ()) -> KnownBox | None:
    """Return what this box was before it was forgotten: once; None if it never was.

    `own`: when boxes were first met whose runs it has: it is such a one at its place, also if it
    shows another key now.
    """
    if not (names := _names()):
        return None
    shown = _shown(box)
    places = {one.rpartition(" ")[0] for one in shown}
    same = [
        one
        for one, former in names.items()
        if one in shown or (former.get("created") in own and one.rpartition(" ")[0] in places)
    ]
    found = [box_of(names.pop(one)) for one in same]
    before = next(filter(None, found), None)
    if found:
        with contextlib.suppress(OSError):
            if before:
                _move_what_is_home(_kept_of(before), box.folder)
            _write(names)
    return before


def _kept_of(box: KnownBox) -> Path:
    return paths.state_dir() / "forgotten" / str(box.created)


def _move_what_is_home(source: Path, to: Path) -> None:
    for folder in (to.parent, to):
        folder.mkdir(mode=0o700, exist_ok=True)
    for name in _AT_HOME:
        with contextlib.suppress(OSError):
            (source / name).rename(to / name)


def _shown(box: KnownBox) -> list[str]:
    """Return its place with each key that it showed: boxes of one image may share a key."""
    if box.is_local:
        return [LOCAL]
    place = [box.host_text] if box.target.is_rented else place_of(box.address, box.port, box.user)
    keys = {key.fingerprint for _, key in pins_of(box)}
    return [" ".join(map(str, (*place, key))) for key in sorted(keys)]


def _file() -> Path:
    return paths.state_dir() / "forgotten.json"


def _names() -> dict[str, dict[str, Any]]:
    """Return the names by what the boxes showed, the one forgotten last at the end."""
    named = paths.kept_record(_file()).items()
    return {shown: former for shown, former in named if isinstance(former, dict)}


def _write(names: dict[str, dict[str, Any]]) -> None:
    import shutil

    kept = dict([*names.items()][-_MOST:])
    paths.write_private(_file(), json.dumps(kept, indent=1) + "\n")
    theirs = {str(former.get("created")) for former in kept.values()}
    for folder in (paths.state_dir() / "forgotten").glob("*"):
        if folder.name not in theirs:
            shutil.rmtree(folder, ignore_errors=True)
