"""Ports for servers of the tests on this machine."""

from __future__ import annotations

import random
import socket

# Below net.ipv4.ip_local_port_range: the system gives none of these to an outgoing connection, so
# a port stays free until its server asks for it, also where that server stops and starts again.
_PORTS = range(20_000, 32_000)


def free_port(address: str = "127.0.0.1") -> int:
    """A port at which nothing listens at `address`."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers ask
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
