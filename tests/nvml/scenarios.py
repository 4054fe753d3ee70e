"""Cards as NVML reports them (`cards.txt`), and what can be wrong with them (`faults.txt`)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cases import parts_of, read_cases

(_, _common), *_cards, (_, SLICES) = read_cases(Path(__file__).with_name("cards.txt"))
HEALTHY = {name: f"{parts_of(_common)['common']}{card}\n" for name, card in _cards}
A100, H100, RTX4090 = (HEALTHY[name] for name in ("A100", "H100", "RTX 4090"))
ORDERS: dict[str, dict[str, object]] = {
    "A100": {"count": 1, "name": "A100", "min_memory_gib": 80, "min_cuda": "12.4"},
    "H100": {"count": 1, "name": "H100 SXM", "min_memory_gib": 80, "min_driver": "570"},
    "RTX 4090": {"count": 1, "name": "RTX4090", "min_memory_gib": 24, "min_cuda": "12"},
    "V100": {"count": 1, "name": "v100", "min_memory_gib": 16, "min_cuda": "11.4"},
    "L4": {"count": 1, "name": "L4", "min_memory_gib": 24},
}


class Fault(NamedTuple):
    """What is wrong with an otherwise healthy card, and what must be reported.

    `quiet` is a value just on the good side of the threshold: nothing must be reported.
    """

    card: str
    wrong: str
    outcome: str
    code: str
    order: dict[str, object]
    quiet: str


def _faults() -> Iterator[tuple[str, Fault]]:
    """Read the faults by name: values are separated by `;`, and an order is JSON."""
    for row in Path(__file__).with_name("faults.txt").read_text().splitlines()[1:]:
        name, card, reported, *values, order = (cell.strip() for cell in row.split("|"))
        wrong, quiet = (each.replace("SLICES", SLICES).replace("; ", "\n") for each in values)
        outcome, code = reported.split()
        yield name, Fault(HEALTHY[card], wrong, outcome, code, json.loads(f"{{{order}}}"), quiet)


FAULTS = dict(_faults())
