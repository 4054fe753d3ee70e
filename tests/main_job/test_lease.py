"""A lease that a setup sets: who holds it is said, and a person alone extends it."""

from __future__ import annotations

import pytest

from tests.cli import PROFILE
from tests.main_job.conftest import Rent

pytestmark = pytest.mark.boxes
LONG = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
LEASE = ("--set", "lease.hours=5", "--set", "lease.idle=2h")


def test_a_box_that_cant_ask_its_account_says_so_and_is_extended(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository(boxstrap__yaml=PROFILE, train__py=LONG)
    hook = "/root/onstart.sh"
    rented.box.run(f"printf '%s\\n' '#!/bin/bash' 'env >>/etc/environment' 'exec true' >{hook}")
    made = rented.run("setup", *LEASE).must(0)
    assert "nothing on this box holds the lease yet: the account does not answer it" in made.err
    assert "lease: 5 h 00 min left" in made.out
    again = rented.run("setup", *LEASE).must(0)
    assert "nothing to do" in again.out
    assert "nothing on this box holds it" in again.out
    lease = rented.status()["lease"]
    assert (lease["held"], lease["limits"]["hours"]["limit"]) == ("no-answer", 5 * 3600)
    said = rented.run("lease", "--extend", "2h").must(0).out
    assert "extended by 2 h 00 min" in said
    assert rented.status()["lease"]["limits"]["hours"]["limit"] == 7 * 3600
    assert "is no time" in rented.run("lease", "--extend", "soon").must(2).err
    # Whoever is killed is begun again; what was counted stays.
    counted = rented.status()["lease"]["limits"]["hours"]["is"]
    rented.box.run("pkill -KILL -f 'box/[m]onitor.py'")
    rented.box.run(
        "for i in $(seq 150); do pgrep -f 'box/[m]onitor.py' && exit; sleep 0.1; done; false"
    )
    assert rented.status()["lease"]["limits"]["hours"]["is"] >= counted
    # What the provider runs at each start begins it again, once however often it was set up.
    rented.box.run("pkill -KILL -f 'box/([l]ease.sh|[m]onitor.py)'")
    assert "its monitor is gone" in rented.run("status").must(0).out
    first, ours, *rest = rented.box.run(f"cat {hook}").splitlines()
    assert (first, rest) == ("#!/bin/bash", ["env >>/etc/environment", "exec true"])
    assert "/box/lease.sh" in ours
    rented.box.run(f"bash {hook}")
    rented.box.run(
        "for i in $(seq 150); do pgrep -f 'box/[m]onitor.py' && exit; sleep 0.1; done; false"
    )
    assert rented.status()["lease"]["held"] == "no-answer"
    # A setup without a lease leaves it; another setup with other terms goes on counting.
    rented.run("setup").must(0)
    rented.run("setup", "--set", "lease.hours=9").must(0)
    lease = rented.status()["lease"]["limits"]
    assert list(lease) == ["hours"]
    assert lease["hours"]["limit"] == 11 * 3600
    assert lease["hours"]["is"] >= counted
    assert "nothing ends this box" in rented.run("lease", "--release").must(0).out
    assert rented.status()["lease"] is None
    assert "has no lease" in rented.run("lease").must(2).err
