"""The GPU verdict that the last check left on a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import StepFailedError
from bootstrap.protocol.follow import file_tail
from bootstrap.verdict import MAX_BYTES, Verdict, advised, read

if TYPE_CHECKING:
    from bootstrap.link.wire import Wire
    from bootstrap.profile.schema import Advice


def fetch_verdict(wire: Wire, workdir: str, advice: Advice) -> Verdict:
    """What it found, with what the provider's renters can do.

    Raises StepFailedError where there was no check, LinkLost, NoAnswer.
    """
    document = file_tail(wire, "gpu.json", workdir, MAX_BYTES + 1)
    if not document:
        raise StepFailedError("the GPU check left no verdict.", where=wire.label)
    return advised(read(document), advice)
