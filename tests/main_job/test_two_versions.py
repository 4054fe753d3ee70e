"""An older version here and a newer one's box, and the reverse: docs/support.md's table."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import PROFILE, Completed
from tests.main_job.conftest import Rent
from tests.main_job.earlier import before, kept, unpacked
from tests.main_job.rented import Rented
from tests.plain_environment import HERE

pytestmark = pytest.mark.boxes

NOT_RELEASED = "0c8b50c4"
"""The commit that stands for the last version until one is released."""
LIVE = PROFILE.replace("train:", 'env: {LINGER: "600"}\ntrain:').replace(
    "{command: python train.py}",
    "{command: 'mkdir -p out; echo best >out/it; python train.py', results: [out/]}",
)
ROWS = re.findall(r"^\| (`.*`) \| (.*) \|$", (HERE / "docs/support.md").read_text(), re.MULTILINE)


def last_version() -> str:
    """Return the last tag below this commit, or what stands for it."""
    words = ["git", "-C", str(HERE), "describe", "--tags", "--abbrev=0", "HEAD^"]
    tag = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return tag or NOT_RELEASED


def test_the_table_has_what_is_tried() -> None:
    named = {name for row, _ in ROWS for name in re.findall(r"`(\w+)`", row)}
    assert named == {"status", "logs", "top", "plan", "verify", "setup", "pull", "run", "stop"}


@pytest.mark.parametrize("older", ["here", "on the box"])
def test_one_goes_on_with_the_box_of_the_other(rent: Rent, tmp_path: Path, older: str) -> None:
    earlier = unpacked(last_version(), tmp_path)
    rented = rent("vast", by=earlier) if older == "on the box" else rent("vast", used=True)
    place = rented.user.repository(boxstrap__yaml=LIVE, requirements__txt="iniconfig>=2\n").root

    def old(*words: str) -> Completed:
        return before(rented, earlier, *words).end()

    first, second = (rented.run, old) if older == "here" else (old, rented.run)
    first("setup").must(0)
    was = kept(rented, rented.tree)
    assert "train-1" in second("status").must(0).out
    assert second("logs").must(0).out == "step 1 loss 0.5 -\n"
    assert "train-1 running" in second("top", "--looks", "1").must(0).out
    assert re.search("train +(already right|a run is alive) ", second("plan").must(0).out)
    assert "Keep this box." in second("verify").must(0).out
    assert "train-1: running" in second("setup").must(0).out
    assert kept(rented, rented.tree) == was
    goes_on(rented, place, second)
    # And back again.
    assert "again" in first("logs").must(0).out
    assert rented.runs() == ["train-1", "train-2"]
    refused = second("setup", "--no-such-option").must(2)
    assert "--no-such-option" in refused.err


def goes_on(rented: Rented, place: Path, second: Callable[..., Completed]) -> None:
    """Bring results home, end the run and begin another, all by the second version."""
    assert "train-1: 1 file, 5 B" in second("pull").must(0).out
    (home,) = place.glob("boxstrap-results/*/train-1/out/it")
    assert home.read_text() == "best\n"
    assert "stopped: train-1" in second("stop").must(0).out
    assert rented.trainings() == 0
    assert "again" in second("run", "--", "echo again").must(0).text
