"""The verdict on real boxes, with a stand-in for NVML as the driver, and real limits."""

import json

import pytest

from tests.cli import Completed
from tests.main_job.conftest import Card, Rent
from tests.main_job.rented import Rented
from tests.nvml import scenarios

pytestmark = pytest.mark.sampled(of="module")
GPU = ("--set", "gpu.require=true")


def outcomes(done: Completed) -> dict[str, str]:
    """Each check and its worst outcome."""
    return {row["check"]: row["outcome"] for row in done.json()["verdict"]["checks"]}


def test_verify_says_keep_for_a_healthy_gpu_and_return_for_a_sick_one(
    rented: Rented, card: Card
) -> None:
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


def test_verify_measures_shared_memory_disk_and_cpus_of_the_container_and_not_of_its_machine(
    rent: Rent,
) -> None:
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


def test_verify_tries_the_git_host_if_the_box_is_to_clone_from_it(rented: Rented) -> None:
    clone = ("--set", "gpu.require=false", "--set", "git.access=url")
    here = f"ssh://root@{rented.box.address}/root/homework.git"
    seen = rented.run("verify", *clone, "--set", f"git.url={here}", "--json").must(0)
    assert outcomes(seen)["git-host"] == "pass"
    nowhere = "https://no-such-host.invalid/homework.git"
    lost = rented.run("verify", *clone, "--set", f"git.url={nowhere}").must(0)
    assert "the git host no-such-host.invalid can't be reached" in lost.out
