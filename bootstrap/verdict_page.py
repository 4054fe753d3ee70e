"""A verdict as one page of HTML, to send to the host's owner: no scripts, nothing from elsewhere.

What the box said is escaped, as everything is: the box may be hostile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import jinja2

from bootstrap import __version__
from bootstrap.errors import UsageError
from bootstrap.paths import shipped, write_users_file
from bootstrap.ui.verdict_table import end, kinds, rows
from bootstrap.verdict import Verdict, gpus_named

TEMPLATE = "verdict.html.j2"


@dataclass(frozen=True)
class Subject:
    """Which box the page is about, when it was looked at, and what more a reader must know."""

    box: str
    provider: str
    at: datetime
    note: str = ""
    version: str = __version__


def page(verdict: Verdict, subject: Subject) -> str:
    """The page. Pure: the same for the same input."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((shipped("templates") / TEMPLATE).read_text("utf-8"))
    return template.render(
        verdict=verdict,
        subject=subject,
        end=end(verdict),
        kinds=[(gpus_named(gpus), *kind) for kind, gpus in kinds(verdict).items()],
        serials=[(gpu.index, gpu.uuid) for gpu in verdict.gpus if gpu.uuid],
        rows=rows(verdict),
    )


def check_place(file: Path) -> None:
    """Refuse a place where no page can be written. Raises UsageError."""
    if file.is_dir() or not file.parent.is_dir():
        raise UsageError(
            f"--report: {file} can't be written: "
            + ("it is a folder" if file.is_dir() else f"there is no folder {file.parent}"),
            hint="Name a file in a folder that is there, as in --report verdict.html",
        )


def write(file: Path, text: str) -> None:
    """Write the page. Raises UsageError where that is not allowed."""
    try:
        write_users_file(file, text)
    except OSError as error:
        raise UsageError(f"--report: {file} can't be written: {error.strerror}") from error
