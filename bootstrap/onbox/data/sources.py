"""List the files of an item of `data:`, from its server or from a list of signed URLs.

HTTPS requests: no other scheme, no token for another host, certificates checked.

URLs of a bucket's objects, signed by the user's machine: each opens one object for an hour.
"""

from __future__ import annotations

import http.client
import json
import os
import posixpath
import re
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from .. import AGENT
from ..client import Client
from ..pip_indexes import pip_setting
from ..retry_after import LONGEST_S, asked_pause
from ..step_report import tell
from .items import DataError, Item


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


T = TypeVar("T")
TIMEOUT_S = 20
PATIENCE_S = 60
"""Seconds for which a server may send nothing."""
REFUSED_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 406, 410, 414, 416, 451, 501})
"""Statuses that a retry does not change."""
CHANGED = 412
"""Status of a server whose file is not in the requested state (Precondition Failed)."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""How OpenSSL, by its version, calls an answer that is no TLS, as of a server of http."""
NETWORK_ERRORS = (OSError, EOFError, http.client.HTTPException)
"""Errors after which a retry may succeed; URLError and HTTPError are OSErrors."""


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to https, and sends a token only to the host that it is for."""

    max_redirections = 5

    def redirect_request(  # noqa: PLR0913, PLR0917 - as it is called
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request. Raises DataError if it isn't https."""
        if urllib.parse.urlsplit(newurl).scheme != "https":
            raise DataError("data-refused", f"{plain(req.full_url)} leads to {plain(newurl)}")
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None and _host(newurl) != _host(req.full_url):
            new.remove_header("Authorization")
        return new


def try_again(once: Callable[[], T], what: str, there: Callable[[], int] = lambda: 0) -> T:
    """Return what `once` returns; retry for `PATIENCE_S`, counted again whenever `there` grows.

    What the server asks to wait (`Retry-After`) comes on top, up to `LONGEST_S`. Raises DataError.
    """
    until, pause, most = time.monotonic() + PATIENCE_S, 1, there()
    left = LONGEST_S
    while True:
        try:
            return once()
        except NETWORK_ERRORS as error:
            if there() > most:
                most, until, pause, left = there(), time.monotonic() + PATIENCE_S, 1, LONGEST_S
            asked = asked_pause(error) or 0
            asks = f"; the server asks to wait {asked} s" if asked else ""
            if asked > left or time.monotonic() + pause > until:
                raise DataError("data-unreachable", f"{plain(what)}: {error}{asks}") from None
            say(f"{plain(what)}: {error}{asks}; again in {max(pause, asked)} s")
            until, left = until + asked, left - asked
        time.sleep(max(pause, asked))
        pause = min(pause * 2, 8)


class Https:
    """A client for all servers, for several threads."""

    schemes: tuple[str, ...] = ("https",)

    def __init__(self) -> None:
        context = ssl.create_default_context()
        if own := pip_setting("cert"):  # a company may intercept TLS with its own CA
            context.load_verify_locations(own)
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _OnlyHttps()
        )

    def open(
        self, url: str, headers: dict[str, str], token: str = "", body: bytes | None = None
    ) -> Any:  # noqa: ANN401 - http.client.HTTPResponse, by another name in typeshed
        """Return the answer. Raises DataError if the server refuses, else NETWORK_ERRORS.

        A malformed answer, such as a redirect without an address, counts as a refusal.
        """
        if urllib.parse.urlsplit(url).scheme not in self.schemes:
            raise DataError("data-refused", f"{plain(url)} is not https")
        request = urllib.request.Request(  # noqa: S310 - https alone
            url, data=body, headers={"Accept-Encoding": "identity", **AGENT, **headers}
        )
        if token:
            request.add_header("Authorization", "Bearer " + token)
        try:
            return self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == CHANGED:
                raise DataError(
                    "data-changed", f"{plain(url)} changed during the download"
                ) from None
            if error.code in REFUSED_STATUSES:
                raise DataError(
                    "data-refused", f"{plain(url)}: the server answers {error.code}", error.code
                ) from None
            raise
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise DataError(
                    "data-refused",
                    f"{plain(url)}: its certificate is not trusted: {error.reason}",
                ) from None
            if getattr(error.reason, "reason", "") in _NO_TLS:
                raise DataError("data-refused", f"{plain(url)} doesn't speak https") from None
            raise
        except ValueError as error:
            raise DataError(
                "data-refused", f"{plain(url)}: the answer makes no sense: {error}"
            ) from None


class OwnServer(Https):
    """For a server from the signer's own settings: one at home may have no certificate."""

    schemes = ("https", "http")


def plain(url: str) -> str:
    """Return a URL without its user and query, which may hold credentials."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def _host(url: str) -> tuple[str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port or 443


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
        if "." not in name:
            name = _name_said(answer.headers) or name
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


def _name_said(headers: Any) -> str:  # noqa: ANN401 - see Https
    """Return the file name of a Content-Disposition header, without folders; "" without one."""
    name = re.split(r"[\\/]", headers.get_filename() or "")[-1]
    try:
        return safe_path(name)
    except DataError:
        return ""


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


REFUSED = frozenset({400, 401, 403})
"""Statuses with which servers reject a URL that has expired, or whose signer's login has."""


class Addresses:
    """The signed URLs of one setup, for several threads; expired ones are requested again."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "data.addresses"
        self._lock = threading.Lock()
        self._rows: dict[int, dict[str, Any]] = {}

    def files_of(self, number: int) -> Iterator[DataFile]:
        """Yield the objects of an item. Raises DataError if no URLs arrive."""
        with self._lock:
            if not self._rows:
                self._ask()
            rows = self._rows.get(number, {})
        for path, row in rows.items():
            size, tag, alone = int(row["size"]), str(row["etag"]), bool(row["alone"])
            yield DataFile("", path, size, tag=tag, is_alone=alone, signed_of=number)

    def current(self, wanted: DataFile) -> str:
        with self._lock:
            return str(self._rows[wanted.signed_of][wanted.path]["url"])

    def renewed(self, wanted: DataFile, refused: str) -> str:
        """Return a newer URL than the refused one. Raises DataError if none arrives."""
        if self.current(wanted) == refused:
            with self._lock:
                if self._rows[wanted.signed_of][wanted.path]["url"] == refused:
                    self._ask()
        return self.current(wanted)

    def _ask(self) -> None:
        tell("wait code=data-addresses")
        if not Client(str(self._file.parent)).brings("addresses", self._file.name):
            raise DataError("data-missing", "no signed URLs arrived from your machine")
        rows: dict[int, dict[str, Any]] = {}
        with self._file.open(encoding="utf-8") as lines:
            self._file.unlink()
            for line in lines:
                row = json.loads(line)
                rows.setdefault(int(row["item"]), {})[str(row["path"])] = row
        if not rows:
            raise DataError("data-missing", "your machine could not sign any URL")
        self._rows = rows
