"""A run that ended early continues as a new one, in the same tree, with the command in its
`resume`.

`onbox runs.resume BOX_HOME REQUEST`: a document of JSON with `key` and `name` of the run, the `id`
of the new one, seconds to wait for the box, `wait_s`, and whether to `overwrite` results that are
not home. Lines are printed, a word, a tab and a value: `run`, `started` and `command` of the new
one, or `refused` and why (`why_not`; busy, results), `log`; at last `over`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from ..results.keep_results import remove
from ..run_folder import DIED, QUEUED, RUNNING, WAITING, RunFolder, names_in, runs_below
from ..run_queue import last_of, revive
from .new_run import ALWAYS, IF_ASKED, NotStartedError, clean_environment, start, with_id, write


def why_not(run: RunFolder) -> str:
    """Say why it can't continue: alive, over, nodes (it is one of several), unknown (how), held
    (its tree), changed (its tree); "" if it can."""
    state = run.state()
    if state in (RUNNING, QUEUED, WAITING):
        return "alive"
    if state == "finished 0" and not is_interrupted(run):
        return "over"
    if run.has("nodes") or not run.has("resume"):
        return "nodes" if run.has("nodes") else "unknown"
    # Its environment may be in use: it stays as it is.
    if any(_holds(one, run.first("dir"), run.key) for one in runs_below(f"{run.home}/runs")):
        return "held"
    notes = RunFolder(f"{run.home}/steps/{run.key}")
    main, beside, number = run.first("dir").rpartition("@")
    is_beside = beside and main == notes.first("repo.dir")
    placed = notes.first(f"beside/{number}/placed/HEAD" if is_beside else "placed/HEAD")
    made = run.first("snapshot") or run.first("commit")
    return "changed" if placed and made and placed != made else ""


def _holds(run: RunFolder, tree: str, key: str) -> bool:
    """Whether a run is alive in this tree of a repository, or waits for its turn there."""
    place = run.first("dir")
    is_there = place == tree or run.key == key
    if "@" in os.path.basename(tree) + os.path.basename(place):
        is_there = os.path.realpath(place) == os.path.realpath(tree)
    # A run of the repository that is in no tree beside is in its folder.
    return is_there and not run.has("exit") and run.state() in (RUNNING, QUEUED)


def is_interrupted(run: RunFolder) -> bool:
    """Whether it ended because its box was to be taken away: it goes on once that is there."""
    return any(line.startswith("interrupted ") for line in run.lines("ended") or [])


def resume(run: RunFolder, again: str = "", *, overwrite: bool = False, patience: str = "") -> None:
    """Start the new run, under the id `again`. Raises NotStartedError, OSError."""
    kept = {*ALWAYS, *IF_ASKED, "edited", "made_of"} - {"id", "queue", "session", "command"}
    texts = {name: "\n".join(lines).rstrip("\n") for name in kept if (lines := run.lines(name))}
    texts["command"] = texts["resume"]
    texts["session"] = os.path.basename(run.path).rpartition("-")[0]
    texts["resumes"] = run.name
    if again:
        texts["id"] = again
    new = write(os.path.dirname(run.path), texts)
    results = [line for line in new.lines("results") or [] if line]
    start(new, results, overwrite=overwrite, patience=patience)


def died(home: str, key: str) -> list[RunFolder]:
    """Return the last started run of each tree, if it died or was interrupted and can continue."""
    last: dict[str, RunFolder] = {}
    for run in sorted(_runs_of(home, key), key=made_at):
        if run.has("pid"):
            last[run.first("dir")] = run
    gone = (run for run in last.values() if run.state() == DIED or is_interrupted(run))
    return [run for run in gone if not why_not(run)]


def last_died(home: str, key: str) -> bool:
    """Whether the newest run of this repository ended with the box, and not on its own. A run in a
    tree beside was not started by a setup."""
    runs = [run for run in _runs_of(home, key) if not run.first("dir").rpartition("@")[2].isdigit()]
    newest = max(runs, key=made_at, default=None)
    return newest is not None and (newest.state() == DIED or is_interrupted(newest))


def made_at(run: RunFolder) -> int:
    """When it was made; its folder's own time is its last write."""
    made = run.stat("started")
    return made.st_mtime_ns if made else 0


def _runs_of(home: str, key: str) -> Iterator[RunFolder]:
    runs = f"{home}/runs/{key}"
    return (RunFolder(f"{runs}/{name}") for name in names_in(runs))


def _answer(word: str, value: str = "") -> None:
    with suppress(BrokenPipeError):  # the link broke: the id shows what was started
        os.write(1, f"{word}\t{value}\n".encode("utf-8", "surrogateescape"))


def _take(run: RunFolder, asked: dict[str, str]) -> None:
    """Resume it, if nobody else is at work on the box."""
    with open(f"{run.home}/lock", "a", encoding="ascii") as lock:
        until = time.monotonic() + float(asked["wait_s"])
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > until:
                return _answer("refused", "busy")
            time.sleep(0.1)
        if _started(asked):
            return None
        run = last_of(run)
        while run.state() == WAITING and run.has(
            "resumes"
        ):  # it was made, and could not be started
            before = f"{run.home}/runs/{run.first('resumes')}"
            remove(run.path)
            run = RunFolder(before)
        why = why_not(run)
        if why:
            _answer("last", os.path.basename(run.path))
            return _answer("refused", why)
        try:
            resume(run, asked["id"], overwrite=bool(asked["overwrite"]))
        except (NotStartedError, OSError) as error:
            if isinstance(error, NotStartedError) and error.code == "results-unsafe":
                _answer("refused", "results")
            _answer("log", str(error)[:500].replace("\n", " "))
        return None


def _started(asked: dict[str, str]) -> RunFolder | None:
    """Return the run that was started under this id; one that was only made is removed."""
    run = with_id(asked)
    return run if run and run.state() != WAITING else None


def main() -> None:
    home, asked = sys.argv[1], json.loads(sys.argv[2])
    asked["home"] = home
    os.umask(0o022)
    clean_environment(home)
    signal.signal(signal.SIGHUP, lambda *_: None)
    if not _started(asked):
        _take(RunFolder(f"{home}/runs/{asked['key']}/{asked['name']}"), asked)
        revive(home, f"{home}/env")
    if run := _started(asked):
        _answer("run", os.path.basename(run.path))
        _answer("started", run.first("started"))
        _answer("command", run.first("command"))
    _answer("over")
