"""What a check is: one entry of a table, and what it can find.

A check names what it reads; its judge gets the order and those readings (None
where there is none) and answers what it found. Judges are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Reading = Any  # what a reader wrote, or {"error": why there is nothing}

PASS, WARN, RETURN, NA, IGNORED = "pass", "warn", "return", "n/a", "ignored"

# The words of `gpu.checks` in a profile, and the outcome that each makes of a fault.
OVERRIDES = {"return": RETURN, "warn": WARN, "ignore": IGNORED}

HOST = "The host's owner must see to this card: return this box."
MIND = "It may do: return this box if training fails, or is slower than what you pay for."
STERN = "Return this box: the profile takes no less."
WRONG = "It isn't what you pay for: return this box."
SLOWER = "It works, slower than it should: compare with what you pay."


class Found(NamedTuple):
    """What a judge found: what was read, what was expected, and a sentence where they disagree."""

    outcome: str
    read: str
    expected: str = ""
    says: str = ""


class Check(NamedTuple):
    """One row of the table: `code` says what is wrong; the first of what it `reads` must be there.

    `advice` is for a box that is returned for it, `kept` for one that is kept with a warning.
    """

    name: str
    code: str
    reads: tuple[str, ...]
    judge: Callable[..., tuple[str, ...]]
    advice: str = STERN
    kept: str = MIND
    idle: bool = False  # n/a while a run of ours lives on the box
    asks: tuple[str, ...] = ()  # keys of the order: with one of them given, silence is a warning
