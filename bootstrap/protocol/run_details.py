"""What `status` asks beyond the probe, in the same exchange: how the logs of failed runs end, and
what the GPUs do while a run lives."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.protocol.probe import BoxState, read
from bootstrap.protocol.query import RedactedThere, build_query

if TYPE_CHECKING:
    from bootstrap.protocol.samples import Card

MOST_ENDS = 8
"""Failed runs of which the log's end is read, the newest."""
END_BYTES = 6000
"""Of each: room for the tracebacks of some ranks, and all of them within two round trips."""
_GPUS_S = 5
"""How long a look at the GPUs may take, in seconds: a driver may hang."""


@dataclass(frozen=True)
class RunDetails:
    """Runs by `KEY/NAME`. Nothing in it is clean yet but the GPUs."""

    log_ends: Mapping[str, bytes] = field(default_factory=dict)
    gpus: tuple[Card, ...] = ()
    """Where a run lives, and the box has some that answer."""


NO_DETAILS = RunDetails()


def ask_details(
    wire: Wire, *, workdir: str, repo_key: str, repo_root: str, redact: Sequence[str]
) -> tuple[BoxState, RunDetails]:
    """Ask both at once; the box redacts the secrets that `redact` names. Raises as `probe`."""
    mark = secrets.token_hex(16)
    query = build_query(
        "status",
        RedactedThere(redact),
        workdir=workdir,
        repo_key=repo_key,
        repo_root=repo_root,
        script_id="",
        hint_names="",
        hint_files="",
        mark=mark,
        most=MOST_ENDS,
        bytes=END_BYTES,
        patience=_GPUS_S,
    )
    answer, *parts = exchange(wire, query, timeout=60).split(f"\n{mark} ".encode())
    return read(answer, wire.label), parse_details(parts)


def parse_details(parts: Sequence[bytes]) -> RunDetails:
    """Read the parts of an answer: a word, perhaps a run, and below these what is told of it."""
    ends: dict[str, bytes] = {}
    gpus: tuple[Card, ...] = ()
    for part in parts[: MOST_ENDS + 1]:
        head, _, told = part.partition(b"\n")
        word, _, path = head.decode("utf-8", "replace").partition(" ")
        if word == "log":
            ends[path] = told[-END_BYTES:]
        elif word == "gpus":
            gpus = _cards(told)
    return RunDetails(ends, gpus)


def _cards(told: bytes) -> tuple[Card, ...]:
    from bootstrap.protocol.samples import SampleLines  # pydantic: most boxes send none

    samples = SampleLines().feed(told)
    return tuple(card for one in samples[:1] for card in one.gpus if card.error is None)
