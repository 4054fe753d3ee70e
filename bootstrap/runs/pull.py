"""`pull`: copy a run's results to this machine, once or as they become complete."""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bootstrap.boxes.at_home import RunAtHome, find_kept, results_place
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.receipt import fuller_place, receipt_file, write_receipt
from bootstrap.boxes.run import Run, as_it_ended, called
from bootstrap.boxes.trees import ask_content, find_at_risk, risk_in_words
from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    BusyError,
    NoSuchRunError,
    NotSafeError,
    ProfileError,
    UsageError,
    write_error,
)
from bootstrap.link.cancel import AskedBeside
from bootstrap.link.exchange import AnswerStream
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.onbox.results.complete_files import absent_parts
from bootstrap.onbox.results.run_results import is_meant
from bootstrap.repo.names import shown
from bootstrap.runs.bring_home import Ahead, as_it_is_now, ask_ahead, bring_home, note_results
from bootstrap.runs.known_runs import over_at_home
from bootstrap.runs.pull_result import BroughtRun, NoResultsError, Pulled, lines_of_all, no_results
from bootstrap.runs.upkeep import report_safe_results
from bootstrap.sanitize import sanitize
from bootstrap.sizes import first_of, size
from bootstrap.transfer.destination import MANIFEST, Destination, why_refused
from bootstrap.transfer.frames import BoxFile, BoxResults, Transfer
from bootstrap.transfer.manifest import Manifest, PulledFile, PulledRecord, RunOrigin
from bootstrap.transfer.puller import NOTHING, Puller, PullRound
from bootstrap.transfer.push import ShownProgress
from bootstrap.ui.screen import Screen
from bootstrap.value import dataclass

_LOOK_S = 1.0
"""Seconds between two looks at the box."""
_LOG_S, _LOG_AFTER_FILES_S = 60.0, 10.0
"""Seconds until a watched run's log is brought again, also after new files."""
_AT_ONCE = 256 * 10**6
"""Bytes that are taken between two looks while the run is live."""
_IDLE_LOOKS = 4
"""Looks without a new file, after which files that are constantly written to are given up."""
_SETTLED = frozenset({"held", "checkpoint"})
"""Reasons for an incomplete file that a short wait does not change."""
_SYNC_EVERY = 5000
"""Files that land, after which the disk begins to take them: less is left for it at the end."""
_ANSWER_S = 60.0
_LONGEST = 400


@dataclass(frozen=True)
class PullOptions:
    """What to pull, and where to."""

    most: int
    """The most bytes that the results may have."""
    run: str | None = None
    to: Path | None = None
    watch: bool = False
    without: tuple[str, ...] | None = None
    """Results that the user lets go of, from now on; None: as before."""
    also: tuple[str, ...] = ()
    """Paths in the run's tree that are results of it too, from now on."""


def pull_results(options: BoxOptions, screen: Screen, wish: PullOptions) -> None:
    """Copy a run's results to this machine, and show what was copied.

    Its log and record come with them. Raises UsageError if the run was never started;
    NotSafeError if not all of it is here and verified, or more than is allowed; BusyError,
    UnreachableError.
    """
    with BoxLogin.open(options, screen) as box:
        asked = list[AnswerStream]()
        run = _meant(box, wish.run, may_begin=wish.watch)
        box.warn_of_unredacted()
        brought = _bring(box, screen, wish, run, lambda: asked.append(ask_content(box)))
        _say_at_risk(box, screen, *asked)
        every = [] if wish.run else box.runs(None)
        others = [one.name for one in every if one != brought.run and _is_only_there(box, one)]
    screen.result(brought, "\n".join(brought.lines()))
    if others:
        names = ", ".join(first_of(others, 5))
        screen.say(f"not pulled yet: {names}; all of them: boxstrap pull --all --host {box.name}")
    brought.check()


def say_at_home(
    options: BoxOptions, screen: Screen, wish: PullOptions, error: BoxstrapError
) -> None:
    """Say that nothing is to be pulled of a run whose box is gone, or can't be reached, as all of
    it is here. Raises `error` if that is not so."""
    one = over_at_home(options, wish.run, error, screen)
    kept, run = one.kept, one.kept.run
    if one.results not in ("home", "none") or wish.to or wish.also or wish.without:
        raise error
    where = [f"  in {kept.result_place}"] if kept.result_files else []
    head = f"{called(run.name)} of {kept.box}: nothing to pull: it {run.outcome()}, and is at home"
    screen.result(BroughtRun(run, None, kept, None), "\n".join([head, *where, *kept.lines()]))


def pull_several(
    options: BoxOptions, screen: Screen, wish: PullOptions, names: Sequence[str]
) -> None:
    """Copy the results of these runs, or of all of this repository, each into its own folder.

    Raises as `pull_results`, after all of them were tried.
    """
    with BoxLogin.open(options, screen) as box:
        every = list[Run]()
        with contextlib.suppress(NoSuchRunError):  # the next box may have some
            every = [] if names else box.runs(None)
        meant = [one for one in every if one.has_begun and not _why_unnamed(one)]
        meant += [_meant(box, name) for name in names]
        box.warn_of_unredacted()
        brought = [_bring(box, screen, wish, run) for run in meant]
        _say_at_risk(box, screen)
    screen.result({"runs": brought}, "\n".join(lines_of_all(brought)) or "no run has begun here")
    refused = list[BoxstrapError]()
    for one in brought:
        try:
            one.check()
        except BoxstrapError as error:
            refused.append(error)
    if refused:
        first = refused[0]
        what = "\n".join(error.what for error in refused)
        hints = dict.fromkeys(line for error in refused for line in error.hint.splitlines())
        raise type(first)(what, where=first.where, hint="\n".join(hints))


def _say_at_risk(box: BoxLogin, screen: Screen, asked: AnswerStream | None = None) -> None:
    if lines := risk_in_words(box.name, find_at_risk(box, box.own, asked)):
        screen.warn("\n".join(lines))


def _bring(
    box: BoxLogin,
    screen: Screen,
    wish: PullOptions,
    run: Run,
    beside: Callable[[], None] = lambda: None,
) -> BroughtRun:
    """Copy the results of one run, then its log and record. `beside`: see `pull_run`."""
    pulled: Pulled | None = None
    failed: BoxstrapError | None = None
    kept: RunAtHome | None = None
    ahead: AskedBeside[Ahead] | None = None
    before = find_kept(box.known, run)
    more = run.log_bytes - (before.log_end if before else 0)
    box.ask(lambda asked: asked.expect(more))

    def looking() -> None:
        nonlocal ahead
        ahead = ahead or ask_ahead(box, run, wish.most)

    def bring(results: Manifest | None = None) -> None:
        nonlocal kept
        now = as_it_is_now(box, run) if run.goes_on else run
        kept = bring_home(box, now, wish.most, wish.to, ahead, results)

    def noted(results: Manifest) -> None:
        beside()
        bring(results)

    with contextlib.suppress(NoResultsError):
        pulled = pull_run(box, screen, wish, run, looking, noted)
    try:
        if kept is None:
            bring()
    except (NotSafeError, BusyError) as error:
        failed = error
    return BroughtRun(run, pulled, kept, failed)


def pull_run(  # noqa: PLR0913, PLR0917
    box: BoxLogin,
    screen: Screen,
    wish: PullOptions,
    run: Run,
    looking: Callable[[], None] = lambda: None,
    beside: Callable[[Manifest], None] = lambda _: None,
) -> Pulled:
    """Copy the results of a run that was started. `looking` is called when the box is to look at
    them; `beside` when all that comes is here and noted, while it goes to the disk.

    Raises as `pull_results`; NoResultsError if it has none.
    """
    place = results_place(box.known, run, box.own, box.options.place, wish.to)
    try:
        with (
            place.landing(run.name) as landing,
            PulledRecord(place.record(box.known.folder, run)) as record,
        ):
            pull = _Pull(box, run, landing, record, screen, wish, looking, beside)
            return pull.pull()
    except OSError as error:
        named = str(error.filename or "")  # one that is not relative to a folder of the results
        raise write_error(named if named.startswith("/") else place.path, error) from error


def _meant(box: BoxLogin, name: str | None, *, may_begin: bool = False) -> Run:
    run = box.begun_run(name)
    if why := _why_unnamed(run):
        raise NotSafeError(f"the box's run {why}.", where=box.label)
    if not run.has_begun and not (may_begin and run.goes_on):
        raise UsageError(f"{run.name} {run.outcome()}.", where=box.label)
    return run


def _is_only_there(box: BoxLogin, run: Run) -> bool:
    """Whether a run's results, if it has any, are not or not all here."""
    kept = find_kept(box.known, run)
    if kept is None or kept.results == "partly":
        return run.has_begun
    return run.has_begun and not (kept.results or kept.is_here())


def _why_unnamed(run: Run) -> str:
    """Say why nothing is named as the run is: a box may call one `..`; "" if it may."""
    refused = ((part, why_refused(part)) for part in (run.repo_key, run.name))
    return next((f"{part} {why}" for part, why in refused if why), "")


class _LoggedInError(Exception):
    """Much will come: it is looked at once more, over a login of its own."""


class _Pull:
    """One call of `pull`."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        box: BoxLogin,
        run: Run,
        landing: Destination,
        record: PulledRecord,
        screen: Screen,
        wish: PullOptions,
        looking: Callable[[], None],
        beside: Callable[[Manifest], None],
    ) -> None:
        self._began, self._looking, self._beside = time.monotonic(), looking, beside
        self._box, self._run = box, run
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
            announce=self._expect,
        )
        self._source: BoxResults | None = None
        self._warned: set[str] = set()
        self._meant: frozenset[str] = frozenset()
        """What the first look left and it waits for: a run that writes on and on ends no pull."""
        self._idle = 0
        """Consecutive looks that brought none of them."""
        self._syncing: threading.Thread | None = None
        """Brings what came to the disk, last when all of it is here."""
        self._brought = float("-inf")
        """When a watched run's log was brought last."""

    def _expect(self, size: int) -> None:
        if self._box.expect(size):
            raise _LoggedInError

    def _note(self, file: BoxFile, place: str) -> None:
        self._landed[file.path] = place
        if len(self._landed) % _SYNC_EVERY == 0:
            self._begin_sync()
        if self._wish.watch:
            beside = "" if place == file.path else f", as {shown(place)}"
            what = f"-> {shown(file.to)}" if file.to else size(file.size)
            self._screen.say(f"{shown(file.path)}  {what}{beside}")

    def _begin_sync(self) -> None:
        self._syncing = threading.Thread(target=os.sync, name="sync", daemon=True)
        self._syncing.start()

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
            watches = self._wish.watch and self._live and not self._puller.stopped
            if (is_over := not watches and self._is_over(done)) and self._landed:
                self._begin_sync()
            if done.landed or is_over or manifest is None:
                manifest = self._manifest(done)
                self._land_manifest(manifest)
                if watches:
                    note_results(self._box, self._run, manifest, self._landing.place)
            if is_over:
                for one in done.look.unmet if self._wish.without else ():
                    unmet = f"--without {shown(one)}: no result of {self._run.name} has that name"
                    self._screen.warn(unmet)
                break
            if watches:
                self._warn(done)
                self._bring_log(at_once=bool(done.landed))
            if not done.landed:
                time.sleep(_LOOK_S)
        assert manifest is not None  # noqa: S101 - the rounds only end by `break`
        return manifest

    def _bring_log(self, *, at_once: bool) -> None:
        """Bring the log and record of a live run now and then: its box may be gone any moment.

        What goes wrong with that is said at the end, when they are brought once more.
        """
        since = time.monotonic() - self._brought
        if since < (_LOG_AFTER_FILES_S if at_once else _LOG_S):
            return
        with contextlib.suppress(NotSafeError, BusyError, BoxLacksError, LinkLost, NoAnswer):
            now = as_it_is_now(self._box, self._run)
            if now.state == "running":
                bring_home(self._box, now, self._wish.most, self._wish.to)
        self._brought = time.monotonic()

    def _is_over(self, done: PullRound) -> bool:
        self._meant = self._meant or frozenset(done.missing)
        self._idle = 0 if done.landed & self._meant else self._idle + 1
        if self._puller.stopped or self._idle >= _IDLE_LOOKS:
            return True
        may_come = {done.missing[path] for path in self._meant if done.may_come(path)}
        return not may_come or (self._idle > 0 and may_come <= _SETTLED)

    def _warn(self, done: PullRound) -> None:
        """Warn, once each, of files that waiting will not bring."""
        for path, why in done.reasons().items():
            if not done.may_come(path) and path not in self._warned:
                self._warned.add(path)
                self._screen.warn(f"{path}: {why}")

    def _rounds(self) -> Iterator[PullRound]:
        """Yield a round per look, across lost links. Raises as `ReconnectingLink.reconnect`."""
        box, backoff = self._box, Backoff(cancel=self._box.cancel)
        run, tree = self._run, box.state.repo_dir
        while True:
            try:
                with Transfer(box.wire, box.workdir) as transfer:
                    fallback = results_of_profile(box.options)  # while the program starts there
                    self._idle = 0  # no file was watched over this link yet
                    label, name = box.label, run.path
                    without = self._wish.without
                    self._source = BoxResults(
                        transfer, label, name, tree, fallback, without=without, also=self._wish.also
                    )
                    self._source.reads_all = not self._record.files
                    self._looking()
                    while True:
                        self._live = self._live and goes_on(box, run)
                        at_once = _AT_ONCE if self._wish.watch and self._live else None
                        done = self._puller.round(self._source, live=self._live, at_once=at_once)
                        if not self._source.paths:
                            raise no_results(label, run)
                        if without is not None and done.look.without != [*without]:
                            raise NotSafeError(
                                "the box could not note what you let go of.",
                                where=label,
                                hint="Its disk may be full: boxstrap clean",
                            )
                        yield done
            except _LoggedInError:
                pass
            except LinkLost as lost:
                backoff.lost(lost, news=self._puller.received)
                box.link.reconnect(lost)

    def _manifest(self, done: PullRound) -> Manifest:
        run, source = self._run, self._source
        assert source is not None  # noqa: S101 - the round is from this source
        record, here, without = sorted(self._record.files.items()), done.here(), done.look.without
        files = {path: one for path, one in record if path in here or self._is_here(one)}
        files.pop(MANIFEST, None)
        if without:
            files = {p: one for p, one in files.items() if not any(is_meant(w, p) for w in without)}
        for path, was in done.look.lost.items():  # an earlier state of it may be here
            if path in files and files[path].state[2:4] != was.state[2:4]:
                del files[path]
        origin = RunOrigin(
            box=self._box.name,
            repository=run.repo_key,
            run=run.name,
            commit=run.commit,
            snapshot=run.snapshot,
            command=self._box.redactor.text(run.typed),
            profile=source.profile,
        )
        on_box = frozenset(path for path in files if path in done.look.files)
        missing = done.reasons()
        lost = done.look.files.keys() - files.keys() - done.missing.keys()
        missing.update({shown(path): "was changed here after the pull" for path in sorted(lost)})
        left = {shown(path): why for path, why in done.look.left.items() if why in NOTHING}
        if not self._live:
            made = done.look.files.keys() | done.look.lost.keys()
            for path, (there, of) in absent_parts(made).items():
                if not any(is_meant(one, path) for one in without):
                    left[shown(path)] = f"is no result of this run, which has {there} of {of} parts"
        if done.look.given_up:
            given_up = done.look.lost.keys() - files.keys()
            left.update({shown(path): "given-up" for path in sorted(given_up)})
        after = {path for path, one in done.look.files.items() if one.kind == "after"}
        return Manifest(
            origin,
            source.paths,
            files,
            on_box,
            made=(done.look.files.keys() | done.look.lost.keys()) & files.keys() - after,
            left_out=left,
            missing=missing,
            never=done.never(),
            without=without,
            live=self._live,
        )

    def _is_here(self, one: PulledFile) -> bool:
        return self._landing.look(one.place, one.to) == one.home

    def _land_manifest(self, manifest: Manifest) -> None:
        """Raises OSError, except for a full disk, which is reported with the missing files."""
        record, text = self._record, manifest.text().encode()
        known, digest = record.files.get(MANIFEST), hashlib.sha256(text).hexdigest()
        if known and known.sha256 == digest and self._is_here(known):
            return
        try:
            part = self._landing.whole(MANIFEST, text, digest, time.time_ns())
            place, home = self._landing.land(MANIFEST, part, record.ours, record.will_replace)
            if home is not None:
                record.add(MANIFEST, PulledFile((), digest, place, home))
            record.save()
        except OSError:
            if not self._puller.stopped:
                raise

    def _receipt(self, manifest: Manifest) -> Path | None:
        """Write the receipt, and return it if it has all; synced first, to survive a crash."""
        run, box, place = self._run, self._box, self._landing.place
        file, fuller = receipt_file(box.known.folder, run.repo_key, run.name), None
        is_part = bool(manifest.missing) or manifest.live
        if is_part and (fuller := fuller_place(file, manifest, place)):
            self._screen.warn(f"{run.name}: more of its results is at home in {fuller}")
        else:
            note_results(box, run, manifest, place)
        if fuller:
            self._sync(manifest)
            return None
        safe, home = manifest.safe_note(), manifest.home_note()
        write_receipt(file, manifest, place, lambda: self._sync(manifest))
        # What no pull brings is not there, or was changed: what is left of them is here.
        if not is_part or (not manifest.live and len(manifest.never) == len(manifest.missing)):
            report_safe_results(box, run, "" if is_part else safe, home)
        return None if is_part else file

    def _sync(self, manifest: Manifest) -> None:
        """Let what comes beside the results come, and wait until they are on the disk."""
        with contextlib.suppress(LinkLost, BoxstrapError):  # then at the end
            self._beside(manifest)
        if self._syncing:
            self._syncing.join()


def goes_on(box: BoxLogin, run: Run) -> bool:
    """Whether the run is live now, or waits for its turn. Raises LinkLost, NoAnswer."""
    answer = box.ask_word("end", timeout=_ANSWER_S, run=run.path)
    now = as_it_ended(run, sanitize(answer[:_LONGEST]).partition("\t")[0])
    if now is None:
        raise NoAnswer("its answers make no sense.", where=box.label)
    return now.goes_on


def results_of_profile(options: BoxOptions) -> list[str]:
    """Return the results that the local profile names, for a run whose box recorded none.

    Empty if the profile has errors: they must not stop a pull of other runs' results.
    """
    from bootstrap.profile.consent import load_profile

    try:
        loaded = load_profile(options, kinds=())  # uses nothing that needs consent
    except ProfileError:
        return []
    return list(loaded.profile.train.results) if loaded.profile.train else []
