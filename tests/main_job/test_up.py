"""`up`: a box is rented at a simulated account and set up in the usual way, in the rig."""

import contextlib
import csv
import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.providers.azure import LONGEST_HOLD_S
from bootstrap.sizes import dollars
from tests.cli import RESULTS, Completed, User
from tests.main_job.conftest import Card, Rent
from tests.main_job.rented import Rented
from tests.nvml import scenarios
from tests.providers.accounts import (
    KEY,
    SimulatedAccount,
    SimulatedClock,
    SimulatedOffer,
    simulated,
)
from tests.providers.renting_world import offers_at

pytestmark = pytest.mark.sampled(of="module")
NODES = RESULTS.replace("train.py", "reduce.py 1").replace("[out/]", "[out/], nodes: 2")
TRAIN = 'print("0.4", file=open("out/result", "w"))\n'


@pytest.fixture
def account() -> Iterator[SimulatedAccount]:
    """An account with two offers; a rented box is ready immediately."""
    with simulated("vast") as made:
        made.loading_s = 0.0
        made.offers = [SimulatedOffer(str(11 + at), price=0.4 + at / 10) for at in range(2)]
        yield made


def test_up_rents_a_box_within_max_price_and_a_second_up_rents_none_but_uses_that_box(
    rented: Rented, account: SimulatedAccount
) -> None:
    user, box = rented.user, rented.box
    account.address = (box.address, box.port, box.user)
    user.env |= account.environment()
    user.repository()

    def up(*options: str) -> Completed:
        return user.run("up", "--identity", str(box.identity), *options)

    # No price limit was given.
    assert "--max-price 0.42" in up().must(2).err
    assert account.rented == []
    # What a setup would refuse is refused before anything is paid for.
    (user.place / ".env").write_text("TOKEN=canary\n")
    assert ".env  (environment file)" in up("--max-price", "0.6").must(2).err
    (user.place / ".env").unlink()
    assert account.rented == []
    done = up("--max-price", "0.6", "--json").must(0).json()
    assert (done["rented"]["host"], done["run"]["name"]) == ("vast:9001", "train-1")
    assert account.boxes[0].label == done["rented"]["mark"]
    assert box.identity.with_suffix(".pub").read_text().split()[1] in account.keys[0]
    assert (
        user.run("boxes", "--all", "--json").must(0).json()["boxes"][0]["known_as"] == "vast-9001"
    )
    assert done["lease"]["limits"]["hours"]["limit"] == 24 * 3600  # the default
    terms = box.run("cat ~/.boxstrap/lease.json")
    assert -300 < json.loads(terms)["rented"] - time.time() < 0  # it counts from the renting
    # The second time it is the same box, with nothing to do.
    again = up("--max-price", "0.6").must(0)
    assert "vast:9001, rented as boxstrap-" in again.err
    held = "vast-9001 is the box that you had rented before, and no new one was rented. It has "
    assert f"{held}1 earlier run: homework/train-1 finished. For a new box: --another" in again.err
    assert account.rented == ["9001"]
    assert box.run("cat ~/.boxstrap/lease.json") == terms
    assert rented.runs().count("train-1") == 1
    # Where its setup fails, the document has the box that goes on and costs.
    broken = up("--max-price", "0.6", "--set", "prepare=[false]", "--json").must(7).json()
    assert broken["rented"] == done["rented"]
    # What its host asks for is said beside its state, and left out if the account doesn't answer.
    row = {"contract_id": 9001, "new_gpu_costpersec": 0.0002, "old_gpu_costpersec": 0.0001}
    account.increases, account.boxes[0].ends = [row], time.time() + 3.5 * 3600
    said = user.run("status", "--host", "vast-9001").must(0).out
    assert "its contract ends in 3 h" in said
    assert "its host asks $0.36/h more" in said
    asked = user.run("status", "--json").must(0).json()
    assert asked["price_increase"] == pytest.approx(0.36)
    account.is_edgy = True
    assert "contract" not in user.run("status").must(0).out
    account.is_edgy = False
    # The profile now requires a GPU, which the box lacks: a box from before is kept, a new one
    # is given back, and there is no third offer.
    refused = up("--max-price", "0.6", "--set", "gpu.require=true").must(6)
    assert "is not given back automatically" in refused.err
    assert account.destroyed == []
    ended = up("--max-price", "0.6", "--set", "gpu.require=true", "--another").must(11)
    assert "vast:9002 is to be given back" in ended.err
    assert "vast:9002: given back, it cost about $0." in ended.err
    assert account.destroyed == ["9002"]
    assert [each.id for each in account.boxes] == ["9001"]
    known = user.run("boxes", "--json").must(0).json()["boxes"]
    assert [each["name"] for each in known] == ["vast-9001"]


def test_up_with_count_divides_the_lease_dollars_among_its_boxes_and_down_gives_all_back(
    rent: Rent, account: SimulatedAccount
) -> None:
    hosts = [rent("vast", used=True) for _ in range(2)]
    boxes, user = [one.box for one in hosts], hosts[0].user
    account.offers.append(SimulatedOffer("13", price=0.9))
    account.addresses = [(box.address, box.port, box.user) for box in boxes]
    user.env |= account.environment()
    user.repository()
    words = ("--max-price=0.6", f"--identity={boxes[0].identity}", "--set=lease.dollars=10")
    done = user.run("up", "--count=3", "--group=seeds", *words, "--json").must(11)
    told = done.json()
    assert account.rented == ["9001", "9002"]  # the third offer is too dear
    assert (told["count"], told["came"]) == (3, 2)
    assert [one["exit"] for one in told["boxes"]] in ([0, 11], [11, 0])
    limits = [json.loads(box.run("cat ~/.boxstrap/lease.json"))["dollars"] for box in boxes]
    assert limits == [3.33, 3.33]
    # Again: those that came count, and what is missing still can't be had.
    user.run("up", "--count=3", "--group=seeds", *words).must(11)
    user.run("up", "--count=2", "--group=seeds", *words).must(0)
    assert account.rented == ["9001", "9002"]
    listed = user.run("boxes", "--group", "seeds", "--json").must(0).json()["boxes"]
    assert {box["name"] for box in listed} == {"vast-9001", "vast-9002"}
    user.run("wait", "--hosts", "seeds").must(0)
    ended = user.run("down", "--hosts", "seeds", f"--identity={boxes[0].identity}").must(0)
    assert ended.out.count("destroyed, and no longer listed") >= 2
    assert sorted(account.destroyed) == ["9001", "9002"]


EXPERIMENT = """\
import sys, time
given = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
for step in range(1, 4):
    print(f"step {step} loss {float(given['lr']) * (1 + int(given['seed'])) / step}", flush=True)
    time.sleep(0.7)
"""
TEN = "command: python train.py ${{args}}\nparameters:\n  lr: [0.1, 0.2]\n  seed: [{}]\n"


def test_the_commands_of_the_sweeps_page_rent_run_report_costs_and_give_all_boxes_back(
    rent: Rent, card: Card, account: SimulatedAccount, request: pytest.FixtureRequest
) -> None:
    """Types the lines of docs/sweeps.md as they stand there, but for two boxes and four cells."""
    count, seeds = (5, 5) if request.config.getoption("every") else (2, 2)
    boxes = [rent("vast", used=True) for _ in range(count)]
    user, identity = boxes[0].user, str(boxes[0].box.identity)
    smaller = "gpu.name = NVIDIA A100-SXM4-40GB\ngpu.memory = 40960 640\ngpu.memory_v2 = 40960 4"
    for rented in boxes:
        card(rented, f"{scenarios.A100}\n{smaller}")
    account.offers = [
        SimulatedOffer(str(11 + at), gpu="A100 SXM4", memory_gib=40, price=0.9)
        for at in range(count)
    ]
    account.addresses = [(each.box.address, each.box.port, each.box.user) for each in boxes]
    user.env |= account.environment()
    user.repository(
        train__py=EXPERIMENT,
        ten__yaml=TEN.format(", ".join(map(str, range(seeds)))),
        boxstrap__yaml="version: 1\ngpu: {smoke: none}\n",
    )
    text = (Path(__file__).parents[2] / "docs/sweeps.md").read_text().partition("## Ten exper")[2]
    (block,) = re.findall(r"```\n(.+?)```", text, re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    typed_in_turn = ["up", "run", "wait", "run", "wait", "pull", "report", "down"]
    assert [words[1] for words in lines] == typed_in_turn
    said: list[Completed] = []
    for words in lines:
        typed = [{"5": str(count)}.get(word, word) for word in words[1:]]
        said.append(user.run(*typed, "--identity", identity).must(0))
    _, begun, _, again, _, _, told, ended = said
    assert f"ten: {2 * seeds} cells: {2 * seeds} queued now" in begun.out
    assert "nothing to queue" in again.out
    assert "best by loss, least at the end: 0.0333333 of lr=0.1,seed=0" in told.out
    page = (user.place / "boxstrap-results/sweeps/ten.html").read_text()
    assert f"{2 * seeds} of {2 * seeds} cells finished" in page
    rows = csv.DictReader((user.place / "boxstrap-results/sweeps/ten.csv").read_text().splitlines())
    costs = [(int(row["seconds"]), float(row["dollars"])) for row in rows]
    assert all(cost == round(seconds / 3600 * 0.92, 4) > 0 for seconds, cost in costs)
    total = dollars(sum(cost for _, cost in costs))
    assert f"all cells: {total}" in told.out
    assert total in page
    assert len([*user.place.glob("boxstrap-results/vast-*/ten-*")]) == 2 * seeds
    assert ended.out.count("destroyed, and no longer listed") >= count
    assert sorted(account.destroyed) == sorted(account.rented)
    assert len(account.rented) == count


@contextlib.contextmanager
def account_half_made(
    provider: str, offers: list[SimulatedOffer], rented: Rented
) -> Iterator[SimulatedAccount]:
    """An account whose first offer is only made by half; the next one is this box, for a
    repository of its user."""
    with simulated(provider) as account:
        account.clock = SimulatedClock(time.time)
        account.loading_s, account.offers = 0.0, offers
        account.offers[0].fate = "failed bid"
        account.address = (rented.box.address, rented.box.port, rented.box.user)
        rented.user.env |= account.environment()
        files = {".gitignore": "out/\n"}
        rented.user.repository(boxstrap__yaml=RESULTS, train__py=TRAIN, **files)
        yield account


def test_up_at_google_cloud_rents_a_box_that_ends_by_its_lease_or_by_down(rent: Rent) -> None:
    rented = rent("gcp", used=True)
    user, box = rented.user, rented.box
    # The first is half made: there is no room, said after a 200.
    with account_half_made("gcp", offers_at("gcp"), rented) as account:
        words = ("--provider", "gcp", "--max-price", "1", "--identity", str(box.identity))
        done = user.run("up", *words).must(0)
        half, ours = account.rented
        assert account.destroyed == [half]
        assert account.boxes[0].order["kind"] == "g2-standard-8"
        assert f"gcp:{ours} is stopped after 24 hours" in done.err
        assert "Else Google Cloud deletes it, with its disk, half an hour later" in done.err
        assert "which shuts itself down" in done.out
        (known,) = user.run("boxes", "--all", "--json").must(0).json()["boxes"]
        assert (known["known_as"], known["price"]) == (f"gcp-{ours}", 0.853624)
        assert known["ends"] == pytest.approx(account.boxes[0].since + 24.5 * 3600, abs=1)
        # Google's own end can't be moved: the lease goes up to it, and no further.
        refused = user.run("lease", "--host", f"gcp:{ours}", "--extend", "2h").must(2)
        assert "by its own limit, which nothing moves" in refused.err
        # What was known of an earlier start is asked for again, and a longer lease is cut to it.
        (record,) = user.home.rglob("box.json")
        told = json.loads(record.read_text())
        told["extra"]["ends"] = time.time() - 3600
        record.write_text(json.dumps(told))
        again = user.run("setup", "--host", f"gcp-{ours}", "--set", "lease.hours=40").must(0)
        assert "all that is on it is lost then: so its lease is 1 d" in again.err
        assert json.loads(record.read_text())["extra"]["ends"] == pytest.approx(known["ends"])
        # Nothing of the user's credentials is on the box.
        for secret in ("BEGIN PRIVATE KEY", KEY):
            assert box.run(f"grep -rlF -e '{secret}' /home /tmp /root 2>/dev/null || :") == ""
        user.run("wait", "--host", f"gcp-{ours}").must(0)
        ended = user.run("down", "--host", f"gcp:{ours}").must(0)
        assert "destroyed, and no longer listed" in ended.out
        assert account.destroyed == [half, ours]
        assert account.own.disks == {}
    assert (user.place / "boxstrap-results").is_dir()


def test_up_at_azure_rents_a_box_that_azure_stops_and_down_deletes_with_its_group(
    rent: Rent,
) -> None:
    rented = rent("azure", used=True)
    user, box = rented.user, rented.box
    # The first is half made: there is no room, said by the deployment.
    with account_half_made("azure", offers_at("azure"), rented) as account:
        account.tells_time = True
        words = ("--provider", "azure", "--max-price", "1", "--identity", str(box.identity))
        done = user.run("up", *words).must(0)
        half, ours = account.rented
        assert account.destroyed == [half]
        assert account.boxes[0].order["kind"] == "Standard_NC8as_T4_v3"
        assert "Azure gives a box no key to end itself with" in done.err
        assert (
            "Else Azure stops it within half an hour of that, after a lease of at most" in done.err
        )
        # Its schedule has no room for a day and half an hour: the lease is cut to it.
        assert "it is stopped then, which keeps its disk: so its lease is 23 h" in done.err
        assert "nothing on this box holds the lease" in done.out + done.err
        (known,) = user.run("boxes", "--all", "--json").must(0).json()["boxes"]
        assert (known["known_as"], known["price"]) == (f"azure-{ours}", 0.752)
        assert known["ends"] == pytest.approx(account.boxes[0].made + LONGEST_HOLD_S, abs=90)
        refused = user.run("lease", "--host", f"azure:{ours}", "--extend", "2h").must(2)
        assert "by its own limit, which nothing moves" in refused.err
        # Nothing of the user's login is on the box.
        assert box.run(f"grep -rlF -e '{KEY}' /home /tmp /root 2>/dev/null || :") == ""
        user.run("wait", "--host", f"azure-{ours}").must(0)
        # What shut itself down is paid for: a guard deallocates it.
        account.boxes[0].state = "off"
        (record,) = user.home.rglob("box.json")
        told = json.loads(record.read_text())
        told["extra"]["lease"]["seconds"] = 1
        record.write_text(json.dumps(told))
        guarded = user.run("guard", "--once").must(0)
        assert "its lease is over (hours): stopped" in guarded.out
        assert account.boxes[0].state == "stopped"
        account.boxes[0].state = "running"
        ended = user.run("down", "--host", f"azure:{ours}").must(0)
        assert "destroyed, and no longer listed" in ended.out
        assert account.destroyed == [half, ours]
        assert account.own.groups == {}
    assert (user.place / "boxstrap-results").is_dir()


def test_up_with_one_network_starts_no_training_until_every_rented_node_is_set_up(
    rent: Rent,
) -> None:
    hosts = [rent("ec2", used=True) for _ in range(2)]
    boxes, user = [one.box for one in hosts], hosts[0].user
    reduce = Path(__file__).with_name("reduce.py").read_text()
    user.repository(boxstrap__yaml=NODES, reduce__py=reduce, **{".gitignore": "out/\n"})
    with simulated("ec2") as account:
        account.loading_s, account.offers = 0.0, offers_at("ec2")
        account.addresses = [(box.address, box.port, box.user) for box in boxes]
        user.env |= account.environment()
        words = ("--provider=ec2", "--max-price=1", f"--identity={boxes[0].identity}", "--count=2")
        # Without one network, and for another number of boxes, nothing is rented.
        alone = user.run("up", *words).must(2).err
        assert "to rent them: boxstrap up --count 2 --one-network" in alone
        three = user.run("up", *words[:3], "--count=3", "--one-network").must(2)
        assert "train.nodes is 2, and this is about 3 boxes" in three.err
        user.env["VAST_API_KEY"] = "none"
        elsewhere = user.run("up", "--provider=vast", *words[1:], "--one-network").must(2)
        assert "can't be rented into one network at Vast.ai" in elsewhere.err
        assert account.rented == []
        # Where the second can't be had, the first is set up, and nothing begins.
        account.quotas = {"g": 4.0}
        short = user.run("up", *words, "--one-network", "--group=cluster").must(11)
        assert "1 of 2 boxes are set up" in short.out
        assert boxes[0].run("ls /workspace/.boxstrap/runs/*/train-1 2>/dev/null || :") == ""
        account.quotas.clear()
        done = user.run("up", *words, "--one-network", "--group=cluster").must(0)
        assert account.rented == ["9001", "9002"]
        assert "2 reach each other" in done.err
        user.run("wait", "--hosts", "cluster").must(0)
        assert "rank 1 of 2: sum 3.0" in user.run("logs", "--hosts", "cluster").must(0).out
        user.run("up", *words, "--one-network", "--group=cluster").must(0)  # nothing to do
        user.run("down", "--hosts", "cluster", f"--identity={boxes[0].identity}").must(0)
        assert sorted(account.destroyed) == ["9001", "9002"]


def test_up_with_one_network_at_runpod_orders_one_cluster_and_down_deletes_that_cluster(
    rent: Rent,
) -> None:
    hosts = [rent("runpod", used=True) for _ in range(2)]
    boxes, user = [one.box for one in hosts], hosts[0].user
    for rank, box in enumerate(boxes):
        # What RunPod sets in the pods of a cluster, and in no other.
        box.run(
            f"echo 'export HOST_NODE_ADDR=10.65.0.2:29400 NODE_RANK={rank}' >>/etc/rp_environment"
        )
    reduce = Path(__file__).with_name("reduce.py").read_text()
    user.repository(boxstrap__yaml=NODES, reduce__py=reduce, **{".gitignore": "out/\n"})
    with simulated("runpod") as account:
        account.loading_s = 0.0
        account.offers = [SimulatedOffer("RTX 4090", price=0.3, region="us-1")]
        account.addresses = [(box.address, box.port, box.user) for box in boxes]
        user.env |= account.environment()
        words = ("up", "--provider=runpod", "--max-price=1", f"--identity={boxes[0].identity}")
        words = (*words, "--count=2", "--one-network", "--group=pods")
        asked = user.run(*(word for word in words if "price" not in word)).must(2).err
        assert "runpod: a cluster of 2 boxes, each 1 x RTX 4090 24 GiB at $0.30 an hour" in asked
        done = user.run(*words).must(0)
        assert account.changed == ["POST /v2/clusters"]
        assert "2 of 2 boxes are set up: --hosts pods" in done.out
        assert "2 reach each other" in done.err
        assert "nothing but you ends runpod:9001" in done.err
        assert (
            "nothing on this box holds the lease: its provider gave it no key of its own"
            in done.err
        )
        user.run("wait", "--hosts", "pods").must(0)
        assert "rank 1 of 2: sum 3.0" in user.run("logs", "--hosts", "pods").must(0).out
        user.run(*words).must(0)  # nothing to do
        alone = user.run("down", "--host", "runpod:9001").must(9).err
        assert "has not found that nothing would be lost on runpod:9002" in alone
        assert account.changed == ["POST /v2/clusters"]
        user.run("down", "--hosts", "pods").must(0)
        assert account.changed == ["POST /v2/clusters", "DELETE /v2/clusters/c9001"]
        assert sorted(account.destroyed) == ["9001", "9002"]
    assert (user.place / "boxstrap-results").is_dir()
    states = {each["state"] for each in map(json.loads, _rentals(user))}
    assert states == {"ended"}


def _rentals(user: User) -> list[str]:
    return [file.read_text() for file in user.state.glob("rentals/boxstrap-*.json")]


def test_up_is_refused_before_it_builds_when_the_volume_of_the_box_is_not_mounted(
    rented: Rented, account: SimulatedAccount
) -> None:
    user, box = rented.user, rented.box
    account.address = (box.address, box.port, box.user)
    account.volumes = [{"id": 5, "disk_space": 100.0, "machine_id": 11}]
    user.env |= account.environment()
    user.repository()

    def up(*sets: str) -> Completed:
        words = [word for each in sets for word in ("--set", each)]
        return user.run("up", "--max-price=0.6", f"--identity={box.identity}", *words)

    refused = up("box.volume=5").must(5)
    assert "rented with this box is not mounted at /workspace" in refused.text
    assert "goes on and costs" in refused.err
    assert "requirements" not in refused.text
    assert box.run("ls -d /workspace/homework /workspace/.boxstrap/runs; true") == ""
    # Where one is mounted, and without one, it goes on.
    box.run("mv /workspace /before && ln -s /dev/shm /workspace")
    assert "not mounted" not in up("box.volume=5").text
    box.run("rm /workspace && mv /before /workspace")
    up("box.volume=null").must(0)
