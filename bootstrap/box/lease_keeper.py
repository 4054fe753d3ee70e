"""Holds the box's lease: looks, counts, warns the runs, and asks the account to end the box.

Beside the runs lie `lease.json` (the terms, by a setup), `lease.extended` (seconds that a person
added, a line each time) and `lease.state`: what is counted, and whether this box can hold it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .lease import (
    END_RUNS,
    SOON,
    STOP,
    VERSION,
    AccountWord,
    LeaseState,
    LeaseTerms,
    Tick,
    UseLook,
    advance,
    limits,
    reached,
)
from .lease_activity import ActivityReader, boot_id, started_at
from .lease_api import KeyRefusedError, NoWordError, OwnInstance, find_instance

HERE = Path(__file__).resolve().parent
TERMS, STATE, EXTENDED = "lease.json", "lease.state", "lease.extended"
ASK_AGAIN_S = 3600.0
"""Seconds between two reads of the account: its price may change."""
TRY_AGAIN_S = 60.0
"""The same where it did not answer, or what passed while the box was down is not known."""
REFUSED_AGAIN_S = 600.0
_GRACE_S = 10.0
CAN_END = frozenset({"yes", "no-boot"})
"""What the account said at its first read, where a box can be ended by its own key."""
AT_BOOT = {"vast": Path("/root/onstart.sh")}
"""What a provider runs at each start of a box, where a setup may add a line."""


class LeaseKeeper:
    """The lease of one box. `clock` is of seconds since the machine's boot, asleep ones too."""

    def __init__(
        self,
        box_home: Path,
        *,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        since: Callable[[], float] = started_at,
        find: Callable[[], OwnInstance | None] = find_instance,
    ) -> None:
        self._home = box_home
        self._clock, self._since, self._find = clock, since, find
        self._activity = ActivityReader(box_home)
        self._state: LeaseState | None = None
        self._instance: OwnInstance | None = None
        self._ask_at = 0.0
        self._grace = 0.0
        self._ending: list[subprocess.Popen[bytes]] = []
        """Those that end the runs, and write down how they ended."""
        self.why = "trying"
        """Whether this box can hold its lease: yes, or why not."""
        self.error = ""
        """What stood in the way of asking the account the last time."""

    def turn(self, runs: Sequence[Path], gpus: Sequence[list[Any] | None]) -> bool:
        """One look at everything, and what follows from it. `runs` are those that live.

        Whether there is a lease."""
        try:
            terms = LeaseTerms.read((self._home / TERMS).read_text())
        except (OSError, ValueError, TypeError):
            self._state = None
            return False
        state = self._state = self._state or self._written()
        self._grace = max((_grace(run) for run in runs), default=self._grace)
        tick = Tick(
            boot=boot_id(),
            at=self._clock(),
            since=self._since(),
            look=self._activity.look(runs, gpus),
            said=self._ask(state),
            extended=self._extended(),
            can_end=self.why in CAN_END,
            has_runs=bool(runs) or any(one.poll() is None for one in self._ending),
            grace=self._grace,
        )
        for action in advance(terms, state, tick):
            if action == END_RUNS:
                self._ending = _end_runs(runs)
            elif action == STOP:
                self._write(terms, state, tick.look)  # nobody can once it is done
                self._stop()
        self._write(terms, state, tick.look)
        return True

    def _written(self) -> LeaseState:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            return LeaseState.read(json.loads((self._home / STATE).read_text())["counted"])
        return LeaseState()

    def _extended(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            return float(sum(map(int, (self._home / EXTENDED).read_text().split())))
        return 0.0

    def _ask(self, state: LeaseState) -> AccountWord | None:
        """What the account says now, where it is time to ask it."""
        if self._clock() < self._ask_at:
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
        except NoWordError as error:
            self.error, self._ask_at = str(error), self._clock() + TRY_AGAIN_S
            self.why = "no-answer" if self.why == "trying" else self.why
            return None
        self.error = ""
        self.why = "yes" if self._begins_at_boot() else "no-boot"
        knows_all = state.down_from is None or said.started is not None
        self._ask_at = self._clock() + (ASK_AGAIN_S if knows_all else TRY_AGAIN_S)
        return said

    def _begins_at_boot(self) -> bool:
        """Whether what the provider runs at a start begins this again."""
        file = AT_BOOT.get(self._instance.provider) if self._instance else None
        try:
            return file is not None and "/lease.sh" in file.read_text(errors="replace")
        except OSError:
            return False

    def _stop(self) -> None:
        self._instance = self._instance or self._find()
        if self._instance is None:
            self.error = "this box has no key of its own"
            return
        try:
            self._instance.stop()
        except (KeyRefusedError, NoWordError) as error:
            self.error = str(error)
        else:
            self.error = ""

    def _write(self, terms: LeaseTerms, state: LeaseState, look: UseLook | None) -> None:
        """For whoever asks, and for the monitor that comes next."""
        said = {
            "v": VERSION,
            "held": self.why,
            "error": self.error,
            "over": reached(terms, state),
            "soon": reached(terms, state, SOON),
            "limits": {name: list(pair) for name, pair in limits(terms, state).items()},
            "then": terms.then,
            "price": terms.price if state.price is None else state.price,
            "used": look.used if look else None,
            "counted": state.as_dict(),
        }
        new = self._home / f"{STATE}.new.{os.getpid()}"
        with contextlib.suppress(
            OSError
        ):  # a full disk: what is counted is known here all the same
            new.write_text(json.dumps(said, separators=(",", ":")) + "\n")
            new.replace(self._home / STATE)


def _grace(run: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        return float((run / "grace").read_text())
    return _GRACE_S


def _end_runs(runs: Sequence[Path]) -> list[subprocess.Popen[bytes]]:
    """Ask them to end, as `stop` does; each has its grace, and is killed then."""
    begun: list[subprocess.Popen[bytes]] = []
    for run in runs:
        with contextlib.suppress(OSError):
            command = ["sh", str(HERE / "processes.sh"), "stop_run", str(run)]
            begun.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
    return begun
