"""What a run's results are: whose word counts for that, and what its record of them proves."""

import json
import os
from pathlib import Path

import pytest

from bootstrap.onbox.results.copies import FOREVER
from bootstrap.onbox.results.keep_results import begin, end, note_before, status
from bootstrap.onbox.results.run_results import (
    HOME,
    MADE,
    OwnResults,
    RunResults,
    digest_of,
    write_files,
)
from bootstrap.onbox.run_folder import RunFolder
from bootstrap.onbox.runs.resume import has_results


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
def test_what_no_pull_can_bring_is_named_only_for_the_run_that_made_it(tmp_path: Path) -> None:
    """Pulls of all later runs in the tree failed for it, and so did the box's end."""
    runs, out = [], tmp_path / "out"
    out.mkdir()
    odd = os.fsdecode(b"\xff")
    for number, makes in enumerate(["host", odd, "gone"], 1):
        place = tmp_path / f"box/runs/k/train-{number}"
        place.mkdir(parents=True)
        run = RunResults(str(place), str(tmp_path), ["out"])
        for name, text in {"dir": str(tmp_path), "results": "out/"}.items():
            (place / name).write_text(f"{text}\n")
        note_before(run)
        (place / "pid").write_text("1 1 x\n")
        os.utime(place / "pid", ns=(number, number))
        (out / f"made-{number}").write_text("x")
        if makes == odd:
            (out / odd).write_text("four")
        else:
            (out / makes).symlink_to("/etc/hostname" if makes == "host" else "nowhere")
        (place / "exit").write_text("0\n")
        end(run)
        runs.append(run)
    looks = [OwnResults(run, 0.0).look(live=False).left_out for run in runs]
    assert looks == [[("out/host", "outside")], [(f"out/{odd}", "name")], [("out/gone", "dead")]]
    # `status` counts a result whose name can't come: it is there until it is let go of.
    counts = [(each["files"], each["bytes"]) for each in status(str(tmp_path / "box"))]
    assert sorted(counts) == [(1, 1), (1, 1), (2, 5)]
    runs[1].note_let_go([f"out/{odd}"])
    assert [each["files"] for each in status(str(tmp_path / "box"))] == [1, 1, 1]
    (out / "host").unlink()
    (out / "host").symlink_to("/etc/passwd")  # by the last one, or its user
    looks = [OwnResults(run, 0.0).look(live=False).left_out for run in runs]
    assert looks == [[], [], [("out/gone", "dead"), ("out/host", "outside")]]  # one is let go of


class SharedTree:
    """A tree in which runs begin and end one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self._count = folder, folder / "out", 0
        self.out.mkdir()

    def run(self, resumes: str = "", **makes: str) -> RunResults:
        """Let one begin, write these files of `out/`, and fail."""
        self._count += 1
        place = self.folder / f"box/runs/k/train-{self._count}"
        place.mkdir(parents=True)
        notes = {"dir": str(self.folder), "results": "out/", "resumes": resumes}
        for name, text in notes.items():
            if text:
                (place / name).write_text(f"{text}\n")
        run = RunResults(str(place))
        assert begin(run, "begin", FOREVER) == 0
        self.found = self.files()
        (place / "pid").write_text("1 1 x\n")
        os.utime(place / "pid", ns=(self._count, self._count))
        for name, text in makes.items():
            (self.out / name).write_text(text)
        (place / "exit").write_text("1\n")
        end(run)
        return run

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.out.iterdir()}


@pytest.mark.slow
def test_a_resumed_run_begins_with_its_own_checkpoints_after_another_run_wrote_there(
    tmp_path: Path,
) -> None:
    tree = SharedTree(tmp_path)
    tree.run(ckpt="mine 1", first="mine")
    tree.run(resumes="k/train-1", ckpt="mine 2")
    other = tree.run(ckpt="other's", first="other's", more="other's")
    (tree.out / "note").write_text("by hand")
    tree.run(resumes="k/train-2")
    assert tree.found == {"ckpt": "mine 2", "first": "mine", "note": "by hand"}
    assert sorted(path.name for path in Path(other.path, "results.kept/out").iterdir()) == [
        "ckpt", "first", "more"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_run_whose_overwritten_checkpoint_is_only_at_home_is_not_resumed(tmp_path: Path) -> None:
    tree = SharedTree(tmp_path)
    mine = tree.run(ckpt="mine")
    assert has_results(RunFolder(mine.path))
    Path(mine.path, HOME).write_text(digest_of(mine.made() or {}))
    tree.run(ckpt="other's")
    assert not has_results(RunFolder(mine.path))
