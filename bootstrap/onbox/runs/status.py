"""What is told of a box's runs, to a first look at it and to `status`, in lines of JSON.

Each line is an object with its `kind`. The details, for which a document of JSON asks, are the ends
of the logs of failed runs, the newest metric of others, where results are, trees beside, and what
the GPUs do. Its `redact` are names of secrets that are redacted here. Nothing is changed.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

from ..git import trees_beside, trees_of
from ..run_folder import (
    DIED,
    END_BYTES,
    FINISHED,
    MOST_ENDS,
    QUEUED,
    RUNNING,
    WAITING,
    RunFolder,
    is_in_tree,
    lines_of,
    read_secrets,
    runs_below,
)
from ..run_processes import is_since_restart, left_of
from ..short_program import run as run_program

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any

METRIC_BYTES = 16384
RESULTS_S, GPUS_S, TREES_S = 3, 5, 0.3
"""Seconds for looking: there may be very many files, and a driver may hang."""
FULL = 16 << 20
"""Bytes free with which a disk is full: log and results may have had no room."""
LONGEST = 3000
"""Characters of a command, and of other notes of a run."""
_PARTS = {"notice": "interrupted", "node": "nodes/about", "waits_for": "nodes/waits"}
_PARTS.update((name, name) for name in ("killed", "uploaded", "gpus", "commit", "work"))
_PARTS.update((name, name) for name in ("snapshot", "session", "command"))


class BoxRuns:
    """The runs of a box, and the state of each as it is found once."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.runs = [run for run in runs_below(f"{home}/runs") if run.has("command")]
        self.states = {run: run.state() for run in self.runs}
        begun = (run for run, state in self.states.items() if state != WAITING)
        self.resumed_by = {run.first("resumes"): os.path.basename(run.path) for run in begun}

    @property
    def running(self) -> list[RunFolder]:
        return [run for run, state in self.states.items() if state == RUNNING]

    def alive_in(self, key: str, folder: str) -> RunFolder | None:
        """Return the run that is alive in this tree or waits for its turn there."""
        live = (run for run, state in self.states.items() if state in (RUNNING, QUEUED))
        return next((run for run in live if is_in_tree(run, key, folder)), None)

    def newest(self, *, failed: bool) -> list[RunFolder]:
        """Return the newest of those that failed, or of those that are alive, ended well, or were
        stopped."""
        found = []
        for run, state in self.states.items():
            if state == DIED or state.startswith(FINISHED):
                is_fine = state == f"{FINISHED} 0" or run.first("ended") == "stop"
                if is_fine == failed:
                    continue
            elif failed or state != RUNNING:
                continue
            found.append((_number(run.first("started")) or 0, run.path, run))
        return [run for *_, run in sorted(found, reverse=True)[:MOST_ENDS]]


def run_document(run: RunFolder, state: str, resumed_by: str) -> dict[str, Any]:
    word, _, code = state.partition(" ")
    texts = {name: run.first(file)[:LONGEST] for name, file in _PARTS.items()}
    texts["resumed_by"] = resumed_by
    tree = os.path.basename(run.first("dir"))
    log, started = run.stat("log"), run.stat("started")
    begun, over = run.stat("pid"), run.stat("exit")
    left = len(left_of(run))
    return {
        "kind": "run",
        "run": run.name,
        **{name: text for name, text in texts.items() if text},
        "state": word,
        "rc": _number(code),
        "ended": run.first("ended") if over else "",
        "left": left,
        "started": _number(run.first("started")),
        "made_us": started.st_mtime_ns // 1000 if started else 0,
        "written": int(log.st_mtime) if log else 0,
        "log_bytes": log.st_size if log else 0,
        "log_kept": _number(run.first("times").partition(" ")[2]),
        "begun": int(begun.st_mtime) if begun else 0,
        "over": int(over.st_mtime) if over else 0,
        "tree": tree if "@" in tree else "",
        **({"queue": run.first("queue"), "attended": run.is_attended} if word == QUEUED else {}),
        "can_resume": word == DIED and run.has("resume") and not (resumed_by or left),
        "restarted": not (word == DIED and (run.has("left") or is_since_restart(run))),
    }


def box_document(runs: BoxRuns, key: str, folder: str) -> dict[str, Any]:
    """Return what is told of all of them together: which is alive in a repository's folder, and
    the secrets that the box keeps, by name, with their keyed fingerprints."""
    alive = runs.alive_in(key, folder) if key else None
    file = f"{runs.home}/secrets"
    told: dict[str, Any] = {"kind": "box", "alive": alive.name if alive else ""}
    try:
        since = os.stat(file).st_mtime_ns
    except OSError:
        return told
    ids = dict(line.split(" ", 1) for line in lines_of(f"{file}.ids") if " " in line)
    # Runs may have been started with other secrets than these.
    begun = [run.stat("pid") for run in runs.running]
    held, earlier = dict(read_secrets(file)), dict(read_secrets(f"{file}.earlier"))
    return {
        **told,
        "secrets": {name: ids.get(name, "") for name in (*held, *earlier)},
        "earlier": bool(earlier) or any(one and one.st_mtime_ns <= since for one in begun),
    }


def details(runs: BoxRuns, key: str, redact: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield what `status` asks beside."""
    if runs.runs:
        from ..metrics import newest, read_patterns  # slow to import
        from ..redact import redactor_of_box

        redactor = redactor_of_box(redact, runs.home)
    for run in runs.newest(failed=True):
        yield {"kind": "log", "run": run.name, "text": redactor.text(run.end("log", END_BYTES))}
    for run in runs.newest(failed=False):
        patterns = read_patterns("\n".join(run.lines("metrics") or []))
        line = newest(run.end("log", METRIC_BYTES), patterns)
        if line:
            yield {"kind": "metric", "run": run.name, "text": redactor.text(line)}
    yield from _within(RESULTS_S, _results(runs.home))
    if any(run.key == key for run in runs.runs):  # else nothing made any
        yield from _within(RESULTS_S, _risks(runs.home, key))
    yield from _trees(runs)
    for run in runs.running:
        if run.has("disk_low"):
            yield {"kind": "disk", "run": run.name, "text": run.end("disk_low", 4096)}
    for run in runs.newest(failed=True)[:1]:
        disk = os.statvfs(run.path)
        free, all_ = (count * disk.f_frsize for count in (disk.f_bavail, disk.f_blocks))
        if free < FULL:  # perhaps that is why
            yield {"kind": "disk", "run": run.name, "text": f"{free} {all_} -"}
    for run in runs.runs:
        failed = [line for line in run.lines("told") or [] if " failed " in line]
        if failed:
            yield {"kind": "untold", "run": run.name, "text": "\n".join(failed)[:2000]}
    said = dict(line.split(" ", 1) for line in lines_of(f"{runs.home}/gpu.said") if " " in line)
    if runs.running and said.get("gpus", "0") != "0":
        import site

        from .top_stream import sample_within  # it loads NVML, of the box's own packages

        site.main()
        yield {"kind": "gpus", "gpus": sample_within(GPUS_S).get("gpus", [])}


def _within(seconds: int, told: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield as much as the time is enough for."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield from told
    except TimeoutError:
        pass
    finally:
        signal.alarm(0)


def _results(home: str) -> Iterator[dict[str, Any]]:
    from ..results.keep_results import status

    for told in status(home):
        yield {"kind": "results", **told}


def _risks(home: str, key: str) -> Iterator[dict[str, Any]]:
    """Yield what goes with the box, of each tree of a repository."""
    from ..results.at_risk import Tree

    for tree in trees_of(home, [key]):
        with suppress(OSError):  # git can't tell: `down` says so
            for row in Tree(tree).risks():
                yield {**row, "tree": tree.path}


def _trees(runs: BoxRuns) -> Iterator[dict[str, Any]]:
    """Yield the trees beside the main ones: for each the last run made in it, and what would be
    free without it (see `disposable.size_of`), as far as a moment is enough."""
    trees = {}
    for tree in trees_beside(runs.home):
        # Not the folder's own time: it changes when a run ends.
        made = [
            (file.st_mtime_ns, run.name.partition("/")[2])
            for run in runs.runs
            if run.first("dir") == tree.path and (file := run.stat("command"))
        ]
        trees[tree.path] = {"key": tree.key, "last": max(made, default=(0, ""))[1]}
    sizes = {}
    if trees:
        words = ["timeout", str(TREES_S), "sh", "-c", _OWN_KIB, "sh"]
        with suppress(OSError):
            said = run_program([*words, *trees], os.environ)
            rows = (line.split("\t", 1) for line in os.fsdecode(said.output).splitlines())
            sizes = {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}
    for path, about in trees.items():
        yield {"kind": "tree", "name": os.path.basename(path), **about, "kib": sizes.get(path)}


_OWN_KIB = r"""
for tree; do
  own=$(find "$tree" ! -type d -links 1 -printf '%b\n' |
    awk '{n += $1} END {if (NR) print int(n / 2)}')
  printf '%s\t%s\n' "$own" "$tree"
done"""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def tell(home: str, key: str, folder: str, asked: str) -> None:
    runs = BoxRuns(home)
    by = runs.resumed_by
    told = [run_document(run, state, by.get(run.name, "")) for run, state in runs.states.items()]
    box = box_document(runs, key, folder)
    kept = box.get("secrets", ())  # a machine of the user's that gave none names none
    more = details(runs, key, {*json.loads(asked)["redact"], *kept}) if asked else ()
    for document in (*told, box, *more):
        os.write(1, f"{json.dumps(document)}\n".encode())
