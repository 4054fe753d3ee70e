"""`inv plan`: what a setup would do on this box, and why. Nothing is written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap.events import WHY
from bootstrap.link.exchange import exchange
from bootstrap.plan import PlanRow, rows
from bootstrap.protocol.probe import parse, probe
from bootstrap.setup.ready import Ready, get_ready

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxOptions
    from bootstrap.ui.screen import Screen


def foresee(
    options: BoxOptions,
    screen: Screen,
    *,
    show_origin: bool = False,
    committed_only: bool = True,
    restart: bool = False,
) -> None:
    """Show the plan. The script is handed to the box's bash over its input, and stays in memory."""
    ready = get_ready(options, screen, committed_only=committed_only)
    try:
        plan = rows(ready.prepared.steps, _answers(ready, restart=restart))
    finally:
        ready.link.close()
    text = [_line(row) for row in plan]
    if show_origin:
        from bootstrap.ui.origins import lines as origin_lines

        text += ["", *origin_lines(ready.loaded.profile, ready.loaded.origins)]
    screen.result(
        {
            "box": ready.box.known.name,
            "commit": ready.prepared.commit,
            "steps": [{"step": r.step.name, "runs": r.runs, "why": r.why} for r in plan],
        },
        "\n".join(text),
    )


def _answers(ready: Ready, *, restart: bool) -> dict[str, str]:
    prepared = ready.prepared
    box_state = probe(
        ready.link.wire,
        workdir=prepared.profile.box.workdir,
        repo_key=prepared.repo_key,
        repo_root=prepared.repo_root,
        script=prepared.script_id,
    )
    if box_state.plan and not restart:
        return box_state.plan
    command = "bash -s -- plan" + (" restart" if restart else "")
    answer = exchange(ready.link.wire, command, stdin=prepared.script.encode(), timeout=120)
    return parse(answer).plan


def _line(row: PlanRow) -> str:
    mark = "runs" if row.runs else "-"
    return f"{mark:<5} {row.step.name:<10} {WHY.get(row.why, row.why):<30} {row.step.does}"
