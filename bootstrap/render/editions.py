"""The editions of the script: whole, short, small. What the shorter ones leave out is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.render.doors import Door
    from bootstrap.render.variables import Source

WHOLE, SHORT, SMALL = "whole", "short", "small"

LEFT_OUT: dict[str, tuple[str, ...]] = {
    SHORT: (
        "steps that run at the same time, live progress, and stamps of single steps",
        "the smoke test; of the GPU check: power, throttling, heat, bus, NVLink, and all of the "
        "box around it; what gpu.checks says of each",
        "shells other than bash, python.installer: pip",
        "taking a folder beside it where another repository has the name: it refuses",
        "noting which part of a pipeline ended the training",
    ),
    SMALL: (
        "what the short script leaves out, too",
        "of the GPU check: everything but count, name, memory, memory in use and ECC errors",
        "package managers other than apt, the git hosts' known keys, pip's extra indexes",
        "asking no step that is right already; knowing a finished training after `boxstrap setup`",
    ),
}
"""What the shorter editions do not do, for people."""


def left_out(edition: str) -> tuple[str, ...]:
    """What an edition does not do, for people."""
    return {SMALL: (*LEFT_OUT[SHORT], *LEFT_OUT[SMALL][1:])}.get(edition, LEFT_OUT.get(edition, ()))


def edition_of(name: str, door: Door, profile: Profile, work: Source) -> str:
    """The script in that edition."""
    from bootstrap.render.carrier import render_carrier
    from bootstrap.render.short import render_short
    from bootstrap.render.small import render_small

    if door.bakes and profile.python.torch_backend == "auto":
        profile = profile.replace(python=profile.python.replace(torch_backend="none"))
    makers: dict[str, Callable[[], str]] = {
        WHOLE: lambda: render_carrier(profile, work, leave=door.leave),
        SHORT: lambda: render_short(profile, work),
        SMALL: lambda: render_small(profile, work),
    }
    return makers[name]()
