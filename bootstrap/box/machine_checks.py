"""The checks of the machine around the GPUs: what its container grants, disk, network, clock.

Units: GiB, megabytes (10^6) a second, seconds. docs/verdict.md has the sources.
"""

from __future__ import annotations

from .check import MIND, NA, PASS, RETURN, SLOWER, STERN, WARN, Check, Found, Reading
from .order import Order

GIB = 1024**3

LIMITS = {
    "memory": 0.96,  # kernel and firmware keep their share of what is sold
    "shm_gib": 1.0,  # containers have 64 MiB unless told otherwise
    "disk_gib": 10.0,  # an environment with torch, its downloads, a checkpoint
    "disk_mb_s": 20.0,  # a checkpoint of 1 GB takes 50 s
    "index_mb_s": 2.0,  # torch and what it brings, 3 GB, take 25 minutes
    "git_s": 1.0,
    "clock_s": 60.0,
}


def judge_cpus(order: Order, cpus: dict[str, float]) -> Found:
    """As many cores as ordered, after quota, cpuset and affinity."""
    granted, asked = cpus["granted"], order.box.min_cpus
    read = f"{granted:g} of the machine's {cpus['machine']:g}"
    if asked is None:
        return Found(PASS, read)
    if granted < asked:
        says = f"this container may use {read} CPU cores, ordered were {asked:g}"
        return Found(RETURN, read, f"{asked:g}", says)
    return Found(PASS, read, f"{asked:g}")


def judge_ram(order: Order, ram: dict[str, int]) -> Found:
    """As much memory as ordered, with tolerance, after the container's limit."""
    here, asked = ram["granted"] / GIB, order.box.min_memory_gib
    read = f"{here:.1f} GiB"
    if asked is None:
        return Found(PASS, read)
    if here < asked * LIMITS["memory"]:
        says = f"this container may use {read} of memory, ordered were {asked:g} GiB"
        return Found(RETURN, read, f"{asked:g} GiB", says)
    return Found(PASS, read, f"{asked:g} GiB")


def judge_shm(order: Order, size: int) -> Found:
    """Room in /dev/shm, through which data loaders hand over their batches."""
    here, asked = size / GIB, order.box.min_shm_gib
    read = f"{here:.1f} GiB" if here >= 1 else f"{size / 1024**2:.0f} MiB"
    if asked is not None:
        if here < asked * LIMITS["memory"]:
            says = f"shared memory (/dev/shm) is {read}, ordered were {asked:g} GiB"
            return Found(RETURN, read, f"{asked:g} GiB", says)
        return Found(PASS, read, f"{asked:g} GiB")
    expected = f"{LIMITS['shm_gib']:g} GiB"
    if here < LIMITS["shm_gib"]:
        says = f"shared memory (/dev/shm) is {read}: data loaders with workers die when it is full"
        return Found(WARN, read, expected, says)
    return Found(PASS, read, expected)


def judge_disk(order: Order, free: int) -> Found:
    """Room in the working folder."""
    here, asked = free / GIB, order.box.min_disk_gib
    read = f"{here:.1f} GiB free"
    if asked is not None and here < asked:
        says = f"the working folder has {read}, ordered were {asked:g} GiB"
        return Found(RETURN, read, f"{asked:g} GiB", says)
    expected = f"{LIMITS['disk_gib'] if asked is None else asked:g} GiB"
    if asked is None and here < LIMITS["disk_gib"]:
        says = f"the working folder has {read}: an environment with torch needs about 8"
        return Found(WARN, read, expected, says)
    return Found(PASS, read, expected)


def judge_disk_speed(_order: Order, speed: float) -> Found:
    """The working folder takes what is written to it, synced."""
    read, expected = megabytes(speed), f"{LIMITS['disk_mb_s']:g} MB/s"
    if speed < LIMITS["disk_mb_s"]:
        return Found(WARN, read, expected, f"the working folder takes {read}, synced")
    return Found(PASS, read, expected)


def judge_index(_order: Order, index: dict[str, Reading]) -> Found:
    """The package index answers, and gives its files in good time."""
    expected = f"{LIMITS['index_mb_s']:g} MB/s"
    if index.get("error"):
        says = f"the package index {index['host']} can't be used: {index['error']}"
        return Found(WARN, str(index["error"]), expected, says)
    read = f"{megabytes(index['mb_s'])} from {index['host']}"
    if index["mb_s"] < LIMITS["index_mb_s"]:
        says = f"the package index gives {read}: torch takes {minutes(index['mb_s'])} minutes"
        return Found(WARN, read, expected, says)
    return Found(PASS, read, expected)


def judge_git(_order: Order, git: dict[str, Reading]) -> Found:
    """The git host from which the box is to clone answers."""
    expected = f"an answer within {LIMITS['git_s']:g} s"
    if git.get("error"):
        says = f"the git host {git['host']} can't be reached: {git['error']}"
        return Found(WARN, str(git["error"]), expected, says)
    read = f"{git['host']} in {git['seconds'] * 1000:.0f} ms"
    if git["seconds"] > LIMITS["git_s"]:
        return Found(WARN, read, expected, f"the git host answers slowly: {read}")
    return Found(PASS, read, expected)


def judge_clock(_order: Order, off: dict[str, float]) -> Found:
    """The clock is right by somebody: the package index, or the machine that asked."""
    if not off:
        return Found(NA, "nobody to compare it with")
    least = min(off.values(), key=abs)
    read, expected = f"{abs(least):.0f} s off", f"{LIMITS['clock_s']:g} s at most"
    if abs(least) > LIMITS["clock_s"]:
        says = f"this box's clock is {abs(least):.0f} s {'ahead' if least > 0 else 'behind'}"
        return Found(WARN, read, expected, says)
    return Found(PASS, read, expected)


def megabytes(speed: float) -> str:
    """A speed of megabytes a second."""
    return f"{speed:.0f} MB/s" if speed >= 10 else f"{speed:.1f} MB/s"


def minutes(speed: float) -> str:
    """How long 3 GB take at a speed."""
    return f"{3000 / max(speed, 0.01) / 60:.0f}"


SHM = "Raise it where the box is rented (docker: --shm-size=8g); or train with num_workers=0."
DISK = "Rent a larger disk, or set box.workdir to a folder on a larger one."
INDEX = "Check the box's network and its pip settings; a box nearer to the index builds sooner."
GIT = "Check git.url and the box's network, or send the commit yourself: git.access: over-ssh."
CLOCK = "Signed requests and fresh certificates are refused: set its clock, or restart the box."
WRITES = "Checkpoints and caches will take their time: compare with what you pay."

MACHINE_CHECKS = (
    Check("cpus", "box-cpus", ("cpus",), judge_cpus, STERN, SLOWER),
    Check("ram", "box-memory", ("ram",), judge_ram, STERN, MIND),
    Check("shm", "box-shm", ("shm",), judge_shm, SHM, SHM),
    Check("disk", "box-disk", ("disk",), judge_disk, DISK, DISK),
    Check("disk-speed", "disk-slow", ("disk_speed",), judge_disk_speed, STERN, WRITES, idle=True),
)
NETWORK_CHECKS = (
    Check("index", "index-slow", ("index",), judge_index, INDEX, INDEX, idle=True),
    Check("git-host", "git-slow", ("git",), judge_git, GIT, GIT),
    Check("clock", "clock-wrong", ("clock",), judge_clock, CLOCK, CLOCK),
)
