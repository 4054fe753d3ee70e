"""The end of a rented box: asked for by its exact id, over when its account lists it no more."""

from __future__ import annotations

import time
from collections.abc import Callable

from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.providers.api import UndecidedError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedState

PATIENCE_S = 150.0
"""How long a box may go on being listed after it was destroyed."""
_LOOKS_S = (1.0, 2.0, 4.0, 8.0)
"""Between looks whether it is gone; the last one again and again."""
_AGAIN_S = 45.0
"""After so long it is asked for once more: by its exact id that can mean no other box."""


def destroy(account: CloudAccount, box_id: str, say: Callable[[str], None]) -> None:
    """Destroy the box with exactly this id, and wait until the account lists it no more.

    Raises UnreachableError where nobody knows whether it is gone, or where that is refused.
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
        f"nobody knows whether {account.name}:{box_id} is destroyed{why}",
        where=account.name,
        hint="It may go on costing. Run the same command again: it destroys this very box and no "
        "other; or end it on the provider's page.",
    )


def is_gone(account: CloudAccount, box_id: str) -> bool:
    """Whether the account has it no more, asked by its id and in the whole list."""
    one = account.box(box_id)
    if one is not None and one.state is not RentedState.GONE:
        return False
    return all(box.id != box_id or box.state is RentedState.GONE for box in account.boxes())
