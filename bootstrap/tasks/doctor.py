"""The checks of `doctor`: a table of small ones, each with its advice."""

import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    HostKeyError,
    UnreachableError,
    UsageError,
)
from bootstrap.link import shared
from bootstrap.link.record import GUARD, all_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.paths import cache_dir, make_private, state_dir
from bootstrap.runs.editors import EDITORS
from bootstrap.sizes import dollars, duration, size
from bootstrap.ui.screen import Screen
from bootstrap.value import Document


@dataclass(frozen=True)
class Finding(Document):
    """One check: whether it passed, what it saw, and what to do if it failed."""

    KEYS = "check=name, ok=passed, says"

    name: str
    passed: bool
    says: str
    advice: str = ""
    error: type[BoxstrapError] = UsageError  # the error that the task ends with if it failed


_INSTALL_SSH = "Install the OpenSSH client."


def examine(options: BoxOptions, screen: Screen) -> list[Finding]:
    """Run all checks of this machine and, if a host was named, of the connection to it."""
    findings = [check() for check in CHECKS] + _accounts()
    if options.host:
        findings.append(_box(options, screen))
    return findings


def _python() -> Finding:
    passed = sys.version_info >= (3, 10)
    return Finding("python", passed, platform.python_version(), "Install Python 3.10 or later.")


def _program(name: str, asked: str, advice: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, False, "is not installed", advice)
    done = subprocess.run([path, asked], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    return Finding(name, True, said[0] if said else path)


def _agent() -> Finding:
    if not os.environ.get("SSH_AUTH_SOCK"):
        return Finding("ssh-agent", True, "none is set; keys are read from files")
    if not shutil.which("ssh-add"):
        return Finding("ssh-agent", False, "is not installed", _INSTALL_SSH)
    done = subprocess.run(["ssh-add", "-l"], capture_output=True, text=True, check=False)
    words = {0: f"{len(done.stdout.splitlines())} keys", 1: "it holds no key"}
    advice = 'Start it: eval "$(ssh-agent)"; ssh-add'
    return Finding(
        "ssh-agent", done.returncode in words, words.get(done.returncode, "does not answer"), advice
    )


def _state() -> Finding:
    folder = state_dir()
    try:
        make_private(folder)
        passed = os.access(folder, os.W_OK)
    except OSError:
        passed = False
    return Finding("state", passed, str(folder), f"Make {folder} writable for you.")


def _disk() -> Finding:
    """Check the room for records, snapshots and mirrors."""
    folders = {folder: _free_at(folder) for folder in (state_dir(), cache_dir())}
    least, folder = min((free, folder) for folder, free in folders.items())
    advice = f"Make room where {folder} is."
    return Finding("disk", least >= _ROOM, f"{size(least)} free for {folder}", advice)


def _free_at(folder: Path) -> int:
    """Return the free bytes where this folder is, or will be."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return shutil.disk_usage(there).free


def _editor() -> Finding:
    found = [editor.title for editor in EDITORS.values() if shutil.which(editor.name)]
    says = ", ".join(found) or "none is on the PATH; only boxstrap code needs one"
    return Finding("editor", True, says)


def _accounts() -> list[Finding]:
    from bootstrap.runs.rented import ask_accounts

    found = [
        Finding(
            f"key {answer.provider.name}",
            answer.error is None,
            answer.error.what if answer.error else f"works; {len(answer.boxes)} rented",
            f"{answer.error.hint if answer.error else ''}".strip()
            or f"Put a valid key into {answer.provider.keys}.",
        )
        for answer in ask_accounts().accounts
    ]
    return found or [Finding("keys", True, "of no account; only renting needs one")]


def _caps() -> Finding:
    from bootstrap.renting.money import caps_file, read_caps

    try:
        caps = vars(read_caps())
    except UsageError as error:
        return Finding("money", False, f"{error.where}: {error.what}", error.hint)
    said = ", ".join(f"{name} {dollars(cap)}" for name, cap in caps.items() if cap is not None)
    return Finding("money", True, said or f"no cap; they would be in {caps_file()}")


def _guard() -> Finding:
    """Check that a guard holds the leases of boxes that can't hold them themselves, and that it can
    end: those of an account."""
    from bootstrap.renting.ownership import rented_host

    unheld = [box for box in all_boxes() if box.lease and box.lease.get("held") != "yes"]
    boxes = [box for box in unheld if rented_host(box)]
    if not boxes:
        others = ", ".join(box.name for box in unheld)
        says = f"nothing ends {others}, which no account here has" if others else ""
        return Finding("guard", True, says or "no lease needs one")
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


def _connections() -> Finding:
    """Name the boxes to which a connection is open for later commands."""
    names = [box.name for box in all_boxes() if shared.is_open(box)]
    return Finding("connections", True, f"open to {', '.join(names)}" if names else "none is open")


CHECKS = (
    _python,
    partial(_program, "ssh", "-V", _INSTALL_SSH),
    partial(_program, "git", "--version", "Install git."),
    *(_agent, _state, _disk, _editor, _caps, _guard, _connections),
)
_ROOM = 10**9  # bytes that should be free: a snapshot of a repository may take as much
_GUARD_LATE_S = 1800  # a guard that has not looked for this many seconds counts as gone
_ENDS = (HostKeyError, UnreachableError, BoxLacksError)


def _box(options: BoxOptions, screen: Screen) -> Finding:
    try:
        with BoxLogin.find(options, screen) as box:
            box.shares = False  # a login is what is examined
            box.dial()
            state = box.refresh()
            label = box.label
    except BoxstrapError as error:
        kind = next((kind for kind in _ENDS if isinstance(error, kind)), UsageError)
        return Finding("box", False, error.what, error.hint, kind)
    return Finding("box", True, f"{label}: {state.system}, bash {state.bash}")
