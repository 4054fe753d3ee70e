"""`sync`: send the local state to its tree on a box that is set up already."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bootstrap.cancel import CancelToken
from bootstrap.codes import explain
from bootstrap.link.errors import LinkLost
from bootstrap.link.handle import BoxHandle, find_box
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.link.wire import Wire
from bootstrap.protocol.sync_state import WITH_COMMAND, SyncAnswer, SyncState, SyncStream
from bootstrap.render.quote import Value
from bootstrap.repo.here import read
from bootstrap.repo.objects import have_locally
from bootstrap.repo.snapshot import remember
from bootstrap.setup.early_login import EarlyLogin
from bootstrap.setup.request import SetupRequest
from bootstrap.setup.source import report_new_files
from bootstrap.sync.changes import FileChanges
from bootstrap.sync.local_state import (
    EarlyObjects,
    LocalState,
    read_state,
    usable_profile,
    values_for_box,
)
from bootstrap.sync.refusals import not_set_up, refusal
from bootstrap.ui.screen import Screen


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
    box = box_of(request, screen)
    early = EarlyLogin(box, CancelToken(), ask=False)
    try:
        profile = usable_profile(request, box)
        state = read_state(request, profile)
        report_new_files(state.snapshot, screen)
        values = values_for_box(profile, state, box, request.wait_s)
        sent, objects = state.packed_on(base_of(box, state))
        link = ReconnectingLink(early.login, lost=screen.lost, back=screen.back, warn=screen.warn)
    except BaseException:
        early.close()
        raise
    backoff, waits = Backoff(), partial(say_waiting, screen, request)
    try:
        while True:
            try:
                answer = _exchange(link.wire, values, state, sent, objects, waits)
                return take_answer(answer, state, box, screen, began)
            except LinkLost as lost:  # the box accepts the same state again
                backoff.lost(lost, news=0)
                link.reconnect(lost)
                sent, objects = state.packed_on(sent.base)
    finally:
        objects.close()
        link.close()


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


def box_of(request: SetupRequest, screen: Screen) -> BoxHandle:
    """Find the box and start to connect. Raises UsageError, see `find_box`."""
    key = "" if request.host else read(request.place).key
    box = find_box(request, screen.say, repo_key=key)
    if not box.is_known or not box.known.workdir:
        raise not_set_up(box.known.name, request.host or box.known.name)
    box.dial()
    return box


def base_of(box: BoxHandle, state: LocalState) -> str:
    """Return the box's last snapshot of this repository, as far as this machine knows."""
    return box.known.snapshot if box.known.repo_key == state.here.key else ""


def take_answer(
    answer: SyncAnswer, state: LocalState, box: BoxHandle, screen: Screen, began: float
) -> Synced:
    """Return the result of sending a state, and remember the state. Raises as `send_state`."""
    for code in answer.warnings:
        screen.warn(f"{explain(code, {}).what}.")
    name = box.known.name
    if not answer.placed:
        raise refusal(answer, box.endpoint.label if box.endpoint else name, name)
    here = state.here
    box.save(
        replace(
            box.known,
            repo_key=here.key,
            repo_root=here.root_commit,
            snapshot=state.snapshot.id,
        )
    )
    remember(here, state.snapshot)
    return Synced(name, state, FileChanges(**answer.files), time.monotonic() - began)
