"""Run a shell or one command in the repository's folder and environment on a box, through ssh."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bootstrap.errors import UsageError
from bootstrap.link.handle import BoxOptions
from bootstrap.link.shell_command import shell_command
from bootstrap.render.parts import shell_part
from bootstrap.render.quote import quote
from bootstrap.runs.attach import become, ssh_command
from bootstrap.runs.connection import connect
from bootstrap.runs.project import project_of
from bootstrap.ui.screen import Screen

_LONGEST = 90_000
"""Bytes of a script that fit, as base64, into one argument of a program on Linux (128 KiB)."""


def enter(options: BoxOptions, screen: Screen, command: Sequence[str]) -> None:
    """Replace this process with the command on the box, or with a shell if it is empty.

    So its exit code is this program's. Raises UsageError, and as `connect`.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not command and not terminal:
        raise UsageError(
            "a shell needs a terminal.", hint="For one command: boxstrap exec -- COMMAND"
        )
    with connect(options, screen) as connection:
        project, box = project_of(connection), connection.box
        home = connection.box_state.facts.get("boxhome", "")
    words = " ".join(quote(word) for word in (project.folder, *command))
    script = f"box_home={quote(home)} venv={quote(project.venv)}\nset -- {words}\n"
    script += shell_part("box", "enter")
    if len(script.encode(errors="surrogateescape")) > _LONGEST:
        raise UsageError(
            "this command is too long for one command line.",
            hint="Put it into a file of the repository, or give it on standard input: "
            "boxstrap exec -- bash -s < FILE",
        )
    screen.close()
    line = shell_command(script, "bash --norc")
    become(ssh_command(box, line, terminal=terminal) or ["/bin/sh", "-c", line])
