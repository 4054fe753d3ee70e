"""The folder of a run: each of its files, and the run's state, which is decided here alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from .processes import is_alive

FILES = {
    "command": "what it runs",
    "work": "the digest of content, command and environment",
    "commit": "the commit of its files",
    "snapshot": "their snapshot",
    "tree": "its content",
    "dir": "the folder that it works in",
    "venv": "its environment",
    "data": "the content of its data",
    "made_of": "digests of environment, `env`, secrets",
    "session": "its tmux session",
    "id": "by which `run` asked for it",
    "gpus": "the GPUs that it was given; without it, all",
    "variables": "of its place among others",
    "started": "when it was made, seconds since 1970",
    "pid": "its runner and its command, a line each: number, start, boot",
    "log": "what it printed",
    "exit": "its exit code, once it is over",
    "exit.new": "room for that on a full disk",
    "ended": "what decided it: `exit 7`, `pipeline 1 0`, `stop`, `interrupted …`",
    "interrupted": "[by whom and when](runs.md#when-the-box-is-taken-away)",
    "on_notice": "the command for that",
    "kills": "the box's count of kills for memory when it started",
    "killed": "those since, with what is known of the last",
    "cgroup": "[that of its processes](adr/0020-a-run-is-all-of-its-processes.md), if it has one",
    "mark": "what its processes have in their environment",
    "left": "those that live on",
    "grace": "seconds that `stop` gives it",
    "log_max": "[its log's limit](adr/0049-a-log-with-holes.md) in bytes",
    "times": "when it was how long, and from where it is kept",
    "queue": "what it waits for",
    "waiter": "the process that waits",
    "resume": "the command that resumes it",
    "resumes": "the run that it resumes",
    "results": "paths below its tree",
    "results.before": "[what lay there when it began](adr/0067-a-runs-results-are-its-own.md)",
    "results.made": "what it made",
    "results.kept": "copies of that, made before a later run began there",
    "results.blocked": "why it can't begin yet: results of earlier runs",
    "results.home": "the digest of what a pull brought home",
    "results.given_up": "the run that may overwrite them",
    "results.without": "those that the user lets go of",
    "safe": "the digest of those that [are at home](lease.md#what-is-destroyed)",
    "results_to": "[their bucket](data.md#results-into-a-bucket)",
    "upload.json": "what is there",
    "upload.lock": "held by who uploads",
    "uploaded": "how far that is",
    "metrics": "patterns of the profile",
    "samples": "[what the monitor recorded](runs.md#what-gpu-and-machine-did)",
    "disk_low": "what it is told of a disk that will soon be full",
    "news": "[what there is to tell](runs.md#being-told)",
    "notify": "which of it the profile wants told",
    "notify_to": "who else is told: mode 0600, until the run is over",
    "told": "how that went",
    "nodes/": "[what it needs of the other nodes](adr/0076-nodes-hold-each-other.md): `watch.json`,"
    " `env`, `rank`, `about`, `code`, `waits`, `begun`, `over`, `output`",
}
"""What each of its files says; `docs/architecture.md` has the same list."""

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
        """Return whether one of its files is there."""
        return os.path.exists(f"{self.path}/{name}")

    def stat(self, name: str) -> os.stat_result | None:
        """Return size and times of one of its files; None if it isn't there."""
        try:
            return os.stat(f"{self.path}/{name}")
        except OSError:
            return None

    def end(self, name: str, most: int) -> str:
        """Return the last bytes of one of its files; "" if it isn't there."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return ""

    def state(self, is_alive: Callable[[str], bool] = is_alive) -> str:
        """Return its state, a finished one with its exit code: `finished 0`."""
        pid = self.lines("pid")
        lives = not self.has("exit") and any(map(is_alive, filter(None, pid or [])))
        # Read last: it may have ended in between.
        code = self.first("exit") if not lives and self.has("exit") else None
        return decide_state(pid, code, queued=self.has("queue"), lives=lives)

    @property
    def is_running(self) -> bool:
        """Whether it is at work."""
        return self.state() == RUNNING

    @property
    def left(self) -> int:
        """How many processes live on of those that it left."""
        return sum(map(is_alive, self.lines("left") or []))

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


def names_in(folder: str) -> list[str]:
    """Return the names in a folder, sorted, hidden ones left out; none if it can't be read."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


def lines_of(path: str) -> list[str]:
    """Return the lines of a file; none if it can't be read."""
    lines = RunFolder(os.path.dirname(path)).lines(os.path.basename(path)) or []
    return lines[:-1] if lines[-1:] == [""] else lines
