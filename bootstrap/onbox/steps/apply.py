"""Do one step, in a process of its own, unless it is right. `onbox steps.apply STEP [begun]`, if
the setup has told already that it started.

Events go to the setup's pipe, descriptor 3; but for the last one of a failure, whose code goes into
a file beside the log.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from .. import step_report
from ..processes import forget_locale
from ..retries import classify
from ..run_folder import write_whole
from ..step_report import StepError, log, tell
from .step import SKIPPED, read_setup, step_named


def main() -> int:
    name, setup = sys.argv[1], read_setup()
    step_report.step = name
    for file in (sys.stdout, sys.stderr):
        file.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file
    # What is started here gets neither the pipe nor the lock.
    for file in (3, 9):
        with suppress(OSError):
            os.set_inheritable(file, False)
    forget_locale()
    step = step_named(name, setup)
    why = step.why()
    if why in SKIPPED:
        tell(f"skip why={why}")
        return 0
    if "begun" not in sys.argv:
        tell(f"start why={why}")
    # Whatever ends it now.
    step.spoil()
    try:
        step.apply()
        step = step_named(name, setup)  # it remembers what it found before
        if not step.check():
            raise StepError("check-failed")
    except StepError as error:
        failed = error
    except OSError as error:
        failed = StepError("", str(error))
    else:
        step.note_success()
        tell("ok")
        return 0
    log(*failed.sentences)
    code = failed.code or classify(f"{setup.folder}/logs/{name}.log")
    write_whole(f"{setup.folder}/logs/{name}.code", f"{code}\n")
    return failed.rc
