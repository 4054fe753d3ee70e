"""How a setup ended, as an error with the contract's exit code; silence means well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    BusyError,
    ReturnBoxError,
    StepFailedError,
)
from bootstrap.events import Event
from bootstrap.link.exchange import exchange
from bootstrap.link.steady import SteadyLink
from bootstrap.link.wire import Wire
from bootstrap.talk.question import question

if TYPE_CHECKING:
    from bootstrap.setup.drive import Drive

ERRORS: dict[int, type[BoxstrapError]] = {
    5: BoxLacksError,
    6: ReturnBoxError,
    7: StepFailedError,
    8: BusyError,
}
LOG_BYTES = 16 * 1024


def raise_for(done: Event, drive: Drive) -> None:
    """Raise what `done` says. The failed step's last log lines are shown first."""
    rc = int(done.number("rc") or 0)
    if rc == 0:
        return
    error = ERRORS.get(rc, StepFailedError)
    if done.word("code") == "cancelled":
        raise StepFailedError(
            "the setup was cancelled.",
            where=drive.link.label,
            next_="Run the same command to go on from here.",
        )
    if error is BusyError:
        raise BusyError(
            f"another setup held this box for longer than {drive.wishes.wait_s} s.",
            where=drive.link.label,
            next_="See what it does: boxstrap status. Wait longer with --wait SECONDS.",
        )
    raise _failed(error, drive)


def _failed(error: type[BoxstrapError], drive: Drive) -> BoxstrapError:
    step, code = drive.failed_step, drive.failed_code
    if error is ReturnBoxError:
        from bootstrap.setup.verdict import fetch_verdict
        from bootstrap.verdict import lines

        verdict = fetch_verdict(drive.link.wire, drive.workdir)
        drive.screen.result({"verdict": verdict.model_dump()}, "\n".join(lines(verdict)))
        worst = verdict.reasons[0] if verdict.reasons else None
        return ReturnBoxError(
            f"return this box: {worst.sentence() if worst else code.what}",
            where=drive.link.label,
            next_=f"Nothing was built. {worst.advice if worst else code.next_}",
        )
    log = f"setups/{drive.setup}/logs/{step}.log"
    drive.screen.log_tail(step, log_tail(drive.link, log, drive.workdir))
    return error(
        f"the step {step} failed: {code.what}.",
        where=drive.link.label,
        next_=f"{code.next_[:1].upper()}{code.next_[1:]}.\n"
        f"Its whole log: boxstrap logs --step {step} --host {drive.box_name}\n"
        "Then run the same command again: what is done stays done.",
    )


def log_tail(link: SteadyLink, file: str, workdir: str) -> list[bytes]:
    """The last lines of a file on the box."""
    return file_tail(link.wire, file, workdir, LOG_BYTES).splitlines()


def file_tail(wire: Wire, file: str, workdir: str, most: int) -> bytes:
    """The last `most` bytes of a file below boxstrap's folder; empty where there is none."""
    return exchange(wire, question("tail", workdir=workdir, file=file, bytes=most), timeout=60)
