"""The arithmetic of cost: rented hours, disk, egress, and buying instead. Pure.

Dollars are US dollars; a month has 730 hours, as providers bill disks.
"""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.text.sizes import dollars

HOURS_A_MONTH = 730.0


@dataclass(frozen=True)
class Usage:
    """What is used: hours of a box with so many GPUs, and what goes with it."""

    hours: float
    """Of one experiment."""
    experiments: int = 1
    gpus: int = 1
    disk_gb: float = 0.0
    egress_gb: float = 0.0
    """What leaves the box for the internet: results that are pulled."""
    stopped_hours: float = 0.0
    """Hours for which the box is kept stopped, and only its disk is paid for."""

    @property
    def all_hours(self) -> float:
        """The hours of all experiments."""
        return self.hours * self.experiments


@dataclass(frozen=True)
class Rates:
    """What a provider charges beside its GPUs; None if that is not known."""

    disk: float | None = None
    """Dollars a GB and month while the box runs."""
    stopped_disk: float | None = None
    """The same while it is stopped; None also where a box can't be stopped."""
    egress: float | None = None
    """Dollars a GB that leaves for the internet."""


@dataclass(frozen=True)
class Cost:
    """The parts of a cost in dollars; a part is None if its rate is not known."""

    compute: float
    disk: float | None = 0.0
    egress: float | None = 0.0
    stopped: float | None = 0.0

    @property
    def total(self) -> float:
        """The sum of what is known."""
        return self.compute + sum(part or 0.0 for part in (self.disk, self.egress, self.stopped))

    @property
    def unknown(self) -> list[str]:
        """The parts that are not in the total, because nobody says what they cost."""
        parts = {"disk": self.disk, "egress": self.egress, "stopped disk": self.stopped}
        return [name for name, part in parts.items() if part is None]


def cost_of(usage: Usage, dollars_per_gpu_hour: float, rates: Rates = Rates()) -> Cost:
    """Return what this usage costs at a price per GPU and hour."""
    hours = usage.all_hours
    return Cost(
        compute=hours * usage.gpus * dollars_per_gpu_hour,
        disk=_times(rates.disk, usage.disk_gb * hours / HOURS_A_MONTH),
        egress=_times(rates.egress, usage.egress_gb * usage.experiments),
        stopped=_times(rates.stopped_disk, usage.disk_gb * usage.stopped_hours / HOURS_A_MONTH),
    )


def _times(rate: float | None, amount: float) -> float | None:
    return 0.0 if not amount else None if rate is None else rate * amount


def saved(cost: float, reference: float) -> float:
    """Return the share of a reference cost that is saved: 0.64 for 64 %."""
    return 1.0 - cost / reference


def break_even_hours(
    card: float, rent_per_hour: float, *, watts: float = 0.0, kwh: float = 0.0
) -> float | None:
    """Return the hours of use after which a bought card is cheaper than renting; None if never.

    `card`: its price. `watts` and `kwh`: what the machine draws under load, and dollars a kWh.
    Only hours of use count: an idle card costs nothing here, and its resale is worth nothing.
    """
    saved_an_hour = rent_per_hour - watts / 1000 * kwh
    return card / saved_an_hour if saved_an_hour > 0 else None


@dataclass(frozen=True)
class Spending:
    """What was estimated before, and what it came to."""

    estimated: float
    so_far: float

    @property
    def difference(self) -> float:
        """What it cost more than estimated; negative if less."""
        return self.so_far - self.estimated

    def line(self, *, is_over: bool) -> str:
        """Return it as one line; an estimate of 0 means that nothing was estimated."""
        if not self.estimated:
            return dollars(self.so_far)
        before = f"{dollars(self.estimated)} were estimated"
        if not is_over:
            return f"{dollars(self.so_far)} so far; {before}"
        less = "less" if self.difference < 0 else "more"
        return f"{dollars(self.so_far)}; {before}, {dollars(abs(self.difference))} {less}"


def spending(price: float, hours: float, seconds: float) -> Spending:
    """Return the estimate of so many hours at a box's price, and what `seconds` of it cost."""
    before = cost_of(Usage(hours), price).total
    return Spending(before, cost_of(Usage(seconds / 3600), price).total)
