"""What became of the training that a setup started, or that was there before."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.link.exchange import exchange
from bootstrap.link.parsing import exit_code
from bootstrap.link.wire import Wire
from bootstrap.protocol.probe import BoxState
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import STATES, Run
from bootstrap.text.sanitize import sanitize

FIRST_OUTPUT_S = 30
"""How long a run's first output is waited for, in seconds."""
_MOMENT_S = "0.3"
_SHOWN_LINES = 10

_SHOWN_COMMAND = 60
_NAMES = {
    "commit": "commit",
    "command": "command",
    "environment": "environment",
    "variables": "env",
    "secrets": "secrets",
}
"""What the box may say differs between a live run and this setup, and what a profile calls it."""


@dataclass(frozen=True)
class Beginning:
    """A run's first lines, or its last where it failed at once."""

    state: str
    rc: int | None
    lines: tuple[str, ...]


def run_of_work(box_state: BoxState, commit: str) -> Run | None:
    """The run of this repository's last work: by what the box calls it, else by the commit."""
    own = [run for run in box_state.runs if run.repo_key == box_state.repo_key]
    work = box_state.facts.get("work")
    exact = [run for run in box_state.runs if work and run.work == work]
    return next(iter(exact or [run for run in own if run.commit == commit]), None)


def differences(box_state: BoxState) -> list[str]:
    """What of this setup is not as in the run that lives in its folder; nothing without one."""
    told = box_state.facts.get("differs", "").split()
    return [name for word, name in _NAMES.items() if word in told]


def not_started(run: Run, commit: str, command: str, differing: list[str]) -> str:
    """Which run holds the place, and what is not as in it."""
    pairs = {
        "commit": (run.commit[:12], commit[:12]),
        "command": (run.typed[:_SHOWN_COMMAND], command),
    }
    told = [
        f"{name} ({pairs[name][0]} → {pairs[name][1][:_SHOWN_COMMAND]})" if name in pairs else name
        for name in differing
    ]
    return (
        f"{run.name} is running (commit {run.commit[:12]}); not started: "
        f"other {', '.join(told) or 'work'}."
    )


def watch_beginning(wire: Wire, run: Run, workdir: str) -> Beginning:
    """Wait for the run's first output or its end, and read it. Raises LinkLost, NoAnswer."""
    answer = exchange(
        wire,
        build_query(
            "first",
            workdir=workdir,
            repo_key=run.repo_key,
            name=run.name,
            tenths=FIRST_OUTPUT_S * 10,
            moment=_MOMENT_S,
        ),
        timeout=FIRST_OUTPUT_S + 30,
    )
    head, _, log = sanitize(answer).partition("\n")
    state, _, rc = head.partition(" ")
    failed = state == "finished" and rc != "0"
    lines = [line for line in log.splitlines() if line.strip()]
    return Beginning(
        state=state if state in STATES else "died",
        rc=exit_code(rc),
        lines=tuple(lines[-_SHOWN_LINES:] if failed else lines[:_SHOWN_LINES]),
    )
