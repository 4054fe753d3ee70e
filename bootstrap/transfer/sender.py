"""What this machine sends while a setup runs, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from bootstrap.errors import BoxstrapError
from bootstrap.link.exchange import read_until, run_script_checked, shell_command
from bootstrap.link.query import NO_REDACTION, build_query
from bootstrap.link.wire import LinkLost, Stream, Wire
from bootstrap.steps.shell import Value


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
            refuse = build_query(
                "refuse", workdir=self.workdir, setup_id=self.setup, what=self.what
            )
            with suppress(BoxstrapError):  # without it the box waits for as long as it may
                run_script_checked(self.wire, refuse, timeout=60)

    def send(self) -> None:
        """Send it. Raises BoxstrapError, LinkLost."""
        raise NotImplementedError

    def start_query(self, name: str, /, **values: Value) -> Stream:
        """Start the query that takes it. Raises LinkLost."""
        query = build_query(name, NO_REDACTION, workdir=self.workdir, **values)
        return self.wire.start(shell_command(query))

    def read(self, stream: Stream, until: bytes) -> bytes:
        """Return the answer up to the line `until`. Raises as `read_until`."""
        return read_until(self.wire, stream, until, self.noun)

    def pass_on(self, stream: Stream, pieces: Iterable[bytes], until: bytes) -> None:
        """Write the pieces, and wait for the line that confirms them. Raises as `read_until`."""
        with suppress(BrokenPipeError):  # its error output says why
            for piece in pieces:
                stream.write(piece)
        stream.close_write()
        self.read(stream, until)
        self.arrived = True
