"""A sweep's cells: read from a file, known by content, dealt out once."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes.run import Run, called
from bootstrap.errors import UsageError
from bootstrap.fleet import sweep_report
from bootstrap.fleet.comparison import ComparedRun
from bootstrap.fleet.screens import _Told
from bootstrap.fleet.sweep import CellRun, Ledger, Sweep, deal, ledger_file, read_sweep, save_ledger
from bootstrap.link import BoxOptions, KnownBox
from bootstrap.paths import make_private
from bootstrap.runs import run_end
from bootstrap.runs.status import RunStatus, run_lines
from bootstrap.tasks.command import Call
from bootstrap.tasks.sweeps import _summary, wait_for_sweep

GRID = "parameters:\n  lr: [1e-3, 3e-4]\n  seed: [0, 1, 2]\n"
OF_WANDB = """\
project: demo
entity: me
description: all that its files may say
metric: {name: loss, target: 0.1}
parameters:
  on: {distribution: constant, value: True}
  off: {distribution: categorical, values: [false]}
  opt: {parameters: {lr: {value: 1e-3}}}
"""
LANES = [("a", ""), ("b", "")]


def sweep_of(folder: Path, text: str, name: str = "lr.yaml") -> Sweep:
    file = folder / name
    file.write_text(text)
    return read_sweep(file)


def test_a_sweeps_parameter_grid_gives_one_command_for_each_combination(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, GRID)
    assert found.name == "lr"
    assert [dict(cell.parameters) for cell in found.cells][:2] == [
        {"lr": "1e-3", "seed": "0"},
        {"lr": "1e-3", "seed": "1"},
    ]
    assert len({cell.key for cell in found.cells}) == 6
    assert found.cells[0].filled("python train.py") == "python train.py --lr=1e-3 --seed=0"


def test_a_wandb_grid_sweep_gives_wandbs_commands_and_bayes_is_wrong_usage(tmp_path: Path) -> None:
    text = """\
program: train.py
name: demo
method: grid
metric: {name: val_acc, goal: maximize}
parameters:
  lr: {values: [0.1, 0.2]}
  note: {value: it's}
command: ["${env}", "${interpreter}", "${program}", "${args}"]
"""
    found = sweep_of(tmp_path, text)
    assert (found.name, found.metric, found.least) == ("demo", "val_acc", False)
    assert found.cells[1].filled("") == (
        "/usr/bin/env python train.py --lr=0.2 '--note=it'\"'\"'s'"
    )
    with pytest.raises(UsageError, match="method: bayes makes each cell"):
        sweep_of(tmp_path, text.replace("grid", "bayes"))


@pytest.mark.parametrize(
    ("command", "filled"),
    [
        ("python t.py ${args_no_hyphens}", "python t.py on=True off=false opt.lr=1e-3"),
        ("python t.py ${args_no_boolean_flags}", "python t.py --on --opt.lr=1e-3"),
        (
            "python t.py ${args_json}",
            """python t.py '{"on": true, "off": false, "opt": {"lr": 0.001}}'""",
        ),
        ('[go, "${envvar:HOME}", a b, "", "${args}"]',
         "go \"${HOME}\" 'a b' '' --on=True --off=false --opt.lr=1e-3"),
        ('[bash, -c, "go ${on} ${off} ${opt.lr}"]', "bash -c 'go 'True' 'false' '1e-3"),
    ],
)  # fmt: skip
def test_each_wandb_placeholder_in_a_sweep_command_is_replaced_by_the_cells_parameters(
    tmp_path: Path, command: str, filled: str
) -> None:
    (cell,) = sweep_of(tmp_path, f"command: {command}\n{OF_WANDB}").cells
    assert cell.filled("") == filled
    long = "9" * 5000  # more digits than Python reads as a number
    (cell,) = sweep_of(tmp_path, f"command: {command}\n{OF_WANDB.replace('1e-3', long)}").cells
    assert cell.filled("") == filled.replace("1e-3", long).replace("0.001", f'"{long}"')


def test_sweep_cells_are_read_from_a_yaml_list_or_from_lines_of_commands(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, "command: ./go ${x}\ncells: [{x: 1}, {x: a b}]\n")
    assert [cell.filled("") for cell in found.cells] == ["./go 1", "./go 'a b'"]
    lines = sweep_of(tmp_path, "python a.py\n\n# no\npython a.py\npython b.py\n", "evals.txt")
    assert [cell.command for cell in lines.cells] == ["python a.py", "python a.py", "python b.py"]
    assert len({cell.key for cell in lines.cells}) == 3  # a line that is there twice runs twice


def test_a_sweep_cell_has_the_same_key_after_its_grid_is_reordered_or_grows(tmp_path: Path) -> None:
    keys = {cell.key for cell in sweep_of(tmp_path, GRID).cells}
    more = sweep_of(tmp_path, "parameters:\n  seed: [2, 1, 0, 3]\n  lr: [3e-4, 1e-3]\n")
    assert keys < {cell.key for cell in more.cells}
    assert more.key_of(f"lr-{more.cells[0].key}-2") == more.cells[0].key
    assert more.key_of("train-1") == more.key_of("other-12345678-1") == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("parameters: {}\n", "it has no cells"),
        ("parameters:\n  lr: 3\n", "line 2: lr needs a list of values"),
        ("paramters:\n  lr: [3]\n", "line 1: there is no key paramters"),
        ("cells: [3]\n", "each of cells is a mapping"),
        ("name: a b\nparameters: {x: [1]}\n", "'a b' can't be a sweep's name"),
        ("parameters: {'a b': [1]}\n", "'a b' can't be a parameter's name"),
        ("parameters:\n  x: {distribution: uniform, values: [1]}\n", "x needs a list of values"),
        ("early_terminate: {type: hyperband}\n", "there is no key early_terminate"),
        ("metric: {goal: least}\nparameters: {x: [1]}\n", "metric is a name"),
        # Its command would not hand the parameters on.
        (f"command: python t.py\n{OF_WANDB}", "doesn't take on: python t.py"),
        (f"command: python t.py ${{on}} ${{opt.lr}}\n{OF_WANDB}", "doesn't take off"),
        (
            f"command: python t.py ${{args_json_file}}\n{OF_WANDB}",
            r"json_file\} can't be filled in",
        ),
        (f'command: [bash, -c, "python t.py ${{args}}"]\n{OF_WANDB}', "is one argument"),
    ],
)
def test_a_sweep_file_that_is_invalid_or_gives_parameters_to_no_command_is_refused_with_reason(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        sweep_of(tmp_path, text).commands("")


def test_each_sweep_cell_goes_to_the_box_with_the_fewest_queued_cells(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, GRID)
    runs = [CellRun(sweep.cells[0].key, "a", "lr-1", "live")]
    dealt = deal(sweep, runs, Ledger({sweep.cells[0].key: "a"}), LANES, ())
    assert dealt.live == sweep.cells[:1]
    assert [lane[0] for _, lane in dealt.given] == ["b", "a", "b", "a", "b"]


def test_only_sweep_cells_without_a_finished_or_live_run_are_queued_again(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, GRID)
    first, second, third, *_ = (cell.key for cell in sweep.cells)
    runs = [
        CellRun(first, "b", "x", "failed"),
        CellRun(first, "b", "x", "done"),
        CellRun(second, "a", "x", "failed"),
        CellRun(third, "b", "x", "live"),
    ]
    dealt = deal(sweep, runs, Ledger({first: "b", second: "a", third: "b"}), LANES, ())
    assert [cell.key for cell in dealt.done] == [first]
    assert [cell.key for cell, _ in dealt.given] == [
        cell.key for cell in (sweep.cells[1], *sweep.cells[3:])
    ]
    assert dealt.failed == 1


def test_a_sweep_starts_no_cell_of_an_unreachable_box_on_another_box(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, GRID)
    first, second, *_ = (cell.key for cell in sweep.cells)
    ledger = Ledger(boxes={first: "gone", second: "gone"})
    runs = [CellRun(second, "gone", "x", "unknown")]
    dealt = deal(sweep, runs, ledger, LANES, {"gone"})
    assert [(cell.key, box) for cell, box in dealt.held] == [(first, "gone"), (second, "gone")]
    assert len(dealt.given) == 4
    freed = deal(sweep, [], ledger, LANES, ())
    assert len(freed.given) == 6


@pytest.mark.parametrize("state", ["done", "live", "stalled", "unknown"])
def test_a_sweep_ignores_a_run_of_a_cell_given_to_another_box(tmp_path: Path, state: str) -> None:
    sweep = sweep_of(tmp_path, GRID)
    first = sweep.cells[0].key
    runs = [CellRun(first, "a", "x", "failed"), CellRun(first, "b", "x", state)]
    for ledger in (Ledger({first: "a"}), Ledger()):
        dealt = deal(sweep, runs, ledger, LANES, ())
        assert len(dealt.given) == 6
        assert not dealt.done + dealt.live + dealt.held + dealt.taken_out


def test_a_sweep_report_shows_a_cell_only_with_figures_of_the_box_that_was_given_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(tmp_path, GRID)
    first = sweep.cells[0].key
    run = Run("k-1", f"lr-{first}-1", "finished", 0, 1, "", "", "x", 0, 0, "python x")
    liars = ComparedRun("", "", {}, "b", dataclasses.replace(run, started=10**9))
    told = {"a": [(first, ComparedRun("", "", {}, "a", run))], "b": [(first, liars)]}
    monkeypatch.setattr(sweep_report, "all_boxes", lambda: [KnownBox(name, name) for name in told])
    monkeypatch.setattr(sweep_report, "_ask", lambda options, _: told[options.host])
    monkeypatch.setattr(sweep_report, "_at_home", lambda *_: [(first, liars)])
    screen: Any = None
    ledger = Ledger({first: "a", sweep.cells[1].key: "b"})
    results = sweep_report._results(BoxOptions(), sweep, ledger, screen)
    assert [one.box for one in results] == ["a", "", "", "", "", ""]


def test_wait_waits_for_a_sweep_cell_only_on_the_box_to_which_that_cell_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_of(tmp_path, "a\nb\n", "lr.txt")
    boxes = {cell.key: box for cell, box in zip(sweep.cells, ("mk", "rp"), strict=True)}
    runs = {f"{sweep.session(cell)}-1": cell.key for cell in sweep.cells}
    awaited = dict[str, list[str]]()

    def wait_for(own: BoxOptions, *_: object, cell_of: Callable[[str], str], **__: object) -> None:
        awaited[own.host or ""] = [key for one in runs if (key := cell_of(one))]

    monkeypatch.setattr(run_end, "wait_for", wait_for)
    monkeypatch.setattr(sweep_report, "find_sweep", lambda *_: (sweep, Ledger(boxes=boxes)))
    given = {"sweep": "lr.txt", "host": None, "hosts": None, "run": None, "all_": False}
    wait_for_sweep(Call(given), lambda *_: None)
    assert awaited == {box: [key] for key, box in boxes.items()}


def test_a_run_of_a_sweep_cell_is_shown_with_its_parameters(tmp_path: Path) -> None:
    """As this machine dealt it out, wherever a run is named for people."""
    sweep = sweep_of(tmp_path, "parameters: {lr: [3e-1, 1e-3], seed: [1]}\n")
    ledger = Ledger()
    ledger.note(sweep)
    make_private(ledger_file("k-1", "lr").parent)
    save_ledger(ledger_file("k-1", "lr"), ledger)
    name = f"{sweep.session(sweep.cells[0])}-1"
    shown = f"{name} (lr=3e-1,seed=1)"
    assert called(name) == shown
    assert [called(other) for other in ("train-1", "lr-0123abcd-1", f"x{name}")] == [
        "train-1", "lr-0123abcd-1", f"x{name}",
    ]  # fmt: skip
    named = Run("k-1", name, "running", None, 9, "c", "w", "lr", 0, 12, "python x.py")
    assert f"k-1/{shown}" in run_lines([RunStatus(named, "k-1", 9, None)], 9)[0]
    live = _Told("gpu")
    live.note_run({"run": {"name": name, "state": "running"}})
    assert live.summary == f"{shown} running"


@pytest.mark.parametrize("text", ["x" * 5000, "../x", "s\n", "a\0b"])
def test_report_refuses_a_sweep_that_is_neither_file_nor_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        sweep_report.find_sweep(BoxOptions(repo=tmp_path), text)


def test_run_sweep_says_how_many_cells_the_boxes_queued_and_how_many_not() -> None:
    sweep: Any = SimpleNamespace(name="lr", cells=[1, 2, 3])
    dealt: Any = SimpleNamespace(done=[1], live=[], failed=0, given=[2, 3], held=[])
    view: Any = SimpleNamespace(unreached={})
    for queued, said in {2: "2 queued now", 0: "2 could not be queued"}.items():
        assert _summary(sweep, dealt, view, queued)[1] == f"lr: 3 cells: 1 finished, {said}"
