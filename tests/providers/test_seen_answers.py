"""What providers were seen to answer, beside their documents: each is in docs/providers.md."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from bootstrap.errors import NoOfferError, ReturnBoxError, UnreachableError
from bootstrap.profile.load import read_profile
from bootstrap.providers import PROVIDERS, Api, ApiKey, RefusedKeyError, RentedState, RentOrder, api
from bootstrap.renting import Rental, RentalState, offers_of, order_of, rental
from bootstrap.runs.rented import ask_accounts, contract_words, with_contract
from tests.listener import Listener
from tests.providers.accounts import KEY, STARTED, SimulatedBox, SimulatedOffer
from tests.providers.renting_world import CREATES, STARTS, RentingWorld

PROVIDER = "runpod"
pytestmark = pytest.mark.sampled(of="module")


every_renting = pytest.mark.parametrize("world", [*CREATES], indirect=True)
every_rest_api = pytest.mark.parametrize(
    "world", [each for each in CREATES if each != "ec2"], indirect=True
)
"""All but EC2: nothing was seen before AWS's, and it asks for no pause."""
with_prices = pytest.mark.parametrize("world", ["vast", "runpod", "lambda"], indirect=True)
"""Those whose offers say what they are, and cost."""
vast = pytest.mark.parametrize("world", ["vast"], indirect=True)
at_lambda = pytest.mark.parametrize("world", ["lambda"], indirect=True)


@every_rest_api
def test_a_403_of_a_proxy_before_a_providers_api_is_retried_and_not_read_as_a_refused_key(
    world: RentingWorld,
) -> None:
    simulation = world.simulation
    simulation.faults_at = {0: "edge", 1: "edge"}
    simulation.fault_on = {CREATES[simulation.provider]: "edge"}
    box, _ = world.up()
    assert simulation.rented == [box.box_id]
    simulation.is_edgy = True
    account = PROVIDERS[simulation.provider](ApiKey(KEY, "a test"))
    for ask in (account.boxes, lambda: account.destroy(box.box_id)):
        with pytest.raises(UnreachableError, match="That says nothing about your key") as error:
            ask()
        assert not isinstance(error.value, RefusedKeyError)
    simulation.is_edgy = False
    assert [one.id for one in world.ours] == [box.box_id]


@every_rest_api
def test_a_429_of_a_provider_is_retried_after_its_retry_after_but_not_if_that_is_an_hour(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = list[float]()
    monkeypatch.setattr(Api, "pause", lambda _, seconds: paused.append(seconds))
    account = world.account
    world.simulation.retry_after = "37"
    world.simulation.faults_at = {0: "429", 1: "429"}
    account.boxes()
    assert paused == [37.0, 37.0]
    # Nobody waits for an hour.
    world.simulation.retry_after = "3600"
    world.simulation.faults_at = {len(world.simulation.asked): "429"}
    with pytest.raises(UnreachableError, match="slow down"):
        account.boxes()
    assert paused == [37.0, 37.0]
    # A date that is none is no pause, and no error of boxstrap's.
    for odd in ("Mon, 1 Jan 2020 00:00:00 +99999999999999999999", "Mon, 01 Jan 9" + "9" * 30, "-1"):
        world.simulation.retry_after = odd
        world.simulation.fault_on = {"GET": "429"}
        account.boxes()


def test_a_far_too_slow_answer_of_a_provider_ends_at_a_time_limit_as_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = threading.Event()

    def trickle(line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            line.recv(65536)
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not over.is_set():
                line.sendall(b" ")
                time.sleep(0.05)

    listener = Listener(trickle)
    monkeypatch.setenv("BOXSTRAP_VAST_API", f"http://127.0.0.1:{listener.port}")
    monkeypatch.setattr(api, "_LONGEST_REQUEST_S", 1.0)
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="it doesn't answer"):
        PROVIDERS["vast"](ApiKey(KEY, "a test")).boxes()
    assert time.monotonic() - begun < 30  # it would trickle for ever
    over.set()
    listener.close()


def test_a_runpod_community_pod_is_ordered_without_a_data_center(world: RentingWorld) -> None:
    """It is the cheapest, and any data center that it named would be refused."""
    world.simulation.offers.insert(0, SimulatedOffer("5", cloud="COMMUNITY", price=0.1))
    box, _ = world.up()
    sent = world.ours[0].order
    assert (sent["cloud"], "dataCenterIds" in sent) == ("COMMUNITY", False)
    world.down(box)
    # Where secure ones are asked for, none of these is even read.
    world.up(order=RentOrder(max_price=1.0, secure_only=True))
    assert (world.ours[0].order["cloud"], world.ours[0].order["dataCenterIds"]) == (
        "SECURE",
        ["us-0"],
    )


def test_a_runpod_volume_is_mounted_only_by_pods_of_the_secure_cloud(world: RentingWorld) -> None:
    simulation = world.simulation
    simulation.offers.insert(0, SimulatedOffer("5", cloud="COMMUNITY", price=0.1, region="us-1"))
    near = {"id": "v5", "name": "", "size": 100, "dataCenter": "us-1", "type": "STANDARD"}
    simulation.volumes = [near]
    world.up(order=RentOrder(max_price=1.0, volume="v5"))
    sent = world.ours[0].order
    assert (sent["cloud"], sent["dataCenterIds"]) == ("SECURE", ["us-1"])


def test_up_rents_no_runpod_machine_with_a_driver_too_old_for_the_image(
    world: RentingWorld,
) -> None:
    """A pod there runs, costs, and is never reached."""
    simulation = world.simulation
    simulation.offers[0].max_cuda = "12.4"
    world.up()
    assert len(simulation.rented) == 1
    assert world.ours[0].order["gpu"] == {"id": "11", "count": 1, "minCudaVersion": "12.8"}
    assert all("minCudaVersion=12.8" in one for one in simulation.asked if "catalog" in one)
    world.down(rental.all_rentals()[0])
    # What the profile says counts, if that is more. An image of one's own needs what its name says.
    for offer in simulation.offers[:3]:
        offer.max_cuda = "12.8"
    simulation.offers[3].max_cuda = "12.11"
    world.up(order=RentOrder(min_cuda="12.9", max_price=1.0))
    assert world.ours[0].order["gpu"]["minCudaVersion"] == "12.9"
    assert world.ours[0].order["gpu"]["id"] == "13"
    world.down(rental.all_rentals()[0])
    world.up(order=RentOrder(image="me/mine", max_price=1.0))
    assert world.ours[0].order["gpu"] == {"id": "10", "count": 1}


@vast
def test_up_at_vast_skips_offers_of_too_old_cuda_another_cpu_type_or_no_secure_host(
    world: RentingWorld,
) -> None:
    offers = world.simulation.offers
    offers[0].max_cuda, offers[1].arch = "12.1", "arm64"
    box, _ = world.up(order=RentOrder(min_cuda="12.4", max_price=1.0))
    assert box.machine == "12"
    world.down(box)
    box, _ = world.up(order=RentOrder(arch="arm64", max_price=1.0))
    assert box.machine == "11"
    world.down(box)
    offers[0].cloud = "COMMUNITY"
    box, _ = world.up(order=RentOrder(max_price=1.0, secure_only=True))
    assert box.machine == "13"  # 10 is at somebody's own place


@pytest.mark.parametrize(
    ("lock", "sets", "needs"),
    [
        ("", [], ""),
        ('name = "nvidia-cuda-runtime-cu12"\nversion = "12.8.90"\n', [], "12.0"),
        ('name = "nvidia-cuda-runtime"\nversion = "13.0.48"\n', [], "13.0"),
        ('name = "torch"\nversion = "2.6.0+cu118"\n', [], "11.0"),
        ('name = "torch"\nversion = "2.6.0+cpu"\n', [], ""),
        ("", ["python.torch_backend=cu126"], "12.0"),
        ("", ["box.image=nvidia/cuda:12.6.3-devel-ubuntu24.04"], "12.6"),
        ("", ["box.image=pytorch/pytorch:2.8.0-cuda12.9-cudnn9-devel"], "12.9"),
        ("", ["box.image=me/pod:1.0.2-cu1281-torch280"], "12.8"),
        ("", ["box.image=me/mine:2"], ""),
        ('name = "torch"\nversion = "2.6.0+cu124"\n', ["gpu.min_cuda=12.1"], "12.1"),
    ],
)
def test_the_cuda_version_of_an_order_comes_from_profile_image_or_locked_torch(
    tmp_path: Path, lock: str, sets: list[str], needs: str
) -> None:
    (tmp_path / "uv.lock").write_text(f"[[package]]\n{lock}")
    assert order_of(read_profile(None, sets=sets).profile, None, tmp_path).min_cuda == needs


@vast
@pytest.mark.parametrize("fate", ["dies", "unknown", "never starts"])
def test_up_does_not_wait_for_a_vast_box_in_a_state_that_never_becomes_running(
    world: RentingWorld, fate: str
) -> None:
    world.simulation.offers[0].fate = fate
    box, _ = world.up()
    assert (world.simulation.destroyed, box.box_id) == (["9001"], "9002")
    assert world.simulation.clock.now - STARTED < 180
    told = any("OCI runtime create failed" in line for line in world.heard.lines)
    assert told == (fate == "never starts")
    # A box of one's own that gets there when it is started again is not paid for.
    world.ours[0].state, world.ours[0].becomes = "stopped", None
    world.ours[0].wakes = "broken"
    with pytest.raises(UnreachableError, match=r"is broken.*it is stopped again"):
        world.up()
    assert world.ours[0].state == "stopped"


@every_renting
def test_up_says_that_a_box_is_unreachable_after_the_15_to_30_minutes_set_for_its_provider(
    world: RentingWorld,
) -> None:
    world.simulation.offers = world.simulation.offers[:1]
    world.simulation.offers[0].fate = "stuck"
    with pytest.raises(NoOfferError) as refused:
        world.up(limit=100.0)
    minutes = {"vast": 15, "runpod": 20, "lambda": 30, "paperspace": 20, "ec2": 15, "hf": 20}
    minutes |= {"gcp": 15, "azure": 20}
    longest = minutes[world.simulation.provider]
    assert f"can't be reached after {longest} minutes" in refused.value.what


@vast
def test_a_box_is_not_reported_as_gone_if_vast_refuses_the_api_key(world: RentingWorld) -> None:
    box, _ = world.up()
    world.simulation.is_expired = True
    account = world.account
    for ask in (lambda: account.box(box.box_id), lambda: account.destroy(box.box_id)):
        with pytest.raises(RefusedKeyError, match=r"Please log in again\.\n"):
            ask()
    with pytest.raises(RefusedKeyError):
        world.up()
    with pytest.raises(RefusedKeyError, match="Invalid user key"):
        PROVIDERS["vast"](ApiKey("old", "a test")).box(box.box_id)
    world.simulation.is_expired = False
    assert [each.state for each in rental.all_rentals()] == [RentalState.RENTED]
    assert world.simulation.destroyed == []


@every_renting
def test_up_names_the_box_that_still_costs_money_when_its_api_key_is_refused_after_renting(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = world.simulation
    refused = (401, {"error": "auth_error", "title": "x", "status": 401, "detail": "no"})
    rent = simulation.rent

    def revoked(*asked: object) -> SimulatedBox:
        box = rent(*asked)  # type: ignore[arg-type]
        simulation.faults = [(404 if simulation.provider == "vast" else 401, refused[1])] * 50
        return box

    monkeypatch.setattr(simulation, "rent", revoked)
    with pytest.raises(RefusedKeyError):
        world.up()
    (rented,) = simulation.rented
    assert [each.host for each in rental.all_rentals()] == [f"{simulation.provider}:{rented}"]
    assert any(f"{rented} goes on and costs" in line for line in world.heard.lines)
    assert simulation.clock.now - STARTED < 60
    simulation.faults = []


@at_lambda
def test_up_tries_another_gpu_type_after_lambda_refused_a_type_in_a_region(
    world: RentingWorld,
) -> None:
    for offer in world.simulation.offers:
        offer.region = "us-east-1"
    taken = world.simulation.offers[:2]
    world.simulation.launch_every_s = 12.0
    answer = world.simulation.offer
    gone = {one.id for one in taken}
    world.simulation.offer = lambda one: None if one in gone else answer(one)  # type: ignore[method-assign]
    box, _ = world.up()
    assert box.machine == "12/us-east-1"
    # It takes one launch in 12 seconds: none was turned away for that.
    launches = [one for one in world.simulation.changed if one.endswith("/launch")]
    assert len(launches) == 3
    assert world.simulation.clock.now - STARTED >= 24


@at_lambda
def test_up_says_how_many_offers_were_refused_and_how_many_it_did_not_try(
    world: RentingWorld,
) -> None:
    world.simulation.offers = [SimulatedOffer(str(n), region="us-1") for n in range(12)]
    world.simulation.offer = lambda _: None  # type: ignore[method-assign]
    with pytest.raises(NoOfferError, match="10 offers were refused, and 2 more were not asked"):
        world.up()
    world.simulation.offers = world.simulation.offers[:2]
    with pytest.raises(NoOfferError, match="every offer that fits was refused"):
        world.up()


@at_lambda
def test_up_rents_an_arm64_machine_only_if_the_order_asks_for_it(world: RentingWorld) -> None:
    grace = SimulatedOffer("gpu_1x_gh200", gpu="GH200", price=0.1, region="us-1")
    world.simulation.offers.append(grace)
    box, _ = world.up()
    assert box.machine == "10/us-0"
    world.down(box)
    others = offers_of([world.account], RentOrder())[1]
    assert [one.misses(RentOrder()) for one in others] == [["arm64, not amd64"]]
    box, _ = world.up(order=RentOrder(arch="arm64"))
    assert box.machine == "gpu_1x_gh200/us-1"


def test_a_stopped_runpod_pod_is_listed_with_the_price_of_its_volume(world: RentingWorld) -> None:
    """The price that RunPod gives of it is 0.0."""
    box, _ = world.up(order=RentOrder(disk_gb=100, max_price=1.0))
    world.ours[0].state = "stopped"
    (seen,) = [one for one in world.account.boxes() if one.id == box.box_id]
    assert seen.price_now() == pytest.approx(100 * 0.20 / 720, abs=1e-5)
    world.ours[0].order["mounts"] = {"network": [{"volumeId": "v5", "path": "/workspace"}]}
    (seen,) = [one for one in world.account.boxes() if one.id == box.box_id]
    assert seen.price_now() is None


def test_up_rents_the_next_offer_if_runpod_answers_500_because_no_machine_is_left(
    world: RentingWorld,
) -> None:
    world.simulation.offers[0].fate = "none left"
    box, _ = world.up()
    assert (box.box_id, box.machine) == ("9001", "11/SECURE/us-1")
    assert world.simulation.clock.now - STARTED < 120


@vast
def test_the_running_time_of_a_vast_box_counts_from_its_last_start(world: RentingWorld) -> None:
    box, _ = world.up()
    account = world.account
    account.stop(box.box_id)
    world.sleep(7200)
    world.ours[0].state, world.ours[0].since = "running", world.simulation.clock.now
    world.sleep(600)
    assert world.ours[0].made < world.ours[0].since
    seen = world.seen(box.box_id)
    assert seen.state is RentedState.RUNNING
    now = account.answered_at or 0.0
    assert now - (seen.since or 0.0) == pytest.approx(600, abs=2)


def stopped_box(world: RentingWorld, wakes: str = "runs") -> Rental:
    """Rent a box, set it up, and stop it."""
    box, _ = world.up()
    there = world.ours[0]
    there.state, there.wakes = "stopped", wakes
    return box


stopping = pytest.mark.parametrize("world", ["vast", "runpod"], indirect=True)


@stopping
@pytest.mark.parametrize("says", [True, False])
def test_up_starts_a_stopped_box_above_max_price_only_if_its_price_is_agreed_to(
    world: RentingWorld, *, says: bool
) -> None:
    box, asked = stopped_box(world), list[str]()

    def may_start(question: str) -> bool:
        asked.append(question)
        return says

    wish = {"order": RentOrder(max_price=0.05), "may_start": may_start}
    if says:
        world.up(**wish)
    else:
        with pytest.raises(UnreachableError, match="it is stopped"):
            world.up(**wish)
    assert asked == [f"{box.host} is stopped. Start it at $0.30 an hour?"]
    assert world.simulation.started == [box.box_id] * says
    assert world.set_up == [box.host] * (1 + says)
    assert (world.simulation.rented, world.simulation.destroyed) == ([box.box_id], [])


@stopping
@pytest.mark.parametrize("fault", ["cut", "cut after", "500 after", "nonsense after"])
def test_up_requests_the_start_of_a_stopped_box_only_once_if_no_answer_comes(
    world: RentingWorld, fault: str
) -> None:
    box = stopped_box(world)
    world.simulation.fault_on = {STARTS[world.simulation.provider]: fault}
    before = len(world.simulation.changed)
    if "after" in fault:
        world.up()
    else:
        with pytest.raises(UnreachableError, match="stopped again"):
            world.up()
    assert world.simulation.started == [box.box_id] * ("after" in fault)
    assert len(world.simulation.changed) == before + (1 if "after" in fault else 2)
    assert world.simulation.rented == [box.box_id]


def test_up_says_to_return_a_runpod_pod_that_started_without_a_gpu(world: RentingWorld) -> None:
    box = stopped_box(world, "no gpus")
    for _ in range(2):  # the second time it runs already
        with pytest.raises(ReturnBoxError, match="without a GPU"):
            world.up()
    assert world.simulation.started == [box.box_id]
    assert (world.ours[0].state, world.set_up) == ("running", [box.host])


@with_prices
def test_up_rents_a_gpu_named_earlier_in_gpu_name_before_a_cheaper_one(world: RentingWorld) -> None:
    simulation = world.simulation
    simulation.offers[3].gpu, simulation.offers[2].gpu = "H100 SXM", "A100 PCIE"
    order = RentOrder(gpu_names=("H100", "A100"), max_price=1.0)
    simulation.offers[3].fate = "taken"
    box, _ = world.up(order=order)
    assert "A100" in box.gpu
    world.down(box)
    for offer in simulation.offers:
        offer.fate = "runs"
    box, _ = world.up(order=order)
    assert "H100" in box.gpu


@with_prices
def test_up_waits_for_an_offer_within_max_price_and_lets_other_commands_rent_meanwhile(
    world: RentingWorld,
) -> None:
    simulation, began = world.simulation, world.simulation.clock.now
    simulation.launch_every_s = 0.0
    for offer in simulation.offers:
        offer.price += 2
    simulation.fault_on = {}
    seen, sleep = list[float](), world.sleep

    def sleeping(seconds: float) -> None:
        seen.append(seconds)
        with rental.one_at_a_time():  # nobody is kept from renting
            sleep(seconds)
        if len(seen) == 5:
            simulation.offers[1].price = 0.5
        if len(seen) == 3:  # an account that doesn't answer for once ends nothing
            simulation.faults_at = {len(simulation.asked) + at: "500" for at in range(9)}
        else:
            simulation.faults_at = {}

    world.sleep = sleeping  # type: ignore[method-assign]
    box, _ = world.up(wait_s=7200.0)
    assert box.price == pytest.approx(0.5, abs=0.02)
    waits = [line for line in world.heard.lines if line.startswith("waiting for an offer within $")]
    assert 5 <= len(waits) <= 6
    assert 300 <= simulation.clock.now - began < 600
    world.down(box)
    simulation.offers[1].price = 2.0
    with pytest.raises(NoOfferError, match="no offer fits"):
        world.up(wait_s=600.0)


def test_up_stops_waiting_for_offers_once_boxes_it_gave_back_used_up_its_money_limit(
    world: RentingWorld,
) -> None:
    world.simulation.offers = [SimulatedOffer("10", fate="dies", region="us-1")]
    began = world.simulation.clock.now
    with pytest.raises(NoOfferError, match="none of the rented boxes"):
        world.up(wait_s=86400.0, limit=0.001)
    assert world.simulation.clock.now - began < 3600


@vast
def test_up_at_vast_skips_offers_below_the_profiles_reliability_network_speed_or_contract_length(
    world: RentingWorld,
) -> None:
    offers = world.simulation.offers
    offers[0].reliability, offers[1].down_mbps, offers[2].hours = 0.9, 100.0, 5.0
    order = RentOrder(max_price=1.0, min_reliability=0.98, min_down_mbps=500, min_hours=12)
    box, _ = world.up(order=order)
    assert box.machine == "13"
    account = world.account
    fitting, others = offers_of([account], RentOrder(max_price=0.01))
    assert fitting == []
    missed = [offer.missed(order) for offer in others]
    assert {"rent.min_reliability", "rent.min_down_mbps", "rent.min_hours"} <= {
        key for each in missed for key in each
    }


@at_lambda
def test_a_lambda_machine_without_a_price_is_no_offer(world: RentingWorld) -> None:
    world.simulation.offers[0].price = 0.0
    found, others = offers_of([world.account], RentOrder())
    assert [offer.machine for offer in found] == ["11/us-1", "12/us-2", "13/us-3"]
    assert others == []


@vast
def test_up_without_a_fitting_offer_says_how_many_offers_each_profile_key_leaves(
    world: RentingWorld,
) -> None:
    offers = world.simulation.offers
    offers[0].gpu = "RTX 3060"
    offers[1].hours = 2.0
    order = RentOrder(gpu_names=("RTX 4090",), min_hours=12, max_price=0.45)
    with pytest.raises(NoOfferError) as refused:
        world.up(order=order)
    told = "Of 4 offers gpu.name leaves 3, rent.min_hours leaves 2, rent.max_price leaves none."
    assert told in refused.value.hint
    # What an offer doesn't say, its provider looks for.
    for offer in offers:
        offer.machine = "77"
    world.simulation.volumes = [{"id": 5, "machine_id": 78}]
    with pytest.raises(NoOfferError) as refused:
        world.up(order=RentOrder(volume="5"))
    assert "box.volume or box.disk_gb leaves none" in refused.value.hint


@pytest.mark.parametrize(
    ("world", "fate"),
    [("vast", "stuck"), ("vast", "dies"), ("runpod", "stuck"), ("hf", "stuck")],
    indirect=["world"],
)
def test_up_prints_the_log_of_a_box_that_never_came_up(world: RentingWorld, fate: str) -> None:
    simulation = world.simulation
    simulation.offers = simulation.offers[:1]
    simulation.offers[0].fate = fate
    simulation.log = "pulling image\nmanifest for me/mine:2 not found: manifest unknown"
    with pytest.raises(NoOfferError) as refused:
        world.up(limit=100.0)
    assert "Its log ends: pulling image / manifest for me/mine:2 not found" in refused.value.what
    # Without one, nothing is added.
    simulation.offers[0].machine = "11"  # the first one's is not tried again
    simulation.log = ""
    with pytest.raises(NoOfferError) as refused:
        world.up(limit=100.0)
    assert "Its log ends" not in refused.value.what


@vast
def test_boxes_all_says_when_a_vast_contract_ends_and_which_higher_price_its_host_wants(
    world: RentingWorld,
) -> None:
    simulation, now = world.simulation, time.time()
    simulation.boxes[0].ends, simulation.boxes[1].ends = now + 3.5 * 3600, now + 90 * 86400
    row = {"contract_id": 72, "new_gpu_costpersec": 0.0002, "old_gpu_costpersec": 0.0001}
    simulation.increases = [row]
    near, other = ask_accounts().text().splitlines()[:2]
    assert "its contract ends in 3 h" in near
    assert "more" not in near
    assert "its host asks $0.36/h more, to be accepted there" in other
    # So does `status`, of one box.
    one = with_contract("vast:72")
    assert one is not None
    assert contract_words(one, now)[1] == "its host asks $0.36/h more, to be accepted there"
    assert with_contract("vast:404") is None
    # The list is there without these.
    simulation.fault_on = {"GET /api/v0/instances/pending-price-increases/": "nonsense after"}
    listed = ask_accounts()
    listed.raise_for_status()
    assert "asks" not in listed.text()
