"""Run a program on this machine, with a readable error if it fails."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


class RigError(Exception):
    """The rig can't do what was asked; the text says why and what helps."""


def sh(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 600,
) -> str:
    """Run a program to its end and return its standard output; RigError if it fails."""
    done = subprocess.run(
        argv,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        env=env,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise RigError(f"{' '.join(argv)[:300]}: exit {done.returncode}\n{said}")
    return done.stdout


def need(*programs: str) -> None:
    """Check that programs exist; RigError names the ones that don't."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise RigError(f"this machine lacks: {', '.join(missing)} (see tests/boxes/README.md)")
