"""One reading of a card's name and size: as an order, in an offer, by the verdict, in a price."""

import itertools

import pytest

from bootstrap.onbox.smoke.peaks import MODELS, model_of
from bootstrap.onbox.verdict.gpu_models import difference
from bootstrap.providers import Offer, RentOrder
from bootstrap.providers.estimate import Price
from tests.providers.cards import CARDS, verdict_of

NAMES = [(card, name) for card in CARDS for name in (*card.written, card.driver)]
WEAKER = {
    ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D"),
    (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    ),
}


@pytest.mark.slow
def test_every_gpu_name_in_a_profile_matches_its_card_in_offers_prices_and_verdict() -> None:
    assert len(NAMES) >= 60 + len(CARDS)
    for card, name, size in ((*named, size) for named in NAMES for size in (named[0].sold, None)):
        assert verdict_of(name, card, size) == {"pass"}, name
        order = RentOrder(gpu_names=(name,), min_memory_gib=size)
        for written in (*card.written, card.driver):
            for memory in (card.sold, card.mib / 1024):
                offer = Offer("vast", "1", written, 1, 0.5, memory_gib=memory)
                assert offer.misses(order) == [], (name, written, memory)
                assert Price("vast", written, memory, 1, "bid", 1.0, "", "").is_a(name), written


@pytest.mark.slow
def test_a_gpu_name_never_matches_another_card_in_offers_and_verdict() -> None:
    for card, (other, name) in itertools.product(CARDS, NAMES):
        if other is card:
            continue
        offer = Offer("vast", "1", card.written[0], 1, 0.5, memory_gib=card.mib / 1024)
        assert offer.misses(RentOrder(gpu_names=(name,))), name
        is_weaker = (other.driver, card.driver) in WEAKER
        assert verdict_of(name, card, None) & ({"warn"} if is_weaker else {"return"}), name


@pytest.mark.parametrize(
    ("ordered", "card", "found"),
    [
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", ""),
        ("RTX PRO 6000", "RTX PRO 6000 WS", ""),
        ("RTX PRO 6000", "RTX PRO 6000 MaxQ", "weaker"),
        ("RTX PRO 6000 WS", "RTX PRO 6000", "other"),
        ("H100", "H100 NVL", ""),
        ("RTX", "NVIDIA GeForce RTX 7090", ""),
        ("RTX 7090", "NVIDIA GeForce RTX 7090 Ti", "other"),
        ("A100", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", ""),
        ("A100 3g.40gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "other"),
        ("A10", "NVIDIA A10-4Q", "other"),
        ("T4", "T4g", "other"),
        ("RTX 4000", "RTX 4000 Ada", "other"),
        ("RTX A6000 Ada", "NVIDIA RTX 6000 Ada Generation", ""),
    ],
)
def test_comparing_an_ordered_gpu_name_with_a_card_says_same_weaker_or_another(
    ordered: str, card: str, found: str
) -> None:
    assert difference(ordered, card) == found


def test_an_offer_of_a_fraction_of_a_gpu_does_not_match_the_whole_card() -> None:
    for gpu, memory in (("A10", 4), ("L4", 2.8), ("RTX PRO 6000", 24)):
        offer = Offer("ec2", "1", gpu, 1, 0.5, memory_gib=memory)
        assert offer.misses(RentOrder(gpu_names=(gpu,)))


def test_an_ordered_rtx_4090_48gb_gives_verdict_return_for_a_24_gb_card() -> None:
    small = next(card for card in CARDS if card.driver.endswith("4090"))
    assert "return" in verdict_of("RTX 4090 48GB", small, None)
    assert verdict_of("RTX 4090 48GB, RTX 4090", small, None) == {"pass"}


def test_the_peak_speeds_of_a_gpu_are_found_by_each_of_its_known_names() -> None:
    known = {card.driver for card in CARDS if model_of(card.driver)}
    assert len(known) >= 25
    for row in MODELS:
        found = model_of(row.name)
        assert found is row, row.name
