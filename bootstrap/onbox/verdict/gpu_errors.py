"""Why GPUs can't be read, from NVML's error codes and what the kernel shows, with advice."""

from __future__ import annotations

from typing import NamedTuple


class GpuProblem(NamedTuple):
    """A reason why; `code` is one of `steps/event_codes.py`, `says` and `advice` are for users."""

    code: str
    says: str
    advice: str


HOST = "Only the host's owner can fix it: return this box."
RESTART = "Restart the instance once; if the problem remains, return this box."

ABSENT = GpuProblem(
    "no-gpu",
    "there is no NVIDIA GPU here: no device, no driver, no library",
    "Rent a box with a GPU, or set gpu.require: false.",
)
NO_GPU = GpuProblem("no-gpu", "the driver runs but shows no GPU", RESTART)
NO_DRIVER = GpuProblem("no-driver", "an NVIDIA card is here, but no driver", HOST)
NO_DEVICE = GpuProblem(
    "no-device", "the driver is loaded, but no GPU was handed to this container", RESTART
)
MISSING = GpuProblem(
    "nvml-missing",
    "the GPU's device is here, but the driver's library libnvidia-ml.so.1 is not",
    "Start the image with NVIDIA_DRIVER_CAPABILITIES=compute,utility, or return this box.",
)
BROKEN = GpuProblem("nvml-broken", "the library libnvidia-ml.so.1 is here, but can't load", RESTART)
LOCKED = GpuProblem(
    "no-permission",
    "this user may not open the GPU's devices",
    "Log in as root, or as a member of the group that owns /dev/nvidia*.",
)
HANG = GpuProblem(
    "gpu-hang", "the driver did not answer within {limit:g} s when asked for {asked}", HOST
)
CRASH = GpuProblem("gpu-crash", "the driver's library crashed when asked for {asked}", HOST)

# nvmlReturn_t of the NVML API reference.
NVML = {
    4: LOCKED,
    8: GpuProblem("gpu-sick", "the GPU's power cables are not attached", HOST),
    9: GpuProblem("no-driver", "the driver's library is here, but the driver isn't loaded", HOST),
    10: GpuProblem("gpu-sick", "the GPU answers too late", HOST),
    11: GpuProblem("gpu-sick", "the kernel can't serve the GPU's interrupts", HOST),
    12: MISSING,
    14: GpuProblem("gpu-sick", "the GPU's own settings (infoROM) are corrupted", HOST),
    15: GpuProblem("gpu-sick", "the GPU fell off the bus or is lost", HOST),
    16: GpuProblem("gpu-sick", "the GPU must be reset before it works again", HOST),
    18: GpuProblem("nvml-mismatch", "the driver and its library differ in version", RESTART),
    999: GpuProblem(
        "gpu-detached",
        "the driver answers 'unknown error': the container probably lost its right to the GPU",
        RESTART,
    ),
}


def of_code(code: int) -> GpuProblem:
    """Return the problem that an NVML error code stands for."""
    return NVML.get(code) or GpuProblem("gpu-error", f"the driver answers NVML error {code}", HOST)
