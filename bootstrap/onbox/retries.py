"""Programs that need the network are run again if that is to blame for their failure."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence

from .run_folder import end_of
from .step_report import log, tell

_TRYING_AGAIN = "trying again in"
"""What an earlier attempt printed does not explain why the last one failed."""
_LAST_LINES = 60
_PATIENCE_S = 60.0
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class Retries:
    """Those of one step, whose programs print into its log."""

    def __init__(self, step_log: str, errors: Sequence[str]) -> None:
        """`errors`: rows of `templates/lib/errors.sh`: the first that matches counts."""
        self._log, self._errors = step_log, [row.partition("|") for row in errors]

    def run(self, attempt: Callable[[], int]) -> int:
        """Return the exit code of a program, which is run again after 2 seconds, then every 8: a
        link that is down for half a minute is waited for. After a minute it is given up: uv, apt
        and git retry on their own, and a server that stalls has had its time by then."""
        pause, until = 2, time.monotonic() + _PATIENCE_S
        while True:
            code = attempt()
            if not code or time.monotonic() >= until or not (why := self.network_error()):
                return code
            tell(f"wait code={why}")
            log(f"{_TRYING_AGAIN} {pause} s")
            time.sleep(pause)
            pause = 8

    def network_error(self) -> str:
        """Return the code of what is wrong with the network; "" if that isn't to blame."""
        lines = end_of(self._log).split("\n")[-_LAST_LINES - 1 :]
        # These only warn that they can't look up the box's own name.
        text = "\n".join(line for line in lines if not line.startswith(("sudo: ", "hostname: ")))
        text = text.rpartition(_TRYING_AGAIN)[2]
        found = (code for code, _, words in self._errors if re.search(words, text, re.DOTALL))
        code = next(found, "")
        is_networks = code == "no-dns" or code.endswith("-unreachable")
        return (_dead_proxy() or code) if is_networks else ""


def _dead_proxy() -> str:
    """Return the code if a proxy that this box's programs are told to use doesn't answer, and log
    which."""
    import socket  # slow to import

    for name in _PROXIES:
        place = os.environ.get(name, "").split("://", 1)[-1].partition("/")[0].rpartition("@")[2]
        if found := re.fullmatch(r"\[?([0-9A-Za-z_.:-]+)\]?:([0-9]+)", place):
            try:
                socket.create_connection((found[1], int(found[2])), 3).close()
            except (OSError, OverflowError):
                log(f"the proxy {place} of {name} does not answer")
                return "proxy-unreachable"
    return ""
