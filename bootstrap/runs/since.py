"""Parse `--since`: `10m`, `14:30`, `2026-11-22 14:30`. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from bootstrap.errors import UsageError
from bootstrap.text.sizes import seconds_of

_CLOCK = ("%H:%M", "%H:%M:%S")


def seconds_ago(text: str, now: datetime) -> int:
    """Return how long ago `text` is; a time of day is the latest past one. Raises UsageError."""
    ago = seconds_of(text)
    if ago is not None:
        return ago
    when = _clock(text, now) or _date(text)
    if when is None:
        raise UsageError(
            f"--since: {text!r} is no time.",
            hint="As in: --since 10m, --since 2h, --since 14:30, --since '2026-11-22 14:30'",
        )
    return max(0, int((now - when).total_seconds()))


def _clock(text: str, now: datetime) -> datetime | None:
    for form in _CLOCK:
        try:
            time = datetime.strptime(text, form).time()
        except ValueError:
            continue
        today = datetime.combine(now.date(), time)
        return today if today <= now else today - timedelta(days=1)
    return None


def _date(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.astimezone().replace(tzinfo=None) if when.tzinfo else when
