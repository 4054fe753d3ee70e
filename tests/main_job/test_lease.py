"""A lease that a setup sets: its holder is shown, only the user extends it, and it destroys a box
only if everything was pulled."""

import re
import subprocess

import pytest

from tests.boxes.startup import BOX_ID
from tests.cli import RESULTS
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.providers.accounts import KEY, SimulatedAccount, SimulatedBox, simulated
from tests.waiting import wait_until

pytestmark = pytest.mark.sampled(of="module")
LONG = """\
import time
open("out/log", "w").write("step 1")
print("step 1", flush=True)
time.sleep(600)
"""
LEASE = ("--set", "lease.hours=5", "--set", "lease.idle=2h")


def test_setup_warns_that_no_lease_is_enforced_while_the_providers_account_gives_no_answer(
    rent: Rent,
) -> None:
    rented = rent("vast", used=True, environ={"CONTAINER_API_KEY": KEY})
    rented.user.repository(boxstrap__yaml=RESULTS, train__py=LONG, **{".gitignore": "out/\n"})
    hook = "/root/onstart.sh"
    rented.box.run(f"printf '%s\\n' '#!/bin/bash' 'env >>/etc/environment' 'exec true' >{hook}")
    made = rented.run("setup", *LEASE).must(0)
    assert (
        "nothing on this box holds the lease yet: the account has not answered the box" in made.err
    )
    assert re.search("lease: (5 h 00|4 h 5[0-9]) min left", made.out)
    again = rented.run("setup", *LEASE).must(0)
    assert "nothing to do" in again.out
    assert "nothing on this box holds it" in again.out
    lease = rented.status()["lease"]
    assert (lease["held"], lease["limits"]["hours"]["limit"]) == ("no-answer", 5 * 3600)
    said = rented.run("lease", "--extend", "2h").must(0).out
    assert "extended by 2 h 00 min" in said
    assert rented.status()["lease"]["limits"]["hours"]["limit"] == 7 * 3600
    assert "is no time" in rented.run("lease", "--extend", "soon").must(2).err
    # A killed monitor is started again, and keeps the time that was counted.
    counted = rented.status()["lease"]["limits"]["hours"]["is"]
    rented.box.run("pkill -KILL -f 'runs[.]monitor'")
    rented.box.run(
        "for i in $(seq 1500); do pgrep -f 'runs[.]monitor' && exit; sleep 0.1; done; false"
    )
    assert rented.status()["lease"]["limits"]["hours"]["is"] >= counted
    # The provider's start-up hook starts it again; repeated setups add only one line to it.
    rented.box.run("pkill -KILL -f 'runs[.](keep_)?monitor'")
    assert "its monitor is gone" in rented.run("status").must(0).out
    first, ours, *rest = rented.box.run(f"cat {hook}").splitlines()
    assert (first, rest) == ("#!/bin/bash", ["env >>/etc/environment", "exec true"])
    assert " runs.keep_monitor " in ours
    rented.box.run(f"bash {hook}")
    rented.box.run(
        "for i in $(seq 500); do pgrep -f 'runs[.]monitor' && exit; sleep 0.1; done; false"
    )
    assert rented.status()["lease"]["held"] == "no-answer"
    # A setup without a lease has it held again; one with other terms continues the count.
    rented.box.run("pkill -KILL -f 'runs[.](keep_)?monitor'")
    rented.run("setup").must(0)
    assert rented.status()["lease"]["held"] == "no-answer"
    rented.run("setup", "--set", "lease.hours=9").must(0)
    lease = rented.status()["lease"]["limits"]
    assert list(lease) == ["hours"]
    assert lease["hours"]["limit"] == 11 * 3600
    assert lease["hours"]["is"] >= counted
    assert "nothing ends this box" in rented.run("lease", "--release").must(0).out
    assert rented.status()["lease"] is None
    assert "has no lease" in rented.run("lease").must(2).err
    with simulated("vast") as account:
        account.boxes = [SimulatedBox(BOX_ID), SimulatedBox("2000")]
        _only_what_was_pulled_is_destroyed(rented, account, hook)


def _only_what_was_pulled_is_destroyed(
    rented: Rented, account: SimulatedAccount, hook: str
) -> None:
    """Uses the box's own programs, and an account that the box reaches through a tunnel."""
    rented.run("setup", "--set", "lease.hours=9", "--set", "lease.then=destroy").must(0)
    rented.run("stop").must(0)
    rented.run("pull").must(0)
    look = (
        f"cd {rented.folder} && agent/bin/python -B box/current/onbox lease.safety {rented.folder}"
    )
    assert rented.box.run(look) == "over\n"
    rented.box.run(
        f"cd {rented.tree} && cp train.py /tmp && echo '#' >>train.py && echo x >notes.txt"
        " && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m here"
    )
    assert set(rented.box.run(look).splitlines()) == {
        *("train.py: edited here", "notes.txt: new here", "over"),
        *("HEAD: commits that were made here", "refs/heads/main: commits that were made here"),
    }
    rented.box.run(
        f"cd {rented.tree} && cp /tmp/train.py . && rm notes.txt && git reset -q --soft HEAD~"
    )
    assert rented.box.run(look) == "over\n"
    rented.box.run(f"echo 'step 2' >>{rented.tree}/out/log")
    port = account.url.rpartition(":")[2]
    there = rented.box.ssh_command("-N", "-R", f"{port}:127.0.0.1:{port}")
    tunnel = subprocess.Popen(there, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        rented.box.run("pkill -KILL -f 'runs[.](keep_)?monitor'")
        terms = f"{rented.folder}/lease.json"
        rented.box.run(f"sed -i 's/:32400.0/:0.5/' {terms}")
        rented.box.run(f"BOXSTRAP_VAST_API={account.url} bash {hook}")
        wait_until(lambda: account.boxes[0].state == "stopped")
        assert account.destroyed == []
        why = "train-1: out/log was changed after its end, and no pull brings that"
        assert f"stopped, not destroyed ({why})" in rented.run("lease").must(0).out
        # The user starts it again on the provider's page, extends the lease, gives what was changed
        # a name of its own and pulls everything.
        rented.box.run(f"cd {rented.tree}/out && mv log changed")
        account.boxes[0].state = "running"
        rented.run("lease", "--extend", "2h").must(0)
        rented.run("pull").must(0)
        rented.box.run(f"sed -i 's/:0.5/:-7200.0/' {terms}")
        wait_until(lambda: account.destroyed == [BOX_ID])
        assert [box.state for box in account.boxes] == ["running"]
    finally:
        tunnel.terminate()
        tunnel.wait()


def test_a_lease_on_a_box_without_api_key_shuts_the_box_down_at_its_end(rent: Rent) -> None:
    rented = rent("ec2", used=True)
    rented.user.repository(boxstrap__yaml=RESULTS, train__py=LONG, **{".gitignore": "out/\n"})
    made = rented.run("setup", "--set", "lease.hours=9", "--set", "lease.dollars=20").must(0)
    assert "the box holds the lease until it is restarted" in made.err
    assert "held by the box until it is restarted, which shuts itself down" in made.out
    lease = rented.status()["lease"]
    assert (lease["held"], lease["by"], lease["unpriced"]) == ("no-boot", "shutdown", False)
    assert '"price":1.006,' in rented.box.run(f"cat {rented.folder}/lease.state")
    assert rented.box.run("cat /var/log/shutdowns 2>&1 || :").endswith(
        "No such file or directory\n"
    )
    rented.box.run(f"sed -i 's/:32400.0/:0.5/' {rented.folder}/lease.json")
    wait_until(lambda: "root -h now\n" in rented.box.run("cat /var/log/shutdowns 2>&1 || :"))
    # The run was asked to end before that.
    assert rented.box.run(f"cat {rented.folder}/runs/*/*/ended") == "stop\n"
    # It goes on being asked for, as an account is, while the box is still there.
    asked = len(rented.box.run("cat /var/log/shutdowns"))
    wait_until(lambda: len(rented.box.run("cat /var/log/shutdowns")) > asked)
