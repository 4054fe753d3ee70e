"""Cards as NVML reports them, and what can be wrong with them.

What a card doesn't support is left out: the stand-in then answers NOT_SUPPORTED.
Of two lines with the same key the later one counts.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DRIVER = """
driver = 550.54.15
cuda = 12040
count = 1
"""
# What every card of the last ten years reports.
COMMON = """
gpu.uuid = GPU-00000000-1111-2222-3333-444444444444
gpu.compute_mode = 0
gpu.temperature = 31
gpu.slowdown_at = 89
gpu.load = 0 0
gpu.throttle = 1
gpu.persistence = 1
"""
A100 = f"""{DRIVER}{COMMON}
gpu.name = NVIDIA A100-SXM4-80GB
gpu.memory = 81920 640
gpu.memory_v2 = 81920 4
gpu.capability = 8 0
gpu.mig = 0 0
gpu.ecc_mode = 1 1
gpu.ecc_now = 0
gpu.ecc_ever = 0
gpu.remapped = 0 0 0 0
gpu.power_limit = 400000
gpu.power_default = 400000
gpu.pcie_width = 16
gpu.pcie_max_width = 16
gpu.pcie_gen = 4
gpu.pcie_max_gen = 4
gpu.nvlink = 111111111111
"""
# Newer drivers report the margin below slow-down instead of the threshold.
H100 = f"""{DRIVER}{COMMON}
driver = 570.124.06
gpu.slowdown_at = !3
gpu.margin = 58
gpu.name = NVIDIA H100 80GB HBM3
gpu.memory = 81559 1090
gpu.memory_v2 = 81559 1
gpu.capability = 9 0
gpu.mig = 0 0
gpu.ecc_mode = 1 1
gpu.ecc_now = 0
gpu.ecc_ever = 0
gpu.remapped = 0 0 0 0
gpu.power_limit = 700000
gpu.power_default = 700000
gpu.pcie_width = 16
gpu.pcie_max_width = 16
gpu.pcie_gen = 5
gpu.pcie_max_gen = 5
gpu.nvlink = 111111111111111111
"""
# A GeForce: no ECC counters, row remapping, MIG or NVLink; its PCIe link is slower when idle.
RTX4090 = f"""{DRIVER}{COMMON}
gpu.name = NVIDIA GeForce RTX 4090
gpu.memory = 24564 400
gpu.memory_v2 = 24564 2
gpu.capability = 8 9
gpu.power_limit = 450000
gpu.power_default = 450000
gpu.pcie_width = 16
gpu.pcie_max_width = 16
gpu.pcie_gen = 1
gpu.pcie_max_gen = 4
gpu.persistence = 0
"""
# Before Ampere, pages are retired, not remapped; an old driver has only the old names.
V100 = f"""{DRIVER}{COMMON}
driver = 470.256.02
cuda = 11040
gpu.name = Tesla V100-SXM2-16GB
gpu.memory = 16160 3
gpu.memory_v2 = !13
gpu.throttle = !13
gpu.throttle_old = 0
gpu.margin = !13
gpu.capability = 7 0
gpu.ecc_mode = 1 1
gpu.ecc_now = 0
gpu.ecc_ever = 0
gpu.retired = 0
gpu.power_limit = 300000
gpu.power_default = 300000
gpu.pcie_width = 16
gpu.pcie_max_width = 16
gpu.pcie_gen = 3
gpu.pcie_max_gen = 3
gpu.nvlink = 111111
"""
L4 = f"""{DRIVER}{COMMON}
gpu.name = NVIDIA L4
gpu.memory = 23034 450
gpu.memory_v2 = 23034 2
gpu.capability = 8 9
gpu.ecc_mode = 1 1
gpu.ecc_now = 0
gpu.ecc_ever = 0
gpu.remapped = 0 0 0 0
gpu.power_limit = 72000
gpu.power_default = 72000
gpu.pcie_width = 16
gpu.pcie_max_width = 16
gpu.pcie_gen = 1
gpu.pcie_max_gen = 4
"""

# In a container that was given slices, the card as a whole tells nothing of its memory or load.
SLICES = """
gpu.mig = 1 1
gpu.memory = !4
gpu.memory_v2 = !4
gpu.load = !3
gpu.slice.0.uuid = MIG-00000000-1111-2222-3333-000000000000
gpu.slice.0.name = NVIDIA A100-SXM4-80GB MIG 3g.40gb
gpu.slice.0.memory = 40192 37
gpu.slice.2.uuid = MIG-00000000-1111-2222-3333-000000000002
gpu.slice.2.name = NVIDIA A100-SXM4-80GB MIG 3g.40gb
gpu.slice.2.memory = 40192 37
"""

HEALTHY = {"A100": A100, "H100": H100, "RTX 4090": RTX4090, "V100": V100, "L4": L4}
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
