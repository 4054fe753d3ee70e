"""A port of this machine for tests, and a thread that takes who comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable


class Listener:
    """Listens on loopback; `take` is called with each connection, one after another."""

    def __init__(self, take: Callable[[socket.socket], object], port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._take = take
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it, and the thread first: it would take what comes to the next owner of the number.

        A descriptor's number is given away again at once, and `accept` may be about to use it.
        """
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # not on Linux: there closing is what wakes it
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
