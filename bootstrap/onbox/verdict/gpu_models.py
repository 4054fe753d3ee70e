"""Models of GPUs: one reading of their names and of their memory, for everything that compares.

An order, an offer, a price, the verdict and the smoke test's table all write cards differently: as
shops, providers, drivers and nvidia-smi do. Here alone it is decided whether two names mean the
same card, and whether a card is as large as was ordered.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import thresholds

# Sold with a sixteenth more than the driver shows, and offers say the one or the other: GDDR memory
# keeps it for ECC, a B200's is sold in other units.
SHOWS_LESS = (
    *("T4 16GB", "T4G 16GB", "A2 16GB", "A10 24GB", "A10G 24GB", "A16 16GB", "A40 48GB"),
    *("L4 24GB", "L20 48GB", "L40 48GB", "L40S 48GB", "B200 192GB", "B300 288GB"),
    *("RTX A4000 16GB", "RTX A4500 20GB", "RTX A5000 24GB", "RTX A5500 24GB"),
    *("RTX A6000 48GB", "RTX 4000 Ada 20GB", "RTX 4500 Ada 24GB", "RTX 5000 Ada 32GB"),
    *("RTX 5880 Ada 48GB", "RTX 6000 Ada 48GB", "RTX 4000 8GB", "RTX 5000 16GB", "RTX 6000 24GB"),
    *("RTX 8000 48GB", "K80 12GB", "M60 8GB", "P4 8GB", "P40 24GB"),
)
LEFT = 0.985  # what the driver leaves of any card's memory
USUAL_FORM = {
    **dict.fromkeys(("a100", "a800", "h20", "h100", "h200", "h800", "gh200", "b200"), "sxm"),
    **dict.fromkeys(("v100", "p100", "pro"), ""),  # several, and none is usual
}
FORMS = {
    **{
        "pcie": "pcie",
        "nvl": "nvl",
        "sxm": "sxm",
        "hbm3": "sxm",
        "server": "server",
        "se": "server",
    },
    **dict.fromkeys(("workstation", "ws", "wk", "maxq"), "workstation"),
}
WEAKER = {"d": "d", "laptop": "laptop", "mobile": "laptop", "maxq": "maxq"}
# These tell no models apart; of a GH200 the driver says the memory of its processor.
NO_MODEL = {
    *("nvidia", "geforce", "tesla", "quadro", "q", "hgx", "dgx", "gpu", "tensor", "core", "mig"),
    *("blackwell", "generation", "edition", "hbm2", "hbm2e", "hbm3e", "480gb"),
}
PART = re.compile(r"\b\d+g\.(\d+)gb")
SPELLINGS = (
    (r"pci-e(xpress)?", "pcie"),
    (r"max[ -]q", "maxq"),
    (r"\bsxm\d", "sxm"),
    (r"(\d) ?gi?b\b|(?<=\d\d)g\b", r"\1gb"),
    (r"(rtx|gtx|pro|titan)(?=\w)|(?<=\d{4})(?=[a-z])|\b\d+x\b", r"\1 "),
    (r"\bsti\b", "s ti"),
)


class GpuName(NamedTuple):
    """What a name says of a card."""

    words: frozenset[str]  # its model
    form: str  # sxm, pcie, nvl; of an RTX PRO its edition
    weaker: frozenset[str]  # what makes it a weaker variant
    gb: float | None
    part: str  # the slice of a card (MIG), as in 3g.40gb


def read_name(name: str) -> GpuName:
    """Read a name as anybody writes it: `RTX 4080S`, `NVIDIA GeForce RTX 4080 SUPER`."""
    text = name.lower().replace("_", " ")
    part = PART.search(text)
    text = PART.sub(" ", text)
    for wrong, right in SPELLINGS:
        text = re.sub(wrong, right, text)
    words = set(re.findall(r"[a-z0-9]+", text)) - NO_MODEL
    if "s" in words:
        words = words - {"s"} | {"server" if "pro" in words else "super"}
    sizes = {word for word in words if re.fullmatch(r"\d+gb", word)}
    size = part[1] if part else min(sizes, default="")[:-2]
    forms = [FORMS[word] for word in words if word in FORMS]
    weaker = frozenset(WEAKER[word] for word in words if word in WEAKER)
    model = words - sizes - {*FORMS, *WEAKER}
    if "ada" in model:  # some write RTX A6000 Ada
        model = {re.sub(r"^a(?=\d{4}$)", "", word) for word in model}
    if any(re.fullmatch(r"a?\d{4}", word) for word in model):
        model.add("gtx" if any(re.fullmatch(r"1\d{3}", word) for word in model) else "rtx")
    found = (frozenset(model), min(forms, default=""), weaker, float(size) if size else None)
    return GpuName(*found, part[0] if part else "")


def form_of(card: GpuName) -> str:
    """Return a card's form; a name that says none means the usual one of its model."""
    usual = (USUAL_FORM[word] for word in card.words if word in USUAL_FORM)
    return card.form or next(usual, "pcie")


def difference(ordered: str, card: str, gib: float | None = None) -> str:
    """Return how a card differs from an ordered name: "", "weaker" (a variant of it) or "other".

    A name without a number, as in RTX, is a part of the names that it means. `gib`: the card's
    memory, which few names say.
    """
    asked, has = read_name(ordered), read_name(card)
    is_whole = re.search(r"\d", "".join(asked.words))
    if (
        is_other_size(card, gib or has.gb, asked)
        or not (asked.words == has.words if is_whole else asked.words <= has.words)
        or asked.form not in ("", form_of(has))
        or asked.part not in ("", has.part)
        or not asked.weaker <= has.weaker
    ):
        return "other"
    return "weaker" if has.weaker - asked.weaker else ""


def is_other_size(card: str, gib: float | None, ordered: GpuName) -> bool:
    """Return whether a card has less or more memory than the name that is ordered says, or than the
    whole card: some offers are of parts of one."""
    if not gib or ordered.part:
        return False
    of_size = not ordered.gb or (holds(card, gib, ordered.gb) and gib <= ordered.gb * 1.1)
    return not of_size or gib < least_gib(WHOLE.get(read_name(card).words, 0.0), ecc=True)


def least_gib(ordered: float, ecc: bool) -> float:
    """Return the least that a card shows of an ordered size: that which it is sold with."""
    return ordered * thresholds.GPU["memory_ecc" if ecc else "memory"]


def ordered_gib(names: str | None) -> float | None:
    """Return the memory that each of the ordered names says; None if one says nothing."""
    sizes = [read_name(name).gb or 0.0 for name in (names or "").split(",")]
    return min(sizes) or None


def shown_gib(card: str, gib: float) -> float:
    """Return what the driver will show of a card that is offered with so much memory."""
    return (SOLD[read_name(card).words] * 15 / 16 if shows_less(card, gib) else gib) * LEFT


def shows_less(card: str, gib: float) -> bool:
    """Return whether a card of so much memory is one that is sold with a sixteenth more."""
    sold = SOLD.get(read_name(card).words)
    return sold is not None and least_gib(sold, ecc=True) <= gib <= sold


def holds(card: str, gib: float, ordered: float) -> bool:
    """Return whether the verdict will keep a card that is offered with so much memory."""
    return shown_gib(card, gib) >= least_gib(ordered, shows_less(card, gib))


SOLD = {row.words: row.gb or 0.0 for row in map(read_name, SHOWS_LESS)}
# The cards of which parts are offered, too.
WHOLE = {**SOLD, read_name("RTX PRO 6000").words: 96.0}
