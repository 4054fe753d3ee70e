"""What a GPU of each model should reach, from its maker's data sheets.

Figures are peaks: dense (no sparsity) TFLOP/s with 32-bit accumulation, memory in GB/s, and the
card's own bus. `half` is BF16, or FP16 on cards before Ampere, which have no BF16. A
program that only multiplies reaches 60 to 95 % of a peak; less where power is scarce.
"""

from __future__ import annotations

from typing import NamedTuple

from ..verdict import thresholds
from ..verdict.gpu_models import GpuName, form_of, read_name

LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # GB/s, one way (PCI-SIG)


class GpuPeaks(NamedTuple):
    """One row; None is what the card does not have."""

    name: str
    fp32: float
    tf32: float | None
    half: float
    memory: float
    generation: int
    lanes: int
    scarce: bool = False
    nvlink: float | None = None  # GB/s one way, where the card has it: half of the sheet's figure

    def is_of(self, card: GpuName) -> bool:
        """Return whether it is the row of such a card."""
        own = read_name(self.name)
        same = (own.words, form_of(own), own.weaker) == (card.words, form_of(card), card.weaker)
        return same and own.gb in (None, card.gb)

    def speed(self, kind: str) -> float | None:
        """Return the peak for a kind of number, in TFLOP/s."""
        return {"fp32": self.fp32, "tf32": self.tf32}.get(kind, self.half)

    def least_speed(self) -> float:
        """Return the share of the peak below which something is wrong."""
        return thresholds.SMOKE["scarce_speed" if self.scarce else "speed"]

    def bus(self) -> float:
        """Return the bus's peak in one direction, in GB/s."""
        return LANE[self.generation] * self.lanes


MODELS = (
    # NVIDIA Blackwell (HGX B200) datasheet
    GpuPeaks("B200", 75, 1100, 2250, 7700, 5, 16, nvlink=900),
    # NVIDIA H200 Tensor Core GPU datasheet
    GpuPeaks("H200", 67, 494.5, 989.5, 4800, 5, 16, nvlink=450),
    GpuPeaks("H200 NVL", 60, 417.5, 835.5, 4800, 5, 16, nvlink=450),
    # NVIDIA H100 Tensor Core GPU datasheet; H100 architecture white paper
    GpuPeaks("H100 SXM", 67, 494.5, 989.5, 3350, 5, 16, nvlink=450),
    GpuPeaks("H100 PCIe", 51, 378, 756, 2000, 5, 16, nvlink=300),
    GpuPeaks("H100 NVL", 60, 417.5, 835.5, 3900, 5, 16, nvlink=300),
    # NVIDIA A100 Tensor Core GPU datasheet
    GpuPeaks("A100 SXM 80GB", 19.5, 156, 312, 2039, 4, 16, nvlink=300),
    GpuPeaks("A100 PCIe 80GB", 19.5, 156, 312, 1935, 4, 16, nvlink=300),
    GpuPeaks("A100 SXM 40GB", 19.5, 156, 312, 1555, 4, 16, nvlink=300),
    GpuPeaks("A100 PCIe 40GB", 19.5, 156, 312, 1555, 4, 16, nvlink=300),
    # NVIDIA A30 Tensor Core GPU datasheet
    GpuPeaks("A30", 10.3, 82, 165, 933, 4, 16, nvlink=100),
    # NVIDIA A10 Tensor Core GPU datasheet
    GpuPeaks("A10", 31.2, 62.5, 125, 600, 4, 16, scarce=True),
    # NVIDIA A40 datasheet
    GpuPeaks("A40", 37.4, 74.8, 149.7, 696, 4, 16, nvlink=56.25),
    # NVIDIA L4 Tensor Core GPU datasheet
    GpuPeaks("L4", 30.3, 60, 121, 300, 4, 16, scarce=True),
    # NVIDIA L40 and L40S datasheets
    GpuPeaks("L40", 90.5, 90.5, 181, 864, 4, 16),
    GpuPeaks("L40S", 91.6, 183, 362, 864, 4, 16),
    # NVIDIA T4 Tensor Core GPU datasheet
    GpuPeaks("T4", 8.1, None, 65, 320, 3, 16, scarce=True),
    # NVIDIA V100 Tensor Core GPU datasheet
    GpuPeaks("V100 SXM", 15.7, None, 125, 900, 3, 16, nvlink=150),
    GpuPeaks("V100 PCIe", 14, None, 112, 900, 3, 16),
    GpuPeaks("V100S", 16.4, None, 130, 1134, 3, 16),
    # NVIDIA Tesla P100 datasheet
    GpuPeaks("P100 SXM", 10.6, None, 21.2, 732, 3, 16, nvlink=80),
    GpuPeaks("P100 PCIe 16GB", 9.3, None, 18.7, 732, 3, 16),
    # NVIDIA RTX A4000, A5000 and A6000 datasheets; GA102 architecture white paper
    GpuPeaks("RTX A4000", 19.2, 38.3, 76.7, 448, 4, 16),
    GpuPeaks("RTX A5000", 27.8, 55.6, 111.1, 768, 4, 16, nvlink=56.25),
    GpuPeaks("RTX A6000", 38.7, 77.4, 154.8, 768, 4, 16, nvlink=56.25),
    # NVIDIA RTX 6000 Ada Generation datasheet; Ada architecture white paper
    GpuPeaks("RTX 6000 Ada", 91.1, 182.1, 364.2, 960, 4, 16),
    # NVIDIA Turing architecture white paper, appendices
    GpuPeaks("RTX 2080 Ti", 13.4, None, 53.8, 616, 3, 16, nvlink=50),
    GpuPeaks("TITAN RTX", 16.3, None, 130.5, 672, 3, 16, nvlink=50),
    GpuPeaks("RTX 6000", 16.3, None, 130.5, 672, 3, 16, nvlink=50),
    GpuPeaks("RTX 8000", 16.3, None, 130.5, 672, 3, 16, nvlink=50),
    # NVIDIA Ampere GA102 architecture white paper, appendix; GeForce specifications
    GpuPeaks("RTX 3060", 12.7, 12.7, 25.5, 360, 4, 16),
    GpuPeaks("RTX 3070", 20.3, 20.3, 40.6, 448, 4, 16),
    GpuPeaks("RTX 3080", 29.8, 29.8, 59.5, 760, 4, 16),
    GpuPeaks("RTX 3080 Ti", 34.1, 34.1, 68.2, 912, 4, 16),
    GpuPeaks("RTX 3090", 35.6, 35.6, 71, 936, 4, 16, nvlink=56.25),
    GpuPeaks("RTX 3090 Ti", 40, 40, 80, 1008, 4, 16, nvlink=56.25),
    # NVIDIA Ada GPU architecture white paper, appendices
    GpuPeaks("RTX 4060 Ti", 22.1, 22.1, 44.1, 288, 4, 8),
    GpuPeaks("RTX 4070", 29.1, 29.1, 58.3, 504, 4, 16),
    GpuPeaks("RTX 4070 Ti", 40.1, 40.1, 80.2, 504, 4, 16),
    GpuPeaks("RTX 4080", 48.7, 48.7, 97.5, 717, 4, 16),
    GpuPeaks("RTX 4080 SUPER", 52.2, 52.2, 104.4, 736, 4, 16),
    GpuPeaks("RTX 4090", 82.6, 82.6, 165.2, 1008, 4, 16),
    GpuPeaks("RTX 4090 D", 73.5, 73.5, 147, 1008, 4, 16),
    # NVIDIA RTX Blackwell GPU architecture white paper, appendices
    GpuPeaks("RTX 5070 Ti", 43.9, 43.9, 87.9, 896, 5, 16),
    GpuPeaks("RTX 5080", 56.3, 56.3, 112.6, 960, 5, 16),
    GpuPeaks("RTX 5090", 104.8, 104.8, 209.5, 1792, 5, 16),
)


def model_of(name: str | None) -> GpuPeaks | None:
    """Return the row of a card by its NVML name; None for a model that isn't in the table."""
    card = read_name(name or "")
    return next((model for model in MODELS if model.is_of(card) and not card.part), None)
