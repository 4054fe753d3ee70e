"""How a setup ended, as an error with the contract's exit code; silence means well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap.codes import Code, named_in
from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    BusyError,
    ReturnBoxError,
    StepFailedError,
)
from bootstrap.events import Event
from bootstrap.link.wire import Wire
from bootstrap.protocol.follow import file_tail
from bootstrap.ui.screen import Screen

if TYPE_CHECKING:
    from bootstrap.profile.schema import Advice

ERRORS: dict[int, type[BoxstrapError]] = {
    5: BoxLacksError,
    6: ReturnBoxError,
    7: StepFailedError,
    8: BusyError,
}
LOG_BYTES = 16 * 1024
_RETURN = "return this box"


@dataclass(frozen=True)
class Ended:
    """A setup that is over: which one, where, and the step that failed, if one did."""

    wire: Wire
    workdir: str
    setup: str
    box_name: str
    wait_s: int
    step: str
    code: Code
    code_name: str
    holder: str
    """Which setup held the box, where that was seen."""
    advice: Advice
    """What the provider's renters can do with a box that isn't as ordered."""


def raise_for(done: Event, ended: Ended, screen: Screen) -> None:
    """Raise what `done` says. The failed step's last log lines, or the verdict, are shown first."""
    rc = int(done.number("rc") or 0)
    if rc == 0:
        return
    if done.word("code") == "cancelled":
        raise StepFailedError(
            "the setup was cancelled.",
            where=ended.wire.label,
            hint="Run the same command to go on from here.",
        )
    error = ERRORS.get(rc, StepFailedError)
    if error is BusyError:
        raise BusyError(
            f"another setup held this box for longer than {ended.wait_s} s"
            + (f": {ended.holder}." if ended.holder else "."),
            where=ended.wire.label,
            hint="See what it does: boxstrap status. Wait longer with --wait SECONDS.",
        )
    if error is ReturnBoxError:
        raise _returned(ended, screen)
    raise _failed(error, ended, screen)


def _returned(ended: Ended, screen: Screen) -> ReturnBoxError:
    from bootstrap.setup.fetch_verdict import fetch_verdict
    from bootstrap.ui.verdict_table import lines, painted

    verdict = fetch_verdict(ended.wire, ended.workdir, ended.advice)
    screen.result(
        {"verdict": verdict.model_dump()}, "\n".join(lines(verdict, refused=True)), painted
    )
    worst = verdict.reasons[0] if verdict.reasons else None
    return ReturnBoxError(
        f"{worst.sentence() if worst else ended.code.what}.",
        where=ended.wire.label,
        hint=_advice(ended, worst.advice if worst else ended.code.hint),
    )


def _advice(ended: Ended, advice: str) -> str:
    """What to do: to return the box, said once."""
    advice = f"{advice[:1].upper()}{advice[1:]}"
    if _RETURN not in advice.lower():
        advice = f"R{_RETURN[1:]}. {advice}".strip()
    return f"Nothing was built. {advice}" if ended.step == "gpu" else advice


def _failed(error: type[BoxstrapError], ended: Ended, screen: Screen) -> BoxstrapError:
    log = f"setups/{ended.setup}/logs/{ended.step}.log"
    tail = file_tail(ended.wire, log, ended.workdir, LOG_BYTES)
    screen.log_tail(ended.step, tail.splitlines())
    advice, about = ended.code.hint, named_in(ended.code_name, tail)
    return error(
        f"the step {ended.step} failed: {ended.code.what}{about and f': {about}'}.",
        where=ended.wire.label,
        hint=f"{advice[:1].upper()}{advice[1:]}.\n"
        f"Its whole log: boxstrap logs --step {ended.step} --host {ended.box_name}\n"
        "Then run the same command again: what is done stays done.",
    )
