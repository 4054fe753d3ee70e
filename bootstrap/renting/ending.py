"""End a known box: destroy it, put its record aside, and report what it cost."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from bootstrap.errors import BoxstrapError, NotSafeError, UsageError, cant_write
from bootstrap.link.ended import retire
from bootstrap.link.record import KnownBox, all_boxes, save
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedBox
from bootstrap.renting import rental
from bootstrap.renting.destruction import destroy
from bootstrap.renting.torn_down import TeardownResult
from bootstrap.renting.unsafe import Unsafe
from bootstrap.sshconfig.alias import drop_alias
from bootstrap.text.sanitize import sanitize
from bootstrap.ui.reporter import Reporter
from bootstrap.ui.screen import Screen


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


def end(
    account: CloudAccount,
    rented: RentedBox,
    known: KnownBox,
    screen: Screen,
    lost: Sequence[Unsafe],
) -> TeardownResult:
    """Destroy the box, and keep a record of what it was and cost.

    Raises UnreachableError if it is unknown whether the box is gone; NotSafeError if its id now
    belongs to another rental.
    """
    if rental.is_another(rented):
        raise NotSafeError(
            f"its account has given {rented.host} to another rental: {sanitize(rented.name)}.",
            where=known.name,
            hint=f"Nothing was destroyed. To forget this one: boxstrap boxes --forget {known.name}",
        )
    for one in lost:
        screen.warn(f"thrown away: {one}")
    now = time.time()
    with suppress(OSError, UsageError):  # tell later commands that this box is to be destroyed
        rental.note_leaving(rented.host, now)
        if has_record(known):
            known = dataclasses.replace(known, ended=now)
            save(known, is_new=False)
    destroy(account, rented.id, screen.say)
    done = TeardownResult(known.name, rented.host, lost=lost)
    finish(account, rented, known, screen, done)
    return done


def finish(
    account: CloudAccount,
    rented: RentedBox | None,
    known: KnownBox,
    screen: Screen,
    done: TeardownResult,
) -> None:
    """Put the record of a box that is gone aside, and set in `done` what it cost and left."""
    now = time.time()
    done.destroyed, done.was_gone = True, rented is None
    _set_cost(done, rented, known, now)
    try:
        done.left = account.leftovers()
    except BoxstrapError as error:
        screen.warn(f"could not check what else your account pays for: {error.what}")
    try:
        if has_record(known):
            retire(dataclasses.replace(known, ended=now, spent=done.spent or 0.0))
        rental.note_end(done.host, now)
    except OSError as error:
        screen.warn(f"its record is not put aside: {cant_write(known.folder, error).what}")
    drop_alias(screen)


def put_aside(over: rental.Rental, reporter: Reporter) -> None:
    """Put the records of a gone rental aside: host key and ssh entry could match another box."""
    for known in all_boxes():
        if known.host_text == over.host:
            with suppress(OSError, UsageError):
                retire(dataclasses.replace(known, ended=over.ended, spent=over.spent))
            drop_alias(reporter)


def _set_cost(done: TeardownResult, rented: RentedBox | None, known: KnownBox, now: float) -> None:
    """Set the cost: since the rental, by our record, else since its last start by its account."""
    ours = rental.of_host(done.host)
    price = rented.price if rented and rented.price is not None else known.price
    since = rented.since if rented and rented.since is not None else known.costs_since
    if ours is not None:
        price, since, done.spent_since = ours.price, ours.asked, "it was rented"
    if price and not done.was_gone:
        done.spent = round(price * max(0.0, now - since) / 3600, 4)


def has_record(known: KnownBox) -> bool:
    """Whether this machine has a record of the box."""
    return known.folder.is_dir()
