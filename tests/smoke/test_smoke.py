"""The smoke test end to end: the box's own programs, NVML's stand-in, and the real torch.

The arithmetic is torch's, on the CPU. Each fault is one sick GPU of several in a box, so that the
healthy ones show that nothing else is reported.
"""

from pathlib import Path

import pytest

from bootstrap.onbox.python import torch_compat
from bootstrap.onbox.smoke.smoke import joined
from bootstrap.onbox.verdict.check import PASS, RETURN
from bootstrap.onbox.verdict.judge import CheckResult
from tests.box_programs import lay_programs
from tests.nvml import stub
from tests.nvml.scenarios import A100, RTX4090
from tests.smoke.conftest import Smoked, smoke

FAULTS = ("none", "forgets", "miscounts", "wavers", "refuses", "dies", "crawls")
QUICK = '"quick": Mode(0.25, 8 << 30, 1, 0.3, 8)'
GPU = {fault: index for index, fault in enumerate(FAULTS)}


@pytest.fixture(scope="module")
def box(rig: stub.NvmlRig, tmp_path_factory: pytest.TempPathFactory) -> stub.NvmlRig:
    """A copy whose GPUs have the faults that their UUIDs name; measures speed only briefly."""
    folder = tmp_path_factory.mktemp("sick")
    lay_programs(folder / "box/current")
    faulty = (Path(__file__).parent / "faulty.py").read_text()
    stress = folder / "box/current/onbox/smoke/stress.py"
    before, found, after = stress.read_text().partition(QUICK)
    assert found
    stress.write_text(before + QUICK.replace("0.3", "0.03") + after + faulty)
    return stub.NvmlRig(folder, rig.python, rig.library)


@pytest.fixture(scope="module")
def smoked(box: stub.NvmlRig, torch_python: Path) -> Smoked:
    """One box with a GPU for each fault, all tested at the same time."""
    names = "".join(
        f"gpu.{index}.uuid = GPU-{fault}\ngpu.{index}.name = NVIDIA Unheard Of\n"
        for fault, index in GPU.items()
    )
    slow = f"gpu.{GPU['crawls']}.name = NVIDIA A100-SXM4-80GB\n"
    scenario = f"{A100}\ncount = {len(FAULTS)}\n{names}{slow}gpu.throttle = 4\ngpu.power = 250000\n"
    # Fourteen processes load torch at the same time, beside other tests.
    return smoke(box, scenario, torch_python, device="cpu", limit=400)


def test_a_healthy_gpu_passes_the_smoke_test_though_other_gpus_of_the_box_fail(
    smoked: Smoked,
) -> None:
    for check in ("smoke-memory", "smoke-product", "smoke-stable", "smoke-throttling"):
        assert (GPU["none"], "pass") in smoked.rows(check), (check, smoked.verdict, smoked.err)
    healthy = [r for r in smoked.verdict["reasons"] if GPU["none"] in r["gpus"]]
    assert healthy == []


@pytest.mark.parametrize(
    ("fault", "outcome", "code"),
    [
        ("forgets", "return", "smoke-memory"),
        ("miscounts", "return", "smoke-product"),
        ("wavers", "return", "smoke-unstable"),
        ("refuses", "return", "smoke-failed"),
        ("dies", "return", "smoke-failed"),
        ("crawls", "warn", "smoke-bus"),
    ],
)
def test_the_smoke_test_names_a_sick_gpu_with_the_code_of_its_fault(
    smoked: Smoked, fault: str, outcome: str, code: str
) -> None:
    found = [(o, c) for o, c, gpus in smoked.reasons() if GPU[fault] in gpus]
    assert (outcome, code) in found
    if outcome == "return":
        assert found == [(outcome, code)]


def test_a_verdict_lists_reasons_to_return_the_box_before_warnings(smoked: Smoked) -> None:
    outcomes = [outcome for outcome, _, _ in smoked.reasons()]
    assert (smoked.code, smoked.verdict["verdict"]) == (6, "return")
    assert outcomes == sorted(outcomes)  # return before warn


def test_the_smoke_test_says_whether_memory_product_or_speed_of_a_gpu_was_wrong(
    smoked: Smoked,
) -> None:
    assert "gave back 1 wrong words in" in smoked.says("smoke-memory", GPU["forgets"])
    assert "multiplies: wrong rows of 1024: bf16 1" in smoked.says(
        "smoke-product", GPU["miscounts"]
    )
    refused = smoked.says("smoke", GPU["refuses"])
    assert refused.endswith("CUDA error: system not yet initialized")
    assert "of fp32 19.5" in smoked.says("smoke-speed", GPU["crawls"])
    assert "not in the table" in smoked.read("smoke-speed", GPU["none"])


STARTS = """\
import json, os, sys, time
for line in (["library"], ["library", {"name": "torch", "cuda": None}], ["start"]):
    os.write(1, json.dumps(line).encode() + b"\\n")
"""
TRIES = (
    STARTS
    + """\
for line in (["start", {"built for": []}], ["memory"]):
    os.write(1, json.dumps(line).encode() + b"\\n")
"""
)


@pytest.mark.parametrize(
    ("worker", "code", "says"),
    [
        (TRIES + "time.sleep(60)", "smoke-failed", "it gave no answer in time, at memory"),
        (STARTS + "time.sleep(60)", "smoke-failed", "it gave no answer in time, at start"),
        (TRIES + "os.abort()", "smoke-failed", "it crashed, at memory"),
        ("import time; time.sleep(60)", "smoke-undone", "the test itself gave no answer in time"),
        ("raise SystemExit(1)", "smoke-undone", "the test itself crashed"),
    ],
    ids=["hang", "hang at its start", "crash", "slow disk", "broken python"],
)
def test_a_smoke_test_that_hangs_or_crashes_is_ended_and_the_verdict_names_what_it_was_doing(
    rig: stub.NvmlRig, tmp_path: Path, worker: str, code: str, says: str
) -> None:
    lay_programs(tmp_path / "box/current")
    (tmp_path / "box/current/onbox/smoke/stress.py").write_text(worker)
    sick = stub.NvmlRig(tmp_path, rig.python, rig.library)
    answer = smoke(sick, RTX4090, rig.python, device="cpu", limit=0.7)
    assert [reason[1] for reason in answer.reasons()] == [code]
    assert answer.says("smoke", 0) == says
    assert answer.code == (6 if code == "smoke-failed" else 0)


def test_without_torch_or_cupy_the_verdict_lists_the_smoke_test_as_not_applicable(
    rig: stub.NvmlRig,
) -> None:
    answer = smoke(rig, RTX4090, rig.python)
    assert (answer.code, answer.reasons()) == (0, [])
    assert answer.rows("smoke") == [(None, "n/a")]
    assert "NVML alone" in answer.read("smoke", None)


def test_the_files_of_an_installed_torch_tell_that_it_is_built_without_cuda(
    torch_python: Path,
) -> None:
    (site,) = (torch_python.parents[1] / "lib").glob("python3*/site-packages")
    found = torch_compat.after(torch_compat.CudaTarget((12, 4), ((8, 0),)), "auto", site)
    assert found is not None
    assert found.says == "torch 2.13.0+cpu is built without CUDA, and the box has a GPU"


def test_torch_without_cuda_is_only_a_warning_of_the_verdict(
    rig: stub.NvmlRig, torch_python: Path
) -> None:
    answer = smoke(rig, A100, torch_python)
    assert (answer.code, answer.reasons()) == (0, [("warn", "torch-no-cuda", [])])
    assert answer.out.endswith("\nwarn code=torch-no-cuda need=126\n")
    trains = smoke(rig, A100, torch_python, trains=True)
    assert (trains.code, trains.out.splitlines()[-1]) == (1, "code torch-no-cuda need=126")


def test_a_second_smoke_test_of_a_box_overwrites_the_result_of_the_first_in_the_verdict() -> None:
    hot = {"check": "heat", "code": "gpu-hot", "outcome": "warn", "gpus": [0]}
    gpu = {"verdict": "warn", "reasons": [hot], "checks": [{"check": "heat", "gpu": 0}]}
    wrong = CheckResult(
        "smoke-memory", 0, RETURN, "1 wrong word", "", "it forgets", "smoke-memory", "A"
    )
    sick = joined(gpu, [wrong])
    assert (sick["verdict"], [r["code"] for r in sick["reasons"]]) == (
        "return",
        ["smoke-memory", "gpu-hot"],
    )
    well = joined(sick, [CheckResult("smoke-memory", 0, PASS, "right")])
    assert (well["verdict"], well["reasons"]) == ("warn", [hot])
    assert [row["check"] for row in well["checks"]] == ["heat", "smoke-memory"]
