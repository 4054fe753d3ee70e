"""Notify the user that a run is over: the terminal's bell, and the user's own commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bootstrap.paths import config_dir
from bootstrap.profile import find
from bootstrap.profile.own_commands import read_commands
from bootstrap.protocol.run import Run

_COMMAND_S = 30
"""How long a command may take, in seconds."""


def notify_file() -> Path:
    """Return the file with the user's commands, one per line: `NAME: command`."""
    return config_dir() / "notify.yaml"


def own_notifiers() -> dict[str, str]:
    """Read those commands, by name. Raises UsageError for an unusable file."""
    return read_commands(notify_file(), 'notify-send boxstrap "$BOXSTRAP_MESSAGE"')


def ring() -> None:
    """Ring the terminal's bell, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()


def notify(
    commands: dict[str, str], run: Run, box: str, message: str, warn: Callable[[str], None]
) -> None:
    """Run the commands in the home folder; a failed one is only a warning.

    They get the message in their environment, which contains nothing from a log.
    """
    told = {
        "BOXSTRAP_MESSAGE": message,
        "BOXSTRAP_BOX": box,
        "BOXSTRAP_RUN": run.name,
        "BOXSTRAP_STATE": run.state,
        "BOXSTRAP_EXIT": "" if run.rc is None else str(run.rc),
    }
    for name, command in commands.items():
        where = f"{find.label(notify_file())}: {name}"
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                cwd=Path.home(),
                env={**os.environ, **told},
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            warn(f"{where}: it did not finish within {_COMMAND_S} s")
            continue
        except OSError as error:
            warn(f"{where}: {error.strerror}")
            continue
        if done.returncode:
            warn(f"{where}: it ended with {done.returncode}")
