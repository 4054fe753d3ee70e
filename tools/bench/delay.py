"""The handle of the delay proxy, which makes a box appear any distance away."""

from __future__ import annotations

import subprocess
import sys

from tests.boxes.proc import REPOSITORY, RigError


class DelayProxy:
    """A separate process that listens on `host`, `port`; see delay_process.py."""

    host = "127.0.0.1"

    def __init__(self, address: str, port: int, rtt: float) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tools.bench.delay_process",
                self.host,
                address,
                str(port),
                str(rtt),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            start_new_session=True,  # only the owner gets Ctrl-C
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise RigError("the delay proxy did not start")
        self.port = int(said)

    def close(self) -> None:
        """End it and every connection through it."""
        self._process.kill()
        self._process.communicate()
