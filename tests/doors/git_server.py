"""A git host over http: `git http-backend` behind a small server, with a token if wanted."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.listener import served

_PATIENCE_S = 60


class GitHost(ThreadingHTTPServer):
    """Serves the bare repositories below `folder`; with `token`, only to clients that send it."""

    daemon_threads = True

    def __init__(self, address: str, folder: Path, token: str = "") -> None:
        super().__init__((address, 0), _PrivateGitHandler)
        self.address = address
        self.folder = folder
        self.token = token
        self.given: list[str] = []
        """The passwords that were offered."""

    @property
    def url(self) -> str:
        """The host's base URL."""
        return f"http://{self.address}:{self.server_port}"


class _PrivateGitHandler(BaseHTTPRequestHandler):
    server: GitHost
    # A malformed request gets an HTTP/1.0 error response, and is logged on standard error.
    default_request_version = "HTTP/1.0"

    def log_request(self, *_: object) -> None:
        """Log only errors."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if not self._may():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
            env={
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(self.server.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            },
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(lines.pop("Status", "200 OK").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _may(self) -> bool:
        if not self.server.token:
            return True
        _, _, packed = (self.headers.get("Authorization") or "").partition(" ")
        password = base64.b64decode(packed).decode(errors="replace").partition(":")[2]
        if password:
            self.server.given.append(password)
        return password == self.server.token


@contextlib.contextmanager
def serving(address: str, folder: Path, token: str = "") -> Iterator[GitHost]:
    """A git host on this machine's `address`, until the end of the block."""
    with served(GitHost(address, folder, token)) as host:
        yield host
