"""Wait for a run's first output, and read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.errors import TrainingFailedError
from bootstrap.link.answers import exit_code
from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import BoxRedaction, build_query
from bootstrap.protocol.run import STATES, Run
from bootstrap.text.sanitize import sanitize

FIRST_OUTPUT_S = 30
"""How long to wait for a run's first output, in seconds."""
MOMENT_S = "0.3"
"""Seconds to watch a run after its first output: a failure at its start shows by then."""
_SHOWN_LINES = 10


@dataclass(frozen=True)
class FirstOutput:
    """A run's first lines, or its last ones if it failed immediately."""

    state: str
    rc: int | None
    lines: tuple[str, ...]


def watch_beginning(wire: Wire, run: Run, workdir: str, redact: Sequence[str] = ()) -> FirstOutput:
    """Wait for the run's first output or its end, and read it. Raises LinkLost, NoAnswer."""
    answer = exchange(
        wire,
        build_query(
            "first",
            BoxRedaction(redact),
            workdir=workdir,
            repo_key=run.repo_key,
            name=run.name,
            seconds=FIRST_OUTPUT_S,
            moment=MOMENT_S,
        ),
        timeout=FIRST_OUTPUT_S + 30,
    )
    return first_output(answer)


def waits_for_output(name: str) -> str:
    """Return the message to show while waiting for a run's first line."""
    return (
        f"{name}: waiting up to {FIRST_OUTPUT_S} s for its first line (Ctrl-C is safe: it goes on)"
    )


def raise_if_failed(run: Run, box: str) -> None:
    """Raise TrainingFailedError if a run that just started ended with a nonzero exit code."""
    if run.rc:
        raise TrainingFailedError(
            f"the command ended with exit code {run.rc}.",
            where=run.name,
            hint=f"Its log: boxstrap logs --host {box} --run {run.name}",
        )


def first_output(answer: bytes) -> FirstOutput:
    """Parse what `show_output` in `templates/lib/first_output.sh` prints."""
    head, _, log = sanitize(answer).partition("\n")
    state, _, rc = head.partition(" ")
    failed = state == "finished" and rc != "0"
    lines = [line for line in log.splitlines() if line.strip()]
    return FirstOutput(
        state=state if state in STATES else "died",
        rc=exit_code(rc),
        lines=tuple(lines[-_SHOWN_LINES:] if failed else lines[:_SHOWN_LINES]),
    )
