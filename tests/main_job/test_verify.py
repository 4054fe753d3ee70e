"""The verdict on real boxes, with a stand-in for NVML as the driver, and real limits."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import Completed
from tests.main_job.conftest import Card, Rent
from tests.nvml import scenarios, stub

pytestmark = [
    pytest.mark.sampled(of="module"),
    pytest.mark.boxes,
    pytest.mark.skipif(stub.compiler() is None, reason="no C compiler for the stand-in for NVML"),
]
GPU = ("--set", "gpu.require=true")


def outcomes(done: Completed) -> dict[str, str]:
    """Each check and its worst outcome."""
    return {row["check"]: row["outcome"] for row in done.json()["verdict"]["checks"]}


def test_a_healthy_card_is_kept_and_the_same_box_with_a_sick_one_is_not(
    rent: Rent, card: Card
) -> None:
    rented = rent("vast", used=True)
    rented.user.repository()
    card(rented, scenarios.RTX4090)
    asked = (*GPU, "--set", "gpu.name=RTX 4090", "--set", "gpu.min_pcie_generation=4")
    kept = rented.run("verify", *asked, "--strict").must(0)
    assert kept.out.endswith("Keep this box.\n")
    assert "NVIDIA GeForce RTX 4090" in kept.out
    card(rented, f"{scenarios.A100}\ncount = 8\ngpu.5.ecc_now = 3")
    page = rented.user.home / "page.html"
    sick = rented.run("verify", *GPU, "--set", "gpu.count=8", "--report", str(page)).must(6)
    assert "GPU 5: uncorrected memory errors" in sick.out
    assert "report the machine" in sick.out  # what Vast.ai's renters can do
    assert "GPU 5: uncorrected memory errors" in page.read_text()
    weighed = ("--set", "gpu.checks.ecc=warn")
    warned = rented.run("verify", *GPU, *weighed).must(0)
    assert warned.out.endswith("Keep this box, with 1 warning.\n")
    rented.run("setup", *GPU, *weighed, "--strict").must(6)
    assert not rented.box.exists("/workspace/homework/.venv")
    events = f"cat {rented.folder}/setups/*/events.jsonl"
    assert '"step":"gpu","event":"fail","code":"gpu-ecc","rc":6' in rented.box.run(events)
    rented.run("setup", *GPU, *weighed).must(0)
    assert '"step":"gpu","event":"warn","code":"gpu-ecc"' in rented.box.run(events)
    said = json.loads(rented.box.read(f"{rented.folder}/gpu.json"))
    assert rented.box.read(f"{rented.folder}/gpu.driver") == f"{said['driver']}\n"


INIT = {4: "no-permission", 9: "no-driver", 12: "nvml-missing", 15: "gpu-sick", 999: "gpu-detached"}


def test_a_fault_of_every_code_on_a_box(
    rent: Rent, card: Card, seeded: random.Random, request: pytest.FixtureRequest
) -> None:
    """Uses the agent that a setup places; every fault is injected in tests/nvml."""
    rented = rent("vast", used=True)
    card(rented, scenarios.A100)
    rented.run("verify", *GPU).must(0)
    rented.box.run("mknod /dev/nvidia0 c 195 0; mknod /dev/nvidiactl c 195 255")
    one_of_each = {(fault.code, fault.outcome): fault for fault in scenarios.FAULTS.values()}
    cases = {f"fault {name}": fault for name, fault in one_of_each.items()}
    cases |= {
        f"init {code}": scenarios.Fault(scenarios.A100, f"init = !{code}", "return", said)
        for code, said in INIT.items()
    }
    for name, text in scenarios.HEALTHY.items():
        cases[f"healthy {name}"] = scenarios.Fault(text, "", "", "", scenarios.ORDERS[name])
    if not request.config.getoption("every"):
        cases = dict(seeded.sample([*cases.items()], len(cases) // 3))
    root = Path(f"/proc/{rented.box._alive()}/root/tmp/cases")
    root.mkdir()
    for number, case in enumerate(cases.values()):
        (root / f"{number}.scenario").write_text(f"{case.card}\n{case.wrong}\n")
        (root / f"{number}.order").write_text(json.dumps(case.order))
    said = rented.box.run(
        "cd /workspace/.boxstrap; for f in /tmp/cases/*.scenario; do"
        "  NVML_SCENARIO=$f agent/bin/python box/current/onbox verdict.verify"
        " --order ${f%.scenario}.order --out -;"
        " done; true"
    )
    read = {
        int(name.stem): json.loads(line)
        for name, line in zip(
            sorted(root.glob("*.scenario"), key=lambda file: file.name),
            said.splitlines(),
            strict=True,
        )
    }
    for number, (name, case) in enumerate(cases.items()):
        found = [(each["outcome"], each["code"]) for each in read[number]["reasons"]]
        assert found == ([(case.outcome, case.code)] if case.code else []), name


def test_what_a_run_of_ours_uses_is_not_held_against_the_box(rent: Rent, card: Card) -> None:
    rented = rent("vast", used=True)
    train = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
    rented.user.repository(train__py=train)
    card(rented, scenarios.A100)
    rented.run("setup", *GPU).must(0)
    card(rented, f"{scenarios.A100}\ngpu.memory_v2 = 81920 79000\ngpu.throttle = 0x8")
    busy = rented.run("verify", *GPU, "--json").must(0)
    na = ("memory-used", "throttling", "heat", "disk-speed")
    assert {outcomes(busy)[name] for name in na} == {"n/a"}
    rented.run("stop").must(0)
    idle = rented.run("verify", *GPU, "--json").must(6)
    assert (outcomes(idle)["memory-used"], outcomes(idle)["throttling"]) == ("return", "warn")


def test_a_driver_that_hangs_costs_ten_seconds(rent: Rent, card: Card) -> None:
    rented = rent("vast", used=True)
    card(rented, f"{scenarios.A100}\ngpu.0.remapped = hang")
    hung = rented.run("verify", "--json").must(6)
    (reason,) = hung.json()["verdict"]["reasons"]
    assert reason["code"] == "gpu-hang"
    assert "asked for remapped of GPU 0" in reason["says"]
    assert hung.json()["verdict"]["seconds"] < 10
    assert outcomes(hung)["cpus"] == "pass"  # the machine was still read


def test_what_a_container_grants_is_what_counts(rent: Rent) -> None:
    rented = rent("smallshm", disk="3G")
    sshd = rented.box.run("pgrep -ox sshd").strip()
    rented.box.run(f"taskset -pc 0 {sshd}")
    free = ("--set", "gpu.require=false")
    poor = rented.run("verify", *free).must(0)
    assert "this box, with 2 warnings" in poor.out
    assert "shared memory (/dev/shm) is 64 MiB" in poor.out
    assert "--shm-size" in poor.out
    assert "GiB free: an environment with torch" in poor.out
    assert "1 of the machine's" in poor.out
    ignored = ("--set", "gpu.checks.shm=ignore", "--set", "gpu.checks.disk=ignore")
    ordered = ("--set", "box.min_cpus=2", *ignored)
    short = rented.run("verify", *free, *ordered, "--json").must(6)
    assert [each["code"] for each in short.json()["verdict"]["reasons"]] == ["box-cpus"]
    assert (outcomes(short)["shm"], outcomes(short)["disk"]) == ("ignored", "ignored")


def test_an_index_that_does_not_answer_is_a_warning(rent: Rent, mirror_rig: Rig) -> None:
    rented = rent("vast", used=True)
    free = ("--set", "gpu.require=false")
    assert outcomes(rented.run("verify", *free, "--json").must(0))["index"] == "pass"
    try:
        mirror_rig.mirror.stall()
        silent = rented.run("verify", *free, "--json").must(0)
    finally:
        mirror_rig.mirror.mend()
    (reason,) = silent.json()["verdict"]["reasons"]
    assert "can't be used: no answer within 1.5 s" in reason["says"]
    assert outcomes(silent)["clock"] == "pass"  # compared with this machine's clock only
    try:
        mirror_rig.mirror.break_with(503)
        broken = rented.run("verify", *free, "--json").must(0)
    finally:
        mirror_rig.mirror.mend()
    (reason,) = broken.json()["verdict"]["reasons"]
    assert (reason["code"], reason["outcome"]) == ("index-slow", "warn")
    assert "it answers 503" in reason["says"]


def test_a_git_host_is_asked_where_the_box_is_to_clone_from_it(rent: Rent) -> None:
    rented = rent("vast", used=True)
    clone = ("--set", "gpu.require=false", "--set", "git.access=url")
    here = f"ssh://root@{rented.box.address}/root/homework.git"
    seen = rented.run("verify", *clone, "--set", f"git.url={here}", "--json").must(0)
    assert outcomes(seen)["git-host"] == "pass"
    nowhere = "https://no-such-host.invalid/homework.git"
    lost = rented.run("verify", *clone, "--set", f"git.url={nowhere}").must(0)
    assert "the git host no-such-host.invalid can't be reached" in lost.out
