"""What a run's results are: whose word counts for that, and what its record of them proves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bootstrap.onbox.results.keep_results import end, note_before
from bootstrap.onbox.results.run_results import MADE, OwnResults, RunResults, write_files


@pytest.mark.parametrize(
    ("rank", "noted", "results"),
    [
        ("", "", ["asked/"]),
        ("", "own/\n", ["own/"]),
        ("0\n", "", ["asked/"]),
        ("1\n", "", []),
        ("1\n", "own/\n", ["own/"]),
    ],
)
def test_a_run_on_a_node_other_than_0_has_results_only_if_it_recorded_result_paths(
    tmp_path: Path, rank: str, noted: str, results: list[str]
) -> None:
    """What it wrote would be taken for results of every run in its tree."""
    run = tmp_path / "homework/train-1"
    (run / "nodes").mkdir(parents=True)
    for name, text in {"nodes/rank": rank, "results": noted}.items():
        if text:
            (run / name).write_text(text)
    assert RunResults(str(run), str(tmp_path), ["asked/"]).results == results


@pytest.mark.parametrize(
    ("boot", "ago", "why"),
    [("", 3, ""), ("", 1, "young"), ("other", 3, "young"), (None, 0, "young")],
)
def test_pull_does_not_wait_two_seconds_for_results_unchanged_since_their_run_ended(
    tmp_path: Path, boot: str | None, ago: float, why: str
) -> None:
    """Each of many small runs would cost two seconds, though nothing has changed for days."""
    result, run = (
        tmp_path / "out/a",
        RunResults(str(tmp_path / "k/train-1"), str(tmp_path), ["out"]),
    )
    result.parent.mkdir()
    result.write_text("x")
    os.utime(result, ns=(0, 0))
    (tmp_path / "k/train-1").mkdir(parents=True)
    (tmp_path / "k/train-1/exit").write_text("0\\n")
    made = tmp_path / "k/train-1" / MADE
    assert write_files(str(made), run.find())
    document = json.loads(made.read_text())
    here, at = document.pop("at")
    if boot is not None:  # earlier versions noted none
        document["at"] = (boot or here, at - ago)
    made.write_text(json.dumps(document))
    (file, _), *_ = OwnResults(run, 2.0).look(live=False).files
    assert (file.path, file.why.replace("closed", "young")) == ("out/a", why)
    result.write_text("y")
    assert not [one for one in OwnResults(run, 2.0).look(live=False).files if not one.file.why]


@pytest.mark.slow
def test_a_symlink_out_of_the_results_is_named_only_for_the_run_that_made_it(
    tmp_path: Path,
) -> None:
    """Pulls of all later runs in the tree failed for it, and so did the box's end."""
    runs, out = [], tmp_path / "out"
    out.mkdir()
    for number, makes in enumerate(["host", "", "gone"], 1):
        place = tmp_path / f"box/runs/k/train-{number}"
        place.mkdir(parents=True)
        run = RunResults(str(place), str(tmp_path), ["out"])
        for name, text in {"dir": str(tmp_path), "results": "out/"}.items():
            (place / name).write_text(f"{text}\n")
        note_before(run)
        (place / "pid").write_text("1 1 x\n")
        os.utime(place / "pid", ns=(number, number))
        (out / f"made-{number}").write_text("x")
        if makes:
            (out / makes).symlink_to("/etc/hostname" if makes == "host" else "nowhere")
        (place / "exit").write_text("0\n")
        end(run)
        runs.append(run)
    looks = [OwnResults(run, 0.0).look(live=False).left_out for run in runs]
    assert looks == [[("out/host", "outside")], [], [("out/gone", "dead")]]
    (out / "host").unlink()
    (out / "host").symlink_to("/etc/passwd")  # by the last one, or its user
    looks = [OwnResults(run, 0.0).look(live=False).left_out for run in runs]
    assert looks == [[], [], [("out/gone", "dead"), ("out/host", "outside")]]
