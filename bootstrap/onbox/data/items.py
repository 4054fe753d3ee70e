"""Fetch items of `data:`: list their files, check disk space, then download all in parallel."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from .download import RESERVE, Download, has_digest, part_of, unpack
from .records import DataRecord, DataRecords, placed
from .sources import (
    Addresses,
    DataError,
    DataFile,
    Https,
    Item,
    Places,
    files_of,
    plain,
    say,
    try_again,
)

GIB = 1024**3


class Fetching(NamedTuple):
    """One item: its files, and the path of each."""

    item: Item
    key: str
    target: Path
    files: list[tuple[DataFile, Path]]
    to_fetch: list[tuple[DataFile, Path]]
    """The files that aren't there yet."""


def fetch_items(items: list[Item], places: Places, records: DataRecords) -> None:
    """Fetch items. Raises OSError, and DataError (early if it can be known before fetching)."""
    https, addresses = Https(), Addresses(places.lists)
    found = [_look(item, places, records, https, addresses) for item in items]
    for each in found:
        if each.item.source.startswith("https:") and not each.item.sha256:
            say("warn data-unpinned")
    _check_space(found)
    files = [pair for each in found for pair in each.to_fetch]
    if len({place for _, place in files}) < len(files):
        raise DataError("data-in-the-way", "two items of data have a file for the same place")
    total = sum(max(0, wanted.size) for wanted, _ in files)
    is_known = all(wanted.size >= 0 for wanted, _ in files)

    def report(done: int) -> None:
        say(f"progress {done} {total if is_known else ''}")

    for each in found:
        absent = {str(place) for _, place in each.files if not os.path.lexists(place)}
        records.begin(each.key, absent)
    Download(https, addresses, report).fetch(files)
    for each in found:
        _place(each, records)


def _look(
    item: Item, places: Places, records: DataRecords, https: Https, addresses: Addresses
) -> Fetching:
    """Find which files of an item to fetch, and where to."""
    files = try_again(lambda: files_of(item, https, addresses.files_of), item.source)
    key, target = places.key(item), places.target(item)
    if item.unpack:
        if len(files) != 1:
            raise DataError("data-archive", f"{item.source} is not a single archive")
        pairs = [(files[0], places.home / "data" / (f"{key}.archive"))]
    elif len(files) == 1 and files[0].is_alone:
        pairs = [(files[0], target / files[0].path if item.to.endswith("/") else target)]
    else:
        pairs = [(file, target / file.path) for file in files]
    earlier, begun = records.earlier(str(target)), records.begun(key)
    to_fetch = [
        (file, place)
        for file, place in pairs
        if not _is_there(file, place, begun=str(place) in begun, earlier=str(place) in earlier)
    ]
    return Fetching(item, key, target, pairs, to_fetch)


def _is_there(file: DataFile, place: Path, *, begun: bool, earlier: bool) -> bool:
    """Return whether a file is at its path already. Raises DataError if something else is.

    `begun`: this item put it there before an interruption; `earlier`: a former item of its target.
    """
    if not os.path.lexists(place):
        return False
    if place.is_file() and not place.is_symlink():
        is_known = bool(file.sha256 or file.blob)
        if (is_known or (begun and file.size >= 0)) and has_digest(place, file):
            return True
        if begun or earlier:
            return False
    raise DataError("data-in-the-way", f"{place} already exists with different content")


def _check_space(found: list[Fetching]) -> None:
    """Raise DataError if a disk is too small. An archive needs at least twice its own size."""
    needs: defaultdict[int, int] = defaultdict(int)
    folders = {}
    for each in found:
        for file, place in each.to_fetch:
            folder = _existing(place.parent)
            device = folder.stat().st_dev
            folders[device] = folder
            part = part_of(place)
            there = part.stat().st_blocks * 512 if part.exists() else 0
            needs[device] += max(0, file.size * (2 if each.item.unpack else 1) - there)
    for device, need in needs.items():
        free = max(0, shutil.disk_usage(folders[device]).free - RESERVE)
        if need > free:
            need_mb, free_mb = max(1, round(need / 1e6)), round(free / 1e6)
            raise DataError(
                f"data-space need={need_mb} have={free_mb}",
                f"{need_mb} MB are to be fetched, and {folders[device]} has {free_mb} MB left",
            )


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def _place(each: Fetching, records: DataRecords) -> None:
    """Record a complete item; if it is an archive, unpack it first."""
    paths = [place for _, place in each.files]
    if each.item.unpack:
        paths = _unpacked(each, records)
    earlier = records.earlier(str(each.target))
    files = tuple(file for file in map(placed, map(str, paths)) if file)
    if not each.item.to.endswith("/"):  # with a slash, others may use the folder
        for path in earlier.keys() - {file.path for file in files}:
            Path(path).unlink()
    records.keep(each.key, DataRecord(str(each.target), files))
    if each.item.unpack:
        each.files[0][1].unlink()


def _unpacked(each: Fetching, records: DataRecords) -> list[Path]:
    """Unpack next to the target, check that nothing is in the way, then move the files there."""
    target, archive = each.target, each.files[0][1]
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".boxstrap-{each.key[:16]}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        names = unpack(archive, plain(each.item.source), beside)
        paths = [target / name for name in names]
        ours = {*records.earlier(str(target)), *records.begun(each.key)}
        for path in paths:
            if os.path.lexists(path) and str(path) not in ours:
                raise DataError("data-in-the-way", f"{path} is there already")
        records.begin(each.key, {str(path) for path in paths})
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).replace(target / name)
    except DataError as error:
        if error.code == "data-archive":  # for other reasons it need not be fetched again
            archive.unlink()
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return paths
