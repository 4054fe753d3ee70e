"""Cards as their drivers report them, and as providers and people write them."""

import re
from typing import NamedTuple

from bootstrap.onbox.verdict import gpu_checks
from bootstrap.onbox.verdict.expected_hardware import ExpectedHardware
from tests.providers.accounts import SimulatedOffer


class SoldCard(NamedTuple):
    """A card by its driver, what its memory is sold as, and as others write it."""

    driver: str
    mib: int
    ecc: bool
    sold: int
    written: tuple[str, ...]
    """By people and shops, Vast.ai, RunPod, EC2, and Lambda, Google or Hugging Face."""


CARDS = (
    SoldCard("NVIDIA A10", 23028, True, 24, ("A10", "A10 24GB", "A10 (24 GB PCIe)")),
    SoldCard("NVIDIA A10G", 23028, True, 24, ("A10G", "A10G 24 GiB")),
    SoldCard("NVIDIA A40", 46068, True, 48, ("A40", "A40 48GB", "nvidia_a40")),
    SoldCard("NVIDIA RTX A4000", 16376, False, 16, ("RTX A4000", "A4000", "RTXA4000")),
    SoldCard("NVIDIA RTX A6000", 49140, False, 48, ("RTX A6000", "A6000 (48 GB)")),
    SoldCard("NVIDIA A100-SXM4-80GB", 81920, True, 80, ("A100 SXM4 80GB", "A100 SXM 80GB")),
    SoldCard("NVIDIA A100 80GB PCIe", 81920, True, 80, ("A100 PCIE 80GB", "A100-PCIe-80G")),
    SoldCard("NVIDIA A100-SXM4-40GB", 40960, True, 40, ("A100 (40 GB SXM4)", "a100_sxm4_40gb")),
    SoldCard("NVIDIA H100 80GB HBM3", 81559, True, 80, ("H100 SXM", "H100 SXM5 80GB")),
    SoldCard("NVIDIA H100 PCIe", 81559, True, 80, ("H100 PCIE", "H100 (80 GB PCIe)")),
    SoldCard("NVIDIA H100 NVL", 95830, True, 94, ("H100 NVL", "H100_NVL")),
    SoldCard("NVIDIA H200", 143771, True, 141, ("H200", "H200 SXM", "H200 141GB")),
    SoldCard("NVIDIA B200", 183359, True, 180, ("B200", "B200 180GB", "B200 (192 GB SXM6)")),
    SoldCard("NVIDIA GH200 480GB", 97871, True, 96, ("GH200", "GH200 SXM", "GH200 (96 GB)")),
    SoldCard("NVIDIA L4", 23034, True, 24, ("L4", "nvidia-l4")),
    SoldCard("NVIDIA L40", 46068, True, 48, ("L40", "L40 48GB")),
    SoldCard("NVIDIA L40S", 46068, True, 48, ("L40S", "L40S 48GB")),
    SoldCard("Tesla T4", 15360, True, 16, ("T4", "nvidia-tesla-t4")),
    SoldCard("Tesla V100-SXM2-16GB", 16160, True, 16, ("V100 SXM2 16GB", "Tesla-V100-SXM2 16 GB")),
    SoldCard("NVIDIA GeForce RTX 4070 Ti", 12282, False, 12, ("RTX 4070 Ti", "RTX4070Ti")),
    SoldCard("NVIDIA GeForce RTX 4070 SUPER", 12282, False, 12, ("RTX 4070S", "RTX 4070 SUPER")),
    SoldCard(
        "NVIDIA GeForce RTX 4070 Ti SUPER", 16376, False, 16, ("RTX 4070S Ti", "4070 Ti SUPER")
    ),
    SoldCard("NVIDIA GeForce RTX 4080", 16376, False, 16, ("RTX 4080", "4080")),
    SoldCard("NVIDIA GeForce RTX 4080 SUPER", 16376, False, 16, ("RTX 4080S", "RTX 4080 SUPER")),
    SoldCard(
        "NVIDIA GeForce RTX 4090", 24564, False, 24, ("RTX 4090", "RTX_4090", "RTX 4090 24GB")
    ),
    SoldCard("NVIDIA GeForce RTX 4090 D", 24564, False, 24, ("RTX 4090D", "RTX 4090 D")),
    SoldCard("NVIDIA GeForce GTX 1660 SUPER", 6144, False, 6, ("GTX 1660 S", "1660 SUPER")),
    SoldCard("Quadro M4000", 8126, False, 8, ("M4000",)),
    SoldCard("Quadro P4000", 8119, False, 8, ("P4000", "Quadro P4000")),
    SoldCard("Quadro RTX 4000", 7982, False, 8, ("RTX4000", "RTX 4000")),
    SoldCard("NVIDIA TITAN RTX", 24576, False, 24, ("Titan RTX",)),
    SoldCard("Quadro RTX 8000", 46080, True, 48, ("Q RTX 8000", "Quadro RTX 8000", "RTX 8000")),
    SoldCard("NVIDIA RTX 6000 Ada Generation", 49140, False, 48, ("RTX 6000Ada", "RTX 6000 Ada")),
    SoldCard("NVIDIA RTX 4000 SFF Ada Generation", 20475, False, 20, ("RTX 4000 Ada SFF",)),
    SoldCard(
        *("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, False, 96),
        ("RTX PRO Server 6000", "RTX PRO 6000 S", "RTX PRO 6000 Server Edition"),
    ),
    SoldCard(
        *("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, False, 96),
        ("RTX PRO 6000 WS", "RTX PRO 6000 WK"),
    ),
    SoldCard(
        *("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, False, 96),
        ("RTX PRO 6000 MaxQ", "RTXPRO6000 Max-Q"),
    ),
)
TYPES = {
    **{"g4dn": "Tesla T4", "g5": "NVIDIA A10G", "g6": "NVIDIA L4", "g6e": "NVIDIA L40S"},
    **{"g2": "NVIDIA L4", "Standard": "Tesla T4", "t4": "Tesla T4", "l4x1": "NVIDIA L4"},
    **{"a10g": "NVIDIA A10G", "M4000": "Quadro M4000", "P4000": "Quadro P4000"},
    **{"RTX4000": "Quadro RTX 4000", "A4000": "NVIDIA RTX A4000"},
}
"""What a driver calls the cards of the simulated accounts' machine types, by their first word."""


def card_of(offer: SimulatedOffer) -> SoldCard:
    """Return the card of a simulated account's offer."""
    driver = TYPES.get(re.split(r"[.-]|_NC", offer.id)[0])
    return next(card for card in CARDS if driver == card.driver or offer.gpu in card.written)


def verdict_of(ordered: str, card: SoldCard, size: float | None) -> set[str]:
    """Return what the verdict makes of a card's name and size."""
    wanted = ExpectedHardware(name=ordered, min_memory_gib=size)
    memory = {"total": card.mib << 20, "used": 0}
    found = gpu_checks.judge_memory(wanted, memory, [int(card.ecc)] * 2)
    return {gpu_checks.judge_name(wanted, card.driver).outcome, found.outcome}
