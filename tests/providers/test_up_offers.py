"""`up` and `boxes --all` from the command line, without setting up a box."""

import json
import shlex
import time

import pytest

from bootstrap.renting import Rental, RentalState, rental
from tests.cli import User
from tests.providers.accounts import SimulatedAccount, SimulatedBox, SimulatedOffer

PROFILE = (
    "version: 1\ngpu: {name: RTX 4090}\nrent: {region: US}\ntrain: {command: python train.py}\n"
)


@pytest.fixture
def vast(user: User, vast: SimulatedAccount) -> SimulatedAccount:
    """With a few offers, for a user in their repository."""
    user.repository(boxstrap__yaml=PROFILE)
    vast.offers = [
        SimulatedOffer("11", price=0.5),
        SimulatedOffer("12", price=0.4),
        SimulatedOffer("13", price=0.2, region="Iceland, IS"),
        SimulatedOffer("14", price=0.1, gpu="RTX 3060\x1b[31m"),
    ]
    return vast


def test_up_dry_run_shows_offers_cheapest_first_and_rents_nothing(
    user: User, vast: SimulatedAccount
) -> None:
    text = user.run("up", "--dry-run").must(0).out
    *rows, total = text.splitlines()
    assert [line.split()[-6] for line in rows] == ["99.8%", "99.8%"]
    assert total == "what up asks for first, for the 24 hours of its lease: $9.84"
    assert text.index("$0.41") < text.index("$0.51")
    assert text == user.run("--dry", "up").must(0).out
    # Vast.ai shows its offers without a key.
    del user.env["VAST_API_KEY"]
    said = user.run("up", "--dry-run", "--provider", "vast", "--json").must(0).json()
    assert [offer["id"] for offer in said["offers"]] == ["12", "11"]
    assert [offer["misses"] for offer in said["nearest"]] == [
        ["no RTX 4090"],
        ["in Iceland, IS, not US"],
    ]
    assert {path.partition(" ")[2] for path in vast.changed} == {"/api/v0/bundles/"}


def test_up_dry_run_prices_the_first_offer_within_the_cap_of_a_box_else_says_that_none_is(
    user: User, vast: SimulatedAccount
) -> None:
    vast.offers.append(SimulatedOffer("15", price=0.1, gpu="RTX 3080"))
    names = ("up", "--dry-run", "--set", "gpu.name=[RTX 4090, RTX 3080]")
    total = user.run(*names, BOXSTRAP_MAX_PRICE="0.15").must(0).out.splitlines()[-1]
    assert total == "what up asks for first, for the 24 hours of its lease: $2.64"
    by_dollars = user.run(*names, "--set", "lease.dollars=1", BOXSTRAP_MAX_PRICE="0.15").must(0)
    assert by_dollars.out.endswith("for the 9.1 hours of its lease: $1.00\n")
    *_, refused = user.run(*names, BOXSTRAP_MAX_PRICE="0.05").must(0).out.splitlines()
    assert refused.endswith(" an hour is more than max_price allows: $0.05. Nothing was rented.")


@pytest.mark.usefixtures("ssh_key")
def test_up_without_consent_or_max_price_exits_with_2_and_prints_the_command_that_gives_it(
    user: User, vast: SimulatedAccount
) -> None:
    (user.place / "boxstrap.yaml").write_text(f"{PROFILE}extends: vast\nsecrets: [TOKEN]\n")
    words = ("up", "--json", "--consent", "of-another-list", "--set", "lease.hours=2")
    looked = user.run(*words, "--dry-run").must(0).json()
    assert looked["consent"]["takes"] == [
        {"key": "provider.account", "takes": "vast"},
        {"key": "secrets", "takes": "TOKEN"},
    ]
    assert f"--consent {looked['consent']['digest']}" in user.run("up", "--dry-run").must(0).out
    asked = user.run(*words, TOKEN="t").must(2).json()["error"]
    assert (asked["error"], asked["digest"]) == ("Consent", looked["consent"]["digest"])
    assert asked["next"].endswith(f"and to nothing else: {asked['command']}")
    assert shlex.split(asked["command"]) == [
        *("boxstrap", "up", "--json", "--set", "lease.hours=2", "--consent", asked["digest"])
    ]
    priced = user.run(*shlex.split(asked["command"])[1:], TOKEN="t").must(2).json()["error"]
    assert priced["command"] == f"{asked['command']} --max-price 0.42"
    assert "consent" not in user.run("up", "--dry-run", "--json").must(0).json()
    assert vast.rented == []


@pytest.mark.usefixtures("ssh_key")
def test_up_without_a_fitting_offer_ends_with_exit_11_and_the_nearest_offers(
    user: User, vast: SimulatedAccount
) -> None:
    for dry in (("--dry-run",), ()):
        ended = user.run("up", "--max-price", "0.30", *dry).must(11)
        assert "1 x RTX 4090 24 GiB at $0.41 an hour: $0.11 an hour too expensive" in ended.err
        assert "\x1b" not in ended.text
    assert vast.rented == []


@pytest.mark.parametrize(
    ("options", "rc", "says"),
    [
        (("--provider", "nowhere"), 2, "One of: vast, runpod, lambda, paperspace"),
        (("--provider", "runpod"), 2, "RUNPOD_API_KEY or ~/.runpod/config.toml"),
        (("--max-price", "cheap"), 2, "no amount of dollars"),
        (("--limit", "-1"), 2, "no amount of dollars"),
        ((), 2, "no ssh key that a box could let in"),
    ],
)
def test_up_with_wrong_options_or_without_an_ssh_key_asks_no_provider(
    user: User, vast: SimulatedAccount, options: tuple[str, ...], rc: int, says: str
) -> None:
    assert says in user.run("up", *options).must(rc).err
    assert vast.changed == []


@pytest.mark.parametrize(
    "profile", ["extends: vast", "provider: {account: vast}", "extends: mine.yaml"]
)
def test_up_asks_for_consent_when_the_repository_chooses_the_account_that_pays(
    user: User, vast: SimulatedAccount, profile: str
) -> None:
    user.place.joinpath("boxstrap.yaml").write_text(f"version: 1\n{profile}\n")
    user.place.joinpath("mine.yaml").write_text("version: 1\nextends: vast\n")
    refused = user.run("up", "--max-price", "0.60", "--json").must(2).json()
    assert {"key": "provider.account", "takes": "vast"} in refused["error"]["takes"]
    assert vast.asked == []
    # Chosen by the user, only an ssh key is missing; a plan spends nothing, so it asks for nothing.
    for words in (("--provider", "vast"), ("--set", "provider.account=vast")):
        assert "no ssh key" in user.run("up", "--max-price", "0.60", *words).must(2).err
    agreed = ("up", "--max-price", "0.60", "--consent", refused["error"]["digest"])
    assert "no ssh key" in user.run(*agreed).must(2).err
    assert "no ssh key" in user.run(*agreed[:3]).must(2).err
    assert "account" not in user.run("plan", "--host", "nobody@127.0.0.1:1").must(3).err


@pytest.mark.usefixtures("ssh_key")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--max-price", "0.60"), "--max-price is about a box that is rented first: add --up"),
        (("--up", "--host", "vast:7"), "leave out --host, or --up"),
        (("--up", "--resume", "train-1"), "--up is only for a new run"),
        (("--up", "--provider", "vast"), "nobody said what it may cost"),
        (("--up", "--provider", "vast", "--max-price", "0.05"), "no offer fits"),
        (("--up", "--max-price", "0.60"), "money       rent.max_price: 90"),
        (("--up", "--provider", "vast", "--max-price", "0.6"), "which command?"),
    ],
)
def test_run_up_refuses_the_same_wrong_options_and_prices_as_up(
    user: User, vast: SimulatedAccount, options: tuple[str, ...], says: str
) -> None:
    if "90" in says:
        text = "version: 1\nrent: {max_price: 90}\n"
        user.place.joinpath("boxstrap.yaml").write_text(text)
    if has_none := says == "which command?":
        user.place.joinpath("boxstrap.yaml").write_text("version: 1\n")
    command = () if has_none or "--resume" in options else ("--", "python", "train.py")
    ended = user.run("run", *options, *command)
    assert says in ended.err
    assert ended.rc == (11 if "fits" in says else 2)
    assert vast.rented == []


def test_boxes_all_lists_a_rental_as_perhaps_rented_until_its_account_says_whether_it_is(
    user: User, vast: SimulatedAccount
) -> None:
    now = time.time()
    rental.save_rental(Rental("boxstrap-00000000000a", "vast", asked=now))
    rental.save_rental(Rental("boxstrap-00000000000b", "vast", asked=now - 1000))
    rental.save_rental(Rental("boxstrap-00000000000c", "vast", asked=now))
    rental.save_rental(Rental("boxstrap-00000000000d", "runpod", asked=now - 1000))
    rental.save_rental(Rental("boxstrap-00000000000e", "vast", RentalState.LEAVING, now, "9"))
    vast.boxes = [SimulatedBox("7", label="boxstrap-00000000000c"), SimulatedBox("9")]
    said = user.run("boxes", "--all", "--json").must(3).json()
    # b was not listed within ten minutes, c is listed; there is no key to look for d.
    marks = sorted(each["mark"][-1] for each in said["perhaps_rented"])
    assert marks == ["a", "d"]
    ended = user.run("boxes", "--all").must(3)
    text = ended.out
    assert "runpod: no key of its account is here: what is rented there isn't known" in ended.err
    assert "boxstrap-00000000000a  perhaps rented" in text
    assert "rented by boxstrap up, which is setting it up or was cut off: run it again" in text
    assert "to be destroyed, and still there" in text
    vast.boxes, kept = [], vast.boxes
    assert "nothing is rented" not in user.run("boxes", "--all").out
    vast.boxes = kept
    (file,) = user.state.glob("rentals/*c.json")
    assert (json.loads(file.read_text())["state"], len(vast.changed)) == ("rented", 0)
    # No command can reach it yet; each says that it is on its way.
    why = user.run("status", "--json").must(0).json()["why"]
    assert "vast:7 was ordered " in why
    assert "boxstrap-00000000000a, at vast, was ordered " in why
    assert "vast:9" not in why
    assert "vast:7 was ordered " in user.run("logs").must(2).err
