"""The folder of a run, and the run's state, which is decided here alone.

What each of its files is, `docs/architecture.md` says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from .processes import is_alive

MOST_ENDS = 8
"""At most so many failed runs (the newest) with their log's end, and others with their metric."""
END_BYTES = 6000
"""For each run: enough for the tracebacks of some ranks; all of them fit in two round trips."""

WAITING, QUEUED, RUNNING, FINISHED, DIED = "waiting", "queued", "running", "finished", "died"


def decide_state(
    pid: Sequence[str] | None, exit_code: str | None, *, queued: bool, lives: bool
) -> str:
    """Return a run's state, by its files (None: there is no such file), and whether its runner or
    its command `lives`: died is what was begun and left no exit code; queued waits for its turn;
    waiting was created and never begun."""
    if exit_code is not None:
        return f"{FINISHED} {exit_code}".rstrip()
    if pid is None:
        return QUEUED if queued else WAITING
    return RUNNING if lives else DIED


class RunFolder:
    """The folder of one run. A file that can't be read is one that isn't there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @property
    def home(self) -> str:
        """boxstrap's folder on the box."""
        return self.path.rsplit("/", 3)[0]

    @property
    def key(self) -> str:
        """The repository's key on the box."""
        return self.name.partition("/")[0]

    @property
    def name(self) -> str:
        """REPO/NAME, as it is named on the box."""
        return "/".join(self.path.split("/")[-2:])

    def lines(self, name: str) -> list[str] | None:
        """Return the lines of one of its files; None if it isn't there."""
        try:
            with open(f"{self.path}/{name}", encoding="utf-8", errors="surrogateescape") as file:
                return file.read().split("\n")
        except OSError:
            return None

    def first(self, name: str) -> str:
        """Return the first line of one of its files; "" if it isn't there."""
        return (self.lines(name) or [""])[0]

    def has(self, name: str) -> bool:
        return os.path.exists(f"{self.path}/{name}")

    def stat(self, name: str) -> os.stat_result | None:
        """Return size and times of one of its files; None if it isn't there."""
        try:
            return os.stat(f"{self.path}/{name}")
        except OSError:
            return None

    @property
    def child(self) -> str:
        """The first process of its command, as it was recorded; "" before it began."""
        return [*(self.lines("pid") or []), "", ""][1]

    @property
    def grace(self) -> float:
        """For how many seconds its processes may go on once they are asked to end."""
        return float(self.first("grace") or 10)

    @property
    def times(self) -> list[tuple[int, int]]:
        """At which second its log was how long; the first says from where it is kept."""
        rows = (line.split() for line in self.lines("times") or [])
        return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2]

    def end(self, name: str, most: int) -> str:
        """Return the last bytes of one of its files; "" if it isn't there."""
        return end_of(f"{self.path}/{name}", most)

    def state(self, is_alive: Callable[[str], bool] = is_alive) -> str:
        """Return its state, a finished one with its exit code: `finished 0`."""
        pid = self.lines("pid")
        lives = not self.has("exit") and any(map(is_alive, filter(None, pid or [])))
        # Read last: it may have ended in between.
        code = self.first("exit") if not lives and self.has("exit") else None
        return decide_state(pid, code, queued=self.has("queue"), lives=lives)

    @property
    def is_running(self) -> bool:
        return self.state() == RUNNING

    @property
    def is_attended(self) -> bool:
        """Whether a process waits for its turn."""
        return is_alive(self.first("waiter"))


def runs_below(runs: str | os.PathLike[str]) -> list[RunFolder]:
    """Return the runs of a box, in order of their names."""
    found = []
    for key in names_in(os.fspath(runs)):
        folder = f"{os.fspath(runs)}/{key}"
        found += [RunFolder(f"{folder}/{name}") for name in names_in(folder)]
    return found


def live_runs(home: str) -> list[RunFolder]:
    """Return those that are alive, or wait for their turn."""
    runs = (run for run in runs_below(f"{home}/runs") if not run.has("exit"))
    return [run for run in runs if run.state() in (RUNNING, QUEUED)]


def is_in_tree(run: RunFolder, key: str, folder: str) -> bool:
    """Whether a run has this tree of a repository. One of the repository that is in no tree beside
    is in its folder."""
    place = run.first("dir")
    is_beside = "@" in os.path.basename(folder) + os.path.basename(place)
    is_same = not is_beside or os.path.realpath(place) == os.path.realpath(folder)
    return place == folder or (run.key == key and is_same)


def alive_in(home: str, key: str, folder: str) -> RunFolder | None:
    return next((run for run in live_runs(home) if is_in_tree(run, key, folder)), None)


def made_at(run: RunFolder) -> int:
    """When it was made; its folder's own time is its last write."""
    made = run.stat("started")
    return made.st_mtime_ns if made else 0


def names_in(folder: str) -> list[str]:
    """Return the names in a folder, sorted, hidden ones left out; none if it can't be read."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


def lines_of(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a file; none if it can't be read."""
    lines = RunFolder(os.path.dirname(path)).lines(os.path.basename(path)) or []
    return lines[:-1] if lines[-1:] == [""] else lines


def end_of(path: str | os.PathLike[str], most: int = 1 << 20) -> str:
    """Return the last bytes of a file; "" if it can't be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def write_whole(path: str | os.PathLike[str], text: str, mode: int = 0o666) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    new = f"{os.fspath(path)}.new.{os.getpid()}"
    try:
        to = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(to, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(new, path)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
        raise


def remove_file(path: str) -> None:
    """Remove a file, if it is there. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def note_end(run: RunFolder, why: str) -> None:
    """Write that a run was ended, unless its end is there. Raises OSError."""
    if not (run.has("exit") and run.has("ended")):
        with suppress(OSError):
            write_whole(f"{run.path}/ended", f"{why}\n")
    if not run.has("exit"):
        write_exit(run, "143")


def write_exit(run: RunFolder, code: str) -> None:
    """Write its exit code, into room that was reserved: the disk may be full. Raises OSError."""
    new = os.open(f"{run.path}/exit.new", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(new, f"{code}\n".encode())
    os.close(new)
    os.replace(f"{run.path}/exit.new", f"{run.path}/exit")


def secrets_of(home: str | os.PathLike[str]) -> dict[str, str]:
    """Return the secrets that a box keeps, by name; {} if it keeps none."""
    return dict(read_secrets(f"{os.fspath(home)}/secrets"))


def read_secrets(path: str) -> list[tuple[str, str]]:
    """Return the names and values in a file of them; `secrets.earlier` may have several of one."""
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return []
    pairs = (pair.partition("=") for pair in text.split("\0"))
    return [(name, value) for name, equals, value in pairs if equals]
