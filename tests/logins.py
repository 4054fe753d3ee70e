"""A `BoxLogin` on a wire that a test has."""

from collections.abc import Callable, Sequence
from typing import Any

from bootstrap.boxes import BoxState
from bootstrap.boxes.login import BoxLogin
from bootstrap.link import BoxOptions, Endpoint, KnownBox, parse_host
from bootstrap.link.registry import FoundBox
from bootstrap.setup import Reporter


class Teller(Reporter):
    """Tells each sentence."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say

    def say(self, text: str) -> None:
        self._say(text)


def login_to(
    known: KnownBox, endpoint: Endpoint | None, say: Callable[[str], object] = print, host: str = ""
) -> BoxLogin:
    """A known box, not logged in to yet."""
    found = FoundBox(parse_host(host or known.host_text), known, endpoint)
    return BoxLogin(BoxOptions(), found, Teller(say))


def login_on(
    wire: Any, workdir: str = "/w", redact: Sequence[str] = (), name: str = "box"
) -> BoxLogin:
    """A login over `wire`; the box redacts the secrets in `redact`."""
    box = login_to(KnownBox(name, "local", secrets=()), None)
    box._new_wire = lambda: wire  # type: ignore[method-assign]
    box.workdir = workdir
    box.state = BoxState({"redacts": ""}, secrets=dict.fromkeys(redact, ""))
    return box
