"""The table's bars: a benchmark that cannot fail shows nothing."""

from __future__ import annotations

from tests.bench.table import Bar, BenchRow, as_text


def test_a_figure_over_its_bar_is_missed() -> None:
    row = BenchRow("again", "boxstrap", [0.5, 0.7, 0.61], bar=Bar(0.6))
    assert row.value == 0.61
    assert row.is_missed
    assert "MISSED" in as_text([row])


def test_a_figure_at_its_bar_is_met() -> None:
    row = BenchRow("again", "boxstrap", [0.6], bar=Bar(0.6))
    assert not row.is_missed
    assert "MISSED" not in as_text([row])


def test_a_speed_below_its_bar_is_missed() -> None:
    assert BenchRow("logs", "LAN", [149.9], unit="MB/s", bar=Bar(150, at_least=True)).is_missed
    assert not BenchRow("logs", "LAN", [150.0], unit="MB/s", bar=Bar(150, at_least=True)).is_missed


def test_a_figure_without_a_bar_is_never_missed() -> None:
    assert not BenchRow("fresh", "Ansible", [1e9]).is_missed
