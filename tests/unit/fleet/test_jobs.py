"""Whose cells a sweep deals to others: those of a box that its provider no longer has."""

import pytest

from bootstrap.boxes import Run
from bootstrap.boxes.at_home import note_seen
from bootstrap.errors import UnreachableError
from bootstrap.fleet.jobs import BoxCapacity, look_at_all, plan_sweep
from bootstrap.fleet.sweep import Cell, Ledger, Sweep
from bootstrap.link import KnownBox, save_box
from tests.providers.accounts import SimulatedBox, simulated

FINISHED, LIVE, WAITING = (Cell(f"./go {n}", {}, str(n) * 8) for n in range(3))
SWEEP = Sweep("lr", (FINISHED, LIVE, WAITING))
THERE = "gpu-0"
STATES = {"deleted": True, "running": False, "stopped": False, "an error": False}
"""What its account says of the other box, and whether that frees its cells."""


def _run(cell: Cell, state: str, rc: int | None) -> Run:
    name = f"{SWEEP.session(cell)}-1"
    return Run("homework-1", name, state, rc, 1, "", "", "x", 0, 0, cell.command)


def _ask(host: str) -> BoxCapacity:
    if host != THERE:
        raise UnreachableError(f"{host} does not answer.")
    return BoxCapacity(host, 0, ())


@pytest.mark.slow
@pytest.mark.parametrize(("says", "frees"), STATES.items())
def test_a_sweep_moves_cells_of_a_box_to_others_only_if_the_provider_says_the_box_is_gone(
    monkeypatch: pytest.MonkeyPatch, says: str, frees: bool
) -> None:
    save_box(KnownBox(THERE, "root@203.0.113.1:22", "203.0.113.1"))
    rented = save_box(KnownBox("vast-9001", "vast:9001", "203.0.113.2", provider="vast"))
    note_seen(rented, [_run(FINISHED, "finished", 0), _run(LIVE, "running", None)], str)
    ledger = Ledger(boxes={cell.key: rented.name for cell in SWEEP.cells})
    hosts = [THERE, rented.name]
    with simulated("vast", used_by=monkeypatch) as account:
        account.boxes = [SimulatedBox("9002")]
        if says in {"running", "stopped"}:
            account.boxes.append(SimulatedBox("9001", says))
        account.is_edgy = says == "an error"
        view = look_at_all(SWEEP, hosts, ledger, _ask)
    dealt = plan_sweep(SWEEP, view, ledger, hosts, each_gpu=False)
    rest = [LIVE, WAITING]
    assert list(dealt.done) == [FINISHED]
    assert [(cell, lane[0]) for cell, lane in dealt.given] == [
        (cell, THERE) for cell in rest if frees
    ]
    assert [cell for cell, _ in dealt.held] == [cell for cell in rest if not frees]
    assert (rented.name in view.unreached) is not frees
