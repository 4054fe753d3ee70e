"""A program that is run without `subprocess`: what it is given, gets, and prints."""

import os

import pytest

from bootstrap.onbox.run_folder import names_in
from bootstrap.onbox.short_program import run

LARGE = b"x" * (1 << 20)


def test_a_program_called_on_a_box_can_read_and_print_megabytes_without_hanging() -> None:
    done = run(["sh", "-c", "tee /dev/fd/2"], {**os.environ}, LARGE)
    assert (done.code, done.output, done.errors) == (0, LARGE, LARGE)


def test_a_program_called_on_a_box_that_reads_no_input_gives_its_exit_code() -> None:
    assert run(["sh", "-c", "exit 3"], {**os.environ}, LARGE).code == 3


def test_a_program_called_on_a_box_inherits_no_lock_and_ends_at_sigpipe() -> None:
    lock, other = os.pipe()
    os.set_inheritable(lock, True)
    done = run(["sh", "-c", "kill -PIPE $$; echo late"], {**os.environ})
    assert (done.code, done.output) == (128 + 13, b"")
    done = run(["sh", "-c", f": <&{lock}"], {**os.environ})
    assert done.code, "it has the file"
    for file in (lock, other):
        os.close(file)


def test_calling_a_missing_program_on_a_box_raises_an_error_and_leaks_no_file() -> None:
    before = names_in("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        run(["no-such-program"], {**os.environ})
    assert len(names_in("/proc/self/fd")) == len(before)
