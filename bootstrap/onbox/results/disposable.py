"""Remove from a box what it can do without: results that are at home, and downloads.

Results go if their run ended with 0, a verified pull brought all that it made, and nobody has
changed them since; not while a run lives, waits, or may be resumed where they are. Downloads are
those in boxstrap's own cache folder, which are fetched again; they stay while a run lives or waits.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ..run_folder import lines_of, names_in, runs_below
from .complete_files import Files
from .run_results import RunResults, is_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    Row = tuple[str, str, int, str, Mapping[str, int]]
    """Results (of a run, KEY/NAME) or cache, its name, bytes, what became of it: removed, safe (it
    could be), used, kept (its run may be resumed), or unpulled; of results the files:
    place and bytes."""
CACHES = ("huggingface/hub", "huggingface/xet", "torch/hub", "pip", "uv")
"""Below `cache/`. What else is there, such as prepared datasets, was computed."""


def goes_on(run: RunResults) -> bool:
    """Return whether it lives, or waits for its turn."""
    return not (run.begun and run.is_over) and not os.path.exists(f"{run.path}/exit")


def is_finished(run: RunResults) -> bool:
    """Return whether it ended with 0."""
    return lines_of(f"{run.path}/exit")[:1] == ["0"]


class Uses:
    """The runs that may still need what lies somewhere."""

    def __init__(self, home: str) -> None:
        self.runs = runs = [RunResults(run.path) for run in runs_below(f"{home}/runs")]
        self.any = any(map(goes_on, runs))
        needy = [
            run
            for run in runs
            if goes_on(run) or (not is_finished(run) and os.path.exists(f"{run.path}/resume"))
        ]
        self._trees = {os.path.realpath(run.tree) for run in needy}
        self._places = {place for run in needy for place in run.places}

    def has(self, run: RunResults) -> bool:
        """Return whether one of them works where this run's results are."""
        return os.path.realpath(run.tree) in self._trees or not self._places.isdisjoint(run.places)


def files_of(run: RunResults) -> dict[str, int]:
    """Return the results that are still as the run made them, at their place: path and bytes."""
    found = {}
    for path, state in run.wanted(run.made() or Files()).items():
        place, now = os.path.join(run.tree, path), run.state_in_place(path)
        if now and is_same(state, now) and not (path in run.paths and os.path.islink(place)):
            with suppress(OSError):
                found[place] = os.lstat(place).st_blocks * 512
    return found


def remove_files(run: RunResults, places: dict[str, int]) -> None:
    """Remove results, and the folders below the profile's own paths that are empty then."""
    for place in places:
        os.unlink(place)
    roots = {os.path.join(run.tree, one) for one in run.paths}
    for place in sorted(places, key=len, reverse=True):
        folder = os.path.dirname(place)
        with suppress(OSError):  # not empty
            while any(folder.startswith(f"{one}/") for one in roots):
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def clean_results(key: str, uses: Uses, *, look: bool) -> Iterator[Row]:
    for run in uses.runs:
        if key not in ("", run.key) or goes_on(run):
            continue
        files, is_home = files_of(run), run.is_home()
        size = sum(files.values()) + (0 if is_home else run.kept_bytes())
        if not size:
            continue
        became = "used" if uses.has(run) else "safe"
        became = became if is_finished(run) else "kept"
        became = became if is_home else "unpulled"
        if became == "safe" and not look:
            remove_files(run, files)
            became = "removed"
        yield "results", f"{run.key}/{run.name}", size, became, files


def size_of(folder: str) -> int:
    """Return the bytes that are free when it is removed: others may have links to its files."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                found = os.lstat(f"{place}/{name}")
                total += found.st_blocks * 512 if found.st_nlink == 1 else 0
    return total


def clean_caches(home: str, uses: Uses, *, look: bool) -> Iterator[Row]:
    """Remove downloads; not uv's where environments are links into them."""
    links = any("UV_LINK_MODE" in line and "symlink" in line for line in lines_of(f"{home}/env"))
    for name in CACHES:
        folder = f"{home}/cache/{name}"
        if os.path.islink(folder) or not names_in(folder):
            continue
        size = size_of(folder)
        became = "used" if uses.any or (links and name == "uv") else "safe"
        if became == "safe" and not look:
            # Out of sight in one step: what is half removed would be taken for whole.
            aside = f"{home}/cache/.gone-{os.getpid()}-{name.replace('/', '-')}"
            os.rename(folder, aside)
            shutil.rmtree(aside, ignore_errors=True)
            became = "removed"
        yield "cache", name, size, became, {}


def disposable(home: str, key: str, *, look: bool) -> Iterator[Row]:
    """Remove results of one repository, or of all (""), and downloads; with `look` none."""
    uses = Uses(home)
    yield from clean_results(key, uses, look=look)
    yield from clean_caches(home, uses, look=look)
