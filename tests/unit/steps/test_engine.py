"""The engine reads what steps report through a pipe, however it arrives."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.onbox.setup.events import SetupEvents
from bootstrap.onbox.setup.graph import StepGraph
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Do = Callable[[str, int], None]


class TwoSteps:
    """A setup of two steps, `b` after `a`, and nothing else."""

    def __init__(self, **needs: str) -> None:
        self._needs = needs
        self.steps, self.grace_s = [*needs], 10.0

    def needs(self, step: str) -> list[str]:
        return self._needs[step].split()


def run(folder: Path, do: Do, **needs: str) -> tuple[list[tuple[str, str]], int]:
    """Return the events of the steps, and the exit code."""
    wanted = TwoSteps(**(needs or {"a": "", "b": "a"}))
    code = StepGraph(wanted, SetupEvents(str(folder), "20260101-000000-abcdef"), do).run()
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [(line["step"], line["event"]) for line in map(json.loads, lines)], code


@pytest.mark.parametrize("pieces", [("{}", " ok\n"), ("{} ", "ok\n"), ("{} ok", "\n")])
def test_the_report_of_a_setup_step_that_arrives_in_pieces_is_read_whole(
    pieces: tuple[str, str], tmp_path: Path
) -> None:
    """On a busy box, more than a second may pass between two bytes of a line."""

    def do(step: str, events: int) -> None:
        os.write(events, pieces[0].format(step).encode())
        time.sleep(1.4)
        os.write(events, pieces[1].encode())

    assert run(tmp_path, do) == ([("a", "ok"), ("b", "ok")], 0)


def test_a_setup_step_that_dies_unreported_gives_one_fail_event_and_exit_code_7(
    tmp_path: Path,
) -> None:
    assert run(tmp_path, lambda *_: None) == ([("a", "fail")], 7)


def test_a_late_ok_of_a_failed_setup_step_is_ignored_and_exit_code_7_stays(tmp_path: Path) -> None:
    def do(step: str, events: int) -> None:
        if step == "c":
            time.sleep(6)
        elif not os.fork():
            time.sleep(5)
            os.write(events, b"a ok\n")

    events, code = run(tmp_path, do, a="", c="")
    assert (events[0], code) == (("a", "fail"), 7)


def test_a_failing_setup_step_ends_other_running_steps_without_their_events(tmp_path: Path) -> None:
    def do(step: str, events: int) -> None:
        if step == "a":
            wait_until((tmp_path / "b").exists, lambda: "b never began")
            os.write(events, b"a fail code=killed rc=1\n")
        else:
            (tmp_path / "b").touch()
            time.sleep(150)  # longer than a test may take

    assert run(tmp_path, do, a="", b="") == ([("a", "fail")], 7)
