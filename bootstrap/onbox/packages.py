"""The box's own package manager, if root or sudo allows it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from .retries import Retries
from .run_folder import lines_of, names_in
from .short_program import run, which
from .step_report import StepError, log, tell

_INSTALL = {
    "apt-get": "install -y --no-install-recommends",
    "dnf": "install -y",
    "yum": "install -y",
    "microdnf": "install -y",
    "zypper": "--non-interactive install --no-recommends",
    "pacman": "-Sy --noconfirm --needed",
    "apk": "add --no-cache",
}
"""The first one that is there is used; `templates/lib/stage0.sh` names them too."""
_DPKG = "/var/lib/dpkg"
_LOCKS = (
    *(f"{_DPKG}/lock-frontend", f"{_DPKG}/lock"),
    *("/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"),
)
_DAY_S = 24 * 3600


class Packages:
    """What installs them; for a user who may."""

    def __init__(self, manager: str, retries: Retries, patience: int) -> None:
        """apt waits for the lock of another package run so many seconds, and never breaks it."""
        self._manager, self._retries, self._patience = manager, retries, patience
        self.is_apt = manager == "apt-get"
        words = ["apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={patience}", *_APT_OPTIONS]
        self._words = ["env", *_APT_SETTINGS, *words] if self.is_apt else [manager]

    def install(self, names: Sequence[str]) -> None:
        """Raises StepError."""
        if self.is_apt:
            self._await_others()
            self.repair()
            self._refresh()
        self._retries.must(lambda: self._install(*names))

    def _install(self, *words: str) -> int:
        from .python.uv import call  # late: who only looks runs nothing

        if self.is_apt:
            self._await_others()
        return call(_as_root(*self._words, *_INSTALL[self._manager].split(), *words), os.environ)

    def repair(self) -> None:
        """A package run that was cut short leaves its journal, or packages half-installed; until
        that is finished, other runs refuse to work. While another run holds the lock, finishing is
        that run's business."""
        if not names_in(f"{_DPKG}/updates") and not _is_broken():
            return
        done = run(_as_root("dpkg", "--configure", "-a", "--force-confold"), os.environ)
        said = (done.output + done.errors).decode("utf-8", "replace")
        if done.code and "lock" in said:
            return
        log(*said.splitlines())
        if _is_broken():
            self._install("--fix-broken")

    def _refresh(self) -> None:
        """Fetch the lists if there are none, or if they are over a day old."""
        lists, oldest = "/var/lib/apt/lists", time.time() - _DAY_S
        for name in names_in(lists):
            with suppress(OSError):
                if "_Packages" in name and os.stat(f"{lists}/{name}").st_mtime > oldest:
                    return
        self._retries.must(self._update)

    def _update(self) -> int:
        self._await_others()
        done = run(_as_root(*self._words, "update"), os.environ)
        said = (done.output + done.errors).decode("utf-8", "replace")
        log(*said.splitlines())
        # apt only warns of a half-fetched index; a package that is not in it then looks like a
        # missing one.
        return done.code or "Failed to fetch" in said

    def _await_others(self) -> None:
        """The kernel says which process holds the lock."""
        until, told = time.monotonic() + self._patience, ""
        while pid := _lock_holder():
            who = f"process {pid} ({(lines_of(f'/proc/{pid}/comm') or ['ended'])[0]})"
            if pid != told:
                tell(f"wait code=dpkg-locked pid={pid}")
                log(f"waiting for another package run: {who} holds the lock")
                told = pid
            if time.monotonic() >= until:
                why = f"{who} has held the lock for over {self._patience} s; it was left alone"
                raise StepError(f"dpkg-locked pid={pid}", why)
            time.sleep(1)


_APT_SETTINGS = ("DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_MODE=a")
_APT_OPTIONS = (
    *("-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=20"),
    *("-o", "Acquire::https::Timeout=20", "-o", "Dpkg::Use-Pty=0"),
    *("-o", "Dpkg::Options::=--force-confold"),
)


def find_manager() -> str:
    """Return the one that this user may run; "" if there is none."""
    manager = next(filter(which, _INSTALL), "")
    is_root = os.geteuid() == 0
    with suppress(OSError):  # no sudo
        if manager and (is_root or not run(["sudo", "-n", "true"], os.environ).code):
            return manager
    return ""


def _as_root(*words: str) -> list[str]:
    return [*words] if os.geteuid() == 0 else ["sudo", "-n", *words]


def _is_broken() -> bool:
    return bool(run(_as_root("dpkg", "--audit"), os.environ).output)  # it tells others nothing


def _lock_holder() -> str:
    """Return the process that holds a lock of dpkg or apt, by /proc/locks (proc(5)); "" if none."""
    wanted = set()
    for path in _LOCKS:
        with suppress(OSError):
            wanted.add(str(os.stat(path).st_ino))
    for line in lines_of("/proc/locks"):
        fields = line.split()
        # One that waits has `->` there; one of another namespace has no process.
        if fields[1] != "->" and int(fields[4]) > 0 and fields[5].rpartition(":")[2] in wanted:
            return fields[4]
    return ""
