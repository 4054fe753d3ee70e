"""What each command does to the user's money and work: for the skill, and for the MCP server.

A command reads, changes, costs money, or destroys; an option may make it worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ALWAYS = "always"


class Effect(NamedTuple):
    """What a command does; `asks`: the options with which a person should agree first."""

    kind: str
    """reads, changes, money, destroys."""
    does: str = ""
    """What of it costs money, or is destroyed."""
    asks: tuple[str, ...] = ()
    """Names of options, or ALWAYS."""
    except_with: str = ""
    """With this option it only reads."""

    @property
    def sentence(self) -> str:
        """What it does as a sentence; "" for nothing worth a warning."""
        return f"{self.does[:1].upper()}{self.does[1:]}." if self.does else ""


READS = Effect("reads")
CHANGES = Effect("changes")
EFFECTS: Mapping[str, Effect] = {
    "attach": READS,
    "boxes": Effect("reads", "`--forget` forgets a box, which goes on costing", ("forget",)),
    "clean": Effect(
        "destroys",
        "removes trees of ended runs, results that are at home, and downloads from a box",
        ("yes", "discard"),
    ),
    "completion": CHANGES,
    "code": CHANGES,
    "demo": CHANGES,
    "doctor": READS,
    "down": Effect("destroys", "destroys the box, after bringing home what it has", (ALWAYS,)),
    "estimate": READS,
    "exec": Effect("changes", "does on the box what its command does"),
    "guard": Effect("destroys", "ends boxes whose lease is over", (ALWAYS,)),
    "init": CHANGES,
    "lease": Effect(
        "money", "`--extend` and `--release` let a box cost longer", ("extend", "release")
    ),
    "logs": READS,
    "mcp": READS,
    "oneliner": READS,
    "plan": READS,
    "profiles": READS,
    "pull": Effect("changes", "`--without` lets go of results for good", ("without",)),
    "push": Effect("changes", "`--replace` replaces files of the box", ("replace",)),
    "render": READS,
    "report": CHANGES,
    "run": Effect(
        "changes",
        "`--up` rents a box; `--overwrite-results` lets go of results",
        ("up", "overwrite_results"),
    ),
    "runs": READS,
    "schema": READS,
    "secrets": Effect("reads", "`--wipe` takes all secrets off a box", ("wipe",)),
    "setup": Effect(
        "changes",
        "`--restart` ends a live run; `--overwrite-results` lets go of results",
        ("restart", "overwrite_results"),
    ),
    "shell": READS,
    "skill": CHANGES,
    "ssh-config": CHANGES,
    "status": READS,
    "stop": Effect("destroys", "ends a run; the box goes on costing", (ALWAYS,)),
    "sync": CHANGES,
    "top": READS,
    "tunnel": CHANGES,
    "up": Effect("money", "rents a box, until `down` or its lease ends it", (ALWAYS,), "dry_run"),
    "verify": CHANGES,
    "wait": READS,
}

NEXT = {
    0: ("done", "go on"),
    1: ("an error of boxstrap itself", "tell the user, with the report that it names"),
    2: (
        "wrong usage, a wrong profile, or a question that an option answers",
        "do what `error.next` says; for consent or a price ask the user",
    ),
    3: (
        "the box, or an account, can't be reached",
        "try once more; `boxstrap doctor --host HOST`; `boxstrap boxes --all` tells whether it is "
        "still there, once that ends with 0",
    ),
    4: (
        "the host key changed, or is not the one expected",
        "stop, and ask the user: it may be another machine",
    ),
    5: ("the box lacks what a setup needs; nothing was changed", "take another box"),
    6: ("verdict: return this box", "tell why; `boxstrap down`, and take another box"),
    7: (
        "a step of the setup failed, or `stop` could not end everything",
        "read `logs` in the document, or `boxstrap logs --step STEP`; correct it, and run the same "
        "command again",
    ),
    8: (
        "another setup or a live run is in the way",
        "`boxstrap status`; then wait, `boxstrap run --beside`, or ask whether to stop it",
    ),
    9: (
        "refused: something would be lost, or a cap on money would be exceeded",
        "do what `error.next` says; for a cap a shorter lease, or a cheaper offer",
    ),
    10: ("the training ended with an error", "`boxstrap logs`; correct the code, `boxstrap run`"),
    11: (
        "nothing could be rented",
        "`boxstrap up --dry-run --json`: `nearest` tells what each offer lacks",
    ),
    130: ("interrupted here; the box goes on", "the same command goes on"),
}
"""What each exit code means to a program, and what to do next."""
