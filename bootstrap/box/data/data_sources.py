"""List the files of an item of `data:`, from its server or from a list of signed URLs."""

from __future__ import annotations

import json
import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from .data_https import Https, plain
from .data_items import Item
from .data_words import DataError, say

HUB = "https://huggingface.co"
MOST_ANSWER = 64 * 1024 * 1024  # bytes of a listing that are read
MOST_FILES = 1_000_000
MOST_PAGES = 20_000
LONGEST_PATH = 1024
MOST_BYTES = 2**60
"""Most bytes of a file: no disk has more."""
_HUB = re.compile(r"hf:(datasets|models)/([^@]+)@([^/]+)(?:/(.+))?")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_UNSEEN = re.compile(r"[\x00-\x1f\x7f]")


class DataFile(NamedTuple):
    """One file to fetch. `path` is relative to the item's; a size of -1 is unknown."""

    url: str
    path: str
    size: int = -1
    sha256: str = ""
    blob: str = ""
    """Git's hash of its content, if that is known and no SHA-256 is."""
    tag: str = ""
    """The server's ETag for this version, else its Last-Modified time."""
    token: str = ""
    ranges: bool = True
    """Whether its server supports range requests."""
    is_alone: bool = False
    """Whether the item names this file itself, not a folder."""
    signed_of: int = -1
    """The number of its item, if that has signed URLs; `url` is empty then."""


def files_of(
    item: Item, https: Https, signed: Callable[[int], Iterable[DataFile]]
) -> list[DataFile]:
    """Return the files to fetch. Raises DataError, NETWORK_ERRORS."""
    scheme = item.source.partition(":")[0]
    if scheme == "https":
        return [_at_address(item, https)]  # its size is checked there
    try:
        listed = _of_hub(item, https) if scheme == "hf" else signed(item.number)
        taken = (file for file in listed if item.takes(file.path))
        found = list(islice(taken, MOST_FILES + 1))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            "data-refused", f"{item.source}: the answer is no list of files: {error!r}"
        ) from None
    if len(found) > MOST_FILES:
        raise DataError("data-refused", f"{item.source} has more than {MOST_FILES} files")
    files = [file._replace(path=safe_path(file.path)) for file in found]
    if any(not -1 <= file.size <= MOST_BYTES for file in files):
        raise DataError("data-refused", f"{item.source} names a file of an impossible size")
    if not files:
        raise DataError("data-refused", f"{item.source} has no files")
    if len({file.path for file in files}) < len(files):
        raise DataError("data-refused", f"{item.source} names a file twice")
    return files


def safe_path(path: str) -> str:
    """Return `path` if it stays below its folder. Raises DataError if it doesn't."""
    parts = path.split("/")
    if (
        len(path) > LONGEST_PATH
        or _UNSEEN.search(path)
        or not set(parts).isdisjoint({"", ".", ".."})
        or any(len(os.fsencode(part)) > 255 for part in parts)
    ):
        raise DataError("data-refused", f"this file name is not allowed: {path[:200]!r}")
    return path


def _at_address(item: Item, https: Https) -> DataFile:
    """Request one byte: the answer shows the size, and whether ranges are supported."""
    name = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(item.source).path))
    with https.open(item.source, {"Range": "bytes=0-0"}) as answer:
        tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
        ranges = answer.status == 206
        size = _size_said(item, answer.headers, ranges)
    return DataFile(
        item.source,
        safe_path(name) if name else "",
        size,
        item.sha256,
        tag=tag,
        ranges=ranges,
        is_alone=True,
    )


def _size_said(item: Item, headers: Any, is_part: bool) -> int:  # noqa: ANN401 - see Https
    """Return a file's size by the headers; -1 if they don't say. Raises DataError."""
    said = headers.get("Content-Range" if is_part else "Content-Length", "*").strip()
    text = said[len("bytes 0-0/") :] if is_part and said.startswith("bytes 0-0/") else said
    if text == "*":
        return -1
    if not re.fullmatch("[0-9]{1,18}", text):
        raise DataError(
            "data-refused",
            f"{plain(item.source)}: its server reports an invalid size: {said[:40]!r}",
        )
    return int(text)


def _of_hub(item: Item, https: Https) -> Iterator[DataFile]:
    """Yield the files of a hub repository at the commit that the revision is now."""
    found = _HUB.fullmatch(item.source)
    assert found, item.source  # noqa: S101 - the profile's rule
    kind, name, revision, path = found.groups()
    hub = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    token = os.environ.get("HF_TOKEN") or ""
    api = f"{hub}/api/{kind}/{name}"
    commit = str(_ask(https, f"{api}/revision/{revision}", token)[0].get("sha"))
    if not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        raise DataError("data-refused", f"{item.source}: the hub names no commit")
    say(f"{item.source} is commit {commit}")
    files = "{}/{}{}/resolve/{}/".format(
        hub, "datasets/" if kind == "datasets" else "", name, commit
    )
    for entry in _entries(https, api, commit, path or "", token):
        below = str(entry.get("path"))
        lfs = entry.get("lfs") or {}
        yield DataFile(
            files + urllib.parse.quote(below),
            posixpath.basename(below) if below == path else below[len(path or "") :].lstrip("/"),
            int(entry.get("size", -1)),
            str(lfs.get("oid", "")),
            "" if lfs else str(entry.get("oid", "")),
            token=token,
            is_alone=below == path,
        )


def _entries(https: Https, api: str, commit: str, path: str, token: str) -> Iterator[Any]:
    """Yield the hub's entries: one file, or all below a folder, page by page."""
    if path:
        body = urllib.parse.urlencode({"paths": path, "expand": "False"}).encode()
        rows, _ = _ask(https, f"{api}/paths-info/{commit}", token, body)
        yield from (row for row in rows if row.get("type") == "file")
        if not any(row.get("type") == "directory" for row in rows):
            return
    url = "{}/tree/{}{}?recursive=true".format(api, commit, path and "/" + urllib.parse.quote(path))
    for _ in range(MOST_PAGES):
        rows, following = _ask(https, url, token)
        yield from (row for row in rows if row.get("type") == "file")
        host = urllib.parse.urlsplit(url).netloc
        if urllib.parse.urlsplit(following).netloc != host:
            return
        url = following
    raise DataError("data-refused", f"{plain(api)} returns a list without an end")


def _ask(https: Https, url: str, token: str, body: bytes | None = None) -> tuple[Any, str]:
    """Return the hub's answer, and the URL of the next page."""
    with https.open(url, {"Accept": "application/json"}, token, body) as answer:
        text = answer.read(MOST_ANSWER)
        following = _NEXT.search(answer.headers.get("Link", ""))
    try:
        said = json.loads(text)
    except ValueError:
        raise DataError(
            "data-refused", f"{plain(url)} is not a hub: its answer is not JSON"
        ) from None
    return said, following.group(1) if following else ""
