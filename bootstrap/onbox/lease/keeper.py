"""Hold the box's lease: look, count, end the runs, and ask the account to end the box.

Files in the box's home: `lease.json` (the terms, written by a setup), `lease.extended` (seconds
that the user added, a line each time), `lease.state` (what is counted, and whether this box can
hold the lease) and `lease.digests` (of the files that `safety.py` read).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import MAIN
from ..processes import begin_apart, boot_id
from ..run_folder import RunFolder, end_of, runs_below, write_whole
from ..run_queue import take_out
from .activity import MOST_FILES, ActivityReader, started_at
from .instance import KeyRefusedError, NoAnswerError, OwnInstance, ShutdownInstance, find_instance
from .rules import (
    CAN_END,
    DESTROY,
    END_RUNS,
    LOOK,
    SOON,
    VERSION,
    WIPES,
    AccountReading,
    LeaseState,
    LeaseTerms,
    Tick,
    UseReading,
    advance,
    limits,
    reached,
)
from .safety import SafetyLook

TERMS, STATE, EXTENDED = "lease.json", "lease.state", "lease.extended"
ASK_AGAIN_S = 3600.0
"""Seconds between two requests to the account: its price may change."""
TRY_AGAIN_S = 60.0
"""The same if it did not answer, or how long the box was down is unknown."""
REFUSED_AGAIN_S = 600.0
LOOK_AGAIN_S = 600.0
"""Seconds between two looks at what is safe when the end is near: so the last one is short."""
AT_BOOT = {"vast": Path("/root/onstart.sh")}
"""The script that a provider runs at each start of a box; a setup may add a line to it."""


class LeaseKeeper:
    """The lease of one box. `clock` returns seconds since the machine's boot, sleep included."""

    def __init__(
        self,
        box_home: Path,
        *,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        since: Callable[[], float] = started_at,
        find: Callable[[], OwnInstance | ShutdownInstance | None] = find_instance,
    ) -> None:
        self._home = box_home
        self._clock, self._since, self._find = clock, since, find
        self._activity = ActivityReader(box_home)
        self._state: LeaseState | None = None
        self._instance: OwnInstance | ShutdownInstance | None = None
        self._ask_at = 0.0
        self._grace = 0.0
        self._ending: list[subprocess.Popen[bytes]] = []
        """Processes that end the runs, and record how they ended."""
        self._is_written = False
        self._safety = SafetyLook(box_home)
        self._look_at = 0.0
        self.why = "trying"
        """Whether this box can hold its lease: yes, or why not."""
        self.error = ""
        """Why the last request to the account failed; "" if it didn't."""

    def turn(self, runs: Sequence[Path], gpus: Sequence[list[Any] | None]) -> bool:
        """Look at everything once, and act on it. `runs` are the live ones.

        Return whether there is a lease."""
        terms = self._terms()
        if terms is None:
            self._state = None
            return False
        if self._is_written and not (self._home / STATE).exists():
            self._state = None  # it was released, and set again
        state = self._state = self._state or self._written()
        self._grace = max((RunFolder(run).grace for run in runs), default=self._grace)
        tick = Tick(
            boot=boot_id(),
            at=self._clock(),
            since=self._since(),
            look=self._activity.look(runs, gpus),
            said=self._ask(state),
            extended=self._extended(),
            can_end=self._held(terms, state) in CAN_END,
            has_runs=bool(runs) or any(one.poll() is None for one in self._ending),
            grace=self._grace,
            is_safe=self._is_safe(),
        )
        for action in advance(terms, state, tick):
            if action == END_RUNS:
                self._ending = _end_runs(self._home, runs)
            elif action == LOOK:
                self._safety.begin()
            # The user may have extended or released it while the account was asked.
            elif (self._terms(), self._extended()) == (terms, tick.extended):
                self._write(terms, state, tick.look)  # the box may be gone after this
                self._end(destroys=action == DESTROY)
        self._look_ahead(terms, state)
        self._write(terms, state, tick.look)
        return True

    @property
    def looks(self) -> bool:
        """Whether the box's end waits for a look."""
        return self._state is not None and self._state.looks

    def _is_safe(self) -> bool | None:
        found = self._safety.tell()
        return None if found is None else not found

    def _look_ahead(self, terms: LeaseTerms, state: LeaseState) -> None:
        """Read most of the results before the end, so that the last look takes little time."""
        if terms.then != DESTROY or self._safety.is_under_way or not reached(terms, state, SOON):
            return
        # A look that a killed monitor had started is started again.
        if state.looks or self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_AGAIN_S
            self._safety.begin()

    def _terms(self) -> LeaseTerms | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return LeaseTerms.read((self._home / TERMS).read_text())
        return None

    def _written(self) -> LeaseState:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            return LeaseState.read(json.loads((self._home / STATE).read_text())["counted"])
        return LeaseState()

    def _extended(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            return float(sum(map(int, (self._home / EXTENDED).read_text().split())))
        return 0.0

    def _ask(self, state: LeaseState) -> AccountReading | None:
        # An answer may take long, and a look's result is valid only for a while.
        if self._clock() < self._ask_at or (self._ask_at and state.looks):
            return None
        self._instance = self._instance or self._find()
        if self._instance is None:
            self.why, self._ask_at = "no-key", self._clock() + REFUSED_AGAIN_S
            return None
        try:
            said = self._instance.ask()
        except KeyRefusedError as error:
            self.why, self.error = "refused", str(error)
            self._instance, self._ask_at = None, self._clock() + REFUSED_AGAIN_S
            return None
        except NoAnswerError as error:
            self.error, self._ask_at = str(error), self._clock() + TRY_AGAIN_S
            self.why = "no-answer" if self.why == "trying" else self.why
            return None
        self.error = ""
        self.why = "yes" if self._begins_at_boot() else "no-boot"
        knows_all = state.down_from is None or said.started is not None
        self._ask_at = self._clock() + (ASK_AGAIN_S if knows_all else TRY_AGAIN_S)
        return said

    def _begins_at_boot(self) -> bool:
        """Return whether the provider starts the monitor again at a restart."""
        file = AT_BOOT.get(self._instance.provider) if self._instance else None
        return file is not None and " runs.keep_monitor " in end_of(file)

    def _held(self, terms: LeaseTerms, state: LeaseState) -> str:
        """Return `why`, or WIPES if `then` allows only a stop and that would lose something."""
        instance, workdir = self._instance, str(self._home.parent)
        if terms.then == DESTROY or instance is None or self.why not in CAN_END:
            return self.why
        places = _places(self._home, with_links=bool(reached(terms, state, SOON)))
        return self.why if instance.keeps(places, workdir) else WIPES

    def _end(self, *, destroys: bool) -> None:
        self._instance = self._instance or self._find()
        if self._instance is None:
            self.error = "this box has no key of its own"
            return
        self.error = ""
        try:
            if destroys:
                self._instance.destroy()
            else:
                self._instance.stop()
        except KeyRefusedError as error:
            self.error = str(error)
            if destroys:  # a stop may still be allowed
                self._end(destroys=False)
        except NoAnswerError as error:
            self.error = str(error)

    def _write(self, terms: LeaseTerms, state: LeaseState, look: UseReading | None) -> None:
        """Write `lease.state`, for queries and for the next monitor."""
        said = {
            "v": VERSION,
            "held": self._held(terms, state),
            "way": self._instance.way if self._instance else "",
            "error": self.error,
            "over": reached(terms, state),
            "soon": reached(terms, state, SOON),
            "limits": {name: list(pair) for name, pair in limits(terms, state).items()},
            "then": terms.then,
            "unsafe": self._safety.found,
            "price": terms.price if state.price is None else state.price,
            "used": look.used if look else None,
            "counted": state.as_dict(),
        }
        self._is_written = False
        with contextlib.suppress(OSError):  # a full disk: this process still has it
            write_whole(self._home / STATE, json.dumps(said, separators=(",", ":")) + "\n")
            self._is_written = True


def _places(box_home: Path, *, with_links: bool) -> Iterator[str]:
    """Yield where users' work may be; `with_links`: links in results too, slow on network disks."""
    yield str(box_home)
    for note in box_home.glob("runs/*/*/dir"):
        with contextlib.suppress(OSError):
            tree = note.read_text().strip()
            yield tree
            for name in note.with_name("results").read_text().splitlines():
                yield f"{tree}/{name}"
                if with_links:
                    yield from _links(f"{tree}/{name}")


def _links(folder: str) -> Iterator[str]:
    waiting, left = [folder], MOST_FILES
    while waiting and left > 0:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for one in found:
                left -= 1
                if one.is_symlink():
                    yield one.path
                elif one.is_dir():
                    waiting.append(one.path)


def _end_runs(box_home: Path, runs: Sequence[Path]) -> list[subprocess.Popen[bytes]]:
    """Ask the runs to end, as `stop` does; each has its grace, and is killed after it."""
    # The queue first: otherwise a queued run would start when a live one ends.
    take_out(runs_below(box_home / "runs"), "stop")
    stop = (sys.executable, "-I", "-S", "-B", MAIN, "run_processes", str(box_home))
    asked = (json.dumps({"runs": f"{run.parent.name}/{run.name}"}) for run in runs)
    return [begun for each in asked for begun in begin_apart(*stop, each)]
