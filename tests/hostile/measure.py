"""Runs programs and measures them: exit code, output as bytes, seconds, memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.forked import Forked, can_fork

# Control characters in UTF-8: C0 but newline and tab, DEL, C1, direction marks, separators.
OBEYED = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xd8\x9c"
    rb"|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
_PLAIN = b"\t\n" + bytes(range(0x20, 0x7F))
"""Printable ASCII. A regex search of 100 MB takes thirty times as long as removing these."""


@dataclass(frozen=True)
class Measured:
    """How a program ended, and what it took."""

    rc: int
    out: bytes
    err: bytes
    seconds: float
    mib: float
    """Peak memory, in MiB."""

    @property
    def text(self) -> str:
        """Its whole output."""
        return (self.out + self.err).decode()

    def must(self, rc: int, *, seconds: float, mib: float) -> Measured:
        """Check exit code, time and memory, and that no control characters were printed."""
        said = (self.out[-4000:] + self.err[-4000:]).decode("utf-8", "replace")
        assert self.rc == rc, f"exit {self.rc}, not {rc}\n{said!a}"
        assert b"Traceback" not in self.err, said
        for stream in (self.out, self.err):
            found = stream.translate(None, _PLAIN) and OBEYED.search(stream)
            assert not found, f"it prints {stream[max(0, found.start() - 80) :][:200]!a}"
            stream.decode()
        assert self.seconds < seconds, f"{self.seconds:.1f} s\n{said!a}"
        assert self.mib < mib, f"{self.mib:.0f} MiB\n{said!a}"
        return self


def run(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    *,
    timeout: float = 60,
) -> Measured:
    """Run a program apart from this terminal; it is killed after `timeout` seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _start(argv, cwd, env, out.fileno(), err.fileno())
        timer = threading.Timer(timeout, os.killpg, [process.pid, signal.SIGKILL])
        timer.start()
        memory = _Memory(process.pid)
        process.wait()
        timer.cancel()
        memory.join()
        for file in (out, err):
            file.seek(0)
        assert process.returncode is not None
        return Measured(
            process.returncode,
            out.read(),
            err.read(),
            time.monotonic() - began,
            memory.mib,
        )


def _start(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], out: int, err: int
) -> Forked | subprocess.Popen[bytes]:
    if can_fork(argv, env):
        return Forked(argv, cwd, env, err, out)
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


class _Memory(threading.Thread):
    """Polls the peak memory. `ru_maxrss` would include what the parent held at the fork."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self.mib = 0.0
        self.start()

    def run(self) -> None:
        """Poll until the process is gone."""
        while True:
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self._status.read_text())
            except (OSError, ValueError):
                return
            if not found:
                return
            self.mib = int(found[1]) / 1024
            time.sleep(0.03)
