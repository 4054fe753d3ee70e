"""`sync --watch`: send each save over a channel that stays open, until Ctrl-C."""

import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxstrapError, BusyError, HostKeyError, UsageError
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.profile.schema import Profile
from bootstrap.repo.git import run_git
from bootstrap.repo.local import LocalRepository
from bootstrap.setup.payload import report_new_files
from bootstrap.setup.request import SetupRequest
from bootstrap.setup.sync import (
    LocalState,
    Synced,
    SyncStream,
    base_of,
    box_of,
    read_local_state,
    say_waiting,
    take_answer,
    usable_profile,
    values_for_box,
)
from bootstrap.ui.screen import Screen

_QUIET_MS = 20
"""Quiet time that ends a change: editors write a file next to the old one, then rename it."""
_MOST_MS = 200  # longest wait for that quiet time: something may write all the time
_OF_GIT = ("HEAD", "packed-refs")
"""Files of a git folder that, with `refs/heads`, show that another commit is checked out."""


def file_events(here: LocalRepository, tick_ms: int) -> Iterator[bool]:
    """Yield True after each change that may travel, False after others or `tick_ms`; none is lost.
    Raises BoxstrapError if the system can't watch so many folders, KeyboardInterrupt."""
    import watchfiles

    missed = False
    while True:
        try:
            for changes in watchfiles.watch(
                *_folders(here),
                watch_filter=None,
                debounce=_MOST_MS,
                step=_QUIET_MS,
                rust_timeout=tick_ms,
                yield_on_timeout=True,
                ignore_permission_denied=True,
            ):
                yield may_travel(here, [Path(name) for _, name in changes]) or missed
                missed = False
            return
        except OSError as error:
            raise _cant_watch(here.root, error) from None
        except RuntimeError:  # it can't name a file: its name is not UTF-8
            yield True
            # What changes until the folders are watched again.
            missed = True
            time.sleep(tick_ms / 1000)


def _folders(here: LocalRepository) -> list[Path]:
    """Return the tree, and the parts of its git folders that are outside of it."""
    place = here.repository.place
    outside = (place.git_dir, place.common_dir / "refs" / "heads")
    return [here.root, *(path for path in outside if not path.is_relative_to(here.root))]


def may_travel(here: LocalRepository, paths: list[Path]) -> bool:
    """Whether one of these is neither git's own bookkeeping nor ignored by git."""
    inside: list[Path] = []
    place = here.repository.place
    heads = place.common_dir / "refs" / "heads"
    for path in paths:
        is_state = path.name in _OF_GIT and path.parent in (place.git_dir, place.common_dir)
        if is_state or path.is_relative_to(heads):
            return True
        parts = path.relative_to(here.root) if path.is_relative_to(here.root) else Path(".git")
        if ".git" not in parts.parts:
            inside.append(parts)
    return bool(inside) and not _all_ignored(here, inside)


def _all_ignored(here: LocalRepository, names: list[Path]) -> bool:
    wanted = sorted({bytes(name) for name in names} - {b"."})
    stdin = b"".join(name + b"\0" for name in wanted)
    # 1: none is ignored. 128: one is in a submodule, which has its own rules: counts as a change.
    ignored = run_git(here.folders, "check-ignore", "--stdin", "-z", stdin=stdin, ok=(0, 1, 128))
    return ignored.count(b"\0") == len(wanted)


def _cant_watch(root: Path, error: OSError) -> BoxstrapError:
    if error.errno in (errno.ENOSPC, errno.EMFILE) or "limit" in str(error):
        hint = (
            "The system watches no more folders: raise the limit (Linux: sysctl "
            "fs.inotify.max_user_watches), or set WATCHFILES_FORCE_POLLING=1."
        )
    else:
        hint = "Set WATCHFILES_FORCE_POLLING=1, which looks again and again instead."
    return BoxstrapError(f"the files can't be watched: {error}.", where=str(root), hint=hint)


_TICK_MS = 250  # how often the link is checked while nothing is saved
_AGAIN_S = 5.0
"""Seconds until a state that was refused because of a run or a setup, or got no answer, is sent
again."""


def watch_states(request: SetupRequest, screen: Screen, tell: Callable[[Synced], None]) -> None:
    """Send the local state now and after each save; `tell` is called for each placed state.

    A refusal of the box is shown, and watching continues. Ends with KeyboardInterrupt. Raises as
    `send_state`, but not for a refusal; BoxstrapError if the files can't be watched.
    """
    with box_of(request, screen) as box:
        profile = usable_profile(request, box)
        state = read_local_state(request, profile)
        sender = _Sender(request, profile, box, screen, tell)
        sender.send(state)
        told = False
        for changed in file_events(state.here, _TICK_MS):
            if not told:  # the folders are only watched from here on
                screen.say(f"watching {state.here.root}: each save is sent; Ctrl-C ends this")
            if changed or not told or sender.is_due():
                sender.send_if_new(saved=changed)
            elif not box.wire.alive():  # so that the next save doesn't wait for a login
                sender.reconnect(LinkLost(box.label))
            told = True


@dataclass
class _Sender:
    """Sends states over one command, which is started again after a lost link."""

    request: SetupRequest
    profile: Profile
    box: BoxLogin
    screen: Screen
    tell: Callable[[Synced], None]
    _stream: SyncStream | None = None
    """Its command on the box; it may have ended since the last state."""
    _tried: str = ""  # the snapshot that was sent last, taken or not
    _refused: str = ""
    _new: tuple[str, ...] = ()  # the untracked files of the state that was sent last
    _again_at: float = float("inf")
    _took: bool = False  # whether the command on the box answered to a state
    _edited: tuple[str, ...] = ()  # files edited on the box, as the user was warned last

    def is_due(self) -> bool:
        """Whether it is time to send a refused state again."""
        return time.monotonic() >= self._again_at

    def send_if_new(self, *, saved: bool) -> None:
        """Send the local state if it was not the last one sent, or if one that was not taken is due
        or `saved` again."""
        try:
            state = read_local_state(self.request, self.profile)
        except HostKeyError:
            raise
        except BoxstrapError as error:  # a file that must not travel, or a commit in progress
            self._say(error, again=saved)
            return
        if state.snapshot.id != self._tried or self.is_due() or (saved and self._refused):
            self.send(state, saved=saved)

    def send(self, state: LocalState, *, saved: bool = True) -> None:
        """Send it, over a new link or command if this one is lost. That it was not taken is said
        at each save."""
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
                self.reconnect(lost)
            except (HostKeyError, UsageError):
                raise
            except BoxstrapError as error:
                silent = isinstance(error, NoAnswer)
                if silent and self._drop_stream():
                    continue
                waits = silent or isinstance(error, BusyError)
                self._again_at = time.monotonic() + _AGAIN_S if waits else float("inf")
                self._say(error, again=saved)
                break
        self._tried = state.snapshot.id

    def _drop_stream(self) -> bool:
        """Let the next state have a command of its own; return whether this one took any before."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        took, self._took = self._took, False
        return took

    def _take(self, state: LocalState, began: float) -> Synced:
        if self._stream is None:
            values = values_for_box(state, self.box, self.request.wait_s)
            waits = partial(say_waiting, self.screen, self.request)
            self._stream = SyncStream(self.box.wire, values, waits=waits)
        stream = self._stream
        answer = state.send_by(
            lambda sent, objects: stream.send(sent, b"".join(objects)), base_of(self.box, state)
        )
        self._took = True
        named, self._edited = self._edited, answer.edited
        return take_answer(answer, state, self.box, began, named)

    def reconnect(self, lost: LinkLost) -> None:
        self._drop_stream()
        self.box.link.reconnect(lost)

    def _say(self, error: BoxstrapError, *, again: bool) -> None:
        if again or error.text() != self._refused:
            self._refused = error.text()
            self.screen.warn(self._refused)
