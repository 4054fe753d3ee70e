"""A new run that is asked for, as the box is told of it."""

from __future__ import annotations

import secrets as random
from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile

_SESSION = "train"


@dataclass(frozen=True)
class RunWish:
    """One run. The box begins it once for its id, however often it is asked."""

    command: str = ""
    """"" is the profile's."""
    session: str = ""
    gpus: str = ""
    """Numbers with commas between; "" leaves all of them to it."""
    queue: str = ""
    """What it waits for: `gpus`, `after:NAME`, `after-any:NAME`; "" begins it now."""
    id: str = field(default_factory=lambda: random.token_hex(8))

    def of(self, profile: Profile) -> RunWish:
        """The same, as the profile has what is left open. Raises UsageError without a command."""
        train = profile.train
        command = self.command or (train.command if train else "")
        if not command:
            raise UsageError(
                "which command? The profile has no train.command.",
                hint="Name it behind `--`: boxstrap run -- python train.py",
            )
        session = self.session or (train.session if train else _SESSION)
        return replace(self, command=command, session=session)

    def words(self, profile: Profile) -> list[str]:
        """For the script on the box: see `templates/lib/main.sh`. Raises as `of`."""
        wish = self.of(profile)
        command = b64encode(wish.command.encode(errors="surrogateescape")).decode()
        given = {"gpus": wish.gpus, "queue": wish.queue}
        more = [f"{name}={value}" for name, value in given.items() if value]
        return [f"run={wish.id}", f"command={command}", f"session={wish.session}", *more]
