"""The judge alone: traces in the kernel, names, versions, thresholds, and codes known here."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from bootstrap.onbox import MAIN
from bootstrap.onbox.verdict import gpu_checks, gpu_errors, gpu_reader, judge
from bootstrap.onbox.verdict.expected_hardware import ExpectedHardware
from bootstrap.steps.event_codes import CODES

ONBOX = Path(MAIN).parent
TRACES = {"devices": 0, "locked": 0, "kernel": False, "cards": 0}
NOTHING: dict[str, Any] = {**TRACES, "library": "", "gpus": {}}


def verdict_of(facts: dict[str, Any], order: ExpectedHardware) -> tuple[str, str]:
    result = judge.judge({**NOTHING, **facts}, order, 0.1)
    first = result["reasons"][0] if result["reasons"] else {"code": "", "outcome": "keep"}
    assert result["verdict"] == first["outcome"]
    return result["verdict"], first["code"]


DEVICE = {"devices": 2, "kernel": True, "cards": 1}


@pytest.mark.parametrize(
    ("init", "facts", "code"),
    [
        (12, {"library": "missing"}, "no-gpu"),
        (12, {"library": "missing", **DEVICE}, "nvml-missing"),
        (12, {"library": "missing", "cards": 1}, "no-driver"),
        (12, {"library": "missing", "kernel": True, "cards": 1}, "no-device"),
        (12, {"library": "broken", **DEVICE}, "nvml-broken"),
        (12, {"library": "broken"}, "nvml-broken"),
        (9, {}, "no-driver"),
        (9, {"cards": 1}, "no-driver"),
        (9, {"kernel": True}, "no-device"),
        (9, {**DEVICE, "locked": 2}, "no-permission"),
        (999, {**DEVICE, "locked": 1}, "no-permission"),
        (999, DEVICE, "gpu-detached"),
        (4, DEVICE, "no-permission"),
        (18, {**DEVICE, "locked": 2}, "nvml-mismatch"),
        (12, {"library": "missing", **DEVICE, "locked": 2}, "nvml-missing"),
    ],
)
def test_the_verdict_gives_the_reason_why_nvml_fails_by_driver_and_device_files(
    init: int, facts: dict[str, Any], code: str
) -> None:
    assert verdict_of({**facts, "init": {"error": init}}, ExpectedHardware()) == ("return", code)


@pytest.mark.parametrize("code", [9, 12])
@pytest.mark.parametrize(
    ("facts", "verdict"),
    [({}, "keep"), ({"cards": 1}, "warn"), ({"kernel": True}, "warn"), ({"devices": 1}, "warn")],
)
def test_a_gpu_that_is_not_required_may_be_absent_but_a_broken_gpu_is_a_warning(
    facts: dict[str, Any], verdict: str, code: int
) -> None:
    facts = {"library": "missing", **facts, "init": {"error": code}}
    assert verdict_of(facts, ExpectedHardware(require=False))[0] == verdict


def test_the_gpu_check_counts_nvidia_devices_and_cards_in_dev_proc_and_sys(tmp_path: Path) -> None:
    assert gpu_reader.traces(str(tmp_path)) == TRACES
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    for slot, vendor, kind in [
        ("00", "0x10de", "0x030000"),
        ("01", "0x10de", "0x030200"),
        ("02", "0x10de", "0x040300"),  # audio device of a GeForce
        ("03", "0x1002", "0x030000"),  # another vendor
    ]:
        card = tmp_path / "sys/bus/pci/devices" / slot
        card.mkdir(parents=True)
        (card / "vendor").write_text(vendor + "\n")
        (card / "class").write_text(kind + "\n")
    (tmp_path / "sys/bus/pci/devices/04").mkdir()
    found = {**TRACES, "devices": 3, "kernel": True, "cards": 2}
    assert gpu_reader.traces(str(tmp_path)) == found


@pytest.mark.parametrize(
    ("ordered", "name", "outcome"),
    [
        (None, "NVIDIA A10", "pass"),
        ("A100", "NVIDIA A100-SXM4-80GB", "pass"),
        ("a100 80gb", "NVIDIA A100 80GB PCIe", "pass"),
        ("A100 80GB", "NVIDIA A100-SXM4-40GB", "return"),
        ("A100", "NVIDIA A10", "return"),
        ("A100", "NVIDIA RTX A1000", "return"),
        ("RTX4090", "NVIDIA GeForce RTX 4090", "pass"),
        ("4090", "NVIDIA GeForce RTX 4090", "pass"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", "warn"),
        ("RTX 4090", "NVIDIA GeForce RTX 3090", "return"),
        ("H100 SXM5", "NVIDIA H100 NVL", "return"),
        ("A100 SXM", "NVIDIA A100-PCIE-40GB", "return"),
    ],
)
def test_a_gpus_name_passes_only_if_it_is_the_ordered_model(
    ordered: str | None, name: str, outcome: str
) -> None:
    assert gpu_checks.judge_name(ExpectedHardware(name=ordered), name)[0] == outcome


@pytest.mark.parametrize(
    ("here", "asked", "outcome"),
    [
        ("550.54.15", None, "pass"),
        ("550.54.15", "550", "pass"),
        ("550", "550.0.0", "pass"),
        ("550.54.15", "550.54.15", "pass"),
        ("550.9", "550.10", "return"),
        ("99.1", "550", "return"),
        ("12.10", "12.9", "pass"),
    ],
)
def test_the_gpu_check_compares_driver_versions_as_numbers_and_not_as_text(
    here: str, asked: str | None, outcome: str
) -> None:
    assert gpu_checks.at_least("is", here, asked)[0] == outcome


@pytest.mark.parametrize(
    ("ordered", "mib", "ecc", "outcome"),
    [
        (24, 23592, None, "return"),  # 4 % less, and a little
        (24, 23593, None, "pass"),
        (80, 40960, [1, 1], "return"),  # half an A100
        (48, 46068, [1, 1], "pass"),  # L40S, A40
        (48, 46068, [0, 1], "return"),
        (None, 1, None, "pass"),
    ],
)
def test_the_memory_check_passes_a_gpu_with_up_to_four_percent_less_than_ordered(
    ordered: float | None, mib: int, ecc: list[int] | None, outcome: str
) -> None:
    memory = {"total": mib << 20, "used": 0}
    assert (
        gpu_checks.judge_memory(ExpectedHardware(min_memory_gib=ordered), memory, ecc)[0] == outcome
    )


SOURCES = [p for p in sorted(ONBOX.rglob("*.py")) if p.stem not in {"fetch_uv", "pip_indexes"}]


@pytest.mark.slow
def test_the_program_sent_to_a_box_is_python_3_8_and_imports_nothing_else_of_boxstrap() -> None:
    for source in SOURCES:
        tree = ast.parse(source.read_text(), str(source), feature_version=(3, 8))
        for node in ast.walk(tree):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= len(source.relative_to(ONBOX).parts), source
                names = [] if node.level else [node.module or ""]
            assert not [name for name in names if name.split(".")[0] == "bootstrap"], source


def test_each_check_of_the_verdict_has_a_unique_name_an_error_code_and_advice() -> None:
    every = [*judge.OF_GPUS, *judge.BOX_CHECKS]
    assert len(set(judge.NAMES)) == len(every) + 2 + len(judge.SMOKE)
    readings = {*gpu_reader.BOX, *gpu_reader.GPU, "usable", "nvlink", "slices", "slice"}
    fields = set(ExpectedHardware._fields)
    for check in every:
        assert re.fullmatch(r"[a-z-]+", check.name)
        assert (check.code == "") == (check.name == "persistence")
        assert check in judge.BOX_CHECKS or set(check.reads) <= readings
        assert set(check.asks) <= fields
        assert check.advice
        assert check.kept


@pytest.mark.parametrize(
    ("code", "counts"), [(8, 8), (11, 11), (14, 14), (15, 15), (16, 16), (3, 0), (13, 0), (999, 0)]
)
def test_a_gpu_with_an_nvml_error_of_broken_hardware_is_unusable(code: int, counts: int) -> None:
    """8: no power, 11: IRQ, 14: corrupt ROM, 15: off the bus, 16: needs a reset; others don't."""
    assert judge.unusable({"name": "A100", "memory": 80, "temperature": {"error": code}}) == counts


PROBLEMS = [
    value for value in vars(gpu_errors).values() if isinstance(value, gpu_errors.GpuProblem)
]
SENT = {problem.code for problem in [*PROBLEMS, *gpu_errors.NVML.values()]}
SENT |= {check.code for check in (*judge.OF_GPUS, *judge.BOX_CHECKS)}
SENT |= {"gpu-unread", "box-unread", "gpu-sick"}


def test_every_error_code_of_the_gpu_check_on_a_box_has_a_message_on_this_machine():
    assert len(SENT) > 20
    assert SENT - {""} - set(CODES) == set()  # a check that only notes has no code
