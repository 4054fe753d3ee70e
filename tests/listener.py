"""A local port for tests, and a thread that accepts its connections; or a server in a thread."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import TypeVar

Server = TypeVar("Server", bound=socketserver.BaseServer)


class Listener:
    """Listens on loopback; `take` is called with each connection, one after another."""

    def __init__(self, take: Callable[[socket.socket], object], port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._take = take
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, then close the socket.

        Otherwise `accept` may run on a descriptor that is already another socket's.
        """
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # not Linux: closing the socket wakes the thread
            pass
        else:
            self._thread.join()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self._take(line)


class QuietHandler(BaseHTTPRequestHandler):
    """Answers requests, and logs none."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def served(server: Server) -> Iterator[Server]:
    """Serve in a thread, until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
