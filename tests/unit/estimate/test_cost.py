"""The tables of the documents that people plan by, computed from those documents' own prices."""

from __future__ import annotations

import pytest

from bootstrap.providers.estimate import Rates, Usage, break_even_hours, cost_of, spending

PER_HOUR = {  # the comparison "per hour" of the reference documents, dollars for each GPU
    ("AWS", "A100 40GB"): 4.10,
    ("GCP", "A100 40GB"): 3.67,
    ("Lambda", "A100 40GB"): 1.10,
    ("Vast.ai", "A100 40GB"): 0.90,
    ("AWS", "V100"): 3.06,
    ("GCP", "V100"): 2.48,
    ("Vast.ai", "RTX 3090"): 0.25,
    ("Paperspace", "A5000"): 1.38,
    ("RunPod", "A100 80GB"): 2.89,
}


def test_ten_experiments_of_fifty_hours_cost_the_published_total_of_each_provider() -> None:
    usage = Usage(hours=50, experiments=10)
    expected = {"AWS": 2050, "GCP": 1835, "Lambda": 550, "Vast.ai": 450}
    for provider, dollars in expected.items():
        cost = cost_of(usage, PER_HOUR[provider, "A100 40GB"])
        assert cost.total == pytest.approx(dollars)
    assert cost_of(Usage(500), 4.10) == cost_of(usage, 4.10)


@pytest.mark.parametrize(
    ("provider", "gpu", "dollars", "percent"),
    [
        ("AWS", "V100", 306, 0),
        ("GCP", "V100", 248, 19),
        ("Lambda", "A100 40GB", 110, 64),
        ("Vast.ai", "RTX 3090", 25, 92),
        ("Paperspace", "A5000", 138, 55),
        ("RunPod", "A100 80GB", 289, 6),
    ],
)
def test_a_hundred_hours_cost_the_published_price_and_saving_of_each_provider(
    provider: str, gpu: str, dollars: float, percent: int
) -> None:
    cost = cost_of(Usage(100), PER_HOUR[provider, gpu]).total
    assert cost == pytest.approx(dollars)
    assert round(100 * (1 - cost / 306)) == percent


@pytest.mark.parametrize(
    ("price", "minutes", "dollars"),
    [
        (0.20, 30, 0.10), (0.20, 120, 0.40), (0.20, 5, 0.02),
        (0.30, 30, 0.15), (0.30, 120, 0.60), (0.30, 5, 0.03),
        (0.80, 30, 0.40), (0.80, 120, 1.60), (0.80, 5, 0.07),
    ],
)  # fmt: skip
def test_a_lora_session_of_some_minutes_costs_the_published_dollars(
    price: float, minutes: float, dollars: float
) -> None:
    assert cost_of(Usage(minutes / 60), price).total == pytest.approx(dollars, abs=0.0051)


@pytest.mark.parametrize(
    ("price", "hours", "dollars"),
    [(0.50, 2, 1.00), (0.55, 2, 1.10), (1.10, 1.5, 1.65), (1.50, 2.5, 3.75)],
)
def test_hours_of_training_a_7b_model_cost_the_published_dollars(
    price: float, hours: float, dollars: float
) -> None:
    assert cost_of(Usage(hours), price).total == pytest.approx(dollars)


def test_buying_a_1600_dollar_card_breaks_even_after_4000_hours_of_rent_at_40_cents() -> None:
    assert break_even_hours(1600, 0.40) == pytest.approx(4000)
    with_power = break_even_hours(1600, 0.40, watts=450, kwh=0.15)
    assert with_power is not None
    assert with_power == pytest.approx(1600 / (0.40 - 0.0675))
    assert break_even_hours(1600, 0.05, watts=450, kwh=0.15) is None
    assert break_even_hours(1600, 1600 / 60) == pytest.approx(60)  # at $26.67 an hour it would be


def test_disk_and_egress_are_added_to_the_cost_and_unknown_rates_are_listed() -> None:
    usage = Usage(hours=73, experiments=10, disk_gb=100, egress_gb=5, stopped_hours=365)
    known = cost_of(usage, 1.0, Rates(disk=0.10, stopped_disk=0.20, egress=0.09))
    assert known.disk == pytest.approx(10.0)  # 100 GB for a month
    assert known.stopped == pytest.approx(10.0)  # 100 GB for half a month
    assert known.egress == pytest.approx(4.5)
    assert known.total == pytest.approx(730 + 24.5)
    unknown = cost_of(usage, 1.0)
    assert unknown.unknown == ["disk", "egress", "stopped disk"]
    assert unknown.total == pytest.approx(730)
    assert cost_of(Usage(10), 1.0).unknown == []


def test_the_spending_line_compares_dollars_spent_with_the_estimate() -> None:
    spent = spending(price=0.60, hours=12, seconds=2 * 3600)
    assert spent.line(is_over=False) == "$1.20 so far; $7.20 were estimated"
    assert spent.line(is_over=True) == "$1.20; $7.20 were estimated, $6.00 less"
    assert spending(0.60, 1, 2 * 3600).line(is_over=True).endswith("$0.60 more")
    assert spending(0.60, 0, 3600).line(is_over=True) == "$0.60"
