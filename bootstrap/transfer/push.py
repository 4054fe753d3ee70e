"""Push a file or a folder to a box; what is there is not sent again."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.errors import BoxLacksError, BoxstrapError, BusyError, NotSafeError, UsageError
from bootstrap.link import exchange
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.link.wire import LinkLost, Wire
from bootstrap.sizes import file_count, first_of, grouped_number, size
from bootstrap.steps.events import Event
from bootstrap.transfer.frames import Frame, Transfer, number_of, text_of
from bootstrap.transfer.source_files import GONE, FileSender, PushProgress, SourceFile, read_source
from bootstrap.ui.screen import Screen
from bootstrap.value import Document

AT_ONCE = 1000
"""Files that one request asks about."""
TRIES = 3
"""How often a file that changes while it is read is tried."""
MOST_NAMED = 20
_HAS, _ABSENT, _SAME_SIZE, _OLDER, _FOREIGN = "h", "a", "s", "r", "f"
_STALE = "sent before, and no longer in it here; on the box it stays"
_LETTERS = {_HAS, _ABSENT, _SAME_SIZE, _OLDER, _FOREIGN}
_WHY = {
    "denied": "the box does not let it be written",
    "place": "something else is in its place",
    "foreign": "the box has another file there, which no push put there",
    "damaged": "it arrived damaged",
    "changed": "it changes while it is read",
    "unread": "it can't be read here",
    "silent": "the box did not report on it",
}


@dataclass
class Pushed(Document):
    """What a push did."""

    KEYS = "**, seconds:3"

    files: int = 0
    """Files that were sent."""
    bytes: int = 0
    """Bytes of the files that arrived."""
    had: int = 0
    """Files that the box had already."""
    kept: list[str] = field(default_factory=list)
    """Files that differ on the box and are from elsewhere: they are not replaced."""
    failed: list[str] = field(default_factory=list)
    """Files that could not be sent, each with its reason."""
    left_out: list[str] = field(default_factory=list)
    """What is never sent, such as devices, each with its reason."""
    seconds: float = 0.0

    def check(self, where: str) -> None:
        """Raise NotSafeError if the box's files are in the way, or others could not be sent."""
        if self.kept:
            raise NotSafeError(
                f"not replaced: {file_count(len(self.kept))} on the box with other content than "
                f"here, which no push put there:\n{_listed(self.kept)}",
                where=where,
                hint="Everything else is there. To replace them too: --replace",
            )
        if self.failed:
            raise NotSafeError(
                f"{file_count(len(self.failed))} could not be sent:\n{_listed(self.failed)}",
                where=where,
                hint="Everything else is there. Run the same command again to go on.",
            )


def push_folder(  # noqa: PLR0913 - each has its own name where it is called
    link: ReconnectingLink | Wire,
    source: Path,
    target: str,
    *,
    workdir: str = "",
    exclude: Sequence[str] = (),
    replace: bool = False,
    dry: bool = False,
    progress: Callable[[PushProgress], None] = lambda _progress: None,
) -> Pushed:
    """Push the file `source`, or everything in the folder `source`, into the folder `target`.

    `target` is a folder of the box below its working folder `workdir`, absolute or relative to
    that. `exclude` is in `.gitignore` style. Over a reconnecting link it continues after a loss;
    over a wire it raises LinkLost, and the same call continues on the next one. Nothing is deleted,
    and a file that no push put there is replaced only with `replace`. With `dry` no file is sent:
    it says what would be kept.

    Raises UsageError, BusyError (another push to that folder), BoxLacksError (no Python, or no
    room), BoxstrapError, UnreachableError, CancelledError.
    """
    push = Push(source, target, workdir, exclude, replace=replace, dry=dry, progress=progress)
    if not isinstance(link, ReconnectingLink):
        return push.over(link)
    backoff = Backoff(cancel=link.cancel)
    while True:
        try:
            return push.over(link.wire)
        except LinkLost as lost:
            backoff.lost(lost, news=push.sent)
            link.reconnect(lost)


class Push:
    """One push, over one wire after another."""

    def __init__(  # noqa: PLR0913
        self,
        source: Path,
        target: str,
        workdir: str,
        exclude: Sequence[str],
        *,
        replace: bool,
        dry: bool,
        progress: Callable[[PushProgress], None],
    ) -> None:
        self._began = time.monotonic()
        self._source = read_source(source, exclude)
        self._target, self._workdir, self._replace, self._dry = target, workdir, replace, dry
        self._is_folder = source.is_dir()
        by_link = source.is_symlink() and source.is_file()
        self._outgoing = FileSender(self._source.root, progress, by_link=by_link)
        self._who = _who(source, target)
        self._label = ""
        self._arrived: set[int] = set()

    @property
    def sent(self) -> int:
        """Bytes of files sent so far."""
        return self._outgoing.sent

    def over(self, wire: Wire) -> Pushed:
        """Send what the box lacks. Raises LinkLost, after which another call continues."""
        self._label = wire.label
        files = self._source.files
        pushed = Pushed(left_out=[*self._source.left_out])
        with Transfer(wire, self._workdir) as transfer:
            states, begun = self._look(transfer, pushed)
            self._compare(transfer, states, pushed)
            pushed.kept = [files[i].path for i, state in enumerate(states) if state == _FOREIGN]
            wanted = [i for i, state in enumerate(states) if state in {_ABSENT, _OLDER}]
            if wanted and not self._dry:
                self._send(transfer, wanted, begun, pushed)
        pushed.had = sum(state == _HAS for state in states)
        pushed.had -= sum(states[i] == _HAS for i in self._arrived)
        pushed.files = len(self._arrived)
        pushed.bytes = sum(files[i].size for i in self._arrived)
        pushed.seconds = time.monotonic() - self._began
        return pushed

    def _look(self, transfer: Transfer, pushed: Pushed) -> tuple[list[str], dict[int, int]]:
        """Return a letter for each file, and how many bytes are there of those started before."""
        states, begun = list[str](), dict[int, int]()
        files, free = self._source.files, 0
        for header, _ in transfer.run(self._questions()):
            if problem := text_of(header, "problem"):
                raise self._refused(problem)
            free = max(free, number_of(header, "free"))
            parts = header.get("begun")
            for key, value in parts.items() if isinstance(parts, dict) else ():
                at = exchange.answer_number(key)
                i = len(files) if at is None else len(states) + at
                if i < len(files) and isinstance(value, int) and value > 0:
                    begun[i] = min(value, files[i].size)
            if isinstance(stale := header.get("stale"), list) and stale:
                listed = ", ".join(first_of([*map(str, stale)], MOST_NAMED))
                pushed.left_out.append(f"{listed}: {_STALE}")
            states += text_of(header, "states")
            if len(states) > len(files):  # a hostile box could go on for ever
                break
        if len(states) != len(files) or not _LETTERS.issuperset(states):
            raise BoxstrapError(
                "the box did not report which of the files it has.", where=self._label
            )
        lacking = sum(files[i].size for i, state in enumerate(states) if state in {_ABSENT, _OLDER})
        if lacking - sum(begun.values()) > free:
            raise self._no_room(f"{size(lacking)} are to be sent, and {size(free)} are free")
        return states, begun

    def _questions(self) -> Iterator[Frame]:
        target = {"target": self._target, "who": self._who, "replace": self._replace}
        yield {"op": "to", **target}, b""
        files = self._source.files
        for at in range(0, len(files), AT_ONCE):
            rows = [file[:3] for file in files[at : at + AT_ONCE]]
            is_all = self._is_folder and at + AT_ONCE >= len(files)
            yield {"op": "look", "files": rows, "is_all": is_all}, b""
        empty = self._source.empty
        for at in range(0, len(empty), AT_ONCE):
            yield {"op": "folders", "paths": empty[at : at + AT_ONCE]}, b""

    def _refused(self, problem: str) -> BoxstrapError:
        where = f"{self._label}: {self._target}"
        if problem == "outside":
            return UsageError("files go below the box's working folder only.", where=where)
        if problem == "busy":
            return BusyError(
                "another push to that folder is at work; wait for its end.", where=where
            )
        if problem == "full":
            return self._no_room("its disk is full")
        return BoxstrapError(f"{_WHY.get(problem, 'the box refuses it')}.", where=where)

    def _no_room(self, why: str) -> BoxLacksError:
        return BoxLacksError(
            f"there is no room for it: {why}.",
            where=f"{self._label}: {self._target}",
            hint="What has arrived stays. Make room there, and run the same command again.",
        )

    def _compare(self, transfer: Transfer, states: list[str], pushed: Pushed) -> None:
        """Find by content which files of the same size but another time are the same."""
        files = self._source.files
        alike = [(i, files[i]) for i, state in enumerate(states) if state == _SAME_SIZE]
        asked = {i for i, _ in alike}
        if not alike:
            return
        for header, _ in transfer.run(self._outgoing.comparisons(alike)):
            i, state = number_of(header, "i"), text_of(header, "state")
            if i in asked and state in {_HAS, _OLDER, _FOREIGN}:
                states[i] = state
        silent = {i for i, _ in alike if states[i] == _SAME_SIZE} - {*self._outgoing.unread}
        pushed.failed += [f"{files[i].path}: {_WHY['silent']}" for i in sorted(silent)]
        self._note_unread(pushed)

    def _send(
        self, transfer: Transfer, wanted: list[int], begun: dict[int, int], pushed: Pushed
    ) -> None:
        """Send files; try those again that change while they are read, or arrive damaged."""
        files, outgoing = self._source.files, self._outgoing
        tries: Counter[int] = Counter()
        progress = outgoing.progress
        progress.files, progress.all_files = 0, len(wanted)
        progress.bytes = sum(begun.get(i, 0) for i in wanted)
        progress.all_bytes = sum(files[i].size for i in wanted)
        while wanted:
            again: list[int] = []
            silent = set(wanted)
            frames = outgoing.frames([(i, files[i], begun.get(i, 0)) for i in wanted])
            for header, _ in transfer.run(frames):
                i, problem = number_of(header, "i"), text_of(header, "problem")
                if problem == "full":
                    there = grouped_number(len(self._arrived))
                    raise self._no_room(f"its disk is full; {there} files have arrived")
                if i not in silent:
                    continue
                silent.discard(i)
                if not problem:
                    self._arrived.add(i)
                    progress.files += 1
                    outgoing.tell()
                elif problem in {"changed", "damaged"}:
                    again.append(i)
                elif problem == "foreign":
                    pushed.kept.append(files[i].path)
                else:
                    pushed.failed.append(f"{files[i].path}: {_WHY.get(problem, 'refused')}")
            again += outgoing.changed
            silent -= {*outgoing.changed, *outgoing.unread}
            outgoing.changed.clear()
            self._note_unread(pushed)
            pushed.failed += [f"{files[i].path}: {_WHY['silent']}" for i in sorted(silent)]
            tries.update(again)
            begun = {}
            wanted = [i for i in again if tries[i] < TRIES and self._listed_again(i)]
            for i in sorted({*again} - {*wanted}):
                self._note(i, "changed", pushed)

    def _note_unread(self, pushed: Pushed) -> None:
        for i in self._outgoing.unread:
            self._note(i, "unread", pushed)
        self._outgoing.unread.clear()

    def _note(self, i: int, problem: str, pushed: Pushed) -> None:
        """Note a file that was not sent; one that is gone from here has nothing to send."""
        file = self._source.files[i]
        if os.path.lexists(self._outgoing.path(file)):
            pushed.failed.append(f"{file.path}: {_WHY[problem]}")
        else:
            pushed.left_out.append(f"{file.path}: {GONE}")

    def _listed_again(self, i: int) -> bool:
        """List a file again as it is now; return False if it is gone."""
        file = self._source.files[i]
        if file.to:
            return True
        try:
            found = os.stat(self._outgoing.path(file))  # noqa: PTH116 - bytes
        except OSError:
            return False
        mode = stat.S_IMODE(found.st_mode)
        self._source.files[i] = SourceFile(file.path, found.st_size, found.st_mtime_ns, mode)
        return True


def _who(source: Path, target: str) -> str:
    """Return an id of this push, with which the box lets it replace itself after a lost link."""
    mine = f"{socket.gethostname()}\0{os.getuid()}\0{source.absolute()}\0{target}"
    return hashlib.sha256(mine.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _listed(names: Sequence[str]) -> str:
    return "\n".join(f"  {name}" for name in first_of(names, MOST_NAMED))


COSTLY = 100 * 1000 * 1000
"""Bytes, for all boxes together, from which on it is said what is sent."""


def upload_of_several(sources: Sequence[tuple[Path, Sequence[str]]], boxes: int) -> str:
    """Say what is sent from here if each of several boxes gets it all; "" if that is little.

    `sources` are files and folders, with what is left out of each.
    """
    each = sum(read_source(*source).bytes for source in sources)
    if boxes < 2 or each * boxes < COSTLY:
        return ""
    return (
        f"each of {boxes} boxes is sent {size(each)} from here, {size(each * boxes)} in all, less "
        "what it has; an address in `data:` is fetched by each box itself"
    )


class ShownProgress:
    """A transfer as a row of the screen. Leaving it as a context manager ends the row."""

    def __init__(self, screen: Screen, name: str) -> None:
        self._screen, self._name = screen, name
        self._telling = threading.Lock()
        self._has_begun = False

    def __enter__(self) -> ShownProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._has_begun:
            self._event("fail" if kind else "ok", {})

    def __call__(self, progress: PushProgress) -> None:
        """Show the progress. May be called from any thread."""
        fields: dict[str, float | str] = {
            "done": progress.bytes,
            "total": progress.all_bytes,
            "files": progress.files,
            "all_files": progress.all_files,
            "unit": "bytes",
        }
        self._event("progress", fields)

    def _event(self, event: str, fields: dict[str, float | str]) -> None:
        with self._telling:
            self._has_begun = True
            self._screen.event(Event("", 0, time.time(), self._name, event, fields))
