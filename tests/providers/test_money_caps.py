"""Caps on money hold for every `up` and `run --up`, of several processes at a time."""

import json
import random
import threading

import pytest

from bootstrap.link import KnownBox, save_box
from tests.cli import User
from tests.providers.accounts import SimulatedAccount, SimulatedOffer

PROFILE = "version: 1\ngpu: {name: RTX 4090}\ntrain: {command: python train.py}\n"


@pytest.fixture
def vast(vast: SimulatedAccount, ssh_key: None) -> SimulatedAccount:
    """With offers, for a user with an ssh key."""
    vast.offers = [
        SimulatedOffer(str(11 + at), price=0.2 + at % 9 / 10, machine=str(1000 + at))
        for at in range(9)
    ]

    def renew(_: int, *, is_done: bool) -> None:  # there is always another machine like it
        for offer in vast.offers:
            offer.fate = "runs"

    vast.on_call = renew
    return vast


def configure(user: User, text: str) -> None:
    folder = user.home / ".config/boxstrap"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(text)


@pytest.mark.parametrize(
    ("caps", "env", "says"),
    [
        ("{max_price: 0.1}", {}, "an hour is more than max_price allows: $0.10"),
        ("{max_box_dollars: 4}", {}, "costs $5.04 in the 24 hours of its lease"),
        ("{max_dollars: 99}", {"BOXSTRAP_MAX_DOLLARS": "5"}, "max_dollars allows $5.00"),
    ],
)
def test_up_rents_nothing_beyond_a_money_cap_whatever_its_options_say(
    user: User, vast: SimulatedAccount, caps: str, env: dict[str, str], says: str
) -> None:
    user.repository(boxstrap__yaml=PROFILE)
    configure(user, f"money: {caps}\n")
    asked = ("--provider", "vast", "--max-price", "50", "--limit", "500")
    for command in (("up", *asked), ("run", "--up", *asked)):
        said = user.run(*command, "--json", **env).must(9).json()["error"]
        assert says in said["what"]
        assert said["sum"] > said["cap"]
    assert vast.rented == []
    configure(user, "money: {max_prize: 1}\n")
    assert "config.yaml:1: money.max_prize" in user.run("up", *asked).must(2).err


@pytest.mark.parametrize("name", ["a/b", "127.0.0.1", "there"])
def test_up_with_a_box_name_that_is_taken_or_malformed_rents_nothing(
    user: User, vast: SimulatedAccount, name: str
) -> None:
    user.repository(boxstrap__yaml=PROFILE)
    save_box(KnownBox("there", "root@203.0.113.7", "203.0.113.7"))
    asked = ("--provider", "vast", "--max-price", "50", "--name", name)
    assert user.run("up", *asked, "--json").must(2).json()["error"]["where"] == "--name"
    assert vast.rented == []


def test_several_up_commands_at_once_together_rent_for_no_more_than_max_dollars(
    request: pytest.FixtureRequest, seeded: random.Random, user: User, vast: SimulatedAccount
) -> None:
    """`make chaos` starts fifty. Each is killed once it has rented, as its box has no ssh."""
    count = max(5, request.config.getoption("tries"))
    cap = seeded.uniform(3, 1.5 * count)
    configure(user, f"money: {{max_dollars: {cap}}}\n")
    allowed: list[int] = []
    refused: list[int] = []
    commands, hours_of = [], []
    for at in range(count):
        user.repository(f"homework-{at}", boxstrap__yaml=PROFILE)
        hours_of.append(seeded.choice((1, 3, 8, 20)))
        lease = ("--set", f"lease.hours={hours_of[at]}", "--provider", "vast", "--max-price", "9")
        kind = seeded.choice((("up",), ("run", "--up")))
        commands.append((user.place, (*kind, *lease)))

    def begin(at: int) -> None:
        place, words = commands[at]
        with_place = (*words, "--repo", str(place))
        running = user.begin(*with_place)
        try:
            running.await_said("rented  ")
            allowed.append(at)
        except AssertionError:
            done = running.end()
            assert done.rc == 9, done.text
            assert "max_dollars allows" in done.err
            refused.append(at)
        finally:
            running.close()

    at_once = 5
    for first in range(0, count, at_once):
        numbers = range(first, min(first + at_once, count))
        threads = [threading.Thread(target=begin, args=(at,)) for at in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(allowed) + len(refused) == count
    ours = [box for box in vast.boxes if str(box.label).startswith("boxstrap-")]
    assert len(ours) == len(allowed)
    records = [json.loads(file.read_text()) for file in user.state.glob("rentals/*.json")]
    assert sum(one["price"] * one["hours"] for one in records) <= cap
    # Each had the lease that its command asked for, at the price that the account bills.
    asked = sorted(hours_of[at] for at in allowed)
    assert sorted(one["hours"] for one in records) == asked
    billed = {box.id: box.price for box in ours}
    assert all(one["price"] >= billed[one["box_id"]] for one in records)
