"""Measure the box's network, in a process of its own: a name server can hang.

Writes lines as described in `readers.py`: `index` {host, mb_s} or {host, error}, `git`
{host, seconds} or {host, error}, and `date`, the seconds that this box's clock is ahead of the
index's. Each takes 1.5 s at most, all at the same time.
"""

from __future__ import annotations

import base64
import gzip
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from .. import AGENT
from ..pip_indexes import box_index, pip_setting
from .readers import Reading, emit

LIMIT_S = 1.5
GRACE_S = 0.3
NO_ANSWER = f"no answer within {LIMIT_S:g} s"
MOST = 16 * 1024**2  # bytes of a file that are read at most
LEAST = 256 * 1024  # bytes, below which no speed is measured
PIECE = 64 * 1024
PORTS = {"ssh": 22, "git+ssh": 22, "git": 9418}


class Taken(NamedTuple):
    """What arrived of a body; `seconds` is the time from its headers to its last piece."""

    body: bytes
    size: int
    seconds: float
    headers: Any
    url: str


def take(url: str, deadline: float, *, keep: bool = False, **headers: str) -> Taken:
    """Read a body until its end or a limit. Raises OSError, HTTPException, ValueError."""
    body, size = [], 0
    with fetch(url, deadline, headers) as answer:
        began = last = time.monotonic()
        while size < MOST and last < deadline:
            piece = answer.read1(PIECE)
            last = time.monotonic()
            if not piece:
                break
            size += len(piece)
            if keep:
                body.append(piece)
        return Taken(b"".join(body), size, last - began, answer.headers, answer.url)


def fetch(url: str, deadline: float, headers: dict[str, str]) -> Any:  # noqa: ANN401
    """Open an http or https URL; user and password in it become a header."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("no http")
    user, _, host = parts.netloc.rpartition("@")
    if user:
        words = base64.b64encode(unquote(user).encode()).decode()
        headers = {**headers, "Authorization": f"Basic {words}"}
    url = urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(url, headers={**AGENT, **headers})  # noqa: S310
    left = max(0.05, deadline - time.monotonic())
    context = trust() if parts.scheme == "https" else None
    return urllib.request.urlopen(request, timeout=left, context=context)  # noqa: S310


@lru_cache(maxsize=1)
def trust() -> ssl.SSLContext:
    """Return the trusted certificates, cached, as reading them takes longer than a short fetch."""
    return ssl.create_default_context(cafile=pip_setting("cert") or None)


def report(key: str, host: str, read: Callable[[float], Reading]) -> None:
    """Emit what a measurement gives by its deadline, or why it failed."""
    try:
        emit(None, key, read(time.monotonic() + LIMIT_S))
    except (OSError, HTTPException, ValueError) as error:
        emit(None, key, None if is_ours(error) else {"host": host, "error": why(error)})


def read_index(index: str, wheel: str, deadline: float) -> dict[str, Reading] | None:
    """Measure how fast the index sends a file, None if unknown; emit how its clock differs."""
    if urlsplit(index).scheme not in ("http", "https"):
        return None  # a folder
    page = take(f"{index.rstrip('/')}/uv/", deadline, keep=True, **{"Accept-Encoding": "gzip"})
    emit(None, "date", ahead(page.headers.get("Date")))
    late = time.monotonic() >= deadline
    speeds = [page, *([] if late else take_file(index, page, wheel, deadline))]
    best = max(speeds, key=lambda taken: taken.size)
    if best.size < LEAST and time.monotonic() < deadline:
        return None  # everything came immediately: too little to measure
    mb_s = round(best.size / max(best.seconds, 1e-3) / 1e6, 2)
    return {"host": urlsplit(index).hostname or "", "mb_s": mb_s}


def take_file(index: str, page: Taken, wheel: str, deadline: float) -> Sequence[Taken]:
    """Fetch a wheel that the page names: the one given, else the last."""
    gzipped = page.headers.get("Content-Encoding") == "gzip"
    text = (gzip.decompress(page.body) if gzipped else page.body).decode("utf-8", "replace")
    links = re.findall(r'href="([^"#]+\.whl)[#"]', text)
    named = [link for link in links if wheel and unquote(link).rpartition("/")[2] == wheel]
    if not links:
        return []
    link = urlsplit(urljoin(page.url, (named or links)[-1].replace("&amp;", "&")))
    own = urlsplit(index)
    if link.hostname == own.hostname:  # keep user and password, which are in the index's URL
        link = link._replace(netloc=own.netloc)
    return [take(urlunsplit(link), deadline)]


def ahead(date: str | None) -> float | None:
    """Return by how many seconds this box is ahead of a response's Date."""
    try:
        return round(time.time() - parsedate_to_datetime(date or "").timestamp(), 1)
    except (TypeError, ValueError):
        return None


def is_ours(error: Exception) -> bool:
    """Return whether this Python rejects a certificate: uv and pip have their own trust stores."""
    reason = getattr(error, "reason", error)
    return isinstance(reason, ssl.SSLCertVerificationError)


def why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answers {error.code}"
    reason = getattr(error, "reason", error)
    if isinstance(reason, socket.timeout):
        return NO_ANSWER
    if isinstance(reason, socket.gaierror):
        return "its name can't be looked up"
    if isinstance(reason, ConnectionRefusedError):
        return "the connection was refused"
    return getattr(reason, "strerror", None) or type(reason).__name__


def read_git(url: str, deadline: float) -> dict[str, Reading]:
    """Measure how soon the git host answers: a connection, and its first bytes."""
    scheme, host, port = git_address(url)
    began = time.monotonic()
    if scheme in ("http", "https"):
        take_ref(url, deadline)
    else:
        probe(host, port, speaks_first=scheme != "git")
    return {"host": host, "seconds": round(time.monotonic() - began, 3)}


def git_address(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a git URL; `user@host:path` is ssh."""
    parts = urlsplit(url)
    if "://" in url:
        return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)
    return "ssh", url.partition(":")[0].rpartition("@")[2], PORTS["ssh"]


def take_ref(url: str, deadline: float) -> None:
    """Ask as `git clone` does; a refusal, such as 401, is an answer too."""
    try:
        with fetch(f"{url.rstrip('/')}/info/refs?service=git-upload-pack", deadline, {}) as answer:
            answer.read1(PIECE)
    except urllib.error.HTTPError as refused:
        if refused.code >= 500:
            raise


def probe(host: str, port: int, *, speaks_first: bool) -> None:
    """Connect; if the host speaks first, wait for its first bytes."""
    with socket.create_connection((host, port), timeout=LIMIT_S) as line:
        if speaks_first and not line.recv(4):
            raise OSError("it hung up")


def main(fallback: str, wheel: str, git: str) -> None:
    """`fallback`: the index of a box whose pip has none; `wheel`: a file of the index that is
    fetched anyway; `git`: the URL from which the box is to clone, if it does."""
    index = box_index(fallback)
    work: dict[str, tuple[str, Callable[[float], Reading]]] = {
        "index": (urlsplit(index).hostname or "", partial(read_index, index, wheel))
    }
    if git:
        work["git"] = (git_address(git)[1], partial(read_git, git))
    threads = {}
    for key, (host, read) in work.items():
        emit(None, key)
        threads[key] = threading.Thread(target=report, args=(key, host, read), daemon=True)
        threads[key].start()
    end = time.monotonic() + LIMIT_S + GRACE_S
    for key, thread in threads.items():
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():  # a silent name server, to which our timeouts don't apply
            emit(None, key, {"host": work[key][0], "error": NO_ANSWER})
    emit(None, "end")
    os._exit(0)
