"""Do one step, unless it is right, and tell what became of it."""

from __future__ import annotations

import sys
import traceback

from .. import step_report
from ..retries import classify
from ..step_report import StepError, log, tell
from .step import SKIPPED, SetupFacts, step_named


def do_step(name: str, setup: SetupFacts, *, is_begun: bool = False) -> None:
    """Do it in this process, whose output is the step's log. `is_begun`: the setup has told that it
    started."""
    step_report.step = name
    for file in (sys.stdout, sys.stderr):
        file.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file
    try:
        tell(_done(name, setup, is_begun=is_begun))
    except StepError as error:
        log(*error.sentences)
        _tell_failure(setup, error.code, error.rc)
    except Exception as error:
        log(str(error)) if isinstance(error, OSError) else traceback.print_exc()
        _tell_failure(setup)


def _done(name: str, setup: SetupFacts, *, is_begun: bool) -> str:
    step = step_named(name, setup)
    why = step.why()
    if why in SKIPPED:
        return f"skip why={why}"
    if not is_begun:
        tell(f"start why={why}")
    # Whatever ends it now.
    step.spoil()
    step.apply()
    step = step_named(name, setup)  # it remembers what it found before
    if not step.check():
        raise StepError("check-failed")
    step.note_success()
    return "ok"


def _tell_failure(setup: SetupFacts, code: str = "", rc: int = 1) -> None:
    code = code or classify(f"{setup.folder}/logs/{step_report.step}.log")
    tell(f"fail code={code} rc={rc}")
