"""Copy packages of the box's image into an environment, if that is faster than fetching them.

The image's environments that are worth it are looked for. A shadow, a copy of the new, empty
environment that looks as if it had the image's packages, is shown to uv, which says which of them
it would remove or replace; the others are copied. The image's environments are never changed, uv
fetches what can't be copied, and nothing here fails a setup.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import NamedTuple

from ..run_folder import end_of, lines_of, write_whole
from ..step_report import log, tell
from . import torch_compat
from .copy_packages import Copying
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
PLACES = (
    *("/venv/*", "/opt/venv", "/opt/conda", "/opt/conda/envs/*", "/usr/local", "/usr"),
    *("/opt/miniconda3", "/opt/miniforge3", "~/miniconda3", "~/miniforge3", "~/anaconda3"),
)
"""Where images have environments; if two places have the same, the first one counts."""
GONE = re.compile(r"^ [-~] ([A-Za-z0-9][A-Za-z0-9._-]*)(?:==| @ |$)", re.MULTILINE)


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


def images_worth(verdict: Path, own: Path, environment: Path, folder: Path) -> list[ImageSite]:
    """Return the image's environments that are worth copying from. If no place has any, a login
    shell is asked, whose output goes into a file in the `folder`."""
    speeds = read_speeds(verdict)
    named = [os.environ.get("VIRTUAL_ENV", ""), os.environ.get("CONDA_PREFIX", "")]
    places = (place for each in PLACES for place in sorted(glob(os.path.expanduser(each))))
    there = find_images(map(Path, filter(None, [*named, *places])), own, environment)
    return [
        image
        for image in there or find_images(login_root(folder), own, environment)
        if fetching_s(image.size * WHEEL_SHARE, speeds) >= LEAST_SAVED_S
    ]


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


def first_that_fits(
    images: Iterable[ImageSite], verdict: Path, environment: Path, backend: str
) -> ImageSite | None:
    """Return the first that fits Python and driver."""
    python = str(environment / "bin" / "python")
    for image in images:
        if not same_interpreter(image.python, python):
            log(f"{image.site}: its Python differs from that of {environment}")
        elif not torch_fits(verdict, backend, Path(image.site)):
            log(
                f"{image.site}: its torch is built for another driver, or for another backend than "
                f"the profile sets"
            )
        else:
            return image
    return None


def torch_fits(verdict: Path, backend: str, site: Path) -> bool:
    """Return whether profile and driver allow the image's torch, if it has one."""
    text = "\n".join(lines_of(site / "torch" / "version.py"))
    if not text:
        return True
    if backend not in ("auto", "none"):
        return torch_compat.backend_of(text) == backend
    try:
        target = torch_compat.read_target(verdict)
    except (OSError, ValueError):
        return True
    known = target.capabilities or target.cuda
    return not known or torch_compat.after(target, backend, site) is None


def make_shadow(environment: Path, found: Sequence[Distribution], place: Path) -> None:
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


def copy(verdict: Path, environment: Path, image: ImageSite, said: str, note: str) -> None:
    """Copy the packages that uv would keep by what it `said`, if that saves time, and `note` how
    many that were, the megabytes and the seconds saved, for a profile that says `never` later."""
    gone = {plain(name) for name in GONE.findall(said)}
    kept = [one for one in distributions(Path(image.site)) if one.name not in gone]
    copying = Copying.of(kept, packages_folder(environment))
    if not copying.taken:
        return
    wheels, speeds = copying.wheel_size(), read_speeds(verdict)
    fetched = fetching_s(wheels, speeds)
    copied = copying_s(copying.size, len(copying.files), speeds)
    log(f"{image.site} has {len(copying.taken)} of the packages that are required:")
    log(f"about {wheels / 1e6:.0f} MB of wheels, {fetched:.1f} s at {speeds.index_mb_s:g} MB/s;")
    log(f"{copying.size / 1e6:.0f} MB to copy, {copied:.1f} s")
    if fetched - copied < LEAST_SAVED_S:
        return
    began = time.monotonic()
    try:
        copying.run(lambda done: tell(f"progress done={done} total={copying.size} unit=bytes"))
    except OSError as error:
        log(f"they could not be copied: {error}")
        return
    saved = max(0.0, fetched - (time.monotonic() - began))
    for one in copying.taken:
        log(f"reused: {one.name} {one.version}, not compared with a hash of a lock")
    count, mb, secs = len(copying.taken), round(wheels / 1e6), round(saved)
    write_whole(note, f"{count} {mb} {secs}\n")
    tell(f"note code=image-reused count={count} have={mb} secs={secs}")
