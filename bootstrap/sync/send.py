"""`sync`: send the local state to its tree on a box that is set up already.

The files that differ between two trees, as git compares them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.boxes.login import BoxLogin
from bootstrap.codes import explain
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.wire import LinkLost, Wire
from bootstrap.protocol.sync_state import WITH_COMMAND, SyncAnswer, SyncState, SyncStream
from bootstrap.repo.names import decoded, shown
from bootstrap.setup.request import SetupRequest
from bootstrap.shell import Value
from bootstrap.sync.refusals import not_set_up, refusal
from bootstrap.ui.screen import Screen

if TYPE_CHECKING:  # the login to the box begins before these are imported
    from bootstrap.repo.git import Folders
    from bootstrap.sync.local_state import EarlyObjects, LocalState

_KINDS = {b"A": "new", b"D": "removed"}
_SHOWN = 5


@dataclass(frozen=True)
class FileChanges:
    """Files by how they changed."""

    updated: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.new or self.removed)

    def __str__(self) -> str:
        """One line: the number of each kind, and the names if they are few."""
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in vars(self).items() if names)
        names = (*self.updated, *self.new, *self.removed)
        listed = f" ({', '.join(map(shown, names))})" if 0 < len(names) <= _SHOWN else ""
        return f"{counts or 'no file changed'}{listed}"

    def as_dict(self) -> dict[str, list[str]]:
        """As `--json` prints it."""
        return {kind: list(map(shown, names)) for kind, names in vars(self).items()}


def file_changes(folders: Folders, before: Sequence[str], after: str) -> FileChanges:
    """Return the files of `after` that differ from all trees `before`, by how they differ from
    the first one. Raises GitError."""
    from bootstrap.repo.snapshot_store import changes_between

    found: dict[str, list[str]] = {"updated": [], "new": [], "removed": []}
    others = [
        {change.path for change in changes_between(folders, other, after)} for other in before[1:]
    ]
    for change in changes_between(folders, before[0], after):
        if not all(change.path in other for other in others):
            continue
        found[_KINDS.get(change.status, "updated")].append(decoded(change.path))
    return FileChanges(**{kind: tuple(names) for kind, names in found.items()})


@dataclass(frozen=True)
class Synced:
    """The result: a tree on a box that is now equal to the local state."""

    box: str
    state: LocalState
    changed: FileChanges
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "box": self.box,
            "commit": self.state.snapshot.commit,
            "snapshot": self.state.snapshot.id,
            **self.changed.as_dict(),
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        changes = self.state.snapshot.changes
        with_them = f" with your changes ({changes})" if changes else ""
        commit = f"commit {self.state.snapshot.commit[:12]}{with_them}"
        return f"{self.box}: {self.changed or 'already as here'}; {commit}"


def send_state(request: SetupRequest, screen: Screen) -> Synced:
    """Bring the tree on the box to the local state, and do nothing else.

    Raises UsageError if the box has no such tree, BusyError during a live run or a setup,
    NotSafeError if something made on the box is in the way, UnreachableError.
    """
    began = time.monotonic()
    with box_of(request, screen) as box:
        from bootstrap.setup.source import report_new_files
        from bootstrap.sync.local_state import read_local_state, usable_profile, values_for_box

        profile = usable_profile(request, box)
        state = read_local_state(request, profile)
        report_new_files(state.snapshot, screen)
        values = values_for_box(profile, state, box, request.wait_s)
        sent, objects = state.packed_on(base_of(box, state))
        backoff, waits = Backoff(), partial(say_waiting, screen, request)
        try:
            while True:
                try:
                    answer = _exchange(box.wire, values, state, sent, objects, waits)
                    return take_answer(answer, state, box, began)
                except LinkLost as lost:  # the box accepts the same state again
                    backoff.lost(lost, news=0)
                    box.reconnect(lost)
                    sent, objects = state.packed_on(sent.base)
        finally:
            objects.close()


def say_waiting(screen: Screen, request: SetupRequest) -> None:
    """Tell the user that a setup is being waited for."""
    screen.say(f"waiting for another setup of this box, at most {request.wait_s} s (--wait)")


def _exchange(  # noqa: PLR0913, PLR0917 - what is sent, and a callback
    wire: Wire,
    values: Mapping[str, Value],
    state: LocalState,
    sent: SyncState,
    objects: EarlyObjects,
    waits: Callable[[], None],
) -> SyncAnswer:
    """Send a state; if the box lacks its base, send it again packed on a base the box has."""
    from bootstrap.repo.objects import have_locally

    answer = _once(wire, values, sent, objects, waits)
    if answer.problem != "lacks":
        return answer
    have = have_locally(state.here, answer.have, state.snapshot)
    base = have[0] if have else ""
    return _once(wire, values, dataclasses.replace(sent, base=base), state.objects(have), waits)


def _once(
    wire: Wire,
    values: Mapping[str, Value],
    sent: SyncState,
    objects: EarlyObjects,
    waits: Callable[[], None],
) -> SyncAnswer:
    few = objects.few(WITH_COMMAND)
    first = None if few is None else sent
    stream = SyncStream(wire, values, first, few or b"", waits=waits)
    try:
        return stream.send_last(sent, objects) if few is None else stream.answer()
    finally:
        objects.close()
        stream.close()


def box_of(request: SetupRequest, screen: Screen) -> BoxLogin:
    """Find the box and start to log in. Raises UsageError, see `resolve_box`."""
    key = "" if request.host else request.repository[0]
    box = BoxLogin.find(request, screen, repo_key=key)
    if not box.is_known or not box.known.workdir:
        raise not_set_up(box.name, request.host or box.name)
    box.begin(asks=False)
    return box


def base_of(box: BoxLogin, state: LocalState) -> str:
    """Return the box's last snapshot of this repository, as far as this machine knows."""
    known = box.known.of(state.here.key)
    return known.snapshot if known else ""


def take_answer(answer: SyncAnswer, state: LocalState, box: BoxLogin, began: float) -> Synced:
    """Return the result of sending a state, and remember the state. Raises as `send_state`."""
    from bootstrap.repo.snapshot import remember_snapshot

    for code in answer.warnings:
        box.reporter.warn(f"{explain(code, {}).what}.")
    if not answer.placed:
        raise refusal(answer, box.endpoint.label if box.endpoint else box.name, box.name)
    here = state.here
    box.save(
        box.known.using(
            here.key,
            root=here.root_commit,
            workdir=box.known.workdir_of(here.key),
            snapshot=state.snapshot.id,
        )
    )
    remember_snapshot(here, state.snapshot)
    return Synced(box.name, state, FileChanges(**answer.files), time.monotonic() - began)
