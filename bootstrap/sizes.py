"""Numbers as people read them.

Bytes are decimal (1 MB = 1,000,000 bytes), as disks and links are sold and as
transfer tools show them; a GPU's memory is GiB everywhere and isn't printed here.
"""

import re
from collections.abc import Sequence

LATEST = 1 << 35  # seconds since 1970 in a year that every calendar has
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"([0-9]{1,9})([smhd])")
_TYPED = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([kMGTP]?)B?", re.IGNORECASE)


def size(count: float) -> str:
    """Bytes: `812 B`, `4.2 kB`, `38 MB`, `1.3 GB`."""
    value, unit = max(0.0, float(count)), 0
    # 999.5 would be rounded to 1000 of the smaller unit.
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 1 if unit and value < 9.95 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def bytes_of(text: str) -> int | None:
    """Parse a size as a user types it, `50G` or `1.5 TB`; None if it is not one."""
    typed = _TYPED.fullmatch(text.strip())
    if not typed:
        return None
    return int(float(typed[1]) * 1000 ** "_kmgtp".index(typed[2].lower() or "_"))


def size_of(done: float, total: float) -> str:
    """How much of how much, in the total's unit: `12 of 38 MB`, `0.4 of 1.3 GB`."""
    value, unit = size(total).split()
    scaled = done / 1000 ** _UNITS.index(unit)
    digits = 1 if "." in value else 0
    return f"{scaled:.{digits}f} of {value} {unit}"


def speed(count: float) -> str:
    """Bytes per second: `12 MB/s`."""
    return f"{size(count)}/s"


_LEAST_TIMED = 1_000_000  # of fewer bytes the time says nothing about the link


def transferred(count: int, seconds: float) -> str:
    """Bytes that were sent or fetched: `120 MB in 3.0 s (40 MB/s)`, `7 B in 0.1 s`."""
    took = f"{size(count)} in {duration(seconds)}"
    return f"{took} ({speed(count / max(seconds, 0.001))})" if count >= _LEAST_TIMED else took


def rate(count: float) -> str:
    """Things per second: `1,200/s`, `4.2/s`."""
    return f"{count:.1f}/s" if count < 9.95 else f"{grouped_number(count)}/s"


def grouped_number(count: float) -> str:
    """A count: `12,345`."""
    return f"{count:,.0f}"


def file_count(count: int) -> str:
    """`1 file`, `12 files`."""
    return f"{grouped_number(count)} file{'' if count == 1 else 's'}"


def first_of(rows: Sequence[str], most: int) -> list[str]:
    """The first of many rows, and one that says how many more there are."""
    more = len(rows) - most
    return [*rows[:most], *([f"and {grouped_number(more)} more"] if more > 0 else [])]


def duration(seconds: float) -> str:
    """Seconds: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`. A whole number was not
    measured to a tenth."""
    seconds = max(0, seconds)
    if seconds < 9.95 and not isinstance(seconds, int):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def seconds_of(text: str) -> int | None:
    """Parse a time as a user types it, `30m` or `2h`; None if it is not one."""
    typed = _TIME.fullmatch(text)
    return int(typed[1]) * _SECONDS[typed[2]] if typed else None


def dollars(amount: float) -> str:
    """US dollars: `$0.0042` under a cent, else `$0.12`, `$1,234.50`."""
    if abs(amount) < 0.00005:
        return "$0.00"
    return f"${amount:.4f}" if abs(amount) < 0.00995 else f"${amount:,.2f}"


def took_in_words(seconds: float, price: float | None) -> str:
    """How long something took, and what that cost: `3 h 10 min, $1.58`."""
    return ", ".join(filter(None, (duration(seconds), spent_in_words(seconds, price))))


def spent(seconds: float | None, price: float | None) -> float | None:
    """Return the cost in US dollars of a time at a price per hour; None if either isn't known."""
    return None if seconds is None or not price else round(seconds / 3600 * price, 4)


def spent_in_words(seconds: float | None, price: float | None) -> str:
    """Return `spent` as people read it; "" if it isn't known."""
    amount = spent(seconds, price)
    return "" if amount is None else dollars(amount)
