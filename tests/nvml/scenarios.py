"""Cards as NVML reports them, and what can be wrong with them.

What a card doesn't support is left out: the stand-in then answers NOT_SUPPORTED.
Of two lines with the same key the later one counts.
"""

from __future__ import annotations

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
    order: dict[str, object] = {}  # noqa: RUF012
    quiet: str = ""


FAULTS = {
    "count": Fault(A100, "count = 3", "return", "gpu-count", {"count": 4}, "count = 4"),
    "more than ordered": Fault(A100, "count = 2", "warn", "gpu-count", {"count": 1}, "count = 1"),
    "wrong name": Fault(
        A100,
        "gpu.name = NVIDIA A10",
        "return",
        "gpu-name",
        {"name": "A100"},
        "gpu.name = NVIDIA A100-PCIE-40GB",
    ),
    "none of several names": Fault(
        A100,
        "gpu.name = NVIDIA A10",
        "return",
        "gpu-name",
        {"name": "H100, A100"},
        "gpu.name = NVIDIA A100-PCIE-40GB",
    ),
    "weaker relative": Fault(
        RTX4090, "gpu.name = NVIDIA GeForce RTX 4090 D", "warn", "gpu-name", {"name": "RTX 4090"}
    ),
    "half memory": Fault(
        A100,
        "gpu.memory_v2 = 40960 4",
        "return",
        "gpu-memory",
        {"min_memory_gib": 80},
        "gpu.memory_v2 = 78700 4",
    ),
    "memory, no ECC to blame": Fault(
        RTX4090,
        "gpu.memory_v2 = 23034 2",
        "return",
        "gpu-memory",
        {"min_memory_gib": 24},
        "gpu.memory_v2 = 23600 2",
    ),
    "memory not reported": Fault(
        A100,
        "gpu.memory = !3\ngpu.memory_v2 = !3",
        "warn",
        "gpu-unread",
        {"min_memory_gib": 80},
        "gpu.memory_v2 = 81920 4",
    ),
    "name not reported": Fault(
        A100, "gpu.name = !3", "warn", "gpu-unread", {"name": "A100"}, "gpu.name = NVIDIA A100"
    ),
    "old driver": Fault(
        A100,
        "driver = 535.9.1",
        "return",
        "gpu-driver",
        {"min_driver": "535.10"},
        "driver = 535.10.0",
    ),
    "old CUDA": Fault(
        A100, "cuda = 11080", "return", "gpu-cuda", {"min_cuda": "12.1"}, "cuda = 12010"
    ),
    "ECC now": Fault(A100, "gpu.ecc_now = 2", "return", "gpu-ecc"),
    "ECC once": Fault(A100, "gpu.ecc_ever = 7", "warn", "gpu-ecc"),
    "remap failed": Fault(
        A100, "gpu.remapped = 0 1 0 1", "return", "gpu-remapped", {}, "gpu.remapped = 3 1 0 0"
    ),
    "remap pending": Fault(A100, "gpu.remapped = 0 1 1 0", "return", "gpu-remapped"),
    "retired pending": Fault(V100, "gpu.retired = 1", "return", "gpu-retired"),
    "memory used": Fault(
        A100, "gpu.memory_v2 = 81920 21000", "return", "gpu-used", {}, "gpu.memory_v2 = 81920 1024"
    ),
    "MIG": Fault(A100, "gpu.mig = 1 1", "return", "gpu-mig"),
    "no MIG": Fault(A100, "gpu.mig = 0 0", "return", "gpu-mig", {"mig": True}, SLICES),
    "no slice": Fault(
        A100,
        "gpu.mig = 1 1",
        "return",
        "gpu-mig",
        {"mig": True, "name": "A100", "min_memory_gib": 40},
        SLICES,
    ),
    "slices not told": Fault(
        A100, f"{SLICES}gpu.max_slices = !4", "warn", "gpu-mig", {"mig": True}, SLICES
    ),
    "slices not counted": Fault(
        A100,
        f"{SLICES}gpu.max_slices = !4",
        "warn",
        "gpu-unread",
        {"mig": True, "count": 2, "checks": {"mig": "ignore"}},
        SLICES,
    ),
    "slices of unknown memory": Fault(
        A100,
        f"{SLICES}gpu.memory_v2 = 81920 4\ngpu.max_slices = !4",
        "warn",
        "gpu-unread",
        {"mig": True, "min_memory_gib": 80, "checks": {"mig": "ignore"}},
    ),
    "a slice too few": Fault(
        A100,
        f"{SLICES}gpu.slice.2.handle = !4",
        "return",
        "gpu-count",
        {"mig": True, "count": 2},
        SLICES,
    ),
    "a slice too small": Fault(
        A100,
        f"{SLICES}gpu.slice.2.memory = 19968 37",
        "return",
        "gpu-memory",
        {"mig": True, "min_memory_gib": 40},
        SLICES,
    ),
    "other slices": Fault(
        A100,
        SLICES,
        "return",
        "gpu-name",
        {"mig": True, "name": "A100 4g.40gb"},
        SLICES.replace("3g.", "4g."),
    ),
    "a slice in use": Fault(
        A100,
        f"{SLICES}gpu.slice.0.memory = 40192 9000",
        "return",
        "gpu-used",
        {"mig": True},
        SLICES,
    ),
    "a slice without memory": Fault(
        A100,
        f"{SLICES}gpu.slice.0.memory = !3",
        "warn",
        "gpu-unread",
        {"mig": True, "min_memory_gib": 40},
        SLICES,
    ),
    "a lost slice": Fault(
        A100, f"{SLICES}gpu.slice.2.handle = !15", "return", "gpu-sick", {"mig": True}, SLICES
    ),
    "compute mode": Fault(A100, "gpu.compute_mode = 2", "return", "gpu-mode"),
    "exclusive": Fault(A100, "gpu.compute_mode = 3", "return", "gpu-mode"),
    "NVLink down": Fault(
        A100, "gpu.nvlink = 000000000000", "return", "gpu-nvlink", {"nvlink": True}
    ),
    "an NVLink down": Fault(
        A100, "gpu.nvlink = 111111111110", "warn", "gpu-nvlink", {"nvlink": True}
    ),
    "power limit": Fault(
        RTX4090, "gpu.power_limit = 300000", "warn", "gpu-power", {}, "gpu.power_limit = 450000"
    ),
    "power ordered": Fault(
        RTX4090, "gpu.power_limit = 300000", "return", "gpu-power", {"min_power_watts": 450}
    ),
    "power of a weaker build": Fault(
        RTX4090,
        "gpu.power_limit = 350000\ngpu.power_default = 350000",
        "return",
        "gpu-power",
        {"min_power_watts": 450},
        "gpu.power_limit = 446000\ngpu.power_default = 446000",
    ),
    "slow-down": Fault(
        A100, "gpu.throttle = 0x8", "warn", "gpu-throttle", {}, "gpu.throttle = 0x4"
    ),
    "too hot": Fault(A100, "gpu.throttle = 0x40", "warn", "gpu-throttle"),
    "power brake": Fault(A100, "gpu.throttle = 0x81", "warn", "gpu-throttle"),
    "throttling, old driver": Fault(V100, "gpu.throttle_old = 0x40", "warn", "gpu-throttle"),
    "near its limit": Fault(
        A100, "gpu.temperature = 79", "warn", "gpu-hot", {}, "gpu.temperature = 78"
    ),
    "margin": Fault(H100, "gpu.margin = 10", "warn", "gpu-hot", {}, "gpu.margin = 11"),
    "narrow bus": Fault(
        A100,
        "gpu.pcie_width = 4\ngpu.load = 95 40",
        "warn",
        "gpu-bus",
        {},
        "gpu.pcie_width = 4\ngpu.load = 3 0",
    ),
    "slow bus": Fault(
        RTX4090, "gpu.load = 95 40", "warn", "gpu-bus", {}, "gpu.load = 95 40\ngpu.pcie_gen = 4"
    ),
    "bus in an old slot": Fault(
        A100,
        "gpu.pcie_gen = 3\ngpu.pcie_max_gen = 3",
        "return",
        "gpu-bus",
        {"min_pcie_generation": 4},
        "gpu.pcie_gen = 1",
    ),
    "bus on a riser": Fault(
        A100,
        "gpu.pcie_width = 8\ngpu.pcie_max_width = 8",
        "return",
        "gpu-bus",
        {"min_pcie_width": 16},
    ),
    "bus as ordered, thin under load": Fault(
        A100,
        "gpu.pcie_width = 4\ngpu.load = 95 40",
        "return",
        "gpu-bus",
        {"min_pcie_width": 16},
        "gpu.pcie_width = 4\ngpu.load = 3 0",
    ),
    "MIG ordered, not told": Fault(
        A100, "gpu.mig = !3", "warn", "gpu-unread", {"mig": True}, SLICES
    ),
    "NVLink ordered, not told": Fault(
        A100, "gpu.nvlink = !3", "warn", "gpu-unread", {"nvlink": True}
    ),
    "power ordered, not told": Fault(
        A100, "gpu.power_limit = !3", "warn", "gpu-unread", {"min_power_watts": 400}
    ),
    "unreadable": Fault(A100, "gpu.ecc_now = !999", "warn", "gpu-unread"),
    "name unreadable": Fault(A100, "gpu.name = !999", "return", "gpu-sick", {"name": "A100"}),
    "no GPU shown": Fault(A100, "count = 0", "return", "no-gpu"),
}
