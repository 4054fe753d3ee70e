"""What a setup asks of runs: start one, once for the same work; resume those that died with the
box; is there anything to do?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..run_folder import DIED, QUEUED, RUNNING, WAITING, RunFolder, made_at, runs_below
from ..run_processes import stop_run
from ..run_queue import unattended
from . import new_run
from .window import open_session, window_program


def of_work(home: str, work: str) -> RunFolder | None:
    """Return the newest run of this work, under any key: the folder is part of the work."""
    runs = (run for run in runs_below(f"{home}/runs") if run.first("work") == work)
    return max(runs, key=made_at, default=None)


def begin(asked: Mapping[str, str]) -> RunFolder:
    """Start the run that `asked` makes, see `TrainStep.request`, once for its id; or go on with the
    one of the same work. Raises NotStartedError, OSError."""
    if asked["id"] and (run := new_run.started(asked)):
        return run
    home, patience = asked["home"], "inf" if asked["resume_all"] else ""
    if asked["resume_all"]:  # they ran in parallel before
        from .resume import died, resume  # slow to import

        for run in died(home, asked["key"]):
            resume(run, overwrite=bool(asked["overwrite"]), patience=patience)
    new_run.revive_uploads(home)
    same = None if asked["id"] else of_work(home, asked["work"])
    if asked["restart"] and same and same.state() == RUNNING:
        stop_run(same)
    is_new = bool(asked["restart"] or not same)
    if is_new or not same:
        same = new_run.make(asked)
    # One that was made but never started (the power failed) is started now: it can't have run.
    if is_new or same.state() == WAITING:
        results = list(filter(None, asked["results"].split("\n")))
        new_run.start(same, results, overwrite=bool(asked["overwrite"]), patience=patience)
    elif not new_run.has_session(same):
        open_session(same, same.first("session"), window_program(same))
    return same


def why_done(asked: Mapping[str, str]) -> str:
    """Say why `begin` would do nothing: done, failed, died; "" if it would."""
    home = asked["home"]
    run = of_work(home, asked["work"])
    if not run or run.state() == WAITING:
        return ""
    if asked["resume_all"]:
        from .resume import died  # slow to import

        if died(home, asked["key"]):
            return ""
    # Uploads that were just restarted may take a moment, or end right away: no reason to fail.
    is_just_revived = asked["setup"] and RunFolder(asked["setup"]).has("uploads")
    is_uploaded = is_just_revived or not any(new_run.idle_uploads(home))
    if unattended(home) or not is_uploaded or not new_run.has_session(run):
        return ""
    state, ended = run.state(), run.lines("ended")
    is_well = state in ("finished 0", RUNNING, QUEUED) or "stop" in (ended or ())
    is_well |= state == "finished 143" and ended is None
    return DIED if state == DIED else "done" if is_well else "failed"


def keep_ahead(runs: str, tree: str, paths: Sequence[str]) -> None:
    """Copy what a run in this place would lose. What can't be kept is told when it begins."""
    from ..results import keep_results  # slow to import
    from ..results.copies import CantKeep
    from ..results.run_results import RunResults

    with suppress(CantKeep, OSError):
        for one in keep_results.earlier(RunResults(f"{runs}/.new", tree, paths)):
            with suppress(CantKeep):
                one.keep(time.monotonic() + keep_results.QUICK_S)
