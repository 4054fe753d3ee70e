"""A setup: one at a time on a box, its steps, its end.

`onbox setup.main SCRIPT ID SECONDS WORD ...` waits so long for another one; the words are those of
`WantedSetup`.

Standard input has the token that opens a private repository, if any. The secrets that came with it
are at descriptor 8, of which the file `secrets` in its folder is a link.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from hashlib import sha256
from pathlib import Path

from .. import step_report
from ..env_files import forget_login
from ..git import BoxTree
from ..processes import forget_locale, identity
from ..run_folder import alive_in, remove_file, write_whole
from ..run_processes import stop_run
from ..run_queue import take_out
from ..steps.apply import do_step
from ..work.lock import SameSetupError, take_lock
from ..work.trees import choose
from .events import SetupEvents
from .graph import StepGraph
from .home import forget_old_setups, forget_secrets, link, put_in_order
from .wanted import WantedSetup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from ..steps.step import SetupFacts

_SECRETS = 8
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class EarlyEnd(BaseException):
    """The setup ends now: its exit code, and why."""

    def __init__(self, exit_code: int, why: str = "") -> None:
        super().__init__(exit_code, why)
        self.exit_code, self.why = exit_code, why


class BoxSetup:
    """One setup, in the process that was started for it."""

    def __init__(self, script: str, setup: str, words: Sequence[str], token: str) -> None:
        self._wanted, self._setup, self._token = WantedSetup(script, words), setup, token
        self.home, self._asked = self._wanted.home, self._wanted.asked
        self._script = Path(script).read_bytes()
        run = self._asked["run"]
        # A request for a run is not the same as a request for a setup, or for another run.
        self._id = sha256(self._script).hexdigest() + (f"+{run}" if run else "")
        self._folder = f"{self.home}/setups/{setup}"
        os.makedirs(f"{self._folder}/logs", exist_ok=True)
        _hide_secrets(f"{self._folder}/secrets")
        self._process = identity(os.getpid())
        write_whole(f"{self._folder}/pid", f"{self._process}\n", 0o600)
        self._events = SetupEvents(self._folder, setup)
        self._events.note_state(self._id, "running", 0)
        self._graph = StepGraph(self._wanted, self._events, self._do)
        self._tree, self._main, self._alive = BoxTree(self.home, "", ""), "", ""
        self._lock: IO[str] | None = None

    def run(self, wait_s: float) -> None:
        """Do it, and write how it ended, for `status` and a second setup."""
        try:
            self._take_lock(wait_s)
            for each in _SIGNALS:
                signal.signal(each, self._cancel)
            self._begin()
            end = EarlyEnd(self._graph.run())
            forget_secrets(self.home)
            forget_old_setups(self.home)
        except EarlyEnd as early:
            end = early
        # Those that no step took.
        remove_file(f"{self._folder}/secrets")
        self._events.note_state(self._id, "over", end.exit_code)
        why = [f"code={end.why}"] if end.why else []
        # Who reads of the end may begin the next one before this process is gone.
        if self._lock:
            self._lock.close()
        self._events.write("setup", "done", f"rc={end.exit_code}", *why)

    def _take_lock(self, wait_s: float) -> None:
        """Hold it until this process ends."""
        values, events = self._wanted.values, self._events
        try:
            self._lock = take_lock(
                self.home,
                wait_s,
                lambda _: events.write("setup", "wait", "code=busy"),
                script=self._id,
                grace=self._wanted.grace_s,
            )
        except SameSetupError:
            raise EarlyEnd(0, "same") from None
        if not self._lock:
            raise EarlyEnd(8, "busy")
        about = f"{values.repo_name} {values.repo_commit[:12]}"
        with open(f"{self.home}/lock", "w", encoding="utf-8") as file:
            file.write(f"{self._process}\n{self._id}\n{self._setup}\n{about}\n")

    def _cancel(self, *_: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        self._graph.end_all()
        raise EarlyEnd(7, "cancelled")

    def _begin(self) -> None:
        """Do everything before the steps."""
        wanted, home, asked = self._wanted, self.home, self._asked
        # The previous holder of the lock may have brought this same repository.
        key, self._main = wanted.repository()
        write_whole(f"{self._folder}/key", f"{key}\n", 0o600)
        self._tree = BoxTree(home, key, self._main)
        put_in_order(wanted, self._tree)
        if asked["run"]:
            self._choose_tree()
        if "train" in wanted.steps and not (asked["overwrite"] or asked["only"]):
            self._refuse_to_lose()
        # From here on a probe asks this script whether the box is still right.
        if not asked["only"]:
            self._install_script()
        if asked["revive"]:
            from ..runs.resume import last_died

            asked["restart"] = "yes" if last_died(home, key) else asked["restart"]
        run = alive_in(home, key, self._tree.path)
        if run and asked["restart"]:
            left = [] if take_out([run], "stop") else stop_run(run)
            if left:
                about = (f"count={len(left)}", f"pid={left[0].split()[0]}")
                self._events.write("setup", "warn", "code=run-left", *about)
            run = alive_in(home, key, self._tree.path)
        self._alive = run.path if run else ""
        if asked["run"]:
            asked["restart"] = "yes"

    def _choose_tree(self) -> None:
        from ..runs.new_run import started  # late: it is loaded as a training begins

        key, values, asked = self._tree.key, self._wanted.values, self._asked
        if started({"home": self.home, "key": key, "id": asked["run"]}):
            raise EarlyEnd(0)
        work = values.repo_tree, values.train_command, values.train_session
        cell = "yes" if "BOXSTRAP_CELL=" in asked["variables"] else ""
        self._tree = choose(self.home, key, self._main, *work, asked["beside"], cell)

    def _refuse_to_lose(self) -> None:
        """End if a training begins, and must not because results of earlier runs would be lost:
        known before anything is done."""
        from ..steps.train import TrainStep

        log = open(f"{self._folder}/logs/train.log", "w", encoding="utf-8")  # noqa: SIM115
        with log, redirect_stdout(log), redirect_stderr(log), suppress(OSError):
            if TrainStep(self._facts()).would_lose_results():
                raise EarlyEnd(9, "results-unsafe")

    def _install_script(self) -> None:
        """Each repository has its own; the box's `setup.sh` links to the last. A run in a tree
        beside has `run.sh` instead."""
        notes = f"{self.home}/steps/{self._tree.key}"
        own, usual = f"{notes}/setup.sh", f"{self.home}/setup.sh"
        is_beside = self._tree.number != "1" and os.path.exists(own)
        own = f"{notes}/run.sh" if is_beside else own
        os.makedirs(notes, exist_ok=True)
        if not (os.path.isfile(own) and Path(own).read_bytes() == self._script):
            write_whole(own, os.fsdecode(self._script), 0o600)
        if not is_beside and not (os.path.exists(usual) and os.path.samefile(usual, own)):
            link(usual, f"steps/{self._tree.key}/setup.sh")

    def _facts(self) -> SetupFacts:
        more = {"setup": self._folder, "alive": self._alive, "token": self._token}
        return self._wanted.facts(self._tree, self._main, **more)

    def _do(self, step: str, events: int) -> None:
        """Do a step, in a process of its own."""
        log = os.open(f"{self._folder}/logs/{step}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for file in (1, 2):
            os.dup2(log, file)
        if step != "shell":
            with suppress(OSError):
                os.close(_SECRETS)
        step_report.events = events
        # This may be the box's own Python; what is started may outlive that.
        own = f"{self.home}/agent/bin/python"
        sys.executable = own if os.access(own, os.X_OK) else sys.executable
        do_step(step, self._facts(), is_begun=step in self._events.begun)


def _hide_secrets(path: str) -> None:
    """Those of a door are still in a file. Once its name is gone, nothing stays behind if this is
    killed."""
    if os.path.isfile(path) and not os.path.islink(path):
        os.dup2(os.open(path, os.O_RDONLY), _SECRETS)
        os.unlink(path)
        os.symlink(f"/proc/self/fd/{_SECRETS}", path)
    with suppress(OSError):
        os.set_inheritable(_SECRETS, False)


def main() -> None:
    script, setup, wait_s, *words = sys.argv[1:]
    token = sys.stdin.buffer.readline().decode().rstrip("\n")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.umask(0o022)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    forget_locale()
    os.environ.pop("BOXSTRAP_RUN", None)
    os.environ["BOXSTRAP_SETUP"] = setup
    made = BoxSetup(script, setup, words, token)
    forget_login(made.home)
    made.run(float(wait_s))
