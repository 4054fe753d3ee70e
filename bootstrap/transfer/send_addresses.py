"""Send a box the signed addresses of objects in the profile's buckets, valid for an hour.

They go over one command's standard input, into a file that only the box's user can read, and that
is removed when it is read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from bootstrap.errors import BoxstrapError
from bootstrap.link.errors import LinkLost
from bootstrap.link.shell_command import shell_command
from bootstrap.link.wire import PIECE, Wire
from bootstrap.protocol.query import build_query
from bootstrap.text.sanitize import sanitize
from bootstrap.transfer.buckets import Bucket, BucketObject

_ARRIVED = b"\narrived\n"
_MOST_ANSWER = 1024 * 1024
_LONGEST = 300
_AT_ONCE = 1000
"""How many addresses are signed, and in memory, at a time."""


@dataclass
class BucketItems:
    """The items of `data:` that are in buckets, by number; each is listed once."""

    addresses: Mapping[int, str]
    _listed: dict[int, tuple[Bucket, list[BucketObject]]] = field(default_factory=dict)

    def list(self) -> None:
        """List the items that are not listed yet. Raises UsageError."""
        for number, url in self.addresses.items():
            if number not in self._listed:
                bucket = Bucket(url)
                self._listed[number] = bucket, bucket.objects()

    def lines(self) -> Iterator[bytes]:
        """Yield a line per object, with an address signed now; then `end`. Raises UsageError."""
        for number, (bucket, objects) in self._listed.items():
            for start in range(0, len(objects), _AT_ONCE):
                some = objects[start : start + _AT_ONCE]
                rows = zip(some, bucket.sign(some), strict=True)
                yield b"".join(_line(number, each, address) for each, address in rows)
        yield b"end\n"


def _line(number: int, each: BucketObject, address: str) -> bytes:
    row = {"item": number, "path": each.name, "size": each.size, "etag": each.etag}
    row |= {"alone": each.is_alone, "url": address}
    return json.dumps(row).encode() + b"\n"


@dataclass(eq=False, repr=False)
class AddressSender(threading.Thread):
    """Sends the addresses in parallel; `failed` is called with what went wrong.

    If there are none, that is reported to the box, which then does not wait.
    """

    wire: Wire
    items: BucketItems
    workdir: str
    setup: str
    failed: Callable[[BoxstrapError], None]
    arrived: bool = False
    """Whether the box has them, or knows that they won't come."""

    def __post_init__(self) -> None:
        super().__init__(name="addresses", daemon=True)

    def run(self) -> None:
        """Send; a lost link is no error here: following the setup logs in and sends again."""
        try:
            try:
                self.items.list()
                self._send(self.items.lines())
            except LinkLost:
                raise
            except BoxstrapError as error:
                self.failed(error)
                if not self.arrived:
                    self._send(iter([b"end\n"]))
        except LinkLost:
            return
        except BoxstrapError as error:
            self.failed(error)

    def _send(self, lines: Iterator[bytes]) -> None:
        query = build_query("take_addresses", workdir=self.workdir, setup_id=self.setup)
        stream = self.wire.start(shell_command(query))
        with suppress(BrokenPipeError):  # the box's own message says why
            for piece in lines:
                stream.write(piece)
        stream.close_write()
        answer = b""
        while _ARRIVED not in answer and len(answer) < _MOST_ANSWER:
            if not (piece := stream.read(PIECE)):
                break
            answer += piece
        if not self.wire.alive():  # this side closed the link, or it was lost
            raise LinkLost(self.wire.label)
        if _ARRIVED not in answer:
            said = sanitize(stream.read_err()).strip()[-_LONGEST:]
            raise BoxstrapError(f"the box did not take addresses{said and ': ' + said}.")
        self.arrived = True
