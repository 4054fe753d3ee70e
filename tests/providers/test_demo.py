"""A repository's only box is rented by its first run, and used by the next."""

from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.providers import demo

pytestmark = pytest.mark.sampled(of="module")


def test_run_up_rents_a_box_only_when_the_repository_has_no_box(
    mirror_rig: Rig, shared_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = "boxstrap run --up --max-price 0.60 -- python train.py"
    typed = (run, "boxstrap wait", run, "boxstrap wait", "boxstrap boxes", "boxstrap down")
    rented, destroyed = demo.show(mirror_rig, tmp_path / "home", typed, shared_folder)
    assert rented == destroyed == ["9001"]
    told = capfd.readouterr().out
    assert told.startswith("building a box on this machine")
    printed = [part.partition("\n")[2] for part in told.split("\n$ ")[1:]]  # by each command
    assert "train-1" in printed[0]
    assert "train-1 finished" in printed[1]
    assert "train-2" in printed[2]
    assert "train-2 finished" in printed[3]
    assert "vast-9001" in printed[4]
