"""Where a tunnel leads on a box: a port, or ssh's own `-L` syntax. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from bootstrap.errors import UsageError

_PART = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
_FORM = re.compile(
    rf"(?:(?:(?P<bind>{_PART}):)?(?P<here>[0-9]+):(?P<host>{_PART}):|(?P<near>[0-9]+):)?(?P<there>[0-9]+)"
)
_HERE_ALONE = (None, "localhost", "127.0.0.1", "[::1]")
_FORMS = (
    "A tunnel is PORT of the box, HERE:PORT, or as in ssh's -L: HERE:ADDRESS:PORT, "
    "as in 8080, 9000:8080, 8080:localhost:8080."
)
_LONGEST_LABEL = 63


@dataclass(frozen=True)
class Forward:
    """`port` of `host`, as the box sees it; `here` is the preferred port on this machine."""

    here: int
    host: str
    port: int


def parse_forward(text: str) -> Forward:
    """Parse `text`. Raises UsageError with the forms to use."""
    found = _FORM.fullmatch(text)
    if not found:
        raise UsageError(f"{text!r} is no port to open a tunnel to.", hint=_FORMS)
    if found["bind"] not in _HERE_ALONE:
        raise UsageError(
            f"{text}: boxstrap opens tunnels only on this machine's loopback, not on "
            f"{found['bind']}.",
            hint="ssh itself opens it there: ssh -g -L …",
        )
    port = _port(text, found["there"])
    here = found["here"] or found["near"]
    host = (found["host"] or "localhost").strip("[]")
    return Forward(_port(text, here) if here else port, host, port)


def _port(text: str, digits: str) -> int:
    if len(digits) > 5 or not 1 <= int(digits) <= 65535:
        raise UsageError(f"{text}: {digits[:20]} is no port (1 to 65535).", hint=_FORMS)
    return int(digits)


def host_of(box: str) -> str:
    """Return the name below `localhost` by which a browser reaches the box called `box`.

    Each box has its own name, of one label, so that browsers keep their cookies apart.
    """
    label = re.sub(r"[^a-z0-9]+", "-", box.lower()).strip("-")
    if label != box:
        mark = hashlib.sha256(box.encode()).hexdigest()[:6]
        label = f"{label[: _LONGEST_LABEL - 7]}-{mark}".strip("-")
    return f"{label}.localhost"
