"""Find the Python environments of the box's image, and what is installed in them. Only reads.

A distribution counts if it can be copied file by file: pip or uv installed it, its RECORD names
its files, and all of them are below its environment's folder. Packages of conda or the system's
package manager depend on other files of theirs; an editable package, or one that works through a
`.pth`, is more than its files.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..run_folder import lines_of

SITES = ("lib/python3.*/site-packages", "lib/python3.*/dist-packages")
INSTALLERS = {"pip", "uv"}
LEFT_ALONE = {"pip", "setuptools", "wheel"}  # a new environment has its own


class Recorded(NamedTuple):
    """A file in a RECORD: its path relative to site-packages; its bytes, None if not recorded."""

    path: str
    size: int | None


class Distribution(NamedTuple):
    """An installed distribution: its name as normalized by PEP 503, and its `.dist-info`."""

    name: str
    version: str
    info: Path

    @property
    def site(self) -> Path:
        """The site-packages folder that it is in."""
        return self.info.parent

    @property
    def root(self) -> Path:
        """The environment's folder, which also has programs and data."""
        return self.site.parents[2]


class ImageSite(NamedTuple):
    """A site-packages folder of the image, and the interpreter that it is for."""

    site: str
    python: str
    home: str  # the folder of the interpreter that the environment itself was made with
    size: int  # bytes


def plain(name: str) -> str:
    """Normalize a package's name, so that all its spellings are equal (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_images(roots: Iterable[Path], own: Path, environment: Path) -> list[ImageSite]:
    """Return what `roots` have, the largest first, without boxstrap's own and `environment`."""
    once = dict.fromkeys(roots)
    found = [image for root in once for image in sites_of(root, own, environment)]
    return sorted(found, key=lambda image: -image.size)


def sites_of(root: Path, own: Path, environment: Path) -> Iterator[ImageSite]:
    """Yield an environment's site-packages folders that hold something to copy."""
    for unwanted in (own, environment):
        if unwanted == root or unwanted in root.parents:
            return
    if (root / ".boxstrap").exists():
        return
    for site in sorted(where for pattern in SITES for where in root.glob(pattern)):
        name = site.parent.name  # python3.11
        python = next(
            (p for p in (root / "bin" / name, Path("/usr/bin", name)) if p.exists()), None
        )
        size = sum(recorded_size(one) for one in distributions(site))
        if python and size:
            yield ImageSite(str(site), str(python), base_of(root) or str(python.parent), size)


def base_of(root: Path) -> str:
    """Return the folder of the interpreter that a venv was made with; "" if it is no venv."""
    text = "\n".join(lines_of(root / "pyvenv.cfg"))
    found = re.search(r"^home *= *(.+?) *$", text, re.MULTILINE)
    return found.group(1) if found else ""


def distributions(site: Path) -> list[Distribution]:
    """Return the distributions of a site-packages folder that can be copied."""
    found = []
    for info in sorted(site.glob("*.dist-info")):
        name, _, version = info.name[: -len(".dist-info")].rpartition("-")
        if name and plain(name) not in LEFT_ALONE and is_whole(info):
            found.append(Distribution(plain(name), version, info))
    return found


def is_whole(info: Path) -> bool:
    """Return whether a distribution consists only of the files in its RECORD."""
    try:
        if (info / "INSTALLER").read_text("utf-8").strip() not in INSTALLERS:
            return False
        direct = info / "direct_url.json"
        origin = json.loads(direct.read_text("utf-8")) if direct.exists() else {}
        rows = record(info)
    except (OSError, ValueError, csv.Error):
        return False
    if not rows or "dir_info" in origin:
        return False
    return not any(row.path.endswith(".pth") and "/" not in row.path for row in rows)


@lru_cache(maxsize=1 << 16)
def record(info: Path) -> tuple[Recorded, ...]:
    """Return the rows of a RECORD. Raises OSError, ValueError, csv.Error."""
    with (info / "RECORD").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    return tuple(Recorded(row[0], int(row[2]) if len(row) > 2 and row[2] else None) for row in rows)


def recorded_size(found: Distribution) -> int:
    """Return the bytes of a distribution according to its RECORD."""
    return sum(row.size or 0 for row in record(found.info))


def same_interpreter(one: str, other: str) -> bool:
    """Return whether two interpreters load the same compiled modules."""
    kinds = [kind_of(python) for python in (one, other)]
    return kinds[0] == kinds[1] != ""


def kind_of(python: str) -> str:
    """Return an interpreter's version, ABI and platform, as in names of compiled modules."""
    ask = "import _imp, sys; print(sys.version_info[:2], _imp.extension_suffixes())"
    try:
        said = subprocess.run(
            [python, "-I", "-S", "-B", "-c", ask],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.decode(sys.getdefaultencoding(), "replace").strip()
