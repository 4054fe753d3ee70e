"""Samples from a box are untrusted: bounded, cleaned, or dropped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boxes.run_history import MAX_LINE, Sample, SampleLines, parse_sample

HOST = {"memory_used": 1, "memory_total": 2, "disk_free": 3, "disk_total": 4}
WHOLE: dict[str, Any] = {
    "v": 1,
    "t": 1700000000.5,
    "host": {"cpus": 32, "cpu": 12.5, **HOST},
    "gpus": [
        {
            "index": 0,
            "name": "NVIDIA A100",
            "load": 97,
            "memory_used": 10,
            "memory_total": 80,
            "power": 391.5,
            "processes": [{"pid": 7, "name": "python", "memory": 9}],
            "new": "of a later version",
        }
    ],
    "error": None,
    "run": {"name": "train-1", "repo": "r-1", "state": "running", "rc": None, "last": "step 1"},
}


def line(**changed: Any) -> bytes:
    return json.dumps({**WHOLE, **changed}).encode()


def test_top_parses_gpu_load_process_name_and_last_log_line_from_a_sample_of_a_box() -> None:
    sample = parse_sample(line())
    assert sample is not None
    assert (sample.gpus[0].load, sample.gpus[0].processes[0].name) == (97, "python")
    assert sample.run is not None
    assert sample.run.last == "step 1"


def test_escape_codes_in_a_sample_of_top_are_removed() -> None:
    run = {**WHOLE["run"], "last": "\x1b]0;owned\x07\x1b[2Jstep\r\n1\u202e" + "x" * 9000}
    sample = parse_sample(line(run=run, gpus=[{"index": 0, "name": "\x1b[31mA100\x9b"}]))
    assert sample is not None
    assert sample.run is not None
    assert sample.run.last.startswith("step 1x")
    assert len(sample.run.last) == 500
    assert sample.gpus[0].name == "A100"


@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2},
        {"t": "now"},
        {"t": 1e300},
        {"gpus": [{"index": -1}]},
        {"gpus": [{"index": i % 9} for i in range(200)]},
        {"gpus": [{"index": 0, "load": "97"}]},
        {"gpus": [{"index": 0, "load": float("nan")}]},
        {"gpus": [{"index": 0, "memory_used": 1 << 70}]},
        {"gpus": [{"index": 0, "processes": [{"pid": 1, "name": "x"}] * 100}]},
        {"run": {**WHOLE["run"], "state": "owned"}},
        {"host": []},
    ],
    ids=str,
)
def test_a_sample_of_a_box_with_impossible_values_is_dropped(changed: dict[str, Any]) -> None:
    assert parse_sample(line(**changed)) is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"x" * (MAX_LINE + 1)])
def test_top_ignores_a_malformed_sample_line_from_a_box(text: bytes) -> None:
    assert parse_sample(text) is None


@given(st.lists(st.integers(1, 500), max_size=20))
def test_top_reads_each_whole_sample_however_the_stream_is_cut_into_pieces(cuts: list[int]) -> None:
    stream = line(t=1.0) + b"\nnoise\n" + line(t=2.0) + b"\n" + line(t=3.0)[:-9]
    lines, found, at = SampleLines(), [], 0
    for cut in [*cuts, len(stream)]:
        found += lines.feed(stream[at : at + cut])
        at += cut
    assert [sample.t for sample in found] == [1.0, 2.0]


def test_an_endless_sample_of_a_box_is_dropped_with_bounded_memory() -> None:
    lines = SampleLines()
    for _ in range(40):
        assert lines.feed(b"x" * 64 * 1024) == []
    assert len(lines._rest) <= MAX_LINE + 1
    assert lines.feed(b"\n" + line() + b"\n") == [Sample.model_validate_json(line())]
