"""A run goes on on another box, from its last whole results: `up --resume`, `guard --resume`, and
`run --resume` with a box that never had the run.

Its box was taken away, stopped or given back. Its results come from where pulls put them on this
machine, or from its bucket; the new box gets them before it starts the profile's `train.resume`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bootstrap.boxes.at_home import RunAtHome, all_kept, last_met, note_seen, order, seen_on
from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxstrapError, BusyError, NoSuchRunError, NotSafeError, UsageError
from bootstrap.link.record import KnownBox, all_boxes, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.profile.consent import load_profile
from bootstrap.profile.detect_provider import FALLBACK
from bootstrap.profile.load import LoadedProfile
from bootstrap.profile.schema import Train
from bootstrap.providers.offer import Offer, RentedState
from bootstrap.renting import rental
from bootstrap.renting.guard import read_count
from bootstrap.renting.last_results import (
    LastResults,
    bucket_manifest,
    bucket_of,
    find_last_results,
)
from bootstrap.renting.ownership import account_of, rented_host
from bootstrap.renting.rental import Rental
from bootstrap.renting.teardown import teardown_lock
from bootstrap.renting.up import UpOptions, rent_and
from bootstrap.repo.local import known_place
from bootstrap.runs.known_runs import list_runs
from bootstrap.sanitize import sanitize
from bootstrap.setup.new_run import Show, StartedRun, start_run
from bootstrap.setup.request import RunOptions, SetupRequest
from bootstrap.setup.sequence import run_setup
from bootstrap.sizes import dollars
from bootstrap.ui.screen import Screen
from bootstrap.value import Document

_OVER = (RentedState.STOPPED, RentedState.GONE)


class EarlierRun(NamedTuple):
    """A run of a box that is gone."""

    box: str
    run: str


@dataclass(frozen=True)
class ResumedElsewhere(Document):
    """A run that goes on on another box."""

    KEYS = "**started, resumes, results_from=came_from, spent_before=spent:4"

    before: RunAtHome
    started: StartedRun
    spent: float  # dollars for the boxes before
    came_from: str  # where its results were
    still_costs: str  # the name of the box before, if it is stopped and its disk still costs

    @property
    def resumes(self) -> EarlierRun:
        return EarlierRun(self.before.box, self.before.run.name)

    def text(self) -> str:
        there = f"{self.before.run.name} of {self.before.box}"
        cost = f" {dollars(self.spent)} were spent on it before." if self.spent else ""
        run = self.started.run
        lines = [f"{there} goes on as {run.name} of {self.started.box}, by {run.typed}.{cost}"]
        if self.still_costs:
            lines.append(
                f"{self.still_costs} is stopped, and its disk still costs: boxstrap down --host "
                f"{self.still_costs}"
            )
        return "\n".join(lines)


def resume_elsewhere(
    request: UpOptions, name: str, screen: Screen, confirm: Callable[[Offer], None], show: Show
) -> tuple[Rental, ResumedElsewhere]:
    """Rent a box and let the newest run of that name of this repository go on there.

    Called again it takes the box that was rented, and starts nothing twice. Raises UsageError,
    NotSafeError if it can't go on from where it was, and as `rent_and` and `start_run`.
    """
    with _made_ready(request.setup, name, screen, show) as ready:
        used = (one for one in all_boxes() if one.resumes != ready.before.id and seen_on(one))
        in_use = frozenset({ready.before.host, *(one.host_text for one in used)})
        wish = dataclasses.replace(request, setup=ready.setup, instead_of=in_use)
        rented, started = rent_and(ready.go_on, wish, screen, confirm)
        return rented, ready.ended(started)


def resume_on(setup: SetupRequest, name: str, screen: Screen, show: Show) -> ResumedElsewhere:
    """Let the newest run of that name of this repository go on on the box of `setup`. Called again
    it starts nothing twice. Raises as `resume_elsewhere`, BusyError."""
    with _made_ready(setup, name, screen, show) as ready:
        return ready.ended(ready.go_on(ready.setup))


@contextlib.contextmanager
def _made_ready(
    setup: SetupRequest, name: str, screen: Screen, show: Show
) -> Iterator[_Resumption]:
    """Find the run, its files, its results and its money. Raises as `resume_elsewhere`."""
    loaded = load_profile(setup)
    before = find_before(setup, name)
    known = _box_of(before)
    still_costs = _check_is_over(before, known)
    train = loaded.profile.train
    if train is None or not train.resume:
        raise UsageError(
            "the profile has no command by which a run goes on.",
            where="train.resume",
            hint="As in: resume: python train.py --resume",
        )
    spent = spent_on(before, known)
    setup = _of_its_files(setup, loaded, before, known)
    setup = dataclasses.replace(
        setup,
        sets=(*setup.sets, *_money_left(loaded, spent)),
        run=RunOptions(
            train.resume,
            before.run.session,
            before.run.gpus,
            id=hashlib.sha256(f"elsewhere {before.id}".encode()).hexdigest()[:16],
        ),
    )
    with tempfile.TemporaryDirectory() as scratch:
        results = _last_results(before, known, train, Path(scratch), screen)
        screen.note("results", results.came_from)
        yield _Resumption(before, setup, results, spent, still_costs, screen, show)


def resume_interrupted(
    screen: Screen, max_price: float | None, confirm: Callable[[Offer], None], show: Show
) -> None:
    """Let the newest run of each spot box that was taken away go on elsewhere, once. Raises the
    first error of those that could not, after all were tried."""
    done, lines = list[ResumedElsewhere](), list[str]()
    errors = list[BoxstrapError]()
    for box in all_boxes():
        if not box.lease or not rented_host(box):
            continue
        try:
            with teardown_lock(box) as is_ours:
                found = _taken_away(box, screen) if is_ours else None
                if found is None:
                    continue
                setup, before = found
                wish = UpOptions(setup, max_price=max_price)
                name = f"{before.box}/{before.run.name}"
                done.append(resume_elsewhere(wish, name, screen, confirm, show)[1])
                lines.append(done[-1].text())
        except BoxstrapError as error:
            lines.append(f"{box.name}: its run does not go on elsewhere: {error.what}")
            errors.append(error)
    screen.result({"resumed": done}, "\n".join(lines))
    if errors:
        raise errors[0]


def _taken_away(box: KnownBox, screen: Screen) -> tuple[SetupRequest, RunAtHome] | None:
    """Return the newest run of a box that was taken away while it was alive, and a request for its
    repository; None if there is none, or nobody allowed to spend dollars on it."""
    account, box_id = account_of(box.host_text)
    rented = account.box(box_id)
    if rented is not None and rented.state not in _OVER:
        with contextlib.suppress(BoxstrapError), BoxLogin.open(BoxOptions(host=box.name), screen):
            pass  # this notes its runs, which a later look may need
        return None
    before = max(seen_on(box), key=order, default=None)
    if before is None or not (before.run.goes_on or before.run.interruption):
        return None
    if any(one.resumes == before.id for one in [*all_boxes(), *ended_boxes()]):
        return None
    ours = (known_place(each.key, each.root) for each in box.repositories if each.used)
    place = next(filter(None, ours), None)
    if place is None:
        return None
    setup = SetupRequest(repo=place, identity=box.route.identity or None)
    profile = load_profile(setup).profile
    lease, train = profile.lease, profile.train
    if not profile.rent.spot or train is None:
        return None
    if lease is None or lease.dollars is None:
        raise UsageError(
            "nothing is rented without a limit.",
            where="lease.dollars",
            hint="Say what all boxes of a run may cost: lease: {dollars: 20}",
        )
    return (setup, before) if _was_alive(before, train) else None


def _was_alive(before: RunAtHome, train: Train) -> bool:
    """Whether it was interrupted, or cut off while it was alive: its bucket says so. A box that is
    stopped may also have ended its lease, or its run have finished since it was asked."""
    if before.run.interruption:
        return True
    address = bucket_of(before, train)
    if not address:
        return False
    listed, _ = bucket_manifest(address)
    return listed.live or listed.ended.startswith("interrupted ")


def find_before(setup: SetupRequest, name: str) -> RunAtHome:
    """Return the newest run of this name, `RUN` or `BOX/RUN`. Raises UsageError if none or several
    are meant, NotSafeError if it finished.

    A box orders its own runs alone: of several boxes' the one counts that went on as the others.
    """
    found = [one.kept for one in list_runs(setup.place, None, every=False)]
    chosen = [one for one in found if name in (one.run.name, f"{one.box}/{one.run.name}")]
    if not chosen:
        raise NoSuchRunError(
            f"no run {name} of this repository is known here.", hint="Those that are: boxstrap runs"
        )
    went_on = {known.resumes for one in chosen if (known := _box_of(one))}
    chosen = [one for one in chosen if one.id not in went_on] or chosen
    if len({(one.box, one.created) for one in chosen}) > 1:
        listed = "".join(f"\n  --resume {one.box}/{one.run.name}" for one in chosen)
        raise UsageError(
            f"which run? Several boxes have one of this name:{listed}", hint="Name one of them."
        )
    run = chosen[0].run
    if run.state == "finished" and not run.failed and not run.stopped:
        raise NotSafeError(
            f"{run.name} of {chosen[0].box} can't go on: it finished, there is nothing to resume.",
            hint="A new run: boxstrap run",
        )
    return chosen[0]


def _last_results(
    before: RunAtHome, known: KnownBox | None, train: Train, scratch: Path, screen: Screen
) -> LastResults:
    """Return the last whole results of a run, else of the one that went on as it: its box may have
    gone before it made some. Raises NotSafeError."""
    try:
        return find_last_results(before, known, train, scratch, screen)
    except NotSafeError:
        earlier = next((one for one in all_kept() if known and one.id == known.resumes), None)
        if earlier is None:
            raise
        return _last_results(earlier, _box_of(earlier), train, scratch, screen)


def _box_of(before: RunAtHome) -> KnownBox | None:
    boxes = [*all_boxes(), *ended_boxes()]
    its = (one for one in boxes if (one.name, one.created) == (before.box, before.created))
    return next(its, None)


def _check_is_over(before: RunAtHome, known: KnownBox | None) -> str:
    """Return the name of its box if that is stopped. Raises UsageError if the run may be alive."""
    seen, is_on = None, known is not None and not known.ended
    if known and is_on and rented_host(known):
        account, box_id = account_of(known.host_text)
        seen = account.box(box_id)
        if seen is not None and (seen.state is RentedState.GONE or rental.is_another(seen)):
            seen = None
        is_on = seen is not None and seen.state not in _OVER
    if is_on and before.run.goes_on:
        raise UsageError(
            f"{before.run.name} of {before.box} may still be alive: as far as known here, nobody "
            "has ended its box.",
            where=before.box,
            hint=f"See: boxstrap status --host {before.box}; to end it: boxstrap stop --host "
            f"{before.box}; if that box is gone: boxstrap boxes --forget {before.box}",
        )
    return known.name if known and seen and seen.state is RentedState.STOPPED else ""


def spent_on(before: RunAtHome, known: KnownBox | None) -> float:
    """Return what its box cost, as far as this machine knows, and those before that one."""
    if known is None:
        return 0.0
    ours = rental.of_host(known.host_text)
    until = min(time.time(), max(last_met(known), before.seen, float(before.run.over or 0)))
    own = ours.spent or ours.price * max(0.0, until - ours.asked) / 3600 if ours else 0.0
    return known.before + max(known.spent, own, read_count(known).spent)


def _of_its_files(
    setup: SetupRequest, loaded: LoadedProfile, before: RunAtHome, known: KnownBox | None
) -> SetupRequest:
    """Return the request for the files that the run had. Raises NotSafeError if they are gone.

    Which ones these were is what its box says: a commit that was never sent there from here could
    be any, as one that nobody but the user has seen.
    """
    from bootstrap.setup.payload import build_payload

    run = before.run
    repository = known and known.of(before.key or before.repository)
    if repository and run.commit in repository.sent and not run.with_changes:
        sets = (*setup.sets, f"git.ref={run.commit}")
        return dataclasses.replace(setup, sets=sets, committed_only=True)
    source = build_payload(loaded.for_provider(FALLBACK), setup, local=False).source
    if source.snapshot != (run.snapshot or run.commit):
        with_them = "changes to " if run.with_changes else ""
        raise NotSafeError(
            f"{run.name} ran with {with_them}{sanitize(run.commit)[:12]}, says {before.box}: that "
            "is not what stands in this folder, and no commit alone that was sent there from here.",
            where=str(setup.place),
            hint="Restore it (git checkout) and run the same command again; or begin a run of the "
            "files that are here, and send it what it needs: boxstrap up, boxstrap push",
        )
    return setup


def _money_left(loaded: LoadedProfile, spent: float) -> Sequence[str]:
    """Return the dollars of the lease that are left, as a setting. Raises NotSafeError."""
    lease = loaded.profile.lease
    if lease is None or lease.dollars is None:
        return ()
    left = lease.dollars - spent
    if left < 0.01:
        raise NotSafeError(
            f"of the {dollars(lease.dollars)} of its lease nothing is left: {dollars(spent)} were "
            "spent on the boxes before.",
            where="lease.dollars",
            hint="To allow more in all: --set lease.dollars=AMOUNT",
        )
    return (f"lease.dollars={left:.2f}",)


@dataclass(frozen=True)
class _Resumption:
    """A run that is about to go on on another box."""

    before: RunAtHome
    setup: SetupRequest  # for the other box: with the files, the money that is left, and the run
    results: LastResults
    spent: float
    still_costs: str
    screen: Screen
    show: Show

    def go_on(self, there: SetupRequest) -> StartedRun:
        """Set the box up, send the results, and start the run; once, however often it is called."""
        only = dataclasses.replace(there, run=None, sets=(*there.sets, "train=null"))
        try:
            run_setup(only, self.screen)
        except BusyError:
            with BoxLogin.open(there, self.screen) as box:
                if box.known.resumes != self.before.id:
                    raise
            return start_run(there, self.screen, self.show)  # it was started: it is asked by its id
        with BoxLogin.open(there, self.screen) as box:
            box.save(dataclasses.replace(box.known, before=self.spent))
            if box.known.resumes != self.before.id:
                self.results.send(box)
                box.save(dataclasses.replace(box.known, resumes=self.before.id))
        return start_run(there, self.screen, self.show)

    def ended(self, started: StartedRun) -> ResumedElsewhere:
        """Return what is said of it once it goes on."""
        note_seen(started.login.known, [started.run], self.screen.redact)
        came_from = self.results.came_from
        return ResumedElsewhere(self.before, started, self.spent, came_from, self.still_costs)
