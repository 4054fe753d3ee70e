"""How much GPU memory a training of a transformer takes: a formula with its sources. Pure.

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

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from bootstrap.errors import UsageError

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
