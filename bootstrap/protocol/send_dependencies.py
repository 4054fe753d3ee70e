"""Send private dependencies that this machine's git can read into stores on the box."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bootstrap.errors import BoxstrapError
from bootstrap.link.errors import LinkLost
from bootstrap.link.exchange import read_until
from bootstrap.link.shell_command import shell_command
from bootstrap.link.wire import PIECE, Stream, Wire
from bootstrap.profile.git_dependencies import GitDependency
from bootstrap.protocol.query import build_query
from bootstrap.repo.bundle import Wanted, find_wanted, write_bundle
from bootstrap.repo.mirror import key_of, mirrored
from bootstrap.repo.names import decoded, shown

_READY, _ARRIVED = b"\nready\n", b"\narrived\n"
"""Lines that end the box's list of refs, and its confirmation."""
_NOTHING = "0 sha1 -"


_REF = re.compile(rb"^ref\t([0-9a-f]{40,64})\t(refs/[^\0\n]+)$", re.MULTILINE)


def refs_there(answer: bytes) -> dict[str, str]:
    """Parse the box's list of a store's refs: object id by ref name."""
    return {decoded(name): commit.decode() for commit, name in _REF.findall(answer)}


@dataclass(eq=False, repr=False)
class DependencySender(threading.Thread):
    """Send them in its own thread; errors are passed to `failed`.

    A dependency that this machine can't read either is left out; the box tries to fetch it itself.
    """

    wire: Wire
    dependencies: Sequence[GitDependency]
    workdir: str
    setup: str
    progress: Callable[[int, int], None]
    say: Callable[[str], None]
    failed: Callable[[BoxstrapError], None]
    arrived: bool = False
    """Whether the box has received everything that could be sent."""

    def __post_init__(self) -> None:
        super().__init__(name="dependencies", daemon=True)

    def run(self) -> None:
        """Send; a lost link is not an error, since following reconnects and sends again."""
        of_address = [
            (address, [each.ref for each in group])
            for address, group in groupby(self.dependencies, lambda each: each.address)
        ]
        try:
            for number, (address, refs) in enumerate(of_address, 1):
                self._send(address, refs, is_last=number == len(of_address))
        except LinkLost:
            return
        except BoxstrapError as error:
            self.failed(error)

    def _send(self, address: str, refs: Sequence[str], *, is_last: bool) -> None:
        query = build_query(
            "take_dependency",
            workdir=self.workdir,
            setup_id=self.setup,
            store=key_of(address),
            is_last=is_last,
        )
        stream = self.wire.start(shell_command(query))
        there = self._read(stream, _READY)
        try:
            with mirrored(address, refs) as mirror:
                self._send_from(mirror, address, refs, stream, there)
        except LinkLost:
            raise
        except (BoxstrapError, OSError) as error:
            with suppress(BrokenPipeError):
                stream.write(f"{_NOTHING}\n".encode())
            what = error.what if isinstance(error, BoxstrapError) else error.strerror or "no reason"
            why = what.removeprefix("git.url: ")
            self.failed(BoxstrapError(f"{shown(address)} can't be sent: {why}"))
        stream.close_write()
        self._read(stream, _ARRIVED)
        self.arrived = is_last

    def _send_from(
        self, mirror: Path, address: str, refs: Sequence[str], stream: Stream, there: bytes
    ) -> None:
        wanted = find_wanted(mirror, refs)
        self._tell_what(address, wanted)
        has = refs_there(there)
        words = f"{wanted.object_format} {wanted.head}\n"
        if wanted.refs.items() <= has.items():
            with suppress(BrokenPipeError):
                stream.write(f"0 {words}".encode())
            return
        with tempfile.TemporaryDirectory(dir=mirror.parent, prefix=".") as folder:
            file = Path(folder, "bundle")
            write_bundle(mirror, wanted, list(has.values()), file)
            size, sent = file.stat().st_size, 0
            with file.open("rb") as bundle, suppress(BrokenPipeError):  # its error output says why
                stream.write(f"{size} {words}".encode())
                while piece := bundle.read(PIECE):
                    stream.write(piece)
                    sent += len(piece)
                    self.progress(sent, size)

    def _tell_what(self, address: str, wanted: Wanted) -> None:
        for ref, commit in wanted.resolved.items():
            named = f", {shown(ref) or 'its default branch'}" if ref != commit else ""
            self.say(f"{shown(address)}{named} at {commit[:12]} is sent from this machine")
        if wanted.with_submodules:
            self.say(f"{shown(address)} has submodules, which are not sent: the box asks for them")

    def _read(self, stream: Stream, until: bytes) -> bytes:
        """Read its answer up to a line. Raises as `read_until`."""
        return read_until(self.wire, stream, until, "a dependency")
