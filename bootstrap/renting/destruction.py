"""Destroy a rented box by its exact id, and wait until its account no longer lists it."""

from __future__ import annotations

import time
from collections.abc import Callable

from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.providers.api import UndecidedError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedState

PATIENCE_S = 150.0
"""How long a box may still be listed after it was destroyed, in seconds."""
_LOOKS_S = (1.0, 2.0, 4.0, 8.0)
"""Seconds between checks whether it is gone; the last one repeats."""
_AGAIN_S = 45.0
"""Seconds until the request is repeated once, which is safe: the id can't mean another box."""


def destroy(account: CloudAccount, box_id: str, say: Callable[[str], None]) -> None:
    """Destroy the box with exactly this id, and wait until the account no longer lists it.

    Raises UnreachableError if it is unknown whether the box is gone, or if that is refused.
    """
    began, asked, looked = time.monotonic(), 0, 0
    trouble: BoxstrapError | None = None
    while (since := time.monotonic() - began) < PATIENCE_S:
        try:
            if not asked or (asked == 1 and since > _AGAIN_S):
                asked += 1
                account.destroy(box_id)
        except UndecidedError as error:
            trouble = error
            say(f"{account.name}:{box_id}: {error.what} Looking what the account has.")
        try:
            if is_gone(account, box_id):
                return
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


def is_gone(account: CloudAccount, box_id: str) -> bool:
    """Whether the account no longer has the box, by its id and in the whole list."""
    one = account.box(box_id)
    if one is not None and one.state is not RentedState.GONE:
        return False
    return all(box.id != box_id or box.state is RentedState.GONE for box in account.boxes())
