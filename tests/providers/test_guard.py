"""A machine of the person's holds the leases of boxes that can't."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.providers.accounts import SimulatedAccount, SimulatedBox, simulated

HOUR = 3600.0


@pytest.fixture
def there() -> Iterator[LoopbackBox]:
    box = LoopbackBox()
    yield box
    box.stop()


@pytest.fixture
def account(user: User, there: LoopbackBox) -> Iterator[SimulatedAccount]:
    """An account with a box of ours, and one that nobody here knows."""
    with simulated("vast") as made:
        user.env |= made.environment()
        ours = SimulatedBox("1000", port=there.port, user=there.user, price=2.0)
        ours.since = time.time() - 5 * HOUR
        made.boxes = [ours, SimulatedBox("2000", price=9.0)]
        user.run("status", "--host", "vast:1000", "--identity", str(there.identity)).must(0)
        yield made


def set_lease(user: User, **lease: Any) -> None:
    (file,) = user.home.rglob("boxes/*/box.json")
    record = json.loads(file.read_text())
    record["extra"]["lease"] = lease
    file.write_text(json.dumps(record))


def guard(user: User, rc: int = 0) -> Any:
    return user.run("guard", "--once", "--json").must(rc).json()


def test_a_lease_that_is_over_ends_its_box_and_no_other(
    user: User, account: SimulatedAccount
) -> None:
    assert guard(user) == {**guard(user), "boxes": [], "not_by_id": []}
    three_hours = time.time() - 3 * HOUR
    set_lease(user, seconds=4 * HOUR, dollars=50.0, set=three_hours, extended=0.0, held="no-key")
    (said,) = guard(user)["boxes"]
    assert (said["host"], said["over"], said["stopped"]) == ("vast:1000", None, False)
    assert said["says"].startswith("1 h 00 min left, $6.00 of $50.00 at $2.00 an hour")
    # A person extended it, or the box holds it itself.
    set_lease(user, seconds=2 * HOUR, set=three_hours, extended=2 * HOUR, held="no-boot")
    assert guard(user)["boxes"][0]["over"] is None
    set_lease(user, seconds=2 * HOUR, set=three_hours, extended=2 * HOUR, held="yes")
    assert "holds its lease itself" in guard(user)["boxes"][0]["says"]
    assert account.changed == []
    set_lease(user, seconds=2.5 * HOUR, set=three_hours, extended=0.0, held="refused")
    (file,) = user.home.rglob("guard.json")
    file.unlink()
    (said,) = guard(user)["boxes"]
    assert (said["over"], said["stopped"]) == ("hours", True)
    assert "It still costs its disk" in said["says"]
    assert [box.state for box in account.boxes] == ["stopped", "running"]
    assert account.changed == ["PUT /api/v0/instances/1000/"]
    assert guard(user)["boxes"][0]["says"] == "it is stopped"
    assert len(account.changed) == 1


def test_what_was_down_is_not_counted(user: User, account: SimulatedAccount) -> None:
    set_lease(user, seconds=4 * HOUR, set=time.time() - 3 * HOUR, extended=0.0, held="no-key")
    assert "1 h 00 min left" in guard(user)["boxes"][0]["says"]
    account.boxes[0].since = time.time() - 600  # stopped in between, and started again
    assert "50 min" in guard(user)["boxes"][0]["says"]


def test_an_account_that_fails_is_tried_again(user: User, account: SimulatedAccount) -> None:
    set_lease(user, dollars=1.0, set=time.time() - 3 * HOUR, extended=0.0, held="no-key")
    account.faults = [(500, {})] * 5
    said = user.run("guard", "--once").must(3)
    assert "can't be asked" in said.out
    account.faults = [(401, {"msg": "Invalid key"})]
    assert "refuses the key" in user.run("guard", "--once").must(2).out
    account.faults = [(200, {"instances": [1]})]
    user.run("guard", "--once").must(3)
    assert account.changed == []
    assert guard(user)["boxes"][0]["over"] == "dollars"
    assert account.boxes[0].state == "stopped"


def test_doctor_says_when_it_looked(user: User, account: SimulatedAccount) -> None:
    def look() -> Any:
        checks = user.run("doctor", "--json").json()["checks"]
        return next(one for one in checks if one["check"] == "guard")

    assert look()["ok"]
    set_lease(user, seconds=9 * HOUR, set=time.time(), extended=0.0, held="no-key")
    assert "never looked" in look()["says"]
    assert not look()["ok"]
    guard(user)
    assert look()["ok"]
    (file,) = user.home.rglob("guard.json")
    with contextlib.suppress(OSError):
        os.utime(file, (time.time() - 7200,) * 2)
    assert not look()["ok"]


def test_without_a_cron_line_it_says_how(user: User) -> None:
    assert "* * * *" in user.run("guard").must(2).err
