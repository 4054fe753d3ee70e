"""What a check is: one row of a table, and what its judge may find.

A check names what it reads; its judge gets the expected hardware and those readings (None
if missing) and returns what it found. Judges are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Reading = Any  # what a reader wrote, or {"error": why it failed}

GIB = 1024**3
PASS, WARN, RETURN, NA, IGNORED = "pass", "warn", "return", "n/a", "ignored"

# The words of `gpu.checks` in a profile, and the outcome that each gives to a fault.
OVERRIDES = {"return": RETURN, "warn": WARN, "ignore": IGNORED}

# Advice that several checks share.
HOST = "Only the host's owner can fix this card: return this box."
ADVICE_WARN = "It may do: return this box if training fails, or is slower than what you pay for."
ADVICE_RETURN = "Return this box: the profile takes no less."
WRONG = "It isn't what you pay for: return this box."
SLOWER = "It works, slower than it should: compare with what you pay."


class Judgement(NamedTuple):
    """What a judge found: what was read, what was expected, and a sentence if they disagree."""

    outcome: str
    read: str
    expected: str = ""
    says: str = ""


def expect(ok: bool, otherwise: str, read: str, expected: str, says: str) -> Judgement:
    """Return a pass if `ok`, else the outcome `otherwise` with its sentence."""
    return Judgement(PASS, read, expected) if ok else Judgement(otherwise, read, expected, says)


class Check(NamedTuple):
    """One row of the table: `code` says what is wrong; the first of its `reads` is required.

    `advice` is for a box that is returned for it, `kept` for one that is kept with a warning.
    """

    name: str
    code: str
    reads: tuple[str, ...]
    judge: Callable[..., Judgement]
    advice: str = ADVICE_RETURN
    kept: str = ADVICE_WARN
    idle: bool = False  # n/a while a run of boxstrap's is alive on the box
    asks: tuple[str, ...] = ()  # expectations: if one is set, a missing reading is a warning


def megabytes(speed: float) -> str:
    """Format a speed in megabytes a second."""
    return f"{speed:.0f} MB/s" if speed >= 10 else f"{speed:.1f} MB/s"
