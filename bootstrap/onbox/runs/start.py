"""What a setup asks of runs: start one, once for the same work; resume those that died with the
box; is there anything to do?

`onbox runs.start WORD ...`:
begin       start the run of a request, or go on with the one of the same work
check       says why `begin` would do nothing (done, failed, died); nothing if it would
of BOX_HOME WORK          prints the newest run of this work; exits with 1 if there is none
id BOX_HOME KEY ID        prints the run that was started under this id; exits with 1 if none was
died BOX_HOME KEY         exits with 1 unless the repository's newest run ended with its box

A request comes on standard input: NAME=VALUE, each ended by a NUL; what is named twice has several
lines, and the last is `over`. The run's path is printed; or `code CODE`, which says why it wasn't
started, and lines for the log.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from ..results import keep_results
from ..results.run_results import RunResults
from ..run_folder import DIED, QUEUED, RUNNING, WAITING, RunFolder, made_at, runs_below
from ..run_processes import stop_run
from ..run_queue import revive, unattended
from . import new_run
from .new_run import NotStartedError
from .resume import died, last_died, resume
from .window import open_session, window_program


def read_request(file: int = 0) -> dict[str, str]:
    """Return what is asked for, and what came with its end: `more`. Raises NotStartedError if not
    all of it came."""
    said = b""
    asked: dict[str, str] = {}
    while b"\0over\0" not in said:  # others may hold the pipe's other end open
        piece = os.read(file, 1 << 16)
        if not piece:
            raise NotStartedError("", "not all of the request came")
        said += piece
    said, _, more = said.partition(b"\0over\0")
    for pair in said.decode("utf-8", "surrogateescape").split("\0"):
        name, _, value = pair.partition("=")
        asked[name] = f"{asked[name]}\n{value}" if name in asked else value
    # Before anything is asked of tmux.
    new_run.clean_environment(asked.get("home", ""))
    names = (*new_run.ALWAYS, *new_run.IF_ASKED)
    return {**dict.fromkeys(names, ""), **asked, "more": os.fsdecode(more)}


def of_work(home: str, work: str) -> RunFolder | None:
    """Return the newest run of this work, under any key: the folder is part of the work."""
    runs = (run for run in runs_below(f"{home}/runs") if run.first("work") == work)
    return max(runs, key=made_at, default=None)


def begin(asked: dict[str, str]) -> RunFolder:
    """Start the run, once for its id, or go on with the one of the same work. Raises
    NotStartedError, OSError."""
    if asked["id"] and (run := new_run.started(asked)):
        return run
    home, patience = asked["home"], "inf" if asked["resume_all"] else ""
    if asked["resume_all"]:  # they ran in parallel before
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


def why_done(asked: dict[str, str]) -> str:
    """Say why `begin` would do nothing: done, failed, died; "" if it would."""
    home = asked["home"]
    run = of_work(home, asked["work"])
    if not run or run.state() == WAITING or (asked["resume_all"] and died(home, asked["key"])):
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


def _tell(line: str) -> None:
    with suppress(OSError):
        os.write(1, f"{line}\n".encode("utf-8", "surrogateescape"))


def _serve() -> int:
    try:
        asked = read_request()
        try:
            _tell(begin(asked).path)
        finally:
            # Only now: what waits for its GPUs waits for it.
            revive(asked["home"], f"{asked['home']}/env")
    except NotStartedError as error:
        _tell(f"code {error.code}\n{error}")
        return error.rc
    except OSError as error:
        _tell(f"{error}")
        return 1
    return 0


def keep_ahead(runs: str, tree: str, paths: Sequence[str]) -> None:
    """Copy what a run in this place would lose. What can't be kept is told when it begins."""
    with suppress(keep_results.CantKeep, OSError):
        for one in keep_results.earlier(RunResults(f"{runs}/.new", tree, paths)):
            with suppress(keep_results.CantKeep):
                one.keep(time.monotonic() + keep_results.QUICK_S)


def main() -> int:
    word, *more = sys.argv[1:]
    if word == "check":
        _tell(why_done(read_request()))
        return 0
    if word == "of":
        run = of_work(*more)
        _tell(run.path if run else "")
        return int(not run)
    if word == "died":
        return int(not last_died(*more))
    if word == "id":
        found = new_run.started(dict(zip(("home", "key", "id"), more)))  # noqa: B905 - Python 3.8
        _tell(found.path if found else "")
        return int(not found)
    return _serve()
