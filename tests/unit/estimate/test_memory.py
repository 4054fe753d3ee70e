"""The formula beside published measurements; docs/estimate.md lists the same ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bootstrap.errors import UsageError
from bootstrap.estimate import BAND, MODELS, Training, find_model, memory_of

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
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
CASES = [
    (model, method, length, gb)
    for (model, method), row in QWEN.items()
    for length, gb in zip(LENGTHS, row, strict=False)
]


@pytest.mark.parametrize(("model", "method", "length", "gb"), CASES)
def test_a_published_peak_lies_within_the_band(
    model: str, method: str, length: int, gb: float
) -> None:
    training = Training(method, sequence=length, rank=64)  # type: ignore[arg-type]
    memory = memory_of(MODELS[model], training)
    assert memory.low <= gb * 1e9 <= memory.high, memory.total / 1e9


def test_a_published_peak_of_another_model_and_batch_lies_within_the_band() -> None:
    """axolotl:examples/llama-2/README.md, with the settings of qlora.yml beside it."""
    training = Training("qlora", batch=2, sequence=4096, rank=32)
    memory = memory_of(MODELS["llama-2-7b"], training)
    assert memory.low <= 17e9 <= memory.high, memory.total / 1e9


def test_the_band_is_no_wider_than_said() -> None:
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
        (Training(recomputes=False, fused_attention=False), Training(recomputes=False)),
    ],
)
def test_what_needs_more_is_estimated_as_more(larger: Training, smaller: Training) -> None:
    model = MODELS["llama-3.1-8b"]
    assert memory_of(model, larger).total > memory_of(model, smaller).total


def test_sixteen_bytes_a_parameter_are_the_state_of_adam() -> None:
    memory = memory_of(MODELS["llama-2-7b"], Training())
    assert memory.weights + memory.trained == pytest.approx(16 * 6.738e9)


def test_a_model_is_known_by_name_by_size_and_by_its_config(tmp_path: Path) -> None:
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
