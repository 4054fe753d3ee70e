"""A link that dies silently is noticed and reported; the box continues, and so does the link."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from bootstrap.steps.plan import NAMES
from tests.boxes import Rig
from tests.cli import Completed, Running, User
from tests.faults.plugin import Drawn, Faults
from tests.main_job.rented import Rented
from tests.main_job.slow import await_step, go_on, seen, slow
from tests.main_job.used import start_used
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sampled(of="module")

BLACK_HOLE = "link black-holed"
NOTICED_S = 20
SSH = 22
STEPS = [name for name in NAMES if name not in ("smoke", "data", "prepare", "lease")]
"""Of a profile that asks for no GPU."""
ON_A_FIRST_SETUP = ("preflight", "tools", "agent", "ssh", "gpu")
"""A box that was set up before has nothing to do in them."""
# A training that is silent at first: the wait for its first lines can be cut, too.
SILENT = """\
import time
time.sleep(20)
print("step 1 loss 0.5", flush=True)
time.sleep(600)
"""


def noticed_and_outlived(
    rented: Rented, going: Running, faults: Faults, at: str, let_go: Callable[[], object]
) -> Completed:
    """Cut the link, and check that this is noticed and that the setup ends well."""
    with faults.attempt(BLACK_HOLE, at) as attempt:
        rented.box.blackhole(SSH)
        attempt.begin()
        let_go()
        going.await_said("link       lost", timeout=PATIENCE_S)
        attempt.noticed(at_most=NOTICED_S)
        if at in NAMES and at != "repo":  # which needs the commit from here
            await_over(rented)  # the setup continues without a link
        rented.box.unblackhole()
        done = going.end().must(0)
        assert "link       back" in done.err
        assert "step 1 loss" in done.out
        assert_each_line_once(rented, done)
        assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    return done


def await_over(rented: Rented) -> None:
    said: Callable[[], str] = lambda: "".join(seen(rented, "setups/*/status.json"))  # noqa: E731
    wait_until(lambda: '"state":"over"' in said(), said)


def assert_each_line_once(rented: Rented, done: Completed) -> None:
    """Check that what was shown is what the box reported: no line is lost or repeated.

    (A step whose progress arrives before its start is shown from there on.)
    """
    told = rented.box.run("cat /workspace/.boxstrap/setups/*/events.jsonl").splitlines()
    events = [json.loads(line) for line in told]
    for step in NAMES:
        shown = done.err.count(f"{step:9}  ok")
        assert shown == [(e["step"], e["event"]) for e in events].count((step, "ok")), done.err
        assert done.err.count(f"{step:9}  start") <= 1, done.err


def test_setup_says_lost_if_the_link_is_black_holed_at_any_step_and_the_box_goes_on(
    mirror_rig: Rig, shared_folder: Path, tmp_path: Path, faults: Faults, drawn: Drawn[str]
) -> None:
    def one(step: str) -> None:
        if step in ON_A_FIRST_SETUP:
            box = mirror_rig.start("vast")
        else:
            box = start_used(mirror_rig, "vast", shared_folder)
        # Each has a user of its own, since all are used at the same time.
        rented = Rented(User(tmp_path / step / "home"), box)
        repository = slow(rented)
        if step == "train":
            repository.commit({"train.py": SILENT})
            go_on(rented)
        with closing(rented.begin("setup")) as going:
            await_step(rented, step)
            noticed_and_outlived(rented, going, faults, step, lambda: go_on(rented))
        box.stop()

    with ThreadPoolExecutor() as pool:
        list(pool.map(one, drawn(STEPS)))


def test_logs_follow_loses_no_line_through_a_black_holed_link(
    rented: Rented, faults: Faults
) -> None:
    counting = "import time\nfor n in range(400):\n    print('line', n, flush=True)\n"
    rented.user.repository(train__py=counting + "    time.sleep(0.05)\n")
    rented.run("setup").must(0)
    following = rented.begin("logs", "-f")
    with faults.attempt(BLACK_HOLE, "logs -f") as attempt, closing(following) as going:
        first = going.line()  # it follows
        rented.box.blackhole(SSH)
        attempt.begin()
        going.await_said("link       lost", timeout=PATIENCE_S)
        attempt.noticed(at_most=NOTICED_S)
        rented.box.unblackhole()
        done = going.end().must(0)
        assert first + done.out == "".join(f"line {n}\n" for n in range(400))
