"""Receivers of news on loopback: an HTTP server, as a webhook or as ntfy, and a mail server."""

import json
import socketserver
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.listener import QuietHandler, served


@dataclass
class Asked:
    """A request that came: its path, headers and body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class WebReceiver:
    """What came, and how it is answered: with these codes, then with 200; after so many seconds."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    slow_s: float = 0.0
    retry_after: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def events(self, but: str = "") -> list[str]:
        """Return the kinds of what came, as JSON, without one of them."""
        return [kind for one in self.asked if (kind := one.document["event"]) != but]


@contextmanager
def web_receiver() -> Iterator[WebReceiver]:
    """Receive by HTTP."""
    about = WebReceiver()

    class WebHandler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            about.asked.append(Asked(self.path, dict(self.headers), body))
            time.sleep(about.slow_s)
            self.send_response(about.codes.pop(0) if about.codes else 200)
            if about.retry_after:
                self.send_header("Retry-After", about.retry_after)
            self.send_header("Location", f"{about.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

    server = ThreadingHTTPServer(("127.0.0.1", 0), WebHandler)
    about.port = server.server_address[1]
    with served(server):
        yield about


@dataclass
class MailReceiver:
    """A mail server: the commands that it got, and the mails."""

    port: int = 0
    commands: list[str] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)


@contextmanager
def mail_receiver() -> Iterator[MailReceiver]:
    """Receive by SMTP, with AUTH PLAIN."""
    about = MailReceiver()

    class MailHandler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                about.commands.append(line)
                word = line.split(" ", maxsplit=1)[0].upper()
                if word == "EHLO":
                    self._say("250-here\r\n250 AUTH PLAIN")
                elif word == "AUTH":
                    if len(line.split()) < 3:
                        self._say("334 ")
                        about.commands.append(self.rfile.readline().decode().strip())
                    self._say("235 ok")
                elif word == "DATA":
                    self._say("354 go on")
                    about.mails.append(self._mail())
                    self._say("250 ok")
                elif word == "QUIT":
                    self._say("221 bye")
                    return
                else:
                    self._say("250 ok")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def _mail(self) -> str:
            lines = []
            while (line := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                lines.append(line)
            return "\n".join(lines)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailHandler)
    server.daemon_threads = True
    about.port = server.server_address[1]
    with served(server):
        yield about
