"""A session of tmux that shows a run's log.

It is only a window onto a run: if somebody ends it, or tmux itself dies, the run continues. The
server is our own, apart from the provider's and from the user's settings; it shows its environment
to anyone who asks, so who starts it has none (`new_run.clean_environment`).

`onbox runs.window RUN` shows the log of a run whose runner is elsewhere; Ctrl-C ends the run, as in
its own session.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, count

from .. import MAIN
from ..processes import is_alive
from ..run_folder import RUNNING, RunFolder, write_whole
from ..short_program import run as run_program

_LOOK_S = 0.2
_PIECE = 1 << 16


def tmux(*words: str, quiet: bool = True) -> str | None:
    """Ask our own server; return what it prints, None if it refuses or there is no tmux."""
    command = ["tmux", "-u", "-L", "boxstrap", "-f", "/dev/null", *words]
    with suppress(OSError):
        done = run_program(command, os.environ)
        sys.stderr.write("" if quiet else done.errors.decode("utf-8", "replace"))
        return None if done.code else done.output.decode("utf-8", "replace")
    return None


def open_session(run: RunFolder, name: str, program: Sequence[str]) -> bool:
    """Make a session in which one of our programs runs; if a live session of another run has that
    name, under a longer one. Return whether there is one."""
    # A server whose last session was just ended is shutting down, and accepts nothing more; and
    # another setup of this account may have taken the name since it was found to be free.
    for pause in (0.1, 0.5, 1.0, 0.0):
        free, is_there = _free_name(run, name)
        # A dead session of that name goes by the same call: without any, the server would end.
        dead = ("kill-session", "-t", f"={free}", ";") if is_there else ()
        write_whole(f"{run.path}/session", f"{free}\n")
        size = ("-x", "200", "-y", "50")
        words = ("new-session", "-d", *size, "-s", free, "-c", run.first("dir"), *program)
        stays = (";", "set-option", "-t", f"={free}:", "remain-on-exit", "on")
        if tmux(*dead, *words, *stays, quiet=False) is not None:
            return True
        time.sleep(pause)
        if has_runner(run):
            return True
    return False


def _free_name(run: RunFolder, name: str) -> tuple[str, bool]:
    """Return a name that no live session has, and whether a dead one has it."""
    longer = re.sub("[^A-Za-z0-9_-]", "-", f"{name}-{run.key}")
    for free in chain((name, longer), (f"{longer}-{number}" for number in count(2))):
        panes = tmux("list-panes", "-t", f"={free}:", "-F", "#{pane_dead}")
        if "0" not in (panes or "").split():
            return free, bool(panes)
    raise AssertionError


def has_runner(run: RunFolder) -> bool:
    """Whether a process is at work for it: its runner, which may not have claimed it yet."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{number}/cmdline", "rb") as file:
            words = file.read()
            # A tmux server keeps the words of its first session for as long as it lives.
            is_tmux = os.path.basename(words.partition(b"\0")[0]) == b"tmux"
            if not is_tmux and b"\0runs.runner\0%b\0" % os.fsencode(run.path) in words:
                return True
    return False


def window_program(run: RunFolder) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", MAIN, "runs.window", run.path]


class Window:
    """What of a log is shown already."""

    def __init__(self, run: RunFolder) -> None:
        self._log = f"{run.path}/log"
        self._at = run.times[0][1] if run.times else 0

    def show(self) -> None:
        """Show what is new. Raises OSError if nobody can see it."""
        try:
            log = open(self._log, "rb")  # noqa: SIM115 - only its absence is no error
        except OSError:
            return
        with log:
            if os.fstat(log.fileno()).st_size < self._at:
                self._at = 0  # it was emptied
            log.seek(self._at)
            while piece := log.read(_PIECE):
                self._at += len(piece)
                while piece:
                    piece = piece[os.write(1, piece) :]


def show_while(run: RunFolder, *states: str) -> str:
    """Show it while the run is in one of these states; return the next one."""
    window = Window(run)
    while (state := run.state()) in states:
        window.show()
        time.sleep(_LOOK_S)
    window.show()
    return state


def show_beside(run: RunFolder) -> Callable[[], None]:
    """Show the log in a thread, which may hang on a terminal; return what ends it with its last
    words."""
    import threading  # late: a plan shows nothing

    window, is_over = Window(run), threading.Event()

    def show() -> None:
        with suppress(OSError):
            while not is_over.wait(_LOOK_S):
                window.show()
            window.show()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()

    def end() -> None:
        is_over.set()
        thread.join(1)

    return end


def main() -> None:
    run = RunFolder(sys.argv[1])
    runner = run.first("pid")

    def stop(*_: object) -> None:
        if is_alive(runner):
            os.kill(int(runner.split()[0]), signal.SIGTERM)

    signal.signal(signal.SIGINT, stop)
    show_while(run, RUNNING)
