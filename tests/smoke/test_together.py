"""GPUs that talk to each other: NVML's stand-in, the real torch on the CPU, and faults of one pair.

What `together.py` does by NCCL it does by gloo here; docs/verdict.md tells what ran on real cards.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.box_programs import lay_programs
from tests.nvml import stub
from tests.nvml.scenarios import A100
from tests.smoke.conftest import Smoked, smoke
from tests.smoke.test_smoke import QUICK

Try = Callable[..., Smoked]


@pytest.fixture
def try_group(rig: stub.NvmlRig, tmp_path: Path, torch_python: Path) -> Try:
    """Test so many GPUs, of which the pair 1 and 2 has a fault."""
    lay_programs(tmp_path / "box/current")
    folder = tmp_path / "box/current/onbox/smoke"
    stress = folder / "stress.py"
    # Each GPU alone is another test's: here that is kept short.
    small = "\n\nMODES['quick'] = Mode(0.0001, 1 << 20, 1, 0.001, 1)\nEXACT = 64\nLARGEST = 512\n"
    text = stress.read_text()
    assert QUICK in text
    stress.write_text(text + small)
    together = folder / "together.py"
    fault_of_pair = (Path(__file__).parent / "faulty_group.py").read_text()
    together.write_text(together.read_text() + fault_of_pair + "\nLARGE = 1 << 20\n")
    program = folder / "smoke.py"
    program.write_text(program.read_text().replace("TOGETHER = 20.0", "TOGETHER = 10.0"))
    box = stub.NvmlRig(tmp_path, rig.python, rig.library)

    def run(count: int, fault: str, **env: str) -> Smoked:
        scenario = f"{A100}\ncount = {count}\n"
        env["TOGETHER_FAULT"] = fault
        return smoke(box, scenario, torch_python, device="cpu", env=env)

    return run


def test_a_slow_link_between_gpus_that_compute_right_is_a_warning(try_group: Try) -> None:
    smoked = try_group(2, "crawls")
    assert smoked.read("smoke-together", None) == (
        "sums over 2 GPUs right; 2 of 2 direct ways from card to card"
    )
    assert smoked.row("smoke-together-speed", None)["expected"] == "300 GB/s over NVLink"
    assert ("warn", "smoke-together-slow", []) in smoked.reasons()
    assert not list(Path(smoked.folder).glob("smoke-*")), "nothing is left behind"


def test_a_hanging_pair_of_gpus_is_named_with_the_nccl_variable_to_set(try_group: Try) -> None:
    smoked = try_group(3, "hangs")
    assert smoked.code == 0
    (reason,) = [r for r in smoked.verdict["reasons"] if r["check"] == "smoke-together"]
    assert (reason["outcome"], reason["code"]) == ("warn", "smoke-p2p")
    assert "all-reduce gave no answer in time" in reason["says"]
    assert "The pairs that can't: 1 and 2." in reason["says"]
    assert 'env: {NCCL_P2P_DISABLE: "1"}' in reason["advice"]


@pytest.mark.sampled(of="module")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("refuses", "all-reduce failed on GPU 1: NCCL error: unhandled cuda error."),
        ("lies", "GPU 2 got 1 wrong sums"),
    ],
)
def test_the_smoke_test_names_the_pair_of_gpus_whose_sum_is_wrong_after_a_transfer(
    try_group: Try, fault: str, says: str
) -> None:
    smoked = try_group(3, fault)
    assert ("warn", "smoke-p2p", []) in smoked.reasons()
    assert says in smoked.says("smoke-together", None)
    assert "The pairs that can't: 1 and 2." in smoked.says("smoke-together", None)


@pytest.mark.sampled(of="module")
def test_a_box_whose_gpus_can_not_reach_each_other_gets_verdict_return(try_group: Try) -> None:
    smoked = try_group(3, "deaf")
    assert smoked.code == 6
    assert ("return", "smoke-together", []) in smoked.reasons()


@pytest.mark.sampled(of="module")
def test_a_hanging_pair_of_gpus_passes_once_nccl_p2p_disable_is_set(try_group: Try) -> None:
    smoked = try_group(3, "hangs", NCCL_P2P_DISABLE="1")
    assert smoked.row("smoke-together", None)["outcome"] == "pass"


@pytest.mark.sampled(of="module")
def test_the_smoke_test_names_the_one_hanging_pair_of_eight_gpus(try_group: Try) -> None:
    smoked = try_group(8, "hangs")
    assert "The pairs that can't: 1 and 2." in smoked.says("smoke-together", None)
