"""The result of giving a box back, as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.providers.offer import Leftover
from bootstrap.renting.unsafe import Unsafe
from bootstrap.text.sizes import dollars


@dataclass
class TeardownResult:
    """The result of giving a box back."""

    name: str
    host: str = ""
    """Its name in its account, `provider:id`; "" if no account can be asked."""
    destroyed: bool = False
    was_gone: bool = False
    why_not: str = ""
    """Why boxstrap did not destroy it."""
    console: str = ""
    is_rented: bool = True
    spent: float | None = None
    """Dollars, if known."""
    spent_since: str = "its last start"
    lost: Sequence[Unsafe] = ()
    left: Sequence[Leftover] = ()
    """Other things than boxes that the account still pays for."""

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            "box": self.name,
            "host": self.host or None,
            "destroyed": self.destroyed,
            "was_gone": self.was_gone,
            "spent": self.spent,
            "discarded": [one.as_dict() for one in self.lost],
            "left": [
                {"name": one.name or one.id, "kind": one.kind, "price": one.price}
                for one in self.left
            ],
        }

    def text(self) -> str:
        """Return it as text for the user."""
        about = f" ({self.host})" if self.host and self.host != self.name else ""
        cost = f"; about {dollars(self.spent)} since {self.spent_since}" if self.spent else ""
        if self.destroyed:
            gone = "was gone already" if self.was_gone else "destroyed, and no longer listed"
            lines = [f"{self.name}{about}: {gone}{cost}"]
        else:
            where = f"at {self.console}" if self.console else "where you rented it"
            lines = [
                f"{self.name}{about}: nothing on it would be lost, and it keeps running: "
                f"{self.why_not}"
            ]
            if self.is_rented:
                lines += [f"still billing: end it {where}"]
                lines += [f"Then, to forget it here: boxstrap boxes --forget {self.name}"]
        if self.lost:
            lost = "thrown away with it" if self.destroyed else "but for this"
            lines += [f"{lost}:", *(f"  {one}" for one in self.lost)]
        if self.left:
            lines += ["your account still has and pays for:"]
            lines += [f"  {one.kind} {one.name or one.id}{_price(one)}" for one in self.left]
        return "\n".join(lines)


def _price(left: Leftover) -> str:
    return f": {dollars(left.price)} an hour" if left.price is not None else ": price unknown"
