"""What is told of a run while nobody watches it: found by the monitor, for each live run, once.

RUN/news has a line for each kind, `KIND SECONDS TEXT`: `loss` is the first metric in its log,
`stall` that neither its log nor its results grow, `disk` that its disk is low (`disk_watch.py`),
`lease` that its box's lease is about to end, `end` how it ended. `boxstrap wait` reads them.
`tell.py`, in a process of its own, sends them to the run's receivers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import MAIN
from ..metrics import find_metrics, read_patterns
from ..run_folder import DIED, RunFolder, lines_of
from .disk_watch import NAME as DISK_LOW
from .disk_watch import files_below, tree_of

NAME = "news"
KINDS = ("loss", "stall", "disk", "lease", "end")
OF_PROFILE, HANDED_OVER = "notify", "notify_to"
"""Of a run, if it has receivers: the kinds that its profile wants told, and what `wait --detach`
handed over."""
CALM_ENDS = ("it finished", "it was stopped")
"""How the texts of ends begin that need nobody: all others are urgent."""
STALL_S = 1800.0
LEASE_S = 900.0
"""Seconds before a lease ends, or the last fifth of a shorter one."""
LOOK_S, WALK_S = 300.0, 1.0
"""Seconds between two looks at the results of a silent run; one takes `WALK_S` at the most."""
PIECE = 64 * 1024
"""Bytes of a log that are read at a time: no more are needed, and it costs next to nothing."""
_NO_LOSS = ("lr", "learning_rate", "grad_norm", "step", "epoch")


_TIME = r"[0-9]{1,6} (?:s|min|h [0-9]{2} min)"
_NUMBER = r"-?(?:[0-9.]{1,20}(?:e[+-][0-9]{1,3})?|nan|inf)"
_TEXTS = {
    "loss": (
        rf"first [A-Za-z][\w/-]{{0,60}}: {_NUMBER}(?: at (?:step|epoch) {_NUMBER})?",
        "its first metric is there",
    ),
    "stall": (f"it is silent: neither its log nor its results grew for {_TIME}", "it is silent"),
    "disk": (
        f"low disk: [0-9]{{1,9}} of [0-9]{{1,9}} GB free(?:, full in about {_TIME})?",
        "its disk is low",
    ),
    "lease": (
        rf"the box's lease (?:is over|ends in about {_TIME}) \((?:hours|dollars|idle|stall)\)",
        "the box's lease is about to end",
    ),
    "end": (rf"it (?:finished|was stopped|was interrupted|ended with exit code [0-9]{{1,3}})"
            rf"(?: after {_TIME})?|it died, with its box or its runner", "it ended"),
}  # fmt: skip
"""For each kind what its text may be, and the words for one that is anything else."""


def passed_on(kind: str, text: str) -> str:
    """Return the text as it may be passed on to receivers: one of those that are made here.

    RUN/news can be written by whoever is on the box, and what a receiver makes of a text (a mail's
    header, a name that is called, an address to tap on) is not theirs to choose.
    """
    expected, otherwise = _TEXTS[kind]
    return text if re.fullmatch(expected, text, re.ASCII) else otherwise


class NewsWatch:
    """The news of all live runs of a box, and the process that tells them."""

    def __init__(self, box_home: Path, stall_s: float = STALL_S) -> None:
        self._home, self._stall_s = box_home, stall_s
        self._known: dict[Path, set[str]] = {}
        self._read: dict[Path, int] = {}
        self._grown: dict[Path, tuple[int, float]] = {}
        self._looked: dict[Path, float] = {}
        self._teller: subprocess.Popen[bytes] | None = None
        self._is_due = True

    def turn(self, live: list[Path], now: float) -> None:
        """Look for news of the live runs, and of those that ended; `now` is in seconds."""
        runs = self._home / "runs"
        awaited = {file.parent for file in runs.glob(f"*/*/{OF_PROFILE}*")}
        for run in {*live, *self._known, *awaited}:
            with suppress(OSError):  # it was removed, or the disk is full: again at the next turn
                known = self._known_of(run)
                for kind, text in self._found(run, known, now, is_live=run in live):
                    with (run / NAME).open("a", encoding="utf-8", errors="replace") as out:
                        out.write(f"{kind} {round(time.time())} {text}\n")
                    known.add(kind)
                    self._is_due = self._is_due or run in awaited
                if "end" in known and run not in awaited:
                    del self._known[run]
        if awaited:
            self._tell()

    def _known_of(self, run: Path) -> set[str]:
        if run not in self._known:
            self._known[run] = {line.split(" ")[0] for line in lines_of(run / NAME)}
        return self._known[run]

    def _found(
        self, run: Path, known: set[str], now: float, *, is_live: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield kind and text of what is new."""
        if not is_live:
            if "end" not in known and (text := end_of(run)):
                yield "end", text
            return
        if "loss" not in known and (text := self._first_metric(run)):
            yield "loss", text
        if "stall" not in known and (text := self._stalled(run, now)):
            yield "stall", text
        if "disk" not in known and (text := low_disk(run)):
            yield "disk", text
        if "lease" not in known and (text := lease_ends(self._home)):
            yield "lease", text

    def _first_metric(self, run: Path) -> str:
        """Read what the log has more; return its first metric, a loss if there is one."""
        log = run / "log"
        size, at = log.stat().st_size, self._read.get(run, 0)
        at = max(at, size - PIECE)  # what a loss is first said in is said again
        with log.open("rb") as file:
            file.seek(at)
            piece = file.read(PIECE)
        whole = piece[: piece.rfind(b"\n") + 1]
        self._read[run] = at + len(whole)
        patterns = read_patterns("\n".join(lines_of(run / "metrics")))
        for line in whole.replace(b"\r", b"\n").decode("utf-8", "replace").split("\n"):
            found = find_metrics(line, patterns)
            names = [name for name in found if not name.endswith(_NO_LOSS)]
            if names:
                name = next((name for name in names if "loss" in name), names[0])
                where = next((f" at {axis} {found[axis]:g}" for axis in ("step", "epoch")
                              if axis in found), "")  # fmt: skip
                return f"first {name}: {found[name]:g}{where}"
        return ""

    def _stalled(self, run: Path, now: float) -> str:
        size = (run / "log").stat().st_size
        before, since = self._grown.get(run, (-1, now))
        if size != before:
            self._grown[run] = size, now
            return ""
        quiet = now - since
        if quiet < self._stall_s or now - self._looked.get(run, -LOOK_S) < LOOK_S:
            return ""
        self._looked[run] = now
        if results_grow(run, time.time() - self._stall_s):
            return ""
        return f"it is silent: neither its log nor its results grew for {minutes(quiet)}"

    def _tell(self) -> None:
        """Start the process that tells, if something is new and it isn't at work."""
        if not self._is_due or (self._teller and self._teller.poll() is None):
            return
        words = [sys.executable, "-I", "-B", MAIN, "runs.tell", str(self._home)]
        quiet = subprocess.DEVNULL
        with suppress(OSError):
            self._teller = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet)
            self._is_due = False


def end_of(run: Path) -> str:
    """Say how a run ended; "" if it goes on."""
    code = "".join(lines_of(run / "exit")[:1])
    if not code:
        return "it died, with its box or its runner" if RunFolder(run).state() == DIED else ""
    why = "".join(lines_of(run / "ended")[:1]).split(" ")[0]
    if why in ("stop", "interrupted"):
        words = "it was stopped" if why == "stop" else "it was interrupted"
    else:
        words = "it finished" if code == "0" else f"it ended with exit code {code}"
    try:
        took = (run / "exit").stat().st_mtime - (run / "pid").stat().st_mtime
    except OSError:
        return words
    return f"{words} after {minutes(took)}"


def low_disk(run: Path) -> str:
    """Say that a run's disk is low, as `disk_watch.py` found; "" if it isn't."""
    words = "".join(lines_of(run / DISK_LOW)[:1]).split()
    if len(words) != 3 or not (words[0] + words[1]).isdigit():
        return ""
    soon = f", full in about {minutes(float(words[2]))}" if words[2].isdigit() else ""
    return f"low disk: {int(words[0]) / 1e9:.0f} of {int(words[1]) / 1e9:.0f} GB free{soon}"


def lease_ends(box_home: Path) -> str:
    """Say that the box's lease is about to end; "" if it isn't."""
    try:
        said: dict[str, Any] = json.loads((box_home / "lease.state").read_text())
        limits = {name: (float(pair[0]), float(pair[1])) for name, pair in said["limits"].items()}
        price = float(said.get("price") or 0)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return ""
    for name, (used, most) in limits.items():
        a_second = price / 3600 if name == "dollars" else 1.0
        left = (most - used) / a_second if a_second else LEASE_S
        whole = most / a_second if a_second else 0.0
        if left <= min(LEASE_S, whole / 5):
            ends = "is over" if left <= 0 else f"ends in about {minutes(left)}"
            return f"the box's lease {ends} ({name})"
    return ""


def results_grow(run: Path, since: float) -> bool:
    """Whether a file of its results was written since then."""
    tree, until = tree_of(run), time.monotonic() + WALK_S
    for name in lines_of(run / "results"):
        place = tree / name
        with suppress(OSError):
            if place.is_file() and place.stat().st_mtime >= since:
                return True
        for entry in files_below(str(place)):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime >= since:
                    return True
            if time.monotonic() > until:
                return True  # too many to know: no alarm
    return False


def minutes(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
