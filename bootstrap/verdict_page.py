"""A verdict as one page of HTML, to send to the host's owner: no scripts, no external files.

Everything is escaped, because the box may be hostile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bootstrap import __version__
from bootstrap.ui.page import fill
from bootstrap.ui.verdict_table import end, kinds, rows
from bootstrap.verdict import Verdict, gpus_named

TEMPLATE = "verdict.html.j2"


@dataclass(frozen=True)
class Subject:
    """Which box the page is about, when it was checked, and what else a reader must know."""

    box: str
    provider: str
    at: datetime
    note: str = ""
    version: str = __version__


def page(verdict: Verdict, subject: Subject) -> str:
    """Return the page. Pure: the same for the same input."""
    return fill(
        TEMPLATE,
        verdict=verdict,
        subject=subject,
        end=end(verdict),
        kinds=[(gpus_named(gpus), *kind) for kind, gpus in kinds(verdict).items()],
        serials=[(gpu.index, gpu.uuid) for gpu in verdict.gpus if gpu.uuid],
        rows=rows(verdict),
    )
