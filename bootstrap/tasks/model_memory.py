"""How much GPU memory a training of a transformer takes, by a formula with its sources.

- 16 bytes for each parameter that is trained with Adam in mixed precision: Rajbhandari et al.,
  "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020), section 3.1; 8 with
  weights, gradients and states all in bf16. Sharded (its stage 3, FSDP), each GPU has its part.
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bootstrap.errors import UsageError
from bootstrap.paths import read_regular

BAND = 0.3  # share by which a measured peak may lie above or below the estimate
_CONTEXT = 1.5e9  # bytes of a CUDA context with its libraries
_ALLOCATOR = 1.08  # what PyTorch's allocator reserves for each byte in use
_STATE = {"adamw": 8, "adamw8bit": 2, "sgd": 4}
"""Bytes of the optimizer's state for each trained parameter; SGD with momentum."""
_PURE_STATE = {"adamw": 4, "adamw8bit": 2, "sgd": 2}  # the same where it is in bf16, as the weights
_WEIGHT_AND_GRADIENT = 8
"""Bytes for each trained parameter: bf16 weight 2, gradient 2, main weight 4; in fp32 4 and 4."""
_PURE_WEIGHT_AND_GRADIENT = 4
_QUANTISED = 0.56
_LOGIT = 12
"""Bytes for each logit: in the model's precision, as fp32 for the loss, and both gradients."""

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
    intermediate: int  # of each expert, if there are several
    vocabulary: int
    tied: bool = False  # whether embedding and output layer are one matrix
    experts: int = 1

    @property
    def embedding(self) -> float:
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
    method: Method = "full"
    precision: Precision = "bf16"
    optimizer: str = "adamw"
    batch: int = 1  # sequences at once on one GPU
    sequence: int = 2048  # tokens of a sequence
    rank: int = 16  # of LoRA's matrices, which are put beside every linear layer
    recomputes: bool = True
    """Gradient checkpointing: activations are computed again in the backward pass."""
    fused_attention: bool = True
    pure: bool = False
    """Without main weights in fp32: weights, gradients and the optimizer's state are in bf16."""
    fused_loss: bool = False
    """The loss is computed in parts (chunked cross-entropy, Liger, Unsloth): no logits are kept."""

    def assumptions(self) -> str:
        """Return what is assumed, in words, each with the option that assumes otherwise."""
        main = "all in bf16" if self.pure else "fp32 main weights (else --pure-bf16)"
        kept = "computed again (else --keep-activations)" if self.recomputes else "kept"
        loss = "in parts" if self.fused_loss else "of all logits at once (else --fused-loss)"
        precision = f"bf16, {main}" if self.precision == "bf16" else "fp32"
        return (
            f"{precision}, {self.optimizer}, activations {kept}, the loss {loss}, "
            f"{self.batch} x {self.sequence} tokens on each GPU"
        )


@dataclass(frozen=True)
class Memory:
    """An estimate in bytes, and the band in which a measured peak should lie."""

    weights: float
    trained: float  # gradients, main weights and the optimizer's state
    activations: float

    def sharded(self, gpus: int) -> Memory:
        """Return that of each of several GPUs which share weights, gradients and states."""
        return Memory(self.weights / gpus, self.trained / gpus, self.activations)

    @property
    def total(self) -> float:
        return (self.weights + self.trained + self.activations) * _ALLOCATOR + _CONTEXT

    @property
    def low(self) -> float:
        return self.total * (1 - BAND)

    @property
    def high(self) -> float:
        """The upper end of the band; a GPU with as much holds it."""
        return self.total * (1 + BAND)


def memory_of(model: Model, training: Training) -> Memory:
    """Return the memory of one GPU that holds the whole training."""
    a_weight = 2 if training.precision == "bf16" else 4
    is_pure = training.pure and training.precision == "bf16"
    a_state = _STATE[training.optimizer] + _WEIGHT_AND_GRADIENT
    if is_pure:
        a_state = _PURE_STATE[training.optimizer] + _PURE_WEIGHT_AND_GRADIENT
    weights, trained = a_weight * model.parameters, (a_state - a_weight) * model.parameters
    if training.method == "qlora":
        linear = model.parameters - model.embedding
        weights = _QUANTISED * linear + a_weight * model.embedding
    if training.method != "full":
        a_layer = 4 * 2 * model.hidden + 3 * model.experts * (model.hidden + model.intermediate)
        trained = a_state * float(training.rank * a_layer * model.layers)
    return Memory(weights, trained, _activations(model, training))


def _activations(model: Model, training: Training) -> float:
    tokens = training.batch * training.sequence
    of_attention = 0.0 if training.fused_attention else 5 * model.heads * training.sequence
    a_layer = tokens * (34 * model.hidden + of_attention)
    double = 1 if training.precision == "bf16" else 2
    if training.recomputes:
        kept = (2 * tokens * model.hidden * model.layers + a_layer) * double
    else:
        kept = a_layer * model.layers * double
    logits = 0 if training.fused_loss else tokens * model.vocabulary
    return kept + logits * _LOGIT


def find_model(text: str) -> Model:
    """Return the model of a name, a size (`7B`) or a config.json. Raises UsageError."""
    name = text.lower().rpartition("/")[2]
    if name in MODELS:
        return MODELS[name]
    if size := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bm])", name):
        # The shape of the known model that is nearest in size, scaled.
        parameters = float(size[1]) * (1e9 if size[2] == "b" else 1e6)
        near = min(MODELS.values(), key=lambda model: abs(model.parameters - parameters))
        ratio = parameters / near.parameters
        return Model(
            text,
            parameters,
            hidden=round(near.hidden * ratio ** (1 / 3)),
            layers=max(1, round(near.layers * ratio ** (1 / 3))),
            heads=near.heads,
            intermediate=round(near.intermediate * ratio ** (1 / 3)),
            vocabulary=near.vocabulary,
            tied=near.tied,
        )
    path = Path(text).expanduser()
    if path.is_file():
        return _of_config(path)
    raise UsageError(
        f"{text!r} is no model that is known here.",
        where="--fit",
        hint="Give its parameters as in 7B, the path of its config.json, or one of: "
        f"{', '.join(MODELS)}.",
    )


_UNKNOWN = re.compile(
    r"linear_(num|key|value|conv)|mamba|ssm|state_size|recurrent|audio_config|per_layer_input"
    r"|cross_attention|talker|thinker"
)
"""Keys of a config.json that tell of parts which are not counted here."""
_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "gemma3_text": {**_GEMMA, "tie_word_embeddings": True, "hidden_act": "gelu_glu"}
}
"""What transformers adds to a config.json that leaves it out, by `model_type`."""


def _of_config(path: Path) -> Model:
    """Return the model that a config.json of Hugging Face's transformers describes."""
    try:
        config = json.loads(read_regular(path))
        # Of a model with images the language model has a part of its own.
        text = config.get("text_config", {})
        own = {**config, **{key: value for key, value in text.items() if value is not None}}
        _refuse_unknown(path, own)
        return _counted(path.parent.name, {**_DEFAULTS.get(str(own.get("model_type")), {}), **own})
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(
            f"it describes no transformer: {error}.",
            where=str(path),
            hint="It needs hidden_size, num_hidden_layers, num_attention_heads and vocab_size.",
        ) from None


def _refuse_unknown(path: Path, config: Mapping[str, Any]) -> None:
    """Raise UsageError for a model with parts that can't be counted."""
    found = [key for key, value in config.items() if _UNKNOWN.search(key) and value]
    found += ["is_encoder_decoder"] if config.get("is_encoder_decoder") else []
    if not _experts(config) and any("expert" in key and value for key, value in config.items()):
        found += [key for key in config if "expert" in key]
    if found:
        raise UsageError(
            f"a {config.get('model_type') or 'model'} has parts that can't be counted here: "
            f"{', '.join(sorted(found))}.",
            where=str(path),
            hint="Give the parameters that its card states, as in: --fit 30B",
        )


def _experts(config: Mapping[str, Any]) -> int:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return next((int(config[name]) for name in names if config.get(name)), 0)


def _counted(name: str, config: Mapping[str, Any]) -> Model:
    """Return a model with the parameters of its matrices; those of norms are too few to count."""
    hidden = int(config.get("hidden_size") or config["n_embd"])
    layers = int(config.get("num_hidden_layers") or config["n_layer"])
    vocabulary = int(config["vocab_size"])
    dense = int(config.get("intermediate_size") or config.get("n_inner") or 4 * hidden)
    tied = bool(config.get("tie_word_embeddings", "n_embd" in config))
    experts, matrices = _experts(config), 3 if _is_gated(config) else 2
    each = int(config.get("moe_intermediate_size") or dense)
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    shared += int(config.get("n_shared_experts") or 0) * each
    shared += each if str(config.get("model_type")).startswith("llama4") else 0
    sparse = _sparse_layers(config, layers) if experts else 0
    width = experts * each + shared
    a_dense = matrices * hidden * int(config.get("intermediate_size_mlp") or dense)
    parameters = (
        layers * _attention(config, hidden)
        + (layers - sparse) * a_dense
        + sparse * (matrices * hidden * width + hidden * experts)
        + vocabulary * hidden * (1 if tied else 2)
        + _vision(config.get("vision_config") or {}, hidden)
    )
    heads = int(config.get("num_attention_heads") or config["n_head"])
    in_layer = each if experts else dense
    sizes = (parameters, hidden, layers, heads, in_layer, vocabulary)
    return Model(name, *sizes, tied=tied, experts=max(1, experts))


def _is_gated(config: Mapping[str, Any]) -> bool:
    """Return whether a layer has three matrices after its attention, not two."""
    act = str(config.get("hidden_act") or config.get("hidden_activation") or "")
    is_gemma = str(config.get("model_type")).startswith("gemma")
    return (
        is_gemma
        or "lu" in act.replace("gelu", "").replace("relu", "")
        or (not act and "intermediate_size" in config)
    )


def _sparse_layers(config: Mapping[str, Any], layers: int) -> int:
    step = config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step")
    first, without = int(config.get("first_k_dense_replace") or 0), config.get("mlp_only_layers")
    return sum(
        at >= first and at not in (without or ()) and not (at + 1) % int(step or 1)
        for at in range(layers)
    )


def _attention(config: Mapping[str, Any], hidden: int) -> float:
    """Return the parameters of a layer's attention; DeepSeek's are compressed."""
    heads = int(config.get("num_attention_heads") or config["n_head"])
    if config.get("kv_lora_rank"):
        rank, rope = int(config["kv_lora_rank"]), int(config["qk_rope_head_dim"])
        query, value = int(config["qk_nope_head_dim"]), int(config["v_head_dim"])
        query_rank = int(config.get("q_lora_rank") or 0)
        into = query_rank or hidden
        return (
            hidden * query_rank
            + into * heads * (query + rope)
            + hidden * (rank + rope)
            + rank * heads * (query + value)
            + heads * value * hidden
        )
    head = int(config.get("head_dim") or hidden // heads)
    key_value = int(config.get("num_key_value_heads") or heads)
    return 2 * hidden * head * (heads + key_value)


def _vision(config: Mapping[str, Any], out: int) -> float:
    """Return the parameters of what reads images, with the projection of its output."""
    hidden = int(config.get("hidden_size") or 0)
    layers = int(config.get("num_hidden_layers") or config.get("depth") or 0)
    inside = int(config.get("intermediate_size") or 4 * hidden)
    matrices = 3 if _is_gated(config) and "silu" in str(config.get("hidden_act")) else 2
    return layers * (4 * hidden + matrices * inside) * hidden + 4 * hidden * (4 * hidden + out)
