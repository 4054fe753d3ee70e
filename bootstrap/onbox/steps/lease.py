"""How long the box may run, what it may cost, how long it may be idle: its monitor enforces it."""

from __future__ import annotations

import json
import os
import time

from ..quoted import quoted
from ..run_folder import RunFolder, lines_of, remove_file, write_whole
from ..runs.keep_monitor import is_kept, keep, keeping
from ..step_report import caution, tell
from .step import BoxStep

_LOOKS_S = 30.0
_CAUTIONS = {
    "no-boot": ("until-restart", "nothing starts the monitor again after a restart of this box"),
    "no-key": ("no-key", "this box has no key of its own for the account that pays for it"),
    "wipes": ("wipes", "a stop would wipe what lies outside a volume"),
    "refused": ("refused", "the account refuses the key that this box has"),
    "no-answer": ("no-answer", "the account does not answer this box"),
}
"""By what the monitor says of itself."""


class LeaseStep(BoxStep):
    def inputs(self) -> str:
        return quoted("v1", self.values.lease)

    def check(self) -> bool:
        return lines_of(f"{self.home}/lease.json") == [self.values.lease] and is_kept(self.home)

    def apply(self) -> None:
        terms = f"{self.home}/lease.json"
        if not os.path.isfile(terms):
            for word in ("state", "extended", "ids", "digests"):
                remove_file(f"{self.home}/lease.{word}")
        write_whole(terms, self.values.lease, 0o600)
        self._begin_at_boot("/root/onstart.sh")
        keep(self.home)
        # Its first look takes one read of the account.
        until = time.monotonic() + _LOOKS_S
        while self._held in ("", "trying") and time.monotonic() < until:
            time.sleep(0.1)
        if self._held == "yes":
            return tell("note code=lease-held")
        later = ("later", "an earlier monitor is still running")
        code, sentence = _CAUTIONS.get(self._held, later)
        return caution(f"lease-{code}", sentence)

    @property
    def _held(self) -> str:
        """What the monitor says of itself under these same terms."""
        state, terms = (RunFolder(self.home).stat(f"lease.{each}") for each in ("state", "json"))
        if not (state and terms and state.st_mtime_ns > terms.st_mtime_ns):
            return ""
        said: dict[str, str] = json.loads(RunFolder(self.home).first("lease.state"))
        return said["held"]

    def _begin_at_boot(self, file: str) -> None:
        """Add a line to what Vast.ai runs at each start of a box, at its top: it may end in an
        `exec`."""
        terms, main = f"{self.home}/lease.json", f"{self.home}/box/current/onbox/__main__.py"
        words = quoted(*keeping(self.home, main)).rstrip()
        begins = f"{{ [ ! -f {quoted(terms)}] || exec setsid {words}; }}"
        line = f"{begins} </dev/null >/dev/null 2>&1 & # boxstrap"
        if not (os.path.isfile(file) and os.access(file, os.W_OK)) or line in lines_of(file):
            return
        with open(file, "r+b") as hook:
            lines = hook.read().splitlines(keepends=True)
            first = 1 if lines and lines[0].startswith(b"#!") else 0
            lines.insert(first, os.fsencode(f"{line}\n"))
            hook.seek(0)
            hook.write(b"".join(lines))
