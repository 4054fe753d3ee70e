"""What is asked in a word about a run, or about the lease.

`onbox verbs BOX_HOME REQUEST`: a document of JSON, whose `verb` is one of `VERBS`, with what that
needs. Lines are printed, of values with tabs between them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from . import MAIN
from .processes import begin_apart, is_alive
from .run_folder import QUEUED, RUNNING, RunFolder, lines_of, remove_file, runs_below, write_whole
from .step_report import question

_LOOKS = 30  # for what was added, at the lease's monitor, which looks every ten seconds


def _row(run: RunFolder) -> list[str]:
    """Return its state, a finished one with what decided its exit code; how long its log is, when
    it ended, when it began; and of its disk, if that is low, what is noted."""
    state = run.state()
    ended = run.first("ended") if run.has("exit") else ""
    log, *times = (run.stat(name) for name in ("log", "exit", "pid"))
    seconds = [str(int(time.st_mtime)) if time else "" for time in times]
    low = "\t".join(run.lines("disk_low") or [])[:2048]
    return [f"{state} {ended}".rstrip(), str(log.st_size if log else 0), *seconds, low]


def end(run: RunFolder, _: dict[str, str]) -> Iterator[str]:
    """Say what became of a run."""
    yield "\t".join(_row(run))


def wait(run: RunFolder, asked: dict[str, str]) -> Iterator[str]:
    """Say it each time its state changes, and when its disk gets low, until it is over or nobody
    listens any more. `old KIND SECONDS TEXT` and `news …`: what the monitor found before, and since
    then (`runs/news.py`). `unattended`: for so many seconds neither a process that waits for its
    turn nor a setup, as of the start-up hook, was there that would start it."""
    listener, told, shown, word = os.getppid(), ["", ""], 0, "old"
    home, idle = RunFolder(asked["home"]), 0
    while True:
        *about, low = _row(run)
        if about[0] != told[0] or (low and not told[1]):
            yield "\t".join([*about, "" if told[1] else low])
        news = lines_of(f"{run.path}/news")
        for line in news[shown:]:
            yield f"{word}\t{line}"
        told, shown, word = [about[0], low], len(news), "news"
        if about[0] not in (RUNNING, QUEUED) or os.getppid() != listener:
            return
        is_kept = about[0] == RUNNING or run.is_attended or is_alive(home.first("lock"))
        idle = 0 if is_kept else idle + 1
        if idle >= int(asked["patience"]):
            yield "unattended"
            return
        time.sleep(1)


def first(run: RunFolder, asked: dict[str, str]) -> Iterator[str]:
    """Wait for its first output, or its end, so many seconds, and show it."""
    from .runs.first_output import await_output, became  # few words need it

    await_output(run, float(asked["seconds"]))
    yield from became(run)


def safe(run: RunFolder, asked: dict[str, str]) -> Iterator[str]:
    """Note which of its results are safe at home, for the lease; an empty note takes that back. And
    of what it made, as its record has it: a later run need not preserve that."""
    if os.path.isdir(run.path):
        write_whole(f"{run.path}/results.home", f"{asked['made']}\n")
        write_whole(f"{run.path}/safe", f"{asked['note']}\n")
        yield "noted\tyes"


def detach(_: RunFolder, asked: dict[str, str]) -> Iterator[str]:
    """Take lines `NAME BOX ADDRESS` from standard input, of who is to be told of these runs: the
    monitor does that, of what it finds from now on. Say which of them go on."""
    rows = sys.stdin.read().splitlines()
    for name in asked["runs"].split():
        run = RunFolder(f"{asked['home']}/runs/{name}")
        if run.state() in (RUNNING, QUEUED):
            kinds = (re.sub("[^a-z]", "", line.split(" ")[0]) for line in run.lines("news") or [])
            known = "".join(f"{kind}," for kind in kinds if kind) or "-"
            write_whole(f"{run.path}/notify_to", "".join(f"{known} {row}\n" for row in rows))
            yield f"told\t{name}"
    # The box has one already, as a rule: a second one exits.
    begin_apart(sys.executable, "-I", "-B", MAIN, "runs.monitor", asked["home"])


def lease(_: RunFolder, asked: dict[str, str]) -> Iterator[str]:
    """Extend the lease, or release it; say how it is."""
    files, place = RunFolder(asked["home"]), f"{asked['home']}/lease"
    if not files.has("lease.json"):
        yield "none\t"
    elif asked["what"] == "release":
        for name in filter(files.has, map("lease.{}".format, ("json", *_OF_LEASE))):
            os.unlink(f"{asked['home']}/{name}")
        yield "released\t"
    else:
        is_added = asked["what"] == "extend"
        # A request that is repeated after a lost link counts once.
        if is_added and asked["id"] not in lines_of(f"{place}.ids"):
            for name, line in (("ids", asked["id"]), ("extended", asked["seconds"])):
                with open(f"{place}.{name}", "a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
        for _look in range(_LOOKS if is_added else 0):
            if _counts_all(files) or not is_alive(files.first("lease.pid")):
                break
            time.sleep(0.5)
        kept = "kept" if is_alive(files.first("lease.pid")) else "lost"
        yield f"lease\t{kept}\t{files.first('lease.state')}"


def _counts_all(files: RunFolder) -> bool:
    """Whether the lease's monitor has seen what was added: a look that began before has not."""
    import json  # few words need it

    with suppress(KeyError, TypeError, ValueError):
        counted = json.loads(files.first("lease.state"))["counted"]["extended"]
        return bool(counted >= sum(map(int, lines_of(f"{files.path}/lease.extended"))))
    return False


def wipe(_: RunFolder, asked: dict[str, str]) -> Iterator[str]:
    """Remove the secrets from this box, while no setup is at work. Live runs keep what they were
    started with."""
    from . import env_files  # few words need these
    from .work.lock import take_lock

    lock = take_lock(asked["home"], 0, lambda _: None)
    if not lock:
        yield "busy\tyes"
        return
    with lock:
        for run in runs_below(f"{asked['home']}/runs"):
            remove_file(f"{run.path}/notify_to")  # addresses are secrets, too
        wiped = env_files.wipe(asked["home"], asked["names"].split())
    yield from map("wiped\t{}".format, wiped)


_OF_LEASE = ("state", "extended", "ids", "digests")
VERBS = {each.__name__: each for each in (end, wait, first, safe, detach, lease, wipe)}


def main() -> None:
    home, asked = question()
    os.umask(0o077)
    run = RunFolder(f"{home}/runs/{asked.get('run', '')}")
    with suppress(BrokenPipeError):
        for line in VERBS[asked["verb"]](run, {**asked, "home": home}):
            os.write(1, line.encode("utf-8", "surrogateescape") + b"\n")
