"""Send a snapshot: git objects over the existing login into the box's store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bootstrap.errors import BoxstrapError
from bootstrap.link.errors import LinkLost
from bootstrap.link.shell_command import shell_command
from bootstrap.link.wire import Stream, Wire
from bootstrap.protocol.query import build_query
from bootstrap.repo.here import LocalRepository
from bootstrap.repo.objects import (
    ObjectStream,
    ProgressCallback,
    have_locally,
    parse_report,
    wanted_ref,
)
from bootstrap.repo.snapshot import Snapshot, checked, remember

_MARK = b"receive-pack\n"
_MOST_ANSWER = 1024 * 1024
"""Limit for git's report and the noise before it, in bytes: one line for our single ref."""


@dataclass(eq=False, repr=False)
class CommitSender(threading.Thread):
    """Send the commit in its own thread; errors are passed to `failed`."""

    wire: Wire
    here: LocalRepository
    snapshot: Snapshot
    have: Sequence[str]
    workdir: str
    repo_key: str
    repo_root: str
    progress: ProgressCallback
    failed: Callable[[BoxstrapError], None]
    arrived: bool = False
    """Whether the box has the commit."""

    def __post_init__(self) -> None:
        super().__init__(name="objects", daemon=True)

    def run(self) -> None:
        """Send; a lost link is not an error, since following reconnects and sends again."""
        try:
            self._send()
        except LinkLost:
            return
        except BoxstrapError as error:
            self.failed(error)

    def _send(self) -> None:
        here, snapshot = self.here, checked(self.here, self.snapshot)
        query = build_query(
            "receive",
            workdir=self.workdir,
            repo_key=self.repo_key,
            repo_root=self.repo_root,
            object_format=here.object_format,
        )
        stream = self.wire.start(shell_command(query))
        objects = ObjectStream(
            here,
            ref=wanted_ref(snapshot.id),
            have=have_locally(here, self.have, snapshot),
            progress=self.progress,
            snapshot=snapshot,
        )
        try:
            for piece in objects:
                stream.write(piece)
        except BrokenPipeError:
            pass  # git's report says why
        finally:
            objects.close()
        stream.close_write()
        answer = _answer(stream)
        if not self.wire.alive():  # closed from here, or lost
            raise LinkLost(self.wire.label)
        parse_report(answer.rpartition(_MARK)[2], stream.read_err())
        self.arrived = True
        remember(here, snapshot)


def _answer(stream: Stream) -> bytes:
    """Read the whole answer; raise if it is longer than a report can be."""
    answer = bytearray()
    while piece := stream.read(64 * 1024):
        answer += piece
        if len(answer) > _MOST_ANSWER:
            stream.close()
            raise BoxstrapError(
                f"the box did not take the commit: its git reports more than "
                f"{_MOST_ANSWER // 2**20} MiB.",
                hint="Nothing changed; log in with ssh and look what `git` is on that box.",
            )
    return bytes(answer)
