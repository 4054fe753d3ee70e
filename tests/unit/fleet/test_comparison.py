"""Runs side by side: which are meant, where they are found, and what the page says of them."""

import csv
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bootstrap.boxes import MetricCurve, Run
from bootstrap.errors import UsageError
from bootstrap.fleet.comparison import (
    ComparedRun,
    Comparison,
    as_csv,
    as_lines,
    compare_by,
    comparison_page,
    write_comparison,
)
from bootstrap.link import BoxOptions
from tests.box_programs import lay_programs
from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.unit.boxes.test_at_home import There, make_there
from tests.unit.runs.test_verdict_page import EVIL, parsed

RUN = Run("homework-1", "train-1", "finished", 0, 1000, "a" * 40, "w", "train", 0, 9, "python t.py")
RUN = replace(RUN, begun=1000, over=1100)
CHANGED = replace(RUN, snapshot="b" * 40)


def curve(name: str, *values: float, axis: str = "step") -> MetricCurve:
    points = [(10.0 * at, value) for at, value in enumerate(values)]
    return MetricCurve.model_validate({"name": name, "axis": axis, "points": tuple(points),
                                       "count": len(points)})  # fmt: skip


def compared(title: str, *curves: MetricCurve, **more: Any) -> ComparedRun:
    made = ComparedRun("", f"python t.py {title}", {}, "gpu", RUN, 100, 0.5, curves, title)
    return replace(made, **more)


def comparison(*results: ComparedRun) -> Comparison:
    return Comparison("these", results, *compare_by(None, results), "run")


def test_a_comparison_page_is_not_written_through_a_symlink_out_of_the_repo(tmp_path: Path) -> None:
    for folder in ("repo/.git", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "repo/out").symlink_to(tmp_path / "outside")
    report, page = comparison(compared("a")), tmp_path / "repo/out/page.html"
    with pytest.raises(UsageError, match="a link leads out of the repository"):
        write_comparison(BoxOptions(repo=tmp_path), report, page)
    assert not [*(tmp_path / "outside").iterdir()]


def test_a_comparison_page_names_the_run_of_least_final_loss_and_the_least_loss_ever() -> None:
    report = comparison(
        compared("a", curve("loss", 3, 0.25, 2), curve("acc", 0.5)),
        compared("b", curve("loss", 3, 2, 1), seconds=200, dollars=1.25, run=CHANGED),
    )
    text = comparison_page(report, str)
    seen = re.sub(r"\s+", " ", parsed(text).text)
    assert "these: 2 of 2 runs finished" in seen
    assert "Best by loss, least at the end: 1 of b" in seen
    assert "Least loss of all: 0.25 at step 10 of a (1 min 40 s, $0.50)" in seen
    assert "All runs: $1.75" in seen
    # One plot, drawn for two widths: what was logged once is a number in the table alone.
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == ["loss by step"]
    assert text.count('class="line"') == 4
    assert '<td data-name="acc">0.5</td>' in text
    assert text.count(f'<td data-name="commit">{"a" * 12}+</td>') == 1
    assert [row["commit"] for row in csv.DictReader(as_csv(report).splitlines())] == [
        "a" * 12, f"{'a' * 12}+",
    ]  # fmt: skip
    told = [json.loads(line) for line in as_lines(report).splitlines()]
    assert [(one["commit"], one["with_changes"]) for one in told] == [
        ("a" * 40, False), ("a" * 40, True),
    ]  # fmt: skip
    # On a phone a row is a block, in which each value is named.
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    assert [row.count("<td") for row in rows] == [row.count("<td data-name=") for row in rows]


def test_runs_compared_by_a_metric_that_is_no_loss_are_listed_by_highest_final_value() -> None:
    results = [compared("a", curve("acc", 0.9, 0.1)), compared("b", curve("acc", 0.2, 0.3))]
    report = comparison(*results)
    assert [one.words for one in report.ranked] == ["b", "a"]
    assert report.best_value is not None
    assert (report.best_value.of.words, report.best_value.value) == ("a", 0.9)
    # Of equals, one that succeeded.
    failed = replace(RUN, rc=1)
    same = [compared("c", curve("acc", 0.9, 0.3), run=failed), *results]
    report = comparison(*same)
    assert [one.words for one in report.ranked] == ["b", "c", "a"]
    assert report.best_value is not None
    assert report.best_value.of.words == "a"
    # The file of a sweep knows better.
    assert compare_by(None, results, "acc", least=True) == ("acc", True)


def test_curves_by_step_and_curves_by_time_are_drawn_in_separate_plots() -> None:
    text = comparison_page(
        comparison(
            compared("a", curve("loss", 2, 1)), compared("b", curve("loss", 3, 2, axis="seconds"))
        ),
        str,
    )
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == ["loss by step", "loss by time"]


def test_forty_compared_runs_get_distinct_lines_and_html_from_a_box_is_escaped() -> None:
    results = [compared(f"{EVIL}{at}", curve(EVIL, 2, 1)) for at in range(40)]
    text = comparison_page(comparison(*results), str)
    keys = re.findall(r'<li><svg[^>]*><line x2="20" y1="6" y2="6" (.*?)/>', text)
    assert len(keys) == len(set(keys)) == 40
    assert "<script" not in text
    cells = [replace(one, parameters={EVIL: EVIL + str(at)}) for at, one in enumerate(results)]
    assert "<script" not in comparison_page(comparison(*cells), str)


@pytest.fixture
def boxes() -> Iterator[list[LoopbackBox]]:
    made = [LoopbackBox(), LoopbackBox()]
    yield made
    for box in made:
        box.stop()


@pytest.mark.slow
def test_runs_of_a_live_box_and_a_pulled_run_of_a_dead_box_are_compared_on_one_page(
    user: User, boxes: list[LoopbackBox]
) -> None:
    first, second = boxes
    there = make_there(user, first, first.host_string)
    there.write("".join(f"step {at} loss {5 - at}\n" for at in range(4)).encode())
    log_of(there, "train-2", "step 0 loss 9\nstep 1 loss 0.5\nstep 2 loss 4\nacc 0.75\n")
    log_of(there, "train-3", "step 0 loss 1\nstep 1 loss 1\n", second)
    there.do("status").must(0)
    gone = ("--host", second.host_string, "--identity", str(second.identity))
    user.run("pull", *gone).must(0)
    second.kill_sshd()
    told = user.run(
        "report", "train-1", "train-2", "train-3", "--json", "--identity", str(first.identity)
    ).must(0)
    found = told.json()
    assert [one["run"] for one in found["runs"]] == ["train-1", "train-2", "train-3"]
    assert (found["metric"], found["best"]["run"]) == ("loss", "train-3")
    assert {name: found["best_value"][name] for name in ("run", "value", "at", "axis")} == {
        "run": "train-2", "value": 0.5, "at": 1.0, "axis": "step",
    }  # fmt: skip
    assert "was not asked" in told.out
    page = Path(found["report"])
    assert page.parent == there.root / "boxstrap-results/compared"
    assert page.read_text().count('class="line"') == 6
    rows = [*csv.DictReader(Path(found["csv"]).read_text().splitlines())]
    assert [row["least loss"] for row in rows] == ["2.0", "0.5", "1.0"]
    lines = Path(found["lines"]).read_text().splitlines()
    assert [json.loads(line)["metrics"]["loss"] for line in lines] == [2.0, 4.0, 1.0]

    # A forgotten box's name may be another machine's by now.
    user.run("boxes", "--forget", found["runs"][2]["box"]).must(0)
    there_too = user.run("report", "train-1", "train-3", "--identity", str(first.identity)).must(0)
    assert "was not asked" not in there_too.err

    assert (
        "no run has a metric 'x'"
        in there.do("report", "train-1", "train-2", "--metric=x").must(2).err
    )
    assert "no run train-9" in user.run("report", "train-1", "train-9").must(2).err
    log_of(there, "train-3", "loss 3\n")
    there.do("status").must(0)
    asked = user.run("report", "train-1", "train-3").must(2).err
    assert asked.count("/train-3") == 2
    # What was logged once is a number of the report of its own, too.
    alone = there.do("report", "train-2", "--json").must(0).json()["report"]
    text = Path(alone).read_text()
    assert "<dt>acc</dt><dd>0.75 after" in text
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text)[0] == "loss by step"
    assert "least 0.5 at step 1" in text


def log_of(there: There, name: str, log: str, box: LoopbackBox | None = None) -> None:
    """Put another run on the box, or on another one."""
    folder = there.run.parent
    if box:
        folder = Path(box.home, ".boxstrap/runs", there.run.parent.name)
        folder.mkdir(parents=True)
        lay_programs(folder.parents[1] / "box/current")
    shutil.copytree(there.run, folder / name)
    (folder / name / "log").write_text(log)
