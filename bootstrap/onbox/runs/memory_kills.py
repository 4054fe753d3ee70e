"""Processes that the kernel killed for memory while a run was alive.

The number is from the nearest cgroup (v1 or v2) that counts, others in the same container included.
The name, and how much memory it held, are from the kernel's log, if that can be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from ..run_folder import RunFolder, lines_of, write_whole

_LAST = re.compile(r".*?(\d+)\.\d*\].*Killed process (\d+) \(([^)]*).*anon-rss:(\d+)kB")


def find_counter(mounts: Sequence[str], cgroups: Sequence[str]) -> str:
    """Return the nearest file that counts, from a process's cgroup up to the root; "" for none."""
    v1 = v2 = found = ""
    for _, at, kind, options in (line.split()[:4] for line in mounts):
        v2 = at if kind == "cgroup2" else v2
        v1 = at if kind == "cgroup" and "memory" in options.split(",") else v1
    for names, path in (line.split(":", 2)[1:] for line in cgroups):
        if "memory" in names.split(","):
            found = _nearest(v1, path, "memory.oom_control") or found
        elif not names:
            found = found or _nearest(v2, path, "memory.events")
    return found


def _nearest(point: str, path: str, name: str) -> str:
    """A container may not see its own path, only what is above it."""
    while point and not os.access(f"{point}{path.rstrip('/')}/{name}", os.R_OK):
        if not path:
            return ""
        path = path.rstrip("/").rpartition("/")[0]
    return point and f"{point}{path.rstrip('/')}/{name}"


def _counted(file: str) -> int | None:
    said = dict(line.split(" ", 1) for line in lines_of(file))
    return int(said["oom_kill"]) if "oom_kill" in said else None


def note_kills(run: RunFolder, number: str) -> None:
    """Note how many there were, by the cgroup of its first process, or else by our own."""
    cgroups = lines_of(f"/proc/{number}/cgroup") or lines_of("/proc/self/cgroup")
    counter = find_counter(lines_of("/proc/mounts"), cgroups)
    before, group = _counted(counter), os.path.dirname(counter)
    limits = (lines_of(f"{group}/memory.{name}") for name in ("max", "limit_in_bytes"))
    limit = next((lines[0] for lines in limits if lines), "")
    limit = limit if limit.isdigit() and len(limit) < 19 else "-"  # nineteen, of v1, are none
    if before is not None:
        with suppress(OSError):  # a full disk
            write_whole(f"{run.path}/kills", f"{before} {limit} {counter}\n")


def keep_kills(run: RunFolder, code: str, kernel: str) -> None:
    """Note in `killed` how many there were since, the limit, what the last one held, and its name.
    None is noted only if something killed the run."""
    before, limit, counter = [*run.first("kills").split(" ", 2), "", ""][:3]
    now = _counted(counter) if before else None
    held, name, is_first = _last_kill(run, kernel)
    count = max(-1 if now is None else now - int(before), 1 if is_first else -1)
    if count > 0 or (count == 0 and code == "137"):
        about = f"{held} {name}" if count else "- -"
        write_whole(f"{run.path}/killed", f"{count} {limit or '-'} {about}\n")


def _last_kill(run: RunFolder, kernel: str) -> tuple[str, str, bool]:
    """Return bytes and name of the last one since the run began, `-` if unknown, and whether it was
    the run's own first process. A process's start is in hundredths of seconds since boot."""
    number, began = [*run.child.split(), "", ""][:2]
    lines = [line for line in kernel.splitlines() if "Killed process" in line]
    said = _LAST.match(lines[-1]) if lines else None
    if not said or not began or int(said[1]) < int(began) // 100 - 1:
        return "-", "-", False
    return str(int(said[4]) * 1024), said[3], said[2] == number


def keep(run: RunFolder, code: str) -> None:
    """Note them in RUN/killed, once its command has ended."""
    import subprocess  # slow to import, and few runs fail

    kernel = b""
    if not run.has("kills"):  # it was over before that was noted: none were counted
        note_kills(run, "self")
    with suppress(OSError):
        kernel = subprocess.run(["dmesg"], capture_output=True, check=False).stdout
    keep_kills(run, code, kernel.decode("utf-8", "replace"))
