"""What stops a command before anything is changed, and the exit code that says why."""

import pytest

from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")


@pytest.fixture
def rented(rent: Rent) -> Rented:
    """A fresh box, and a repository."""
    rented = rent("vast")
    rented.user.repository()
    return rented


def test_setup_without_a_required_gpu_exits_with_6_before_it_builds(rented: Rented) -> None:
    refused = rented.run("setup", "--set", "gpu.require=true").must(6)
    assert "Nothing was built. Return this box" in refused.err
    assert refused.text.lower().count("return this box") == 1
    assert not rented.box.exists("/workspace/homework/.venv")
    assert not rented.box.exists("/root/.boxstrap/runs")
    # --json has the verdict too.
    told = rented.run("setup", "--set", "gpu.require=true", "--json").must(6).json()
    assert (told["exit"], told["verdict"]["verdict"]) == (6, "return")


def test_each_setup_prints_one_warning_if_the_profile_is_for_another_provider_than_the_boxs(
    rented: Rented,
) -> None:
    profile = (
        "version: 1\nextends: runpod\ngpu: {require: false}\ntrain: {command: python train.py}\n"
    )
    repository = rented.user.repository("other", boxstrap__yaml=profile)
    for _ in range(2):
        done = rented.run("setup").must(0)
        warned = [line for line in done.err.splitlines() if "RunPod" in line]
        assert len(warned) == 1
        assert "--profile vast" in warned[0]
    repository.commit({"boxstrap.yaml": profile.replace("runpod", "ssh")})
    done = rented.run("setup").must(0)
    assert "--profile vast" not in done.err
    assert "still billing" not in done.out  # nobody said that it is rented
