"""The items of `data:` on this machine: their current state, and sending them to a box."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.exchange import read_until, shell_command
from bootstrap.link.wire import LinkLost, Stream, Wire
from bootstrap.protocol.query import build_query, refuse
from bootstrap.render.variables import SentItem

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.transfer.sender import PushProgress

_READY, _ARRIVED = b"\nready\n", b"\narrived\n"
_WAITS = re.compile(r"^local (\d{1,4}) (/[^\n]+)$", re.MULTILINE)


class LocalItem(NamedTuple):
    """A local item: its index in the profile, its path here, and what is not sent."""

    number: int
    source: Path
    exclude: tuple[str, ...]
    sent: SentItem
    """What the box is sent about it."""


def targets_there(answer: bytes) -> dict[int, str]:
    """Parse the box's answer: the target path of each item that it waits for, by number."""
    text = answer.decode("utf-8", "surrogateescape")
    return {int(number): path for number, path in _WAITS.findall(text)}


def local_items(profile: Profile) -> tuple[LocalItem, ...]:
    """List the local items, without reading files. Raises UsageError if one can't be sent."""
    found = []
    for number, item in enumerate(profile.data):
        if item.place != "local":
            continue
        source, where = Path(item.source), f"data[{number}].from"
        if not os.path.exists(source):  # noqa: PTH110 - pathlib's raises
            raise UsageError(f"there is no {item.source} on this machine.", where=where)
        to = item.to
        if source.is_file():
            if to.endswith("/"):
                to += source.name
            elif posixpath.basename(to) != source.name:
                raise UsageError(
                    f"a file that is sent keeps its name, {source.name}.",
                    where=f"data[{number}].to",
                    hint=f"Name its folder, with a slash at the end: {posixpath.dirname(to)}/",
                )
        sent = SentItem(to, _digest(source, item.exclude))
        found.append(LocalItem(number, source, tuple(item.exclude), sent))
    return tuple(found)


def _digest(source: Path, exclude: Sequence[str]) -> str:
    """Return a digest that changes when any file does, by name, size or time."""
    from bootstrap.transfer.sender import read_source

    files = json.dumps(list(read_source(source, exclude).files))
    return hashlib.sha256(files.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(eq=False, repr=False)
class DataSender(threading.Thread):
    """Sends what a box waits for, in parallel; `failed` is called with what went wrong."""

    wire: Wire
    items: Sequence[LocalItem]
    workdir: str
    setup: str
    progress: Callable[[PushProgress], None]
    failed: Callable[[BoxstrapError], None]
    arrived: bool = False
    """Whether the box has it, or knows that not all of it will come."""

    def __post_init__(self) -> None:
        super().__init__(name="data", daemon=True)

    def run(self) -> None:
        """Send; a lost link is no error here: following the setup logs in and sends again."""
        try:
            query = build_query("take_data", workdir=self.workdir, setup_id=self.setup)
            stream = self.wire.start(shell_command(query))
            targets = targets_there(self._read(stream, _READY))
            sent = [self._send(item, targets) for item in self.items if item.number in targets]
            with suppress(BrokenPipeError):  # the box's own message says why
                stream.write(b"all\n" if all(sent) else b"some\n")
            stream.close_write()
            self._read(stream, _ARRIVED)
            self.arrived = True
        except LinkLost:
            return
        except BoxstrapError as error:
            self.failed(error)
            refuse(self.wire, "data", workdir=self.workdir, setup=self.setup)

    def _send(self, item: LocalItem, targets: dict[int, str]) -> bool:
        """Send one item; return whether all of it has arrived. Raises LinkLost."""
        from bootstrap.transfer.push import push_folder

        target = targets[item.number]
        try:
            pushed = push_folder(
                self.wire,
                item.source,
                target if item.source.is_dir() else posixpath.dirname(target),
                workdir=self.workdir,
                exclude=item.exclude,
                progress=self.progress,
            )
        except LinkLost:
            raise
        except BoxstrapError as error:
            self.failed(error)
            return False
        where = f"data[{item.number}]"
        for name in pushed.left_out:
            self.failed(BoxstrapError(f"not sent: {name}", where=where))
        for name in pushed.kept:
            self.failed(
                BoxstrapError(
                    f"{name}: the box has another file there, which was not sent from here.",
                    where=where,
                    hint="Move it away there, or choose another place.",
                )
            )
        for name in pushed.failed:
            self.failed(BoxstrapError(f"not sent: {name}", where=where))
        return not (pushed.kept or pushed.failed)

    def _read(self, stream: Stream, until: bytes) -> bytes:
        """Return the answer up to the line `until`. Raises as `read_until`."""
        return read_until(self.wire, stream, until, "the data")
