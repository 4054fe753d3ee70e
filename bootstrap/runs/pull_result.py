"""What a pull brought of a run: its files, what is missing and why, how to let go of that."""

import glob
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bootstrap.boxes.at_home import RunAtHome
from bootstrap.boxes.run import Run, called
from bootstrap.errors import BoxstrapError, NotSafeError, UsageError
from bootstrap.repo.names import shown
from bootstrap.sizes import file_count, first_of, size, transferred
from bootstrap.transfer.manifest import Manifest
from bootstrap.transfer.puller import NOTHING
from bootstrap.value import Document, dataclass, field

_MOST_NAMED = 20
_MOST_OPTIONS = 5


@dataclass
class Pulled(Document):
    """The result of a pull."""

    KEYS = (
        "**manifest.origin, place, live=manifest.live, files, landed, received, seconds:3, "
        "missing=manifest.missing, left_out=manifest.left_out, links, "
        "without=manifest.without, receipt"
    )

    manifest: Manifest
    place: Path
    landed: Mapping[str, str] = field(default_factory=dict)
    """Pulled files: path on the box to path below the local folder."""
    received: int = 0
    seconds: float = 0.0
    receipt: Path | None = None

    @property
    def files(self) -> int:
        """How many files the run's results have."""
        return len(self.manifest.files)

    @property
    def links(self) -> dict[str, str]:
        """The links among them, and to which of the others each leads."""
        return {shown(path): shown(one.to) for path, one in self.manifest.files.items() if one.to}

    def lines(self) -> list[str]:
        count, had = len(self.landed), len(self.manifest.proven()) - len(self.landed)
        came = f"{file_count(count)}, {transferred(self.received, self.seconds)}"
        files = self.manifest.files.items()
        whole = sum(one.home.size for path, one in files if path in self.landed and not one.to)
        if (before := whole - self.received) > 0:  # of a pull that was cut short
            came += f", {size(before)} came before"
        words = [came] if count else []
        words += [f"{file_count(had)} here already"] if had > 0 else []
        name = called(self.manifest.origin.run)
        rows = [f"{path} {NOTHING.get(why, why)}" for path, why in self.manifest.left_out.items()]
        rows = first_of(rows, _MOST_NAMED)
        if go := self.manifest.without:
            rows.insert(0, f"let go, by --without: {let_go_words(go)}")
        beside = (shown(place) for path, place in self.landed.items() if path != place)
        rows = [*(f"beside another file: {place}" for place in beside), *rows, f"in {self.place}"]
        nothing = "nothing came" if self.manifest.missing else "nothing to pull"
        alive = "; it is still running" if self.manifest.live else ""
        head = f"{name}: {'; '.join(words) or nothing}{alive}"
        return [head, *(f"  {row}" for row in rows)]

    def check(self) -> None:
        """Raise NotSafeError with the missing files, if there are any."""
        missing = self.manifest.missing
        if not missing:
            return
        not_here = "was not pulled" if len(missing) == 1 else "were not pulled"
        head = f"{file_count(len(missing))} of {self.manifest.origin.run} {not_here}:"
        rows = first_of([f"{path}: {why}" for path, why in missing.items()], _MOST_NAMED)
        still = (
            "The run is still running: --watch pulls files as they become complete. "
            if self.manifest.live
            else ""
        )
        never = self.manifest.never
        again = "Run the same command again to go on." if len(never) < len(missing) else ""
        hint = f"{still}Everything else is here. {again}".strip()
        if never:
            hint += (
                f"\nNo other pull brings {file_count(len(never))} of these, unless that is changed "
                f"on the box. {LET_GO}: {self.let_go_command()}"
            )
        raise NotSafeError("\n  ".join([head, *rows]), where=self.manifest.origin.box, hint=hint)

    def let_go_command(self) -> str:
        """Return the command that lets go of what no other pull brings; "" if it may all come."""
        manifest = self.manifest
        if not manifest.never:
            return ""
        # What was let go of before is said again: the new list takes its place.
        names = [*manifest.without, *map(glob.escape, manifest.never)][:_MOST_OPTIONS]
        options = " ".join(f"--without {_quoted(name)}" for name in names)
        more = " …" if len(manifest.without) + len(manifest.never) > _MOST_OPTIONS else ""
        origin = manifest.origin
        return f"boxstrap pull --host {origin.box} --run {origin.run} {options}{more}"


LET_GO = "To let go of them, for down and the lease too"


def let_go_words(patterns: Sequence[str]) -> str:
    """Return what the user lets go of, as it is shown."""
    return ", ".join(map(shown, first_of(patterns, _MOST_NAMED)))


_MOST_WORDS = 2
"""Words of a name that is shown as it is."""


def _quoted(name: str) -> str:
    """Return a name as a word for a shell, in characters that are safe to show.

    A box chose it, and it stands in what is said to be done next: it must not read as a sentence.
    """
    if shown(name) == name and len(name.split()) <= _MOST_WORDS:
        return shlex.quote(name)
    return f"$'{''.join(map(_escaped, name))}'"


def _escaped(one: str) -> str:
    if shown(one) == one and one not in "'\\ ":
        return one
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(one))


@dataclass(frozen=True)
class RecordAtHome(Document):
    """A run's log and record at home; empty if they could not be brought."""

    KEYS = "place?=of.place, log?=of.log_bytes, dropped?=of.dropped"

    of: RunAtHome | None


@dataclass(frozen=True)
class BroughtRun(Document):
    """What a pull brought of one run."""

    KEYS = "**pulled, run=run.name, files, record"

    run: Run
    pulled: Pulled | None
    """None if it has no results."""
    kept: RunAtHome | None
    failed: BoxstrapError | None
    """Why its log and record did not come."""

    @property
    def files(self) -> int:
        """How many files of results there are."""
        return self.pulled.files if self.pulled else self.kept.result_files if self.kept else 0

    @property
    def record(self) -> RecordAtHome:
        """Its log and record at home."""
        return RecordAtHome(self.kept)

    def lines(self) -> list[str]:
        lines = self.pulled.lines() if self.pulled else [no_results("", self.run).what]
        return [*lines, *(self.kept.lines() if self.kept else [])]

    def check(self) -> None:
        """Raise the error if not all of it is here."""
        try:
            if self.pulled:
                self.pulled.check()
        except NotSafeError as error:
            if self.failed:
                error.what += f"\n{self.failed.what}"
            raise
        if self.failed:
            raise self.failed


def lines_of_all(brought: Sequence[BroughtRun]) -> Iterator[str]:
    """Yield a line for each run, with what there is to say of it, and one for where they are."""
    for one in brought:
        head, *more = one.pulled.lines()[:-1] if one.pulled else [no_results("", one.run).what]
        record = one.kept.lines() if one.kept else []
        yield "; ".join([head.rstrip("."), *(line.strip().partition(" in ")[0] for line in record)])
        yield from more
    folders = {(one.run.name, Path(one.kept.place).parent) for one in brought if one.kept}
    folders |= {(one.run.name, one.pulled.place) for one in brought if one.pulled}
    for place in sorted({place.parent if place.name == run else place for run, place in folders}):
        yield f"  in {place}"


class NoResultsError(UsageError):
    """The run has no results: its profile names none, or another node has them."""


def no_results(label: str, run: Run) -> NoResultsError:
    if run.node and run.node.rank:
        return NoResultsError(
            f"{run.name} has no results here: those of {run.node.called(0)} are its results.",
            where=label,
            hint="To have those of every node from the next run on: train: {results_of: all}",
        )
    return NoResultsError(
        f"{run.name} has no results: its profile names none.",
        where=label,
        hint="Name them, as in train: {results: [out/]}",
    )
