"""One look at a box's results, and all of it that is complete and not here yet, brought here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bootstrap.box.transfer.complete_files import MOST_FILES
from bootstrap.errors import NotSafeError
from bootstrap.protocol.results import BegunFile, BoxFile, BoxLook, GivenFile, WantedFile
from bootstrap.repo.names import shown
from bootstrap.text.sizes import size as shown_size
from bootstrap.transfer.landing import Landing
from bootstrap.transfer.names import why_refused
from bootstrap.transfer.outgoing import PushProgress
from bootstrap.transfer.partial import PartialFile
from bootstrap.transfer.pulled import PulledFile, PulledRecord
from bootstrap.transfer.receive import NoRoom, ResultReceiver, of_this_file

_EVERY_S = 0.1
"""Between two reports of progress."""
WAITS = {
    "young": "was written to a moment ago",
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
    "outside": "is a link that leads out of the results, or nowhere",
    "unreadable": "may not be read on the box",
    "name": "has a name that is no UTF-8",
    "many": "is one of too many files",
}
"""Why something is not here, in words."""
NOTHING = {"special": "is no plain file", "missing": "is not on the box"}
"""What has no content that could come."""


class ResultSource(Protocol):
    """Where results come from: `BoxResults`."""

    def look(self, *, live: bool) -> BoxLook:
        """What is there now."""

    def get(
        self, wanted: Sequence[WantedFile]
    ) -> Iterator[tuple[WantedFile, bytes | BegunFile | GivenFile]]:
        """The files, one after the other."""


@dataclass
class PullRound:
    """What one look found, and what came of it."""

    look: BoxLook
    landed: set[str] = field(default_factory=set)
    """What came; how it is called on the box."""
    missing: dict[str, str] = field(default_factory=dict)
    """What is not here: why, in words, or a word of `REASONS`."""

    @property
    def waits(self) -> bool:
        """Whether something may still come."""
        return any(map(self.may_come, self.missing))

    def may_come(self, path: str) -> bool:
        """Whether this may still come."""
        return self.missing[path] in WAITS or self.missing[path] == "damaged"

    def reasons(self) -> dict[str, str]:
        """What is not here, and why, as people read it; the names are safe to show."""
        missing = sorted(self.missing.items())
        return {shown(path): REASONS.get(why, why) for path, why in missing}


class Puller:
    """Brings one run's results into one folder here, round after round."""

    def __init__(
        self,
        landing: Landing,
        record: PulledRecord,
        *,
        most: int,
        tell: Callable[[PushProgress], None] = lambda _: None,
        landed: Callable[[BoxFile, str], None] = lambda *_: None,
    ) -> None:
        """`most`: bytes that the folder may come to hold; `landed` hears of each file that came,
        and where it lies."""
        self._landing, self._record, self._most = landing, record, most
        self._tell, self._landed = tell, landed
        self._told = 0.0
        self.received = 0
        """Bytes that came, of whatever became whole or not."""
        self.stopped = ""
        """Why nothing more can be written here."""

    def round(self, source: ResultSource, *, live: bool, at_once: int | None = None) -> PullRound:
        """Take what is complete; of more than `at_once` bytes the newest, the rest in later rounds.

        Raises NotSafeError where the box has more than is allowed, or sends more than it said; and
        as the source.

        A link that is lost costs what was on its way: the next round goes on.
        """
        self._landing.look_again()
        look = source.look(live=live)
        done = PullRound(look, missing={p: w for p, w in look.left.items() if w not in NOTHING})
        refused = {path: why for path in look.files if (why := why_refused(path))}
        done.missing.update(refused)
        files = [file for path, file in look.files.items() if path not in refused]
        self._check_size(files)
        wanted = [file for file in files if not self.is_home(file)]
        done.missing.update({file.path: file.why or "later" for file in wanted})
        complete = _newest([file for file in wanted if not file.why], at_once)
        self._landing.forget_others([(file.path, file.state) for file in wanted])
        try:
            if complete:
                self._take(source, complete, done, live=live)
        except NoRoom as full:
            self.stopped = str(full)
            left = {file.path for file in complete} - done.landed
            done.missing.update(dict.fromkeys(left, self.stopped))
        return done

    def is_home(self, file: BoxFile) -> bool:
        """Whether the file lies here as it is there. Nothing is read for that."""
        one = self._record.files.get(file.path)
        return (
            one is not None
            and one.state == file.state
            and self._landing.look(one.place) == one.home
        )

    def _check_size(self, files: Iterable[BoxFile]) -> None:
        sizes = {file.path: file.size for file in files}
        others = sum(one.home.size for path, one in self._record.files.items() if path not in sizes)
        if len(sizes.keys() | self._record.files.keys()) > MOST_FILES:
            raise NotSafeError(
                f"the results are more than {MOST_FILES:,} files.", where=str(self._landing.place)
            )
        if _more_folders({*sizes, *self._record.files}, MOST_FILES):
            raise NotSafeError(
                f"the results lie in more than {MOST_FILES:,} folders.",
                where=str(self._landing.place),
            )
        total = sum(sizes.values()) + others
        if total > self._most:
            raise NotSafeError(
                f"the results are {shown_size(total)}, and {shown_size(self._most)} are allowed.",
                where=str(self._landing.place),
                hint=f"To allow more: --max-size {-(-total // 10**9)}G",
            )

    def _take(
        self, source: ResultSource, files: Iterable[BoxFile], done: PullRound, *, live: bool
    ) -> None:
        """Raises NoRoom."""
        files = sorted(files, key=lambda file: (file.checkpoint or file.path, file.path))
        wanted = [
            WantedFile(file, self._landing.begun(file.path, file.state, file.size))
            for file in files
        ]
        progress = PushProgress(
            all_files=len(files),
            bytes=sum(at for _, at in wanted),
            all_bytes=sum(file.size for file in files),
        )

        def came(count: int) -> None:
            self.received += count
            progress.bytes += count
            if not count or time.monotonic() - self._told >= _EVERY_S:
                self._told = time.monotonic()
                self._tell(progress)

        came(0)
        together: list[tuple[BoxFile, PartialFile]] = []
        broken: set[str] = set()
        for file, partial in ResultReceiver(self._landing, came).receive(source.get(wanted)):
            progress.files += 1
            if isinstance(partial, str):
                done.missing[file.path] = partial
                broken.add(file.checkpoint)
            elif file.checkpoint:
                together.append((file, partial))
            else:
                self._land(file, partial, done)
        came(0)
        together = [one for one in together if one[0].checkpoint not in broken]
        if together:
            self._land_checkpoints(source.look(live=live), together, done)

    def _land_checkpoints(
        self, look: BoxLook, files: Sequence[tuple[BoxFile, PartialFile]], done: PullRound
    ) -> None:
        """Those that still stand there as they were when their first file was read."""
        before, now = _checkpoints(done.look), _checkpoints(look)
        for file, partial in files:
            if before[file.checkpoint] == now.get(file.checkpoint):
                self._land(file, partial, done)
            else:
                done.missing[file.path] = "changed"

    def _land(self, file: BoxFile, partial: PartialFile, done: PullRound) -> None:
        """Raises NoRoom."""
        path, record = file.path, self._record
        try:
            place = self._landing.land(
                path,
                partial,
                lambda place: record.ours(path, place),
                lambda place: record.will_replace(path, partial.sha256, place),
            )
            home = self._landing.look(place)
            if home is None:
                return
            record.add(path, PulledFile(file.state, partial.sha256, place, home))
        except OSError as error:
            done.missing[path] = of_this_file(error)
        except NotSafeError as error:
            done.missing[path] = error.what
        else:
            done.landed.add(path)
            done.missing.pop(path, None)
            self._landed(file, place)


def _more_folders(paths: Iterable[str], most: int) -> bool:
    """Whether these lie in more folders than that: each takes room, and no size tells of it."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
        if len(found) > most:
            return True
    return False


def _newest(files: Sequence[BoxFile], at_once: int | None) -> Sequence[BoxFile]:
    """As many as are not more than so many bytes, but at least one; checkpoints as a whole."""
    if at_once is None or sum(file.size for file in files) <= at_once:
        return files
    units: dict[str, list[BoxFile]] = {}
    for file in sorted(files, key=lambda file: file.modified, reverse=True):
        units.setdefault(file.checkpoint or f"/{file.path}", []).append(file)
    taken: list[BoxFile] = []
    for unit in units.values():
        at_once -= sum(file.size for file in unit)
        if taken and at_once < 0:
            break
        taken += unit
    return taken


def _checkpoints(look: BoxLook) -> dict[str, set[BoxFile]]:
    found: dict[str, set[BoxFile]] = {}
    for file in look.files.values():
        if file.checkpoint:
            found.setdefault(file.checkpoint, set()).add(file)
    return found
