"""The table: what was measured, its bar, and whether it was met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Bar:
    """A limit, in the unit of its row; `why` says where it comes from."""

    limit: float
    why: str = ""
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Return whether `value` is within it."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class BenchRow:
    """One figure: the median of what was measured."""

    group: str
    name: str
    values: Sequence[float]
    unit: str = "s"
    bar: Bar | None = None
    note: str = ""
    digits: int = field(default=2)

    @property
    def value(self) -> float:
        """The figure that counts."""
        return median(self.values)

    @property
    def is_missed(self) -> bool:
        """Whether there is a bar and it is not met."""
        return self.bar is not None and not self.bar.is_met(self.value)

    def as_dict(self) -> dict[str, object]:
        """For --json."""
        bar = self.bar
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "median": self.value,
            "values": list(self.values),
            "bar": bar and {"limit": bar.limit, "at_least": bar.at_least, "why": bar.why},
            "missed": self.is_missed,
            "note": self.note,
        }


def as_text(rows: Sequence[BenchRow]) -> str:
    """Format the table, with a heading for each group."""
    lines: list[str] = []
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines += ["", group]
        lines.append(_line(row))
    return "\n".join(lines).lstrip("\n")


def _line(row: BenchRow) -> str:
    figure = f"{row.value:8.{row.digits}f} {row.unit}"
    values = sorted(row.values)
    spread = f"{values[0]:.{row.digits}f} to {values[-1]:.{row.digits}f}"
    bar = ""
    if row.bar is not None:
        sign = "at least" if row.bar.at_least else "at most"
        why = f" ({row.bar.why})" if row.bar.why else ""
        word = "MISSED" if row.is_missed else "ok"
        bar = f"{word:<6} {sign} {row.bar.limit:.{row.digits}f} {row.unit}{why}"
    counted = f"{spread}, n={len(values)}" if len(values) > 1 else "n=1"
    return f"  {row.name:<34}{figure:<14}{counted:<24}{bar}{row.note}".rstrip()
