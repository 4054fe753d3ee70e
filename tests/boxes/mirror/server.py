"""The mirror's server: a package index and a proxy for apt in one small process.

`python -m tests.boxes.mirror.server CONFIG` (JSON) prints its port and runs until standard input
ends. A line on standard input sets a fault (`503`, `stall`, `none`) or `limit N`: the bytes a
second of all files together; 0 is no limit.
"""

import contextlib
import json
import os
import sys
import threading
import time
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.boxes.mirror.index import Index, normal
from tests.boxes.mirror.store import MirrorStore, NotFoundError

_JSON = "application/vnd.pypi.simple.v1+json"
_LONG = "max-age=31536000, immutable"
_RELEASE_AGE = 3600.0
_PIECE = 1 << 16


class MirrorServer(ThreadingHTTPServer):
    """Index, apt proxy and the active fault."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__((config["listen"], 0), MirrorHandler)
        folder = Path(config["folder"])
        self.packages = MirrorStore(folder / "index")
        self.index = Index(
            self.packages,
            config["index"],
            [Path(place) for place in config["indexes"]],
            [Path(place) for place in config["wheels"]],
        )
        self.debian = MirrorStore(folder / "debian", config["apt_proxy"])
        self.debian_hosts = frozenset(config["debian_hosts"])
        self.fault = "none"
        self.limit = 0.0
        self._turn = threading.Lock()
        self._free_at = 0.0

    def wait_turn(self, size: int) -> None:
        """Wait until `size` more bytes may be sent under the limit of all connections, if any."""
        if not self.limit:
            return
        with self._turn:
            self._free_at = max(self._free_at, time.monotonic()) + size / self.limit
            pause = self._free_at - time.monotonic()
        time.sleep(max(0.0, pause))

    @lru_cache(maxsize=4096)  # noqa: B019 -- one server lives as long as its process
    def page(self, project: str, form: str, packed: bool) -> bytes | None:
        """Return a project's page, read once per process; None if there is no such project."""
        return self.index.page(project, form, packed)


class MirrorHandler(BaseHTTPRequestHandler):
    """One connection, kept alive over many requests."""

    server: MirrorServer
    protocol_version = "HTTP/1.1"
    timeout = 300
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, *_: object) -> None:
        """Log nothing: standard error belongs to the tests."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Answer, unless a fault is on."""
        fault = self.server.fault
        self._begun = False
        try:
            if fault == "stall":
                self._stall()
            elif fault.isdigit():
                self._small(int(fault), b"out of order\n")
            elif self.path.startswith("http://"):
                self._debian(self.path)
            else:
                self._package(urlsplit(self.path).path)
        except NotFoundError as error:
            self._small(error.status, b"not found upstream\n")
        except ConnectionError:
            self.close_connection = True
        except OSError as error:
            if self._begun:
                self.close_connection = True  # cut short: the client sees it by the length
            else:
                self._small(502, f"{error}\n".encode())

    def _stall(self) -> None:
        while self.server.fault == "stall":
            time.sleep(0.1)
        self.close_connection = True

    def _package(self, path: str) -> None:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if len(parts) == 2 and parts[0] == "simple":
            project = normal(parts[1])
            if path != f"/simple/{project}/":
                self._small(301, b"", {"Location": f"/simple/{project}/"})
            else:
                self._page(project)
        elif len(parts) == 3 and parts[0] == "files":
            self._file(normal(parts[1]), parts[2])
        else:
            self._small(404, b"not here\n")

    def _page(self, project: str) -> None:
        form = "json" if _JSON in self.headers.get("Accept", "") else "html"
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        text = self.server.page(project, form, packed)
        if text is None:
            self._small(404, b"no such project\n")
            return
        headers = {
            "Content-Type": _JSON if form == "json" else "text/html; charset=utf-8",
            "Cache-Control": "max-age=600",
            "Vary": "Accept, Accept-Encoding",
        }
        if packed:
            headers["Content-Encoding"] = "gzip"
        self._small(200, text, headers)

    def _file(self, project: str, name: str) -> None:
        wanted = name.removesuffix(".metadata")
        file = self.server.index.files(project).get(wanted)
        if file is None:
            self._small(404, b"no such file\n")
        elif wanted != name:
            self._small(200, self.server.index.metadata(file), {"Cache-Control": _LONG})
        elif file.local:
            self._send(file.local, _LONG)
        else:
            self._through(self.server.packages, file.url, sha256=file.sha256)

    def _debian(self, url: str) -> None:
        if urlsplit(url).hostname not in self.server.debian_hosts:
            self._small(403, b"not one of Debian's mirrors\n")
            return
        lasting = url.endswith(".deb") or "/by-hash/" in url
        self._through(self.server.debian, url, max_age=None if lasting else _RELEASE_AGE)

    def _through(self, store: MirrorStore, url: str, **how: Any) -> None:
        """Send a file; on its first fetch, pass it on piece by piece."""
        whole = self.command == "GET" and "Range" not in self.headers

        def sink(length: int | None, piece: bytes) -> None:
            nonlocal whole
            if not whole or length is None:
                return
            try:
                if not self._begun:
                    self._head(200, {"Content-Length": str(length), "Cache-Control": _LONG})
                self.server.wait_turn(len(piece))
                self.wfile.write(piece)
            except OSError:  # the box went away: finish the fetch for the next one
                whole = False

        place = store.get(url, sink=sink, **how)
        if not self._begun:
            self._send(place, _LONG)
        elif not whole:
            self.close_connection = True

    def _send(self, path: Path, cache: str) -> None:
        """Send a local file, or the one range that was requested."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last = self._range(size)
            headers = {
                "Content-Length": str(last - first + 1),
                "Accept-Ranges": "bytes",
                "Cache-Control": cache,
            }
            if "Range" in self.headers and last - first + 1 < size:
                self._head(206, {**headers, "Content-Range": f"bytes {first}-{last}/{size}"})
            else:
                self._head(200, headers)
            if self.command == "HEAD":
                return
            self.wfile.flush()
            at, step = first, _PIECE if self.server.limit else last - first + 1
            while at <= last:
                size = min(step, last - at + 1)
                self.server.wait_turn(size)
                at += self.connection.sendfile(file, at, size)

    def _range(self, size: int) -> tuple[int, int]:
        """Return the first and last byte to send: all, unless one simple range is requested."""
        unit, _, wanted = self.headers.get("Range", "").partition("=")
        start, dash, end = wanted.partition("-")
        with contextlib.suppress(ValueError):
            if unit == "bytes" and dash and "," not in wanted:
                if not start:
                    return max(0, size - int(end)), size - 1
                if int(start) < size:
                    return int(start), min(size - 1, int(end)) if end else size - 1
        return 0, size - 1

    def _small(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._head(status, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self._begun = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def main() -> None:
    """Serve until standard input ends."""
    server = MirrorServer(json.loads(sys.argv[1]))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "limit":
            server.limit = float(number)
        else:
            server.fault = word


if __name__ == "__main__":
    main()
