"""`down` gives a rented box back: refused while anything would be lost, then it is destroyed."""

import json
import re
import shutil

from tests.boxes.startup import BOX_ID
from tests.cli import RESULTS
from tests.main_job.rented import Rented
from tests.providers.accounts import SimulatedAccount, SimulatedBox

TRAIN = """\
import os
os.makedirs("out", exist_ok=True)
open("out/model.pt", "w").write("trained")
print("step 1", flush=True)
"""


def test_down_exits_with_9_while_work_would_be_lost_and_destroys_the_box_once_all_is_home(
    rented: Rented, account: SimulatedAccount
) -> None:
    user, box = rented.user, rented.box
    user.env |= account.environment()
    user.env["BOXSTRAP_SSH_CONFIG"] = str(user.home / ".ssh/config")
    other = SimulatedBox("78", address="10.9.9.9")
    account.boxes = [SimulatedBox(BOX_ID, address=box.address, port=box.port), other]
    repository = user.repository(boxstrap__yaml=RESULTS, train__py=TRAIN)
    rented.run("setup", "--name", "gpu").must(0)
    rented.run("wait").must(0)
    tree = rented.tree

    def entries() -> str:
        return "".join(each.read_text() for each in user.state.glob("ssh/*") if each.is_file())

    assert "Host gpu" in entries()
    rented.as_user(f"cd {tree} && echo more >>train.py && echo new >notes.txt")
    rented.as_user(
        f"cd {tree} && git config user.name x && git config user.email x@x && git stash -q"
        " && echo again >>train.py"
    )
    # A dry run reports all of it and changes nothing.
    look = user.run("--dry", "down", "--host", "gpu", "--json").must(9).json()
    assert {one["kind"] for one in look["unsafe"]} == {"results", "log", "edits", "commits"}
    # What can be brought home is; what can't is why `down` is refused.
    refused = user.run("down", "--host", "gpu").must(9).err
    assert "homework: commits that are only there: refs/stash" in refused
    assert "train-1" not in refused.partition("not destroyed")[2]
    home = repository.root / "boxstrap-results/gpu/train-1/out/model.pt"
    assert home.read_text() == "trained"
    assert repository.git("show", "refs/boxstrap/gpu/edits:notes.txt") == "new"
    assert account.destroyed == []
    # The user drops the stash, and a file that was pulled is deleted here.
    rented.as_user(f"cd {tree} && git stash drop -q")
    home.unlink()
    look = user.run("--dry", "down", "--host", "gpu", "--json").must(9).json()
    assert [one["what"] for one in look["unsafe"]] == [
        "out/model.pt: the file here is not what was pulled"
    ]
    done = user.run("down", "--host", "gpu").must(0)
    assert f"(vast:{BOX_ID}): destroyed, and no longer listed; about $" in done.out
    assert home.read_text() == "trained"
    assert (account.destroyed, account.boxes) == ([BOX_ID], [other])
    # Its ssh entry and host key pin are gone; a record of what it was and cost is kept.
    assert "Host gpu" not in entries()
    assert not [*user.state.glob("boxes/*")]
    (record,) = user.state.glob("ended/gpu-*/box.json")
    assert json.loads(record.read_text())["extra"]["spent"] > 0
    assert [*record.parent.glob("receipts/*/train-1.json")]
    # Its run is shown from home, also where the box was forgotten.
    missing = user.run("logs", "--host", "gpu", "--run", "train-9").must(2).err
    assert "it was given back, and of its runs came home:" in missing
    for _ in range(2):
        assert re.search(r"train-1 +gpu \(gone\) ", user.run("runs").must(0).out)
        logs = user.run("logs", "--run", "train-1").must(0)
        assert (logs.out, "from home, as of " in logs.err) == ("step 1\n", True)
        shutil.rmtree(user.state / "ended", ignore_errors=True)
