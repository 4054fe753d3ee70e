"""A real https file server that can be made to fail, with the API of a Hugging Face hub."""

import datetime
import hashlib
import ipaddress
import json
import re
import ssl
import threading
from collections.abc import Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.listener import QuietHandler

COMMIT = "5" * 40


class DataServer:
    """Serves `files` by path, over https with its own certificate.

    Clients have to trust `certificate`. Faults hold until changed: `status` is the answer to the
    next `status_left` requests, with `retry_after`; `cut_after` closes the connection after that
    many bytes of a body (`cuts_left` times), `ranges` False ignores Range, `tags` False sends no
    ETag. `modified` is sent as Last-Modified, `heeds_times` honours If-Unmodified-Since, `odd`
    replaces headers.
    """

    def __init__(
        self, listen: str, folder: Path, *, port: int = 0, names: Sequence[str] = ()
    ) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[tuple[str, str, str]] = []
        """Path, range and authorization of each request."""
        self.sent = 0
        """Bytes of bodies sent."""
        self.status, self.status_left, self.retry_after = 0, 0, ""
        self.cut_after, self.cuts_left = 0, 0
        self.ranges, self.tags = True, True
        self.modified, self.heeds_times = "", True
        self.odd: dict[str, str] = {}
        self.token = ""
        """If set, the hub refuses requests without it."""
        self.certificate = folder / "data-server.pem"
        key = folder / "data-server.key"
        _certify(listen, names, self.certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server = _FileServer((listen, port), _DataHandler)
        self._server.owner = self
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.host = listen
        self.address = f"https://{listen}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def url(self, path: str) -> str:
        """Return the address of a file."""
        return f"{self.address}/{path}"

    def add(self, path: str, content: bytes) -> str:
        """Serve it; return its SHA-256."""
        self.files[path] = content
        return hashlib.sha256(content).hexdigest()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _FileServer(ThreadingHTTPServer):
    daemon_threads = True
    owner: DataServer

    def handle_error(self, *_: object) -> None:
        """Ignore clients that hang up."""


class _DataHandler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: _FileServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        owner = self.server.owner
        path = unquote(urlsplit(self.path).path).lstrip("/")
        asked = self.headers.get("Range", ""), self.headers.get("Authorization", "")
        owner.asked.append((path, *asked))
        if owner.status and owner.status_left:
            owner.status_left -= 1
            more = {"Retry-After": owner.retry_after} if owner.retry_after else {}
            self._send(owner.status, b"", **more)
        elif path in owner.redirects:
            self._send(302, b"", Location=owner.redirects[path])
        elif path.startswith("api/"):
            self._hub(path, body)
        else:
            self._file(path.replace(f"/resolve/{COMMIT}/", "/"))

    def _file(self, path: str) -> None:
        owner = self.server.owner
        content = owner.files.get(path)
        if content is None:
            return self._send(404, b"")
        tag = f'"{len(content)}-{hashlib.sha256(content[:4096]).hexdigest()[:16]}"'
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        named = {"ETag": tag} if owner.tags else {}
        if owner.modified:
            named["Last-Modified"] = owner.modified
        asked = self.headers.get("If-Unmodified-Since", owner.modified)
        if owner.heeds_times and asked != owner.modified:
            return self._send(412, b"")
        if not (span and owner.ranges) or self.headers.get("If-Range", tag) != tag:
            return self._send(200, content, **named)
        start, end = int(span[1]), min(int(span[2]), len(content) - 1)
        where = f"bytes {start}-{end}/{len(content)}"
        return self._send(206, content[start : end + 1], Content_Range=where, **named)

    def _hub(self, path: str, body: bytes) -> None:
        owner = self.server.owner
        if owner.token and self.headers.get("Authorization") != f"Bearer {owner.token}":
            return self._send(401, b"")
        kind, name, verb, below = re.fullmatch(
            r"api/(datasets|models)/([^/]+/[^/]+)/(revision|tree|paths-info)/?(.*)", path
        ).groups()
        if verb == "revision":
            return self._json({"sha": COMMIT})
        prefix = f"{'datasets/' if kind == 'datasets' else ''}{name}/"
        entries = [
            self._entry(file[len(prefix) :], content)
            for file, content in sorted(owner.files.items())
            if file.startswith(prefix)
        ]
        if verb == "paths-info":
            asked = parse_qs(body.decode())["paths"][0]
            found = [each for each in entries if each["path"] == asked]
            folder = any(each["path"].startswith(f"{asked}/") for each in entries)
            return self._json(found or [{"type": "directory", "path": asked}] * folder)
        folder = below.removeprefix(COMMIT).strip("/")
        entries = [each for each in entries if each["path"].startswith(folder and f"{folder}/")]
        # Two entries per page.
        at = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        following = f"{owner.address}/{path}?recursive=true&cursor={at + 2}"
        link = {"Link": f'<{following}>; rel="next"'} if at + 2 < len(entries) else {}
        return self._json(entries[at : at + 2], **link)

    def _entry(self, path: str, content: bytes) -> dict[str, Any]:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry = {"type": "file", "path": path, "size": len(content), "oid": blob}
        if len(content) > 100:
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
        return entry

    def _json(self, said: object, **headers: str) -> None:
        self._send(200, json.dumps(said).encode(), **headers)

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        owner = self.server.owner
        self.send_response(status)
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {**said, "Content-Length": str(len(body)), **owner.odd}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if owner.cuts_left and owner.cut_after and len(body) > owner.cut_after:
            owner.cuts_left -= 1
            body, self.close_connection = body[: owner.cut_after], True
        self.wfile.write(body)
        owner.sent += len(body)


def _certify(address: str, names: Sequence[str], certificate: Path, key_file: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, str(key.public_key().public_numbers().x)[:60])]
    )
    # Valid for long, since a box's clock may be wrong.
    begins = datetime.datetime(2020, 1, 1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins.replace(year=2045))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address(address)), *map(x509.DNSName, names)]
            ),
            False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
