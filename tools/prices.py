"""Renew the table of prices: python -m tools.prices   (make prices)

Asks gpuhunt for the clouds and each provider for its own offers; a provider that can't be asked
keeps its rows. Read the diff before you commit it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from bootstrap.providers.estimate import TABLE, Found, Price, Usage, shipped_prices, with_live
from bootstrap.tasks.estimate import asked_live


def main() -> None:
    """Ask everybody, and write the table."""
    found = with_live(shipped_prices(), asked_live([""], Usage(1)))
    for name, why in found.failed.items():
        print(f"{name}: keeps its rows, {why}")
    TABLE.write_text(renewed(TABLE.read_text(encoding="utf-8"), found), encoding="utf-8")


def renewed(text: str, found: Found) -> str:
    """Return the table's text with these prices; a line for each, as it is read in a diff."""
    old = json.loads(text)
    rates, machines = old["rates"], old["machines"]
    lines = [
        '{\n"v": 1,\n"rates": {',
        ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rates.items()),
        '},\n"machines": {',
        ",\n".join(_machines(name, row) for name, row in machines.items()),
        '},\n"prices": [',
        ",\n".join(json.dumps(_row(price)) for price in _ordered(found.prices)),
        "]\n}\n",
    ]
    return "\n".join(lines)


def _machines(name: str, row: dict[str, Any]) -> str:
    """Return a cloud's prices of machines, which nothing renews, with a line for each region."""
    head = ", ".join(f"{json.dumps(key)}: {json.dumps(row[key])}" for key in ("date", "source"))
    families = ",\n".join(
        f"{json.dumps(family)}: {{\n"
        + ",\n".join(f"{json.dumps(place)}: {json.dumps(cost)}" for place, cost in rows.items())
        + "}"
        for family, rows in row["families"].items()
    )
    return f'{json.dumps(name)}: {{{head}, "families": {{\n{families}}}}}'


def _ordered(prices: Sequence[Price]) -> list[Price]:
    return sorted(prices, key=lambda price: (price.provider, price.gpu, price.kind))


def _row(price: Price) -> dict[str, object]:
    row = dataclasses.asdict(price)
    del row["live"], row["disk_included"]
    return {**row, "price": round(price.price, 4)}


if __name__ == "__main__":
    main()
