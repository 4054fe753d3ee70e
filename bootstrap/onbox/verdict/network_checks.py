"""The checks of the box's network, and of its clock.

Judges first, the table last. Units: megabytes (10^6) a second, seconds.
"""

from __future__ import annotations

from . import thresholds
from .check import NA, WARN, Check, Judgement, Reading, expect, megabytes
from .expected_hardware import ExpectedHardware


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
