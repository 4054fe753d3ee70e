"""Which versions of Python a project accepts, as uv takes it: it says so in pyproject.toml (also
poetry's way), in setup.cfg or in setup.py, of which nothing is run.
"""

from __future__ import annotations

import os
import re

from ..run_folder import lines_of

_STATED = {
    "pyproject.toml": (
        r"""^\[project\].*(?:\n(?!\[).*)*?\nrequires-python\s*=\s*(["'])(.*?)\1""",
        r"""^\[tool\.poetry\.dependencies\].*(?:\n(?!\[).*)*?\npython\s*=\s*(["'])(.*?)\1""",
    ),
    "setup.cfg": (r"^python_requires\s*=\s*()(\S.*)",),
    "setup.py": (r"""\bpython_requires\s*=\s*(["'])(.*?)\1""",),
}
"""The places in the order in which a build reads them: the first one that says something counts."""


def accepted(folder: str) -> str:
    """Return the range of the project in that folder; "" if it states none."""
    for name, patterns in _STATED.items():
        text = "\n".join(lines_of(os.path.join(folder, name)))
        for pattern in patterns:
            if found := re.search(pattern, text, re.MULTILINE):
                return plain_range(found[2])
    return ""


def plain_range(version: str) -> str:
    """Convert poetry's `^1.2` and `~1.2`; a bare version is exact, `*` and what has `||` any."""
    if "|" in version:
        return ""
    bounds = []
    for part in version.replace(" ", "").split(","):
        caret = re.fullmatch(r"(\^|~(?!=))(\d+(?:\.\d+)*).*", part)
        if caret:
            numbers = [int(number) for number in caret[2].split(".")]
            first = next((n for n, number in enumerate(numbers) if number), len(numbers) - 1)
            at = min(1, len(numbers) - 1) if caret[1] == "~" else first
            upper = ".".join(map(str, [*numbers[:at], numbers[at] + 1]))
            bounds.append(f">={part[1:]},<{upper}")
        elif part not in ("", "*"):
            bounds.append(part if part[0] in "<>=!~" else f"=={part}")
    return ",".join(bounds)
