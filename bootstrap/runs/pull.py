"""`pull`: copy a run's results to this machine, once or as they become complete."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import NotSafeError, ProfileError, UsageError, cant_write
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import exchange
from bootstrap.link.handle import BoxOptions
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import build_query
from bootstrap.protocol.results import BoxFile, BoxResults
from bootstrap.protocol.run import Run, as_it_ended
from bootstrap.protocol.transfer import Transfer
from bootstrap.repo.names import shown
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.lease import report_safe_results
from bootstrap.runs.pull_place import PullPlace
from bootstrap.runs.pull_result import Pulled
from bootstrap.runs.push import ShownProgress
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import size
from bootstrap.transfer.landing import Landing
from bootstrap.transfer.manifest import Manifest, RunOrigin
from bootstrap.transfer.names import MANIFEST, why_refused
from bootstrap.transfer.pulled import PulledFile, PulledRecord
from bootstrap.transfer.puller import NOTHING, Puller, PullRound
from bootstrap.transfer.receipt import receipt_file, write_receipt
from bootstrap.ui.screen import Screen

_LOOK_S = 1.0
"""Seconds between two looks at the box."""
_AT_ONCE = 256 * 10**6
"""Bytes that are taken between two looks while the run is live."""
_IDLE_LOOKS = 4
"""Looks without a new file, after which files that are constantly written to are given up."""
_SETTLED = frozenset({"held", "checkpoint"})
"""Reasons for an incomplete file that a short wait does not change."""
_ANSWER_S = 60.0
_LONGEST = 400


@dataclass(frozen=True)
class PullWish:
    """What to pull, and where to."""

    most: int
    """The most bytes that the results may have."""
    run: str | None = None
    to: Path | None = None
    watch: bool = False


def pull_results(options: BoxOptions, screen: Screen, wish: PullWish) -> None:
    """Copy a run's results to this machine, and show what was copied.

    Raises UsageError if the run has none or was never started; NotSafeError if not all of
    them are here and verified, or they are more than is allowed; BusyError, UnreachableError.
    """
    with connect(options, screen) as connection:
        pulled = pull_run(options, screen, wish, connection, _started_run(connection, wish))
    screen.result(pulled.as_dict(), "\n".join(pulled.lines()))
    pulled.check()


def pull_run(
    options: BoxOptions, screen: Screen, wish: PullWish, connection: BoxConnection, run: Run
) -> Pulled:
    """Copy the results of a run that was started. Raises as `pull_results`."""
    place = PullPlace.of(options.place, wish.to, connection.box.known.name, run)
    try:
        with (
            place.landing(run.name) as landing,
            PulledRecord(place.record(connection.box.known.folder, run)) as record,
        ):
            return _Pull(options, connection, run, landing, record, screen, wish).pull()
    except OSError as error:
        raise cant_write(place.path, error) from error


def _started_run(connection: BoxConnection, wish: PullWish) -> Run:
    run = connection.runs(wish.run)[0]
    for part in (run.repo_key, run.name):
        if why := why_refused(part):  # a box may call a run `..`
            raise NotSafeError(f"the box's run {part} {why}.", where=connection.link.label)
    if run.state == "waiting" or (run.state == "queued" and not wish.watch):
        raise UsageError(f"{run.name} {run.outcome()}.", where=connection.link.label)
    return run


class _Pull:
    """One call of `pull`."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        options: BoxOptions,
        connection: BoxConnection,
        run: Run,
        landing: Landing,
        record: PulledRecord,
        screen: Screen,
        wish: PullWish,
    ) -> None:
        self._began = time.monotonic()
        self._options, self._connection, self._run = options, connection, run
        self._landing, self._record, self._screen, self._wish = landing, record, screen, wish
        self._landed: dict[str, str] = {}
        self._live = run.goes_on
        self._progress = ShownProgress(screen, "pull")
        self._puller = Puller(
            landing,
            record,
            most=wish.most,
            tell=self._progress,
            landed=self._note,
        )
        self._source: BoxResults | None = None
        self._warned: set[str] = set()
        self._idle = 0
        """Consecutive looks that brought no complete file."""

    def _note(self, file: BoxFile, place: str) -> None:
        self._landed[file.path] = place
        if self._wish.watch:
            beside = "" if place == file.path else f", as {shown(place)}"
            self._screen.say(f"{shown(file.path)}  {size(file.size)}{beside}")

    def pull(self) -> Pulled:
        """Take all results, and return what was taken."""
        with self._progress:
            manifest = self._take_all()
        return Pulled(
            manifest,
            self._landing.place,
            self._landed,
            self._puller.received,
            time.monotonic() - self._began,
            self._receipt(manifest),
        )

    def _take_all(self) -> Manifest:
        """Look and take until everything is here, or the rest will not become complete."""
        if self._wish.watch and self._live:
            self._screen.say(f"watching {self._run.name}: each complete file; stop with Ctrl-C")
        manifest: Manifest | None = None
        for done in self._rounds():
            self._idle = 0 if done.landed else self._idle + 1
            watches = self._wish.watch and self._live and not self._puller.stopped
            is_over = not watches and self._is_over(done)
            if done.landed or is_over or manifest is None:
                manifest = self._manifest(done)
                self._land_manifest(manifest)
            if is_over:
                break
            if watches:
                self._warn(done)
            if not done.landed:
                time.sleep(_LOOK_S)
        assert manifest is not None  # noqa: S101 - the rounds only end by `break`
        return manifest

    def _is_over(self, done: PullRound) -> bool:
        if self._puller.stopped or not done.waits or self._idle >= _IDLE_LOOKS:
            return True
        may_come = [why for path, why in done.missing.items() if done.may_come(path)]
        return self._idle > 0 and all(why in _SETTLED for why in may_come)

    def _warn(self, done: PullRound) -> None:
        """Warn, once each, of files that waiting will not bring."""
        for path, why in done.reasons().items():
            if not done.may_come(path) and path not in self._warned:
                self._warned.add(path)
                self._screen.warn(f"{path}: {why}")

    def _rounds(self) -> Iterator[PullRound]:
        """Yield a round per look, across lost links. Raises as `ReconnectingLink.reconnect`."""
        connection, backoff = self._connection, Backoff(cancel=self._connection.link.cancel)
        run, tree = self._run, connection.box_state.repo_dir
        fallback = results_of_profile(self._options)
        while True:
            try:
                with Transfer(connection.link.wire, connection.workdir) as transfer:
                    self._idle = 0  # no file was watched over this link yet
                    label, name = connection.link.label, f"{run.repo_key}/{run.name}"
                    self._source = BoxResults(transfer, label, name, tree, fallback)
                    while True:
                        self._live = self._live and goes_on(
                            connection.link.wire, connection.workdir, run
                        )
                        at_once = _AT_ONCE if self._wish.watch and self._live else None
                        done = self._puller.round(self._source, live=self._live, at_once=at_once)
                        if not self._source.paths:
                            raise _no_results(label, run)
                        yield done
            except LinkLost as lost:
                backoff.lost(lost, news=self._puller.received)
                connection.link.reconnect(lost)

    def _manifest(self, done: PullRound) -> Manifest:
        run, source = self._run, self._source
        assert source is not None  # noqa: S101 - the round is from this source
        files = {path: one for path, one in self._record.files.items() if self._is_here(one)}
        files.pop(MANIFEST, None)
        origin = RunOrigin(
            box=self._connection.box.known.name,
            repository=run.repo_key,
            run=run.name,
            commit=run.commit,
            snapshot=run.snapshot,
            command=run.typed,
            profile=source.profile,
        )
        on_box = frozenset(path for path in files if path in done.look.files)
        missing = done.reasons()
        lost = done.look.files.keys() - files.keys() - done.missing.keys()
        missing.update({shown(path): "was changed here after the pull" for path in sorted(lost)})
        left = {shown(path): why for path, why in done.look.left.items() if why in NOTHING}
        links = [shown(path) for path in done.look.links]
        return Manifest(origin, source.paths, files, on_box, links, left, missing, self._live)

    def _is_here(self, one: PulledFile) -> bool:
        return self._landing.look(one.place) == one.home

    def _land_manifest(self, manifest: Manifest) -> None:
        """Raises OSError, except for a full disk, which is reported with the missing files."""
        record, text = self._record, manifest.text().encode()
        known = record.files.get(MANIFEST)
        if known and known.sha256 == hashlib.sha256(text).hexdigest() and self._is_here(known):
            return
        partial = self._landing.partial(MANIFEST, (), len(text))
        try:
            partial.restart()
            partial.write(text)
            partial.finish(time.time_ns())
            digest = partial.sha256
            place = self._landing.land(
                MANIFEST,
                partial,
                lambda at: record.ours(MANIFEST, at),
                lambda at: record.will_replace(MANIFEST, digest, at),
            )
            home = self._landing.look(place)
            if home is not None:
                record.add(MANIFEST, PulledFile((), digest, place, home))
        except OSError:
            if not self._puller.stopped:
                raise
        finally:
            partial.close()

    def _receipt(self, manifest: Manifest) -> Path | None:
        """Write the receipt if all results are here; synced first, so they survive a crash."""
        if manifest.missing or manifest.live:
            return None
        run, folder = self._run, self._connection.box.known.folder
        file = receipt_file(folder, run.repo_key, run.name)
        if self._landed:
            os.sync()
        write_receipt(file, manifest, self._landing.place)
        report_safe_results(self._connection, run, manifest)
        return file


def goes_on(wire: Wire, workdir: str, run: Run) -> bool:
    """Whether the run is live now, or waits for its turn. Raises LinkLost, NoAnswer."""
    query = build_query("run_end", workdir=workdir, repo_key=run.repo_key, name=run.name)
    answer = exchange(wire, query, timeout=_ANSWER_S)
    now = as_it_ended(run, sanitize(answer[:_LONGEST]).partition("\t")[0])
    if now is None:
        raise NoAnswer("its answers make no sense.", where=wire.label)
    return now.goes_on


def results_of_profile(options: BoxOptions) -> list[str]:
    """Return the results that the local profile names, for a run whose box recorded none.

    Empty if the profile has errors: they must not stop a pull of other runs' results.
    """
    from bootstrap.consent import load_profile

    try:
        loaded = load_profile(options, kinds=())  # uses nothing that needs consent
    except ProfileError:
        return []
    return list(loaded.profile.train.results) if loaded.profile.train else []


def _no_results(label: str, run: Run) -> UsageError:
    return UsageError(
        f"{run.name} has no results: its profile names none.",
        where=label,
        hint="Name them, as in train: {results: [out/]}",
    )
