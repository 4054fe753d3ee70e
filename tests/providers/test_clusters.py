"""Clusters of RunPod: made by one request, recorded box by box, and destroyed only as a whole."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.errors import (
    BoxstrapError,
    NoOfferError,
    NotSafeError,
    ReturnBoxError,
    UnreachableError,
)
from bootstrap.link.record import KnownBox, save_box
from bootstrap.providers.accounts import PROVIDERS
from bootstrap.providers.api import ApiKey
from bootstrap.providers.offer import RentedBox, RentedState, RentOrder
from bootstrap.renting import cluster, rental
from bootstrap.renting.money import MoneyCaps, OverCapError
from bootstrap.renting.rental import Rental, RentalState
from bootstrap.renting.up import refuse_incomplete
from tests.providers.accounts import FAULTS, KEY
from tests.providers.renting_world import RentingWorld, renting_world
from tests.waiting import PATIENCE_S

ORDER = RentOrder(max_price=1.0, network="nodes", boxes=2)
CLUSTERS = "/v2/clusters"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[RentingWorld]:
    """An account at RunPod."""
    with renting_world("runpod", monkeypatch) as made:
        yield made
        assert {"71", "72"} <= {box.id for box in made.simulation.boxes}, "not ours, and gone"
        assert made.most_unknown <= 1, "rented again while nobody knew"


def orders(world: RentingWorld) -> int:
    return world.simulation.changed.count(f"POST {CLUSTERS}")


def states() -> dict[str, RentalState]:
    return {each.box_id: each.state for each in rental.all_rentals()}


def used(host: str, *, seen: float) -> None:
    name = host.replace(":", "-")
    save_box(KnownBox(name, host, created=1.0, seen=seen))


def test_one_request_makes_all_and_each_is_a_rental_of_its_own(world: RentingWorld) -> None:
    box, host = world.up(order=ORDER)
    assert (host, orders(world), world.simulation.rented) == ("runpod:9001", 1, ["9001", "9002"])
    first, second = sorted(rental.all_rentals(), key=lambda each: each.asked)
    assert (first.box_id, first.ready, first.cluster) == ("9001", True, "c9001")
    assert (second.box_id, second.ready, second.cluster) == ("9002", False, "c9001")
    assert first.price == second.price == 0.3
    assert len({first.mark, second.mark}) == 2
    assert "first of 2 boxes, each 1 x" in "\n".join(world.heard.lines)
    # Each is found again, and nothing is ordered for it.
    again, _ = world.up(order=ORDER, instead_of=frozenset({box.host}))
    assert (again.host, again.ready, orders(world)) == ("runpod:9002", True, 1)
    assert [each.name for each in account_of(world).find_mark(box.mark)] == [box.mark, box.mark]


def account_of(world: RentingWorld) -> cluster.CloudAccount:
    return PROVIDERS[world.simulation.provider](ApiKey(KEY, "a test"))


def test_its_offers_are_of_clusters_in_the_secure_cloud(world: RentingWorld) -> None:
    world.simulation.offers[0].cloud = "COMMUNITY"
    box, _ = world.up(order=ORDER)
    assert box.machine == "11/SECURE/us-1"
    asked = [path for path in world.simulation.asked if "catalog" in path]
    assert [("product=CLUSTER" in path, "COMMUNITY" in path) for path in asked] == [(True, False)]


def test_where_the_first_is_bad_all_are_given_back_at_once(world: RentingWorld) -> None:
    world.ends = [ReturnBoxError]
    box, _ = world.up(order=ORDER)
    assert box.box_id == "9003"
    assert world.simulation.destroyed == ["9001", "9002"]
    assert [each for each in world.simulation.changed if each.startswith("DELETE")] == [
        f"DELETE {CLUSTERS}/c9001"
    ]
    live, over = RentalState.RENTED, RentalState.ENDED
    assert states() == {"9001": over, "9002": over, "9003": live, "9004": live}


@pytest.mark.parametrize("fault", ["cut after", "500 after", "nonsense after"])
def test_one_whose_answer_is_lost_is_found_by_its_name(world: RentingWorld, fault: str) -> None:
    world.simulation.fault_on = {f"POST {CLUSTERS}": fault}
    box, _ = world.up(order=ORDER)
    assert (box.box_id in ("9001", "9002"), orders(world)) == (True, 1)
    assert set(states().values()) == {RentalState.RENTED}
    assert len(states()) == 2


@pytest.mark.parametrize("fault", ["500", "cut"])
def test_one_whose_pods_cannot_be_asked_for_is_no_second_one(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.fault_on = {f"GET {CLUSTERS}/c9001/pods": fault}
    world.up(order=ORDER)
    assert (orders(world), len(states())) == (1, 2)


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_strikes_there_is_one_and_all_of_it_is_known(
    world: RentingWorld, fault: str, number: int
) -> None:
    world.simulation.faults_at = {number: fault}
    for _ in range(4):
        with contextlib.suppress(BoxstrapError):
            world.up(order=ORDER)
            break
        world.sleep(rental.NEVER_S + 1)
    here = {box.id for box in world.simulation.boxes if box.cluster}
    live = {each.box_id for each in rental.all_rentals() if each.state is RentalState.RENTED}
    assert len(here) == 2
    assert here == live
    assert len(world.simulation.clusters) == 1
    # A refused request made none: only then was there a second one.
    assert orders(world) <= 2


def test_one_whose_pods_come_late_is_waited_for_listed_and_never_made_again(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.simulation.offers[0].fate = "late"
    monkeypatch.setattr(rental, "UNDECIDED_S", 20.0)
    with pytest.raises(NoOfferError, match="c9001 has no pods yet") as unknown:
        world.up(order=ORDER)
    assert unknown.value.is_final
    (listed,) = [each for each in account_of(world).boxes() if each.cluster]
    assert (listed.id, listed.is_unfilled) == ("c9001", True)
    (asked,) = rental.all_rentals()
    # However long that takes, it is not taken for one that was never made.
    now = asked.asked + 2 * rental.NEVER_S
    assert rental.settled(asked, [listed], now) == asked
    world.sleep(60)
    world.up(order=ORDER)
    assert (orders(world), len(states())) == (1, 2)


def test_a_cluster_that_lacks_boxes_is_said_and_not_filled_by_another(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "short"
    box, host = world.up(order=ORDER)
    with pytest.raises(NoOfferError, match="1 more are not there yet of the cluster c9001"):
        refuse_incomplete(host, 1)
    rental.save_rental(dataclasses.replace(box, cluster=""))
    with pytest.raises(NoOfferError, match="was rented alone"):
        refuse_incomplete(host, 1)
    refuse_incomplete(host, 0)
    refuse_incomplete("ec2:i-1", 1)


def test_a_box_that_never_comes_up_does_not_take_one_in_use_with_it(world: RentingWorld) -> None:
    box, host = world.up(order=ORDER)
    used(host, seen=time.time())
    world.simulation.boxes[-1].becomes = None
    world.simulation.boxes[-1].state = "starting"
    with pytest.raises(UnreachableError, match="its whole cluster would be") as kept:
        world.up(order=ORDER, instead_of=frozenset({box.host}), loading_s=60.0)
    assert f"boxstrap down --host runpod:9002 --host {host}" in kept.value.hint
    assert (world.simulation.destroyed, set(states().values())) == ([], {RentalState.RENTED})


def test_one_that_was_leaving_stays_where_another_is_in_use_since(world: RentingWorld) -> None:
    _, host = world.up(order=ORDER)
    second = rental.of_host("runpod:9002")
    assert second
    rental.save_rental(dataclasses.replace(second, state=RentalState.LEAVING, ended=1.0))
    used(host, seen=time.time())
    world.up(order=ORDER)
    assert (world.simulation.destroyed, set(states().values())) == ([], {RentalState.RENTED})


def test_what_was_to_go_and_is_still_there_goes(world: RentingWorld) -> None:
    _, host = world.up(order=ORDER)
    used(host, seen=time.time() - 60)
    for each in rental.all_rentals():
        left = dataclasses.replace(each, state=RentalState.LEAVING, ended=time.time())
        rental.save_rental(left)
    world.up(order=ORDER)
    assert world.simulation.destroyed == ["9001", "9002"]
    assert orders(world) == 2


def test_all_of_them_count_against_a_cap(world: RentingWorld) -> None:
    hours = dataclasses.replace(ORDER, lease_hours=10)
    with pytest.raises(OverCapError, match=r"\$6.00 for these 2 boxes") as refused:
        world.up(order=hours, caps=MoneyCaps(max_dollars=5.0))
    assert "lease.hours=8.33" in refused.value.hint
    assert orders(world) == 0
    world.up(order=hours, caps=MoneyCaps(max_dollars=7.0))
    with pytest.raises(OverCapError, match=r"\$3.00 for runpod:900[12], \$3.00 for runpod:900[12]"):
        world.up(order=hours, caps=MoneyCaps(max_dollars=7.0), another=True)


@pytest.mark.parametrize(
    ("state", "seen", "ready", "may_go"),
    [
        (RentalState.RENTED, 0.0, False, True),
        (RentalState.RENTED, 0.0, True, False),
        (RentalState.RENTED, -60.0, False, False),  # a login may have made something
        (RentalState.LEAVING, -60.0, True, True),
        (RentalState.LEAVING, 0.0, False, True),
        (RentalState.LEAVING, -5.0, True, False),  # somebody came since
    ],
)
def test_what_may_go_with_its_cluster(
    state: RentalState,
    seen: float,
    ready: bool,
    may_go: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now = time.time()
    mark = "boxstrap-0123456789ab"
    ours = Rental(mark, "runpod", RentalState.RENTED, box_id="a", cluster="c1")
    other = Rental(f"{mark[:-1]}0", "runpod", state, box_id="b", ready=ready, cluster="c1")
    alone = dataclasses.replace(other, mark=f"{mark[:-1]}1", box_id="c", cluster="", ready=True)
    for each in (ours, alone, dataclasses.replace(other, ended=now - 30)):
        rental.save_rental(each)
    if seen:
        used("runpod:b", seen=now + seen)
    assert cluster.kept_by(ours, now) == ([] if may_go else ["runpod:b"])
    assert cluster.kept_by(alone, now) == []


def test_threads_wait_for_the_others_of_their_cluster_alone() -> None:
    boxes = {
        each: RentedBox("runpod", each, "", RentedState.RUNNING, cluster=each[0])
        for each in ("a1", "a2", "b1", "b2", "b3")
    }
    given_back, ended = cluster.GivenBack(len(boxes)), dict[str, str]()
    b3 = threading.Event()

    def give_back(each: str) -> None:
        own = boxes[each]
        others = [one for one in boxes.values() if one.cluster == own.cluster and one is not own]
        with contextlib.suppress(KeyError, NotSafeError), given_back.attended():
            if each == "b3":
                b3.wait(PATIENCE_S)
                raise KeyError
            ended[each] = "kept"
            given_back.await_others(own, others)
            ended[each] = "gone"

    threads = [threading.Thread(target=give_back, args=(each,), daemon=True) for each in boxes]
    for each in threads:
        each.start()
    for each in threads[:2]:
        each.join(PATIENCE_S)
    assert {each: ended[each] for each in ("a1", "a2")} == {"a1": "gone", "a2": "gone"}
    b3.set()
    for each in threads:
        each.join(PATIENCE_S)
    assert not any(each.is_alive() for each in threads)
    assert (ended["b1"], ended["b2"]) == ("kept", "kept")
