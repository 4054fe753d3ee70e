"""`up`: a box is rented at a simulated account and set up in the usual way, in the rig."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli import Completed
from tests.main_job.conftest import Rent
from tests.providers.accounts import SimulatedAccount, SimulatedOffer, simulated

pytestmark = pytest.mark.boxes


@pytest.fixture
def account() -> Iterator[SimulatedAccount]:
    """Two offers; what is rented is there at once."""
    with simulated("vast") as made:
        made.loading_s = 0.0
        made.offers = [SimulatedOffer(str(11 + at), price=0.4 + at / 10) for at in range(2)]
        yield made


def test_a_box_is_rented_set_up_and_used_again(rent: Rent, account: SimulatedAccount) -> None:
    rented = rent("vast", used=True)
    user, box = rented.user, rented.box
    account.address = (box.address, box.port, box.user)
    user.env |= account.environment()
    user.repository()

    def up(*options: str) -> Completed:
        return user.run("up", "--identity", str(box.identity), *options)

    # Nobody said what it may cost.
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
    assert done["lease"]["limits"]["hours"]["limit"] == 24 * 3600  # since nobody named one
    # Once more: this box, and nothing to do.
    again = up("--max-price", "0.6").must(0)
    assert "vast:9001, rented as boxstrap-" in again.err
    assert "stopped after 24 hours" in again.err
    assert account.rented == ["9001"]
    assert rented.runs().count("train-1") == 1
    # It has no GPU, and now the profile orders one: one that was there before is kept, a new one
    # is given back, and there is no third offer.
    refused = up("--max-price", "0.6", "--set", "gpu.require=true").must(6)
    assert "is not given back by itself" in refused.err
    assert account.destroyed == []
    ended = up("--max-price", "0.6", "--set", "gpu.require=true", "--another").must(11)
    assert "vast:9002 is given back" in ended.err
    assert account.destroyed == ["9002"]
    assert [each.id for each in account.boxes] == ["9001"]
    known = user.run("boxes", "--json").must(0).json()["boxes"]
    assert [each["name"] for each in known] == ["vast-9001"]
