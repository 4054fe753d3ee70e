"""The local side of the verdict: a document from a possibly hostile box, and its table."""

import json
import re
from typing import Any

import pytest

from bootstrap.boxes import verdict
from bootstrap.errors import BoxstrapError
from bootstrap.paths import shipped
from bootstrap.profile import Advice
from bootstrap.runs import page
from bootstrap.setup.result import advised

SCHEMA = shipped("profiles") / "verdict.schema.json"


def reason(**changes: object) -> dict[str, Any]:
    found = {"check": "ecc", "code": "gpu-ecc", "outcome": "return", "gpus": [1]}
    says = {"says": "uncorrected memory errors: 2", "advice": "Return this box."}
    return {**found, **says, **changes}


def gpu(index: int, **changes: object) -> dict[str, Any]:
    found = {"index": index, "name": "NVIDIA A100-SXM4-80GB", "uuid": "GPU-1"}
    return {**found, "memory_mib": 81920, "capability": "8.0", **changes}


def row(
    check: str, index: int | None, outcome: str, read: str, expected: str = "", says: str = ""
) -> dict[str, Any]:
    found = {"read": read, "expected": expected, "says": says}
    return {"check": check, "gpu": index, "outcome": outcome, **found}


def document(**changes: object) -> dict[str, Any]:
    return {
        "version": 1,
        "verdict": "keep",
        "reasons": [],
        "driver": "550.54.15",
        "cuda": "12.4",
        "gpus": [gpu(0), gpu(1)],
        "checks": [
            row("count", None, "pass", "2"),
            row("ecc", 0, "pass", "none", "none"),
            row("ecc", 1, "pass", "none", "none"),
        ],
        "seconds": 0.12,
        "advice": [],
        **changes,
    }


def read(**changes: object) -> verdict.Verdict:
    return verdict.read_verdict(json.dumps(document(**changes)).encode())


def test_a_verdict_document_is_read_and_written_back_unchanged() -> None:
    assert json.loads(read().model_dump_json()) == document()


def test_a_verdict_with_keys_of_a_newer_version_reads_the_same_as_one_without_them() -> None:
    assert read(smoke={"tflops": 300}, gpus=[gpu(0, fan=3), gpu(1)]) == read()


@pytest.mark.parametrize(
    "changes",
    [
        *({"version": one} for one in (2, "1", True)),
        *({"verdict": one} for one in ("fine", None, "return")),
        *({"verdict": one, "reasons": [reason()]} for one in ("keep", "warn")),
        *(
            {"verdict": "return", "reasons": [reason(**odd)]}
            for odd in (
                *({"code": "no gpu; rm"}, {"code": "\x1b[31m"}, {"outcome": "keep"}),
                *({"gpus": [-1]}, {"gpus": [*range(200)]}),
            )
        ),
        {"verdict": "return", "reasons": [reason()] * 600},
        {"reasons": "none"},
        {"gpus": [gpu(0)] * 200},
        *({"gpus": [one]} for one in (gpu(10**30), gpu(0, memory_mib=-1), gpu(0, memory_mib="80"))),
        {"checks": [row("a", None, "pass", "b")] * 5000},
        {"checks": [row("a", None, "good", "b")]},
        {"driver": 550},
        *({"seconds": one} for one in (-1, float("nan"), float("inf"))),
    ],
)
def test_a_verdict_document_with_invalid_values_gives_the_error_can_not_be_read(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(BoxstrapError, match="can't be read"):
        read(**changes)


@pytest.mark.parametrize(
    "doc",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": ' + b"9" * 10_000 + b"}",
        b" " * (verdict.MAX_BYTES + 1),
        json.dumps(document()).encode()[:-10],
    ],
    ids=range(9),
)
def test_a_verdict_document_that_is_no_json_is_refused_with_a_short_error(doc: bytes) -> None:
    with pytest.raises(BoxstrapError, match="can't be read") as caught:
        verdict.read_verdict(doc)
    assert len(caught.value.what) < 500


def test_control_characters_in_a_boxs_verdict_are_removed_from_its_table() -> None:
    evil = "\x1b]0;owned\x07fine\x1b[2J\r\nKeep this box.\u202e" + "x" * 1000
    seen = read(driver=evil, gpus=[gpu(0, name=evil)], checks=[row(evil, None, "pass", evil)])
    for line in page.verdict_lines(seen):
        assert line.isprintable()
        assert len(line) < 3 * verdict.MAX_TEXT
    assert "Keep this box." not in page.verdict_lines(seen)[:-1]


def test_the_verdict_of_a_healthy_box_is_shown_as_a_table_with_keep() -> None:
    assert page.verdict_lines(read()) == [
        "GPUs 0-1  NVIDIA A100-SXM4-80GB  80.0 GiB  compute capability 8.0",
        "driver 550.54.15, CUDA up to 12.4",
        "",
        "check  read  expected  verdict",
        "count  2               pass",
        "ecc    none  none      pass",
        "",
        "Keep this box.",
    ]


def test_the_verdict_of_a_faulty_box_is_shown_as_a_table_with_reasons_and_return() -> None:
    sick = read(
        verdict="return",
        reasons=[reason(), reason(outcome="warn", gpus=[], says="slow", advice="Compare.")],
        checks=[
            row("ecc", 0, "pass", "none", "none"),
            row("ecc", 1, "return", "2 uncorrected", "none", "uncorrected memory errors: 2"),
            row("heat", None, "n/a", "h" * 70),
        ],
    )
    assert page.verdict_lines(sick)[3:] == [
        f"check  read{' ' * 58}expected  verdict",
        f"ecc    GPU 0: none{' ' * 51}none      pass",
        f"ecc    GPU 1: 2 uncorrected{' ' * 42}none      return",
        f"heat   {'h' * 59}…            n/a",
        "",
        "return: GPU 1: uncorrected memory errors: 2",
        "  Return this box.",
        "",
        "warn: slow",
        "  Compare.",
        "",
        "Return this box.",
    ]


def test_a_box_without_a_required_gpu_is_shown_as_a_table_with_keep() -> None:
    rows = [row("gpu", None, "pass", "no GPU", "none required")]
    none = read(driver=None, cuda=None, gpus=[], checks=rows)
    assert page.verdict_lines(none) == [
        "check  read    expected       verdict",
        "gpu    no GPU  none required  pass",
        "",
        "Keep this box.",
    ]


def test_colours_in_a_printed_verdict_mark_outcome_columns_and_not_the_same_words_in_text() -> None:
    sick = read(
        verdict="return",
        reasons=[reason(says="pass  return")],
        checks=[row("count", None, "pass", "2"), row("ecc", 1, "return", "warn: 2", "none")],
    )
    text = "\n".join(page.verdict_lines(sick))
    seen = page.painted(text)
    assert seen.count("\x1b[31mreturn\x1b[0m") == 2  # the row and the reason, not its words
    assert seen.count("\x1b[32mpass\x1b[0m") == 1
    assert re.sub("\x1b\\[[0-9]+m", "", seen) == text


def test_advice_in_a_verdict_comes_from_the_profile_and_never_from_the_box() -> None:
    ours = Advice(return_box="Destroy it.", shm="Ask for more.")
    theirs = {"advice": ["Send the host your keys."]}
    assert advised(read(**theirs), ours).advice == ()
    shm = reason(code="box-shm", outcome="warn")
    kept = advised(read(verdict="warn", reasons=[shm], **theirs), ours)
    assert kept.advice == ("Ask for more.",)
    bad = advised(read(verdict="return", reasons=[reason(), shm], **theirs), ours)
    assert bad.advice == ("Destroy it.", "Ask for more.")
    assert "Destroy it." in page.verdict_lines(bad)
    assert advised(bad, Advice()).advice == ()


@pytest.mark.parametrize(
    ("indexes", "named"),
    [([3], "GPU 3"), ([0, 1], "GPUs 0-1"), ([7, 0, 1, 2, 5], "GPUs 0-2, 5, 7")],
)
def test_several_gpu_indexes_are_shown_as_short_ranges(indexes: list[int], named: str) -> None:
    assert verdict.gpus_named(indexes) == named


def test_the_json_schema_of_the_verdict_equals_the_shipped_file() -> None:
    """To update the file, write `Verdict.model_json_schema()` to it, indented by two."""
    assert json.loads(SCHEMA.read_text()) == verdict.Verdict.model_json_schema()
