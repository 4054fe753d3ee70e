"""Fetch pages through the SOCKS proxy of `ssh -D`."""

from __future__ import annotations

import socket
import struct
import time


def fetch(proxy: int, port: int, path: str = "/") -> str:
    """GET http://127.0.0.1:port from the proxy's other end; the proxy may open its port late."""
    with connect(proxy) as through:
        through.sendall(b"\x05\x01\x00")
        assert through.recv(2) == b"\x05\x00"
        through.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + struct.pack(">H", port))
        answer = through.recv(10)
        assert answer[:2] == b"\x05\x00", answer
        return ask(through, path)


def ask(through: socket.socket, path: str = "/") -> str:
    """GET over an open connection; the body."""
    through.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    said = b""
    while piece := through.recv(4096):
        said += piece
    return said.partition(b"\r\n\r\n")[2].decode()


def connect(port: int) -> socket.socket:
    """Connect to a port here that may open late."""
    limit = time.monotonic() + 15
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=120)
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
