"""The end of a box that is known here: destroyed, its record put aside, and what it cost."""

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
from bootstrap.renting.torn_down import TornDown
from bootstrap.renting.unsafe import Unsafe
from bootstrap.sshconfig.alias import drop_alias
from bootstrap.text.sanitize import sanitize
from bootstrap.ui.reporter import Reporter
from bootstrap.ui.screen import Screen


@contextlib.contextmanager
def try_end_lock(box: KnownBox) -> Iterator[bool]:
    """Whether it is ours: nobody else brings home what the box has, and ends it, meanwhile.

    What one fetches another would take for unsafe, and that may take longer than cron waits.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context((box.folder / "end.lock").open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:  # nothing can be written here: nobody else can hold it either
            yield True
        else:
            yield True


def end(
    account: CloudAccount,
    rented: RentedBox,
    known: KnownBox,
    screen: Screen,
    lost: Sequence[Unsafe],
) -> TornDown:
    """Destroy it, and keep the record of what it was and cost.

    Raises UnreachableError where nobody knows whether it is gone; NotSafeError where the id is
    another's now.
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
    with suppress(OSError, UsageError):  # whoever comes next knows that this one is to go
        rental.note_leaving(rented.host, now)
        if was_met(known):
            known = dataclasses.replace(known, ended=now)
            save(known, is_new=False)
    destroy(account, rented.id, screen.say)
    done = TornDown(known.name, rented.host, lost=lost)
    finish(account, rented, known, screen, done)
    return done


def finish(
    account: CloudAccount,
    rented: RentedBox | None,
    known: KnownBox,
    screen: Screen,
    done: TornDown,
) -> None:
    """Of a box that is gone: put its record aside, and say in `done` what it cost and left."""
    now = time.time()
    done.destroyed, done.was_gone = True, rented is None
    _tell_cost(done, rented, known, now)
    try:
        done.left = account.leftovers()
    except BoxstrapError as error:
        screen.warn(f"what your account still has beside boxes could not be asked: {error.what}")
    try:
        if was_met(known):
            retire(dataclasses.replace(known, ended=now, spent=done.spent or 0.0))
        rental.note_end(done.host, now)
    except OSError as error:
        screen.warn(f"its record is not put aside: {cant_write(known.folder, error).what}")
    drop_alias(screen)


def put_aside(over: rental.Rental, reporter: Reporter) -> None:
    """The records of a rental that is gone: pin and entry would wait for another box."""
    for known in all_boxes():
        if known.host_text == over.host:
            with suppress(OSError, UsageError):
                retire(dataclasses.replace(known, ended=over.ended, spent=over.spent))
            drop_alias(reporter)


def _tell_cost(done: TornDown, rented: RentedBox | None, known: KnownBox, now: float) -> None:
    """By our own record from when it was asked for, else by its account since its last start."""
    ours = rental.of_host(done.host)
    price = rented.price if rented and rented.price is not None else known.price
    since = rented.since if rented and rented.since is not None else known.costs_since
    if ours is not None:
        price, since, done.spent_since = ours.price, ours.asked, "it was rented"
    if price and not done.was_gone:
        done.spent = round(price * max(0.0, now - since) / 3600, 4)


def was_met(known: KnownBox) -> bool:
    """Whether this machine has a record of it."""
    return known.folder.is_dir()
