"""How a setup ended: its result or error, and the state of the training."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.boxes.follow import hint_with_log
from bootstrap.boxes.run import Run
from bootstrap.boxes.run_details import results_in_the_way
from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    BusyError,
    NotSafeError,
    ReturnBoxError,
    StepFailedError,
    TrainingFailedError,
)
from bootstrap.onbox.python import lacking
from bootstrap.sanitize import sanitize
from bootstrap.sizes import spent
from bootstrap.steps.event_codes import Code, named_in
from bootstrap.value import Document, dataclass, field, replace

if TYPE_CHECKING:
    from bootstrap.boxes.login import BoxLogin
    from bootstrap.boxes.probe import BoxState, Holder
    from bootstrap.boxes.verdict import Verdict
    from bootstrap.profile.schema import Advice, Profile
    from bootstrap.repo.snapshot_store import ChangeCount
    from bootstrap.steps.events import Event
    from bootstrap.ui.screen import Reporter

ERRORS: dict[int, type[BoxstrapError]] = {
    5: BoxLacksError,
    6: ReturnBoxError,
    7: StepFailedError,
    8: BusyError,
    9: NotSafeError,
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
    "data": "data",
}
"""The box's words for differences between a live run and this setup, and the profile's terms."""


@dataclass(frozen=True)
class SetupResult(Document):
    """A box that matches its profile, or waits for a run of other work (`waits_for`)."""

    KEYS = (
        "setup or None, box, alias or None, commit, snapshot, changes, repo_dir, run, "
        "waits_for=waits_for.name, differs, seconds:3, price, dollars, "
        "lease=box_state.lease"
    )

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
    last_lines: tuple[str, ...]
    """The end of the log of an earlier run of the same work that failed."""
    waits_for: Run | None
    """A live run of other work in the repository's folder: this one was not started."""
    differs: tuple[str, ...]
    """What differs between this setup and the live run."""
    seconds: float
    own_folder: bool
    """Whether another repository on the box already has the folder of this one's name."""
    login: BoxLogin = field(repr=False)
    profile: Profile = field(repr=False)
    box_state: BoxState = field(repr=False)
    made_nothing: bool = False
    """Whether the run is over with 0, without a word in its log and without results."""

    @property
    def dollars(self) -> float | None:
        """What it has cost; None if the price is unknown."""
        return spent(self.seconds, self.price)

    @property
    def price(self) -> float | None:
        """The box's price in dollars an hour; None if unknown."""
        return self.login.known.price or None

    @property
    def failed_before(self) -> bool:
        """Whether the run of this work failed, or died, before this setup."""
        return self.run is not None and self.run.failed and self.first_lines is None

    def raise_for_status(self) -> None:
        """Raise BusyError if another run is alive there, TrainingFailedError if this one failed,
        now or before."""
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
        if self.run and self.failed_before:
            raise TrainingFailedError(
                f"this work was started before, and {self.run.name} {self.run.outcome()}.",
                where=self.box,
                hint=f"Its log: boxstrap logs --host {self.box} --run {self.run.name}\n"
                f"{self._how_to_go_on(self.run)}",
            )
        if self.run and (self.run.rc or self.run.failed) and self.first_lines is not None:
            how = f"ended with exit code {self.run.rc}" if self.run.rc else self.run.outcome()
            raise TrainingFailedError(
                f"the training {how}.",
                where=self.run.name,
                hint=f"{hint_with_log(self.first_lines, f'boxstrap logs --host {self.box}')}\n"
                f"{self._how_to_go_on(self.run)}",
            )

    def _how_to_go_on(self, run: Run) -> str:
        restart = f"boxstrap setup --restart --host {self.box}"
        again = f"the same from its beginning: {restart}"
        if run.interruption:
            return f"To go on on another box: boxstrap up --resume {run.name}; {again}"
        if run.can_resume:
            return f"To resume it: boxstrap run --resume {run.name}; {again}"
        return (
            "After a change of the repository's files, or of the profile's command, python, env or "
            "data, the same command starts it; after anything else, such as data that you pushed "
            f"or other packages: {restart}"
        )


def repo_dir(box_state: BoxState, name: str) -> str:
    """Return the absolute path of the repository with that name on the box."""
    if box_state.repo_dir:
        return box_state.repo_dir
    return posixpath.join(posixpath.dirname(box_state.home), name)


def run_of_work(box_state: BoxState, commit: str) -> Run | None:
    """Find the run of this repository's last work, by the work's id, else by the commit."""
    own = [run for run in box_state.runs if run.repo_key == box_state.repo_key]
    exact = [run for run in box_state.runs if run.work and run.work == box_state.work]
    return next(iter(exact or [run for run in own if run.commit == commit]), None)


def differences(box_state: BoxState) -> list[str]:
    """Return what differs between this setup and the live run in its folder, if there is one."""
    return list(dict.fromkeys(name for word, name in _NAMES.items() if word in box_state.differs))


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
        f"{run.name} is {run.state} (commit {run.commit[:12]}); not started: "
        f"other {', '.join(told) or 'work'}."
    )


@dataclass(frozen=True)
class SetupEnd:
    """A finished setup: which one, where, and the failed step, if any."""

    box: BoxLogin
    setup: str
    wait_s: int
    step: str
    code: Code
    code_name: str
    holder: Holder | None  # the setup that held the box as this one began to wait, if that was seen
    advice: Advice  # what users of the provider can do about a box that isn't as ordered
    unsent: BoxstrapError | None = None  # why this machine could not send something


def raise_for(done: Event, end: SetupEnd, reporter: Reporter) -> None:
    """Raise the error that `done` reports, after showing the last log lines of the failed step;
    a ReturnBoxError has the verdict."""
    rc = int(done.number("rc") or 0)
    if rc == 0:
        return
    if done.word("code") == "cancelled":
        raise StepFailedError(
            "the setup was cancelled.",
            where=end.box.label,
            hint="Run the same command to go on from here.",
        )
    error = ERRORS.get(rc, StepFailedError)
    if error is BusyError:
        held = end.holder and replace(end.holder, seconds=end.holder.seconds + end.wait_s)
        raise BusyError(
            f"another setup held this box for longer than {end.wait_s} s"
            + (f": {held}." if held else "."),
            where=end.box.label,
            hint=f"See what it does: boxstrap status --host {end.box.name}. "
            "Wait longer with --wait SECONDS.",
        )
    if error is ReturnBoxError:
        raise _returned(end)
    if error is NotSafeError:
        log = f"setups/{end.setup}/logs/train.log"
        said = end.box.tail(log, LOG_BYTES, redacted=True).decode(errors="replace")
        raise results_in_the_way(sanitize(said).splitlines(), end.box.label, end.box.name)
    raise _failed(error, end, reporter)


def _returned(end: SetupEnd) -> ReturnBoxError:
    verdict = fetch_verdict(end.box, end.advice)
    worst = verdict.reasons[0] if verdict.reasons else None
    error = ReturnBoxError(
        f"{worst.sentence() if worst else end.code.what}.",
        where=end.box.label,
        hint=_advice(end, worst.advice if worst else end.code.hint),
    )
    error.verdict = verdict
    return error


def fetch_verdict(box: BoxLogin, advice: Advice) -> Verdict:
    """Read the last check's verdict from the box, with advice for users of the provider.

    Raises StepFailedError if there was no check, LinkLost, NoAnswer.
    """
    from bootstrap.boxes.verdict import MAX_BYTES, read_verdict

    document = box.tail("gpu.json", MAX_BYTES + 1)
    if not document:
        raise StepFailedError("the GPU check left no verdict.", where=box.label)
    return advised(read_verdict(document), advice)


def _advice(end: SetupEnd, advice: str) -> str:
    """Return what to do, including once that the box should be returned."""
    advice = f"{advice[:1].upper()}{advice[1:]}"
    if _RETURN not in advice.lower():
        advice = f"R{_RETURN[1:]}. {advice}".strip()
    return f"Nothing was built. {advice}" if end.step == "gpu" else advice


_UNSENT = {
    "repo": ("commit-missing",),
    "data": ("data-missing",),
    "agent": ("uv-missing",),
    "python": ("dependency-missing", "dependency-private", "git-unreachable", "no-dns"),
}
"""How each step fails if this machine could not send what it needs."""
_UNEXPLAINED = ("build-failed", "command-failed", "prepare-failed")
"""Codes of which only the log knows more."""

_TRIES_AGAIN = re.compile(rb"\bagain in [0-9]+ s\s*$")
"""What ends the log of an attempt, after which a step tries the same once more."""


def _last_try(lines: Sequence[bytes]) -> Sequence[bytes]:
    """Return the last attempt's lines: the ones before it mostly failed for the same reason."""
    tries = [at for at, line in enumerate(lines[:-1], 1) if _TRIES_AGAIN.search(line)]
    return lines[tries[-1] :] if tries else lines


def _failed(error: type[BoxstrapError], end: SetupEnd, reporter: Reporter) -> BoxstrapError:
    log = f"setups/{end.setup}/logs/{end.step}.log"
    tail = end.box.tail(log, LOG_BYTES, redacted=True)
    reporter.log_tail(end.step, _last_try(tail.splitlines()))
    text = tail.decode(errors="replace") if end.code_name in _UNEXPLAINED else ""
    if end.unsent and end.code_name in _UNSENT.get(end.step, ()):
        return error(end.unsent.what, where=end.unsent.where, hint=end.unsent.hint)
    advice, about = lacking.advice(text) or end.code.hint, named_in(end.code_name, tail)
    return error(
        f"the step {end.step} failed: {end.code.what}{about and f': {about}'}.",
        where=end.box.label,
        hint=f"{advice[:1].upper()}{advice[1:]}.\n"
        f"Its whole log: boxstrap logs --step {end.step} --host {end.box.name}\n"
        "Then run the same command again: what is done stays done.",
    )


def advised(verdict: Verdict, provider: Advice) -> Verdict:
    """Return the verdict with what this provider's renters can do, the most important first."""
    codes = {reason.code for reason in verdict.reasons}
    possible = (
        provider.return_box if verdict.verdict == "return" else None,
        provider.shm if "box-shm" in codes else None,
    )
    return verdict.model_copy(update={"advice": tuple(filter(None, possible))})
