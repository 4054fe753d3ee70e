import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.ui.pace import Pace


def paced(*reports, total=100.0, unit="objects") -> Pace:
    pace = Pace()
    for t, done in reports:
        pace.report(done, total, unit, t)
    return pace


def test_an_even_pace_is_told_exactly():
    pace = paced(*((t, 10 * t) for t in range(6)))
    assert pace.speed == pytest.approx(10)
    assert pace.left == pytest.approx(5)
    assert pace.share == 0.5


def test_one_report_tells_no_speed():
    pace = paced((0, 10))
    assert (pace.speed, pace.left, pace.share) == (None, None, 0.1)


def test_the_speed_is_smoothed_but_follows():
    steady = [(t, 10 * t) for t in range(11)]
    burst = paced(*steady, (11, 160), total=1000.0)
    assert burst.speed is not None
    assert 10 < burst.speed < 60
    slower = paced(*steady, *((10 + t, 100 + t) for t in range(1, 31)), total=1000.0)
    assert slower.speed == pytest.approx(1, rel=0.05)


def test_reports_in_the_same_moment_are_taken_together():
    pace = paced((0, 0), (1, 10), (1.001, 20), (1.002, 30), (2, 30))
    assert pace.speed is not None
    assert pace.speed < 21


def test_a_count_that_goes_down_begins_anew():
    pace = paced((0, 0), (1, 50), (2, 5))
    assert pace.speed is None
    assert pace.done == 5


def test_a_clock_that_jumps_back_begins_anew():
    pace = paced((1000, 0), (1001, 10), (5, 20), (6, 21))
    assert pace.speed == pytest.approx(1)


def test_nonsense_is_bent_straight():
    assert paced((0, -5)).done == 0
    over = paced((0, 500))
    assert (over.total, over.left, over.share) == (None, None, None)
    assert paced((0, 0), total=0.0).share is None
    stalled = paced((0, 10), (10, 10))
    assert (stalled.speed, stalled.left) == (0, None)


def test_a_wait_counts_down_in_seconds():
    assert paced((0, 20), total=300.0, unit="seconds").left == 280


NUMBER = st.floats(-(2.0**53), 2.0**53)


@given(st.lists(st.tuples(NUMBER, NUMBER, st.none() | NUMBER, st.sampled_from(["bytes", "lines"]))))
def test_no_report_makes_nonsense(reports):
    pace = Pace()
    for t, done, total, unit in reports:
        pace.report(done, total, unit, t)
        assert pace.speed is None or (math.isfinite(pace.speed) and pace.speed >= 0)
        assert pace.left is None or 0 <= pace.left <= 2.0**53
        assert pace.share is None or 0 <= pace.share <= 1
