"""The GPU checks of the compact and minimal editions, with the full one's cards and faults."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from bootstrap.protocol import verdict
from bootstrap.render.editions import compact_files, render_minimal
from tests.box_programs import onbox
from tests.nvml import stub
from tests.nvml.scenarios import A100, FAULTS, HEALTHY, ORDERS
from tests.unit.render.scripts import WORK, profile

BEYOND = {"gpu-power", "gpu-throttle", "gpu-hot", "gpu-bus", "gpu-nvlink", "gpu-unread"}
"""What the compact check leaves out, as docs/doors.md says."""
COMPACT_FAULTS = [
    name
    for name, fault in FAULTS.items()
    if fault.outcome == "return" and fault.code not in BEYOND and "smoke" not in fault.code
]


def check(rig: stub.NvmlRig, scenario: str, order: Any = None) -> tuple[int, str, verdict.Verdict]:
    """Run the compact check as a paste places it; return its exit code, lines and document."""
    box = rig.folder / "compact" / "box"
    for name, text in compact_files():
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        (box / name).write_text(f"{text}\n")
    (rig.folder / "order").write_text(json.dumps(order or {}))
    result = rig.folder / "compact.json"
    words = [
        str(onbox(box)),
        "verdict.verify",
        "--order",
        str(rig.folder / "order"),
        "--out",
        str(result),
    ]
    done = run(rig, scenario, words)
    assert done.returncode in (0, 6), done.stderr
    return done.returncode, done.stdout, verdict.read_verdict(result.read_bytes())


def run(
    rig: stub.NvmlRig, scenario: str, words: list[str], program: str = ""
) -> subprocess.CompletedProcess[str]:
    (rig.folder / "scenario").write_text(scenario)
    environment = {
        "PATH": os.environ["PATH"],
        "NVML_SCENARIO": str(rig.folder / "scenario"),
        "LD_LIBRARY_PATH": str(rig.library.parent),
    }
    return subprocess.run(
        [sys.executable, *words],
        input=program,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("card", HEALTHY)
def test_a_healthy_card_is_kept(rig: stub.NvmlRig, card: str) -> None:
    code, lines, document = check(rig, HEALTHY[card], ORDERS[card])
    assert (code, document.verdict, document.reasons) == (0, "keep", ())
    assert "verdict keep" in lines
    assert document.gpus[0].name in HEALTHY[card]


@pytest.mark.sampled
@pytest.mark.parametrize("name", COMPACT_FAULTS)
def test_a_fault_is_seen_and_its_absence_too(rig: stub.NvmlRig, name: str) -> None:
    fault = FAULTS[name]
    code, lines, document = check(rig, f"{fault.card}\n{fault.wrong}", fault.order)
    assert (code, document.verdict, document.reasons[0].code) == (6, "return", fault.code)
    assert f"reason return {fault.code} " in lines
    code, _, document = check(rig, f"{fault.card}\n{fault.quiet}", fault.order)
    assert (code, document.verdict) == (0, "keep")


@pytest.mark.parametrize("init", [4, 9, 12, 15, 18, 999])
def test_a_driver_that_does_not_start_is_a_return(rig: stub.NvmlRig, init: int) -> None:
    assert check(rig, f"init = !{init}")[0] == 6
    code, _, document = check(rig, f"init = !{init}", {"require": False})
    # Like the full check: a box that needs no GPU may have no driver and no trace of a card.
    assert (code, document.verdict) == (0, "keep" if init in (9, 12) else "warn")


MINIMAL = {
    "healthy": ("", [], 0),
    "lost": ("init = !15", [], 6),
    "no GPU": ("count = 0", [], 6),
    "too few": ("", ["gpu.count=2"], 6),
    "another name": ("", ["gpu.name=H100"], 6),
    "none of these names": ("", ["gpu.name=H100, RTX 4090"], 6),
    "one of these names": ("", ["gpu.name=[H100, A100]"], 0),
    "its name": ("", ["gpu.name=A100", "gpu.min_memory_gib=80"], 0),
    "too little memory": ("", ["gpu.min_memory_gib=141"], 6),
    "memory in use": ("gpu.memory = 81920 9000", [], 6),
    "memory errors": ("gpu.ecc_now = 3", [], 6),
    "not required": ("init = !9", ["gpu.require=false"], 0),
}


@pytest.mark.parametrize("case", MINIMAL)
def test_the_minimal_script_judges_too(rig: stub.NvmlRig, case: str) -> None:
    wrong, sets, code = MINIMAL[case]
    script = render_minimal(profile("vast", *sets), WORK)
    program = re.search(r"<<'P' \|\| \{\n(.*?)\nP\n", script, re.DOTALL)
    assert program
    done = run(rig, f"{A100}\n{wrong}", ["-", "/nowhere/*/pid"], program[1])
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
