"""Print what a run left on its box, for `boxstrap report`: one JSON object on standard output.

`onbox report.run_history BOX_HOME REQUEST`: a document of JSON, whose `run` is KEY/NAME.
{"events": [line], "verdict": text, "samples": [line], "curves": [{name, axis, points: [[x, value]],
count, odd, least, most, last}], "read": bytes, "of": bytes, "lines", "changes": [text], "subject",
"edited": [path], "results": [[path, bytes]]}. `axis` is `step`, `epoch` or `seconds` since the run
started; `odd` is the position on it of the first value that isn't finite; the other three are
[x, value] as it was logged, which a point that stands for its neighbours is not.
"""

from __future__ import annotations

import json
import math
import os
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..git import BoxGit
from ..metrics import find_metrics, read_patterns
from ..results.run_results import Neighbours, RunResults, made_by
from ..run_folder import RunFolder, end_of
from ..step_report import question

MOST_POINTS = 1000
MOST_CURVES = 40
MOST_LOG = 6 * 1024 * 1024
"""Bytes of a log that are read; from a longer log, evenly spaced pieces are read."""
PIECE = 8 * 1024
MOST_RESULTS = 1000


class CurveReader:
    """The values of one metric; if there are too many, neighbours are averaged."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.odd: list[float] | None = None
        self.points: list[list[float]] = []
        self._each = 1
        self._sum: list[float] = []
        self._held = 0
        self._last: dict[str, float] = {}
        self._marks: dict[str, list[float]] = {}
        self.axes = {"step", "epoch"}

    def add(self, seconds: float, found: dict[str, float]) -> None:
        """Add a value; `found` has its step and epoch too, `seconds` is its time."""
        value = found[self.name]
        self.count += 1
        for axis in list(self.axes):
            # Values that are missing or restart each epoch make no axis. Ranks may share a step.
            at, last = found.get(axis, -1.0), self._last.get(axis, -0.5)
            if at < last or (axis == "epoch" and at == last):
                self.axes.discard(axis)
            self._last[axis] = at
        where = [seconds, found.get("step", 0.0), found.get("epoch", 0.0)]
        if not math.isfinite(value) or abs(value) > 1e299:
            self.odd = self.odd or where
            return
        here = [*where, value]
        if not self._marks or value < self._marks["least"][3]:
            self._marks["least"] = here
        if "most" not in self._marks or value > self._marks["most"][3]:
            self._marks["most"] = here
        self._marks["last"] = here
        self._sum = [a + b for a, b in zip(self._sum or [0.0] * 4, here)]  # noqa: B905
        self._held += 1
        if self._held == self._each:
            self.flush()

    def flush(self) -> None:
        """Make a point of the values held so far; merge points in pairs if there are too many."""
        if not self._held:
            return
        self.points.append([each / self._held for each in self._sum])
        self._sum, self._held = [], 0
        if len(self.points) >= 2 * MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2])  # noqa: B905
            self.points = [[(a + b) / 2 for a, b in zip(*pair)] for pair in pairs]  # noqa: B905
            self._each *= 2

    def as_dict(self) -> dict[str, Any]:
        self.flush()
        axis = next((one for one in ("step", "epoch") if one in self.axes), "seconds")
        at = ("seconds", "step", "epoch").index(axis)
        step = -(-len(self.points) // MOST_POINTS) or 1
        points = [[each[at], each[3]] for each in self.points[::step]]
        odd = self.odd and self.odd[at]
        marks = {name: [each[at], each[3]] for name, each in self._marks.items()}
        whole = {"name": self.name, "axis": axis, "points": points, "count": self.count, "odd": odd}
        return {**whole, **marks}


class LogTimes:
    """When a log had which length, by the index `times` next to it."""

    def __init__(self, run: Path) -> None:
        folder = RunFolder(run)
        pairs, begun = folder.times, folder.stat("pid")
        self.began = int(begun.st_mtime) if begun else 0
        self.kept = pairs[0][1] if pairs else 0
        self.seconds, self.sizes = [a for a, _ in pairs], [b for _, b in pairs]

    def at(self, byte: int) -> float:
        """Return when this byte was written, in seconds since the run started."""
        if not self.sizes:
            return 0.0
        here = min(bisect_left(self.sizes, byte), len(self.sizes) - 1)
        return max(0.0, float(self.seconds[here] - self.began))


def pieces(log: Path, kept: int) -> Iterator[tuple[int, bytes]]:
    """Yield the log, or the pieces of it that are read: offsets and whole lines."""
    size = log.stat().st_size
    count = max(1, MOST_LOG // PIECE)
    if size - kept <= MOST_LOG:
        places = [(kept, size - kept)]
    else:
        apart = (size - kept - PIECE) // (count - 1)
        places = [(kept + at * apart, PIECE) for at in range(count)]
    with log.open("rb") as opened:
        for at, length in places:
            opened.seek(at)
            piece = opened.read(length).replace(b"\r", b"\n")  # a progress bar's lines end so
            # A piece's first and last lines may be cut off.
            first = piece.find(b"\n") + 1 if at > kept else 0
            last = piece.rfind(b"\n") + 1 if at + length < size else len(piece)
            yield at + first, piece[first:last]


def curves_of(run: Path) -> dict[str, Any]:
    log, times = run / "log", LogTimes(run)
    patterns = read_patterns(end_of(run / "metrics"))
    curves: dict[str, CurveReader] = {}
    read = lines = 0
    try:
        for place, piece in pieces(log, times.kept):
            read, end = read + len(piece), place
            for line in piece.split(b"\n"):
                end += len(line) + 1
                lines += take_line(line, times.at(end), patterns, curves)
        size = log.stat().st_size - times.kept
    except OSError:
        size = read
    shown = [curve.as_dict() for curve in curves.values()]
    return {"curves": shown, "lines": lines, "read": read, "of": size}


def take_line(
    line: bytes, seconds: float, patterns: Sequence[Any], curves: dict[str, CurveReader]
) -> bool:
    """Take a line's metrics; return whether it has any."""
    found = find_metrics(line[-4096:].decode("utf-8", "replace"), patterns)
    for name in found:
        if name in ("step", "epoch"):
            continue
        if name not in curves:
            if len(curves) >= MOST_CURVES:
                continue
            curves[name] = CurveReader(name)
        curves[name].add(seconds, found)
    return bool(found)


def events_of(box_home: Path, key: str, started: float) -> list[str]:
    """Return the events of the repository's last setup before the run, which started it or
    prepared the box."""
    newest: tuple[float, list[str]] = (0.0, [])
    for file in box_home.glob("setups/*/events.jsonl"):
        if end_of(file.with_name("key")).strip() != key:
            continue
        lines = end_of(file).splitlines()
        try:
            began = float(json.loads(lines[0])["t"])
        except (IndexError, KeyError, TypeError, ValueError):
            continue
        if newest[0] < began <= started + 1:
            newest = began, lines
    return newest[1]


def samples_of(run: Path) -> list[str]:
    """Return the head of the samples, and no more rows than a plot can show."""
    head, *rows = end_of(run / "samples", 8 << 20).splitlines() or [""]
    return [head, *rows[:: -(-len(rows) // MOST_POINTS) or 1]]


def changes_of(box_home: Path, run: RunFolder) -> dict[str, Any]:
    """Return the commit's subject, and the changes of the snapshot on it: lines of `+ - path`."""
    git, subject, changes = BoxGit(f"{box_home}/store/{run.key}.git"), "", []
    commit = run.first("commit")
    with suppress(OSError):
        said = os.fsencode(git.ask("log", "-1", "--format=%s", commit, "--"))
        subject = said.decode("utf-8", "replace").strip()[:500]
        plain = ("--no-ext-diff", "--no-textconv", "--no-renames", "--numstat")
        rows = git.lines("diff", *plain, commit, run.first("snapshot") or commit, "--")
        changes = rows[:MOST_RESULTS]
    return {"subject": subject, "changes": changes}


def results_of(run: RunResults) -> list[tuple[str, int]]:
    """Return what it made, with its bytes: as recorded, or up to now."""
    made = run.made()
    if made is None:
        made = made_by(run, run.find(), Neighbours(run), live=True)
    return sorted((path, state.size) for path, state in made.items())[:MOST_RESULTS]


def main() -> None:
    home, asked = question()
    box_home = Path(home)
    run = box_home / "runs" / asked["run"]
    started = float((end_of(run / "started").split() or ["0"])[0])
    said = {
        "events": events_of(box_home, run.parent.name, started),
        "verdict": end_of(box_home / "gpu.json"),
        "samples": samples_of(run),
        "disk": end_of(run / "disk_low", 4096),
        "edited": end_of(run / "edited").splitlines()[:200],
        "results": results_of(RunResults(str(run))),
        **curves_of(run),
        **changes_of(box_home, RunFolder(run)),
    }
    sys.stdout.write(json.dumps(said) + "\n")
