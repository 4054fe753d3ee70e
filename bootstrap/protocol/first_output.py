"""What a run says first: it is waited for a while, and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.errors import TrainingFailedError
from bootstrap.link.exchange import exchange
from bootstrap.link.parsing import exit_code
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import RedactedThere, build_query
from bootstrap.protocol.run import STATES, Run
from bootstrap.text.sanitize import sanitize

FIRST_OUTPUT_S = 30
"""How long a run's first output is waited for, in seconds."""
MOMENT_S = "0.3"
"""How long a run is watched after its first output: what fails at its start says so then."""
_SHOWN_LINES = 10


@dataclass(frozen=True)
class FirstOutput:
    """A run's first lines, or its last where it failed at once."""

    state: str
    rc: int | None
    lines: tuple[str, ...]


def watch_beginning(wire: Wire, run: Run, workdir: str, redact: Sequence[str] = ()) -> FirstOutput:
    """Wait for the run's first output or its end, and read it. Raises LinkLost, NoAnswer."""
    answer = exchange(
        wire,
        build_query(
            "first",
            RedactedThere(redact),
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
    """What a person is told while the first line of a run is waited for."""
    return (
        f"{name}: waiting up to {FIRST_OUTPUT_S} s for its first line (Ctrl-C is safe: it goes on)"
    )


def raise_if_failed(run: Run, box: str) -> None:
    """Raise TrainingFailedError where a run that was just begun ended with an exit code."""
    if run.rc:
        raise TrainingFailedError(
            f"the command ended with exit code {run.rc}.",
            where=run.name,
            hint=f"Its log: boxstrap logs --host {box} --run {run.name}",
        )


def first_output(answer: bytes) -> FirstOutput:
    """What `show_output` of `templates/lib/first_output.sh` says."""
    head, _, log = sanitize(answer).partition("\n")
    state, _, rc = head.partition(" ")
    failed = state == "finished" and rc != "0"
    lines = [line for line in log.splitlines() if line.strip()]
    return FirstOutput(
        state=state if state in STATES else "died",
        rc=exit_code(rc),
        lines=tuple(lines[-_SHOWN_LINES:] if failed else lines[:_SHOWN_LINES]),
    )
