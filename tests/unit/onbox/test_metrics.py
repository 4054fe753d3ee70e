"""Metrics of a log: common ways of logging them, and lines without any."""

import json
import math
import re
import sys
import time
from pathlib import Path

import pytest

from bootstrap.onbox.metrics import LINE, find_metrics, newest, read_patterns
from bootstrap.profile.schema import as_row
from bootstrap.profile.values import METRIC
from tests.cases import read_cases
from tests.programs import captured
from tests.waiting import slowness

FOUND = read_cases(Path(__file__).with_name("metrics.txt"))[1:]
LINES: dict[str, dict[str, float]] = {
    **{line: json.loads(f"{{{found}}}") for line, found in FOUND},
    "\x1b[32mloss\x1b[0m: 0.4": {"loss": 0.4},
    "eval/loss: -inf": {"eval/loss": -math.inf},
    "": {},
}


@pytest.mark.parametrize("line", LINES)
def test_metrics_are_found_in_a_log_line_in_each_common_way_of_logging(line: str) -> None:
    assert find_metrics(line) == LINES[line]
    # The box's grep must let the line through, or nothing is found in it.
    if LINES[line]:
        command = ["grep", "-ciE", LINE]
        grep = captured(command, input=line, check=False)
        assert grep.stdout == "1\n" or "\x1b" in line


def test_a_loss_of_nan_in_a_log_line_is_read_as_a_metric() -> None:
    assert math.isnan(find_metrics("step 8 loss nan")["loss"])


def test_the_newest_metric_of_a_log_is_found_even_in_a_progress_bar() -> None:
    assert newest("loss 1\nsaved\nloss 2 of rank 0\nsaved x\n") == "loss 2 of rank 0"
    assert newest("  0%| loss=3\r 10%| loss=2\r 20%| loss=1") == "20%| loss=1"
    assert newest("nothing\n") == newest("") == ""


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        ("score is {score}", "The score is   0.5!", {"score": 0.5}),
        ("[{step}] dice (val) {val/dice}", "[3] dice (val) 5e-1", {"step": 3, "val/dice": 0.5}),
        ("a|b.* {x}", "a|b.* 3", {"x": 3}),
        ("a|b.* {x}", "a 3", {}),
        ("score is {score}", "loss 3", {}),
    ],
)
def test_a_metric_pattern_of_the_profile_finds_its_values_in_a_log_line(
    pattern: str, line: str, found: dict[str, float]
) -> None:
    row = as_row(METRIC(pattern))
    assert find_metrics(line, read_patterns(row)) == found
    command = ["grep", "-ciE", row.partition("\t")[2]]
    grep = captured(command, input=line, check=False)
    assert (grep.stdout, grep.stderr) == (f"{int(bool(found))}\n", "")


@pytest.mark.parametrize("pattern", ["no number", "{a}{b}", "{a", "{1}", "{a\tb}", "x" * 501])
def test_a_metric_pattern_without_a_valid_group_name_raises_an_error(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"a line of the log|control|too long"):
        METRIC(pattern)


def test_damaged_metric_patterns_saved_on_a_box_are_ignored() -> None:
    assert read_patterns("a\t(\nb\nc,d\t(x)\n\te\n") == []


@pytest.mark.skipif(sys.gettrace() is not None, reason="time counts")
def test_finding_metrics_in_a_hostile_line_takes_less_than_a_tenth_of_a_second() -> None:
    for hostile in ("loss_" * 9999, "train_" * 9999, "{" + "'a" * 9999, "loss " * 9999, "/" * 9999):
        took = list[float]()
        for _ in range(5):
            began = time.process_time()
            find_metrics(hostile)
            took.append(time.process_time() - began)
        assert min(took) < 0.1 * slowness(), re.escape(hostile[:20])
