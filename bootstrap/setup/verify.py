"""`inv verify`: the gpu step alone, the smoke test where an environment is, and what they found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import ReturnBoxError
from bootstrap.setup.drive import Drive, Wishes
from bootstrap.setup.fetch_verdict import fetch_verdict
from bootstrap.setup.ready import Ready, get_ready
from bootstrap.ui.verdict_table import lines, painted

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxOptions
    from bootstrap.ui.screen import Screen
    from bootstrap.verdict import Verdict


def verify_box(
    options: BoxOptions, screen: Screen, *, wait_s: int, report: Path | None = None
) -> None:
    """Check a box now and show the verdict; into `report` goes a page for the host's owner.

    Raises ReturnBoxError for a bad one, after the page is written.
    """
    if report:
        from bootstrap.verdict_page import check_place

        check_place(report)
    ready = get_ready(options, screen, committed_only=True, with_work=False)
    smoke = any(step.name == "smoke" for step in ready.prepared.steps)
    wishes = Wishes(only="gpu,smoke" if smoke else "gpu", wait_s=wait_s)
    drive = Drive(ready.box.known.name, ready.link, ready.prepared, screen, wishes)
    try:
        try:
            drive.run(drive.box_state())
        except ReturnBoxError:
            if report:
                _write_report(report, _verdict(ready), ready, screen)
            raise
        profile = ready.prepared.profile.name
        ready.box.save(replace(ready.box.known, workdir=drive.workdir, profile=profile))
        verdict = _verdict(ready)
        screen.result({"verdict": verdict.model_dump()}, "\n".join(lines(verdict)), painted)
        if report:
            _write_report(report, verdict, ready, screen)
    finally:
        ready.link.close()


def _verdict(ready: Ready) -> Verdict:
    profile = ready.prepared.profile
    return fetch_verdict(ready.link.wire, profile.box.workdir, profile.provider.advice)


def _write_report(file: Path, verdict: Verdict, ready: Ready, screen: Screen) -> None:
    from datetime import datetime, timezone

    from bootstrap.verdict_page import Subject, page, write

    box, provider = ready.link.wire.label, ready.prepared.profile.provider.name
    write(file, page(verdict, Subject(box, provider, datetime.now(timezone.utc))))
    screen.result({"report": str(file)}, f"\nreport: {file}")
