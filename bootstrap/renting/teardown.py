"""`down`: fetch what a box has, then destroy it; nothing is lost without being named."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.errors import (
    BoxstrapError,
    NotSafeError,
    UnreachableError,
    UsageError,
)
from bootstrap.link.handle import BoxOptions
from bootstrap.link.prompt import Prompt
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.link.registry import find as find_known
from bootstrap.link.registry import lookup
from bootstrap.protocol.made_there import read_content
from bootstrap.protocol.probe import probe
from bootstrap.providers.rented import RentedBox
from bootstrap.renting import rental
from bootstrap.renting.destruction import is_gone
from bootstrap.renting.ending import end, finish, has_record, teardown_lock
from bootstrap.renting.ownership import OwnBox, account_of, find_own, rented_host
from bootstrap.renting.torn_down import TeardownResult
from bootstrap.renting.unsafe import BoxTrees, Unsafe, find_ended_since, find_live
from bootstrap.renting.unsafe_results import BoxResultsCheck
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.stop import end_runs
from bootstrap.text.sanitize import sanitize
from bootstrap.ui.screen import Screen


@dataclass(frozen=True)
class TeardownWish:
    """What the user allows."""

    most: int
    """Limit for a run's results in bytes."""
    discard: bool = False
    """Whether unsafe things may be lost."""
    stop_runs: bool = False
    only_look: bool = False
    """Whether to only report, without fetching, ending or destroying anything."""


def tear_down(options: BoxOptions, screen: Screen, wish: TeardownWish) -> None:
    """Fetch what the box has, and destroy it; if no account here has the box, say so instead.

    Raises NotSafeError with a list if something would be lost; UnreachableError if it is unknown
    whether the box is gone; UsageError, HostKeyError.
    """
    known = _known(options)
    if known and rented_host(known):
        account_of(known.host_text)  # check first that its key is here: nothing works without it
    try:
        connection = connect(options, screen)
    except BoxstrapError as error:
        _end_unseen(known, screen, wish, error)
        return
    # A guard stays away while this holds the lock; the user is not kept waiting for a guard.
    with connection, teardown_lock(connection.box.known):
        name = connection.box.known.name
        own = find_own(options, connection.box, connection.link.wire)
        unsafe = secure(options, connection, screen, wish)
        if isinstance(own, OwnBox) and _is_fresh(own.box.host):
            unsafe = [one for one in unsafe if one.kind != "unknown"]
        if unsafe and not wish.discard:
            screen.result({"box": name, "destroyed": False, "unsafe": _rows(unsafe)})
            raise _refusal(name, unsafe)
        if wish.only_look:
            _say_safe(screen, name, own, unsafe)
            return
    if isinstance(own, str):
        done = TeardownResult(name, why_not=own, console=connection.box.known.console, lost=unsafe)
        done.is_rented = not connection.box.is_local
        screen.result(done.as_dict(), done.text())
        return
    done = end(own.account, own.box, connection.box.known, screen, unsafe)
    screen.result(done.as_dict(), done.text())


def _known(options: BoxOptions) -> KnownBox | None:
    if not options.host:
        return None
    target, box = lookup(options.host)
    never_met = KnownBox(target.text, target.text) if target.is_rented else None
    return box or find_known(target) or never_met


def secure(
    options: BoxOptions, connection: BoxConnection, screen: Screen, wish: TeardownWish
) -> list[Unsafe]:
    """Fetch what can be fetched, if wished, and return what is still unsafe."""
    if not (wish.only_look or wish.discard):
        _end_runs(connection, screen, wish)
    brings = not (wish.only_look or wish.discard)
    _look_again(connection)
    before = connection.box_state
    made = read_content(connection.link.wire, workdir=connection.workdir)
    results = BoxResultsCheck(options, connection, made, screen)
    found = results.find_unsafe(wish.most if brings else None)
    trees = BoxTrees(options, connection, made, screen)
    stuck = trees.bring_home() if brings else []
    found += [*stuck, *trees.find_unsafe()]
    _look_again(connection)  # something may have started in the meantime
    now = connection.box_state
    return [*find_live(now), *find_ended_since(before, now), *found]


def _end_runs(connection: BoxConnection, screen: Screen, wish: TeardownWish) -> None:
    live = find_live(connection.box_state)
    living = [one for one in connection.box_state.runs if one.goes_on or one.left]
    if not living:
        return
    question = "".join(f"  {one}\n" for one in live) + "End that?"
    if wish.stop_runs or Prompt(screen.say).confirm(question):
        end_runs(connection, screen, living)


def _look_again(connection: BoxConnection) -> None:
    known = connection.box.known
    connection.box_state = probe(
        connection.link.wire,
        workdir=connection.workdir,
        repo_key=connection.own or known.repo_key,
        repo_root="" if connection.own else known.repo_root,
    )


def _end_unseen(
    known: KnownBox | None, screen: Screen, wish: TeardownWish, error: BoxstrapError
) -> None:
    """End a box that can't be logged in to: it is gone already, or is destroyed unseen if asked."""
    if known is None or not rented_host(known):
        raise error
    account, box_id = account_of(known.host_text)
    rented = account.box(box_id)
    if is_gone(account, box_id):
        if not has_record(known):
            raise error
        done = TeardownResult(known.name, known.host_text)
        if wish.only_look:
            done.destroyed = done.was_gone = True
            screen.result(done.as_dict(), done.text())
        else:
            finish(account, None, known, screen, done)
            screen.result(done.as_dict(), done.text())
        return
    if rented is None or rented.id != box_id or not isinstance(error, UnreachableError):
        raise error
    # Destroying it was requested recently, when nothing was unsafe, and nobody logged in since.
    is_leaving = known.seen < known.ended and time.time() - known.ended < rental.LEAVES_S
    if not (wish.discard or is_leaving) or wish.only_look:
        again = f"boxstrap down --host {known.name} --discard"
        error.hint += f"\nTo destroy it unseen, with all that is on it: {again}"
        raise error
    unseen = Unsafe("unseen", known.name, f"whatever is on it: nobody could look ({error.what})")
    if not has_record(known):
        _confirm_unmet(rented, unseen, screen)
    done = end(account, rented, known, screen, [] if is_leaving else [unseen])
    screen.result(done.as_dict(), done.text())


def _confirm_unmet(rented: RentedBox, unseen: Unsafe, screen: Screen) -> None:
    """Confirm that the user means a box that this machine never logged in to.

    They named it by its exact id, and gave `--discard`; on a terminal they are asked as well.
    """
    what = f"{rented.host} ({rented.name or 'without a name'}, {rented.gpu or 'GPU not told'})"
    screen.warn(
        f"{sanitize(what)}: this machine never logged in to it, so it is unknown who uses it"
    )
    prompt = Prompt(screen.say)
    if prompt.has_terminal() and not prompt.confirm(f"{sanitize(str(unseen))}. Destroy it?"):
        raise UsageError("nothing was destroyed.", where=rented.host)


def _is_fresh(host: str) -> bool:
    """Whether it was rented from here and no setup ever succeeded, so that it holds no work."""
    ours = rental.of_host(host)
    by_hand = any(one.script for one in all_boxes() if one.host_text == host)
    return ours is not None and not ours.ready and not by_hand


def _refusal(name: str, unsafe: Sequence[Unsafe]) -> NotSafeError:
    listed = "".join(f"\n  {one}" for one in unsafe)
    hints = [_HINTS[one.kind] for one in unsafe if one.kind in _HINTS]
    every = [*dict.fromkeys(hints), f"To let all of that go: boxstrap down --host {name} --discard"]
    return NotSafeError(
        f"it was not destroyed; this would be lost with it:{listed}",
        where=name,
        hint="\n".join(every).replace("NAME", name),
    )


_STOP = "To end what runs there: boxstrap down --host NAME --stop-runs"
_BACK = "In its repository: boxstrap sync --back --host NAME. Or take it by scp or rsync."
_BRANCH = (
    "Make a branch of it there: boxstrap exec --host NAME -- git branch kept REF; then "
    "boxstrap down --host NAME"
)
_HINTS = {
    **dict.fromkeys(("run", "queued", "processes"), _STOP),
    "setup": "To cancel the setup: boxstrap stop --setup --host NAME",
    "results": "In its repository: boxstrap pull --host NAME --run RUN",
    "commits": _BRANCH,
    "repositories": "Push from there what is to stay, and remove its .git; or take it by rsync.",
    **dict.fromkeys(("edits", "files", "staged", "unread"), _BACK),
}


def _say_safe(screen: Screen, name: str, own: OwnBox | str, lost: Sequence[Unsafe]) -> None:
    what = f"not be destroyed: {own}" if isinstance(own, str) else f"be destroyed: {own.box.host}"
    listed = "".join(f"\n  {one}" for one in lost)
    text = f"{name} would {what}" + (f"; this would be thrown away:{listed}" if lost else "")
    screen.result({"box": name, "destroyed": False, "unsafe": _rows(lost)}, text)


def _rows(unsafe: Sequence[Unsafe]) -> list[dict[str, str]]:
    return [one.as_dict() for one in unsafe]
