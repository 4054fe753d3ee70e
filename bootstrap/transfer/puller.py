"""Look at a box's results, choose what is complete and not here yet, and receive it block by block,
into partial files, counted and compared.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol

from bootstrap.errors import NO_ROOM, NotSafeError
from bootstrap.onbox.results.complete_files import MOST_FILES, STOOD_S, with_folders
from bootstrap.repo.names import shown
from bootstrap.sizes import size
from bootstrap.transfer.destination import (
    MANIFEST,
    Destination,
    Part,
    PartialFile,
    TooLong,
    has_more_folders,
    why_refused,
)
from bootstrap.transfer.frames import (
    CLOSED,
    BegunFile,
    BoxFile,
    BoxLook,
    GivenFile,
    LostResult,
    WantedFile,
)
from bootstrap.transfer.manifest import PulledFile, PulledRecord
from bootstrap.transfer.source_files import PushProgress
from bootstrap.value import dataclass, field

AHEAD = 256 * 10**6
"""Bytes that are read ahead of files not yet known to be complete."""
_SMALL = 10_000
"""Bytes: a smaller file counts as this many."""
_LANDING = 1000
"""Bytes that come over a slow connection in the time that this machine takes for a file."""
_HELD = 16 * 10**6
"""Bytes, of files that count as more, after which a new folder gets its name."""


def chosen(wanted: Sequence[BoxFile], at_once: int | None) -> Sequence[BoxFile]:
    """Return the complete files (the newest if over `at_once` bytes), else those to read ahead."""
    complete = [file for file in wanted if not file.why]
    if at_once is not None:
        complete = _some(complete, at_once, lambda file: -file.modified)
    return complete or _some(_closed(wanted), AHEAD, lambda file: file.size)


def _closed(files: Sequence[BoxFile]) -> list[BoxFile]:
    """Return files that may soon count as complete, and whose times would show a change."""
    units = {file.unit for file in files if file.why == CLOSED}
    units -= {file.unit for file in files if file.why in {"young", "held"}}
    return [file for file in files if file.unit in units]


def _some(files: list[BoxFile], most: int, order: Callable[[BoxFile], int]) -> list[BoxFile]:
    """Return the first files in that order up to `most` bytes: whole units, at least one."""
    units: dict[str, list[BoxFile]] = {}
    for file in sorted(files, key=order):
        units.setdefault(file.unit, []).append(file)
    taken: list[BoxFile] = []
    for unit in units.values():
        most -= sum(max(file.size, _SMALL) for file in unit)
        if taken and most < 0:
            break
        taken += unit
    return taken


Came = Iterable[tuple[WantedFile, "bytes | BegunFile | GivenFile"]]


class NoRoom(Exception):  # noqa: N818 - of this machine's disk
    """Nothing more can be written here; `args[0]` says why."""


def file_error(error: OSError) -> str:
    """Return an error of one file in words. Raises NoRoom if it would affect all files."""
    why = (error.strerror or str(error)).lower()
    if error.errno in NO_ROOM:
        raise NoRoom(f"can't be written here: {why}") from error
    return f"can't be written here: {why}"


class ResultReceiver:
    """Receives files one after the other, as `BoxResults.get` yields them."""

    def __init__(self, landing: Destination, tell: Callable[[int], None]) -> None:
        """`tell` is called with the number of bytes received."""
        self._landing, self._tell = landing, tell
        self._partial: PartialFile | None = None
        self._problem = ""

    def receive(self, came: Came) -> Iterator[tuple[BoxFile, Part | str]]:
        """Yield each file, complete, before it has its name; or the reason why it is not.

        Raises NoRoom, NotSafeError if more of a file comes than was announced, and as `came`.
        """
        try:
            for (file, at), item in came:
                part = None
                try:
                    if isinstance(item, GivenFile) and not at and self._is_whole(file, item):
                        part = self._landing.whole(
                            file.path, item.piece, item.sha256, file.modified
                        )
                        self._tell(file.size)
                    else:
                        self._take(file, at, item)
                except TooLong:
                    raise NotSafeError(
                        f"the box sends more of {shown(file.path)} than the {size(file.size)} "
                        "that it announced.",
                        hint="None of it was kept. Look at the box before you trust it.",
                    ) from None
                except OSError as error:
                    self._problem = file_error(error)
                if isinstance(item, GivenFile):
                    yield file, self._problem or part or self._opened(file, 0)
                    self._let_go()
        finally:
            self._let_go()

    def _is_whole(self, file: BoxFile, given: GivenFile) -> bool:
        """Whether this is all of a file, verified, and it may land at once."""
        begun = self._partial or self._problem or given.problem
        waits = begun or file.why or file.checkpoint or len(given.piece) != file.size
        return not waits and hashlib.sha256(given.piece).hexdigest() == given.sha256

    def _let_go(self) -> None:
        if self._partial is not None:
            self._partial.close()
        self._partial, self._problem = None, ""

    def _opened(self, file: BoxFile, at: int) -> PartialFile:
        """Return the current partial file; what is here of it counts only if it has `at` bytes."""
        if self._partial is None:
            self._partial = self._landing.partial(file.path, file.state, file.size)
            if self._partial.at != at:
                self._partial.restart()
        return self._partial

    def _take(self, file: BoxFile, at: int, item: bytes | BegunFile | GivenFile) -> None:
        """Take an item. Raises OSError, TooLong."""
        if not self._problem and isinstance(item, GivenFile):
            self._problem = item.problem
        if self._problem:
            return
        partial = self._opened(file, at)
        if isinstance(item, BegunFile):
            if item != (partial.at, partial.sha256):
                partial.restart()  # the next round gets it from its start
                self._problem = "changed"
            return
        piece = item.piece if isinstance(item, GivenFile) else item
        if piece:
            partial.write(piece)
            self._tell(len(piece))
        if isinstance(item, GivenFile) and not partial.finish(item.sha256, file.modified):
            self._problem = "damaged"


_EVERY_S = 0.1
"""Seconds between two reports of progress."""
_TICK_S = 0.05
"""Seconds: longer than the resolution of file times."""
_NEW_S = 5.0
"""Seconds for which what a round saw here counts as being here."""
_LOOK_S = 0.25
"""Seconds between two looks at what was read ahead."""
_YOUNG = "was written to a moment ago"
WAITS = {
    "young": _YOUNG,
    CLOSED: _YOUNG,
    "held": "a process has it open for writing",
    "checkpoint": "its checkpoint is not complete",
    "changed": "changed while it was read",
    "later": "comes after others",
    "absent": "was removed while it was read",
}
"""Why a file may still come."""
REASONS = {
    **WAITS,
    "unread": "the box can't read it",
    "damaged": "what came is not what the box says it sent",
    "outside": "is a link that leads out of the results",
    "led": "is a link to what is not here",
    "unreadable": "may not be read on the box",
    "name": "has a name that is no UTF-8",
    "many": "is one of too many files",
}
"""Why something is not here, in words."""
NOTHING = {
    "special": "is no plain file",
    "dead": "is a link that leads nowhere",
    "stray": "is a link to what is no result of this run",
    "missing": "is not on the box",
    "given-up": "was overwritten by a later run, as --overwrite-results allows",
}
"""Why something has no content to pull."""
_LOST = {
    "changed": "was changed after its run ended, by no run: it is not its result any more",
    "gone": "was removed after its run ended, or replaced by a commit's",
}


class ResultSource(Protocol):
    """The source of results: `BoxResults`."""

    stood_s: float
    """Seconds that a file must stay unchanged before it counts as complete."""

    def look(self, *, live: bool) -> BoxLook:
        """Return what is there now."""

    def get(
        self, wanted: Sequence[WantedFile]
    ) -> Iterator[tuple[WantedFile, bytes | BegunFile | GivenFile]]:
        """Yield the files, one after the other."""


@dataclass
class PullRound:
    """What one look found, and what was pulled."""

    look: BoxLook
    landed: set[str] = field(default_factory=set)
    """Files that landed, by path on the box."""
    missing: dict[str, str] = field(default_factory=dict)
    """What is not here, and why: in words, or a key of `REASONS`."""
    stuck: frozenset[str] = frozenset()
    """Those of them that no other pull brings either, unless something changes on the box."""
    begun: float = field(default_factory=time.monotonic)

    def here(self) -> Set[str]:
        """Return what it found here, or brought, if that was just now: nobody looks again."""
        is_new = time.monotonic() - self.begun < _NEW_S
        return self.look.files.keys() - self.missing.keys() if is_new else frozenset()

    def may_come(self, path: str) -> bool:
        """Whether this file may still come."""
        return self.missing.get(path) in {*WAITS, "damaged"}

    def never(self) -> list[str]:
        """Return what no other pull brings either, unless something changes on the box."""
        return sorted(
            path
            for path, why in self.missing.items()
            if path in self.stuck or why in ("unread", "led")
        )

    def reasons(self) -> dict[str, str]:
        """Return what is not here, and why, in words; the names are safe to show."""
        missing = sorted(self.missing.items())
        return {shown(path): REASONS.get(why, why) for path, why in missing}


class Puller:
    """Pulls one run's results into one folder here, round after round."""

    def __init__(  # noqa: PLR0913
        self,
        landing: Destination,
        record: PulledRecord,
        *,
        most: int,
        tell: Callable[[PushProgress], None] = lambda _: None,
        landed: Callable[[BoxFile, str], None] = lambda *_: None,
        announce: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`most`: bytes allowed in the folder; `landed` is called with each file and its place,
        `announce` with the bytes for which a round will wait."""
        self._landing, self._record, self._most = landing, record, most
        self._tell, self._landed, self._announce = tell, landed, announce
        self._told = 0.0
        self._why_refused: dict[str, str] = {}
        self._seen: dict[tuple[str, tuple[int, ...]], float] = {}
        """When each incomplete file was first seen in its current state."""
        self._progress = PushProgress()
        self._landed_files = self._landed_bytes = 0
        self.received = 0
        """Bytes received, also of files that did not get complete."""
        self.stopped = ""
        """Why nothing more can be written here."""

    def round(self, source: ResultSource, *, live: bool, at_once: int | None = None) -> PullRound:
        """Pull what is complete; if over `at_once` bytes the newest, the rest in later rounds.

        While the files of a finished run wait until they count as complete, some are read ahead;
        they land if they turn out to be complete and unchanged.

        Raises NotSafeError if the box has more than is allowed, or sends more than it announced;
        and what the source raises.

        A lost link costs only what was in transit: the next round continues.
        """
        self._landing.look_again()
        look = source.look(live=live)
        young = [(file.path, file.state) for file in look.files.values() if file.why]
        now = time.monotonic()
        self._seen = {one: self._seen.get(one, now) for one in young}
        missing = {p: w for p, w in look.left.items() if w not in NOTHING}
        done = PullRound(look, missing=missing)
        refused = self._refused(look.files)
        done.missing.update(refused)
        done.missing.update(self._lost(look))
        done.stuck = frozenset(done.missing)
        files = [file for path, file in look.files.items() if path not in refused]
        self._check_size(files)
        wanted = [file for file in files if not self.is_home(file)]
        done.missing.update({file.path: file.why or "later" for file in wanted})
        taken = chosen(wanted, at_once)
        self._landing.forget_others((file.path, file.state) for file in wanted)
        try:
            if taken:
                self._announce(sum(max(0, file.size - _LANDING) for file in taken))
                self._expect(wanted if at_once is None else taken)
                self._take(source, taken, done, live=live)
        except NoRoom as full:
            self.stopped = str(full)
            left = {file.path for file in taken} - done.landed
            done.missing.update(dict.fromkeys(left, self.stopped))
        return done

    def _refused(self, files: Mapping[str, BoxFile]) -> dict[str, str]:
        """Return what may not be made here, and why. Each path is checked once."""
        before = self._why_refused
        paths = {*files, *(one.to for one in files.values() if one.to)}
        self._why_refused = {
            path: before[path] if path in before else why_refused(path) for path in paths
        }
        refused = {path for path, why in self._why_refused.items() if why}
        return {
            path: self._why_refused[path] or f"leads to what {self._why_refused[one.to]}"
            for path, one in (files.items() if refused else ())
            if path in refused or one.to in refused
        }

    def is_home(self, file: BoxFile) -> bool:
        """Whether the file is here in the same state as there. No content is read."""
        one = self._record.files.get(file.path)
        # A copy on the box, or a disk that was copied, has another inode and ctime.
        of = slice(2, 4) if file.kind == "kept" else slice(None)
        return (
            one is not None
            and (one.state[of], one.to) == (file.state[of], file.to)
            and self._landing.look(one.place, one.to) == one.home
        )

    def _lost(self, look: BoxLook) -> dict[str, str]:
        """Return which results the box has lost that never came home, and how."""
        found = {}
        for path, lost in look.lost.items():
            file = BoxFile(path, "", "", lost.state, "kept")
            if not look.given_up and not self.is_home(file):
                found[path] = lost_words(lost)
        return found

    def _check_size(self, files: Iterable[BoxFile]) -> None:
        sizes = {file.path: file.size for file in files}
        known = {*sizes, MANIFEST}  # and that is ours
        others = sum(one.home.size for path, one in self._record.files.items() if path not in known)
        paths = sizes.keys() | self._record.files.keys()
        if len(paths) > MOST_FILES:
            raise NotSafeError(
                f"the results are more than {MOST_FILES:,} files.", where=str(self._landing.place)
            )
        if has_more_folders(paths, MOST_FILES):
            raise NotSafeError(
                f"the results lie in more than {MOST_FILES:,} folders.",
                where=str(self._landing.place),
            )
        total = sum(sizes.values()) + others
        if total > self._most:
            raise NotSafeError(
                f"the results are {size(total)}, and {size(self._most)} are allowed.",
                where=str(self._landing.place),
                hint=f"To allow more: --max-size {-(-total // 10**9)}G",
            )

    def _expect(self, files: Sequence[BoxFile]) -> None:
        """Set the progress to expect these files, in this round and later ones."""
        progress = self._progress
        progress.files, progress.bytes = self._landed_files, self._landed_bytes
        progress.all_files = progress.files + len(files)
        progress.all_bytes = progress.bytes + sum(file.size for file in files)

    def _came(self, count: int) -> None:
        self.received += count
        self._progress.bytes += count
        if not count or time.monotonic() - self._told >= _EVERY_S:
            self._told = time.monotonic()
            self._tell(self._progress)

    def _take(
        self, source: ResultSource, files: Iterable[BoxFile], done: PullRound, *, live: bool
    ) -> None:
        """Pull these files. Raises NoRoom."""
        # A checkpoint lands in the order in which it was written: what names it comes last.
        files = sorted(files, key=lambda file: (file.checkpoint or file.path, file.modified))
        links = [file for file in files if file.to]
        wanted = [
            WantedFile(file, self._landing.begun(file.path, file.state, file.size))
            for file in files
            if not file.to
        ]
        self._progress.bytes += sum(at for _, at in wanted)
        self._came(0)
        if any(file.why for file in files):
            time.sleep(_TICK_S)  # a file written while it is read gets another time than it has now
        waiting: dict[BoxFile, Part | None] = {
            file: None for file in links if file.why or file.checkpoint
        }
        ready = [file for file in links if file not in waiting]
        full: NoRoom | None = None
        try:
            self._receive(source.get(wanted), waiting, done)
        except NoRoom as error:
            full = error
        self._came(0)
        broken = {file.unit for file in files if file not in waiting} if waiting else ()
        if waiting := {one: part for one, part in waiting.items() if one.unit not in broken}:
            look = self._second_look(source, waiting, live=live)
            ready += self._land_waiting(look, waiting, done)
        self._land_links(ready, done)
        if full is not None:
            raise full

    def _receive(self, came: Came, waiting: dict[BoxFile, Part | None], done: PullRound) -> None:
        """Land each file that comes, or let it wait. Raises NoRoom."""
        held = list[tuple[BoxFile, Part]]()  # to land with their folder
        aside, room = "", 0
        try:
            for file, partial in ResultReceiver(self._landing, self._came).receive(came):
                self._progress.files += 1
                before, aside = aside, "" if isinstance(partial, str) else partial.aside
                if aside != before or room < 0:
                    self._land_all(held, done)
                    room = _HELD
                if isinstance(partial, str):
                    done.missing[file.path] = partial
                elif file.why or file.checkpoint:
                    waiting[file] = partial
                elif aside:
                    held.append((file, partial))
                    room -= file.size + _LANDING
                else:
                    self._land(file, partial, done)
        finally:
            self._land_all(held, done)

    def _land_all(self, held: list[tuple[BoxFile, Part]], done: PullRound) -> None:
        files, held[:] = held[:], []
        for file, partial in files:
            self._land(file, partial, done)

    def _second_look(
        self, source: ResultSource, files: Iterable[BoxFile], *, live: bool
    ) -> BoxLook:
        """Look again, after the time that files read ahead must stay unchanged."""
        until = time.monotonic() + 2 * STOOD_S
        # Each look makes the box scan all its processes, so none is made that would be too early.
        seen = max((self._seen[file.path, file.state] for file in files if file.why), default=0.0)
        time.sleep(max(0.0, seen + source.stood_s - time.monotonic()))
        while True:
            look = source.look(live=live)
            waits = any(file.why and look.files.get(file.path) == file for file in files)
            if not waits or time.monotonic() > until:
                return look
            time.sleep(_LOOK_S)

    def _land_waiting(
        self, look: BoxLook, files: Mapping[BoxFile, Part | None], done: PullRound
    ) -> list[BoxFile]:
        """Land files that are complete and unchanged, and whose checkpoint is unchanged too; return
        such links."""
        before, now = _checkpoints(done.look), _checkpoints(look)
        links = []
        for file, partial in files.items():
            is_whole = look.files.get(file.path) == file._replace(why="")
            if not is_whole or before.get(file.checkpoint) != now.get(file.checkpoint):
                done.missing[file.path] = "changed"
            elif partial:
                self._land(file, partial, done)
            else:
                links.append(file)
        return links

    def _land_links(self, links: Sequence[BoxFile], done: PullRound) -> None:
        """Land each link after all of what it leads to, so that none is followed. Raises NoRoom."""
        if not links:
            return
        plain = [path for path, file in done.look.files.items() if not file.to]
        wait = with_folders(path for path in plain if done.may_come(path))
        here = with_folders(
            path
            for path in plain
            if path not in done.missing and self._record.files[path].place == path
        )
        for file in links:
            if file.to in here and file.to not in wait:
                try:
                    self._land(file, self._landing.link(file.path, file.to), done)
                except OSError as error:
                    done.missing[file.path] = file_error(error)
            else:
                done.missing[file.path] = "later" if file.to in wait else "led"

    def _land(self, file: BoxFile, partial: Part, done: PullRound) -> None:
        """Give a file its name and record it. Raises NoRoom."""
        path, record = file.path, self._record
        try:
            place, home = self._landing.land(path, partial, record.ours, record.will_replace)
            if home is None:
                return
            record.add(path, PulledFile(file.state, partial.sha256, place, home, file.to))
        except OSError as error:
            done.missing[path] = file_error(error)
        except NotSafeError as error:
            done.missing[path] = error.what
        else:
            done.landed.add(path)
            self._landed_files += 1
            self._landed_bytes += file.size
            done.missing.pop(path, None)
            self._landed(file, place)


def lost_words(lost: LostResult) -> str:
    """Return in words what became of a result that the box has no more."""
    return f"was overwritten by {shown(lost.by)}" if lost.why == "by" else _LOST[lost.why]


def _checkpoints(look: BoxLook) -> dict[str, set[tuple[object, ...]]]:
    found: dict[str, set[tuple[object, ...]]] = {}
    for file in look.files.values():
        if file.checkpoint:
            found.setdefault(file.checkpoint, set()).add((file.path, file.state))
    return found
