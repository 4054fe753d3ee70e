"""Why a run failed, found from the end of its log and the box's counters."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.boxes import Failure, Run, find_failure
from bootstrap.onbox.redact import Redactor

RUN = Run("k-1", "train-1", "finished", 1, 1, "c" * 40, "w", "train", 2, 9, "python train.py")
CRASH = """\
epoch 1
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    main()
    ~~~~^^
  File "/w/train.py", line 5, in main
    raise ValueError("no such data")
ValueError: no such data
"""
TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/train.py", line 7, in <module>
[rank1]:     step()
[rank1]: KeyError: 'labels'
E1122 09:00:00.000 torch/distributed/elastic] failed (exitcode: 1) local_rank: 1 (pid: 7)
Traceback (most recent call last):
  File "/w/.venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 3 has a total "
    "capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process"
)
MIDDLE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 MiB. GPU 0 has a "
    "total capacty of 23.65 GiB of which 9.50 MiB is free. Process 12 has 23.63 GiB memory in use."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 15.78 GiB total "
    "capacity; 13.53 GiB already allocated; 1.13 GiB free; 13.61 GiB reserved in total by PyTorch)"
)
JAX = (
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 85899345920 bytes."
)


def found(log: str, **changes: object) -> Failure:
    failure = find_failure(dataclasses.replace(RUN, **changes), log.encode())  # type: ignore[arg-type]
    assert failure
    return failure


def test_a_run_that_fails_with_a_traceback_is_explained_by_its_last_lines() -> None:
    failure = found(f"{CRASH}wandb: run ended\n")
    assert (failure.kind, failure.what) == ("exception", "ValueError: no such data")
    assert failure.lines == (
        '  File "/w/train.py", line 9, in <module>',
        "    main()",
        '  File "/w/train.py", line 5, in main',
        '    raise ValueError("no such data")',
        "ValueError: no such data",
    )


def test_the_failure_reason_of_a_torchrun_run_is_the_exception_of_the_training_script() -> None:
    failure = found(TORCHRUN)
    assert failure.what == "KeyError: 'labels'"
    assert failure.lines[0] == '  File "/w/train.py", line 7, in <module>'


def test_a_traceback_far_above_the_end_of_a_log_is_not_the_reason_of_a_failure() -> None:
    failure = found(CRASH + "\n".join(f"epoch {n}" for n in range(40)) + "\nno such data\n")
    assert (failure.kind, failure.what, failure.lines[-1]) == ("unknown", "", "no such data")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (NEW, "on GPU 3: 20.00 GiB were asked for, 1.20 GiB were free of 79.15 GiB"),
        (MIDDLE, "on GPU 0: 16.00 MiB were asked for, 9.50 MiB were free of 23.65 GiB"),
        (OLD, "on GPU 1: 2.00 GiB were asked for, 1.13 GiB were free of 15.78 GiB"),
        (JAX, "memory: 85899345920 bytes were asked for"),
        ("RuntimeError: CUDA error: out of memory", "out of GPU memory"),
    ],
)
def test_a_gpu_out_of_memory_error_is_reported_with_the_memory_that_was_free(
    line: str, what: str
) -> None:
    failure = found(CRASH.replace("ValueError: no such data", line))
    assert failure.kind == "gpu-memory"
    assert failure.what.endswith(what)


def test_a_gpu_memory_error_that_the_program_survived_is_not_the_reason_of_a_failure() -> None:
    assert found(f"retrying after: {NEW}\n{CRASH}").kind == "exception"


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
