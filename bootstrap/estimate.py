"""What a training costs and needs: rented hours, disk, egress, buying instead, GPU memory.

Dollars are US dollars; a month has 730 hours, as providers bill disks. The arithmetic is pure.

Prices of GPUs: the dated table that ships, live offers of accounts, and catalogues of clouds. A
price says when and where it was read. `prices.json` is renewed by `make prices`.

How much GPU memory a training of a transformer takes is a formula with its sources:

- 16 bytes for each parameter that is trained with Adam in mixed precision: Rajbhandari et al.,
  "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020), section 3.1.
- s*b*h*(34 + 5*a*s/h) bytes of activations a layer in 16 bits, 2*s*b*h where they are recomputed:
  Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
  section 4; the term with `a` falls away with a fused attention kernel.
- LoRA trains r*(in + out) parameters for each matrix: Hu et al., "LoRA" (2021), section 4.1.
- 4.127 bits for each quantised parameter: Dettmers et al., "QLoRA" (2023), section 3; with the
  buffers of the kernels it is 0.56 bytes. Embedding and output layer stay in 16 bits.

docs/estimate.md lists published measurements beside it; `BAND` holds for all of them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.onbox.verdict import gpu_models
from bootstrap.text.sizes import dollars

HOURS_A_MONTH = 730.0


@dataclass(frozen=True)
class Usage:
    """What is used: hours of a box with so many GPUs, and what goes with it."""

    hours: float
    """Of one experiment."""
    experiments: int = 1
    gpus: int = 1
    disk_gb: float = 0.0
    egress_gb: float = 0.0
    """What leaves the box for the internet: results that are pulled."""
    stopped_hours: float = 0.0
    """Hours for which the box is kept stopped, and only its disk is paid for."""

    @property
    def all_hours(self) -> float:
        """The hours of all experiments."""
        return self.hours * self.experiments


@dataclass(frozen=True)
class Rates:
    """What a provider charges beside its GPUs; None if that is not known."""

    disk: float | None = None
    """Dollars a GB and month while the box runs."""
    stopped_disk: float | None = None
    """The same while it is stopped; None also where a box can't be stopped."""
    egress: float | None = None
    """Dollars a GB that leaves for the internet."""


@dataclass(frozen=True)
class Cost:
    """The parts of a cost in dollars; a part is None if its rate is not known."""

    compute: float
    disk: float | None = 0.0
    egress: float | None = 0.0
    stopped: float | None = 0.0

    @property
    def total(self) -> float:
        """The sum of what is known."""
        return self.compute + sum(part or 0.0 for part in (self.disk, self.egress, self.stopped))

    @property
    def unknown(self) -> list[str]:
        """The parts that are not in the total, because nobody says what they cost."""
        parts = {"disk": self.disk, "egress": self.egress, "stopped disk": self.stopped}
        return [name for name, part in parts.items() if part is None]


def cost_of(usage: Usage, dollars_per_gpu_hour: float, rates: Rates = Rates()) -> Cost:
    """Return what this usage costs at a price per GPU and hour."""
    hours = usage.all_hours
    return Cost(
        compute=hours * usage.gpus * dollars_per_gpu_hour,
        disk=_times(rates.disk, usage.disk_gb * hours / HOURS_A_MONTH),
        egress=_times(rates.egress, usage.egress_gb * usage.experiments),
        stopped=_times(rates.stopped_disk, usage.disk_gb * usage.stopped_hours / HOURS_A_MONTH),
    )


def _times(rate: float | None, amount: float) -> float | None:
    return 0.0 if not amount else None if rate is None else rate * amount


def saved(cost: float, reference: float) -> float:
    """Return the share of a reference cost that is saved: 0.64 for 64 %."""
    return 1.0 - cost / reference


def break_even_hours(
    card: float, rent_per_hour: float, *, watts: float = 0.0, kwh: float = 0.0
) -> float | None:
    """Return the hours of use after which a bought card is cheaper than renting; None if never.

    `card`: its price. `watts` and `kwh`: what the machine draws under load, and dollars a kWh.
    Only hours of use count: an idle card costs nothing here, and its resale is worth nothing.
    """
    saved_an_hour = rent_per_hour - watts / 1000 * kwh
    return card / saved_an_hour if saved_an_hour > 0 else None


@dataclass(frozen=True)
class Spending:
    """What was estimated before, and what it came to."""

    estimated: float
    so_far: float

    @property
    def difference(self) -> float:
        """What it cost more than estimated; negative if less."""
        return self.so_far - self.estimated

    def line(self, *, is_over: bool) -> str:
        """Return it as one line; an estimate of 0 means that nothing was estimated."""
        if not self.estimated:
            return dollars(self.so_far)
        before = f"{dollars(self.estimated)} were estimated"
        if not is_over:
            return f"{dollars(self.so_far)} so far; {before}"
        less = "less" if self.difference < 0 else "more"
        return f"{dollars(self.so_far)}; {before}, {dollars(abs(self.difference))} {less}"


def spending(price: float, hours: float, seconds: float) -> Spending:
    """Return the estimate of so many hours at a box's price, and what `seconds` of it cost."""
    before = cost_of(Usage(hours), price).total
    return Spending(before, cost_of(Usage(seconds / 3600), price).total)


TABLE = Path(__file__).with_name("prices.json")
OLD_DAYS = 180
"""Days after which the table's prices are too old for a release."""
PATIENCE_S = 5.0
"""Seconds that a provider has to answer."""
CLOUDS = ("aws", "gcp", "azure")
"""Providers that have no account here, whose prices `gpuhunt` knows."""


@dataclass(frozen=True)
class Price:
    """What one GPU of a kind costs at a provider."""

    provider: str
    gpu: str
    memory_gb: float
    gpus: int
    """Of the smallest box that has them."""
    kind: str
    """on demand, spot, bid, community, secure or marketplace."""
    price: float
    """Dollars an hour for each GPU."""
    date: str
    source: str
    live: bool = False
    disk_included: bool = False
    """Whether the price has the order's disk in it."""

    def paid_for(self, gpus: int) -> int:
        """Return how many are paid for where so many are used: whole boxes are."""
        return -(-gpus // self.gpus) * self.gpus

    def is_a(self, gpu: str) -> bool:
        """Whether it is such a GPU, by a name as anybody writes it."""
        return not gpu_models.difference(gpu, self.gpu, self.memory_gb)

    @property
    def shown_bytes(self) -> float:
        """What the driver shows of its memory."""
        return gpu_models.shown_gib(self.gpu, self.memory_gb) * 2**30


@dataclass(frozen=True)
class Found:
    """Prices, and why a provider that was asked gave none."""

    prices: Sequence[Price]
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)


@cache
def _document() -> dict[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def shipped_prices() -> list[Price]:
    """Return the prices of the table."""
    return [Price(**row) for row in _document()["prices"]]


def rates_of(provider: str) -> Rates:
    """Return what a provider charges for disk and traffic; nothing is known of most."""
    row = _document()["rates"].get(provider, {})
    return Rates(row.get("disk"), row.get("stopped_disk"), row.get("egress"))


class MachinePrices(NamedTuple):
    """What a cloud's machines with GPUs cost, where its own API says nothing of that."""

    date: str
    source: str
    families: Mapping[str, Mapping[str, Sequence[float]]]
    """By family of types and region, dollars an hour: of a GPU and of a vCPU on demand, then both
    for spot. Where all types of a family have as many vCPUs for each GPU, the GPU's has them."""


def machine_prices(provider: str) -> MachinePrices:
    """Return the table's prices of a cloud's machines."""
    return MachinePrices(**_document()["machines"][provider])


def oldest(prices: Iterable[Price]) -> date:
    """Return the date of the oldest of them."""
    return min(date.fromisoformat(price.date) for price in prices)


Asking = Callable[[], Sequence[Price]]


def with_live(table: Sequence[Price], asked: Mapping[str, Asking]) -> Found:
    """Ask providers at the same time; those that answer replace their rows of the table.

    A provider that fails, or takes longer than `PATIENCE_S`, keeps the table's rows.
    """
    pool = ThreadPoolExecutor(max(1, len(asked)), thread_name_prefix="prices")
    calls = {pool.submit(ask): name for name, ask in asked.items()}
    done, late = wait(calls, PATIENCE_S)
    pool.shutdown(wait=False, cancel_futures=True)
    failed = {calls[call]: f"no answer within {PATIENCE_S:.0f} s" for call in late}
    live: dict[str, Sequence[Price]] = {}
    for call in done:
        try:
            live[calls[call]] = call.result()
        except ImportError:
            failed[calls[call]] = "its prices need gpuhunt: pip install 'boxstrap[prices]'"
        except Exception as error:
            failed[calls[call]] = error.what if isinstance(error, BoxstrapError) else repr(error)
    kept = [price for price in table if not live.get(price.provider)]
    return Found([*kept, *(price for prices in live.values() for price in prices)], failed)


_LOADING = threading.Lock()
"""The catalogue is one download for all clouds."""


@cache
def _catalog() -> Any:  # noqa: ANN401 - an extra, which may be missing
    import gpuhunt  # type: ignore[import-not-found,import-untyped,unused-ignore]

    # It logs a traceback for each provider that it can't reach; `with_live` says what matters.
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL + 1)
    catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
    if "GPUHUNT_CATALOG_DIR" not in os.environ:  # then it reads files
        catalog.load()
    return catalog


def cheapest_of_each(prices: Iterable[Price], gpus: int) -> list[Price]:
    """Return the price of each GPU and kind at which so many GPUs cost the least: boxes of eight
    may be cheaper for each, and are paid for as a whole."""
    found: dict[tuple[str, str], Price] = {}
    for price in prices:
        place = (price.gpu, price.kind)
        paid = price.price * price.paid_for(gpus)
        if price.price > 0 and (
            place not in found or paid < found[place].price * found[place].paid_for(gpus) - 1e-12
        ):
            found[place] = price
    return list(found.values())


_ONLY_SPOT = re.compile(r"a3-highgpu-[124]g")
"""Machine types with a price on demand at which nobody gets one."""


def catalogue_of(provider: str, names: Sequence[str], gpus: int = 1) -> list[Price]:
    """Return a cloud's prices by gpuhunt, the cheapest of each GPU and kind for so many GPUs.

    Raises ImportError without the extra `boxstrap[prices]`; whatever gpuhunt raises.
    """
    with _LOADING:
        catalog = _catalog()
    found = (
        Price(
            provider,
            f"{item.gpu_name} {item.gpu_memory:g}GB",
            item.gpu_memory,
            item.gpu_count,
            "spot" if item.spot else "on demand",
            item.price / item.gpu_count,
            time.strftime("%Y-%m-%d"),
            f"gpuhunt's catalogue, {item.location}",
            live=True,
        )
        for item in catalog.query(provider=provider, min_gpu_count=1)
        if item.spot or not _ONLY_SPOT.fullmatch(item.instance_name)
    )
    return cheapest_of_each((price for price in found if any(map(price.is_a, names))), gpus)


HEAD = ("PROVIDER", "GPU", "KIND", "$/GPU h", "TOTAL", "READ ON", "")


@dataclass(frozen=True)
class Row:
    """A price, and what the usage costs at it."""

    price: Price
    cost: Cost
    gpus: int
    """GPUs that are paid for: a provider's smallest box may have more than are used."""

    def as_dict(self) -> dict[str, object]:
        """Return the row as `--json` prints it. Dollars; GB."""
        return {
            **vars(self.price),
            "paid_gpus": self.gpus,
            "compute": round(self.cost.compute, 4),
            "disk": _rounded(self.cost.disk),
            "egress": _rounded(self.cost.egress),
            "stopped": _rounded(self.cost.stopped),
            "total": round(self.cost.total, 4),
            "not_in_total": self.cost.unknown,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the cells of `HEAD`."""
        whole = self.price.gpus > 1
        notes = [f"boxes of {self.price.gpus}: {self.gpus} GPUs are paid for"] if whole else []
        notes += [f"without {', '.join(self.cost.unknown)}"] if self.cost.unknown else []
        return (
            self.price.provider,
            self.price.gpu,
            self.price.kind,
            dollars(self.price.price),
            dollars(self.cost.total),
            "live" if self.price.live else self.price.date,
            "; ".join(notes),
        )


def estimate_rows(prices: Sequence[Price], usage: Usage) -> list[Row]:
    """Return a row for each price, the cheapest total first."""
    rows = [_row(price, usage) for price in prices]
    return sorted(rows, key=lambda row: (row.cost.total, row.price.provider, row.price.kind))


def _row(price: Price, usage: Usage) -> Row:
    rates = Rates(disk=0.0) if price.disk_included else rates_of(price.provider)
    paid = price.paid_for(usage.gpus)
    whole = Usage(
        usage.hours,
        usage.experiments,
        paid,
        usage.disk_gb,
        usage.egress_gb,
        usage.stopped_hours,
    )
    return Row(price, cost_of(whole, price.price, rates), paid)


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 4)


BAND = 0.3
"""Share by which a measured peak may lie above or below the estimate."""
_CONTEXT = 1.5e9
"""Bytes of a CUDA context with its libraries."""
_ALLOCATOR = 1.08
"""What PyTorch's allocator reserves for each byte in use."""
_STATE = {"adamw": 8, "adamw8bit": 2, "sgd": 4}
"""Bytes of the optimizer's state for each trained parameter; SGD with momentum."""
_WEIGHT_AND_GRADIENT = 8
"""Bytes for each trained parameter: bf16 weight 2, gradient 2, main weight 4; in fp32 4 and 4."""
_QUANTISED = 0.56
_LOGIT = {"bf16": 10, "fp32": 12}
"""Bytes for each logit: in the model's precision, as fp32 for the loss, and its gradient."""

Method = Literal["full", "lora", "qlora"]
Precision = Literal["bf16", "fp32"]
METHODS, PRECISIONS, OPTIMIZERS = get_args(Method), get_args(Precision), tuple(_STATE)


@dataclass(frozen=True)
class Model:
    """The sizes of a transformer that decide about memory."""

    name: str
    parameters: float
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    """Whether embedding and output layer are one matrix."""

    @property
    def embedding(self) -> float:
        """The parameters of embedding and output layer."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)


MODELS = {
    model.name: model
    for model in (
        Model("gpt2", 0.124e9, 768, 12, 12, 3072, 50257, tied=True),
        Model("gpt2-xl", 1.558e9, 1600, 48, 25, 6400, 50257, tied=True),
        Model("bert-large", 0.335e9, 1024, 24, 16, 4096, 30522, tied=True),
        Model("qwen-1.8b", 1.837e9, 2048, 24, 16, 5504, 151936),
        Model("qwen-7b", 7.721e9, 4096, 32, 32, 11008, 151936),
        Model("qwen-14b", 14.167e9, 5120, 40, 40, 13696, 152064),
        Model("qwen-72b", 72.288e9, 8192, 80, 64, 24576, 152064),
        Model("llama-2-7b", 6.738e9, 4096, 32, 32, 11008, 32000),
        Model("llama-3.1-8b", 8.030e9, 4096, 32, 32, 14336, 128256),
        Model("llama-3.1-70b", 70.554e9, 8192, 80, 64, 28672, 128256),
        Model("mistral-7b", 7.242e9, 4096, 32, 32, 14336, 32000),
    )
}
"""Sizes from each model's public config.json; parameters as its card states them."""


@dataclass(frozen=True)
class Training:
    """How a model is trained."""

    method: Method = "full"
    precision: Precision = "bf16"
    optimizer: str = "adamw"
    batch: int = 1
    """Sequences at once on one GPU."""
    sequence: int = 2048
    """Tokens of a sequence."""
    rank: int = 16
    """Of LoRA's matrices, which are put beside every linear layer."""
    recomputes: bool = True
    """Gradient checkpointing: activations are computed again in the backward pass."""
    fused_attention: bool = True


@dataclass(frozen=True)
class Memory:
    """An estimate in bytes, and the band in which a measured peak should lie."""

    weights: float
    trained: float
    """Gradients, main weights and the optimizer's state."""
    activations: float

    @property
    def total(self) -> float:
        """The expected peak."""
        return (self.weights + self.trained + self.activations) * _ALLOCATOR + _CONTEXT

    @property
    def low(self) -> float:
        """The lower end of the band."""
        return self.total * (1 - BAND)

    @property
    def high(self) -> float:
        """The upper end of the band; a GPU with as much holds it."""
        return self.total * (1 + BAND)


def memory_of(model: Model, training: Training) -> Memory:
    """Return the memory of one GPU that holds the whole training."""
    a_weight = 2 if training.precision == "bf16" else 4
    a_state = _STATE[training.optimizer] + _WEIGHT_AND_GRADIENT
    if training.method == "full":
        weights, trained = a_weight * model.parameters, (a_state - a_weight) * model.parameters
    else:
        weights = a_weight * model.parameters
        if training.method == "qlora":
            linear = model.parameters - model.embedding
            weights = _QUANTISED * linear + a_weight * model.embedding
        trained = a_state * _adapters(model, training.rank)
    return Memory(weights, trained, _activations(model, training))


def _adapters(model: Model, rank: int) -> float:
    a_layer = 4 * 2 * model.hidden + 3 * (model.hidden + model.intermediate)
    return float(rank * a_layer * model.layers)


def _activations(model: Model, training: Training) -> float:
    tokens = training.batch * training.sequence
    of_attention = 0.0 if training.fused_attention else 5 * model.heads * training.sequence
    a_layer = tokens * (34 * model.hidden + of_attention)
    double = 1 if training.precision == "bf16" else 2
    if training.recomputes:
        kept = (2 * tokens * model.hidden * model.layers + a_layer) * double
    else:
        kept = a_layer * model.layers * double
    return kept + tokens * model.vocabulary * _LOGIT[training.precision]


def find_model(text: str) -> Model:
    """Return the model of a name, of a number of parameters (`7B`), or of a config.json.

    Raises UsageError if it is none of these.
    """
    name = text.lower().rpartition("/")[2]
    if name in MODELS:
        return MODELS[name]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bm])", name):
        return _of_size(text, float(size[1]) * (1e9 if size[2] == "b" else 1e6))
    path = Path(text).expanduser()
    if path.is_file():
        return _of_config(path)
    raise UsageError(
        f"{text!r} is no model that is known here.",
        where="--fit",
        hint="Give its parameters as in 7B, the path of its config.json, or one of: "
        f"{', '.join(MODELS)}.",
    )


def _of_size(name: str, parameters: float) -> Model:
    """Return a model of that size with the shape of the known one that is nearest in size."""
    near = min(MODELS.values(), key=lambda model: abs(model.parameters - parameters))
    ratio = parameters / near.parameters
    return Model(
        name,
        parameters,
        hidden=round(near.hidden * ratio ** (1 / 3)),
        layers=max(1, round(near.layers * ratio ** (1 / 3))),
        heads=near.heads,
        intermediate=round(near.intermediate * ratio ** (1 / 3)),
        vocabulary=near.vocabulary,
        tied=near.tied,
    )


def _of_config(path: Path) -> Model:
    """Return the model that a config.json of Hugging Face's transformers describes."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        hidden = int(config.get("hidden_size") or config["n_embd"])
        layers = int(config.get("num_hidden_layers") or config["n_layer"])
        heads = int(config.get("num_attention_heads") or config["n_head"])
        vocabulary = int(config["vocab_size"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(
            f"it describes no transformer: {error}.",
            where=str(path),
            hint="It needs hidden_size, num_hidden_layers, num_attention_heads and vocab_size.",
        ) from None
    intermediate = int(config.get("intermediate_size") or config.get("n_inner") or 4 * hidden)
    gated = "silu" in str(config.get("hidden_act", "")) or "intermediate_size" in config
    key_value = int(config.get("num_key_value_heads") or heads) * (hidden // heads)
    tied = bool(config.get("tie_word_embeddings", "n_embd" in config))
    a_layer = 2 * hidden * (hidden + key_value) + (3 if gated else 2) * hidden * intermediate
    parameters = layers * a_layer + vocabulary * hidden * (1 if tied else 2)
    return Model(
        path.parent.name, parameters, hidden, layers, heads, intermediate, vocabulary, tied
    )
