"""An estimate: what is asked for, the prices that fit, and what each of them comes to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.estimate.cost import Cost, Rates, Usage, cost_of
from bootstrap.estimate.prices import Price, rates_of
from bootstrap.text.sizes import dollars

HEAD = ("PROVIDER", "GPU", "KIND", "$/GPU h", "TOTAL", "READ ON", "")


@dataclass(frozen=True)
class Row:
    """A price, and what the usage costs at it."""

    price: Price
    cost: Cost
    gpus: int
    """GPUs that are paid for: a provider's smallest box may have more than are used."""

    def as_dict(self) -> dict[str, object]:
        """Return the row as `--json` prints it. Dollars; GB."""
        return {
            **vars(self.price),
            "paid_gpus": self.gpus,
            "compute": round(self.cost.compute, 4),
            "disk": _rounded(self.cost.disk),
            "egress": _rounded(self.cost.egress),
            "stopped": _rounded(self.cost.stopped),
            "total": round(self.cost.total, 4),
            "not_in_total": self.cost.unknown,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the cells of `HEAD`."""
        whole = self.price.gpus > 1
        notes = [f"boxes of {self.price.gpus}: {self.gpus} GPUs are paid for"] if whole else []
        notes += [f"without {', '.join(self.cost.unknown)}"] if self.cost.unknown else []
        return (
            self.price.provider,
            self.price.gpu,
            self.price.kind,
            dollars(self.price.price),
            dollars(self.cost.total),
            "live" if self.price.live else self.price.date,
            "; ".join(notes),
        )


def estimate_rows(prices: Sequence[Price], usage: Usage) -> list[Row]:
    """Return a row for each price, the cheapest total first."""
    rows = [_row(price, usage) for price in prices]
    return sorted(rows, key=lambda row: (row.cost.total, row.price.provider, row.price.kind))


def _row(price: Price, usage: Usage) -> Row:
    rates = Rates(disk=0.0) if price.disk_included else rates_of(price.provider)
    boxes = -(-usage.gpus // price.gpus)
    paid = boxes * price.gpus
    whole = Usage(
        usage.hours,
        usage.experiments,
        paid,
        usage.disk_gb,
        usage.egress_gb,
        usage.stopped_hours,
    )
    return Row(price, cost_of(whole, price.price, rates), paid)


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 4)
