"""A run that ended early continues as a new one, in the same tree, with the command in its
`resume`.

`onbox runs.resume BOX_HOME REQUEST`: a document of JSON with `key` and `name` of the run, the `id`
of the new one, seconds to wait for the box, `wait_s`, and whether to `overwrite` results that are
not home. Lines are printed, a word, a tab and a value: `run`, `started` and `command` of the new
one, or `refused` and why (`why_not`; busy, results), `log`; at last `over`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from ..results.copies import CantKeep
from ..results.put_back import changes
from ..results.run_results import RunResults
from ..run_folder import DIED, QUEUED, RUNNING, WAITING, RunFolder, alive_in, made_at, names_in
from ..run_processes import left_of
from ..run_queue import last_of, revive
from ..step_report import answer, question
from ..work.lock import take_lock
from ..work.repair import remove_folder
from .new_run import ALWAYS, IF_ASKED, NotStartedError, clean_environment, start, started, write


def why_not(run: RunFolder) -> str:
    """Say why it can't continue: alive, over, nodes (it is one of several), unknown (how), left
    (some of its processes), held (its tree), changed (its tree); "" if it can."""
    state = run.state()
    if state in (RUNNING, QUEUED, WAITING):
        return "alive"
    # One that was stopped saved its work, and says so.
    if state == "finished 0" and not (is_interrupted(run) or run.first("ended") == "stop"):
        return "over"
    if left_of(run):
        return "left"
    if run.has("nodes") or not run.has("resume"):
        return "nodes" if run.has("nodes") else "unknown"
    # Its environment may be in use: it stays as it is.
    if alive_in(run.home, run.key, run.first("dir")):
        return "held"
    notes = RunFolder(f"{run.home}/steps/{run.key}")
    main, beside, number = run.first("dir").rpartition("@")
    is_beside = beside and main == notes.first("repo.dir")
    placed = notes.first(f"beside/{number}/placed/HEAD" if is_beside else "placed/HEAD")
    made = run.first("snapshot") or run.first("commit")
    return "changed" if placed and made and placed != made else ""


def has_results(run: RunFolder) -> bool:
    """Whether what it made is on the box, in place or kept: later runs may have written there."""
    try:
        changes(RunResults(run.path))
    except CantKeep:
        return False
    return True


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


def _runs_of(home: str, key: str) -> Iterator[RunFolder]:
    runs = f"{home}/runs/{key}"
    return (RunFolder(f"{runs}/{name}") for name in names_in(runs))


def _take(run: RunFolder, asked: dict[str, str]) -> None:
    """Resume it, if nobody else is at work on the box."""
    lock = take_lock(run.home, float(asked["wait_s"]), lambda _: None)
    if lock is None:
        return answer("refused", "busy")
    with lock:
        if started(asked):
            return None
        run = last_of(run)
        while run.state() == WAITING and run.has(
            "resumes"
        ):  # it was made, and could not be started
            before = f"{run.home}/runs/{run.first('resumes')}"
            remove_folder(run.path)
            run = RunFolder(before)
        why = why_not(run) or ("" if has_results(run) else "overwritten")
        if why:
            answer("last", os.path.basename(run.path))
            return answer("refused", why)
        try:
            resume(run, asked["id"], overwrite=bool(asked["overwrite"]))
        except (NotStartedError, OSError) as error:
            if isinstance(error, NotStartedError) and error.code == "results-unsafe":
                answer("refused", "results")
            answer("log", str(error)[:500].replace("\n", " "))
        return None


def main() -> None:
    home, asked = question()
    asked["home"] = home
    os.umask(0o022)
    clean_environment(home)
    signal.signal(signal.SIGHUP, lambda *_: None)
    if not started(asked):
        _take(RunFolder(f"{home}/runs/{asked['key']}/{asked['name']}"), asked)
        revive(home)
    if run := started(asked):
        answer("run", os.path.basename(run.path))
        answer("started", run.first("started"))
        answer("command", run.first("command"))
    answer("over")
