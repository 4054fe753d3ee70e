"""Values of `--since`."""

from datetime import datetime

import pytest

from bootstrap.errors import UsageError
from bootstrap.runs.logs import seconds_ago

NOW = datetime(2026, 11, 22, 14, 30, 10)


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("14:30", 10),
        ("14:29:50", 20),
        ("14:31", 86400 - 50),  # yesterday's, as today's is still to come
        ("2026-11-22 13:30", 3610),
        ("2026-11-22T13:30:10", 3600),
        ("2026-11-23 00:00", 0),
    ],
)
def test_the_since_option_takes_a_duration_or_a_clock_time(text: str, ago: int) -> None:
    assert seconds_ago(text, NOW) == ago


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "1.5h", "10 m", "25:00", "yesterday"])
def test_a_malformed_since_option_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        seconds_ago(text, NOW)
