"""What a setup is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.link.handle import BoxOptions
from bootstrap.setup.run_wish import RunWish


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
