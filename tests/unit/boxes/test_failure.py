"""Why a run failed, found from the end of its log and the box's counters."""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boxes import Failure, Run, find_failure
from bootstrap.onbox.redact import Redactor
from tests.cases import parts_of, read_cases

RUN = Run("k-1", "train-1", "finished", 1, 1, "c" * 40, "w", "train", 2, 9, "python train.py")
ENDS = read_cases(Path(__file__).with_name("failures.txt"))[1:]
CRASH = parts_of(ENDS[0][1])[""]


def found(log: str, **changes: object) -> Failure:
    failure = find_failure(dataclasses.replace(RUN, **changes), log.encode())  # type: ignore[arg-type]
    assert failure
    return failure


@pytest.mark.parametrize(("reason", "text"), ENDS, ids=[reason for reason, _ in ENDS])
def test_each_end_of_a_log_gives_the_kind_of_failure_its_reason_and_the_lines_that_tell_it(
    reason: str, text: str
) -> None:
    parts = parts_of(text)
    failure = found(parts[""])
    assert f"{failure.kind}: {failure.what}" == reason
    assert list(failure.lines) == parts.get("shown", "\n".join(failure.lines)).splitlines()


def test_a_traceback_far_above_the_end_of_a_log_is_not_the_reason_of_a_failure() -> None:
    failure = found(CRASH + "\n".join(f"epoch {n}" for n in range(40)) + "\nno such data\n")
    assert (failure.kind, failure.what, failure.lines[-1]) == ("unknown", "", "no such data")


@pytest.mark.parametrize(
    ("noted", "what"),
    [
        (
            "1 8589934592 8123456000 python",
            "the kernel killed a process for memory while it ran: python held 8.1 GB; "
            "the limit for all processes is 8.6 GB",
        ),
        ("3 - - -", "the kernel killed 3 processes for memory while it ran"),
    ],
)
def test_a_run_killed_by_the_kernel_has_memory_as_its_reason_despite_a_logged_exception(
    noted: str, what: str
) -> None:
    failure = found(CRASH, killed_for_memory=noted)
    assert (failure.kind, failure.what) == ("memory", what)
    assert failure.lines[-1] == "ValueError: no such data"


@pytest.mark.parametrize(
    ("noted", "more"),
    [
        ("0 - - -", "counted no kill for memory"),
        ("", "does not know what did it"),
        ("x", "what did it"),
    ],
)
def test_a_run_that_ended_with_137_but_no_memory_kill_is_reported_as_killed_only(
    noted: str, more: str
) -> None:
    failure = found("step 1\n", rc=137, killed_for_memory=noted)
    assert failure.kind == "killed"
    assert more in failure.what


def test_a_run_whose_exit_code_was_lost_counts_as_failed_with_its_last_lines() -> None:
    assert found("step 1\n", rc=None).lines == ("step 1",)


@pytest.mark.parametrize(
    "changes",
    [{"rc": 0}, {"rc": 143, "ended": "stop"}, {"state": "running", "rc": None}],
    ids=["well", "stopped", "running"],
)
def test_a_run_that_succeeded_was_stopped_or_still_runs_has_no_failure_reason(
    changes: dict[str, object],
) -> None:
    assert find_failure(dataclasses.replace(RUN, **changes), CRASH.encode()) is None  # type: ignore[arg-type]


def test_a_secret_of_several_lines_is_redacted_before_failure_lines_are_chosen() -> None:
    secret = "BEGIN-abcdefghij\nsecond-klmnopqrst"
    redact = Redactor({"KEY": secret}).text
    failure = find_failure(RUN, f"half of a line\nbad key {secret}\n".encode(), redact, is_cut=True)
    assert failure
    assert failure.lines == ("bad key [KEY hidden]",)


@pytest.mark.slow
@given(st.binary(max_size=3000), st.text(max_size=80), st.booleans())
def test_the_reason_of_a_failed_run_is_short_and_printable_for_any_log(
    log: bytes, noted: str, is_cut: bool
) -> None:
    run = dataclasses.replace(RUN, rc=137, killed_for_memory=noted)
    failure = find_failure(run, b"Traceback (most recent call last):\n" + log, is_cut=is_cut)
    assert failure
    assert len(failure.lines) <= 8
    assert all(len(line) <= 160 for line in failure.lines)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", "".join(failure.lines))
