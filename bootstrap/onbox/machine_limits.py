"""What the container really grants: cgroup v1 or v2, quota, cpuset, memory.

`/proc` and the affinity of a container show the whole machine; its cgroup decides.
A limit applies to everything below it, so every visible level is read, and the
lowest limit counts. Files: cgroups.rst and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

Number = TypeVar("Number", int, float)

# For no limit v1 writes the largest multiple of a page in 63 bits, which is above this.
UNLIMITED = 1 << 62


def cpu_quota(root: Path) -> float | None:
    """Return how many cores' time the quota grants; None if there is no quota."""
    found = [quota(*text.split()[:2]) for text in texts(root, "", "cpu.max")]
    for folder in levels(root, "cpu"):
        found.append(quota(read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")))
    return least(found)


def quota(granted: str, period: str = "100000") -> float | None:
    """Return the cores of `max 100000`, `50000 100000`, or `-1` and a period; None is no limit."""
    if not granted.isdigit() or not period.isdigit() or not int(period):
        return None
    return int(granted) / int(period)


def cpuset(root: Path) -> int | None:
    """Return how many cores the cpuset has; None if there is no cpuset."""
    v2 = texts(root, "", "cpuset.cpus.effective")
    v1 = texts(root, "cpuset", "cpuset.effective_cpus", "cpuset.cpus")
    return least(count(text) for text in (*v2, *v1))


def count(ranges: str) -> int | None:
    """Count the numbers in ranges such as `0-3,8`; None if there are none."""
    total = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            total += int(last or first) - int(first) + 1
    return total or None


def memory_limit(root: Path) -> int | None:
    """Return the bytes that may be used; None if there is no limit."""
    v2, v1 = texts(root, "", "memory.max"), texts(root, "memory", "memory.limit_in_bytes")
    limits = [int(text) for text in (*v2, *v1) if text.isdigit()]
    return least(limit for limit in limits if limit < UNLIMITED)


def least(found: Iterable[Number | None]) -> Number | None:
    """Return the smallest of what was found; None if nothing was."""
    return min((each for each in found if each is not None), default=None)


def texts(root: Path, controller: str, *names: str) -> Iterator[str]:
    """Yield the text of the first of the files `names` that has one, at every level."""
    for folder in levels(root, controller):
        text = next(filter(None, (read(folder / name) for name in names)), "")
        if text:
            yield text


def levels(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of those above it; "" is v2's tree.

    A container's own cgroup is often at the top of the tree, under a path
    that only the host knows: then only the top exists.
    """
    mount = root / "sys/fs/cgroup"
    for line in read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller not in names.split(","):
            continue
        tops = [mount / controller, mount / names] if controller else [mount / "unified", mount]
        top = next((top for top in tops if top.is_dir()), None)
        place = PurePosixPath(path.lstrip("/"))
        if top:
            yield from (top / each for each in (place, *place.parents) if ".." not in each.parts)


def read(file: Path) -> str:
    """Return a small file's text; "" if it can't be read."""
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return ""
