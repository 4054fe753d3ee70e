"""The same work on several boxes: in parallel, bounded, and one failure stops no other."""

import threading

import pytest

from bootstrap.errors import (
    BoxesFailedError,
    BoxstrapError,
    TrainingFailedError,
    UnreachableError,
    UsageError,
    exit_code,
)
from bootstrap.fleet.fan_out import Outcome, fan_out, raise_for_failures

HOSTS = ["a", "b", "c", "d"]


def test_a_command_for_several_boxes_finishes_the_others_if_a_box_fails_in_host_order() -> None:
    ended: list[str] = []

    def work(host: str) -> str:
        if host == "b":
            raise UnreachableError("it is dead.")
        return host.upper()

    found = fan_out(HOSTS, work, done=lambda one: ended.append(one.host))
    assert [one.value for one in found] == ["A", None, "C", "D"]
    assert [type(one.error) for one in found] == [type(None), UnreachableError, *[type(None)] * 2]
    assert sorted(ended) == HOSTS


def test_a_command_for_six_boxes_with_a_limit_of_three_works_on_three_at_a_time() -> None:
    together = threading.Barrier(3, timeout=10)
    most, now, lock = 0, 0, threading.Lock()

    def work(_: str) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        together.wait()
        with lock:
            now -= 1

    fan_out(["1", "2", "3", "4", "5", "6"], work, at_once=3)
    assert most == 3


def test_an_internal_error_for_one_box_is_raised_after_all_other_boxes_ended() -> None:
    ended: list[str] = []

    def work(host: str) -> None:
        if host == "a":
            raise ZeroDivisionError
        ended.append(host)

    with pytest.raises(ZeroDivisionError):
        fan_out(HOSTS, work)
    assert sorted(ended) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ([None, UnreachableError("x")], 3, "1 of 2 boxes failed: b"),
        ([UnreachableError("x"), UnreachableError("y")], 3, "2 of 2 boxes failed: a, b"),
        ([UnreachableError("x"), UsageError("y"), None], 7, "2 of 3 boxes failed: a, b"),
        ([TrainingFailedError("x")], 10, "1 of 1 boxes had a failed run: a"),
    ],
)
def test_a_command_for_several_boxes_exits_with_7_unless_all_failures_have_one_exit_code(
    errors: list[BoxstrapError | None], code: int, said: str
) -> None:
    outcomes = [
        Outcome[None](host, error=error) for host, error in zip("abc", errors, strict=False)
    ]
    with pytest.raises(BoxesFailedError, match=said) as failed:
        raise_for_failures(outcomes)
    assert exit_code(failed.value) == code


def test_a_command_for_several_boxes_without_a_failure_exits_with_0() -> None:
    raise_for_failures([Outcome[None]("a")])
