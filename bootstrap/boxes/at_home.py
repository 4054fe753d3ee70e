"""A run at home: what this machine has of a run that is, or was, on a box.

    STATE/runs/DIGEST.json           one for each run: what is known of it, and where the rest is
    …/boxstrap-results/BOX/RUN/      its results, as pulls put them there, and beside them
        boxstrap-run/run.json        the same as in the state folder, for people
        boxstrap-run/log             its log, from which the box dropped parts perhaps
        boxstrap-run/times, samples  when the log had which length; what GPUs and machine did
        boxstrap-run/history.json    what a report is made of

Only the state folder is trusted: a cloned repository may have any file. The log has the bytes that
the program wrote, except secrets, so whoever shows it sanitizes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from bootstrap.boxes.run import STATES, WORDS, Run, Uploaded, is_name
from bootstrap.errors import UsageError
from bootstrap.link.exchange import answer_number, valid_time
from bootstrap.paths import is_sound, kept_record, state_dir, write_private
from bootstrap.repo.local import current, known_folder
from bootstrap.repo.place import locate, repository_root
from bootstrap.sizes import size as size_in_words
from bootstrap.transfer.destination import Destination, LocalFolder
from bootstrap.value import dataclass, replace

if TYPE_CHECKING:
    from bootstrap.boxes.run_history import RunHistory
    from bootstrap.link.record import KnownBox


VERSION = 1
LOG, TIMES, SAMPLES, HISTORY = "log", "times", "samples", "history.json"
SEEN = "runs.json"  # in a box's folder: its runs as of the last contact
_THERE, _METRIC = "results", "metric"  # in a run's row there: where its results are, and that line
MOST_FILE = 16 * 1024 * 1024
_MOST_LOG = 1 << 60
_RESULTS = ("home", "partly", "none")
_VOLATILE = ("written", "log_bytes", "log_kept")  # what changes all the time while a run is alive


@dataclass(frozen=True)
class LogPart:
    """What of a log is asked for: lines that match, the last ones of them, until a second."""

    until: int | None = None  # of the box's clock
    lines: int | None = None
    pattern: str = ""  # an extended regular expression, as grep's

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == WHOLE


WHOLE = LogPart()


@dataclass(frozen=True)
class RunAtHome:
    """What this machine knows and has of one run. `place` is "" if only its box was asked."""

    box: str
    created: float  # when the box was first met: tells boxes of the same name apart
    host: str
    run: Run  # as the box reported it last. Times are the box's.
    key: str = ""  # the repository's key on this machine; "" if unknown
    seen: float = 0.0  # when the box was asked, on this machine's clock
    box_time: int = 0  # the same moment on the box's clock
    price: float = 0.0
    place: str = ""  # the folder with its log
    log: tuple[tuple[int, int], ...] = ()
    """The parts of the log that are here: position of the first byte on the box, and size."""
    log_end: int = 0  # how long the log was on the box
    metric: str = ""  # the newest line with a metric
    results: str = ""  # `home`, `partly`, `none`; "" if they were not pulled
    result_files: int = 0
    result_bytes: int = 0
    result_place: str = ""
    results_there: str = ""
    """Where they were when the box was asked last, see `ResultsThere`; "" if unknown."""
    profile: str = ""  # the digest of its settings from its profile

    @property
    def id(self) -> str:
        """The name of its file in the state folder."""
        return run_id(self.box, self.created, self.run)

    @property
    def repository(self) -> str:
        return self.run.repo_key

    @property
    def came(self) -> str:
        """As `results`; "" too if none was there yet when they were pulled."""
        return self.results if self.results != "partly" or self.result_files else ""

    @property
    def log_bytes(self) -> int:
        return sum(size for _, size in self.log)

    @property
    def dropped(self) -> int:
        """How many bytes of the log are missing here: the box, or a limit, dropped them."""
        return self.log_end - self.log_bytes

    def now(self, here: float) -> float:
        """Return the moment `here` of this machine's clock as its box's clock shows it."""
        return here + (self.box_time - self.seen if self.box_time and self.seen else 0)

    def is_here(self) -> bool:
        """Whether its log and record are still where they were put."""
        try:
            return bool(self.place) and (Path(self.place) / LOG).stat().st_size == self.log_bytes
        except OSError:
            return False

    def is_whole(self, now: Run) -> bool:
        """Whether all that the box now tells of the run is here, and will not change."""
        same = all(getattr(self.run, name) == getattr(now, name) for name in _SAME)
        return not now.goes_on and not now.left and same and self.log_end >= now.log_bytes

    def pieces(self, since: int | None = None, part: LogPart = WHOLE) -> Iterator[bytes]:
        """Yield its log; `since`: what was written since that second of the box's clock."""
        from bootstrap.onbox.runs.logs import LogFile  # late: few commands show it

        with self._opened(LOG) as file:
            log = LogFile(file, [(second, self._here(size)) for second, size in self._times()])
            start = 0 if since is None else log.written_since(since)
            yield from log.part({**vars(part), "start": start})

    def log_tail(self, most: int) -> bytes:
        with contextlib.suppress(UsageError), self._opened(LOG) as file:
            file.seek(max(0, self.log_bytes - most))
            return bytes(file.read(most))
        return b""

    def lines(self) -> list[str]:
        less = f"; {size_in_words(self.dropped)} more were dropped" if self.dropped else ""
        return [f"  its log ({size_in_words(self.log_bytes)}{less}) and record in {self.place}"]

    def has_times(self) -> bool:
        """Whether it is known when its log had which length."""
        return (Path(self.place) / TIMES).is_file()

    def history(self) -> RunHistory | None:
        """Return what a report is made of; None if it is not here, or damaged."""
        from bootstrap.boxes.run_history import RunHistory

        try:
            with PullPlace.again(Path(self.place)).open(HISTORY) as file:
                return RunHistory.model_validate_json(file.read(MOST_FILE))
        except (OSError, ValueError, RecursionError):
            return None

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        try:
            opened = PullPlace.again(Path(self.place)).open(name)
        except OSError as error:
            raise UsageError(
                f"the {name} of {self.run.name} is not at its place any more: {error.strerror}.",
                where=self.place,
                hint=f"It was brought there from {self.box}, and moved or removed since.",
            ) from None
        with opened as file:
            yield file

    def _times(self) -> list[tuple[int, int]]:
        """Return seconds of the box's clock, and how long the log was then; [] if unknown."""
        try:
            with PullPlace.again(Path(self.place)).open(TIMES) as times:
                rows = clean_times(times.read(MOST_FILE)).splitlines()
        except OSError:
            return []
        return [(int(second), int(size)) for second, size in map(str.split, rows)]

    def _here(self, on_box: int) -> int:
        """Return the place in the file here of a byte of the box's log."""
        before = 0
        for start, size in self.log:
            if on_box < start + size:
                return before + max(0, on_box - start)
            before += size
        return before

    def save(self) -> None:
        """Write what is known of it into the state folder. Raises OSError."""
        write_private(_folder() / f"{self.id}.json", self.text())

    def text(self, notes: Mapping[str, str] | None = None) -> str:
        """Return what is saved; `notes` are for people."""
        values = {name: value for name, value in vars(self).items() if name != "run"}
        document = {"v": VERSION, **values, "run": row_of(self.run)}
        return json.dumps({**document, **({"notes": notes} if notes else {})}, indent=1) + "\n"


_SAME = ("state", "rc", "ended", "begun", "over", "started")


def run_id(box: str, created: float, run: Run) -> str:
    """Return a name for a run that no other run of any box has."""
    words = "\0".join([box, f"{created:.6f}", run.repo_key, run.name, str(run.started)])
    return hashlib.sha256(words.encode()).hexdigest()[:24]


def find_kept(box: KnownBox, run: Run) -> RunAtHome | None:
    return _load(_folder() / f"{run_id(box.name, box.created, run)}.json")


def note_name(box: KnownBox, now: KnownBox) -> None:
    """Note that the box is known as `now`: what came home from it stays its own."""
    for one in all_kept():
        if (one.box, one.created) == (box.name, box.created):
            with contextlib.suppress(OSError):
                replace(one, box=now.name, created=now.created).save()
                (_folder() / f"{one.id}.json").unlink()
            with contextlib.suppress(OSError):
                file = Path(one.place or _folder(), "run.json")
                if getattr(read_kept(row := kept_record(file)), "id", "") == one.id:
                    row |= {"box": now.name, "created": now.created}
                    write_private(file, json.dumps(row, indent=1) + "\n")


def all_kept() -> list[RunAtHome]:
    """Return every run of which something is here, the newest first."""
    with contextlib.suppress(OSError):
        found = (one for one in map(_load, _folder().glob("*.json")) if one)
        return sorted(found, key=order, reverse=True)
    return []


def unreadable_records() -> list[Path]:
    """Return the files that say nothing of a run: damaged, or a newer program's."""
    return sorted(file for file in _folder().glob("*.json") if not _load(file))


def kept_of_repository(
    found: Iterable[RunAtHome], key: str, boxes: Iterable[KnownBox] = ()
) -> list[RunAtHome]:
    """Return the runs of a repository here; of `boxes` also those of clones that share its folder
    there."""
    own = {
        (box.name, box.created, theirs)
        for box in boxes
        for mine, theirs in _keys_in(_read_seen(box.folder / SEEN))
        if mine == key
    }
    return [
        one
        for one in found
        if key
        and ((one.key or one.repository) == key or (one.box, one.created, one.repository) in own)
    ]


def order(kept: RunAtHome) -> tuple[int, int, int]:
    return kept.run.begun or kept.run.started, kept.run.started, kept.run.number


def _folder() -> Path:
    return state_dir() / "runs"


def _load(file: Path) -> RunAtHome | None:
    """Return the run, with its places where its repository is now."""
    kept = read_kept(kept_record(file))
    if kept is None:
        return None
    place, result_place = (
        each and str(PullPlace.again(Path(each), kept.key).path)
        for each in (kept.place, kept.result_place)
    )
    return replace(kept, place=place, result_place=result_place)


_DEFAULT = RunAtHome("", 0.0, "", Run("", "", "waiting", None, 0, "", "", "", 0, 0, ""))


def read_kept(row: object) -> RunAtHome | None:
    """Read a run with defaults for what is missing; None if it is damaged, or a newer program's."""
    if not isinstance(row, dict) or row.get("v", VERSION) != VERSION:
        return None
    run = run_of(row.get("run"))
    parts = row.get("log")
    if run is None:
        return None
    log = (
        tuple(
            (start, size)
            for start, size in (one for one in parts if isinstance(one, list) and len(one) == 2)
            if type(start) is type(size) is int
            and 0 <= min(start, size) <= start + size < _MOST_LOG
        )
        if isinstance(parts, list)
        else ()
    )
    given = {name: _like(row.get(name), default) for name, default in vars(_DEFAULT).items()}
    results = given["results"] if given["results"] in _RESULTS else ""
    return RunAtHome(**{**given, "run": run, "log": log, "results": results})


def row_of(run: Run) -> dict[str, object]:
    return {**vars(run), "uploaded": run.uploaded and [*run.uploaded]}


_TIMES = ("started", "begun", "over", "written")


def run_of(row: object) -> Run | None:
    """Return the run that was saved; None if it is damaged."""
    if not isinstance(row, dict):
        return None
    default = vars(_DEFAULT.run)
    fields = {name: _like(row.get(name), value) for name, value in default.items()}
    uploaded, rc = row.get("uploaded"), row.get("rc")
    for name in _TIMES:
        fields[name] = valid_time(fields[name])
    for name, form in WORDS.items():
        fields[name] = fields[name] if form.fullmatch(fields[name]) else ""
    fields["rc"] = rc if type(rc) is int else None
    told: list[Any] = uploaded if isinstance(uploaded, list) else []
    is_sound = [*map(type, told)] in [[str, int, int, int, why, str] for why in (str, type(None))]
    fields["uploaded"] = Uploaded(*told)._replace(why=told[4] or None) if is_sound else None
    run = Run(**fields)
    return run if run.state in STATES and is_name(run.name) and is_name(run.repo_key) else None


def _like(value: object, default: object) -> Any:  # noqa: ANN401 - of the field's type
    return value if is_sound(value, default) else default


def note_seen(  # noqa: PLR0913 - one value for each thing that is noted
    box: KnownBox,
    runs: Sequence[Run],
    redact: Callable[[str], str],
    *,
    keys: Mapping[str, str] = MappingProxyType({}),
    box_time: int = 0,
    every: bool = False,
    results: Mapping[str, str] = MappingProxyType({}),
    metrics: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Note runs of a box as of this contact, for `runs`; `every`: the box has no others.

    `keys`: the box's keys for repositories, by their keys here. `results`: where they are (see
    `ResultsThere`), and the newest `metrics`, by `KEY/NAME`; what was noted of others stays. If it
    can't be written, nothing is noted.
    """
    file = box.folder / SEEN
    new = {run_id("", 0.0, run): _seen_row(run, redact) for run in runs}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        before = _read_seen(file)
        rows = before.get("runs", {})
        for run in runs:
            key = run_id("", 0.0, run)
            for name, told in ((_THERE, results), (_METRIC, metrics)):
                new[key][name] = told.get(run.path, rows.get(key, {}).get(name, ""))
        known = {**before.get("keys", {}), **keys}
        seen = here = time.time()
        times = {"box_time": box_time or int(here), "noted": here}
        document = {"v": VERSION, **times, "keys": known, "runs": new}
        if before and not every:
            seen = file.stat().st_mtime
            new = {key: {**row, **times} for key, row in new.items()}
            document = {**before, "keys": known, "runs": {**rows, **new}}
        if not every or (rows, before.get("keys")) != (json.loads(json.dumps(new)), known):
            write_private(file, json.dumps(document) + "\n", make_folder=False)
        os.utime(file, (seen, seen))  # when all were seen last


def _seen_row(run: Run, redact: Callable[[str], str]) -> dict[str, object]:
    volatile = dict.fromkeys(_VOLATILE if run.goes_on else (), 0)
    return {**row_of(run), **volatile, "command": redact(run.command)}


def last_met(box: KnownBox) -> float:
    """Return when a box was last spoken to, also over a connection that stayed open; 0: never."""
    return max([box.seen, *(one.seen for one in seen_on(box))])


def seen_on(box: KnownBox) -> list[RunAtHome]:
    """Return the runs of a box, live or gone, as of the last contact."""
    file = box.folder / SEEN
    document = _read_seen(file)
    mine = {own: key for key, own in _keys_in(document)}
    found = []
    rows = document.get("runs", {})
    looked = 0.0
    with contextlib.suppress(OSError):  # where nothing changed it is not written, but touched
        looked = file.stat().st_mtime
    for row in rows.values() if isinstance(rows, dict) else ():
        run = run_of(row)
        if run is None:
            continue
        noted, box_time = (
            _like(row.get(name), _like(document.get(name), default))
            for name, default in (("noted", box.seen), ("box_time", 0))
        )
        since = max(0.0, looked - noted)
        found.append(
            RunAtHome(
                box.name,
                box.created,
                box.host_text,
                run,
                key=mine.get(run.repo_key, ""),
                seen=noted + since,
                box_time=box_time + int(since),
                price=box.price,
                metric=_like(row.get(_METRIC), ""),
                results_there=_like(row.get(_THERE), ""),
            )
        )
    return found


def boxes_of(box: KnownBox, runs: Sequence[Run]) -> set[float]:
    """Return when boxes were first met from which one of these runs came home, if `box` itself
    was never asked for its runs."""
    if not runs or box.is_local or (box.folder / SEEN).exists():
        return set()
    there = {(one.repo_key, one.name, one.started) for one in runs}
    kept = ((one.created, (one.repository, one.run.name, one.run.started)) for one in all_kept())
    return {created for created, run in kept if run in there}


def _keys_in(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return keys of repositories here, each with the box's own."""
    keys = document.get("keys", {})
    pairs = keys.items() if isinstance(keys, dict) else ()
    return [(mine, own) for mine, own in pairs if isinstance(own, str)]


def _read_seen(file: Path) -> dict[str, Any]:
    document = kept_record(file)
    return document if document.get("v") == VERSION else {}


def clean_times(content: bytes) -> str:
    """Return the valid lines of `times`: a second and a position."""
    rows = (line.split() for line in content.split(b"\n"))
    pairs = ((answer_number(row[0]), answer_number(row[1])) for row in rows if len(row) == 2)
    return "".join(f"{a} {b}\n" for a, b in pairs if a is not None and b is not None)


FOLDER = "boxstrap-results"  # a folder in the repository; its content is never sent to a box


@dataclass(frozen=True)
class PullPlace:
    """A folder of the user's, and folders inside it that must not be links."""

    base: Path
    inside: tuple[str, ...] = ()

    @staticmethod
    def again(path: Path, key: str = "") -> PullPlace:
        """Return the place that has this `path`: what was no link then may have become one. It has
        moved with the repository of this `key`, if that was moved."""
        parts = path.parts
        at = max((at for at, part in enumerate(parts) if at and part == FOLDER), default=len(parts))
        place = PullPlace(Path(*parts[:at]), parts[at:])
        if key and place.inside and not path.exists() and (folder := known_folder(key, "")):
            moved = replace(place, base=folder.parent)
            return moved if moved.path.is_dir() else place
        return place

    def open(self, name: str) -> BinaryIO:
        """Open a plain file in it to read it; by no link. Raises OSError."""
        with LocalFolder(self.base, self.inside) as folder:
            return folder.open(name)

    @property
    def path(self) -> Path:
        return self.base.joinpath(*self.inside)

    def landing(self, run: str) -> Destination:
        """Open it, created if missing. Raises OSError, NotSafeError, BusyError."""
        self._ignore()
        return Destination(self.base, self.inside, run)

    def make(self) -> Path:
        """Return the folder, created if missing. Raises OSError, or NotSafeError at a link."""
        self._ignore()
        with LocalFolder(self.base, self.inside, make=True):
            return self.path

    def _ignore(self) -> None:
        if self.inside:
            with LocalFolder(self.base, self.inside[:1], make=True) as folder:
                folder.write_new(".gitignore", b"*\n")

    def record(self, box_folder: Path, run: Run) -> Path:
        """Return the file that records what pulls of this run put there: in a repository, wherever
        that stands, but apart for each of its worktrees."""
        where: tuple[str, ...] = (str(self.path),)
        with contextlib.suppress(UsageError):  # a `.git` that leads nowhere
            if self.inside:
                where = (current(self.base)[0], locate(self.base).git_dir.name, *self.inside)
        # Another working folder on the box has a run of the same name, perhaps.
        words = "\0".join([run.repo_key, run.name, str(run.started), *where])
        digest = hashlib.sha256(os.fsencode(words)).hexdigest()[:16]
        return box_folder / "pulls" / f"{run.name}-{digest}.jsonl"


def usual_place(run: Run, box: str, own: str, stood_in: Path, to: Path | None = None) -> PullPlace:
    """Return the folder `to`, else one in the run's repository. `stood_in` is in that with the key
    `own`; of another one that is not known here, a folder there has the key."""
    if to is not None:
        return PullPlace(to.absolute())
    of: tuple[str, ...] = ()
    if run.repo_key != own:
        git_dir = known_folder(run.repo_key, "")
        if git_dir and git_dir.name == ".git":
            stood_in = git_dir.parent
        else:
            of = (run.repo_key,)
    root = repository_root(stood_in) or stood_in
    return PullPlace(root.absolute(), (FOLDER, box, *of, run.name))


def results_place(
    box: KnownBox, run: Run, own: str, stood_in: Path, to: Path | None = None
) -> PullPlace:
    """Return where the run's results go: where they are, also if the box was renamed since."""
    usual, kept = usual_place(run, box.name, own, stood_in, to), find_kept(box, run)
    there = PullPlace.again(Path(kept.result_place or Path(kept.place).parent)) if kept else usual
    is_one = (there.base, there.inside[2:]) == (usual.base, usual.inside[2:])
    return there if is_one and there.path.is_dir() else usual
