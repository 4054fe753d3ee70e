"""The engine reads what steps report through a pipe, however it arrives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox import MAIN
from bootstrap.steps.shell import shell_part

pytestmark = pytest.mark.slow

PARTS = ("base", "events", "process", "lock", "engine")
# A setup of two steps, `b` after `a`, and nothing else.
RIG = f"""
set -eu
STEPS=(a b)
declare -A NEEDS=([a]='' [b]='a')
BOX_HOME=$PWD ONBOX={MAIN}
SETUP_ID=20260101-000000-abcdef SETUP_DIR=$PWD SETUP_EXIT=0 SEQ=0 TRAIN_GRACE=10 MISSING=' '
mkdir -p logs
mkfifo pipe
exec 3<>pipe
"""


def run(folder: Path, steps: str) -> tuple[list[tuple[str, str]], str]:
    """Return the events of the steps that `steps` starts, and the exit code with any errors."""
    library = "".join(shell_part("lib", name) for name in PARTS)
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", f"{library}\n{RIG}\n{steps}\nrun_graph; echo $SETUP_EXIT"],
        capture_output=True,
        cwd=folder,
        text=True,
        timeout=120,
        check=False,
    )
    lines = (folder / "events.jsonl").read_text().splitlines()
    events = [(line["step"], line["event"]) for line in map(json.loads, lines)]
    return events, done.stdout.strip() + done.stderr


# What a step's shell prints about a killed child goes into a log, as in the engine.
START = "start_step() {{ STATE[$1]=running; ( {body} ) >log 2>&1 & CHILD[$1]=$!; }}"


@pytest.mark.parametrize("pieces", [("{}", " ok\n"), ("{} ", "ok\n"), ("{} ok", "\n")])
def test_the_report_of_a_setup_step_that_arrives_in_pieces_is_read_whole(
    pieces: tuple[str, str], tmp_path: Path
) -> None:
    """On a busy box, more than a second may pass between two bytes of a line."""
    first, second = (piece.format("'$1'").replace("\n", "\\n") for piece in pieces)
    body = f"printf '{first}' >&3; sleep 1.4; printf '{second}' >&3"
    events, end = run(tmp_path, START.format(body=body))
    assert (events, end) == ([("a", "ok"), ("b", "ok")], "0")


def test_a_setup_step_that_dies_unreported_gives_one_fail_event_and_exit_code_7(
    tmp_path: Path,
) -> None:
    events, end = run(tmp_path, START.format(body="exit 1"))
    assert (events, end) == ([("a", "fail")], "7")


def test_a_late_ok_of_a_failed_setup_step_is_ignored_and_exit_code_7_stays(tmp_path: Path) -> None:
    body = "(sleep 5; printf 'a ok\\n' >&3) & if [ $1 = a ]; then exit; fi; sleep 6"
    late = f"{START.format(body=body)}\nSTEPS=(a c)\nNEEDS[c]=''"
    events, end = run(tmp_path, late)
    assert events[0] == ("a", "fail")
    assert end == "7"


def test_a_failing_setup_step_ends_other_running_steps_without_their_events(tmp_path: Path) -> None:
    fails = "until [ -s pid ]; do sleep 0.1; done; printf 'a fail code=killed rc=1\\n' >&3"
    # Longer than `run` waits.
    body = f"if [ $1 = a ]; then {fails}; else echo $BASHPID >pid; sleep 150; fi"
    events, end = run(tmp_path, f"{START.format(body=body)}\nNEEDS[b]=''")
    assert (events, end) == ([("a", "fail")], "7")
