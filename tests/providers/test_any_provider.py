"""What every provider must do, ours and another package's: `pytest --provider NAME`.

Another package's provider is an entry point of the group `boxstrap.providers`; one of the group
`boxstrap.trials` lends an account for this: a context manager with offers, where a rented box
appears in seconds, and nothing is paid. Ours are tried at their simulated accounts.
"""

import dataclasses
import re
import time
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest

from bootstrap.errors import NoOfferError, UsageError
from bootstrap.link import parse_host
from bootstrap.providers import (
    CLASSES,
    NAME,
    ApiKey,
    CloudAccount,
    RentedBox,
    RentedState,
    RentOrder,
)
from bootstrap.providers.accounts import BROKEN, PROVIDERS
from bootstrap.renting import offers_of
from tests.providers.accounts import KEY
from tests.providers.renting_world import MARK, PUBLIC, renting_world

ORDER = RentOrder(max_price=5.0)
THERE = (RentedState.STARTING, RentedState.RUNNING)
_APPEARS_S = 60


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = metafunc.config.getoption("provider")
    metafunc.parametrize("provider", [named] if named else sorted(CLASSES))


@pytest.fixture
def account(provider: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CloudAccount]:
    if provider in CLASSES:
        with renting_world(provider, monkeypatch):
            yield PROVIDERS[provider](ApiKey(KEY, "a test"))
        return
    assert provider not in BROKEN, BROKEN[provider]
    assert provider in PROVIDERS, f"no package has an entry point boxstrap.providers: {provider}"
    (lends,) = entry_points(group="boxstrap.trials", name=provider)
    with lends.load()() as lent:
        assert type(lent) is PROVIDERS[provider]
        yield lent


def rent(account: CloudAccount) -> str:
    """Rent the cheapest offer; return the box's id."""
    account.add_key(PUBLIC)
    fitting, others = offers_of([account], ORDER)
    assert fitting, [offer.misses(ORDER) for offer in others]
    return account.rent(fitting[0], ORDER, MARK, PUBLIC)


def seen(account: CloudAccount, box_id: str, *states: RentedState) -> RentedBox:
    """Return the box once its account lists it in one of these states."""
    until = time.monotonic() + _APPEARS_S
    while (box := account.box(box_id)) is None or box.state not in states:
        assert time.monotonic() < until, box
        time.sleep(0.2)
    return box


def test_every_provider_class_has_a_name_title_key_address_and_loading_time(
    provider: str, account: CloudAccount
) -> None:
    kind = type(account)
    assert kind.name == provider
    assert NAME.fullmatch(provider)
    assert kind.title.strip()
    assert re.fullmatch("[A-Z][A-Z0-9_]*", kind.keys.variable)
    assert kind.address.startswith(("https://", "http://127.0.0.1"))
    assert kind.loading_minutes > 0
    assert account.has_key
    error = kind.no_key(f"{provider}:1")
    assert isinstance(error, UsageError)
    assert error.hint


def test_offers_of_every_provider_are_sorted_by_price_and_have_distinct_ids(
    provider: str, account: CloudAccount
) -> None:
    offers = account.catalog(RentOrder())
    assert offers
    assert [offer.price for offer in offers] == sorted(offer.price for offer in offers)
    assert all(offer.provider == provider and offer.price > 0 for offer in offers)
    assert all(offer.gpu and offer.gpu_count and offer.machine for offer in offers)
    assert len({offer.id for offer in offers}) == len(offers)
    too_much = dataclasses.replace(ORDER, gpu_names=("no such gpu",))
    assert offers_of([account], too_much)[0] == []


def test_a_rented_box_of_every_provider_is_listed_and_gone_once_destroyed(
    provider: str, account: CloudAccount
) -> None:
    before = {box.id for box in account.boxes()}
    box_id = rent(account)
    box = seen(account, box_id, *THERE)
    assert (box.provider, box.name) == (provider, MARK)
    assert parse_host(box.host).is_rented
    assert {one.id for one in account.boxes()} == before | {box_id}
    assert [one.id for one in account.find_mark(MARK)] == [box_id]
    assert not account.find_mark("boxstrap-ba9876543210")
    account.destroy(box_id)
    left = account.box(box_id)
    assert left is None or left.state is RentedState.GONE
    account.destroy(box_id)  # is no error
    alive = {one.id for one in account.boxes() if one.state is not RentedState.GONE}
    assert alive == before


def test_at_every_provider_renting_an_offer_that_is_gone_is_refused_and_leaves_no_box(
    provider: str, account: CloudAccount
) -> None:
    offer = offers_of([account], ORDER)[0][0]
    other = {"vast": "999999", "hf": "h200x8"}.get(provider, "no-such")  # as their documents allow
    gone = dataclasses.replace(offer, id=re.sub(r"^[^/]*", other, offer.id))
    account.add_key(PUBLIC)
    with pytest.raises(NoOfferError):
        account.rent(gone, ORDER, MARK, PUBLIC)
    assert not account.find_mark(MARK)


def test_a_box_is_stopped_and_started_again_at_every_provider_that_can_stop_boxes(
    provider: str, account: CloudAccount
) -> None:
    box_id = rent(account)
    seen(account, box_id, *THERE)
    if account.stops is None:
        with pytest.raises(NotImplementedError):
            account.stop(box_id)
    else:
        account.stop(box_id)
        assert seen(account, box_id, RentedState.STOPPED).address == ""
        account.start(box_id)
        seen(account, box_id, *THERE)
    account.destroy(box_id)


def test_every_provider_finds_no_box_for_an_unknown_id(
    provider: str, account: CloudAccount
) -> None:
    ids = {"vast": "999", "ec2": "i-0123456789abcdef0"}
    assert account.box(ids.get(provider, "no-such-box")) is None
