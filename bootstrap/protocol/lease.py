"""A box's report on its lease. It comes from the box's monitor, so every value is checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bootstrap.box.lease.lease import LIMITS
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import dollars, duration

_HELD = {
    "yes": "held by the box",
    "trying": "nothing on this box holds it yet",
    "no-answer": "nothing on this box holds it: its account does not answer, and is asked again",
    "no-boot": "held by the box until it is restarted",
    "no-key": "nothing on this box holds it: the box has no key of its own for its account",
    "refused": "nothing on this box holds it: its account refuses the box's own key",
    "wipes": "nothing on this box holds it: a stop would wipe what lies outside its volume",
}
"""What the monitor's codes mean."""
_BY_OLDER = ", by its provider's older API (GraphQL, until early 2027)"
UNPRICED = (
    "; its dollars are not counted, as nothing says what an hour costs: boxstrap setup "
    "--set box.price=PRICE"
)
"""What is said of a lease that limits dollars."""
LOST = "lost"
_GONE = "nothing on this box holds it: its monitor is gone. The next setup starts it again"
_MOST = 1e12
_MOST_UNSAFE, _LONGEST = 10, 300


@dataclass(frozen=True)
class BoxLease:
    """A lease, as counted on its box."""

    held: str
    """yes, no-boot, no-answer, no-key, refused, wipes, trying; lost: its monitor is gone."""
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """For hours, dollars, idle, stall: the amount used, and the limit. Seconds, dollars."""
    over: str = ""
    """The limit that was reached."""
    soon: str = ""
    extended: float = 0.0
    has_error: bool = False
    """Whether the last request to the account failed."""
    destroys: bool = False
    """Whether the box is destroyed at the end if nothing is unsafe; else it is stopped."""
    unsafe: tuple[str, ...] = ()
    """What is unsafe, by the box's last look."""
    is_unpriced: bool = False
    """Whether it limits dollars, and nothing says what an hour costs."""
    is_by_older: bool = False
    """Whether the box is held by RunPod's older API, which is to be switched off in 2027."""

    @property
    def is_held(self) -> bool:
        """Whether the box ends itself (with `no-boot`, only until it is restarted)."""
        return self.held in {"yes", "no-boot"}

    def lines(self) -> list[str]:
        """Lines for the user: what is left, and who holds it."""
        return [f"lease: {self.left()}; {self._holder()}"]

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints: seconds and dollars."""
        return {
            "held": self.held,
            "by": "graphql" if self.is_by_older else None,
            "limits": {
                name: {"is": round(is_, 4), "limit": most}
                for name, (is_, most) in self.limits.items()
            },
            "over": self.over or None,
            "unpriced": self.is_unpriced,
            "then": "destroy" if self.destroys else "stop",
            "unsafe": [*self.unsafe],
            "extended": self.extended,
        }

    def left(self) -> str:
        """Describe what is left of each limit."""
        if self.over:
            return f"over ({self.over})"
        parts = [_LEFT[name](is_, most) for name, (is_, most) in self.limits.items()]
        return ", ".join(parts) or "nothing is counted yet"

    def _holder(self) -> str:
        if self.held == LOST:
            return _GONE
        error = ""
        if self.has_error and self.held != "no-answer":
            error = "; its account did not answer the last time, and is asked again"
        if self.over and self.is_held:
            return f"the box is asked to be {self._end()}{error}"
        if self.over:
            return f"it keeps running and costing money: {_HELD[self.held]}"
        end = f", then {self._end()}" if self.destroys else ""
        way = _BY_OLDER if self.is_by_older and self.is_held else ""
        return f"{_HELD.get(self.held, _HELD['trying'])}{way}{end}{error}{self._uncounted()}"

    def _uncounted(self) -> str:
        return UNPRICED if self.is_unpriced else ""

    def _end(self) -> str:
        if self.destroys and self.unsafe:
            first, *others = self.unsafe
            more = f", and {len(others)} more" if others else ""
            return f"stopped, not destroyed ({first}{more})"
        return "destroyed" if self.destroys else "stopped"


_LEFT = {
    "hours": lambda is_, most: f"{duration(max(0.0, most - is_))} left",
    "dollars": lambda is_, most: f"{dollars(is_)} of {dollars(most)}",
    "idle": lambda is_, most: f"idle for {duration(is_)} of {duration(most)}",
    "stall": lambda is_, most: f"without growth for {duration(is_)} of {duration(most)}",
}


def parse_lease(said: str) -> BoxLease | None:
    """Parse a box's lease from its line; None if it has none."""
    word, _, text = said.partition("\t")
    if word not in {"kept", LOST}:
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        return BoxLease(LOST if word == LOST else "trying")
    held = str(state.get("held"))
    counted, limits = state.get("counted"), _limits(state.get("limits"))
    return BoxLease(
        held=LOST if word == LOST else held if held in _HELD else "trying",
        limits=limits,
        over=_limit(state.get("over")),
        soon=_limit(state.get("soon")),
        extended=_number(counted.get("extended")) if isinstance(counted, dict) else 0.0,
        has_error=bool(state.get("error")),
        destroys=state.get("then") == "destroy",
        unsafe=_unsafe(state.get("unsafe")),
        is_unpriced="dollars" in limits and "price" in state and state["price"] is None,
        is_by_older=state.get("way") == "graphql",
    )


def _unsafe(said: object) -> tuple[str, ...]:
    lines = said[:_MOST_UNSAFE] if isinstance(said, list) else []
    return tuple(sanitize(line)[:_LONGEST] for line in lines if isinstance(line, str))


def _limits(said: object) -> dict[str, tuple[float, float]]:
    pairs = said if isinstance(said, dict) else {}
    return {
        name: (_number(pairs[name][0]), _number(pairs[name][1]))
        for name in LIMITS
        if isinstance(pairs.get(name), list) and len(pairs[name]) == 2
    }


def _limit(said: object) -> str:
    return said if isinstance(said, str) and said in LIMITS else ""


def _number(said: object) -> float:
    is_one = isinstance(said, int | float) and not isinstance(said, bool)
    return float(said) if is_one and math.isfinite(said) and abs(said) < _MOST else 0.0  # type: ignore[arg-type]
