"""What this machine sends while a setup runs, each in a thread of its own."""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from bootstrap.errors import BoxstrapError
from bootstrap.link.exchange import read_until, run_script_checked, shell_command
from bootstrap.link.query import NO_REDACTION, build_query
from bootstrap.link.wire import LinkLost, Stream, Wire

READY, ARRIVED = b"\nready\n", b"\narrived\n"
"""Lines that end what the box says it waits for, and its confirmation."""


@dataclass(eq=False, repr=False, kw_only=True)
class Sender(threading.Thread):
    """Sends one thing that the setup waits for, by its `send`; errors are passed to `failed`.

    If it can't be sent, the box is told so, and does not wait for it: see onbox/client.py.
    """

    what: ClassVar[str] = ""  # its name to the box
    noun: ClassVar[str] = ""  # its name in a message
    wire: Wire
    workdir: str
    setup: str
    failed: Callable[[BoxstrapError], None]
    arrived: bool = False  # whether the box has it, or knows that it won't come

    def __post_init__(self) -> None:
        super().__init__(name=self.what, daemon=True)

    def run(self) -> None:
        """Send; a lost link is not an error, since following reconnects and sends again."""
        try:
            self.send()
        except LinkLost:
            return
        except BoxstrapError as error:
            self.failed(error)
            refuse = self._taking(f"{self.what}.refused", 0)
            with suppress(BoxstrapError):  # without it the box waits for as long as it may
                run_script_checked(self.wire, refuse, timeout=60)

    def send(self) -> None:
        """Send it. Raises BoxstrapError, LinkLost."""
        raise NotImplementedError

    def take(self, file: str, size: int) -> Stream:
        """Start what takes so many bytes into a file of the setup's folder. Raises LinkLost."""
        return self.ask(self._taking(file, size))

    def _taking(self, file: str, size: int) -> str:
        place = {"workdir": self.workdir, "setup_id": self.setup, "what": self.what}
        return build_query("take", NO_REDACTION, **place, file=file, bytes=size)

    def ask(self, query: str) -> Stream:
        """Start a query. Raises LinkLost."""
        return self.wire.start(shell_command(query))

    def read(self, stream: Stream, until: bytes) -> bytes:
        """Return the answer up to the line `until`. Raises as `read_until`."""
        return read_until(self.wire, stream, until, self.noun)

    def pass_on(self, stream: Stream, pieces: Iterable[bytes]) -> None:
        """Write the pieces, and wait for the line that confirms them. Raises as `read_until`."""
        with suppress(BrokenPipeError):  # its error output says why
            for piece in pieces:
                stream.write(piece)
        stream.close_write()
        self.read(stream, ARRIVED)
        self.arrived = True
