"""What a failed program printed becomes one code; those that need the network are run again if that
is to blame."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress

from .run_folder import end_of
from .step_report import StepError, log, tell

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Callable

ERRORS = (
    ("disk-full", "No space left on device"),
    ("inodes-full", "no free inodes"),
    (
        "no-dns",
        "Temporary failure in name resolution|Temporary failure resolving|"
        "[Cc]ould not resolve|NameResolutionError|unable to resolve host|dns error|"
        "failed to lookup address|Name or service not known",
    ),
    (
        "certificate-untrusted",
        "invalid peer certificate|CERTIFICATE_VERIFY_FAILED|SSL certificate problem|"
        "[Cc]ertificate verif(y|ication) failed",
    ),
    ("dpkg-locked", "Could not get lock|is another process using it"),
    (
        "dependency-private",
        r"could not read Username|Authentication failed|Permission denied \(publickey|"
        "Host key verification failed",
    ),
    (
        "git-unreachable",
        r"unable to access [^\n]*(Failed to connect|t connect to server|timed out|"
        "returned error: 5|too slow|refused|reset|Empty reply|SSL_ERROR_SYSCALL|GnuTLS recv"
        "|No route to host|Network is unreachable)|RPC failed|hung up unexpectedly|"
        "early EOF|ssh: connect to host|kex_exchange_identification|"
        r"Connection closed by [^\n]* port",
    ),
    (
        "index-unreachable",
        "No route to host|Network is unreachable|ENETUNREACH|EHOSTUNREACH|"
        "NewConnectionError|Max retries exceeded|Remote end closed|IncompleteRead|"
        "network timeout|error (decoding|reading a) (response )?body|returned error: (429|"
        "5[0-9][0-9])|(429|50[0-9]):? (Too Many|Service|Bad|Gateway|Internal)|[Cc]url error"
        "|failed retrieving file|temporary error .try again|status (server|client) error|"
        "([Cc]ould not|[Cc]ouldn.t|[Uu]nable to) connect|Cannot initiate the connection|"
        "[Cc]onnection (refused|reset|timed out)|operation timed out|error sending request|"
        "[Tt]imed out|Failed to fetch",
    ),
    ("wheel-missing", "has no wheels with a matching Python"),
    (
        "package-missing",
        "was not found in the (package registry|provided package locations)|from versions: none|"
        "Unable to (locate package|find a match)|target not found|No provider of|no such package|"
        "has no installation candidate",
    ),
    (
        "resolve-failed",
        "No solution found|unsatisfiable|ResolutionImpossible|No matching distribution",
    ),
    ("sklearn-renamed", "'sklearn' PyPI package is deprecated"),
    ("build-failed", "Failed to build|Failed building wheel|build backend"),
)
"""Of what is printed, as regular expressions: the first that matches counts. They match the whole
text; one that must stay within a line says so."""
_WITHOUT_PYTHON = (
    *("disk-full", "inodes-full", "no-dns", "certificate-untrusted", "dpkg-locked"),
    "index-unreachable",
)
_TRYING_AGAIN = "trying again in"
"""What an earlier attempt printed does not explain why the last one failed."""
_LAST_LINES = 60
_PATIENCE_S = 60.0
_FULL = 100 << 10
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class Retries:
    """Those of one step, whose programs print into its log. `told` gets its events."""

    def __init__(self, step_log: str, told: Callable[[str], None] = tell) -> None:
        self._log, self._tell = step_log, told

    def run(self, attempt: Callable[[], int]) -> int:
        """Return the exit code of a program, which is run again after 2 seconds, then every 8: a
        link that is down for half a minute is waited for. After a minute it is given up: uv, apt
        and git retry on their own, and a server that stalls has had its time by then."""
        pause, until = 2, time.monotonic() + _PATIENCE_S
        while True:
            code = attempt()
            if not code or time.monotonic() >= until or not (why := self.network_error()):
                return code
            self._tell(f"wait code={why}")
            log(f"{_TRYING_AGAIN} {pause} s")
            time.sleep(pause)
            pause = 8

    def must(self, attempt: Callable[[], int]) -> None:
        """As `run`. Raises StepError if it failed for good."""
        if code := self.run(attempt):
            raise StepError("", rc=code if code > 0 else 128 - code)

    def network_error(self) -> str:
        """Return the code of what is wrong with the network; "" if that isn't to blame."""
        code = classify(self._log)
        return code if _is_networks(code) else ""


def classify(step_log: str) -> str:
    """Return the code; `command-failed` if nothing matches and the disk is not full."""
    lines = end_of(step_log).split("\n")[-_LAST_LINES - 1 :]
    # These only warn that they can't look up the box's own name.
    text = "\n".join(line for line in lines if not line.startswith(("sudo: ", "hostname: ")))
    text = text.rpartition(_TRYING_AGAIN)[2]
    code = next((code for code, words in ERRORS if re.search(words, text, re.DOTALL)), "")
    if _is_networks(code):
        return _dead_proxy() or code
    with suppress(OSError):
        disk = os.statvfs(step_log)
        # On a full one the message could not be logged either.
        if not code and disk.f_bavail * disk.f_frsize < _FULL:
            return "disk-full"
    return code or "command-failed"


def error_rows() -> list[str]:
    """Return those that explain why a box got no Python, as bash reads them."""
    return [f"{code}|{words}" for code, words in ERRORS if code in _WITHOUT_PYTHON]


def _is_networks(code: str) -> bool:
    return code == "no-dns" or code.endswith("-unreachable")


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
