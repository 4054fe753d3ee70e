"""The formula beside published measurements; docs/estimate.md lists the same ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import UsageError
from bootstrap.tasks.model_memory import BAND, MODELS, Model, Training, find_model, memory_of

QWEN = {  # QwenLM/Qwen:README.md, "Profiling of Memory and Speed", GB on one A100-SXM4-80G
    ("qwen-1.8b", "lora"): (6.7, 7.4, 8.4, 11.0, 16.2, 21.8),
    ("qwen-1.8b", "qlora"): (5.8, 6.0, 6.6, 7.8, 10.2, 15.8),
    ("qwen-1.8b", "full"): (43.5, 43.5, 43.5, 43.5, 47.1, 48.3),
    ("qwen-7b", "lora"): (20.1, 20.4, 21.5, 23.8, 29.7, 36.6),
    ("qwen-7b", "qlora"): (11.5, 11.5, 12.3, 13.9, 16.9, 23.5),
    ("qwen-7b", "full"): (139.2, 148.0, 162.0),
    ("qwen-14b", "lora"): (34.6, 35.1, 35.3, 37.4, 42.5, 55.2),
    ("qwen-14b", "qlora"): (18.7, 18.4, 18.9, 19.9, 23.0, 27.9),
    ("qwen-72b", "qlora"): (61.4, 61.4, 62.9, 64.1, 68.0, 75.6),
}
PLAIN = {"pure": True, "fused_loss": True}  # all in bf16, the loss in parts
OWN = {
    "phi-1.5": Model("phi-1.5", 1.418e9, 2048, 24, 32, 8192, 51200),
    "stablelm-alpha-3b": Model("stablelm-alpha-3b", 3.64e9, 4096, 16, 32, 16384, 50432),
    "llama-2-13b": Model("llama-2-13b", 13.016e9, 5120, 40, 40, 13824, 32000),
    "gemma-2b": Model("gemma-2b", 2.506e9, 2048, 18, 8, 16384, 256000, tied=True),
    "t0-3b": Model("t0-3b", 2.85e9, 2048, 48, 32, 5120, 32128),
    "mt0-xxl": Model("mt0-xxl", 12.92e9, 4096, 48, 64, 10240, 250112),
    "bloomz-7b1": Model("bloomz-7b1", 7.07e9, 4096, 30, 32, 16384, 250880, tied=True),
}


def trained(source: str, model: str, gb: float, method: str, **how: Any) -> Any:
    training = Training(method, **how)  # type: ignore[arg-type]
    return (source, model, training, gb)


def litgpt(model: str, tokens: int, *peaks: tuple[str, int, float]) -> list[Any]:
    """Lightning-AI/litgpt:tutorials/resource-tables.md, LoRA on one A100 with bf16-true."""
    how: dict[str, Any] = {**PLAIN, "recomputes": False, "rank": 8, "sequence": tokens}
    return [trained("litgpt", model, gb, way, batch=size, **how) for way, size, gb in peaks]


def torchtune(gib: float, method: str, **how: Any) -> Any:
    """pytorch/torchtune:README.md; not the run whose optimizer steps in the backward pass."""
    own = {**PLAIN, "batch": 2, "rank": 8, "optimizer": "adamw8bit", **how}
    return trained("torchtune", "llama-3.1-8b", gib * 1.0737, method, **own)


PUBLISHED = [
    *litgpt("phi-1.5", 1044, ("lora", 1, 4.82), ("lora", 2, 6.76), ("lora", 4, 10.68)),
    *litgpt("phi-1.5", 1044, ("qlora", 1, 3.78)),
    *litgpt("stablelm-alpha-3b", 1034, ("lora", 1, 9.69), ("lora", 2, 12.1), ("lora", 4, 16.92)),
    *litgpt("stablelm-alpha-3b", 1034, ("qlora", 1, 6.35)),
    *litgpt("llama-2-7b", 1304, ("lora", 1, 21.3), ("lora", 2, 29.07), ("qlora", 1, 14.14)),
    *litgpt("llama-2-13b", 1304, ("lora", 1, 38.12), ("qlora", 1, 23.14)),
    *(torchtune(37.4, "full"), torchtune(16.2, "lora"), torchtune(7.4, "qlora")),
    torchtune(30.3, "lora", recomputes=False),
    *(  # unslothai/unsloth:README.md, the longest contexts of Hugging Face with Flash Attention 2
        trained(
            *("unsloth", "llama-3.1-8b", gb, "qlora"),
            **{"rank": 32, "sequence": tokens, "optimizer": "adamw8bit"},
        )
        for gb, tokens in zip(
            (12, 16, 24, 40, 48, 80), (932, 2551, 5789, 12264, 15502, 28454), strict=True
        )
    ),
    *(  # hiyouga/LLaMA-Factory's wiki, in an earlier unslothai/unsloth:README.md
        trained("LLaMA-Factory", "llama-2-7b", gb, way, batch=4, sequence=1024, rank=8)
        for way, gb in (("lora", 18), ("lora", 17), ("lora", 16), ("qlora", 9), ("qlora", 7))
    ),
    *(  # Zheng et al., "LlamaFactory" (2024), table 4: 8-bit AdamW, bf16, Unsloth for the adapters;
        # its batch is in tokens, 512, and its adapters have 0.16e9 parameters
        trained(
            *("LlamaFactory's paper", model, gb, way),
            **{"pure": True, "fused_loss": way != "full", "optimizer": "adamw8bit"},
            **{"batch": 1, "sequence": 512, "rank": 64},
        )
        for model, row in (("gemma-2b", (17.06, 7.91, 5.21)), ("llama-2-7b", (38.72, 16.32, 7.52)))
        for way, gb in zip(("full", "lora", "qlora"), row, strict=True)
    ),
    *(  # hiyouga/LLaMA-Factory:README.md, its table of hardware requirements, itself estimated
        trained("LLaMA-Factory's table", size, gb, way, sequence=512, pure=pure)
        for way, pure, row in (
            ("full", False, (120, 240, 600, 1200)),
            ("full", True, (60, 120, 300, 600)),
            ("lora", False, (16, 32, 64, 160)),
            ("qlora", False, (6, 12, 24, 48)),
        )
        for size, gb in zip(("7B", "14B", "30B", "70B"), row, strict=True)
    ),
    *(  # huggingface/peft:README.md, ought/raft/twitter_complaints in fp32
        trained("PEFT", name, gb, way, precision="fp32", batch=8, sequence=64, rank=8)
        for name, way, gb in (
            *(("t0-3b", "lora", 14.4), ("mt0-xxl", "lora", 56), ("bloomz-7b1", "lora", 32)),
            ("t0-3b", "full", 47.14),
        )
    ),
]
CASES = [
    ("Qwen", model, Training(method, sequence=length, rank=64), gb)  # type: ignore[arg-type]
    for (model, method), row in QWEN.items()
    for length, gb in zip((256, 512, 1024, 2048, 4096, 8192), row, strict=False)
]
# axolotl:examples/llama-2/README.md, with the settings of qlora.yml beside it.
CASES.append(("axolotl", "llama-2-7b", Training("qlora", batch=2, sequence=4096, rank=32), 17))


def test_each_published_peak_gpu_memory_is_within_the_estimated_range() -> None:
    outside = []
    for source, model, training, gb in (*CASES, *PUBLISHED):
        memory = memory_of(OWN.get(model) or find_model(model), training)
        if not memory.low <= gb * 1e9 <= memory.high:
            outside.append((source, model, training, gb, memory.total / 1e9))
    assert outside == []
    assert len(CASES) + len(PUBLISHED) > 100


CONFIGS = json.loads(Path(__file__).with_name("model_configs.json").read_text())
"""What decides about the size in each model's config.json, and its parameters, as its card or its
files state them."""


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_configs_computed_parameter_count_is_within_3_percent(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]["config"]))
    assert find_model(str(file)).parameters == pytest.approx(CONFIGS[name]["parameters"], rel=0.03)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"model_type": "t5", "is_encoder_decoder": True}, "t5 .*is_encoder_decoder"),
        ({"model_type": "qwen3_next", "linear_num_key_heads": 16}, "qwen3_next .*linear_num"),
        ({"text_config": {"model_type": "gemma3n", "hidden_size_per_layer_input": 9}}, "gemma3n"),
        ({"model_type": "dbrx", "moe_num_experts": 16}, "dbrx .*moe_num_experts"),
    ],
)
def test_a_model_config_of_unknown_type_or_key_is_wrong_usage_that_names_type_or_key(
    own: dict[str, Any], named: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIGS["Phi-3-mini"]["config"], **own}))
    with pytest.raises(UsageError, match=named):
        find_model(str(file))


def test_estimate_divides_weights_and_optimizer_state_but_not_activations_by_the_gpus() -> None:
    one = memory_of(MODELS["llama-3.1-8b"], Training())
    eight = one.sharded(8)
    assert (eight.weights + eight.trained) * 8 == one.weights + one.trained
    assert eight.activations == one.activations


def test_estimated_model_memory_has_a_range_of_thirty_percent_either_way() -> None:
    assert BAND == 0.3
    memory = memory_of(MODELS["qwen-7b"], Training())
    assert (memory.low, memory.high) == (memory.total * 0.7, memory.total * 1.3)


@pytest.mark.parametrize(
    ("larger", "smaller"),
    [
        (Training("full"), Training("lora")),
        (Training("lora"), Training("qlora")),
        (Training(batch=8), Training(batch=1)),
        (Training(sequence=8192), Training(sequence=512)),
        (Training(optimizer="adamw"), Training(optimizer="adamw8bit")),
        (Training("lora", "fp32"), Training("lora", "bf16")),
        (Training(recomputes=False), Training(recomputes=True)),
        (Training(), Training(pure=True)),
        (Training(), Training(fused_loss=True)),
        (Training(recomputes=False, fused_attention=False), Training(recomputes=False)),
    ],
)
def test_estimated_model_memory_grows_with_each_larger_training_setting(
    larger: Training, smaller: Training
) -> None:
    model = MODELS["llama-3.1-8b"]
    assert memory_of(model, larger).total > memory_of(model, smaller).total


def test_full_training_with_adam_is_estimated_at_sixteen_bytes_a_parameter() -> None:
    memory = memory_of(MODELS["llama-2-7b"], Training())
    assert memory.weights + memory.trained == pytest.approx(16 * 6.738e9)


def test_estimate_fit_takes_a_model_name_size_or_config_and_else_exits_with_2(
    tmp_path: Path,
) -> None:
    assert find_model("meta-llama/Llama-3.1-8B").parameters == 8.030e9
    assert find_model("7B").parameters == 7e9
    assert find_model("350m").parameters == 350e6
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
                "hidden_act": "silu", "tie_word_embeddings": False,
            }
        )
    )  # fmt: skip
    assert find_model(str(config)).parameters == pytest.approx(8.03e9, rel=0.01)
    config.write_text(json.dumps({"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}))
    assert find_model(str(config)).parameters == pytest.approx(0.124e9, rel=0.02)
    for wrong in ("{}", "[]", "no json"):
        config.write_text(wrong)
        with pytest.raises(UsageError, match="no transformer"):
            find_model(str(config))
    with pytest.raises(UsageError, match="no model"):
        find_model("alexnet-on-my-desk")
