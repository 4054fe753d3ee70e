import pytest

from bootstrap.sizes import (
    dollars,
    duration,
    file_count,
    first_of,
    rate,
    size,
    size_of,
    speed,
    spent,
    took_in_words,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (-5, "0 B"),
        (812, "812 B"),
        (999.6, "1.0 kB"),
        (4_200, "4.2 kB"),
        (9_960, "10 kB"),
        (38_400_000, "38 MB"),
        (999_600_000, "1.0 GB"),
        (1_300_000_000, "1.3 GB"),
        (2.0**53, "9.0 PB"),
        (1e20, "100000 PB"),
    ],
)
def test_byte_counts_are_shown_with_rounded_units(count, text):
    assert size(count) == text


def test_sizes_speeds_rates_and_counts_are_rounded_and_get_units_such_as_mb_a_second():
    assert size_of(12_000_000, 38_000_000) == "12 of 38 MB"
    assert size_of(0, 1_300_000_000) == "0.0 of 1.3 GB"
    assert speed(12_000_000) == "12 MB/s"
    assert rate(4.21) == "4.2/s"
    assert rate(1234) == "1,234/s"
    assert [*map(file_count, (1, 1200))] == ["1 file", "1,200 files"]
    assert [first_of("abc", most) for most in (1, 3)] == [["a", "and 2 more"], [*"abc"]]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (0.04, "0.0 s"),
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (12.4, "12 s"),
        (59.7, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7_800, "2 h 10 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_shown_in_two_units_at_most(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (0.0042, "$0.0042"),
        (0.0099, "$0.0099"),
        (0.00996, "$0.01"),
        (0.123, "$0.12"),
        (1234.5, "$1,234.50"),
    ],
)
def test_amounts_under_a_cent_are_shown_with_four_decimals_and_others_with_two(amount, text):
    assert dollars(amount) == text


@pytest.mark.parametrize(
    ("seconds", "price", "amount", "text"),
    [
        (7200, 0.5, 1.0, "2 h 00 min, $1.00"),
        (7200, None, None, "2 h 00 min"),
        (7200, 0.0, None, "2 h 00 min"),
        (0, 2.0, 0.0, "0 s, $0.00"),
    ],
)
def test_a_duration_is_followed_by_its_cost_in_dollars_if_the_price_of_the_box_is_known(
    seconds, price, amount, text
):
    assert (spent(seconds, price), took_in_words(seconds, price)) == (amount, text)
    assert spent(None, price) is None
