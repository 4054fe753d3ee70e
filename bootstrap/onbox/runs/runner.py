"""The process that a run belongs to: it starts the command, and writes how that ended.

`onbox runs.runner RUN` is started in a tmux session, which shows its log, or in a session
of the kernel's; a queued run's waits for its turn first. Signals are blocked, and taken one by one:
none comes in the middle of anything.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from .. import MAIN, SHELL_PROGRAMS
from ..env_files import env_file, forget_login
from ..processes import forget_locale, identity, is_alive
from ..run_folder import RunFolder, lines_of, write_exit, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:  # without importing it: this program starts with each run
    from collections.abc import Callable
    from typing import NoReturn

_ASKED = {signal.SIGTERM, signal.SIGINT}
"""What asks it to end. A hang-up only closes a window: the command continues."""
_HEEDED = {*_ASKED, signal.SIGCHLD}
_RESET = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores the last two, and who started this the others, perhaps: no command is to."""
_STOPPED = 143
_FAILED = 125


class RunRunner:
    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._me = identity(os.getpid())
        self._command = self._keeper = self._watch = 0
        self._codes: dict[int, int] = {}
        """Exit codes of those of its processes that are over."""

    def serve(self) -> NoReturn:
        """Run the command, until its end is written."""
        forget_locale()
        if self._run.has("queue") and not self._run.has("pid"):  # it has no session yet
            from ..run_queue import wait_for_turn

            wait_for_turn(self._run)
            from .window import open_session, window_program  # slow to import

            open_session(self._run, os.path.basename(self._run.path), window_program(self._run))
        elif not self._claim():
            sys.exit(1)
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_HEEDED, signal.SIGHUP})
        try:
            os.chdir(_bytes(self._run.first("dir")))
        except OSError:
            self._end(_FAILED)
        if self._run.has("nodes/watch.json"):
            self._join_nodes()
        self._command = _fork(self._become_command)
        self._keeper = _fork(self._keep_log)
        from .. import run_processes  # noqa: F401
        from . import memory_kills  # noqa: F401 - before anything can take them away

        window = self._window()
        self._await(self._command)
        code = self._codes[self._command]
        if self._watch:
            self._tell_nodes(code, "exit")
            code = self._await_nodes(code)
        self._end(code, window)

    def _claim(self) -> bool:
        """Make this process its runner, and reserve room for the exit code in case the disk is full
        by then; return False if it has one."""
        path = self._run.path
        with suppress(OSError):
            if not self._run.has("pid"):
                if not self._run.has("exit.new"):
                    write_whole(f"{path}/exit.new", "\n")
                write_whole(f"{path}/pid", f"{self._me}\n")
                return True
        return False

    def _become_command(self) -> None:
        """In a session of its own: the command outlives the terminal, and is ended as a whole."""
        os.setsid()
        _onto("/dev/null", f"{self._run.path}/log")
        # Nothing runs without being recorded. The runner's own line had room, so this one has too.
        with open(f"{self._run.path}/pid", "a", encoding="ascii") as file:
            file.write(f"{identity(os.getpid())}\n")
        _track(self._run)
        # boxstrap works in the C locale; the training gets the box's own, or UTF-8.
        for name in ("LC_ALL", "LC_MESSAGES", "LC_NUMERIC"):
            os.environ.pop(name, None)
        os.environ["LANG"] = os.environ.get("LANG") or "C.UTF-8"
        os.environ.update(PYTHONUNBUFFERED="1", BOXSTRAP_RUN=self._run.path)
        command = "\n".join(self._run.lines("command") or []).rstrip("\n")
        if not set(command) & set(";&|\n"):
            # Keeps a simple command out of its shell's command line: a search there finds only its
            # own process.
            command = 'eval "$(<"$BOXSTRAP_RUN/command")"'
        for number in _RESET:
            signal.signal(number, signal.SIG_IGN)  # one that came meanwhile, too
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        env = env_file(self._run.home, self._run.key)
        forget_login(self._run.home)
        words = ("bash", f"{SHELL_PROGRAMS}/begin.sh", env, self._run.first("venv"))
        os.execvp("bash", [*map(_bytes, words), _bytes(command)])  # noqa: S606

    def _keep_log(self) -> None:
        """In a session of its own: it continues if the runner is killed."""
        from .keep_log import keep

        _apart()
        keep(f"{identity(self._command)}", self._run)

    def _window(self) -> Callable[[], None] | None:
        if not os.isatty(1):
            return None
        from .window import show_beside

        return show_beside(self._run)

    def _await(self, process: int, asked: Callable[[], None] | None = None) -> None:
        """Wait for the end of one of its processes; if it is asked to end, stop, or `asked`."""
        while process not in self._codes:
            if signal.sigwait(_HEEDED) in _ASKED:
                (asked or self._stop)()
            self._collect()

    def _collect(self) -> None:
        """Take the exit codes of what is over."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                number, status = found
                is_killed = os.WIFSIGNALED(status)
                code = 128 + os.WTERMSIG(status) if is_killed else os.WEXITSTATUS(status)
                self._codes[number] = code

    def _stop(self) -> NoReturn:
        """End the command, and all that it started."""
        self._tell_nodes(_STOPPED, "stop")
        self._reap()
        if self._command:
            with suppress(OSError):
                os.killpg(self._command, signal.SIGKILL)
        self._collect()
        self._note("stop")
        # The command's own exit code; a process stuck in a driver has none yet.
        code = self._codes.get(self._command, _STOPPED)
        self._end(self._await_nodes(code, again=lambda: None) if self._watch else code)

    def _reap(self) -> None:
        from ..run_processes import grace_of, reap

        with suppress(OSError):
            reap(self._run, [], grace_of(self._run))

    def _note(self, why: str) -> None:
        """Write what decided its exit code."""
        with suppress(OSError):  # a full disk
            write_whole(f"{self._run.path}/ended", f"{why}\n")

    def _end(self, code: int, window: Callable[[], None] | None = None) -> NoReturn:
        """Write what decided the exit code (`exit 7`, `pipeline 1 0`, `stop`, `interrupted …`),
        then the code itself."""
        if code:
            from .memory_kills import keep

            with suppress(Exception):
                keep(self._run, str(code))
        by = self._run.first("interrupted")
        if by or not self._run.first("ended"):
            # Whatever ends after a notice that the box is taken away ended because of it.
            self._note(f"interrupted {by}" if by else f"exit {code}")
        while os.path.isdir(self._run.path):  # no exit code is lost
            with suppress(OSError):
                write_exit(self._run, str(code))
                break
            time.sleep(1)
        if self._keeper:
            with suppress(OSError):
                os.kill(self._keeper, signal.SIGTERM)
        if window:  # it may be a moment behind the log
            window()
        # What it made, and left. Without this it is told before another run begins there.
        _fork(self._note_left)
        os._exit(0)

    def _note_left(self) -> None:
        from ..run_processes import over

        _apart()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        over(self._run)

    def _join_nodes(self) -> None:
        """Begin with the runs of the other nodes, once all are here; see `nodes/watch.py`."""
        self._watch = _fork(self._hold_nodes)
        while not self._run.has("nodes/begun"):
            said = signal.sigtimedwait(_ASKED, 0.1)
            if said:
                self._stop()

    def _hold_nodes(self) -> None:
        """Hold it together with those of the other nodes, and ask it to end when one of them ends
        it, or when nobody holds it any more."""
        _apart(f"{self._run.path}/nodes/output")
        words = [sys.executable, "-I", "-S", "-B", MAIN, "nodes.watch", self._run.path]
        watch = _fork(lambda: _execute(words))
        os.waitpid(watch, 0)
        if not self._run.first("nodes/over"):
            own = self._run.first("nodes/rank") or "0"
            with open(f"{self._run.path}/nodes/over", "w", encoding="ascii") as file:
                file.write(f"{own} {_STOPPED} unwatched\n")
        if self._run.first("nodes/code").strip():
            return  # its command has ended already, or is just asked to: the runner waits for this
        if is_alive(self._me):
            os.kill(int(self._me.split()[0]), signal.SIGTERM)
        else:
            self._reap()

    def _tell_nodes(self, code: int, why: str) -> None:
        """Tell how the command ended here, or that it is asked to end."""
        if not self._watch or self._run.has("nodes/over"):
            return
        why = "interrupted" if self._run.first("interrupted") else why
        with suppress(OSError):
            note = os.open(f"{self._run.path}/nodes/code", os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(note, f"{code} {why}\n".encode())  # into room that was reserved
            os.close(note)

    def _await_nodes(self, code: int, again: Callable[[], None] | None = None) -> int:
        """Wait until all have ended; return the code of what ended them, if that was not here."""
        self._await(self._watch, again or (lambda: self._tell_nodes(_STOPPED, "stop")))
        rank, ended, why = [*self._run.first("nodes/over").split(), "0", "", ""][:3]
        if why == "done":
            return code
        # What a launcher that was killed left would go on without the other nodes.
        self._reap()
        if why == "stop":
            self._note("stop")
        elif rank != (self._run.first("nodes/rank") or "0"):
            self._note(f"node {rank} {ended} {why}")
            return int(ended)
        return code


def _track(run: RunFolder) -> None:
    """Note the mark that its processes carry, and a cgroup (v2) of its own around this one, if the
    box lets us make one; else an empty line. A runner that tracks its run ends all of it."""
    points = [row[1] for row in map(str.split, lines_of("/proc/mounts")) if row[2] == "cgroup2"]
    paths = [line[3:] for line in lines_of("/proc/self/cgroup") if line.startswith("0::/")]
    group = ""
    if points and paths and ".." not in (both := points[-1] + paths[-1].rstrip("/")):
        group = f"{both}/boxstrap-{''.join(lines_of('/proc/sys/kernel/random/uuid'))}"
        try:
            os.mkdir(group)
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
        except OSError:
            with suppress(OSError):
                os.rmdir(group)
            group = ""
    with suppress(OSError):
        write_whole(f"{run.path}/cgroup", f"{group}\n")
        write_whole(f"{run.path}/mark", f"{run.path}\n")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _fork(do: Callable[[], None]) -> int:
    """Start a process that does this; return its number. It is no program of its own: it starts at
    once, and goes on if the program's files are gone."""
    number = os.fork()
    if number:
        return number
    try:
        do()
        os._exit(0)
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(_FAILED)


def _execute(words: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(words[0], words)  # noqa: S606


def _onto(source: str, output: str) -> None:
    """Take standard input from a file, and write all output to the end of another."""
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(os.open(source, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


def _apart(output: str = "/dev/null") -> None:
    os.setsid()
    # One that came before, too: a terminal goes with the runner, whose last act this may be.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _onto("/dev/null", output)


def main() -> None:
    RunRunner(RunFolder(sys.argv[1])).serve()
