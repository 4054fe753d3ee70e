"""Send uv to a box whose package index does not have it, from this machine's index."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import BoxstrapError
from bootstrap.link.errors import LinkLost
from bootstrap.link.shell_command import shell_command
from bootstrap.link.wire import PIECE, Wire
from bootstrap.paths import cache_dir, temporary_dir, write_private
from bootstrap.protocol.query import build_query
from bootstrap.render.uv_release import VERSION, WHEELS
from bootstrap.text.sanitize import sanitize

_FETCH_S = 300
"""How long pip may take, in seconds."""
_LONGEST = 300
_ARRIVED = b"\narrived\n"
_MOST_ANSWER = 1024 * 1024
"""Limit for the box's answer in bytes: one word, after what rc files print."""


def fetch_wheel(machine: str) -> bytes:
    """Return uv's wheel for `machine` (as `uname` names it) from the cache, or by pip.

    Its SHA-256 must be the one in `WHEELS`. Raises BoxstrapError.
    """
    if machine not in WHEELS:
        raise BoxstrapError(f"no uv is known for {machine[:_LONGEST]}.")
    name, sha256 = WHEELS[machine]
    kept = cache_dir() / "uv" / name
    with suppress(OSError):
        wheel = kept.read_bytes()
        if hashlib.sha256(wheel).hexdigest() == sha256:
            return wheel
    wheel = _download(name, sha256)
    with suppress(OSError):
        write_private(kept, wheel)
        for other in kept.parent.iterdir():
            if other.name not in {file for file, _ in WHEELS.values()}:
                other.unlink()
    return wheel


def _download(name: str, sha256: str) -> bytes:
    """Download it with pip and this user's settings; pip checks the hash."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    platforms = name.removesuffix(".whl").rpartition("-")[2].split(".")
    with tempfile.TemporaryDirectory(dir=temporary_dir()) as folder:
        wanted = Path(folder, "uv.txt")
        wanted.write_text(f"uv=={VERSION} --hash=sha256:{sha256}\n", "utf-8")
        # -I: import nothing from the current folder, which may be someone else's repository.
        command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command += [f"--platform={platform}" for platform in platforms]
        command += ["--index-url", index] if index else []
        try:
            done = subprocess.run(
                [*command, "--dest", folder, "-r", str(wanted)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_FETCH_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_here(str(error)) from error
        wheel = Path(folder, name)
        if done.returncode or not wheel.is_file():
            raise _not_here(sanitize(done.stderr))
        return wheel.read_bytes()


def _not_here(said: str) -> BoxstrapError:
    last = said.strip().rpartition("\n")[2].removeprefix("ERROR: ")
    return BoxstrapError(
        f"this machine's package index does not give uv {VERSION} either: {last[:_LONGEST]}"
    )


@dataclass(eq=False, repr=False)
class UvSender(threading.Thread):
    """Send uv in its own thread; calls `sent` at the end, and `failed` with errors.

    If this machine can't get uv either, the box is notified and does not wait for it.
    """

    wire: Wire
    machine: str
    workdir: str
    setup: str
    progress: Callable[[int, int], None]
    sent: Callable[[], None]
    failed: Callable[[BoxstrapError], None]
    arrived: bool = False
    """Whether the box has uv, or knows that it won't be sent."""

    def __post_init__(self) -> None:
        super().__init__(name="uv", daemon=True)

    def run(self) -> None:
        """Send; a lost link is not an error, since following reconnects and sends again."""
        wheel = b""
        try:
            wheel = fetch_wheel(self.machine)
        except BoxstrapError as error:
            self.failed(error)
        try:
            self._send(wheel)
        except LinkLost:
            return
        except BoxstrapError as error:
            self.failed(error)

    def _send(self, wheel: bytes) -> None:
        query = build_query(
            "take_uv", workdir=self.workdir, setup_id=self.setup, wheel_bytes=len(wheel)
        )
        stream = self.wire.start(shell_command(query))
        with suppress(BrokenPipeError):  # its error output says why
            for start in range(0, len(wheel), PIECE):
                stream.write(wheel[start : start + PIECE])
                self.progress(min(start + PIECE, len(wheel)), len(wheel))
        stream.close_write()
        answer = b""
        while _ARRIVED not in answer and len(answer) < _MOST_ANSWER:
            if not (piece := stream.read(PIECE)):
                break
            answer += piece
        if not self.wire.alive():  # closed from here, or lost
            raise LinkLost(self.wire.label)
        self.arrived = True
        if _ARRIVED not in answer:
            said = sanitize(stream.read_err()).strip()[-_LONGEST:]
            raise BoxstrapError(f"the box did not take uv{said and ': ' + said}.")
        if wheel:
            self.sent()
