"""How a setup ended: its result or error, and the state of the training."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bootstrap.codes import Code, named_in
from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    BusyError,
    ReturnBoxError,
    StepFailedError,
    TrainingFailedError,
)
from bootstrap.protocol.follow import file_tail
from bootstrap.protocol.run import Run
from bootstrap.text.sizes import spent

if TYPE_CHECKING:
    from bootstrap.events import Event
    from bootstrap.link.handle import BoxHandle
    from bootstrap.link.wire import Wire
    from bootstrap.profile.machine_sections import Advice
    from bootstrap.profile.schema import Profile
    from bootstrap.protocol.probe import BoxState
    from bootstrap.repo.changes import ChangeCount
    from bootstrap.ui.reporter import Reporter
    from bootstrap.verdict import Verdict

ERRORS: dict[int, type[BoxstrapError]] = {
    5: BoxLacksError,
    6: ReturnBoxError,
    7: StepFailedError,
    8: BusyError,
}
"""Errors by exit code of the script on the box."""
LOG_BYTES = 16 * 1024
_RETURN = "return this box"
_SHOWN_COMMAND = 60
_NAMES = {
    "commit": "commit",
    "command": "command",
    "environment": "environment",
    "python": "environment",
    "variables": "env",
    "secrets": "secrets",
}
"""The box's words for differences between a live run and this setup, and the profile's terms."""


@dataclass(frozen=True)
class SetupResult:
    """A box that matches its profile, or waits for a run of other work (`waits_for`)."""

    box: str
    """The box's name on this machine."""
    setup: str
    """The setup's id on the box; "" if there was nothing to do."""
    alias: str
    """The box's host name for ssh; "" if the user's ssh config is left alone."""
    commit: str
    snapshot: str
    """What is checked out: the commit, or a boxstrap commit on top with the user's changes."""
    changes: ChangeCount
    """The number of changed files."""
    repo_dir: str
    """The repository's folder on the box, as an absolute path."""
    run: Run | None
    """The training's current state; None if the profile has none."""
    first_lines: tuple[str, ...] | None
    """Its first output, or its last if it failed immediately; None if it was not waited for."""
    waits_for: Run | None
    """A live run of other work in the repository's folder: this one was not started."""
    differs: tuple[str, ...]
    """What differs between this setup and the live run."""
    seconds: float
    own_folder: bool
    """Whether another repository on the box already has the folder of this one's name."""
    handle: BoxHandle = field(repr=False)
    profile: Profile = field(repr=False)
    box_state: BoxState = field(repr=False)

    def as_dict(self) -> dict[str, object]:
        """Return the result as `--json` prints it."""
        return {
            "setup": self.setup or None,
            "box": self.box,
            "alias": self.alias or None,
            "commit": self.commit,
            "snapshot": self.snapshot,
            "changes": self.changes._asdict(),
            "repo_dir": self.repo_dir,
            "run": self.run.as_dict() if self.run else None,
            "waits_for": self.waits_for.name if self.waits_for else None,
            "differs": list(self.differs),
            "seconds": round(self.seconds, 3),
            "price": self.price,
            "dollars": spent(self.seconds, self.price),
            "lease": self.box_state.lease.as_dict() if self.box_state.lease else None,
        }

    @property
    def price(self) -> float | None:
        """The box's price in dollars an hour; None if unknown."""
        return self.handle.known.price or None

    def raise_for_status(self) -> None:
        """Raise BusyError if another run is alive there, TrainingFailedError if this one failed."""
        if self.waits_for:
            train = self.profile.train
            raise BusyError(
                _not_started(
                    self.waits_for, self.commit, train.command if train else "", self.differs
                ),
                where=self.box,
                hint="--restart stops it and starts this; boxstrap run starts this beside it, in a "
                "tree of its own; or wait for it to end.",
            )
        if self.run and self.run.rc and self.first_lines is not None:
            raise TrainingFailedError(
                f"the training ended with exit code {self.run.rc}.",
                where=self.run.name,
                hint=f"Its log: boxstrap logs --host {self.box}\n"
                "Fix it, and run the same command again.",
            )


def repo_dir(box_state: BoxState, name: str) -> str:
    """Return the absolute path of the repository with that name on the box."""
    if box_state.repo_dir:
        return box_state.repo_dir
    return posixpath.join(posixpath.dirname(box_state.facts.get("boxhome", "")), name)


def run_of_work(box_state: BoxState, commit: str) -> Run | None:
    """Find the run of this repository's last work, by the work's id, else by the commit."""
    own = [run for run in box_state.runs if run.repo_key == box_state.repo_key]
    work = box_state.facts.get("work")
    exact = [run for run in box_state.runs if work and run.work == work]
    return next(iter(exact or [run for run in own if run.commit == commit]), None)


def differences(box_state: BoxState) -> list[str]:
    """Return what differs between this setup and the live run in its folder, if there is one."""
    told = box_state.facts.get("differs", "").split()
    return list(dict.fromkeys(name for word, name in _NAMES.items() if word in told))


def _not_started(run: Run, commit: str, command: str, differing: Sequence[str]) -> str:
    """Return a sentence: which run is alive there, and what differs from it."""
    pairs = {
        "commit": (run.commit[:12], commit[:12]),
        "command": (run.typed[:_SHOWN_COMMAND], command),
    }
    told = [
        f"{name} ({pairs[name][0]} → {pairs[name][1][:_SHOWN_COMMAND]})" if name in pairs else name
        for name in differing
    ]
    if run.commit == commit and "commit" in differing:
        told[differing.index("commit")] = "changes since that commit"
    return (
        f"{run.name} is running (commit {run.commit[:12]}); not started: "
        f"other {', '.join(told) or 'work'}."
    )


@dataclass(frozen=True)
class SetupEnd:
    """A finished setup: which one, where, and the failed step, if any."""

    wire: Wire
    workdir: str
    setup: str
    box_name: str
    wait_s: int
    step: str
    code: Code
    code_name: str
    holder: str
    """The setup that held the box, if that was seen."""
    advice: Advice
    """What users of the provider can do about a box that isn't as ordered."""
    redact: Sequence[str] = ()
    """The secrets that the box itself redacts in its output."""


def raise_for(done: Event, end: SetupEnd, reporter: Reporter) -> None:
    """Raise the error that `done` reports, after showing the last log lines of the failed step;
    a ReturnBoxError has the verdict."""
    rc = int(done.number("rc") or 0)
    if rc == 0:
        return
    if done.word("code") == "cancelled":
        raise StepFailedError(
            "the setup was cancelled.",
            where=end.wire.label,
            hint="Run the same command to go on from here.",
        )
    error = ERRORS.get(rc, StepFailedError)
    if error is BusyError:
        raise BusyError(
            f"another setup held this box for longer than {end.wait_s} s"
            + (f": {end.holder}." if end.holder else "."),
            where=end.wire.label,
            hint="See what it does: boxstrap status. Wait longer with --wait SECONDS.",
        )
    if error is ReturnBoxError:
        raise _returned(end)
    raise _failed(error, end, reporter)


def _returned(end: SetupEnd) -> ReturnBoxError:
    verdict = fetch_verdict(end.wire, end.workdir, end.advice)
    worst = verdict.reasons[0] if verdict.reasons else None
    error = ReturnBoxError(
        f"{worst.sentence() if worst else end.code.what}.",
        where=end.wire.label,
        hint=_advice(end, worst.advice if worst else end.code.hint),
    )
    error.verdict = verdict
    return error


def fetch_verdict(wire: Wire, workdir: str, advice: Advice) -> Verdict:
    """Read the last check's verdict from the box, with advice for users of the provider.

    Raises StepFailedError if there was no check, LinkLost, NoAnswer.
    """
    from bootstrap.verdict import MAX_BYTES, advised, read

    document = file_tail(wire, "gpu.json", workdir, MAX_BYTES + 1)
    if not document:
        raise StepFailedError("the GPU check left no verdict.", where=wire.label)
    return advised(read(document), advice)


def _advice(end: SetupEnd, advice: str) -> str:
    """Return what to do, including once that the box should be returned."""
    advice = f"{advice[:1].upper()}{advice[1:]}"
    if _RETURN not in advice.lower():
        advice = f"R{_RETURN[1:]}. {advice}".strip()
    return f"Nothing was built. {advice}" if end.step == "gpu" else advice


def _failed(error: type[BoxstrapError], end: SetupEnd, reporter: Reporter) -> BoxstrapError:
    log = f"setups/{end.setup}/logs/{end.step}.log"
    tail = file_tail(end.wire, log, end.workdir, LOG_BYTES, end.redact)
    reporter.log_tail(end.step, tail.splitlines())
    advice, about = end.code.hint, named_in(end.code_name, tail)
    return error(
        f"the step {end.step} failed: {end.code.what}{about and f': {about}'}.",
        where=end.wire.label,
        hint=f"{advice[:1].upper()}{advice[1:]}.\n"
        f"Its whole log: boxstrap logs --step {end.step} --host {end.box_name}\n"
        "Then run the same command again: what is done stays done.",
    )
