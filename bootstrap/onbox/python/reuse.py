"""Copy packages of the box's image into an environment, if that is faster than fetching them.

    onbox python.reuse find VERDICT OWN ENVIRONMENT IMAGES ROOT...
    onbox python.reuse shadow VERDICT ENVIRONMENT IMAGES SHADOW BACKEND
    onbox python.reuse copy VERDICT ENVIRONMENT IMAGES SAID NOTE

`find` writes the image's environments that are worth copying from, each a ROOT, to IMAGES, and
prints the folders of their interpreters in the form of PATH. If no ROOT has any, a login shell is
asked. `shadow` makes a copy of the new, empty environment that looks as if it had the image's
packages: with it, uv says which of them it would remove or replace. `copy` reads what uv SAID and
copies the others; it prints events, and lines for the log, and NOTEs at the end how many packages
that were, the megabytes and the seconds saved.
The image's environments are never changed, and uv fetches what can't be copied.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..run_folder import end_of, write_whole
from . import torch_compat
from .image_packages import (
    Distribution,
    ImageSite,
    distributions,
    find_images,
    plain,
    same_interpreter,
)

WHEEL_SHARE = 0.4  # wheel bytes per installed byte: torch without CUDA 0.27, CUDA's libraries 0.6
FILE_S = 0.0001  # overhead of each file, beyond its bytes
UNKNOWN_INDEX_MB_S = 100.0
UNKNOWN_DISK_MB_S = 500.0
LEAST_SAVED_S = 1.0
DESCRIBING = ("METADATA", "INSTALLER", "WHEEL", "direct_url.json")
GONE = re.compile(r"^ [-~] ([A-Za-z0-9][A-Za-z0-9._-]*)(?:==| @ |$)", re.MULTILINE)
NOTHING = 3  # the exit code if there is nothing to reuse


class Speeds(NamedTuple):
    """Speeds that the verdict measured, in megabytes (10^6) a second."""

    index_mb_s: float
    disk_mb_s: float


def read_speeds(verdict: Path) -> Speeds:
    """Read the speeds of package index and working folder; usual ones if not measured."""
    try:
        document = json.loads(verdict.read_text("utf-8"))
    except (OSError, ValueError):
        return Speeds(UNKNOWN_INDEX_MB_S, UNKNOWN_DISK_MB_S)
    read = {row["check"]: row["read"] for row in document["checks"] if row["gpu"] is None}
    return Speeds(
        megabytes(read.get("index"), UNKNOWN_INDEX_MB_S),
        megabytes(read.get("disk-speed"), UNKNOWN_DISK_MB_S),
    )


def megabytes(read: str | None, otherwise: float) -> float:
    """Parse a speed such as `12 MB/s from HOST`, as `verdict.check.megabytes` writes it."""
    found = re.match(r"([\d.]+) MB/s", read or "")
    return max(float(found.group(1)), 0.05) if found else otherwise


def fetching_s(size: float, speeds: Speeds) -> float:
    """Estimate the seconds for fetching `size` bytes of wheels, which are unpacked in parallel."""
    return size / 1e6 / speeds.index_mb_s


def copying_s(size: int, files: int, speeds: Speeds) -> float:
    """Estimate the seconds for copying `size` bytes in `files` files."""
    return size / 1e6 / speeds.disk_mb_s + files * FILE_S


def find(words: list[str]) -> int:
    verdict, own, environment, images, *roots = map(Path, filter(None, words))
    speeds = read_speeds(verdict)
    there = find_images(roots, own, environment)
    found = [
        image
        for image in there or find_images(login_root(images.parent), own, environment)
        if fetching_s(image.size * WHEEL_SHARE, speeds) >= LEAST_SAVED_S
    ]
    if not found:
        return NOTHING
    images.write_text(json.dumps(found), "utf-8")
    sys.stdout.write(":".join(dict.fromkeys(image.home for image in found)) + ":\n")
    return 0


def login_root(folder: Path, seconds: float = 3.0) -> list[Path]:
    """Return the environment of the Python that a login shell starts, whose output goes to a file.

    The system's was looked at already. Start-up files may print or start anything.
    """
    limited = ["timeout", "-k", "1", str(seconds), "bash", "-lc", _LOGIN]
    with suppress(OSError), (folder / "login").open("wb") as out:
        quiet = subprocess.DEVNULL
        subprocess.run(limited, stdin=quiet, stdout=out, stderr=quiet, check=False)
    said = end_of(folder / "login").split(_MARK)
    return [Path(said[-1].partition("\n")[0])] if said[1:] else []


_MARK = "\nboxstrap-prefix "
_LOGIN = """python=$(type -P python3 || type -P python)
case $python in /bin/* | /usr/bin/*) exit ;; esac
exec "$python" -I -B -c 'import sys; print(chr(10) + "boxstrap-prefix " + sys.prefix)'"""


def read_images(images: Path) -> list[ImageSite]:
    return [ImageSite(*row) for row in json.loads(images.read_text("utf-8"))]


def shadow(words: list[str]) -> int:
    """Make a shadow of the first that fits Python and driver; only that one stays in IMAGES."""
    verdict, environment, images, place = map(Path, words[:-1])
    backend = words[-1]
    python = str(environment / "bin" / "python")
    for image in read_images(images):
        where = Path(image.site)
        if not same_interpreter(image.python, python):
            say(f"{where}: its Python differs from that of {environment}")
        elif not torch_fits(verdict, backend, where):
            say(
                f"{where}: its torch is built for another driver, or for another backend than "
                f"the profile sets"
            )
        else:
            images.write_text(json.dumps([image]), "utf-8")
            make_shadow(environment, distributions(where), place)
            return 0
    return NOTHING


def torch_fits(verdict: Path, backend: str, site: Path) -> bool:
    """Return whether profile and driver allow the image's torch, if it has one."""
    try:
        text = (site / "torch" / "version.py").read_text("utf-8")
    except OSError:
        return True
    if backend not in ("auto", "none"):
        return torch_compat.backend_of(text) == backend
    try:
        target = torch_compat.read_target(verdict)
    except (OSError, ValueError):
        return True
    known = target.capabilities or target.cuda
    return not known or torch_compat.after(target, backend, site) is None


def make_shadow(environment: Path, found: list[Distribution], place: Path) -> None:
    """Copy the environment, and add only the metadata of the found packages."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(environment, place, symlinks=True)
    site = packages_folder(place)
    for one in found:
        own = site / one.info.name
        own.mkdir(exist_ok=True)
        for name in DESCRIBING:
            if (one.info / name).exists():
                shutil.copyfile(one.info / name, own / name)


def packages_folder(environment: Path) -> Path:
    return next(environment.glob("lib/python3*/site-packages"))


def copy(words: list[str]) -> int:
    """Copy the packages that uv would keep, if that saves time."""
    from .copy_packages import Copying  # the other two commands don't need it

    verdict, environment, images, said, note = map(Path, words)
    (image,) = read_images(images)
    gone = {plain(name) for name in GONE.findall(said.read_text("utf-8"))}
    kept = [one for one in distributions(Path(image.site)) if one.name not in gone]
    copying = Copying.of(kept, packages_folder(environment))
    if not copying.taken:
        return NOTHING
    wheels = copying.wheel_size()
    speeds = read_speeds(verdict)
    fetched, copied = (
        fetching_s(wheels, speeds),
        copying_s(copying.size, len(copying.files), speeds),
    )
    say(f"{image.site} has {len(copying.taken)} of the packages that are required:")
    say(f"about {wheels / 1e6:.0f} MB of wheels, {fetched:.1f} s at {speeds.index_mb_s:g} MB/s;")
    say(f"{copying.size / 1e6:.0f} MB to copy, {copied:.1f} s")
    if fetched - copied < LEAST_SAVED_S:
        return NOTHING
    began = time.monotonic()
    try:
        copying.run(lambda done: say(f"progress done={done} total={copying.size} unit=bytes"))
    except OSError as error:
        say(f"they could not be copied: {error}")
        return NOTHING
    took = time.monotonic() - began
    for one in copying.taken:
        say(f"reused: {one.name} {one.version}, not compared with a hash of a lock")
    saved = max(0.0, fetched - took)
    count, mb, secs = len(copying.taken), round(wheels / 1e6), round(saved)
    write_whole(note, f"{count} {mb} {secs}\n")
    say(f"note code=image-reused count={count} have={mb} secs={secs}")
    return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


COMMANDS = {"find": find, "shadow": shadow, "copy": copy}


def main() -> int:
    return COMMANDS[sys.argv[1]](sys.argv[2:])
