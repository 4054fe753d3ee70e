"""`inv verify`: the gpu step alone, and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.errors import StepFailedError
from bootstrap.setup.drive import Drive, Wishes
from bootstrap.setup.outcome import file_tail
from bootstrap.verdict import MAX_BYTES, Verdict, lines, read

if TYPE_CHECKING:
    from bootstrap.contact import Asked
    from bootstrap.link.wire import Wire
    from bootstrap.ui.screen import Screen


def fetch_verdict(wire: Wire, workdir: str) -> Verdict:
    """What the last check on this box found. Raises StepFailedError where there was none."""
    document = file_tail(wire, "gpu.json", workdir, MAX_BYTES + 1)
    if not document:
        raise StepFailedError("the GPU check left no verdict.", where=wire.label)
    return read(document)


def verify_box(asked: Asked, screen: Screen, *, wait_s: int) -> None:
    """Check the GPUs of a box now, and show the verdict. Raises ReturnBoxError for a bad one."""
    from bootstrap.setup.perform import get_ready

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
