"""A run goes on on another box, from its last whole results: `up --resume`, `guard --resume`.

Its box was taken away, stopped or given back. Its results come from where pulls put them on this
machine, or from its bucket; the new box gets them before it starts the profile's `train.resume`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import posixpath
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from bootstrap.boxes.at_home import RunAtHome, note_seen, order, seen_on
from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import (
    BoxstrapError,
    BusyError,
    NotSafeError,
    UnreachableError,
    UsageError,
)
from bootstrap.link.record import KnownBox, all_boxes, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.profile.consent import load_profile
from bootstrap.profile.detect_provider import FALLBACK
from bootstrap.providers.offer import Offer, RentedState
from bootstrap.renting import rental
from bootstrap.renting.guard import read_count
from bootstrap.renting.ownership import account_of, rented_host
from bootstrap.renting.rental import Rental
from bootstrap.renting.teardown import teardown_lock
from bootstrap.renting.up import UpOptions, rent_and
from bootstrap.repo.local import known_folder
from bootstrap.runs.known_runs import list_runs
from bootstrap.setup.request import RunOptions, SetupRequest
from bootstrap.text.sizes import dollars, size
from bootstrap.transfer.destination import MANIFEST, why_refused
from bootstrap.transfer.push import file_count, push_folder
from bootstrap.ui.screen import Screen

if TYPE_CHECKING:
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.profile.schema import Train
    from bootstrap.sync.new_run import StartedRun
    from bootstrap.transfer.buckets import Bucket

_BUCKET_MANIFEST = "boxstrap-manifest.json"
_OVER = (RentedState.STOPPED, RentedState.GONE)
_ANSWER_S = 60.0
_PIECE = 1 << 20


@dataclass(frozen=True)
class ResumedElsewhere:
    """A run that goes on on another box."""

    before: RunAtHome
    rental: Rental
    started: StartedRun
    spent: float
    """Dollars for the boxes before."""
    came_from: str
    """Where its results were."""
    still_costs: str
    """The name of the box before, if it is stopped and its disk still costs."""

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            **self.started.as_dict(),
            "resumes": {"box": self.before.box, "run": self.before.run.name},
            "results_from": self.came_from,
            "spent_before": round(self.spent, 4),
        }

    def text(self) -> str:
        """Return it as text for the user."""
        there = f"{self.before.run.name} of {self.before.box}"
        cost = f" {dollars(self.spent)} were spent on it before." if self.spent else ""
        lines = [f"{there} goes on as {self.started.run.name} of {self.started.box}.{cost}"]
        if self.still_costs:
            lines.append(
                f"{self.still_costs} is stopped, and its disk still costs: boxstrap down --host "
                f"{self.still_costs}"
            )
        return "\n".join(lines)


def resume_elsewhere(
    request: UpOptions,
    name: str,
    screen: Screen,
    confirm: Callable[[Offer], None],
    show: Callable[[Sequence[str]], None],
) -> ResumedElsewhere:
    """Rent a box and let the newest run of that name of this repository go on there.

    Called again it takes the box that was rented, and starts nothing twice. Raises UsageError,
    NotSafeError if it can't go on from where it was, and as `rent_and` and `start_run`.
    """
    setup = request.setup
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
    setup = _of_its_files(setup, loaded, before)
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
        folder, came_from = _whole_results(before, train, Path(scratch), screen)
        screen.note("results", came_from)

        new = _NewBox(before, train.results, folder, spent, screen, show)
        wish = dataclasses.replace(request, setup=setup, instead_of=_boxes_in_use(before))
        rented, started = rent_and(new.go_on, wish, screen, confirm)
    note_seen(started.login.known, [started.run], screen.redact)
    return ResumedElsewhere(before, rented, started, spent, came_from, still_costs)


def resume_interrupted(
    screen: Screen,
    max_price: float | None,
    confirm: Callable[[Offer], None],
    show: Callable[[Sequence[str]], None],
) -> None:
    """Let the newest run of each spot box that was taken away go on elsewhere, once.

    Raises the first error of those that could not, after all were tried.
    """
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
                done.append(resume_elsewhere(wish, name, screen, confirm, show))
                lines.append(done[-1].text())
        except BoxstrapError as error:
            lines.append(f"{box.name}: its run does not go on elsewhere: {error.what}")
            errors.append(error)
    screen.result({"resumed": [one.as_dict() for one in done]}, "\n".join(lines))
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
    seen = sorted(seen_on(box), key=order, reverse=True)
    before = seen[0] if seen else None
    if before is None or not (before.run.goes_on or before.run.interruption):
        return None
    if any(one.resumes == before.id for one in [*all_boxes(), *ended_boxes()]):
        return None
    folder = next((f for f in (known_folder(r.key, r.root) for r in box.repositories) if f), None)
    if folder is None:
        return None
    place = folder.parent if folder.name == ".git" else folder
    identity = box.route.identity or None
    setup = SetupRequest(repo=place, identity=identity)
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
    address = _in_bucket(before, train)
    if not address:
        return False
    document, _ = _manifest(address)
    return bool(document.get("live")) or str(document.get("ended")).startswith("interrupted ")


def find_before(setup: SetupRequest, name: str) -> RunAtHome:
    """Return the newest run of this name, `RUN` or `BOX/RUN`. Raises UsageError."""
    found = [one.kept for one in list_runs(setup.place, None, every=False)]
    chosen = [one for one in found if name in (one.run.name, f"{one.box}/{one.run.name}")]
    if not chosen:
        raise UsageError(
            f"no run {name} of this repository is known here.", hint="Those that are: boxstrap runs"
        )
    run = chosen[0].run
    if run.state == "finished" and not run.failed and not run.stopped:
        raise UsageError(
            f"{run.name} of {chosen[0].box} finished: there is nothing to go on with.",
            hint="A new run: boxstrap run",
        )
    return chosen[0]


def _box_of(before: RunAtHome) -> KnownBox | None:
    boxes = [*all_boxes(), *ended_boxes()]
    its = (one for one in boxes if (one.name, one.created) == (before.box, before.created))
    return next(its, None)


def _boxes_in_use(before: RunAtHome) -> frozenset[str]:
    """Return its own box, and all that have runs other than the one that goes on."""
    used = (one for one in all_boxes() if one.resumes != before.id and seen_on(one))
    return frozenset({before.host, *(one.host_text for one in used)})


def _check_is_over(before: RunAtHome, known: KnownBox | None) -> str:
    """Return the name of its box if that is stopped. Raises UsageError if the run may be alive."""
    is_there = known is not None and not known.ended and bool(rented_host(known))
    seen = None
    if known and is_there:
        account, box_id = account_of(known.host_text)
        seen = account.box(box_id)
        if seen is not None and (seen.state is RentedState.GONE or rental.is_another(seen)):
            seen = None
    elif known and not known.ended and before.run.goes_on:
        raise _may_be_alive(before)
    if seen is not None and seen.state not in _OVER and before.run.goes_on:
        raise _may_be_alive(before)
    return known.name if known and seen and seen.state is RentedState.STOPPED else ""


def _may_be_alive(before: RunAtHome) -> UsageError:
    return UsageError(
        f"{before.run.name} of {before.box} may still be alive: its box is there.",
        where=before.box,
        hint=f"See: boxstrap status --host {before.box}; to end it: boxstrap stop --host "
        f"{before.box}",
    )


def spent_on(before: RunAtHome, known: KnownBox | None) -> float:
    """Return what its box cost, as far as this machine knows, and those before that one."""
    if known is None:
        return 0.0
    ours = rental.of_host(known.host_text)
    until = min(time.time(), max(known.seen, float(before.run.over or 0)))
    own = ours.spent or ours.price * max(0.0, until - ours.asked) / 3600 if ours else 0.0
    return known.before + max(known.spent, own, read_count(known).spent)


def _of_its_files(setup: SetupRequest, loaded: LoadedProfile, before: RunAtHome) -> SetupRequest:
    """Return the request for the files that the run had. Raises NotSafeError if they are gone."""
    from bootstrap.setup.payload import build_payload

    run = before.run
    if not run.with_changes:
        sets = (*setup.sets, f"git.ref={run.commit}")
        return dataclasses.replace(setup, sets=sets, committed_only=True)
    source = build_payload(loaded.for_provider(FALLBACK), setup, local=False).source
    if source.snapshot != run.snapshot:
        raise NotSafeError(
            f"{run.name} ran with changes to {run.commit[:12]} that are not those of this folder.",
            where=str(setup.place),
            hint="Restore them and run the same command again; or begin a run of the files that "
            "are here, and send it what it needs: boxstrap up, boxstrap push",
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
class _NewBox:
    """What a box that was rented for it does with the run."""

    before: RunAtHome
    results: Sequence[str]
    folder: Path
    """Where they are here."""
    spent: float
    screen: Screen
    show: Callable[[Sequence[str]], None]

    def go_on(self, there: SetupRequest) -> StartedRun:
        """Set the box up, send the results, and start the run; once, however often it is called."""
        from bootstrap.setup.sequence import run_setup
        from bootstrap.sync.new_run import start_run

        only = dataclasses.replace(there, run=None, sets=(*there.sets, "train=null"))
        try:
            run_setup(only, self.screen)
        except BusyError:  # it was started before: that is asked by its id
            return start_run(there, self.screen, self.show)
        with BoxLogin.open(there, self.screen) as box:
            paid = dataclasses.replace(box.known, before=self.spent, resumes=self.before.id)
            box.save(paid)
            if not box.state.runs:
                _send(box, self.folder, self.results)
        return start_run(there, self.screen, self.show)


def _send(box: BoxLogin, folder: Path, results: Sequence[str]) -> None:
    """Send the profile's results, and nothing else that came from a box: it may be code."""
    for path in (one.strip("/") for one in results):
        source, target = folder / path, posixpath.join(box.state.repo_dir, path)
        if source.is_symlink() or not source.exists():
            continue
        target = target if source.is_dir() else posixpath.dirname(target)
        push_folder(box.link, source, target, workdir=box.workdir).check(box.label)


def _whole_results(
    before: RunAtHome, train: Train, scratch: Path, screen: Screen
) -> tuple[Path, str]:
    """Return a folder with the results that are whole, and where they were; the bucket has them
    within seconds, so they are at least as new. Raises NotSafeError if there are none."""
    if address := _in_bucket(before, train):
        with contextlib.suppress(NotSafeError):
            return scratch, _fetch(address, train.results, scratch, screen)
    place = Path(before.result_place) if before.result_place else None
    if place and before.results in ("home", "partly") and (place / MANIFEST).is_file():
        return place, str(place)
    raise NotSafeError(
        f"no results of {before.run.name} are at home or in a bucket.",
        where=before.box,
        hint="From its beginning: boxstrap up. Next time: boxstrap pull --watch, or "
        "train.results_to",
    )


def _in_bucket(before: RunAtHome, train: Train) -> str:
    """Return the folder of the profile's bucket with its results; "" if there is none.

    A box that names another place is not believed: it would be read with the user's own key.
    """
    from bootstrap.transfer.buckets import Bucket

    if not train.results_to:
        return ""
    said = before.run.uploaded.address if before.run.uploaded else ""
    if posixpath.dirname(said) == train.results_to.rstrip("/"):
        return said
    # The name that `upload_results.py` gives it.
    began = time.strftime("%Y%m%d-%H%M%S", time.gmtime(before.run.started))
    wanted = f"{before.run.name}-{began}-"
    try:
        found = Bucket(f"{train.results_to.rstrip('/')}/").objects()
    except UsageError:
        return ""
    names = sorted({one.name.partition("/")[0] for one in found})
    mine = [name for name in names if name.startswith(wanted)]
    return f"{train.results_to.rstrip('/')}/{mine[-1]}" if mine else ""


def _fetch(address: str, results: Sequence[str], scratch: Path, screen: Screen) -> str:
    """Fetch what the manifest in the bucket lists, and return where it was.

    An upload replaces a file as a whole. One that is newer than the manifest was the last before
    the box was gone, and is taken with a warning. Raises NotSafeError, UnreachableError.
    """
    listed, bucket = _manifest(address)
    objects = {one.name: one for one in bucket.objects()}
    rows: list[dict[str, Any]] = [
        row for row in listed["files"] if row["path"] in objects and _is_result(row, results)
    ]
    addresses = bucket.sign([objects[row["path"]] for row in rows])
    for row, signed in zip(rows, addresses, strict=True):
        place = scratch / row["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with place.open("wb") as file:
            for piece in _pieces(signed):
                file.write(piece)
                digest.update(piece)
        if digest.hexdigest() != row["sha256"]:
            screen.warn(f"{row['path']} was replaced in the bucket after its manifest was written")
    bytes_ = sum(objects[row["path"]].size for row in rows)
    return f"{address} ({file_count(len(rows))}, {size(bytes_)})"


def _is_result(row: dict[str, Any], results: Sequence[str]) -> bool:
    path = str(row["path"])
    inside = any(f"{path}/".startswith(f"{one.strip('/')}/") for one in results)
    return inside and not why_refused(path)


def _manifest(address: str) -> tuple[dict[str, Any], Bucket]:
    """Return what the box wrote about the results there. Raises NotSafeError, UnreachableError."""
    from bootstrap.transfer.buckets import Bucket

    bucket = Bucket(f"{address}/")
    found = [one for one in bucket.objects() if one.name == _BUCKET_MANIFEST]
    if not found:
        raise NotSafeError("the bucket has no whole results of it yet.", where=address)
    try:
        document = json.loads(b"".join(_pieces(bucket.sign(found)[0])))
        if isinstance(document["files"], list):
            return document, bucket
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise NotSafeError("the manifest in the bucket is damaged.", where=address)


def _pieces(signed: str) -> Iterator[bytes]:
    try:
        with urlopen(signed, timeout=_ANSWER_S) as answer:  # noqa: S310 - signed by `Bucket`
            while piece := answer.read(_PIECE):
                yield piece
    except (OSError, HTTPException) as error:
        raise UnreachableError(
            f"a file can't be fetched from the bucket: {error}",
            where=signed.partition("?")[0],
            hint="Run the same command again.",
        ) from None
