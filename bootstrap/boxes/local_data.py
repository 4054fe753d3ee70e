"""The items of a profile's `data:` that are on this machine, and what sends them to a box."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.wire import LinkLost
from bootstrap.profile.schema import Profile, SentItem
from bootstrap.transfer.push import push_folder
from bootstrap.transfer.sender import Sender
from bootstrap.transfer.source_files import PushProgress, read_source

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
    files = json.dumps(list(read_source(source, exclude).files))
    return hashlib.sha256(files.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(eq=False, repr=False, kw_only=True)
class DataSender(Sender):
    """Sends the profile's data that is on this machine."""

    what, noun = "data", "the data"
    items: Sequence[LocalItem]
    progress: Callable[[PushProgress], None]

    def send(self) -> None:
        stream = self.start_query("take_data", setup_id=self.setup)
        targets = targets_there(self.read(stream, _READY))
        sent = [self._send(item, targets) for item in self.items if item.number in targets]
        self.pass_on(stream, [b"all\n" if all(sent) else b"some\n"], _ARRIVED)

    def _send(self, item: LocalItem, targets: dict[int, str]) -> bool:
        """Send one item; return whether all of it has arrived. Raises LinkLost."""

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
