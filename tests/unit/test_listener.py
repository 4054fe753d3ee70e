"""Ports that tests open: a closed one leaves no thread that would take another's connections."""

from __future__ import annotations

import socket
import threading

from tests.listener import Listener


def test_nobody_waits_at_a_port_that_is_closed() -> None:
    before = set(threading.enumerate())

    def answer(line: socket.socket) -> None:
        with line:
            line.sendall(b"here")

    listener = Listener(answer)
    assert len(set(threading.enumerate()) - before) == 1
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", listener.port), timeout=120) as line:
            assert line.recv(10) == b"here"
    listener.close()
    assert not set(threading.enumerate()) - before
