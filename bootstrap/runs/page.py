"""A self-contained HTML page to view and to share: one file, no scripts, no external resources.

Its frame is `templates/page.html.j2`. Everything is escaped, including a box's output: the box may
be hostile. A verdict is such a page, and a table for the terminal.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

import jinja2

from bootstrap import __version__
from bootstrap.boxes.verdict import Verdict, gpus_named
from bootstrap.errors import UsageError
from bootstrap.paths import expanded, shipped, write_users_file
from bootstrap.ui.layout import aligned, cut

FRAME = "page.html.j2"


def fill(template: str, redact: Callable[[str], str] = str, /, **values: object) -> str:
    """Render `templates/<template>` with the values, each text redacted. Pure."""
    return compiled(template).render(values, redact=redact)


def compiled(template: str) -> jinja2.Template:
    """Return `templates/<template>`, which is compiled once: that takes longer than to fill it."""
    return _environment().get_template(template)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates")),
        autoescape=True,
        finalize=_redacted,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@jinja2.pass_context
def _redacted(context: jinja2.runtime.Context, value: object) -> object:
    return context["redact"](value) if type(value) is str else value


def named_page(named: str | None, option: str) -> Path | None:
    """Return the file that `option` names. Raises UsageError if no page can be written there."""
    file = expanded(named) if named else None
    if file and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(
            f"{option}: {file} can't be written: "
            + ("it is a folder" if file.is_dir() else f"there is no folder {file.parent}"),
            hint=f"Name a file in a folder that is there, as in {option} page.html",
        )
    return file


def write_page(file: Path, text: str, option: str) -> None:
    """Write the page. Raises UsageError if that fails."""
    try:
        write_users_file(file, text)
    except OSError as error:
        raise UsageError(f"{option}: {file} can't be written: {error.strerror}") from error


HEAD = ("check", "read", "expected", "verdict")
GREEN, YELLOW, RED, DIM, PLAIN = (f"\x1b[{code}m" for code in (32, 33, 31, 2, 0))
COLOURS = {"pass": GREEN, "warn": YELLOW, "return": RED, "n/a": DIM, "ignored": DIM}
WIDEST = 60  # characters of a cell; --json and the report have longer ones in full


def verdict_lines(verdict: Verdict, *, refused: bool = False) -> list[str]:
    """Return the lines, without colours. `refused`: an error follows that says what to do."""
    blocks = []
    if verdict.gpus:
        gpus = aligned((gpus_named(at), *kind) for kind, at in kinds(verdict).items())
        versions = f"driver {verdict.driver or '?'}, CUDA up to {verdict.cuda or '?'}"
        blocks.append([*gpus, versions])
    if verdict.checks:
        rows = (tuple(cut(cell, WIDEST) for cell in row) for row in verdict_rows(verdict))
        blocks.append(aligned([HEAD, *rows]))
    for reason in verdict.reasons:
        advice = [] if refused else [f"  {reason.advice}"]
        blocks += [[f"{reason.outcome}: {reason.sentence()}", *advice]]
    blocks += [list(verdict.advice)] if verdict.advice else []
    blocks += [] if refused else [[verdict_end(verdict)]]
    return [line for block in blocks for line in ["", *block]][1:]


def painted(text: str) -> str:
    """Colour the lines: the outcome at the end of a row, and the word before a reason."""
    text = re.sub(r"(?m)(?<=  )(pass|warn|return|n/a|ignored)$", _paint, text)
    return re.sub(r"(?m)^(warn|return)(?=: )", _paint, text)


def _paint(word: re.Match[str]) -> str:
    return f"{COLOURS[word.group()]}{word.group()}{PLAIN}"


def verdict_end(verdict: Verdict) -> str:
    warnings = len(verdict.reasons)
    return {
        "keep": "Keep this box.",
        "warn": f"Keep this box, with {warnings} warning{'s' * (warnings > 1)}.",
        "return": "Return this box.",
    }[verdict.verdict]


def kinds(verdict: Verdict) -> dict[tuple[str, ...], list[int]]:
    """Group the GPUs by name, memory and compute capability."""
    found: dict[tuple[str, ...], list[int]] = {}
    for gpu in verdict.gpus:
        memory = "?" if gpu.memory_mib is None else f"{gpu.memory_mib / 1024:.1f} GiB"
        kind = (gpu.name or "?", memory, f"compute capability {gpu.capability or '?'}")
        found.setdefault(kind, []).append(gpu.index)
    return found


def verdict_rows(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """Return check, read, expected and outcome; GPUs with the same result share a row."""
    merged: dict[tuple[str, str, str, str], list[int]] = {}
    for row in verdict.checks:
        same = merged.setdefault((row.check, row.read, row.expected, row.outcome), [])
        same += [] if row.gpu is None else [row.gpu]
    answers = Counter(check for check, *_ in merged)
    return [
        (
            check,
            f"{gpus_named(gpus)}: {read}" if gpus and answers[check] > 1 else read,
            expected,
            outcome,
        )
        for (check, read, expected, outcome), gpus in merged.items()
    ]


@dataclass(frozen=True)
class Subject:
    """Which box the page is about, when it was checked, and what else a reader must know."""

    box: str
    provider: str
    at: datetime
    note: str = ""
    version: str = __version__


def verdict_page(verdict: Verdict, subject: Subject) -> str:
    """Return the page. Pure: the same for the same input."""
    return fill(
        "verdict.html.j2",
        verdict=verdict,
        subject=subject,
        end=verdict_end(verdict),
        kinds=[(gpus_named(gpus), *kind) for kind, gpus in kinds(verdict).items()],
        serials=[(gpu.index, gpu.uuid) for gpu in verdict.gpus if gpu.uuid],
        rows=verdict_rows(verdict),
    )
