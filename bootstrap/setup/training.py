"""What became of the training that a setup started, or that was there before."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.talk.hello import Hello
from bootstrap.talk.question import question
from bootstrap.talk.run import STATES, Run, number
from bootstrap.ui.clean import clean

FIRST_OUTPUT_S = 30
"""How long a run's first output is waited for, in seconds."""
_MOMENT_S = "0.3"
_SHOWN_LINES = 10


@dataclass(frozen=True)
class Beginning:
    """A run's first lines, or its last where it failed at once."""

    state: str
    rc: int | None
    lines: tuple[str, ...]


def run_of_work(hello: Hello, commit: str) -> Run | None:
    """The run of this repository's last work: by what the box calls it, else by the commit."""
    own = [run for run in hello.runs if run.repo_key == hello.repo_key]
    work = hello.facts.get("work")
    exact = [run for run in hello.runs if work and run.work == work]
    return next(iter(exact or [run for run in own if run.commit == commit]), None)


def watch_beginning(wire: Wire, run: Run, workdir: str) -> Beginning:
    """Wait for the run's first output or its end, and read it. Raises LinkLost, NoAnswer."""
    answer = exchange(
        wire,
        question(
            "first",
            workdir=workdir,
            repo_key=run.repo_key,
            name=run.name,
            tenths=FIRST_OUTPUT_S * 10,
            moment=_MOMENT_S,
        ),
        timeout=FIRST_OUTPUT_S + 30,
    )
    head, _, log = clean(answer).partition("\n")
    state, _, rc = head.partition(" ")
    failed = state == "finished" and rc != "0"
    lines = [line for line in log.splitlines() if line.strip()]
    return Beginning(
        state=state if state in STATES else "died",
        rc=number(rc),
        lines=tuple(lines[-_SHOWN_LINES:] if failed else lines[:_SHOWN_LINES]),
    )
