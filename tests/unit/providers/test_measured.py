"""What runs at home took, and what the same run would take on another GPU."""

import json
from types import SimpleNamespace
from typing import Any

from bootstrap.boxes import RunHistory
from bootstrap.providers.estimate import Price
from bootstrap.runs.known_runs import MeasuredRun, measured, same_run, speeds_in

A100 = MeasuredRun("train-1", "NVIDIA A100-SXM4-80GB", 1, 7200, 30.0, {"fp32": 18, "bf16": 250})
H100 = MeasuredRun("train-9", "NVIDIA H100 80GB HBM3", 1, 60, 20.0, {"fp32": 50, "bf16": 625})


def price(gpu: str, memory_gb: float = 80) -> Price:
    return Price("vast", gpu, memory_gb, 1, "on demand", 2.0, "2026-11-01", "x")


def test_a_runs_time_on_another_gpu_is_estimated_only_if_both_gpu_models_were_measured() -> None:
    assert same_run(A100, price("H100 SXM 80GB"), [A100, H100]).seconds == 7200 * 250 / 625
    assert same_run(A100, price("A100 SXM 80GB"), [A100]).seconds == 7200
    unknown = same_run(A100, price("H100 SXM 80GB"), [A100])
    assert unknown.seconds is None
    assert "never measured a H100 SXM 80GB" in unknown.why_not
    untested = MeasuredRun("train-2", "NVIDIA A100-SXM4-80GB", 1, 7200, 30.0)
    assert "A100" in same_run(untested, price("H100 SXM 80GB"), [untested, H100]).why_not
    small = same_run(A100, price("RTX 4090 24GB", 24), [A100, H100])
    assert (small.seconds, small.why_not) == (None, "it used 30.0 GB")
    other = MeasuredRun("train-3", "Tesla T4", 1, 60, 5.0, {"half": 50})
    assert "different numbers" in same_run(A100, price("T4 64GB"), [other]).why_not


def test_the_speed_of_a_box_is_its_slowest_gpus_in_the_smoke_test() -> None:
    assert speeds_in(["fp32 18.2, bf16 251 TFLOP/s"]) == {"fp32": 18.2, "bf16": 251}
    two = ["fp32 18.2, bf16 251 TFLOP/s", "fp32 18, bf16 240 TFLOP/s"]
    assert speeds_in(two) == {"fp32": 18, "bf16": 240}
    assert speeds_in(["n/a", "smoke test not tried", ""]) == {}


def kept(history: RunHistory | None, **changes: object) -> Any:
    run = {"name": "train-1", "state": "finished", "rc": 0, "seconds": lambda _now: 7200}
    made = {"run": SimpleNamespace(**{**run, **changes}), "box_time": 0}
    return SimpleNamespace(**made, history=lambda: history)


def test_the_peak_memory_of_a_run_is_the_most_that_one_gpu_used() -> None:
    head = {"gpus": [{"index": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
    rows = [
        [1.0, 5.0, 10, [[90.0, 20 * 10**9, 300.0, 60.0]]],
        [2.0, 5.0, 10, [[95.0, 31 * 10**9, 1.0, 60.0]]],
    ]
    history = RunHistory(samples=tuple(map(json.dumps, [head, *rows])))
    (found,) = measured([kept(history)])
    assert (found.gpu, found.gpus, found.peak_gb) == ("NVIDIA A100-SXM4-80GB", 1, 31.0)
    assert (
        found.line() == "train-1 took 2 h 00 min on 1 x NVIDIA A100-SXM4-80GB, 31.0 GB at the peak"
    )
    assert measured([kept(history, rc=1), kept(history, state="running"), kept(None)]) == []
    assert measured([kept(RunHistory())]) == []
