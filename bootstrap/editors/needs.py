"""What an editor's server will lack on a box, judged from the box's answer. Pure.

Source: VS Code's documentation of remote Linux prerequisites (2026).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bootstrap.link.answers import number, version

OLDEST_GLIBC = (2, 28)
OLDEST_KERNEL = (4, 18)
LEAST_FREE_MB = 1000
"""Room for the server and a few extensions."""


@dataclass(frozen=True)
class Lack:
    """A missing requirement."""

    code: str
    says: str


def lacks(facts: Mapping[str, Sequence[str]], *, forwards: bool) -> list[Lack]:
    """List what is missing, worst first. `forwards`: whether the box's sshd allows forwarding."""
    found: list[Lack] = []

    def lack(code: str, says: str) -> None:
        found.append(Lack(code, says))

    libc, kernel = _one(facts, "libc"), _one(facts, "kernel")
    tools = set(facts.get("tool", ()))
    if not forwards:
        lack("forwarding", "its sshd forbids forwarding: it needs AllowTcpForwarding yes")
    if "musl" in libc.lower():
        lack("glibc", "its C library is musl (Alpine); editors' servers need glibc")
    elif _older(libc, OLDEST_GLIBC):
        lack("glibc", f"its {libc} is too old: 2.28 is needed")
    if _older(kernel, OLDEST_KERNEL):
        lack("kernel", f"its kernel {kernel} is too old: 4.18 is needed")
    if "cxx" not in facts:
        lack("libstdc++", "there is no libstdc++ of GCC 8 or later: install libstdc++6")
    lack_tools = [tool for tool in ("bash", "tar") if tool not in tools]
    for tool in lack_tools:
        lack(tool, f"there is no {tool}: install it")
    if not tools & {"curl", "wget"}:
        lack("curl", "there is neither curl nor wget: install one, or the editor copies its server")
    for folder in facts.get("noexec", ()):
        lack("noexec", f"no program may run in {folder} (noexec)")
    for folder in facts.get("unwritable", ()):
        lack("home", f"{folder} can't be written")
    free = number(_one(facts, "free"))
    if free is not None and free // 1000 < LEAST_FREE_MB:
        lack("disk", f"the home folder has {free // 1000} MB free; a server takes about 1 GB")
    return found


def _one(facts: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(facts.get(name, ())), "")


def _older(text: str, oldest: tuple[int, int]) -> bool:
    """Whether the first version in the text is older than `oldest`; False if it has none."""
    found = re.search(r"[0-9]{1,6}\.[0-9]{1,6}", text)
    return found is not None and version(found[0]) < oldest
