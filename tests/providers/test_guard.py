"""`guard`: a machine of the user holds the leases of boxes that can't hold them."""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import BoxLease
from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.link import CancelToken, KnownBox, all_boxes, read_box, save_box
from bootstrap.onbox.lease.rules import LeaseState, LeaseTerms
from bootstrap.providers import PROVIDERS, ApiKey, RentedBox, RentedState
from bootstrap.renting import Loss, OwnBox, Rental, rental, teardown
from bootstrap.renting import guard as guard_module
from bootstrap.renting import guard as guarding
from bootstrap.tasks.boxes import _look_at_all
from bootstrap.value import document
from tests.box_programs import lay_programs
from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.providers.accounts import KEY, SimulatedAccount, SimulatedBox, SimulatedClock, simulated
from tests.run_states import identity

HOUR = 3600.0
QUIET: Any = SimpleNamespace(say=lambda _: None, warn=lambda _: None)


@pytest.fixture
def account(user: User, there: LoopbackBox) -> Iterator[SimulatedAccount]:
    """An account with a box that this machine knows, and one that it doesn't."""
    with simulated("vast") as made:
        user.env |= made.environment()
        ours = SimulatedBox("1000", port=there.port, user=there.user, price=2.0)
        ours.since = time.time() - 5 * HOUR
        made.clock = SimulatedClock(time.time)
        made.boxes = [ours, SimulatedBox("2000", price=9.0)]
        user.run("status", "--host", "vast:1000", "--identity", str(there.identity)).must(0)
        yield made


def set_lease(user: User, **lease: Any) -> None:
    (file,) = user.home.rglob("boxes/*/box.json")
    record = json.loads(file.read_text())
    record["extra"]["lease"] = lease
    file.write_text(json.dumps(record))


def left(said: Mapping[str, str]) -> float:
    """Return the seconds that are left of a lease, as shown."""
    found = re.match(r"(?:(\d+) h )?(\d+) min (?:(\d+) s )?left", said["says"])
    assert found, said["says"]
    hours, minutes, seconds = (int(one or 0) for one in found.groups())
    return hours * HOUR + minutes * 60 + seconds


def about(seconds: float) -> Any:
    """Equal to what is shown while a test is under way."""
    return pytest.approx(seconds, abs=150)


def spent(said: Mapping[str, str], of: str) -> float:
    """Return the dollars that are spent, as shown."""
    found = re.search(rf"\$([0-9.]+) of \${of}", said["says"])
    assert found, said["says"]
    return float(found[1])


def guard(user: User, rc: int = 0) -> Any:
    return user.run("guard", "--once", "--json").must(rc).json()


def test_guard_stops_only_the_box_whose_lease_is_over(
    user: User, account: SimulatedAccount
) -> None:
    assert guard(user) == {**guard(user), "boxes": [], "not_by_id": [], "without_lease": []}
    # It is rented, but no setup got as far as setting a lease.
    rentals = user.state / "rentals"
    rentals.mkdir()
    ours = Rental("boxstrap-0123456789ab", "vast", box_id="2000", asked=1.0)
    # A clock that was set back since does not move the time of the rental.
    assert ours.as_rented("2000", -3600.0, 50.0).began == 50.0
    file = rentals / f"{ours.mark}.json"
    for state in ("ended", "rented"):
        file.write_text(json.dumps({"v": 1, **document(ours), "state": state}))
        assert guard(user)["without_lease"] == (["vast:2000"] if state == "rented" else [])
    said = user.run("guard", "--once").must(0).out
    assert "vast:2000: it was rented from here and has no lease" in said
    assert "boxstrap down --host vast:2000" in said
    # It was set up and forgotten; then its account has it no more.
    file.write_text(json.dumps({"v": 1, **document(ours), "state": "rented", "ready": True}))
    said = user.run("guard", "--once").must(0).out
    assert "vast:2000: it was rented from here and forgotten, so its lease isn't known here" in said
    gone = account.boxes.pop()
    assert "vast:2000" not in user.run("guard", "--once").must(0).out
    account.boxes.append(gone)  # the key was another account's
    assert guard(user)["without_lease"] == ["vast:2000"]
    file.unlink()
    three_hours = time.time() - 3 * HOUR
    set_lease(user, seconds=4 * HOUR, dollars=50.0, set=three_hours, extended=0.0, held="no-key")
    (said,) = guard(user)["boxes"]
    assert (said["host"], said["over"], said["stopped"]) == ("vast:1000", None, False)
    assert left(said) == about(HOUR)
    assert spent(said, "50.00 at \\$2.00 an hour") == pytest.approx(6.0, abs=0.1)
    # The user extended it, or the box holds it itself.
    set_lease(user, seconds=2 * HOUR, set=three_hours, extended=2 * HOUR, held="no-boot")
    assert guard(user)["boxes"][0]["over"] is None
    set_lease(user, seconds=2 * HOUR, set=three_hours, extended=2 * HOUR, held="yes")
    assert "holds its lease itself" in guard(user)["boxes"][0]["says"]
    # A stop would lose something, and the user did not allow that.
    set_lease(user, seconds=2.5 * HOUR, set=three_hours, extended=0.0, held="wipes")
    (file,) = user.home.rglob("guard.json")
    file.unlink()
    (said,) = guard(user)["boxes"]
    assert (said["over"], said["stopped"]) == ("hours", False)
    assert "would keep everything of it: it keeps running and costing" in said["says"]
    assert account.changed == []
    set_lease(user, seconds=2.5 * HOUR, set=three_hours, extended=0.0, held="refused")
    (said,) = guard(user)["boxes"]
    assert (said["over"], said["stopped"]) == ("hours", True)
    assert "It still costs its disk" in said["says"]
    assert [box.state for box in account.boxes] == ["stopped", "running"]
    assert account.changed == ["PUT /api/v0/instances/1000/"]
    assert guard(user)["boxes"][0]["says"] == "it is stopped"
    assert len(account.changed) == 1


def counts(there: LoopbackBox, over: str, *, is_there: bool = True, **limits: list[float]) -> None:
    """Write what the box's monitor says about its lease; `is_there`: whether the monitor runs."""
    home = there.home + "/.boxstrap"
    there.run(f"mkdir -p {home} && echo x >{home}/lease.json")
    lay_programs(Path(home, "box/current"))
    said = {"held": "no-key", "over": over, "limits": limits, "counted": {}}
    Path(home, "lease.state").write_text(json.dumps(said) + "\n")
    number, *rest = identity(os.getpid()).split()
    Path(home, "lease.pid").write_text(
        f"{' '.join([number if is_there else f'{1 << 30}', *rest])}\n"
    )


def test_guard_ends_a_box_for_idleness_only_if_the_running_monitor_on_the_box_reports_that(
    user: User, account: SimulatedAccount, there: LoopbackBox
) -> None:
    lease = {"seconds": 9 * HOUR, "set": time.time() - HOUR, "extended": 0.0, "held": "no-key"}
    # Without an idle limit nobody logs in: hours and dollars come from the account.
    counts(there, "idle", idle=[700.0, 600.0])
    set_lease(user, **lease)
    assert left(guard(user)["boxes"][0]) == about(8 * HOUR)
    lease["idle"] = 600.0
    # Its monitor is gone, so what it last said may be outdated.
    counts(there, "idle", idle=[700.0, 600.0], is_there=False)
    set_lease(user, **lease)
    assert "can't be said: nothing counts that" in guard(user)["boxes"][0]["says"]
    counts(there, "", idle=[300.0, 600.0], hours=[-9e9, 9e9])
    (said,) = guard(user)["boxes"]
    assert left(said) == about(8 * HOUR)
    assert " left, idle for 5 min 00 s of 10" in said["says"]
    assert account.changed == []
    # The box can't give itself more time: hours are counted here.
    counts(there, "", idle=[0.0, 600.0], hours=[0.0, 9e9])
    (file,) = user.home.rglob("guard.json")
    kept = file.read_bytes()
    file.unlink()
    set_lease(user, **{**lease, "seconds": 0.5 * HOUR})
    assert guard(user)["boxes"][0]["over"] == "hours"
    account.boxes[0].state = "running"
    file.write_bytes(kept)
    set_lease(user, **lease)
    counts(there, "idle", idle=[700.0, 600.0])
    assert (guard(user)["boxes"][0]["over"], account.boxes[0].state) == ("idle", "stopped")
    assert account.boxes[1].state == "running"
    # Nobody can log in: only hours and dollars count, and that is said.
    account.boxes[0].state = "running"
    there.kill_sshd()
    assert "how idle it is can't be said" in guard(user)["boxes"][0]["says"]
    assert account.boxes[0].state == "running"


def test_guard_stops_a_box_past_its_lease_only_if_the_box_does_not_enforce_it_itself(
    user: User, account: SimulatedAccount, there: LoopbackBox
) -> None:
    set_lease(user, seconds=HOUR, set=time.time() - 3 * HOUR, extended=0.0, held="yes")
    # The user may have extended it from another machine, so a live monitor is trusted.
    for is_there, held in ((True, "yes"), (True, "refused"), (False, "yes")):
        counts(there, "", is_there=is_there)
        state = Path(there.home, ".boxstrap/lease.state")
        state.write_text(state.read_text().replace("no-key", held))
        said = guard(user)["boxes"][0]
        holds = is_there and held == "yes"
        # Its owner is paid for as long as it is believed.
        assert ("count here that is over (hours), and it says that it goes on" in said["says"]) is (
            holds
        )
        assert (said["stopped"], account.boxes[0].state == "running") == (not holds, holds)
        account.boxes[0].state = "running"
    there.kill_sshd()
    said = guard(user)["boxes"][0]["says"]
    assert "holds its lease itself" in said
    assert "over (hours), and it can't be asked" in said
    assert "boxstrap down --host" in said


def test_guard_destroys_a_box_with_nothing_to_lose_and_stops_any_other(
    user: User, account: SimulatedAccount, there: LoopbackBox
) -> None:
    there.run("mkdir -p ~/.boxstrap")
    over = {"seconds": HOUR, "set": time.time() - 3 * HOUR, "held": "no-key", "then": "destroy"}
    set_lease(user, **over)
    (folder,) = user.state.glob("boxes/*")
    # A guard or `down` that fetches results for longer than cron's interval is not disturbed.
    with (folder / "end.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert guard(user)["boxes"][0]["says"] == "another command is working on it"
    # A setup is running, which is not safe to end.
    lock = f"{identity(os.getpid())}\nscript\n20261122-1\nsetup\n"
    Path(there.home, ".boxstrap/lock").write_text(lock)
    (said,) = guard(user)["boxes"]
    assert (said["stopped"], said["destroyed"]) == (True, False)
    assert [one["kind"] for one in said["unsafe"]] == ["setup"]
    # The box can't be reached.
    account.boxes[0].state = "running"
    there.kill_sshd()
    (said,) = guard(user)["boxes"]
    assert (said["stopped"], [one["kind"] for one in said["unsafe"]]) == (True, ["unseen"])
    assert account.destroyed == []
    there.start_sshd()
    account.boxes[0].state = "running"
    there.run("rm ~/.boxstrap/lock")
    (said,) = guard(user)["boxes"]
    assert (said["over"], said["stopped"], said["destroyed"]) == ("hours", False, True)
    assert "destroyed, and no longer listed; about $10." in said["says"]
    assert account.destroyed == ["1000"]
    assert [box.id for box in account.boxes] == ["2000"]
    assert not [*user.state.glob("boxes/*")]
    assert len([*user.state.glob("ended/*/box.json")]) == 1


def test_guard_destroys_a_lambda_box_with_unsaved_results_after_it_tried_to_fetch_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = [Loss("results", "train-1", "out/a: changed")]
    with simulated("lambda", used_by=monkeypatch) as made:
        client = PROVIDERS["lambda"](ApiKey(KEY, "the test"))

        def ends(seconds: float, unsafe: list[Loss], *, was_seen: bool) -> guarding.GuardedBox:
            made.boxes = [SimulatedBox("a1"), SimulatedBox("b2")]
            box = client.box("a1")
            assert box
            known = KnownBox("box", "lambda:a1", created=5.0, lease={"then": "destroy"})
            save_box(known)
            monkeypatch.setattr(guarding, "_bring_home", lambda *_: (unsafe, was_seen))
            own = OwnBox(client, box)
            return guarding._end(known, own, "hours", LeaseState(over_for=seconds), QUIET)

        waits = ends(60.0, [Loss("unseen", "box", "what is on it")], was_seen=False)
        assert (waits.destroyed, len(made.boxes)) == (False, 2)
        assert "tried again" in waits.says
        for seconds, unsafe, was_seen in (
            (2000.0, [Loss("unseen", "box", "what is on it")], False),
            (0.0, lost, True),
            (0.0, [], True),
        ):
            ended = ends(seconds, unsafe, was_seen=was_seen)
            assert (ended.destroyed, ended.unsafe) == (True, unsafe)
            assert [box.id for box in made.boxes] == ["b2"]
            assert all(str(one) in ended.says for one in unsafe)


def test_guard_expects_a_stop_to_wipe_a_runpod_box_whose_workdir_is_outside_workspace() -> None:
    """By what is recorded here, without asking the box's monitor."""
    runpod = PROVIDERS["runpod"](ApiKey(KEY, "the test"))
    for workdir, held, wipes in (
        ("/workspace/me", "refused", False),
        ("/workspace", "wipes", True),
        ("/root", "no-answer", True),
        ("", "refused", True),
    ):
        box = KnownBox("box", "runpod:a", workdir=workdir, lease={"held": held})
        assert guarding._wipes(box, runpod) is wipes
    assert not guarding._wipes(box, PROVIDERS["vast"](ApiKey(KEY, "the test")))


def test_guard_does_not_stop_a_box_whose_monitor_says_that_a_stop_would_wipe_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that started after the setup may write outside the volume."""
    stopped, box = list[str](), KnownBox("box", "runpod:a", workdir="/workspace")
    account: Any = PROVIDERS["runpod"](ApiKey(KEY, "the test"))
    monkeypatch.setattr(account, "stop", stopped.append)
    monkeypatch.setattr(guarding, "_end_runs", lambda *_: None)
    rented = SimpleNamespace(id="a", is_spot=None, cluster="")
    own: Any = SimpleNamespace(account=account, box=rented)
    for said in (BoxLease("wipes", {}), BoxLease("no-boot", {}), "nobody can log in"):
        monkeypatch.setattr(guarding, "_ask_box", lambda *_, said=said: said)
        before = len(stopped)
        ended = guarding._end(box, own, "hours", LeaseState(), QUIET)
        is_wiped = isinstance(said, BoxLease) and said.held == "wipes"
        assert (ended.stopped, len(stopped) - before) == (not is_wiped, not is_wiped)


def test_guard_does_not_stop_a_box_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    account: Any = PROVIDERS["runpod"](ApiKey(KEY, "the test"))
    monkeypatch.setattr(account, "stop", pytest.fail)
    rented = RentedBox("runpod", "a", "", RentedState.RUNNING, cluster="c1")
    box, silent = KnownBox("box", "runpod:a", workdir="/workspace", lease={"then": "stop"}), None
    own = OwnBox(account, rented)
    ended = guarding._end(box, own, "hours", LeaseState(), silent)  # type: ignore[arg-type]
    assert (ended.stopped, ended.destroyed) == (False, False)
    assert "RunPod stops no such box: it keeps running and costing" in ended.says


def test_guard_destroys_a_cluster_once_the_leases_of_all_its_boxes_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen: Any = SimpleNamespace(say=print, warn=print, note=print, result=lambda *_: None)
    monkeypatch.setattr(guarding, "_bring_home", lambda *_: ([], True))
    monkeypatch.setattr(teardown, "drop_alias", lambda _: None)
    with simulated("runpod", used_by=monkeypatch) as pods:
        pods.boxes = [SimulatedBox(each, cluster="c1") for each in ("a", "b", "c")]
        never_used = Rental("boxstrap-0123456789ab", "runpod", box_id="c", cluster="c1")
        rental.save_rental(dataclasses.replace(never_used, state=rental.RentalState.RENTED))
        found: list[dict[str, Any]] = []
        screen.result = lambda data, _: found.extend(document(data["boxes"]))
        for each, hours in (("a", HOUR), ("b", 9 * HOUR)):
            lease = {"set": time.time() - 3 * HOUR, "seconds": hours, "then": "destroy"}
            known = KnownBox(f"box-{each}", f"runpod:{each}", created=5.0, lease=lease)
            save_box(known)
        guarding.guard_once(screen, _look_at_all)
        assert [one["destroyed"] for one in found] == [False, False]
        says = {one["box"]: one["says"] for one in found}
        assert "until that holds of its whole cluster, c1" in says["box-a"]
        assert "6 h 00 min left" in says["box-b"]
        assert pods.changed == []
        save_box(dataclasses.replace(known, lease={**known.lease, "seconds": HOUR}))
        # One is extended while the other one is looked at.
        for changed in ({"extended": 1.0}, {}):
            save_box(dataclasses.replace(known, lease={**known.lease, "seconds": HOUR}))

            looked = list[KnownBox]()

            def brings(
                box: KnownBox,
                _: object,
                more: dict[str, object] = changed,
                before: list[KnownBox] = looked,
            ) -> Any:
                for each in before if more else ():
                    save_box(dataclasses.replace(each, lease={**each.lease, **more}))
                before.append(box)
                return [], True

            monkeypatch.setattr(guarding, "_bring_home", brings)
            found.clear()
            guarding.guard_once(screen, _look_at_all)
            assert {one["destroyed"] for one in found} == {not changed}
        assert pods.changed == ["DELETE /v2/clusters/c1"]
        assert all_boxes() == []


def test_guard_with_a_full_disk_here_still_stops_a_box_past_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also, a record that another command puts aside in the meantime is not created again."""
    lease = {"set": time.time() - 3 * HOUR, "seconds": HOUR, "held": "no-key"}
    known = KnownBox("box", "vast:1000", created=5.0, lease=lease)
    save_box(known)
    holds = {**lease, "held": "yes", "seconds": 9 * HOUR}
    gone = dataclasses.replace(known, name="gone", created=6.0, lease=holds)
    monkeypatch.setattr(guarding, "_end_runs", lambda *_: None)
    with simulated("vast", used_by=monkeypatch) as account:
        account.clock = SimulatedClock(time.time)
        account.boxes = [SimulatedBox("1000"), SimulatedBox("2000")]
        account.boxes[0].since = time.time() - 5 * HOUR
        assert "record put aside" in guarding._guarded(gone, QUIET).says
        assert "holds its lease itself" in guarding._look(gone, QUIET).says
        assert not gone.folder.exists()
        monkeypatch.setattr(guard_module, "write_private", full_disk)
        assert guarding._guarded(known, QUIET).stopped
        assert [box.state for box in account.boxes] == ["stopped", "running"]


@pytest.mark.parametrize("then", ["stop", "destroy"])
@pytest.mark.parametrize("late", [False, True], ids=["before it looks", "while it ends its runs"])
def test_guard_ends_no_box_whose_lease_was_extended_meanwhile(
    then: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guard reads what it knows once; fetching what one box has may then take hours."""
    lease = {"set": time.time() - 3 * HOUR, "seconds": HOUR, "held": "no-key", "then": then}
    known = KnownBox("box", "vast:1000", created=5.0, lease=lease)
    ends: list[Mapping[str, object]] = []
    """How the lease is by the time its runs have ended."""

    def put(lease: Mapping[str, object]) -> None:
        save_box(dataclasses.replace(read_box(known.folder) or known, lease=lease))

    def brings(*_: object) -> tuple[list[Loss], bool]:
        put(ends[0])
        return [], True

    monkeypatch.setattr(guarding, "_end_runs", brings)
    monkeypatch.setattr(guarding, "_bring_home", brings)
    with simulated("vast", used_by=monkeypatch) as account:
        account.clock = SimulatedClock(time.time)
        account.boxes = [SimulatedBox("1000", since=time.time() - 5 * HOUR)]
        for changed in ({**lease, "extended": 9 * HOUR}, {}):
            ends[:] = [changed]
            put(lease if late else changed)
            done = guarding._guarded(known, QUIET)
            assert (done.stopped, done.destroyed) == (False, False)
            assert "extended" in done.says or "left" in done.says
        assert [box.state for box in account.boxes] == ["running"]
        assert (account.changed, account.destroyed) == ([], [])


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_guard_counts_the_time_between_its_own_tries_to_end_a_box_but_not_a_sleep() -> None:
    known = KnownBox("box", "lambda:a1", created=5.0, lease={"set": 1e9})
    save_box(known)
    rented: Any = SimpleNamespace(since=None, price=None)
    over = []
    for at in (0.0, 3600.0, 3900.0, 40_000.0, 40_300.0, 40_600.0):
        account: Any = SimpleNamespace(name="lambda", answered_at=1e9 + at)
        state = guard_module.count_lease(known, LeaseTerms(seconds=HOUR), rented, account)
        over.append(state.over_for)
    assert over == [0.0, 0.0, 300.0, 900.0, 1200.0, 1500.0]


def test_guard_does_not_count_time_in_which_a_box_was_stopped_toward_its_lease_of_hours(
    user: User, account: SimulatedAccount
) -> None:
    set_lease(user, seconds=4 * HOUR, set=time.time() - 3 * HOUR, extended=0.0, held="no-key")
    assert left(guard(user)["boxes"][0]) == about(HOUR)
    # Vast.ai's uptime is in minutes: another second is no other start.
    account.boxes[0].since += 20
    assert left(guard(user)["boxes"][0]) == about(HOUR)
    # Since the last look it was stopped, and started again.
    (file,) = user.home.rglob("guard.json")
    kept = json.loads(file.read_text())
    kept["counted"]["account_now"] -= 1200
    kept["counted"]["at"] -= 1200
    file.write_text(json.dumps(kept))
    account.boxes[0].since = time.time() - 600
    assert left(guard(user)["boxes"][0]) == about(5 / 6 * HOUR)
    # A box rented by `up` counts from its rental, whenever it was set up or first looked at.
    file.unlink()
    rented = time.time() - 3.5 * HOUR
    set_lease(user, seconds=4 * HOUR, dollars=8.0, rented=rented, set=time.time(), held="no-key")
    for _ in range(2):
        (said,) = guard(user)["boxes"]
        assert left(said) == about(HOUR / 2)
        assert spent(said, "8.00") == pytest.approx(7.0, abs=0.1)


def test_guard_stops_no_box_while_its_account_answers_with_errors_and_exits_with_3(
    user: User, account: SimulatedAccount
) -> None:
    set_lease(user, dollars=1.0, set=time.time() - 3 * HOUR, extended=0.0, held="no-key")
    account.faults = [(500, {})] * 5
    said = user.run("guard", "--once").must(3)
    assert "can't be asked" in said.out
    for refused in ({"msg": "Session expired. Please log in again."}, {"error": "auth_error"}):
        account.faults = [(404, refused)]
        said = user.run("guard", "--once").must(3)
        assert "nothing can be enforced from here now: it refuses the key" in said.out
        assert "gone" not in said.out
    # A 404 that isn't what Vast.ai documents, or that its list contradicts, isn't the box's end.
    account.faults = [(404, {"error": "elsewhere", "msg": "no such route"})]
    assert "it answers with 404" in user.run("guard", "--once").must(3).out
    account.faults = [(404, b"<html>")]
    user.run("guard", "--once").must(3)
    account.faults = [(200, {"instances": [1]})]
    user.run("guard", "--once").must(3)
    assert account.changed == []
    account.faults = [(404, {"error": "no_such_instance", "msg": "none"})]
    assert guard(user)["boxes"][0]["over"] == "dollars"
    assert account.boxes[0].state == "stopped"
    account.boxes = []
    assert guard(user)["boxes"][0]["says"] == "it is gone"


def test_doctor_warns_when_guard_has_not_run_lately(user: User, account: SimulatedAccount) -> None:
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


def test_guard_without_once_says_which_cron_line_to_add(user: User) -> None:
    assert "* * * *" in user.run("guard").must(2).err


def test_guard_says_that_the_dollars_of_a_lease_are_not_counted_if_the_price_is_unknown() -> None:
    """So it is at Paperspace where the unit of its rate is unknown, and only a guard holds it."""
    terms = LeaseTerms(dollars=3.0, seconds=7200.0)
    assert "its dollars are not counted" in guard_module.describe_left(terms, LeaseState(), "")
    for known, told in (
        (terms, LeaseState(price=0.5)),
        (LeaseTerms(dollars=3.0, price=0.5), LeaseState()),
        (LeaseTerms(seconds=7200.0), LeaseState()),
    ):
        assert "not counted" not in guard_module.describe_left(known, told, "")


def test_guard_exits_with_3_naming_boxes_of_unknown_id_and_leaves_a_box_that_down_is_destroying(
    user: User, account: SimulatedAccount
) -> None:
    set_lease(user, seconds=HOUR, set=time.time() - 3 * HOUR, extended=0.0, held="no-key")
    (known,) = user.home.rglob("boxes/*/box.json")
    # One that was met by its address: its account's id is unknown, so nothing here may end it.
    record = json.loads(known.read_text())
    other = known.parents[1] / "mine/box.json"
    other.parent.mkdir()
    other.write_text(json.dumps({**record, "name": "mine", "host_text": "root@203.0.113.7"}))
    with (known.parent / "end.lock").open("w") as lock:  # `down` is at work on the first
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = guard(user, rc=3)
        assert [one["says"] for one in said["boxes"]] == ["another command is working on it"]
        assert said["not_by_id"] == ["mine"]
    text = user.run("guard", "--once").must(3).out  # so that cron tells
    assert "mine: its account's id is unknown, so nothing here ends it, though" in text
    for lease in ({"held": "yes"}, {"seconds": 4 * HOUR}, {"extended": 3 * HOUR}):
        its = {**record, "name": "mine", "host_text": "root@203.0.113.7"}
        its["extra"] = {**record["extra"], "lease": {**record["extra"]["lease"], **lease}}
        other.write_text(json.dumps(its))
        user.run("guard", "--once").must(0)
    assert account.changed == ["PUT /api/v0/instances/1000/"]


def test_guard_counts_no_lease_by_this_machines_clock_if_the_account_sends_no_time() -> None:
    """This machine's clock may be wrong, and would end a box hours too early."""
    account: Any = SimpleNamespace(name="vast", title="Vast.ai", answered_at=None)
    rented = RentedBox("vast", "1", "", RentedState.RUNNING)
    terms = LeaseTerms(seconds=HOUR)
    with pytest.raises(UnreachableError, match="does not say what time it is"):
        guarding.count_lease(KnownBox("gpu", "vast:1"), terms, rented, account)


def test_guard_ends_a_box_in_time_even_if_another_box_hangs_or_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One takes until the other one is done, one ends in an error of ours."""
    names = ("broken", "slow", "box")
    lease = {"set": time.time() - 3 * HOUR, "seconds": HOUR, "held": "no-key"}
    for at, name in enumerate(names):
        save_box(KnownBox(name, f"vast:{at}", created=9.0 - at, lease=lease))
    ended = threading.Event()

    def look(box: KnownBox, _screen: Any) -> guarding.GuardedBox:
        if box.name == "broken":
            raise ZeroDivisionError
        if box.name == "slow":
            assert ended.wait(20)
        ended.set()
        return guarding.GuardedBox(box.name, box.host_text, "stopped", stopped=True)

    monkeypatch.setattr(guarding, "_look", look)
    shown: list[dict[str, Any]] = []
    screen: Any = SimpleNamespace(result=lambda data, _: shown.append(document(data)))
    with pytest.raises(BoxstrapError, match="boxstrap itself failed: ZeroDivisionError"):
        guarding.guard_once(screen, _look_at_all)
    assert [one["stopped"] for one in shown[0]["boxes"]] == [False, True, True]


def test_guard_gives_up_fetching_results_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    token = CancelToken()
    login = contextlib.nullcontext(SimpleNamespace(cancel=token))
    monkeypatch.setattr(guarding, "BoxLogin", SimpleNamespace(open=lambda *_: login))
    monkeypatch.setattr(guarding, "find_own", lambda _: None)
    monkeypatch.setattr(guarding, "secure", lambda *_: token.wait(20))
    monkeypatch.setattr(guarding, "_BRING_HOME_S", 0.1)
    screen: Any = None
    lost, was_seen = guarding._bring_home(KnownBox("box", "vast:1"), screen)
    assert was_seen
    assert [one.kind for one in lost] == ["unseen"]
