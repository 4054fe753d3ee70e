"""Ports for the tests' servers on this machine."""

import os
import random
import socket

# Below net.ipv4.ip_local_port_range: the system never uses these for outgoing connections, so a
# port stays free until its server binds it, even if that server restarts.
_PORTS = range(20_000, 32_000)
_WORKERS = 16


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port on which nothing listens at `address`.

    Each of pytest's workers has its own: what is free here may be another's in a moment.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    own = _PORTS[worker % _WORKERS :: _WORKERS]
    while True:
        port = random.choice(own)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
