"""`sync --watch`: send each save over a channel that stays open, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bootstrap.cancel import CancelToken
from bootstrap.errors import BoxstrapError, BusyError, HostKeyError, UsageError
from bootstrap.link.errors import LinkLost
from bootstrap.link.handle import BoxHandle
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.profile.schema import Profile
from bootstrap.protocol.sync_state import SyncStream
from bootstrap.repo.objects import have_locally
from bootstrap.setup.early_login import EarlyLogin
from bootstrap.setup.request import SetupRequest
from bootstrap.setup.source import report_new_files
from bootstrap.sync.file_events import file_events
from bootstrap.sync.local_state import LocalState, read_state, usable_profile, values_for_box
from bootstrap.sync.send import Synced, base_of, box_of, say_waiting, take_answer
from bootstrap.ui.screen import Screen

_TICK_MS = 250
"""How often the link is checked while nothing is saved."""
_AGAIN_S = 5.0
"""Seconds until a state that was refused because of a run or a setup is sent again."""


def watch_states(request: SetupRequest, screen: Screen, tell: Callable[[Synced], None]) -> None:
    """Send the local state now and after each save; `tell` is called for each placed state.

    A refusal of the box is shown, and watching continues. Ends with KeyboardInterrupt. Raises as
    `send_state`, but not for a refusal; BoxstrapError if the files can't be watched.
    """
    box = box_of(request, screen)
    early = EarlyLogin(box, CancelToken(), ask=False)
    try:
        profile = usable_profile(request, box)
        state = read_state(request, profile)
        link = ReconnectingLink(early.login, lost=screen.lost, back=screen.back, warn=screen.warn)
    except BaseException:
        early.close()
        raise
    sender = _Sender(request, profile, box, link, screen, tell)
    try:
        sender.send(state)
        told = False
        for changed in file_events(state.here, _TICK_MS):
            if not told:  # the folders are only watched from here on
                screen.say(f"watching {state.here.root}: each save is sent; Ctrl-C ends this")
            if changed or not told or sender.is_due():
                sender.send_if_new()
            else:
                sender.restore_link()
            told = True
    finally:
        link.close()


@dataclass
class _Sender:
    """Sends states over one command, which is started again after a lost link."""

    request: SetupRequest
    profile: Profile
    box: BoxHandle
    link: ReconnectingLink
    screen: Screen
    tell: Callable[[Synced], None]
    _stream: SyncStream | None = None
    _tried: str = ""
    """The snapshot that was sent last, taken or not."""
    _refused: str = ""
    _new: tuple[str, ...] = ()
    """The untracked files of the state that was sent last."""
    _again_at: float = float("inf")

    def is_due(self) -> bool:
        """Whether it is time to send a refused state again."""
        return time.monotonic() >= self._again_at

    def send_if_new(self) -> None:
        """Send the local state if it was not the last one sent, or if a refused one is due."""
        try:
            state = read_state(self.request, self.profile)
        except UsageError as error:  # a file that must not travel, or a commit in progress
            self._say(error)
            return
        if state.snapshot.id != self._tried or self.is_due():
            self.send(state)

    def send(self, state: LocalState) -> None:
        """Send it, over a new link if this one is lost; a refusal is shown once."""
        if state.snapshot.new != self._new:
            self._new = state.snapshot.new
            report_new_files(state.snapshot, self.screen)
        began, backoff = time.monotonic(), Backoff()
        while True:
            try:
                self.tell(self._take(state, began))
                self._refused, self._again_at = "", float("inf")
                break
            except LinkLost as lost:
                backoff.lost(lost, news=0)
                self._reconnect(lost)
            except (HostKeyError, UsageError):
                raise
            except BoxstrapError as error:
                waits = isinstance(error, BusyError)
                self._again_at = time.monotonic() + _AGAIN_S if waits else float("inf")
                self._say(error)
                break
        self._tried = state.snapshot.id

    def restore_link(self) -> None:
        """Replace a lost link now, so that the next save does not wait for it."""
        if not self.link.wire.alive():
            self._reconnect(LinkLost(self.link.label))

    def _take(self, state: LocalState, began: float) -> Synced:
        if self._stream is None:
            values = values_for_box(self.profile, state, self.box, self.request.wait_s)
            waits = partial(say_waiting, self.screen, self.request)
            self._stream = SyncStream(self.link.wire, values, waits=waits)
        sent, objects = state.packed_on(base_of(self.box, state))
        answer = self._stream.send(sent, b"".join(objects))
        if answer.problem == "lacks":
            have = have_locally(state.here, answer.have, state.snapshot)
            sent = state.on(have[0] if have else "")
            answer = self._stream.send(sent, b"".join(state.objects(have)))
        return take_answer(answer, state, self.box, self.screen, began)

    def _reconnect(self, lost: LinkLost) -> None:
        self._stream = None
        self.link.reconnect(lost)

    def _say(self, error: BoxstrapError) -> None:
        if error.text() != self._refused:
            self._refused = error.text()
            self.screen.warn(self._refused)
