"""`down`: fetch what a box has, then destroy it; nothing is lost without being named.

It is destroyed by its exact id, and over once its account no longer lists it. Its record is put
aside, with what it cost.
"""

import contextlib
import fcntl
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from bootstrap.boxes.alias import drop_alias
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import repository_names
from bootstrap.boxes.trees import read_content
from bootstrap.errors import BoxstrapError, NotSafeError, UnreachableError, UsageError, write_error
from bootstrap.link import shared
from bootstrap.link.prompt import Prompt
from bootstrap.link.record import KnownBox, all_boxes, read_box, retire, save_box
from bootstrap.link.registry import find_known, only_box
from bootstrap.link.target import BoxOptions, EachTime, Once, parse_host
from bootstrap.providers.api import RefusedKeyError, UndecidedError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Leftover, RentedBox, RentedState
from bootstrap.renting import cluster, rental
from bootstrap.renting.loss_check import (
    BoxResultsCheck,
    BoxTrees,
    Loss,
    find_ended_since,
    find_live_processes,
    find_unsafe_logs,
)
from bootstrap.renting.ownership import OwnBox, account_of, find_own, rented_host
from bootstrap.runs.pull_result import LET_GO
from bootstrap.runs.run_end import end_runs
from bootstrap.sanitize import sanitize
from bootstrap.sizes import dollars
from bootstrap.ui.screen import Reporter, Screen
from bootstrap.value import Document


@dataclass
class TeardownResult(Document):
    """The result of giving a box back."""

    KEYS = (
        "box=name, host or None, destroyed, was_gone, spent, discarded=lost, left, why_not?, "
        "console?"
    )

    name: str
    host: str = ""  # its name in its account, `provider:id`; "" if no account can be asked
    destroyed: bool = False
    was_gone: bool = False
    why_not: str | None = None  # why boxstrap did not destroy it: it keeps running
    console: str | None = None  # where it can be ended then
    is_rented: bool = True
    is_billed: bool = True
    spent: float | None = None  # dollars, if known
    spent_since: str = "its last start"
    lost: Sequence[Loss] = ()
    left: Sequence[Leftover] = ()  # other things than boxes that the account still pays for

    def text(self) -> str:
        about = f" ({self.host})" if self.host and self.host != self.name else ""
        cost = f"; about {dollars(self.spent)} since {self.spent_since}" if self.spent else ""
        if self.destroyed:
            gone = "was gone already" if self.was_gone else "destroyed, and no longer listed"
            lines = [f"{self.name}{about}: {gone}{cost}"]
        else:
            where = f"at {self.console}" if self.console else "where you rented it"
            lines = [
                f"{self.name}{about}: nothing on it would be lost, and it keeps running: "
                f"{self.why_not}"
            ]
            if self.is_rented:
                billing = "still billing" if self.is_billed else "if somebody bills you for it"
                lines += [f"{billing}: end it {where}"]
                lines += [f"Then, to forget it here: boxstrap boxes --forget {self.name}"]
        if self.lost:
            lost = "thrown away with it" if self.destroyed else "but for this"
            lines += [f"{lost}:", *(f"  {one}" for one in self.lost)]
        if self.left:
            lines += ["your account still has and pays for:"]
            lines += [f"  {one.kind} {one.name or one.id}{_price(one)}" for one in self.left]
        return "\n".join(lines)


def _price(left: Leftover) -> str:
    return f": {dollars(left.price)} an hour" if left.price is not None else ": price unknown"


PATIENCE_S = 150.0  # how long a box may still be listed after it was destroyed, in seconds
_LOOKS_S = (1.0, 2.0, 4.0, 8.0)  # seconds between checks whether it is gone; the last one repeats
_AGAIN_S = 45.0
"""Seconds until the request is repeated once, which is safe: the id can't mean another box."""


def destroy(
    account: CloudAccount, box_id: str, say: Callable[[str], None], *, of_cluster: str = ""
) -> None:
    """Destroy the box with exactly this id, or `of_cluster`, which it is of, until the account no
    longer lists it. Raises UnreachableError if it may still be there, or that is refused."""
    began, asked, looked = time.monotonic(), 0, 0
    trouble: BoxstrapError | None = None
    while (since := time.monotonic() - began) < PATIENCE_S:
        try:
            if not asked or (asked == 1 and since > _AGAIN_S):
                asked += 1
                if of_cluster:
                    account.destroy_cluster(of_cluster)
                else:
                    account.destroy(box_id)
        except UndecidedError as error:
            trouble = error
            say(f"{account.name}:{box_id}: {error.what} Looking what the account has.")
        try:
            if account.is_gone(box_id) and not _lists(account, of_cluster):
                return
        except RefusedKeyError:
            raise
        except UnreachableError as error:
            trouble = error
        time.sleep(_LOOKS_S[min(looked, len(_LOOKS_S) - 1)])
        looked += 1
    why = f" ({trouble.what})" if trouble else ""
    raise UnreachableError(
        f"it is unknown whether {account.name}:{box_id} is destroyed{why}",
        where=account.name,
        hint="It may still cost money. Run this again: it destroys exactly this box and no "
        "other; or end it on the provider's page.",
    )


def _lists(account: CloudAccount, of_cluster: str) -> bool:
    return bool(of_cluster) and any(
        each.cluster == of_cluster and each.state is not RentedState.GONE
        for each in account.boxes()
    )


@contextlib.contextmanager
def teardown_lock(box: KnownBox) -> Iterator[bool]:
    """Yield whether this process holds the lock for fetching a box's contents and ending it.

    Without it, results being fetched look unsafe to others. Waiting could outlast cron's interval.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context((box.folder / "end.lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:  # the folder is not writable, so nobody else can hold the lock either
            yield True
        else:
            yield True


def end_rental(
    own: OwnBox, known: KnownBox, screen: Screen, lost: Sequence[Loss], once: Once | None = None
) -> TeardownResult:
    """Destroy the box, and keep a record of what it was and cost.

    Its whole cluster, if it is of one: once for all of its boxes that are ended with the same
    `once`. Raises UnreachableError if it is unknown whether the box is gone; NotSafeError if its id
    now belongs to another rental.
    """
    account, rented, once = own.account, own.box, once or EachTime()
    if rental.is_another(rented):
        raise NotSafeError(
            f"its account has given {rented.host} to another rental: {sanitize(rented.name)}.",
            where=known.name,
            hint=f"Nothing was destroyed. To forget this one: boxstrap boxes --forget {known.name}",
        )
    what = (account.name, rented.cluster or rented.id)
    now, agreed = time.time(), given_back(once).agreed
    others = once.get(
        ("others", *what), lambda: cluster.others_to_end(account, rented, now, agreed)
    )
    for one in lost:
        screen.warn(f"thrown away: {one}")
    with suppress(OSError, UsageError):  # tell later commands that this box is to be destroyed
        rental.note_leaving(rented.host, now)
        if has_record(known):
            known = replace(known, ended=now)
            save_box(known, is_new=False)
    once.get(what, partial(destroy, account, rented.id, screen.say, of_cluster=rented.cluster))
    done = TeardownResult(known.name, rented.host, lost=lost)
    finish_teardown(account, rented, known, screen, done)
    for each in others:
        if each.host not in agreed:  # no command is about it
            with suppress(OSError):
                rental.note_end(each.host, now)
    return done


def finish_teardown(
    account: CloudAccount,
    rented: RentedBox | None,
    known: KnownBox,
    screen: Screen,
    done: TeardownResult,
) -> None:
    """Put the record of a box that is gone aside, and set in `done` what it cost and left."""
    now = time.time()
    done.destroyed, done.was_gone = True, rented is None
    shared.close(known)
    # Since the rental, by our record, else since its last start, by its account.
    ours = rental.of_host(done.host)
    price = rented.price if rented and rented.price is not None else known.price
    since = rented.since if rented and rented.since is not None else known.costs_since
    if ours is not None:
        price, since, done.spent_since = ours.price, ours.asked, "it was rented"
    if price and not done.was_gone:
        done.spent = round(price * max(0.0, now - since) / 3600, 4)
    try:
        done.left = account.leftovers()
    except BoxstrapError as error:
        screen.warn(f"could not check what else your account pays for: {error.what}")
    try:
        if has_record(known):
            retire(replace(known, ended=now, spent=done.spent or 0.0))
        rental.note_end(done.host, now)
    except OSError as error:
        screen.warn(f"its record is not put aside: {write_error(known.folder, error).what}")
    drop_alias(screen)


def put_aside(over: rental.Rental, reporter: Reporter) -> None:
    """Put the records of a gone rental aside: host key and ssh entry could match another box."""
    for known in all_boxes():
        if known.host_text == over.host:
            shared.close(known)
            with suppress(OSError, UsageError):
                retire(replace(known, ended=over.ended, spent=over.spent))
            drop_alias(reporter)


def has_record(known: KnownBox) -> bool:
    return known.folder.is_dir()


@dataclass(frozen=True)
class TeardownOptions:
    most: int  # limit for a run's results in bytes
    discard: bool = False  # whether unsafe things may be lost
    stop_runs: bool = False
    only_look: bool = False
    """Whether to only report, without fetching, ending or destroying anything."""


def tear_down(options: BoxOptions, screen: Screen, wish: TeardownOptions) -> None:
    """Fetch what the box has, and destroy it; if no account here has the box, say so instead.

    Raises NotSafeError with a list if something would be lost; UnreachableError if it is unknown
    whether the box is gone; UsageError, HostKeyError.
    """
    with given_back(options.once).attended():
        _tear_down(options, screen, wish)


def given_back(once: Once) -> cluster.GivenBack:
    """Return what the boxes of one command share."""
    return once.get("given back", lambda: cluster.GivenBack(max(1, len(once.hosts))))


def _tear_down(options: BoxOptions, screen: Screen, wish: TeardownOptions) -> None:
    known = _known(options)
    if known and rented_host(known):
        account_of(known.host_text)  # check first that its key is here: nothing works without it
    try:
        box = BoxLogin.open(options, screen, shares=False)
    except BoxstrapError as error:
        _end_unseen(options, known, screen, wish, error)
        return
    # A guard stays away while this holds the lock; the user is not kept waiting for a guard.
    with box, teardown_lock(box.known):
        name = box.name
        own = _find_own(box)
        held = _held(own, options.once)
        if isinstance(own, OwnBox) and not wish.only_look:
            cluster.refuse_holding(own.box, held, options.once.hosts)
        screen.note("holds", name_repositories(box))
        unsafe = _refuse_unsafe(box, own, screen, wish)
        if wish.only_look:
            _say_safe(screen, name, own, unsafe, held)
            return
        if isinstance(own, OwnBox) and own.box.cluster:
            again = partial(_refuse_unsafe, box, own, screen, replace(wish, only_look=True))
            given_back(options.once).await_others(own.box, held, again)
    if isinstance(own, str):
        done = TeardownResult(name, why_not=own, console=box.known.console or None, lost=unsafe)
        done.is_rented, done.is_billed = not box.is_local, box.known.is_billed
        screen.result(done, done.text())
        return
    done = end_rental(own, box.known, screen, unsafe, options.once)
    screen.result(done, done.text())


def _find_own(box: BoxLogin) -> OwnBox | str:
    """As `find_own`; UsageError if another command has given it back meanwhile, or is doing so."""
    try:
        return find_own(box)
    except NotSafeError:
        now = read_box(box.known.folder) or box.known
        if box.is_local or (has_record(box.known) and now.ended == box.known.ended):
            raise
        what = "another command has given it back meanwhile, or is doing so."
        raise UsageError(what, where=box.name) from None


def _refuse_unsafe(
    box: BoxLogin, own: OwnBox | str, screen: Screen, wish: TeardownOptions
) -> list[Loss]:
    """Return what would be lost with the box, as the user agreed to. Raises NotSafeError if they
    didn't."""
    unsafe = secure(box, screen, wish)
    if isinstance(own, OwnBox) and _is_fresh(own.box.host):
        unsafe = [one for one in unsafe if one.kind != "unknown"]
    if unsafe and not wish.discard:
        screen.result({"box": box.name, "destroyed": False, "unsafe": unsafe})
        raise _refusal(box.name, unsafe, is_dry=wish.only_look)
    return unsafe


def _known(options: BoxOptions) -> KnownBox | None:
    if not options.host:
        return only_box(options.repository[0])
    target = parse_host(options.host)
    never_met = KnownBox(target.text, target.text) if target.is_rented else None
    return find_known(target) or never_met


def secure(box: BoxLogin, screen: Screen, wish: TeardownOptions) -> list[Loss]:
    """Fetch what can be fetched, if wished, and return what is still unsafe."""
    found = _secure(box, screen, wish)
    left = {folder for each in box.known.repositories for folder in each.left}
    for other in _elsewhere(box):
        if other.workdir in left:  # its runs have the names of later ones, whose place is at home
            unsafe = _secure(other, screen, replace(wish, only_look=True))
            found += [_in_left(other.workdir, one) for one in unsafe]
        else:
            found += _secure(other, screen, wish)
    return list(dict.fromkeys(found))


def _in_left(folder: str, loss: Loss) -> Loss:
    ways = (
        f"{folder} is not the working folder any more. Take what you need there by scp or rsync;\n"
        f"or go back to it: boxstrap setup --host NAME --set box.workdir={folder}"
    )
    return replace(loss, kind="left", where=f"{folder}: {loss.where}", let_go=ways)


def _elsewhere(box: BoxLogin) -> Iterator[BoxLogin]:
    """Yield the box for each other working folder that repositories were set up in."""
    folders = (one for each in box.known.repositories for one in (each.workdir, *each.left))
    for workdir in dict.fromkeys(folders):
        if workdir not in ("", box.workdir):
            other = box.at(workdir=workdir)
            _look_again(other)
            if other.state.runs or read_content(other).is_set_up:
                yield other


def name_repositories(box: BoxLogin) -> str:
    """Say whose work lies on the box: each repository, with its runs that are alive."""
    live = defaultdict[str, list[str]](list)
    for place in (box, *_elsewhere(box)):
        for tree in read_content(place).trees:
            live[tree.repo_key] += []
        for run in place.state.runs:
            live[run.repo_key] += [f"{run.name} {run.state}"] if run.goes_on else []
    names = repository_names(live)
    said = (names[key] + (f" ({', '.join(runs)})" if runs else "") for key, runs in live.items())
    return ", ".join(said) or "no repository's work"


def _secure(box: BoxLogin, screen: Screen, wish: TeardownOptions) -> list[Loss]:
    brings = not (wish.only_look or wish.discard)
    if brings:
        _end_runs(box, screen, wish)
    _look_again(box)
    before = box.state
    made = read_content(box)
    found = BoxResultsCheck(box, screen).find_unsafe(wish.most if brings else None)
    trees = BoxTrees(box, made, screen)
    stuck = trees.bring_home() if brings else []
    found += [*stuck, *trees.find_unsafe()]
    found += find_unsafe_logs(box, screen, wish.most if brings else None)
    _look_again(box)  # something may have started in the meantime
    now = box.state
    return [*find_live_processes(now), *find_ended_since(before, now), *found]


def _end_runs(box: BoxLogin, screen: Screen, wish: TeardownOptions) -> None:
    live = find_live_processes(box.state)
    living = [one for one in box.state.runs if one.goes_on or one.left]
    if not living:
        return
    question = "".join(f"  {one}\n" for one in live) + "End that?"
    if wish.stop_runs or Prompt(screen.say).confirm(question):
        end_runs(box, screen, living)


def _look_again(box: BoxLogin) -> None:
    last = box.known.last
    box.repo_key, box.repo_root = (box.own, "") if box.own else (last.key, last.root)
    box.refresh()


def _held(own: OwnBox | str, once: Once) -> list[RentedBox]:
    """Return the boxes that would be destroyed with it, and may hold work or are to go as well."""
    if isinstance(own, str):
        return []
    return cluster.holding(cluster.others_of(own.account, own.box), time.time(), once.hosts)


def _end_unseen(
    options: BoxOptions,
    known: KnownBox | None,
    screen: Screen,
    wish: TeardownOptions,
    error: BoxstrapError,
) -> None:
    """End a box that can't be logged in to: it is gone already, or is destroyed unseen if asked."""
    if known is None or not rented_host(known):
        raise error
    account, box_id = account_of(known.host_text)
    rented = account.box(box_id)
    if account.is_gone(box_id):
        if not has_record(known):
            raise error
        done = TeardownResult(known.name, known.host_text)
        if wish.only_look:
            done.destroyed = done.was_gone = True
        else:
            finish_teardown(account, None, known, screen, done)
        screen.result(done, done.text())
        return
    if rented is None or rented.id != box_id or not isinstance(error, UnreachableError):
        raise error
    # Destroying it was requested recently, when nothing was unsafe or that was given up, and nobody
    # logged in since; or `up` was giving it back, before it ever held work.
    ours = rental.of_host(known.host_text)
    is_unused = ours is not None and ours.is_leaving_unused and known.seen <= ours.ended
    was_let_go = known.seen < known.ended and time.time() - known.ended < rental.LEAVES_S
    is_leaving = was_let_go or is_unused
    if not (wish.discard or is_leaving) or wish.only_look:
        again = f"boxstrap down --host {known.name} --discard"
        error.hint += f"\nTo destroy it unseen, with all that is on it: {again}"
        raise error
    unseen = Loss("unseen", known.name, f"whatever is on it: nobody could look ({error.what})")
    if not has_record(known) and not is_unused:
        _confirm_unmet(rented, unseen, screen)
    own, lost = OwnBox(account, rented), [] if is_leaving else [unseen]
    held = _held(own, options.once)
    cluster.refuse_holding(rented, held, options.once.hosts)
    given_back(options.once).await_others(rented, held, lambda: None)
    done = end_rental(own, known, screen, lost, options.once)
    screen.result(done, done.text())


def _confirm_unmet(rented: RentedBox, unseen: Loss, screen: Screen) -> None:
    """Confirm that the user means a box that this machine never logged in to. They named it by its
    exact id, and gave `--discard`; on a terminal they are asked as well."""
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
    by_hand = any(
        each.script for one in all_boxes() if one.host_text == host for each in one.repositories
    )
    return ours is not None and not ours.ready and not by_hand


def _refusal(name: str, unsafe: Sequence[Loss], *, is_dry: bool) -> NotSafeError:
    listed = "".join(f"\n  {one}" for one in unsafe)
    runs = {one.where for one in unsafe if one.kind in ("results", "log")}
    hints = [line for one in unsafe for line in _hint(one, len(runs)).splitlines()]
    if is_dry and not {one.kind for one in unsafe}.isdisjoint(_BROUGHT):
        hints.insert(0, "To bring home what can be, and then look again: boxstrap down --host NAME")
    every = [*dict.fromkeys(hints), f"To let all of that go: boxstrap down --host {name} --discard"]
    what = "is on the box alone" if is_dry else "would be lost"
    return NotSafeError(
        f"it was not destroyed; as far as is known here, this {what}:{listed}",
        where=name,
        hint="\n".join(every).replace("NAME", name),
    )


def _hint(loss: Loss, runs: int) -> str:
    """Return what to do about it: there is nothing more to pull of what no pull brings. `runs`: of
    so many runs there are results or logs."""
    if loss.let_go and loss.kind in ("ignored", "left"):
        return loss.let_go
    if loss.let_go:
        return f"Nothing more can be pulled of {loss.where}. {LET_GO}: {loss.let_go}"
    hint = _HINTS.get(loss.kind, "")
    if "@" in loss.where and hint in (_BACK, _BRANCH):
        return _BESIDE + loss.where
    if runs > 1:
        return hint.replace(_PULL, "In their repository: boxstrap pull --host NAME --all")
    return hint.replace("RUN", loss.where.rpartition("/")[2])


_STOP = "To end what runs there: boxstrap down --host NAME --stop-runs"
_BACK = "In its repository: boxstrap sync --back --host NAME. Or take it by scp or rsync."
_BESIDE = (
    "Take what you need by scp or rsync; then, in its repository: boxstrap clean --host NAME "
    "--discard "
)
"""For a tree beside the main one: neither `sync --back` nor `exec` reaches it."""
_BRANCH = (
    "Make a branch of it there: boxstrap exec --host NAME -- git branch kept REF; then "
    "boxstrap down --host NAME"
)
_BROUGHT = ("results", "log", "edits")
"""Kinds of losses that a teardown brings home itself, as far as it can."""
_PULL_ALONE = "boxstrap pull --host NAME --run RUN"
_PULL = f"In its repository: {_PULL_ALONE}"
_HINTS = {
    **dict.fromkeys(("run", "queued", "processes"), _STOP),
    "setup": "To cancel the setup: boxstrap stop --setup --host NAME",
    "log": _PULL,
    "results": f"{_PULL}\nTo let go of a result: {_PULL_ALONE} --without PATH",
    "commits": _BRANCH,
    "ignored": "Take them by scp or rsync, then remove them; of runs pull brings train.results.",
    "repositories": "Push from there what is to stay, and remove its .git; or take it by rsync.",
    **dict.fromkeys(("edits", "files", "staged", "unread"), _BACK),
}


def _say_safe(
    screen: Screen, name: str, own: OwnBox | str, lost: Sequence[Loss], held: Sequence[RentedBox]
) -> None:
    what = f"not be destroyed: {own}" if isinstance(own, str) else f"be destroyed: {own.box.host}"
    if held:
        what += f", together with {', '.join(each.host for each in held)}"
    listed = "".join(f"\n  {one}" for one in lost)
    text = f"{name} would {what}" + (f"; this would be thrown away:{listed}" if lost else "")
    screen.result({"box": name, "destroyed": False, "unsafe": lost}, text)
