"""A man in the middle: a relay on loopback that forwards to a box, or poses as it."""

import contextlib
import socket
import threading

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from tests.listener import Listener


class Between:
    """A relay in front of a box. `pose` makes it answer every client itself, with another key."""

    def __init__(self, address: str, port: int = 22) -> None:
        self._box = (address, port)
        self._key: paramiko.PKey | None = None
        self._lines: list[socket.socket] = []
        self.got: list[str] = []
        """All that it received after the key exchange: names, commands, data."""
        self.posed = 0
        """How many connections came while it posed."""
        self._listener = Listener(self._begin)

    @property
    def host(self) -> str:
        """The host to pass to boxstrap."""
        return f"root@127.0.0.1:{self._listener.port}"

    def pose(self, key: paramiko.PKey | None) -> None:
        """Play the box with this key, or (None) forward to it; open connections are cut."""
        self._key = key
        lines, self._lines = self._lines, []
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the listener and all connections."""
        self._listener.close()
        self.pose(None)

    def _begin(self, line: socket.socket) -> None:
        serve = self._pass_on if self._key is None else self._play
        threading.Thread(target=serve, args=(line,), daemon=True).start()

    def _pass_on(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._box)
        except OSError:  # the box is gone; the client is disconnected
            near.close()
            return
        with near, far:
            self._lines += [near, far]
            back = threading.Thread(target=_pump, args=(far, near), daemon=True)
            back.start()
            _pump(near, far)
            back.join()

    def _play(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            transport = paramiko.Transport(near)
            transport.add_server_key(self._key)  # type: ignore[arg-type]
            self.posed += 1
            transport.start_server(server=_Anybody(self.got))
            while channel := transport.accept(10):
                self.got.append("a channel")
                while data := channel.recv(65536):
                    self.got.append(data.decode("utf-8", "replace"))
            transport.close()


class _Anybody(paramiko.ServerInterface):
    """Lets anybody in, and records what they send."""

    def __init__(self, got: list[str]) -> None:
        self._got = got

    def get_allowed_auths(self, username: str) -> str:
        self._got.append(username)
        return "publickey,none"

    def check_auth_none(self, username: str) -> int:
        self._got.append(username)
        return AUTH_SUCCESSFUL

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._got.append(username)
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._got.append(command.decode("utf-8", "replace"))
        return True


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for line in (source, sink):
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
