"""Downloads kept on disk, shared by every mirror process of this machine."""

import contextlib
import hashlib
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.boxes.places import locked

_TRIES = 3
_TIMEOUT = 120.0
_PIECE = 1 << 18

#: Called with each piece as it arrives, and the total length (None: unknown).
Sink = Callable[[int | None, bytes], None]


class NotFoundError(Exception):
    """Upstream answered 4xx; the HTTP status is in `status`."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url}: {status}")
        self.status = status


class MirrorStore:
    """A folder of files named by the hash of their URL or name."""

    def __init__(self, folder: Path, proxy: str | None = None) -> None:
        self._folder = folder
        handlers: list[urllib.request.BaseHandler] = []
        # One context for all requests: reading this machine's certificates takes 50 ms.
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy}))
        self._opener = urllib.request.build_opener(*handlers)

    def get(
        self,
        url: str,
        *,
        sha256: str | None = None,
        max_age: float | None = None,
        headers: Mapping[str, str] | None = None,
        sink: Sink | None = None,
    ) -> Path:
        """Return the file behind a URL, fetched unless it is cached (and younger than `max_age` s).

        `sink` gets the pieces of the first try of a fetch, and nothing from the cache. Raises
        NotFoundError on 4xx, OSError if three tries failed and there is no older copy.
        """
        place = self._place(url)
        if self._fresh(place, max_age):
            return place
        with locked(place.with_suffix(".lock")):
            if self._fresh(place, max_age):
                return place
            try:
                self._fetch(url, place, sha256, headers or {}, sink)
            except NotFoundError:
                raise
            except OSError:
                if not place.exists():
                    raise
        return place

    def made(self, name: str, make: Callable[[], bytes], newer_than: float = 0) -> bytes:
        """Return what is cached under this name (since `newer_than`), else make and cache it."""
        place = self._place(name)
        with contextlib.suppress(FileNotFoundError):
            if place.stat().st_mtime > newer_than:
                return place.read_bytes()
        data = make()
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(f".made{os.getpid()}-{threading.get_ident()}")
        part.write_bytes(data)
        part.rename(place)
        return data

    def _place(self, url: str) -> Path:
        name = hashlib.sha256(url.encode()).hexdigest()
        return self._folder / name[:2] / name

    def _fresh(self, place: Path, max_age: float | None) -> bool:
        try:
            age = time.time() - place.stat().st_mtime
        except FileNotFoundError:
            return False
        return max_age is None or age < max_age

    def _fetch(
        self,
        url: str,
        place: Path,
        sha256: str | None,
        headers: Mapping[str, str],
        sink: Sink | None,
    ) -> None:
        part = place.with_suffix(f".part{os.getpid()}")
        for attempt in range(1, _TRIES + 1):
            try:
                self._download(url, part, sha256, headers, sink if attempt == 1 else None)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise NotFoundError(url, error.code) from error
                if attempt == _TRIES:
                    raise
            except OSError:
                if attempt == _TRIES:
                    raise
            else:
                part.rename(place)
                return
            finally:
                part.unlink(missing_ok=True)
            time.sleep(attempt)

    def _download(
        self,
        url: str,
        part: Path,
        sha256: str | None,
        headers: Mapping[str, str],
        sink: Sink | None,
    ) -> None:
        request = urllib.request.Request(url, headers={"User-Agent": "pip/25", **headers})
        digest = hashlib.sha256()
        with self._opener.open(request, timeout=_TIMEOUT) as answer, part.open("wb") as file:
            length = answer.headers.get("Content-Length")
            left = int(length) if length else None
            while piece := answer.read(_PIECE):
                if sink:
                    sink(int(length) if length else None, piece)
                digest.update(piece)
                file.write(piece)
                left = None if left is None else left - len(piece)
        if left:
            raise OSError(f"{url}: {left} bytes are missing")
        if sha256 and digest.hexdigest() != sha256:
            raise OSError(f"{url}: not the SHA-256 that the index gives")
