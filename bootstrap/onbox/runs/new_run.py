"""A run is made, whole or not at all, and started: its folder, what it needs of earlier ones, and
its runner.
"""

from __future__ import annotations

import fcntl
import io
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress

from .. import MAIN
from ..processes import begin_apart, forget_locale
from ..run_folder import (
    QUEUED,
    RUNNING,
    WAITING,
    RunFolder,
    lines_of,
    names_in,
    runs_below,
    secrets_of,
)
from ..run_queue import may_begin, revive, runner_of
from ..work.repair import remove_folder
from .keep_monitor import keep
from .window import has_runner, open_session, tmux

ALWAYS = (
    *("work", "commit", "snapshot", "tree", "dir", "data", "venv", "command", "session"),
    *("grace", "log_max"),
)
IF_ASKED = (
    *("id", "gpus", "variables", "resume", "on_notice", "metrics", "results", "results_to"),
    *("notify", "queue"),
)
"""What a run is made of, a file each."""
_REFUSED = 9
_BEGINS_S = 10.0


class NotStartedError(Exception):
    """A run was not made, or did not start: `code` is for the setup's events."""

    def __init__(self, code: str, why: str, rc: int = 1) -> None:
        super().__init__(why)
        self.code, self.rc = code, rc


def make(asked: Mapping[str, str]) -> RunFolder:
    """Make the folder of a run. Raises NotStartedError, OSError."""
    runs, again = f"{asked['home']}/runs/{asked['key']}", with_id(asked)
    if again:  # it was made under this id, but never started: the power failed
        remove_folder(again.path)
    _check_gpus(asked)
    before = asked["queue"].partition(" ")[2]
    if before and not os.path.isdir(f"{os.path.dirname(runs) if '/' in before else runs}/{before}"):
        said = f"there is no run {before} here that this one could wait for"
        raise NotStartedError("no-run-before", said)
    texts = {name: asked[name] for name in ALWAYS}
    texts.update({name: asked[name] for name in IF_ASKED if asked[name]})
    if asked["queue"]:
        texts["exit.new"] = ""  # room, so that it can be taken out when the disk is full
    if edited := lines_of(f"{asked['notes']}/repo.edited"):
        texts["edited"] = "\n".join(edited)
    return write(runs, texts, asked)


def write(runs: str, texts: Mapping[str, str], nodes: Mapping[str, str] | None = None) -> RunFolder:
    """Write a run's files, under the next name of its session."""
    new = f"{runs}/.new.{os.getpid()}"
    os.makedirs(new)
    try:
        for name, text in {**texts, "started": f"{int(time.time())}"}.items():
            with open(f"{new}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{text}\n")
        if nodes:
            _take_nodes(new, nodes)
        number = 1
        while os.path.lexists(f"{runs}/{texts['session']}-{number}"):
            number += 1
        os.rename(new, f"{runs}/{texts['session']}-{number}")
    except BaseException:
        remove_folder(new)
        raise
    return RunFolder(f"{runs}/{texts['session']}-{number}")


def _check_gpus(asked: Mapping[str, str]) -> None:
    """CUDA hides all GPUs from a number on that isn't there, and a program then silently computes
    without them."""
    said = lines_of(f"{asked['home']}/gpu.said")
    count = next((int(line[5:]) for line in said if line.startswith("gpus ")), None)
    for gpu in filter(None, asked["gpus"].split(",")):
        if count is not None and int(gpu) >= count:
            there = f" {gpu}: they are 0 to {count - 1}" if count else ""
            raise NotStartedError("gpu-not-there", f"this box has no GPU{there}")


def _take_nodes(new: str, asked: Mapping[str, str]) -> None:
    """Take what `nodes/check.py` wrote for this run, if it is one of several nodes. It never begins
    alone."""
    if asked["nodes_id"]:
        os.rename(f"{asked['home']}/nodes/{asked['nodes_id']}", f"{new}/nodes")
        # Where not all results are wanted, those of node 0 are.
        if not asked["results_of_all"] and RunFolder(new).first("nodes/rank") != "0":
            for name in filter(RunFolder(new).has, ("results", "results_to")):
                os.unlink(f"{new}/{name}")
    elif asked["train_nodes"]:
        from ..nodes.check import of_engine  # few boxes have it

        found = of_engine(asked["train_nodes"])
        if not found:
            said = f"the other {asked['train_nodes']} nodes are not begun with it"
            raise NotStartedError("nodes-alone", said)
        os.mkdir(f"{new}/nodes")
        with open(f"{new}/nodes/env", "w", encoding="utf-8") as file:
            file.write(f"{found}\n")


def with_id(asked: Mapping[str, str]) -> RunFolder | None:
    """Return the run made under this id, the same however often it is asked for."""
    runs = f"{asked['home']}/runs/{asked['key']}"
    every = (RunFolder(f"{runs}/{name}") for name in names_in(runs) if asked["id"])
    return next((run for run in every if run.first("id") == asked["id"]), None)


def started(asked: Mapping[str, str]) -> RunFolder | None:
    """Return the run that was started under this id, or is just being started."""
    run = with_id(asked)
    if run and run.state() == WAITING and has_runner(run):
        with suppress(NotStartedError):
            await_begin(run)
    return run if run and run.state() != WAITING else None


def start(
    run: RunFolder, results: Sequence[str], *, overwrite: bool = False, patience: str = ""
) -> None:
    """Start it, in tmux if that makes a session, else in one of the kernel's: same log, same exit
    code. Raises NotStartedError, OSError."""
    more = filter(None, [patience])
    keep(run.home)  # a restart of the box ended what held its lease
    _make_results(run.first("dir"), results)
    if run.has("queue"):  # its runner waits, and then makes its session
        _keep_results(run, "give-up" if overwrite else "room", *more)
        revive(run.home)
        if run.state() == QUEUED and not run.is_attended:
            said = f"no process could be started that waits for the turn of {run.path}"
            raise NotStartedError("run-not-begun", said)
        if may_begin(run):  # at once, if its results may be kept
            with suppress(NotStartedError):
                await_begin(run)
        return
    if not has_runner(run):  # a setup that was killed may have started it a moment ago
        _keep_results(run, "give-up" if overwrite else "begin", *more)
        program = runner_of(run)
        if not (has_tmux() and open_session(run, run.first("session"), program)):
            begin_apart(*program)
    await_begin(run)


def await_begin(run: RunFolder) -> None:
    until = time.monotonic() + _BEGINS_S
    while not run.has("pid"):
        if time.monotonic() > until:
            said = f"the run in {run.path} did not start within 10 seconds"
            raise NotStartedError("run-not-begun", said)
        time.sleep(0.005)


def _make_results(tree: str, results: Sequence[str]) -> None:
    """Make the folders of `results`, but none that a link puts outside the tree."""
    for path in results:
        # A path that does not end in a slash may be a file.
        folder, slash, _ = path.rpartition("/")
        place = os.path.realpath(f"{tree}/{folder}")
        if slash and place.startswith(f"{os.path.realpath(tree)}/"):
            with suppress(OSError):
                os.makedirs(place, exist_ok=True)


def _keep_results(run: RunFolder, *asked: str) -> None:
    """Keep the results of earlier runs that are not home before this one begins. If that can't be
    done, it is not started, and the reason is said, for the user's machine to put in words."""
    from ..results import keep_results  # late: a plan has no use for it

    with io.StringIO() as said:
        try:
            with redirect_stdout(said):
                refused = bool(keep_results.asked(asked[0], run.path, *asked[1:]))
        except OSError as error:
            refused = bool(said.write(str(error)))
        if refused:
            remove_folder(run.path)
            raise NotStartedError("results-unsafe", said.getvalue().rstrip("\n"), _REFUSED)


def has_tmux() -> bool:
    folders = os.environ.get("PATH", os.defpath).split(":")
    return any(os.access(f"{folder}/tmux", os.X_OK) for folder in folders)


def has_session(run: RunFolder) -> bool:
    """Whether its session is there, if it is to have one. A queued run has none yet between getting
    its turn and starting its work."""
    if run.state() != RUNNING or not run.child or not has_tmux():
        return True
    return tmux("has-session", "-t", f"={run.first('session')}") is not None


def idle_uploads(home: str) -> Iterator[RunFolder]:
    """Yield the runs whose results are not all in their bucket while nobody uploads them: the box
    was restarted, or the bucket could not be reached for a day."""
    for run in runs_below(f"{home}/runs"):
        said = run.lines("uploaded") if run.has("results_to") else None
        if said is None or any(line.startswith("whole ") for line in said):
            continue
        # The uploader takes the lock before it notes anything.
        with suppress(OSError), open(f"{run.path}/upload.lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield run


def revive_uploads(home: str) -> None:
    for run in [*idle_uploads(home)]:
        begin_apart(sys.executable, "-I", "-B", MAIN, "bucket.upload_results", run.path)


def clean_environment(home: str) -> None:
    """Take out of ours what Python set, and the box's secrets, which rc files set: tmux shows what
    it has to anyone who asks. A run reads them from their file. No program can use a TMPDIR that
    isn't there."""
    forget_locale()
    lost = () if os.access(os.environ.get("TMPDIR", ""), os.W_OK) else ("TMPDIR",)
    for name in {*secrets_of(home), *lost, "TMUX", "BOXSTRAP_RUN"} & {*os.environ}:
        del os.environ[name]
