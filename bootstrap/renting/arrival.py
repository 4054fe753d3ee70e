"""From a box that was just rented to one that answers by SSH, or never will."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedBox, RentedState
from bootstrap.renting.clock import LOOK_S, RentingClock
from bootstrap.renting.rental import Rental

SETTLES_S = 60.0
"""How long an account may not list yet what it just rented out."""


class NeverUpError(BoxstrapError):
    """A box that was rented can't be used."""


@dataclass(frozen=True)
class Arrival:
    """How the arrival of boxes is seen, for tests to see another."""

    clock: RentingClock
    answers: Callable[[RentedBox], bool]

    def wait(
        self, account: CloudAccount, box: Rental, longest_s: float, say: Callable[[str], None]
    ) -> None:
        """Wait until its SSH answers. Raises NeverUpError where it won't."""
        began, said = self.clock.now(), ""
        while True:
            now = self.clock.now()
            try:
                seen = account.box(box.box_id)
            except UnreachableError as error:
                seen, said = None, error.what
            else:
                if why := _why_never(seen, now - box.asked):
                    raise NeverUpError(why, where=box.host)
                said = seen.said if seen else ""
            if seen and seen.address and self.answers(seen):
                return
            if now - began >= longest_s:
                waited = f"it can't be reached after {(now - began) / 60:.0f} minutes"
                raise NeverUpError(f"{waited}{f' ({said})' if said else ''}", where=box.host)
            if now == began:
                longest = f"{longest_s / 60:.0f} minutes"
                say(f"waiting until {box.host} can be reached, {longest} at the most")
            self.clock.sleep(LOOK_S)


def _why_never(box: RentedBox | None, age_s: float) -> str:
    """Why a box will not come up; "" where it may."""
    if box is None:
        return "its account has it no more" if age_s > SETTLES_S else ""
    bad = {
        RentedState.BROKEN: "it is broken",
        RentedState.STOPPED: "it is stopped",
        RentedState.GONE: "its account ended it",
    }
    why = bad.get(box.state, "")
    return f"{why} ({box.said})" if why and box.said else why


def answers_ssh(box: RentedBox) -> bool:
    """Whether an SSH server answers there."""
    try:
        with socket.create_connection((box.address, box.port), timeout=5) as connection:
            connection.settimeout(5)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
