"""The tables of the documents that people plan by, computed from those documents' own prices."""

import pytest

from bootstrap.providers.estimate import Rates, Usage, break_even_hours, cost_of, spending

PER_HOUR = {"AWS": 4.10, "GCP": 3.67, "Lambda": 1.10, "Vast.ai": 0.90}
"""An A100 of 40 GB, by the comparison of the reference documents: dollars for each GPU."""


def test_estimate_gives_the_published_total_of_each_provider_for_500_hours_and_5_minutes() -> None:
    usage = Usage(hours=50, experiments=10)
    expected = {"AWS": 2050, "GCP": 1835, "Lambda": 550, "Vast.ai": 450}
    for provider, dollars in expected.items():
        cost = cost_of(usage, PER_HOUR[provider])
        assert cost.total == pytest.approx(dollars)
    assert cost_of(Usage(500), 4.10) == cost_of(usage, 4.10)
    assert cost_of(Usage(5 / 60), 0.80).total == pytest.approx(0.07, abs=0.0051)


def test_estimate_says_after_how_many_hours_of_rent_buying_a_gpu_breaks_even() -> None:
    assert break_even_hours(1600, 0.40) == pytest.approx(4000)
    with_power = break_even_hours(1600, 0.40, watts=450, kwh=0.15)
    assert with_power is not None
    assert with_power == pytest.approx(1600 / (0.40 - 0.0675))
    assert break_even_hours(1600, 0.05, watts=450, kwh=0.15) is None
    assert break_even_hours(1600, 1600 / 60) == pytest.approx(60)  # at $26.67 an hour it would be


def test_estimate_adds_disk_and_egress_to_the_cost_and_lists_unknown_rates() -> None:
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


def test_report_says_how_many_dollars_more_or_less_than_estimated_were_spent() -> None:
    spent = spending(price=0.60, hours=12, seconds=2 * 3600)
    assert spent.line(is_over=False) == "$1.20 so far; $7.20 were estimated"
    assert spent.line(is_over=True) == "$1.20; $7.20 were estimated, $6.00 less"
    assert spending(0.60, 1, 2 * 3600).line(is_over=True).endswith("$0.60 more")
    assert spending(0.60, 0, 3600).line(is_over=True) == "$0.60"
