"""What a setup is asked for, and of a run that it is to begin."""

from __future__ import annotations

import secrets as random
from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.link.handle import BoxOptions

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


@dataclass(frozen=True)
class SetupRequest(BoxOptions):
    """One setup, as it is asked for: the box and the profile (`BoxOptions`), and how it is to go.

    No field must be set: without a host it is the only box known for the repository.
    """

    committed_only: bool = False
    """Take the commit alone; what is not committed stays here."""
    restart: bool = False
    """Start the training again, also where a run is alive."""
    adopt: bool = False
    """Take the clone that lies in the repository's folder, though boxstrap did not make it."""
    strict: bool = False
    """Let a warning of the verdict be a reason to return the box."""
    only: str = ""
    """Steps, with commas between: they and what they need, each whatever its stamp says."""
    run: RunWish | None = None
    """Begin this run, whatever ran before."""
    wait_s: int = 60
    """How long to wait for another setup on the box, in seconds."""
    rented: float | None = None
    """Of a box that was just rented: when, by its account's clock. Its lease counts from then."""
