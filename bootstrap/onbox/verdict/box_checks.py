"""The checks of the machine around the GPUs, its disk, its network, and its clock.

Judges first, each table after them. Units: GiB, megabytes (10^6) a second, seconds.
"""

from __future__ import annotations

from . import thresholds
from .check import GIB, NA, PASS, RETURN, SLOWER, WARN, Check, Judgement, Reading, expect, megabytes
from .expected_hardware import ExpectedHardware


def judge_cpus(wanted: ExpectedHardware, cpus: dict[str, float]) -> Judgement:
    """As many cores as ordered, after quota, cpuset and affinity."""
    granted, asked = cpus["granted"], wanted.box.min_cpus
    read = f"{granted:g} of the machine's {cpus['machine']:g}"
    if asked is None:
        return Judgement(PASS, read)
    says = f"this container may use {read} CPU cores, ordered were {asked:g}"
    return expect(granted >= asked, RETURN, read, f"{asked:g}", says)


def judge_ram(wanted: ExpectedHardware, ram: dict[str, int]) -> Judgement:
    """As much memory as ordered, with tolerance, after the container's limit."""
    here, asked = ram["granted"] / GIB, wanted.box.min_memory_gib
    read = f"{here:.1f} GiB"
    if asked is None:
        return Judgement(PASS, read)
    says = f"this container may use {read} of memory, ordered were {asked:g} GiB"
    enough = here >= asked * thresholds.MACHINE["memory"]
    return expect(enough, RETURN, read, f"{asked:g} GiB", says)


def judge_shm(wanted: ExpectedHardware, size: int) -> Judgement:
    """Room in /dev/shm, through which data loaders hand over their batches."""
    here, asked, least = size / GIB, wanted.box.min_shm_gib, thresholds.MACHINE["shm_gib"]
    read = f"{here:.1f} GiB" if here >= 1 else f"{size / 1024**2:.0f} MiB"
    if asked is not None:
        says = f"shared memory (/dev/shm) is {read}, ordered were {asked:g} GiB"
        enough = here >= asked * thresholds.MACHINE["memory"]
        return expect(enough, RETURN, read, f"{asked:g} GiB", says)
    says = f"shared memory (/dev/shm) is {read}: data loaders with workers die when it is full"
    return expect(here >= least, WARN, read, f"{least:g} GiB", says)


def judge_disk(wanted: ExpectedHardware, free: int) -> Judgement:
    """Room in the working folder."""
    here, asked, least = free / GIB, wanted.box.min_disk_gib, thresholds.MACHINE["disk_gib"]
    read = f"{here:.1f} GiB free"
    if asked is not None:
        says = f"the working folder has {read}, ordered were {asked:g} GiB"
        return expect(here >= asked, RETURN, read, f"{asked:g} GiB", says)
    says = f"the working folder has {read}: an environment with torch needs about 8"
    return expect(here >= least, WARN, read, f"{least:g} GiB", says)


def judge_disk_speed(_wanted: ExpectedHardware, speed: float) -> Judgement:
    """The working folder takes what is written to it, synced."""
    read, least = megabytes(speed), thresholds.MACHINE["disk_mb_s"]
    says = f"the working folder takes {read}, synced"
    return expect(speed >= least, WARN, read, f"{least:g} MB/s", says)


SHM = "Raise it where the box is rented (docker: --shm-size=8g); or train with num_workers=0."
DISK = "Rent a larger disk, or set box.workdir to a folder on a larger one."
WRITES = "Checkpoints and caches will take their time: compare with what you pay."

MACHINE_CHECKS = (
    Check("cpus", "box-cpus", ("cpus",), judge_cpus, kept=SLOWER),
    Check("ram", "box-memory", ("ram",), judge_ram),
    Check("shm", "box-shm", ("shm",), judge_shm, SHM, SHM),
    Check("disk", "box-disk", ("disk",), judge_disk, DISK, DISK),
    Check("disk-speed", "disk-slow", ("disk_speed",), judge_disk_speed, kept=WRITES, idle=True),
)


def judge_index(_wanted: ExpectedHardware, index: dict[str, Reading]) -> Judgement:
    """The package index answers, and gives its files in good time."""
    least = thresholds.NETWORK["index_mb_s"]
    expected = f"{least:g} MB/s"
    if index.get("error"):
        says = f"the package index {index['host']} can't be used: {index['error']}"
        return Judgement(WARN, str(index["error"]), expected, says)
    read = f"{megabytes(index['mb_s'])} from {index['host']}"
    minutes = f"{3000 / max(index['mb_s'], 0.01) / 60:.0f}"  # for 3 GB
    says = f"the package index gives {read}: torch takes {minutes} minutes"
    return expect(index["mb_s"] >= least, WARN, read, expected, says)


def judge_git(_wanted: ExpectedHardware, git: dict[str, Reading]) -> Judgement:
    """The git host from which the box is to clone answers."""
    most = thresholds.NETWORK["git_s"]
    expected = f"an answer within {most:g} s"
    if git.get("error"):
        says = f"the git host {git['host']} can't be reached: {git['error']}"
        return Judgement(WARN, str(git["error"]), expected, says)
    read = f"{git['host']} in {git['seconds'] * 1000:.0f} ms"
    says = f"the git host answers slowly: {read}"
    return expect(git["seconds"] <= most, WARN, read, expected, says)


def judge_clock(_wanted: ExpectedHardware, off: dict[str, float]) -> Judgement:
    """The clock agrees with the package index or with your machine."""
    if not off:
        return Judgement(NA, "nothing to compare it with")
    least, most = min(off.values(), key=abs), thresholds.NETWORK["clock_s"]
    read = f"{abs(least):.0f} s"
    says = f"this box's clock is {read} {'ahead' if least > 0 else 'behind'}"
    return expect(abs(least) <= most, WARN, f"{read} off", f"{most:g} s at most", says)


INDEX = "Check the box's network and its pip settings; a box nearer to the index builds sooner."
GIT = "Check git.url and the box's network, or send the commit yourself: git.access: over-ssh."
CLOCK = "Signed requests and fresh certificates are refused: set its clock, or restart the box."

NETWORK_CHECKS = (
    Check("index", "index-slow", ("index",), judge_index, INDEX, INDEX, idle=True),
    Check("git-host", "git-slow", ("git",), judge_git, GIT, GIT),
    Check("clock", "clock-wrong", ("clock",), judge_clock, CLOCK, CLOCK),
)
