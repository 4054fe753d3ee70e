"""The table of faults as data and as text; nothing here does I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

HELD = "held"
FAILED = "FAILED"
HEAD = ("fault", "tries", "outcome", "time to notice (median, worst)")


@dataclass(frozen=True)
class Try:
    """One injection of a fault: where, its outcome, seconds until it was noticed."""

    fault: str
    at: str | None = None
    outcome: str = HELD
    noticed_s: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return it in the form that a worker sends to the controller."""
        return asdict(self)


@dataclass(frozen=True)
class FaultRow:
    """All tries of one fault."""

    fault: str
    tries: int
    outcome: str
    noticed_s: tuple[float, ...] = ()

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The row's cells as shown in the table."""
        return self.fault, str(self.tries), self.outcome, _seconds(self.noticed_s)


def rows(tries: Iterable[Try]) -> list[FaultRow]:
    """Return one row for each fault, sorted by name."""
    by_fault: dict[str, list[Try]] = {}
    for one in tries:
        by_fault.setdefault(one.fault, []).append(one)
    return [
        FaultRow(
            fault, len(of), _outcome(of), tuple(t.noticed_s for t in of if t.noticed_s is not None)
        )
        for fault, of in sorted(by_fault.items())
    ]


def lines(table: Sequence[FaultRow]) -> list[str]:
    """Return the table as aligned text, with the header first."""
    cells = [HEAD, *(row.cells for row in table)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
    return [_line(row, widths) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    fault, tries, outcome, noticed = row
    wide = (f"{fault:{widths[0]}}", f"{tries:>{widths[1]}}", f"{outcome:{widths[2]}}", noticed)
    return "  ".join(wide).rstrip()


def _outcome(tries: Sequence[Try]) -> str:
    failed = [one for one in tries if one.outcome == FAILED]
    if failed:
        where = sorted({one.at for one in failed if one.at})
        return f"{FAILED} {len(failed)} of {len(tries)}" + (
            f" ({', '.join(where)})" if where else ""
        )
    return ", ".join(sorted({one.outcome for one in tries}))


def _seconds(noticed: Sequence[float]) -> str:
    if not noticed:
        return "-"
    if len(noticed) == 1:
        return f"{noticed[0]:.1f} s"
    return f"{median(noticed):.1f} s, {max(noticed):.1f} s"
