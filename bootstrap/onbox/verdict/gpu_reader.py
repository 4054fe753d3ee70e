"""Read the GPUs through NVML, in a process of its own: any call of a sick driver can hang.

Writes lines as described in `readers.py`; a call that failed has the value
`{"error": NVML's code}`. The last line is `[null, "end"]`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..run_folder import RunFolder
from .readers import emit, emit_reading

Reading = Any  # what NVML answers

NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH, DEPRECATED = 3, 13, 25, 26
ABSENT = {"error": 6}, {"error": 4}  # no slice has this index, or it is somebody else's
NO_LIBRARY = {"error": 12}
LIBRARY = "libnvidia-ml.so.1"
# Where images keep the library if it is found only by LD_LIBRARY_PATH, which ssh drops.
FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib")

INIT = [("nvmlInit",)]
# key -> (function, arguments...), the newest first: old drivers lack some, new ones drop some.
BOX: dict[str, Sequence[Any]] = {
    "driver": [("nvmlSystemGetDriverVersion",)],
    "cuda": [("nvmlSystemGetCudaDriverVersion_v2",)],
    "count": [("nvmlDeviceGetCount",)],
}
GPU: dict[str, Sequence[Any]] = {
    "name": [("nvmlDeviceGetName",)],
    "uuid": [("nvmlDeviceGetUUID",)],
    # v2 leaves out memory that the driver reserves for itself; 0x2000028 is its version tag.
    "memory": [("nvmlDeviceGetMemoryInfo", 0x2000028), ("nvmlDeviceGetMemoryInfo",)],
    "capability": [("nvmlDeviceGetCudaComputeCapability",)],
    "mig": [("nvmlDeviceGetMigMode",)],
    "ecc_mode": [("nvmlDeviceGetEccMode",)],
    "ecc_now": [("nvmlDeviceGetTotalEccErrors", 1, 0)],  # uncorrected, since the driver loaded
    "ecc_ever": [("nvmlDeviceGetTotalEccErrors", 1, 1)],  # uncorrected, in the card's life
    "remapped": [("nvmlDeviceGetRemappedRows",)],
    "retired": [("nvmlDeviceGetRetiredPagesPendingStatus",)],
    "compute_mode": [("nvmlDeviceGetComputeMode",)],
    "power_limit": [("nvmlDeviceGetPowerManagementLimit",)],
    "power_default": [("nvmlDeviceGetPowerManagementDefaultLimit",)],
    "throttle": [
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    ],
    "temperature": [("nvmlDeviceGetTemperature", 0)],
    "slowdown_at": [("nvmlDeviceGetTemperatureThreshold", 1)],
    "margin": [("nvmlDeviceGetMarginTemperature",)],
    "load": [("nvmlDeviceGetUtilizationRates",)],
    "pcie_width": [("nvmlDeviceGetCurrPcieLinkWidth",)],
    "pcie_max_width": [("nvmlDeviceGetMaxPcieLinkWidth",)],
    "pcie_gen": [("nvmlDeviceGetCurrPcieLinkGeneration",)],
    "pcie_max_gen": [("nvmlDeviceGetMaxPcieLinkGeneration",)],
    "persistence": [("nvmlDeviceGetPersistenceMode",)],
}


def traces(root: str) -> dict[str, Any]:
    """Return what the kernel shows of NVIDIA: devices, driver, cards on the bus."""
    devices = [str(p) for p in sorted(Path(root, "dev").glob("nvidia[0-9c]*"))]
    devices += [str(p) for p in Path(root, "dev").glob("dxg")]  # WSL
    return {
        "devices": len(devices),
        "locked": sum(not os.access(p, os.R_OK | os.W_OK) for p in devices),
        "kernel": Path(root, "proc/driver/nvidia/version").exists(),
        "cards": sum(map(is_card, Path(root, "sys/bus/pci/devices").glob("*"))),
    }


def is_card(pci: Path) -> bool:
    """Return whether a PCI device is an NVIDIA display or 3D controller."""
    vendor, kind = map(RunFolder(pci).first, ("vendor", "class"))
    return vendor == "0x10de" and kind.startswith("0x03")


def load_library() -> str:
    """Load NVML; return "" if that worked, else "missing" or "broken".

    Once it is loaded, from any folder, pynvml finds it by its name.
    """
    found = "missing"
    for path in (LIBRARY, *(f"{folder}/{LIBRARY}" for folder in FOLDERS)):
        try:
            ctypes.CDLL(path)
            return ""
        except OSError as error:
            if "No such file" not in str(error):
                found = "broken"
    return found


def plain(value: Reading) -> Reading:
    """Convert a ctypes structure to a dictionary; return anything else unchanged."""
    fields = getattr(value, "_fields_", None)
    return {f[0]: getattr(value, f[0]) for f in fields} if fields else value


def ask(calls: Sequence[Any], *handle: Reading) -> Reading:
    """Return the first answer that the installed driver can give, or its error."""
    import pynvml

    code = NOT_SUPPORTED
    for name, *arguments in calls:
        function = getattr(pynvml, name, None)  # an older nvidia-ml-py lacks the newest
        if function is None:
            continue
        try:
            return plain(function(*handle, *arguments))
        except pynvml.NVMLError as error:
            code = error.value
            if code not in (FUNCTION_NOT_FOUND, VERSION_MISMATCH, DEPRECATED):
                break
    return {"error": code}


def links(handle: Reading) -> Reading:
    """Return the states of the NVLinks, 1 is active; the first missing link ends the list."""
    states: list[int] = []
    for link in range(18):
        state = ask([("nvmlDeviceGetNvLinkState",)], handle, link)
        if isinstance(state, dict):
            return states or state
        states.append(state)
    return states


def slices(handle: Reading) -> Reading:
    """Return the readings of each slice (MIG) that is ours."""
    most = ask([("nvmlDeviceGetMaxMigDeviceCount",)], handle)
    if isinstance(most, dict):
        return most
    found: list[Reading] = []
    for index in range(most):
        piece = ask([("nvmlDeviceGetMigDeviceHandleByIndex", index)], handle)
        if piece in ABSENT:
            continue
        if isinstance(piece, dict):
            return piece
        found.append({key: ask(GPU[key], piece) for key in ("name", "uuid", "memory")})
    return found


def read_gpu(index: int) -> None:
    emit(index, "handle")
    handle = ask([("nvmlDeviceGetHandleByIndex", index)])
    if isinstance(handle, dict):
        emit(index, "handle", handle)
        return
    found = {
        key: emit_reading(index, key, lambda: ask(calls, handle))  # noqa: B023
        for key, calls in GPU.items()
    }
    if isinstance(found["mig"], list) and found["mig"][0]:
        emit_reading(index, "slices", lambda: slices(handle))
    emit_reading(index, "nvlink", lambda: links(handle))


def main() -> None:
    for key, value in traces("/").items():
        emit(None, key, value)
    missing = emit_reading(None, "library", load_library) == "missing"
    # Importing pynvml takes long, and without the library it would only report the same.
    if emit_reading(None, "init", lambda: NO_LIBRARY if missing else ask(INIT)) is None:
        for key, calls in BOX.items():
            value = emit_reading(None, key, lambda: ask(calls))  # noqa: B023
        for index in range(value if isinstance(value, int) else 0):
            read_gpu(index)
    emit(None, "end")
