"""A git HTTP server that can be made to fail: git's own `http-backend` behind a small server.

With a token, only for clients that send it as their password.
"""

import base64
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class GitServer:
    """Serves the repositories below a folder at `url(name)`."""

    def __init__(self, listen: str, folder: Path, token: str = "") -> None:
        self._server = _Server((listen, 0), _GitHandler)
        self.folder = self._server.folder = folder
        self._server.token = token
        self.given: list[str] = []
        """The passwords that were offered."""
        self._server.given = self.given
        self.host, self.port = listen, self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def url(self, name: str) -> str:
        """Return the address of the repository in the folder `name`."""
        return f"http://{self.host}:{self.port}/{name}"

    def break_with(self, status: int, times: int = 0) -> None:
        """Answer with this HTTP status until mend(), or for `times` requests if not 0."""
        self._server.fault, self._server.faults_left = str(status), times

    def stall(self) -> None:
        """Accept requests but never answer, until mend()."""
        self._server.mended.clear()
        self._server.fault = "stall"

    def cut(self) -> None:
        """Close the connection in the middle of each fetch, until mend()."""
        self._server.fault = "cut"

    def refuse_bare_commits(self) -> None:
        """Speak the old protocol, in which clients can request only tips of branches and tags."""
        self._server.new_protocol = ""

    def mend(self) -> None:
        """Work again; the connections of stalled requests are closed."""
        self._server.fault = ""
        self._server.mended.set()

    @property
    def asked(self) -> int:
        """The number of requests so far."""
        return self._server.asked

    def close(self) -> None:
        """Stop the server."""
        self.mend()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    folder = Path()
    token = ""
    given: list[str]
    fault = ""
    faults_left = 0
    asked = 0
    new_protocol = "yes"

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.mended = threading.Event()
        self.mended.set()


class _GitHandler(BaseHTTPRequestHandler):
    server: _Server
    # Makes garbage get a full HTTP error response, and a line on standard error.
    default_request_version = "HTTP/1.0"

    def log_request(self, *_: object) -> None:
        """Log errors only."""

    def do_GET(self) -> None:
        """Answer, unless a fault is on."""
        self.server.asked += 1
        fault = self.server.fault
        if fault == "stall":
            self.server.mended.wait()
        elif fault.isdigit():
            self.send_error(int(fault))
            self.server.faults_left -= 1
            if not self.server.faults_left:
                self.server.fault = ""
        elif not self._may():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            head, _, body = self._backend().partition(b"\r\n\r\n")
            # A fetch is the answer to a POST; half of it is a broken pack.
            whole = fault != "cut" or self.command == "GET"
            self._pass_on(head, body if whole else body[: len(body) // 2], len(body))

    do_POST = do_GET

    def _may(self) -> bool:
        if not self.server.token:
            return True
        _, _, packed = (self.headers.get("Authorization") or "").partition(" ")
        password = base64.b64decode(packed).decode(errors="replace").partition(":")[2]
        if password:
            self.server.given.append(password)
        return password == self.server.token

    def _backend(self) -> bytes:
        """Return the answer of git's own CGI program (RFC 3875; git-http-backend(1))."""
        asked = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": "/nonexistent",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "GIT_PROJECT_ROOT": str(self.server.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": asked.path,
                "QUERY_STRING": asked.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.server.new_protocol and self.headers.get("Git-Protocol", ""),
            },
            capture_output=True,
            check=True,
        )
        return done.stdout

    def _pass_on(self, head: bytes, body: bytes, length: int) -> None:
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        headers = dict(line for line in lines if len(line) == 2)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
