"""A self-contained HTML page to view and to share: one file, no scripts, no external resources.

Its frame is `templates/page.html.j2`. Everything is escaped, including a box's output: the box may
be hostile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2

from bootstrap.errors import UsageError
from bootstrap.paths import shipped, write_users_file


def fill(template: str, redact: Callable[[str], str] = str, /, **values: object) -> str:
    """Render `templates/<template>` with the values, each text redacted. Pure."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates")),
        autoescape=True,
        finalize=lambda value: redact(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def check_place(file: Path, option: str) -> None:
    """Raise UsageError if no page can be written to `file`, which `option` named."""
    if file.is_dir() or not file.parent.is_dir():
        raise UsageError(
            f"{option}: {file} can't be written: "
            + ("it is a folder" if file.is_dir() else f"there is no folder {file.parent}"),
            hint=f"Name a file in a folder that is there, as in {option} page.html",
        )


def write_page(file: Path, text: str, option: str) -> None:
    """Write the page. Raises UsageError if that fails."""
    try:
        write_users_file(file, text)
    except OSError as error:
        raise UsageError(f"{option}: {file} can't be written: {error.strerror}") from error
