"""Wait until a box that was just rented answers by SSH, or never will."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedBox, RentedState
from bootstrap.renting.clock import LOOK_S, RentingClock
from bootstrap.renting.rental import Rental, is_another
from bootstrap.text.sizes import dollars

SETTLES_S = 60.0
"""How long an account may take to list a box that it just rented out, in seconds."""


class NeverUpError(BoxstrapError):
    """A rented box can't be used."""


@dataclass(frozen=True)
class Arrival:
    """How to watch for a box's arrival; tests pass their own clock and answers."""

    clock: RentingClock
    answers: Callable[[RentedBox], bool]

    def wait(
        self, account: CloudAccount, box: Rental, longest_s: float, say: Callable[[str], None]
    ) -> RentedBox:
        """Wait until its SSH answers; return the box as its account lists it then.

        Raises NeverUpError if it won't answer, or costs more than was agreed to.
        """
        began, said = self.clock.now(), ""
        while True:
            now = self.clock.now()
            try:
                seen = account.box(box.box_id)
            except UnreachableError as error:
                seen, said = None, error.what
            else:
                if why := _why_never(seen, now - box.asked) or _too_dear(box, seen):
                    raise NeverUpError(why, where=box.host)
                said = seen.said if seen else ""
            if seen and seen.address and self.answers(seen):
                return seen
            if now - began >= longest_s:
                waited = f"it can't be reached after {(now - began) / 60:.0f} minutes"
                raise NeverUpError(f"{waited}{f' ({said})' if said else ''}", where=box.host)
            if now == began:
                longest = f"{longest_s / 60:.0f} minutes"
                say(f"waiting until {box.host} can be reached, {longest} at the most")
            self.clock.sleep(LOOK_S)


def _why_never(box: RentedBox | None, age_s: float) -> str:
    """Return why a box will not come up; "" if it may."""
    if box is None:
        return "its account no longer has it" if age_s > SETTLES_S else ""
    if is_another(box):
        return "its account gave that id to another rental"
    costs = ""
    if box.stopped_price is not None:
        costs = f", and costs {dollars(box.stopped_price)} an hour as it is"
    bad = {
        RentedState.BROKEN: "it is broken",
        RentedState.STOPPED: f"it is stopped{costs}",
        RentedState.GONE: "its account ended it",
    }
    why = bad.get(box.state, "")
    return f"{why} ({box.said})" if why and box.said else why


def _too_dear(box: Rental, seen: RentedBox | None) -> str:
    """Return why its price is too high; "" if that was agreed to, or the box is in use."""
    if box.ready or seen is None or seen.price is None or not box.is_dearer(seen.price):
        return ""
    return (
        f"it costs {dollars(seen.price)} an hour, and {dollars(box.agreed)} was agreed to "
        "(--max-price allows more)"
    )


def answers_ssh(box: RentedBox) -> bool:
    """Whether an SSH server answers at the box's address."""
    try:
        with socket.create_connection((box.address, box.port), timeout=5) as connection:
            connection.settimeout(5)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
