"""The benchmark's bars: one that cannot be missed shows nothing."""

from __future__ import annotations

import pytest

from tools.bench.table import Bar, BenchRow, as_text


@pytest.mark.parametrize(
    ("figures", "bar", "missed"),
    [
        ([0.5, 0.7, 0.61], Bar(0.6), True),
        ([0.6], Bar(0.6), False),
        ([149.9], Bar(150, at_least=True), True),
        ([150.0], Bar(150, at_least=True), False),
        ([1e9], None, False),
    ],
)
def test_the_median_misses_its_bar_or_meets_it(
    figures: list[float], bar: Bar | None, missed: bool
) -> None:
    row = BenchRow("again", "boxstrap", figures, bar=bar)
    assert (row.is_missed, "MISSED" in as_text([row])) == (missed, missed)
