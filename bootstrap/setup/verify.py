"""`inv verify`: the gpu step alone, and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.setup.drive import Drive, Wishes
from bootstrap.setup.ready import get_ready
from bootstrap.setup.verdict import fetch_verdict
from bootstrap.verdict import lines

if TYPE_CHECKING:
    from bootstrap.contact import Asked
    from bootstrap.ui.screen import Screen


def verify_box(asked: Asked, screen: Screen, *, wait_s: int) -> None:
    """Check the GPUs of a box now, and show the verdict. Raises ReturnBoxError for a bad one."""
    ready = get_ready(asked, screen, committed_only=True, with_work=False)
    drive = Drive(
        ready.box.known.name, ready.link, ready.prepared, screen, Wishes(only="gpu", wait_s=wait_s)
    )
    try:
        drive.run(drive.hello())
        ready.box.remember(workdir=drive.workdir, profile=ready.prepared.profile.name)
        verdict = fetch_verdict(ready.link.wire, drive.workdir)
        screen.result({"verdict": verdict.model_dump()}, "\n".join(lines(verdict)))
    finally:
        ready.link.close()
