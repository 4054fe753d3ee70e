"""The checks of `doctor`: a table of small ones, each with its advice."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    HostKeyError,
    UnreachableError,
    UsageError,
)
from bootstrap.link.handle import BoxOptions, find_box
from bootstrap.link.record import GUARD, all_boxes
from bootstrap.paths import state_dir
from bootstrap.protocol.probe import probe
from bootstrap.text.sizes import duration
from bootstrap.ui.screen import Screen


@dataclass(frozen=True)
class Finding:
    """One check: whether it passed, what it saw, and what to do if it failed."""

    name: str
    passed: bool
    says: str
    advice: str = ""
    error: type[BoxstrapError] = UsageError
    """The error that the task ends with if it failed."""


def examine(options: BoxOptions, screen: Screen) -> list[Finding]:
    """Run all checks of this machine and, if a host was named, of the connection to it."""
    findings = [check() for check in CHECKS]
    if options.host:
        findings.append(_box(options, screen))
    return findings


def _python() -> Finding:
    passed = sys.version_info >= (3, 10)
    return Finding("python", passed, platform.python_version(), "Install Python 3.10 or later.")


def _program(name: str, arguments: tuple[str, ...], advice: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, False, "is not installed", advice)
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    return Finding(name, True, said[0] if said else path)


def _ssh() -> Finding:
    return _program("ssh", ("-V",), "Install the OpenSSH client.")


def _git() -> Finding:
    return _program("git", ("--version",), "Install git.")


def _agent() -> Finding:
    if not os.environ.get("SSH_AUTH_SOCK"):
        return Finding("ssh-agent", True, "none is set; keys are read from files")
    done = subprocess.run(["ssh-add", "-l"], capture_output=True, text=True, check=False)
    words = {0: f"{len(done.stdout.splitlines())} keys", 1: "it holds no key"}
    advice = 'Start it: eval "$(ssh-agent)"; ssh-add'
    return Finding(
        "ssh-agent", done.returncode in words, words.get(done.returncode, "does not answer"), advice
    )


def _state() -> Finding:
    folder = state_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        passed = os.access(folder, os.W_OK)
    except OSError:
        passed = False
    return Finding("state", passed, str(folder), f"Make {folder} writable for you.")


def _guard() -> Finding:
    """Check that a guard holds the leases of boxes that can't hold them themselves."""
    boxes = [box for box in all_boxes() if box.lease and box.lease.get("held") != "yes"]
    if not boxes:
        return Finding("guard", True, "no lease needs one")
    names = ", ".join(box.name for box in boxes)
    looks = [(box.folder / GUARD) for box in boxes]
    ages = [time.time() - file.stat().st_mtime if file.is_file() else None for file in looks]
    oldest = None if None in ages else max(age for age in ages if age is not None)
    passed = oldest is not None and oldest < _GUARD_LATE_S
    says = "never looked" if oldest is None else f"last looked {duration(oldest)} ago"
    return Finding(
        "guard",
        passed,
        f"{says} at the lease of {names}",
        "Nothing on these boxes holds their lease. Let cron call every five minutes: "
        "boxstrap guard --once",
    )


CHECKS: tuple[Callable[[], Finding], ...] = (_python, _ssh, _git, _agent, _state, _guard)
_GUARD_LATE_S = 1800
"""A guard that has not looked for this many seconds counts as gone."""


_ENDS = (HostKeyError, UnreachableError, BoxLacksError)


def _failed(error: BoxstrapError) -> Finding:
    kind = next((kind for kind in _ENDS if isinstance(error, kind)), UsageError)
    return Finding("box", False, error.what, error.hint, kind)


def _box(options: BoxOptions, screen: Screen) -> Finding:
    try:
        box = find_box(options, screen.say)
        box.dial()
        wire = box.login()
    except BoxstrapError as error:
        return _failed(error)
    try:
        facts = probe(wire, workdir=box.known.workdir).facts
    except BoxstrapError as error:
        return _failed(error)
    finally:
        wire.close()
    return Finding(
        "box",
        True,
        f"{wire.label}: {facts.get('system')}, bash {facts.get('bash')}",
    )
