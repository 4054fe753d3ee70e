"""Judging measurements without a GPU: expected figures, and odd results."""

from typing import Any

import pytest

from bootstrap.onbox.smoke import peaks
from bootstrap.onbox.smoke.judge import GpuTrial, judge_trial
from bootstrap.onbox.smoke.peaks import MODELS, model_of
from bootstrap.onbox.verdict import thresholds
from bootstrap.onbox.verdict.judge import CheckResult

TERA, GB = 1e12, 1e9
SOUND: dict[str, Any] = {
    "library": {"name": "torch 2.13.0", "cuda": "12.6"},
    "start": {"built for": ["sm_80"]},
    "memory": {"wrong": 0, "bytes": 60 << 30, "total": 70 << 30},
    "product": {"rows": 1024, "wrong": {"fp32": 0, "bf16": 0}},
    "speed": {"fp32": 18.9 * TERA, "tf32": 130 * TERA, "bf16": 260 * TERA},
    "stable": {"repeats": 8, "different": {"fp32": 0, "bf16": 0}},
    "bandwidth": {"device": 1700 * GB, "to": 25 * GB, "from": 26 * GB},
}
LOOK = {
    "throttle": 4,
    "clock": 1410,
    "power": 398.0,
    "temperature": 61,
    "pcie_gen": 4,
    "pcie_width": 16,
}


def graded(
    *,
    name: str = "NVIDIA A100-SXM4-80GB",
    mode: str = "full",
    ended: str = "",
    looks: tuple[dict[str, Any], ...] = (LOOK,),
    **parts: Any,
) -> dict[str, CheckResult]:
    tried = GpuTrial(0, name, mode, {**SOUND, **parts}, list(looks), ended)
    return {row.check: row for row in judge_trial(tried)}


def test_a_healthy_gpu_passes_every_check_of_the_smoke_test() -> None:
    rows = graded()
    assert {row.outcome for row in rows.values()} == {"pass"}
    told = {check: (row.read, row.expected) for check, row in rows.items()}
    assert told["smoke-speed"] == (
        "fp32 18.9, tf32 130, bf16 260 TFLOP/s",
        "fp32 19.5, tf32 156, bf16 312 TFLOP/s",
    )
    assert told["smoke-memory-speed"] == ("1700 GB/s", "2039 GB/s")
    assert told["smoke-bus"] == (
        "to it 25, from it 26 GB/s; the link: x16 generation 4",
        "31.5 GB/s",
    )
    assert told["smoke-throttling"][0] == "none; up to 1410 MHz, 398 W, 61 °C"


@pytest.mark.parametrize(
    ("part", "value", "outcome", "check", "code"),
    [
        ("speed", {**SOUND["speed"], "bf16": 139 * TERA}, "warn", "smoke-speed", "smoke-slow"),
        ("speed", {**SOUND["speed"], "fp32": 8.7 * TERA}, "warn", "smoke-speed", "smoke-slow"),
        (
            *("bandwidth", {**SOUND["bandwidth"], "device": 1200 * GB}),
            *("warn", "smoke-memory-speed", "smoke-memory-slow"),
        ),
        ("bandwidth", {**SOUND["bandwidth"], "from": 12.5 * GB}, "warn", "smoke-bus", "smoke-bus"),
        ("memory", {**SOUND["memory"], "wrong": 1}, "return", "smoke-memory", "smoke-memory"),
        (
            *("product", {"rows": 1024, "wrong": {"fp32": 0, "bf16": 1}}),
            *("return", "smoke-product", "smoke-product"),
        ),
        (
            *("stable", {"repeats": 8, "different": {"fp32": 1}}),
            *("return", "smoke-stable", "smoke-unstable"),
        ),
        ("speed", {"error": "CUDA error: uncorrectable ECC"}, "return", "smoke", "smoke-failed"),
        ("start", {"error": "system not yet initialized"}, "return", "smoke", "smoke-failed"),
    ],
)
def test_slow_values_of_the_smoke_test_give_warn_and_wrong_results_give_return(
    part: str, value: Any, outcome: str, check: str, code: str
) -> None:
    row = graded(**{part: value})[check]
    assert (row.outcome, row.code) == (outcome, code)


@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_throttling_under_load_in_the_smoke_test_gives_a_warning(bit: int) -> None:
    rows = graded(looks=(LOOK, {**LOOK, "throttle": 4 | bit}, LOOK))
    assert rows["smoke-throttling"].code == "smoke-throttle"


def test_the_smoke_test_passes_a_gpu_that_is_slowed_by_a_power_cap_or_idles() -> None:
    looks = ({**LOOK, "throttle": 1}, {**LOOK, "throttle": 4})
    assert graded(looks=looks)["smoke-throttling"].outcome == "pass"


def test_the_smoke_test_lists_no_check_of_a_value_that_nvml_does_not_report() -> None:
    assert "smoke-throttling" not in graded(looks=({**LOOK, "throttle": None},))
    assert "link" not in graded(looks=())["smoke-bus"].read


def test_the_smoke_test_of_gpu_memory_is_left_out_when_too_little_is_free() -> None:
    rows = graded(memory={"wrong": 0, "bytes": 30 << 30, "total": 70 << 30})
    assert rows["smoke-memory"].outcome == "n/a"
    assert graded(mode="quick", memory={"wrong": 0, "bytes": 8 << 30, "total": 70 << 30})[
        "smoke-memory"
    ].outcome == ("pass")
    tight = graded(memory={"error": "CUDA out of memory. GpuTrial to allocate 20 MiB"})
    assert tight["smoke-memory"].outcome == "n/a"


def test_a_gpu_model_of_unknown_speed_is_measured_but_not_judged_by_the_smoke_test() -> None:
    rows = graded(name="NVIDIA H20")
    for check in ("smoke-speed", "smoke-memory-speed", "smoke-bus"):
        assert rows[check].outcome == "n/a"
        assert "not in the table" in rows[check].read
    assert "260 TFLOP/s" in rows["smoke-speed"].read


# Names as the drivers report them.
NAMES = {
    "NVIDIA H100 80GB HBM3": 3350,
    "NVIDIA H100 PCIe": 2000,
    "NVIDIA H100 NVL": 3900,
    "NVIDIA H200": 4800,
    "NVIDIA B200": 7700,
    "NVIDIA A100-SXM4-80GB": 2039,
    "NVIDIA A100-SXM4-40GB": 1555,
    "NVIDIA A100 80GB PCIe": 1935,
    "NVIDIA A100-PCIE-40GB": 1555,
    "NVIDIA A10": 600,
    "NVIDIA L4": 300,
    "NVIDIA L40S": 864,
    "Tesla T4": 320,
    "Tesla V100-SXM2-16GB": 900,
    "Tesla V100S-PCIE-32GB": 1134,
    "NVIDIA GeForce RTX 3090": 936,
    "NVIDIA GeForce RTX 3090 Ti": 1008,
    "NVIDIA GeForce RTX 4090": 1008,
    "NVIDIA GeForce RTX 4090 D": 1008,
    "NVIDIA GeForce RTX 5090": 1792,
    "NVIDIA RTX A6000": 768,
    "NVIDIA RTX 6000 Ada Generation": 960,
    "Quadro RTX 6000": 672,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_is_found_in_the_table_of_peak_speeds_however_its_driver_spells_its_name(
    name: str,
) -> None:
    model = model_of(name)
    assert model is not None
    assert model.memory == NAMES[name]


@pytest.mark.parametrize(
    "name",
    [None, "", "NVIDIA H20", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-80GB MIG 1g"],
)
def test_no_peak_speeds_are_found_for_a_merely_related_gpu_name(name: str | None) -> None:
    assert model_of(name) is None


def test_each_peak_speed_of_a_gpu_lies_in_a_plausible_range() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS)
    for model in MODELS:
        assert 5 < model.fp32 <= model.half < 3000, model.name
        assert model.tf32 is None or model.fp32 <= model.tf32 <= model.half, model.name
        assert 250 < model.memory < 10_000, model.name
        assert model.generation in peaks.LANE
        # A bus one generation older, or with half the lanes, is below the limit.
        assert model.bus() * thresholds.SMOKE["bus"] < model.bus() / 2
