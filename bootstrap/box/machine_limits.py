"""What the container really grants: cgroup v1 or v2, quota, cpuset, memory.

`/proc` and the affinity of a container show the whole machine; its cgroup has
the last word. A limit holds for all below it, so every level that can be seen is
asked, and the least counts. Files: cgroups.rst and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar

Number = TypeVar("Number", int, float)

# What v1 writes where there is no limit: the largest multiple of a page in 63 bits.
UNLIMITED = 1 << 62


def cpu_quota(root: Path) -> float | None:
    """Cores' worth of time that the quota grants; None where there is none."""
    found = [quota(*text.split()[:2]) for text in texts(root, "", "cpu.max")]
    for folder in levels(root, "cpu"):
        found.append(quota(read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")))
    return least(found)


def quota(granted: str, period: str = "100000") -> float | None:
    """Cores from `max 100000`, `50000 100000`, or `-1` and a period."""
    if not granted.isdigit() or not period.isdigit() or not int(period):
        return None
    return int(granted) / int(period)


def cpuset(root: Path) -> int | None:
    """How many cores the cpuset holds; None where there is none."""
    v2 = texts(root, "", "cpuset.cpus.effective")
    v1 = texts(root, "cpuset", "cpuset.effective_cpus", "cpuset.cpus")
    return least(count(text) for text in (*v2, *v1))


def count(ranges: str) -> int | None:
    """How many numbers `0-3,8` names."""
    total = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            total += int(last or first) - int(first) + 1
    return total or None


def memory_limit(root: Path) -> int | None:
    """Bytes that may be used; None where there is no limit."""
    v2, v1 = texts(root, "", "memory.max"), texts(root, "memory", "memory.limit_in_bytes")
    limits = [int(text) for text in (*v2, *v1) if text.isdigit()]
    return least(limit for limit in limits if limit < UNLIMITED)


def least(found: Iterable[Number | None]) -> Number | None:
    """The smallest of what was found."""
    return min((each for each in found if each is not None), default=None)


def texts(root: Path, controller: str, *names: str) -> Iterator[str]:
    """The first of the files `names` that has a text, at every level."""
    for folder in levels(root, controller):
        text = next(filter(None, (read(folder / name) for name in names)), "")
        if text:
            yield text


def levels(root: Path, controller: str) -> Iterator[Path]:
    """The folders of our cgroup and of those above it; "" is v2's tree.

    In a container its own cgroup often stands at the top of the tree, under a
    path that only the host knows: then the top is all that is there.
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
    """A small file's text, or ""."""
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return ""
