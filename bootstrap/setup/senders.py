"""What this machine sends while a setup runs: the commit, and what the box asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError
from bootstrap.events import Event

if TYPE_CHECKING:
    from bootstrap.protocol.send_commit import CommitSender
    from bootstrap.protocol.send_dependencies import DependencySender
    from bootstrap.protocol.send_uv import UvSender
    from bootstrap.setup.context import SetupContext
    from bootstrap.transfer.local_data import DataSender
    from bootstrap.transfer.outgoing import PushProgress
    from bootstrap.transfer.send_addresses import AddressSender, BucketItems

    AskedSender = UvSender | DependencySender | DataSender | AddressSender
    """A sender of what a step on the box waits for."""

# Senders are imported only when there is something to send, so that no box waits for that.
_TELLS_S = 0.2
"""Minimum seconds between two progress events."""


class SetupSenders:
    """The senders of one setup. Each has its own thread, and is started again after a lost link."""

    def __init__(self, context: SetupContext) -> None:
        self.setup = ""
        """The setup's id, once there is one."""
        self.machine = ""
        """The box's system and processor, as `uname` names them."""
        self._context = context
        self._link, self._payload = context.link, context.payload
        self._reporter, self._telling = context.reporter, threading.Lock()
        self._workdir = context.payload.profile.box.workdir
        self._sending: dict[str, CommitSender | AskedSender] = {}
        self._asked_for: dict[str, Callable[[], AskedSender]] = {
            "uv-unlisted": self._uv_sender,
            "dependencies": self._dependency_sender,
            "data": self._data_sender,
            "data-addresses": self._address_sender,
        }
        """Makes the sender for each code that the box may wait with."""
        self._in_buckets: BucketItems | None = None
        """The profile's data in buckets, once the box has asked for it."""
        self._last_tell = 0.0
        self._link.on_reconnect.append(self._send_again)

    def tell(self, event: Event) -> None:
        """Show an event; thread-safe, since senders report their own."""
        with self._telling:
            self._reporter.event(event)

    def send_asked(self, code: str) -> None:
        """Send what the box waits for with this code, if this machine has a sender for it."""
        if code in self._asked_for:
            self._sending[code] = self._asked_for[code]()
            self._sending[code].start()

    def _send_again(self) -> None:
        """After a reconnect, send again what had not arrived."""
        for what, sender in list(self._sending.items()):
            if sender.arrived:
                continue
            sender.join()
            if what in self._asked_for:
                self.send_asked(what)
            else:
                self.send_commit(self._context.probe(self._link.wire).have)

    def send_commit(self, have: Sequence[str]) -> None:
        """Send the commit in the background, unless the box has it."""
        here, snapshot = self._payload.here, self._payload.snapshot
        if here is None or snapshot is None or snapshot.id in have or self._context.request.only:
            return
        from bootstrap.protocol.send_commit import CommitSender

        self._sending["commit"] = CommitSender(
            self._link.wire,
            here,
            snapshot,
            have,
            workdir=self._workdir,
            repo_key=self._payload.source.key,
            repo_root=self._payload.source.root,
            progress=self._tell_objects,
            failed=self._not_sent,
        )
        self._sending["commit"].start()

    def _uv_sender(self) -> UvSender:
        """Make the sender for a box whose package index lacks uv."""
        from bootstrap.protocol.send_uv import UvSender

        return UvSender(
            self._link.wire,
            machine=self.machine,
            workdir=self._workdir,
            setup=self.setup,
            progress=partial(self._tell_bytes, "agent"),
            sent=self._uv_arrived,
            failed=self._not_sent,
        )

    def _dependency_sender(self) -> DependencySender:
        """Make the sender for private dependencies that the box lacks for its environment."""
        from bootstrap.protocol.send_dependencies import DependencySender

        return DependencySender(
            self._link.wire,
            dependencies=self._payload.dependencies,
            workdir=self._workdir,
            setup=self.setup,
            progress=partial(self._tell_bytes, "python"),
            say=self._say,
            failed=self._not_sent,
        )

    def _data_sender(self) -> DataSender:
        """Make the sender for the profile's data on this machine."""
        from bootstrap.transfer.local_data import DataSender

        return DataSender(
            self._link.wire,
            items=self._payload.data,
            workdir=self._workdir,
            setup=self.setup,
            progress=self._tell_push,
            failed=self._not_sent,
        )

    def _address_sender(self) -> AddressSender:
        """Make the sender for addresses of data in buckets, which are missing or expired."""
        from bootstrap.transfer.send_addresses import AddressSender, BucketItems

        data = enumerate(self._payload.profile.data)
        addresses = {n: each.source for n, each in data if each.place == "bucket"}
        self._in_buckets = self._in_buckets or BucketItems(addresses)
        return AddressSender(
            self._link.wire,
            items=self._in_buckets,
            workdir=self._workdir,
            setup=self.setup,
            failed=self._not_sent,
        )

    def _tell_objects(self, done: int, total: int, sent: int) -> None:
        if self._is_time(done, total):
            self._tell_sent("repo", "objects", {"done": done, "total": total})
            self._tell_sent("repo", "bytes", {"done": sent})

    def _tell_bytes(self, step: str, done: int, total: int) -> None:
        if self._is_time(done, total):
            self._tell_sent(step, "bytes", {"done": done, "total": total})

    def _tell_push(self, progress: PushProgress) -> None:
        done, total = progress.bytes, progress.all_bytes
        if self._is_time(done, total):
            files = {"files": progress.files, "all_files": progress.all_files}
            self._tell_sent("data", "bytes", {"done": done, "total": total, **files})

    def _is_time(self, done: int, total: int) -> bool:
        """Whether to report progress now: not too often, but always at the end."""
        now = time.time()
        if not total or (now - self._last_tell < _TELLS_S and done < total):
            return False
        self._last_tell = now
        return True

    def _tell_sent(self, step: str, unit: str, fields: dict[str, float | str]) -> None:
        self.tell(Event(self.setup, 0, time.time(), step, "progress", {**fields, "unit": unit}))

    def _uv_arrived(self) -> None:
        from bootstrap.render import uv_release

        self._say(
            f"uv {uv_release.VERSION} was sent from this machine: "
            "the box's package index does not have it"
        )

    def _say(self, text: str) -> None:
        with self._telling:
            self._reporter.say(text)

    def _not_sent(self, error: BoxstrapError) -> None:
        with self._telling:
            self._reporter.warn(error.text())
