"""A GPU that fails, comes back, or has another driver after the box was set up."""

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Card
from tests.main_job.rented import Rented
from tests.nvml import scenarios

pytestmark = pytest.mark.sampled(of="module")
PROFILE = """\
version: 1
gpu: {smoke: none}
env: {LINGER: "600"}
train: {command: python train.py, resume: python train.py}
"""
HEALTHY = scenarios.A100
BROKEN = f"{scenarios.A100}\ninit = !999"


@pytest.fixture
def trained(rented: Rented, card: Card) -> Rented:
    """A healthy box whose training is alive."""
    card(rented, HEALTHY)
    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.run("setup").must(0)
    return rented


def test_a_bad_gpu_verdict_refuses_setups_and_runs_until_the_gpu_is_healthy_again(
    trained: Rented, card: Card, faults: Faults
) -> None:
    with faults.attempt("GPU lost after a setup", at="verify") as attempt:
        trained.run("stop").must(0)
        card(trained, BROKEN)
        trained.run("verify").must(6)
        assert trained.planned()["gpu"] == "broken"
        trained.user.place.joinpath("train.py").write_text("print('step 1 of other work')\n")
        assert "return this box" in trained.run("setup").must(6).text
        trained.run("run", "--", "python train.py").must(6)
        assert trained.runs() == ["train-1"]
        card(trained, HEALTHY)
        assert "step 1 of other work" in trained.run("setup").must(0).out
        assert "gpu" not in trained.planned()
        attempt.outcome("exit 6 until it is back")


@pytest.mark.parametrize("what", ["another driver", "a failed reading"])
def test_setup_does_not_train_again_after_the_gpu_driver_changed_or_its_reading_failed(
    trained: Rented, card: Card, faults: Faults, what: str
) -> None:
    with faults.attempt(f"the same work beside {what}") as attempt:
        if what == "another driver":
            card(trained, f"{scenarios.A100}\ndriver = 570.10.1")
            trained.run("verify").must(0)
        else:
            card(trained, BROKEN)
            trained.run("verify").must(6)
            card(trained, HEALTHY)
        again = trained.run("setup").must(0)
        assert "train-1: running" in again.out
        trained.box.power_off()
        trained.box.power_on()
        assert "train-1: died with the box" in trained.run("setup").must(10).out
        assert (trained.runs(), trained.trainings()) == (["train-1"], 0)
        attempt.outcome("not started again")
