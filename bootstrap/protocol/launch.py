"""Start a setup: send script and secrets over one command's input; it then runs detached."""

from __future__ import annotations

import secrets as random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.codes import explain
from bootstrap.errors import BoxLacksError, BoxstrapError
from bootstrap.link.errors import LinkLost
from bootstrap.link.exchange import ask
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import build_query
from bootstrap.text.sanitize import sanitize

_MOST_LACKS = 20
"""Sentences to show at most; `lacks` in templates/steps/preflight.sh has fewer."""
_LONGEST = 300


@dataclass(frozen=True)
class Launch:
    """A setup to start."""

    script: str
    setup: str
    workdir: str
    wait_s: int = 60
    """How long it waits for another setup to end, in seconds."""
    words: Sequence[str] = ()
    """`restart`, `only=gpu`: see `templates/lib/main.sh`."""
    secrets: bytes = b""
    """NAME=VALUE, each ended by a NUL."""


def new_setup_id(now: float | None = None) -> str:
    """Return a new id; ids sort by time."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{random.token_hex(3)}"


def launch(wire: Wire, start: Launch) -> None:
    """Start the setup. An incomplete upload starts nothing.

    Raises BoxLacksError when preflight finds that the box can't be set up (nothing was
    changed), LinkLost, NoAnswer, BoxstrapError when the box did not start it.
    """
    script = start.script.encode()
    query = build_query(
        "launch",
        workdir=start.workdir,
        setup_id=start.setup,
        script_bytes=len(script),
        secret_bytes=len(start.secrets),
        wait_seconds=start.wait_s,
        client_time=int(time.time()),
        words=" ".join(start.words),
    )
    answer = ask(wire, query, script + start.secrets, timeout=120)
    lines = sanitize(answer.output).splitlines()
    lacks = [line.split("\t", 2)[1:] for line in lines if line.startswith("lacks\t")]
    if lacks:
        raise _lacks(lacks, wire.label)
    if "short" in lines:
        raise LinkLost(wire.label, "the script did not arrive whole, so nothing was started")
    if "launched" not in lines:
        said = sanitize(answer.errors).strip()[-600:]
        raise BoxstrapError(
            f"the box did not start the setup{': ' + said if said else '.'}", where=wire.label
        )


def _lacks(lacks: list[list[str]], label: str) -> BoxLacksError:
    sentences = [(row[1] if len(row) > 1 else row[0])[:_LONGEST] for row in lacks[:_MOST_LACKS]]
    advice = explain(lacks[0][0], {}).hint
    what = "; ".join(sentences)
    return BoxLacksError(
        f"{what}.", where=label, hint=f"Nothing was changed. {advice[:1].upper()}{advice[1:]}."
    )
