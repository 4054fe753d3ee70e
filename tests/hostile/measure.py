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
from tests.waiting import slowness

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
    processor: float
    """Seconds of processor time, its threads' included."""
    mib: float
    """Peak memory, in MiB."""

    @property
    def text(self) -> str:
        """Its whole output."""
        return (self.out + self.err).decode()

    def must(self, rc: int, *, seconds: float, mib: float) -> Measured:
        """Check exit code, time and memory, and that no control characters were printed.

        `seconds` limits processor time, and a quarter of the time that passed: other tests
        and the box, which share the cores, may delay it.
        """
        said = (self.out[-4000:] + self.err[-4000:]).decode("utf-8", "replace")
        assert self.rc == rc, f"exit {self.rc}, not {rc}\n{said!a}"
        assert b"Traceback" not in self.err, said
        for stream in (self.out, self.err):
            found = stream.translate(None, _PLAIN) and OBEYED.search(stream)
            assert not found, f"it prints {stream[max(0, found.start() - 80) :][:200]!a}"
            stream.decode()
        took = f"{self.seconds:.1f} s, {self.processor:.1f} of processor\n{said!a}"
        assert self.processor < seconds * slowness(), took
        assert self.seconds < 4 * seconds * slowness(), took
        assert self.mib < mib, f"{self.mib:.0f} MiB\n{said!a}"
        return self


def run(
    argv: Sequence[str], cwd: Path, env: Mapping[str, str], *, timeout: float = 120
) -> Measured:
    """Run a program apart from this terminal; it is killed after `timeout` seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _start(argv, cwd, env, out.fileno(), err.fileno())
        timer = threading.Timer(timeout, os.killpg, [process.pid, signal.SIGKILL])
        timer.start()
        used = _Used(process.pid)
        process.wait()
        timer.cancel()
        used.join()
        for file in (out, err):
            file.seek(0)
        assert process.returncode is not None
        return Measured(
            process.returncode,
            out.read(),
            err.read(),
            time.monotonic() - began,
            used.processor,
            used.mib,
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


class _Used(threading.Thread):
    """Polls peak memory and processor time. `ru_maxrss` would include the parent's at the fork."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._proc = Path(f"/proc/{pid}")
        self.mib = 0.0
        self.processor = 0.0
        self.start()

    def run(self) -> None:
        """Poll until the process is gone."""
        ticks = os.sysconf("SC_CLK_TCK")
        while True:
            try:
                peak = re.search(r"VmHWM:\s+(\d+) kB", (self._proc / "status").read_text())
                stat = (self._proc / "stat").read_text()
            except (OSError, ValueError):
                return
            # proc(5): user and system time are fields 14 and 15, the name in brackets is field 2
            user, system = stat.rpartition(")")[2].split()[11:13]
            self.processor = (int(user) + int(system)) / ticks
            if not peak:
                return
            self.mib = int(peak[1]) / 1024
            time.sleep(0.03)
