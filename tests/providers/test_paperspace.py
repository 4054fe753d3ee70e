"""Paperspace: a machine is made, its price is read, and only then is it started, or destroyed."""

import subprocess
from pathlib import Path

import pytest

from bootstrap.errors import NoOfferError
from bootstrap.providers import RentedState, RentOrder, paperspace
from bootstrap.renting import offers_of, rental
from tests.providers.accounts import SimulatedBox, SimulatedOffer
from tests.providers.answers import OWN_TEMPLATE
from tests.providers.renting_world import PUBLIC, RentingWorld

PROVIDER = "paperspace"


def test_a_paperspace_machine_is_created_switched_off_and_started_only_after_its_price_is_checked(
    world: RentingWorld,
) -> None:
    simulation = world.simulation
    box, _ = world.up(order=RentOrder(max_price=1.0, disk_gb=60))
    assert [asked.partition("?")[0] for asked in simulation.changed] == [
        "POST /v1/startup-scripts",
        "POST /v1/machines",
        f"PATCH /v1/machines/{box.box_id}/start",
    ]
    sent = world.ours[0].order
    assert (sent["startOnCreate"], sent["emailPassword"]) == (False, False)
    assert (sent["machineType"], sent["region"], sent["diskSize"]) == ("M4000", "ny2", 100)
    assert (sent["publicIpType"], sent["name"]) == ("dynamic", box.mark)
    # Its newest template that has the driver, not a plain one, an older one or one of Windows.
    assert sent["templateId"] == "tml22"
    assert sent["startupScriptId"] == simulation.scripts[0]["id"]
    assert (box.price, simulation.started) == (0.45, [box.box_id])
    # A second one needs no second script. A template of one's own is named by its id.
    world.up(another=True, order=RentOrder(max_price=1.0, image=OWN_TEMPLATE))
    assert len(simulation.scripts) == 1
    assert world.ours[1].order["templateId"] == OWN_TEMPLATE
    world.most_at_once = 0


@pytest.mark.parametrize("unit", [100, 24, 730, 1 / 60, 1 / 3600, 0])
def test_a_paperspace_machine_whose_rate_is_not_dollars_an_hour_is_never_started(
    world: RentingWorld, unit: float
) -> None:
    """Cents, dollars a day, a month, a minute, a second; and none at all."""
    for offer in world.simulation.offers:
        offer.billed = offer.price * unit
    with pytest.raises(NoOfferError, match="nothing says what an hour of it costs") as error:
        world.up(limit=100.0)
    assert world.simulation.started == []
    assert world.simulation.destroyed == world.simulation.rented != []
    rate = f"a usage rate of {0.45 * unit:g} is not its list price an hour"
    assert (rate in error.value.what) == bool(unit)
    assert "That cost about $0.00" in error.value.hint


def test_a_paperspace_machine_whose_rate_is_not_its_list_price_is_listed_without_a_price(
    world: RentingWorld,
) -> None:
    account = world.account
    world.simulation.boxes += [SimulatedBox("ps1", price=0.9), SimulatedBox("ps2", price=76.0)]
    world.simulation.boxes[-1].order["machineType"] = "A4000"
    found = {box.id: (box.price, box.said) for box in account.boxes()}
    said = "a usage rate of 76 is not its list price an hour"
    assert (found["ps1"], found["ps2"]) == ((0.9, ""), (None, said))


def test_a_paperspace_machine_above_max_price_is_never_started(world: RentingWorld) -> None:
    world.simulation.offers[0].billed = 1.2
    box, _ = world.up()
    assert world.simulation.destroyed == ["9001"]
    assert world.simulation.started == [box.box_id] == ["9002"]
    assert any("it costs $1.20 an hour, and $1.00 was agreed to" in x for x in world.heard.lines)


def test_up_gives_back_a_paperspace_machine_that_costs_more_running(world: RentingWorld) -> None:
    world.simulation.offers[0].wakes = "dearer"
    box, _ = world.up()
    assert (world.simulation.destroyed, box.box_id) == (["9001"], "9002")
    ended = rental.of_host("paperspace:9001")
    assert ended is not None
    assert ended.spent > 0


def test_up_destroys_a_paperspace_machine_whose_start_is_refused_twice_and_rents_the_next(
    world: RentingWorld,
) -> None:
    simulation = world.simulation
    simulation.offers[0].wakes = "refused"
    simulation.log = "no capacity in NY2"
    box, _ = world.up()
    assert (simulation.destroyed, box.box_id) == (["9001"], "9002")
    starts = [asked for asked in simulation.changed if asked.endswith("9001/start")]
    assert len(starts) == 2
    (given,) = [line for line in world.heard.lines if "is to be given back" in line]
    assert "it was not started: it refuses (409): no capacity" in given
    assert "Its log ends: create: no capacity in NY2" in given


@pytest.mark.parametrize("fault", ["cut", "cut after", "500", "500 after", "nonsense after", "429"])
def test_up_starts_a_paperspace_machine_once_when_the_answer_to_the_start_is_lost(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.fault_on = {"PATCH /v1/machines/": fault}
    box, _ = world.up()
    assert world.simulation.started == world.simulation.rented == [box.box_id]


def test_the_next_up_starts_the_paperspace_machine_of_an_interrupted_up(
    world: RentingWorld,
) -> None:
    world.interrupt_at = world.simulation.clock.now + 10
    with pytest.raises(KeyboardInterrupt):
        world.up()
    world.simulation.clock.sleep(3600)
    assert (world.ours[0].state, world.simulation.started) == ("starting", [])
    # It is started then, and that is interrupted, too: what it costs since then is counted.
    world.simulation.offers[0].wakes = world.ours[0].wakes = "queued"
    world.interrupt_at = world.simulation.clock.now + 10
    with pytest.raises(KeyboardInterrupt):
        world.up()
    assert world.simulation.started == ["9001"]
    box, _ = world.up()
    assert world.simulation.started == world.simulation.rented == ["9001", box.box_id]
    ended = rental.of_host("paperspace:9001")
    assert ended is not None
    assert ended.spent > 0.45


def test_paperspace_offers_only_free_machines_with_a_known_price(world: RentingWorld) -> None:
    simulation = world.simulation
    account = world.account
    simulation.offers[1].fate = "taken"
    simulation.offers.append(SimulatedOffer("GB300", region="ny2"))
    simulation.offers.append(SimulatedOffer("A4000x2", region="ny2"))
    offers, _ = offers_of([account], RentOrder())
    assert [one.id for one in offers] == ["M4000/ny2", "RTX4000/ny2", "A4000/ams1"]
    (two,), _ = offers_of([account], RentOrder(gpu_count=2, region="US", min_memory_gib=16))
    assert (two.id, two.gpu_count, two.price) == ("A4000x2/ny2", 2, 1.52)
    for order in (RentOrder(spot=True), RentOrder(volume="v5"), RentOrder(gpu_names=("B200",))):
        assert world.offers(order) == []
    # What is dearer than the limit is not asked for.
    simulation.asked.clear()
    offers_of([account], RentOrder(max_price=0.5))
    free = [asked for asked in simulation.asked if "machine-availability" in asked]
    assert len(free) == 2
    # One that was taken meanwhile is a refusal.
    simulation.offers[0].fate = "taken"
    account.add_key(PUBLIC)
    with pytest.raises(NoOfferError, match="out of capacity") as error:
        account.rent(offers[0], RentOrder(), rental.new_mark(), PUBLIC)
    assert not error.value.is_final


def test_a_deleted_paperspace_machine_is_reported_as_gone(world: RentingWorld) -> None:
    shown = world.seen("71")
    assert (shown.state, shown.user, shown.gpu_count) == (RentedState.RUNNING, "paperspace", 1)
    world.simulation.boxes[0].state = "deleted"
    shown = world.seen("71")
    assert shown.state is RentedState.GONE


def test_the_paperspace_startup_script_run_twice_adds_the_ssh_key_once(tmp_path: Path) -> None:
    """The script is run as it is sent, but in another folder and for this user."""
    folder = tmp_path / ".ssh"
    text = paperspace._script(f"{PUBLIC}'s\n").replace("/home/paperspace", str(tmp_path))
    text = text.replace("chown -R paperspace:", "true")
    folder.mkdir(mode=0o755)
    (folder / "authorized_keys").write_text("ssh-rsa AAAA theirs")  # no newline at its end
    for _ in range(2):
        subprocess.run(["sh", "-euc", text], check=True)
    lines = (folder / "authorized_keys").read_text().splitlines()
    assert lines == ["ssh-rsa AAAA theirs", f"{PUBLIC}'s"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "authorized_keys").stat().st_mode & 0o777 == 0o600
