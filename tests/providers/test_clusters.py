"""Clusters of RunPod: made by one request, recorded box by box, and destroyed only as a whole."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from bootstrap.errors import (
    BoxstrapError,
    NoOfferError,
    NotSafeError,
    ReturnBoxError,
    UnreachableError,
)
from bootstrap.fleet.fan_out import fan_out
from bootstrap.link import KnownBox, save_box
from bootstrap.link.target import AT_ONCE
from bootstrap.providers import RentedBox, RentedState, RentOrder
from bootstrap.renting import Rental, RentalState, cluster, rental
from bootstrap.renting.money import MoneyCaps, OverCapError
from bootstrap.renting.up import in_one_network, refuse_incomplete
from tests.providers.accounts import FAULTS, REFUSED_KEYS
from tests.providers.renting_world import RentingWorld
from tests.waiting import PATIENCE_S

PROVIDER, IS_LISTED = "runpod", False
ORDER = RentOrder(max_price=1.0, network="nodes", boxes=2)
CLUSTERS = "/v2/clusters"


def orders(world: RentingWorld) -> int:
    return world.simulation.changed.count(f"POST {CLUSTERS}")


def states() -> dict[str, RentalState]:
    return {each.box_id: each.state for each in rental.all_rentals()}


def used(host: str, *, seen: float) -> None:
    name = host.replace(":", "-")
    save_box(KnownBox(name, host, created=1.0, seen=seen))


def test_a_runpod_cluster_is_rented_by_one_request_and_each_of_its_boxes_gets_a_rental_record(
    world: RentingWorld,
) -> None:
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
    assert [each.name for each in world.account.find_mark(box.mark)] == [box.mark, box.mark]


def test_runpod_clusters_are_rented_from_the_secure_cloud_alone(world: RentingWorld) -> None:
    world.simulation.offers[0].cloud = "COMMUNITY"
    box, _ = world.up(order=ORDER)
    assert box.machine == "11/SECURE/us-1"
    asked = [path for path in world.simulation.asked if "catalog" in path]
    assert [("product=CLUSTER" in path, "COMMUNITY" in path) for path in asked] == [(True, False)]


def test_a_whole_cluster_is_given_back_when_its_first_box_is_bad(world: RentingWorld) -> None:
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
def test_up_uses_the_cluster_whose_order_got_no_answer_and_orders_no_second(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.fault_on = {f"POST {CLUSTERS}": fault}
    box, _ = world.up(order=ORDER)
    assert (box.box_id in ("9001", "9002"), orders(world)) == (True, 1)
    assert set(states().values()) == {RentalState.RENTED}
    assert len(states()) == 2


@pytest.mark.parametrize("fault", ["500", "cut"])
def test_no_second_cluster_is_ordered_when_the_pods_of_the_first_can_not_be_read(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.fault_on = {f"GET {CLUSTERS}/c9001/pods": fault}
    world.up(order=ORDER)
    assert (orders(world), len(states())) == (1, 2)


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_api_request_of_up_leaves_one_cluster_with_a_record_of_each_box(
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


def test_a_cluster_without_pods_yet_is_listed_and_never_ordered_again(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.simulation.offers[0].fate = "late"
    monkeypatch.setattr(rental, "UNDECIDED_S", 20.0)
    with pytest.raises(NoOfferError, match="c9001 has no pods yet") as unknown:
        world.up(order=ORDER)
    assert unknown.value.is_final
    (listed,) = [each for each in world.account.boxes() if each.cluster]
    assert (listed.id, listed.is_unfilled) == ("c9001", True)
    (asked,) = rental.all_rentals()
    # However long that takes, it is not taken for one that was never made.
    now = asked.asked + 2 * rental.NEVER_S
    assert rental.settled(asked, [listed], now) == asked
    world.sleep(60)
    world.up(order=ORDER)
    assert (orders(world), len(states())) == (1, 2)


def test_a_cluster_with_fewer_boxes_than_ordered_is_an_error_that_prints_the_down_command(
    world: RentingWorld,
) -> None:
    world.simulation.offers[0].fate = "short"
    _, host = world.up(order=ORDER)
    with pytest.raises(NoOfferError, match="the cluster c9001 has 1 boxes, not 2") as refused:
        refuse_incomplete([host], 2, world.heard)
    assert f"boxstrap down --host {host}" in refused.value.hint
    refuse_incomplete([host], 1, world.heard)
    refuse_incomplete(["ec2:i-1"], 2, world.heard)
    world.heard.lines.clear()
    refuse_incomplete([host, "runpod:9002"], 1, world.heard)
    assert world.heard.lines[0].endswith(f"down --host {host} --host runpod:9002")


def test_only_runpod_boxes_of_one_cluster_are_on_one_network(world: RentingWorld) -> None:
    alone, _ = world.up()
    world.up(order=ORDER, another=True)
    rental.save_rental(Rental("boxstrap-0123456789ab", "ec2", RentalState.RENTED, box_id="i-1"))
    every = [each.host for each in rental.all_rentals()]
    assert set(in_one_network(every)) == {"runpod:9002", "runpod:9003", "ec2:i-1"}
    # One whose boxes aren't recorded yet is one, too.
    noted = rental.of_host("runpod:9002")
    assert noted
    rental.save_rental(dataclasses.replace(noted, cluster="", boxes=2))
    assert in_one_network([alone.host, "runpod:9002"]) == ["runpod:9002"]
    assert in_one_network([alone.host]) == []


def interrupted(world: RentingWorld, **changed: Any) -> None:
    """Rent one, and be interrupted before its boxes are recorded."""
    world.interrupt_at = world.simulation.clock.now + 10
    with pytest.raises(KeyboardInterrupt):
        world.up(**{"order": ORDER, **changed})
    (only,) = [each for each in rental.all_rentals() if each.state is RentalState.RENTED]
    assert (only.box_id, only.boxes, only.cluster) == ("9001", 2, "")


def test_up_destroys_no_cluster_with_a_box_that_was_used_by_hand(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "stuck"
    interrupted(world)
    world.simulation.boxes[-1].state = "running"
    used("runpod:9002", seen=time.time())
    with pytest.raises(UnreachableError, match="nothing would be lost on runpod:9002"):
        world.up(order=ORDER)
    assert world.simulation.destroyed == []


def test_the_other_boxes_of_a_cluster_stay_recorded_if_the_first_ends(world: RentingWorld) -> None:
    interrupted(world)
    del world.simulation.boxes[-2]
    world.sleep(600)
    box, _ = world.up(order=ORDER)
    assert (box.box_id, orders(world)) == ("9002", 1)
    # Nor where it goes while it is waited for.
    rental.save_rental(box.over(world.simulation.clock.now))
    world.simulation.boxes = world.simulation.boxes[:2]
    interrupted_at = world.simulation.clock.now + 10

    def goes(number: int, *, is_done: bool) -> None:
        if world.simulation.clock.now > interrupted_at:
            world.simulation.boxes = [each for each in world.simulation.boxes if each.id != "9003"]

    world.simulation.on_call = goes
    box, _ = world.up(order=ORDER)
    here = {each.id for each in world.simulation.boxes if each.cluster}
    assert here == {each.box_id for each in rental.all_rentals() if each.state.value == "rented"}


def test_no_second_cluster_is_ordered_if_the_key_can_not_list_clusters(world: RentingWorld) -> None:
    world.simulation.fault_on = {f"POST {CLUSTERS}": "cut after"}
    answer = world.simulation.answer

    def refusing(method: str, target: str, body: bytes, **more: Any) -> tuple[int, object]:
        if method == "GET" and target.startswith(CLUSTERS):
            return REFUSED_KEYS["runpod"]
        return answer(method, target, body, **more)

    world.simulation.answer = refusing  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(BoxstrapError):
            world.up(order=ORDER)
        world.sleep(rental.NEVER_S + 1)
    assert orders(world) == 1
    # Where there is none, its refusal is nobody's business.
    world.simulation.boxes = world.simulation.boxes[:2]
    assert len(world.account.boxes()) == 2


def test_up_counts_the_lease_of_each_box_of_an_unfinished_cluster_toward_max_dollars(
    world: RentingWorld,
) -> None:
    hours = dataclasses.replace(ORDER, lease_hours=10)
    caps = MoneyCaps(max_dollars=7.0)
    interrupted(world, order=hours, caps=caps)
    alone = RentOrder(max_price=1.0, lease_hours=10)
    with pytest.raises(OverCapError, match=r"\$6.00 for runpod:9001"):
        world.up(order=alone, caps=caps, another=True)


def test_up_prints_the_cost_of_all_boxes_of_a_destroyed_cluster(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "stuck"
    world.up(order=ORDER)
    (over,) = [each for each in rental.all_rentals() if each.state is RentalState.ENDED]
    minutes = (over.ended - over.asked) / 60
    assert over.spent == pytest.approx(2 * 0.3 * minutes / 60, abs=0.001)
    assert any(f"it cost about ${over.spent:.2f}" in line for line in world.heard.lines)


def test_up_names_a_cluster_whose_pods_never_start_and_the_down_command(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.simulation.offers[0].fate = "late"
    monkeypatch.setattr(rental, "UNDECIDED_S", 20.0)
    with pytest.raises(NoOfferError):
        world.up(order=ORDER)
    world.simulation.clusters[0].filled = 1e12
    world.sleep(3 * rental.NEVER_S)
    with pytest.raises(NoOfferError, match=r"runpod:c9001 was ordered as .* without pods") as error:
        world.up(order=ORDER)
    assert "boxstrap down --host runpod:c9001 --discard" in error.value.hint


def test_up_without_a_count_uses_the_running_box_of_a_cluster_though_another_still_starts(
    world: RentingWorld,
) -> None:
    _, host = world.up(order=ORDER)
    world.simulation.boxes[-1].becomes = None
    world.simulation.boxes[-1].state = "starting"
    assert world.up()[0].host == host


def test_boxes_of_a_cluster_destroyed_during_up_are_not_recorded_again(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.up(order=ORDER)
    note = cluster.note_members

    def late(ours: Rental, *given: Any) -> Rental:
        for each in rental.all_rentals():
            rental.note_end(each.host, world.simulation.clock.now)
        return note(ours, *given)

    monkeypatch.setattr(cluster, "note_members", late)
    world.up(order=ORDER)
    assert {each.state for each in rental.all_rentals()} == {RentalState.ENDED}


def test_up_destroys_no_cluster_with_a_box_in_use_though_another_of_its_boxes_never_starts(
    world: RentingWorld,
) -> None:
    box, host = world.up(order=ORDER)
    used(host, seen=time.time())
    world.simulation.boxes[-1].becomes = None
    world.simulation.boxes[-1].state = "starting"
    with pytest.raises(UnreachableError, match="whose boxes are destroyed together") as kept:
        world.up(order=ORDER, instead_of=frozenset({box.host}), loading_s=60.0)
    assert "boxstrap down --host runpod:9002 --host runpod-9001" in kept.value.hint
    assert (world.simulation.destroyed, set(states().values())) == ([], {RentalState.RENTED})


def test_up_uses_a_cluster_again_that_was_to_be_destroyed_if_someone_used_a_box_of_it_since(
    world: RentingWorld,
) -> None:
    _, host = world.up(order=ORDER)
    second = rental.of_host("runpod:9002")
    assert second
    rental.save_rental(dataclasses.replace(second, state=RentalState.LEAVING, ended=1.0))
    used(host, seen=time.time())
    world.up(order=ORDER)
    assert (world.simulation.destroyed, set(states().values())) == ([], {RentalState.RENTED})


def test_the_next_up_destroys_a_cluster_that_an_earlier_up_failed_to_destroy_if_unused(
    world: RentingWorld,
) -> None:
    _, host = world.up(order=ORDER)
    used(host, seen=time.time() - 60)
    for each in rental.all_rentals():
        left = dataclasses.replace(each, state=RentalState.LEAVING, ended=time.time())
        rental.save_rental(left)
    world.up(order=ORDER)
    assert world.simulation.destroyed == ["9001", "9002"]
    assert orders(world) == 2


def test_up_refuses_a_cluster_whose_boxes_together_exceed_max_dollars(world: RentingWorld) -> None:
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
def test_a_cluster_is_not_destroyed_while_one_of_its_boxes_is_in_use_and_not_itself_being_destroyed(
    state: RentalState, seen: float, ready: bool, may_go: bool
) -> None:
    now = time.time()
    mark = "boxstrap-0123456789ab"
    ours = Rental(mark, "runpod", RentalState.RENTED, box_id="a", boxes=2)
    other = Rental(f"{mark[:-1]}0", "runpod", state, box_id="b", ready=ready, ended=now - 30)
    rental.save_rental(ours)
    rental.save_rental(other)
    if seen:
        used("runpod:b", seen=now + seen)
    there = RentedBox("runpod", "b", mark, RentedState.RUNNING, cluster="c1")
    assert cluster.holding([there], now) == ([] if may_go else [there])
    # Whatever it is, it is waited for where the same command is about it.
    assert cluster.holding([there], now, ["runpod:b"]) == [there]
    # One without a record is of the same order by its name, and of somebody else's by another.
    late = dataclasses.replace(there, id="c")
    assert cluster.holding([late, dataclasses.replace(late, name="other")], now) == [
        dataclasses.replace(late, name="other")
    ]


def test_down_of_several_boxes_lets_each_box_wait_only_for_boxes_of_the_same_cluster() -> None:
    boxes = {
        each: RentedBox("runpod", each, "", RentedState.RUNNING, cluster=each[0])
        for each in ("a1", "a2", "b1", "b2", "b3")
    }
    given_back, ended = cluster.GivenBack(len(boxes)), dict[str, str]()
    looked = list[str]()
    b3 = threading.Event()

    def give_back(each: str) -> None:
        own = boxes[each]
        others = [one for one in boxes.values() if one.cluster == own.cluster and one is not own]
        with contextlib.suppress(KeyError, NotSafeError), given_back.attended():
            if each == "b3":
                b3.wait(PATIENCE_S)
                raise KeyError
            ended[each] = "kept"
            given_back.await_others(own, others, lambda: looked.append(each))
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
    assert sorted(looked) == ["a1", "a2"]


def give_back_at_once(boxes: Sequence[tuple[RentedBox, list[RentedBox]]]) -> dict[str, bool]:
    """Whether each goes on to its cluster's end, where each is found safe."""
    given_back, goes = cluster.GivenBack(len(boxes)), dict[str, bool]()

    def work(at: str) -> None:
        own, others = boxes[int(at)]
        with given_back.attended():
            goes[own.id] = False
            given_back.await_others(own, others, lambda: None)
            goes[own.id] = True

    fan_out([str(at) for at in range(len(boxes))], work)
    return goes


def test_down_that_names_every_box_of_a_cluster_destroys_each_of_them() -> None:
    a, b, c = (RentedBox("runpod", each, "", RentedState.RUNNING, cluster="k") for each in "abc")
    for _ in range(100):
        goes = give_back_at_once([(a, [b, c]), (b, [a, c]), (c, [a, b])])
        assert goes == {"a": True, "b": True, "c": True}


def test_down_destroys_no_cluster_if_its_boxes_disagree_about_which_boxes_belong_to_it() -> None:
    a, b, c = (RentedBox("runpod", each, "", RentedState.RUNNING, cluster="k") for each in "abc")
    assert give_back_at_once([(a, [b]), (b, [a, c])])["b"] is False


def test_down_of_more_boxes_than_work_at_once_destroys_all_or_no_boxes_of_each_cluster() -> None:
    every = [
        RentedBox("runpod", f"{name}{at}", "", RentedState.RUNNING, cluster=name)
        for at in range(AT_ONCE)
        for name in "ab"
    ]
    goes = give_back_at_once(
        [(own, [o for o in every if o.cluster == own.cluster and o is not own]) for own in every]
    )
    for name in "ab":
        assert len({goes[own.id] for own in every if own.cluster == name}) == 1
