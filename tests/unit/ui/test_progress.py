import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.ui.steps import Progress


def progressed(*reports, total=100.0, unit="objects") -> Progress:
    progress = Progress()
    for t, done in reports:
        progress.report(done, total, unit, t)
    return progress


def test_the_shown_speed_of_a_transfer_is_smoothed_but_follows_changes():
    steady = [(t, 10 * t) for t in range(11)]
    burst = progressed(*steady, (11, 160), total=1000.0)
    assert burst.speed is not None
    assert 10 < burst.speed < 60
    slower = progressed(*steady, *((10 + t, 100 + t) for t in range(1, 31)), total=1000.0)
    assert slower.speed == pytest.approx(1, rel=0.05)


def test_the_pause_before_more_is_to_be_transferred_does_not_count_for_its_speed():
    progress = progressed((0, 0), (1, 100))
    for t, done in ((3600, 100), (3601, 110)):
        progress.report(done, 1100.0, "objects", t)
    assert (progress.speed, progress.left) == (pytest.approx(10), pytest.approx(99))


def test_several_progress_reports_within_a_millisecond_do_not_raise_the_shown_speed():
    progress = progressed((0, 0), (1, 10), (1.001, 20), (1.002, 30), (2, 30))
    assert progress.speed is not None
    assert progress.speed < 21


def test_the_speed_is_computed_anew_if_the_count_drops_or_the_clock_jumps_back():
    progress = progressed((0, 0), (1, 50), (2, 5))
    assert (progress.speed, progress.done) == (None, 5)
    progress = progressed((1000, 0), (1001, 10), (5, 20), (6, 21))
    assert progress.speed == pytest.approx(1)


def test_a_negative_or_too_large_count_of_a_box_gives_no_share_and_no_time_left():
    assert progressed((0, -5)).done == 0
    over = progressed((0, 500))
    assert (over.total, over.left, over.share) == (None, None, None)
    assert progressed((0, 0), total=0.0).share is None
    stalled = progressed((0, 10), (10, 10))
    assert (stalled.speed, stalled.left) == (0, None)


def test_progress_20_of_a_300_second_wait_has_280_seconds_left():
    assert progressed((0, 20), total=300.0, unit="seconds").left == 280


NUMBER = st.floats(-(2.0**53), 2.0**53)


@given(st.lists(st.tuples(NUMBER, NUMBER, st.none() | NUMBER, st.sampled_from(["bytes", "lines"]))))
def test_the_speed_of_a_transfer_is_never_negative_or_infinite(reports):
    progress = Progress()
    for t, done, total, unit in reports:
        progress.report(done, total, unit, t)
        assert progress.speed is None or (math.isfinite(progress.speed) and progress.speed >= 0)
        assert progress.left is None or 0 <= progress.left <= 2.0**53
        assert progress.share is None or 0 <= progress.share <= 1
