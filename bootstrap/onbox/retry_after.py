"""How long a server asks to wait: `Retry-After` of a refused request.

Python 3.6 and its standard library only, since it runs on whatever Python a box has.
"""

import re
import time
from email.utils import parsedate_to_datetime
from typing import Optional

LONGEST_S = 300
"""Seconds that are waited for in all; a server that asks for more is named instead."""


def asked_pause(error: BaseException) -> Optional[int]:  # noqa: UP045 - for Python 3.6
    """Return the seconds that a server's answer asks to wait; None if it asks for nothing."""
    headers = getattr(error, "headers", None)
    told = str(headers.get("Retry-After") or "").strip() if headers is not None else ""
    if re.match("[0-9]+$", told):
        return int(told[:9])
    try:
        return max(0, int(parsedate_to_datetime(told).timestamp() - time.time()) + 1)
    except (TypeError, ValueError, IndexError, OverflowError):  # no date, or none at all
        return None
