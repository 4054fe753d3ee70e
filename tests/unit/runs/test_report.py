"""The report of a run: what the box's program reads of it, and the page made from that."""

import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bootstrap.boxes import Failure, Run, read_verdict
from bootstrap.boxes.at_home import PullPlace
from bootstrap.boxes.run_history import MetricCurve, RunHistory, SampledGpu, SampleHead, ask_history
from bootstrap.errors import BoxLacksError
from bootstrap.link import LocalWire, NoAnswer
from bootstrap.onbox.report.run_history import MOST_LOG, MOST_POINTS, CurveReader, pieces
from bootstrap.onbox.results.run_results import MADE, RunResults, write_files
from bootstrap.runs.report import (
    ReportedFile,
    RunReport,
    machine_plots,
    metric_plots,
    read_results,
    report_page,
    step_bars,
)
from bootstrap.steps.shell import ONBOX
from bootstrap.transfer.destination import MANIFEST
from bootstrap.ui.plots import Plot, PlotLine
from tests.logins import login_on
from tests.programs import captured
from tests.unit.boxes.test_verdict import document, gpu, reason, row
from tests.unit.runs.test_verdict_page import EVIL, parsed

RUN = Run("homework-1", "train-1", "finished", 0, 1000, "a" * 40, "w", "train", 0, 9, "python t.py")
RUN = replace(RUN, begun=1000, over=1100)
HEAD = {
    "v": 1,
    "cpus": 8,
    "memory_total": 64 * 2**30,
    "gpus": [
        {"index": at, "name": "A100", "memory_total": 80 * 2**30, "power_limit": 400.0}
        for at in range(2)
    ],
}
SAMPLES = [
    [1000 + 10 * at, 50.0 + at, 2**33, [[97, 2**36, 390.5, 61], [3, 2**20, 50.0, None]]]
    for at in range(10)
]
Lay = Callable[..., RunHistory]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Put a run into a folder of this machine, and ask for its history as on a box."""
    program = tmp_path / ".boxstrap/box/current"
    program.mkdir(parents=True)
    (program / "onbox").symlink_to(ONBOX)

    def make(log: str | bytes, redact: Sequence[str] = (), **files: str) -> RunHistory:
        folder = tmp_path / ".boxstrap/runs/homework-1/train-1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log").write_bytes(log if isinstance(log, bytes) else log.encode())
        for name, text in {"started": "1000", **files}.items():
            (folder / name).write_text(text)
            os.utime(folder / name, (1000, 1000))
        wire = LocalWire()
        try:
            return ask_history(login_on(wire, str(tmp_path), redact), RUN)
        finally:
            wire.close()

    return make


def curves(history: RunHistory) -> Mapping[str, MetricCurve]:
    return {curve.name: curve for curve in history.curves}


def test_the_values_of_each_metric_in_a_log_on_the_box_become_a_curve_by_step(lay: Lay) -> None:
    lines = [f"step {n} loss {1 / (n + 1):.5f} lr=1e-3\n" for n in range(50)]
    bars = "step 50 loss nan\rstep 51 lr=1e-3\r\n"  # a progress bar's lines
    found = curves(lay("start\n" + "".join(lines) + bars))
    loss = found["loss"]
    assert (loss.axis, loss.count, loss.odd) == ("step", 51, 50.0)
    assert loss.points[:2] == ((0.0, 1.0), (1.0, 0.5))
    assert found["lr"].points[-2:] == ((49.0, 0.001), (51.0, 0.001))


def test_metrics_without_a_step_are_plotted_by_the_times_of_the_log(lay: Lay) -> None:
    log = "loss 3\nloss 2\nloss 1\n"
    history = lay(log, pid="1 1 x\n", times="1000 0\n1005 7\n1050 14\n1099 21\n")
    (loss,) = history.curves
    assert (loss.axis, loss.points) == ("seconds", ((5.0, 3.0), (50.0, 2.0), (99.0, 1.0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "axis"),
    [
        (["epoch 1 loss 2", "epoch 2 loss 1"], "epoch"),
        (["epoch 1 step 1 loss 2", "epoch 1 step 2 loss 1"], "step"),
        (["step 1 loss 2", "step 1 loss 3", "step 2 loss 1"], "step"),
        (["epoch 1 step 9 loss 2", "epoch 2 step 1 loss 1"], "epoch"),
        (["epoch 1 loss 2", "epoch 1 loss 1"], "seconds"),
        (["step 1 loss 2", "loss 1"], "seconds"),
    ],
)
def test_the_x_axis_of_a_metric_curve_is_epoch_step_or_time(
    lay: Lay, lines: list[str], axis: str
) -> None:
    (loss,) = lay("\n".join(lines) + "\n").curves
    assert loss.axis == axis


def test_a_metric_curve_of_many_values_is_reduced_to_few_points() -> None:
    curve = CurveReader("loss")
    for step in range(100_001):
        curve.add(step, {"step": float(step), "loss": float(step)})
    told = curve.as_dict()
    assert told["count"] == 100_001
    assert 400 < len(told["points"]) <= MOST_POINTS
    assert all(abs(x - value) < 0.01 for x, value in told["points"]), "a mean lies at its place"
    assert told["points"][-1][0] > 99_000


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_report_reads_a_log_above_its_limit_in_pieces_of_whole_lines(
    tmp_path: Path, end: str
) -> None:
    line = "step {:09d} loss 0.5 ".ljust(199, "x") + end
    log = tmp_path / "log"
    log.write_bytes("".join(line.format(at) for at in range(70_000)).encode())
    assert log.stat().st_size > 2 * MOST_LOG
    read = [piece.replace(b"\n\n", b"\n").splitlines() for _, piece in pieces(log, 0)]
    lines = [each for piece in read for each in piece if each]
    assert {len(each) for each in lines} == {199 + 3}
    assert MOST_LOG * 0.9 < sum(map(len, lines)) <= MOST_LOG
    assert int(lines[0][5:14]) == 0
    assert int(lines[-1][5:14]) > 69_990


def test_report_skips_the_dropped_part_of_a_log_without_reading(lay: Lay, tmp_path: Path) -> None:
    lay("step 1 loss 1\n")
    file = tmp_path / ".boxstrap/runs/homework-1/train-1/log"
    with file.open("r+b") as opened:
        opened.truncate(10**10)
        opened.seek(10**10)
        opened.write(b"loss 7\n" * 9)
    (file.parent / "times").write_text(f"1000 {10**10}\n")
    wire = LocalWire()
    again = ask_history(login_on(wire, str(tmp_path)), RUN)
    wire.close()
    assert (again.read, again.of) == (63, 63)
    assert [value for _, value in again.curves[0].points] == [7.0] * 9


def test_a_report_shows_gpu_samples_setup_and_results_of_no_other_run(
    lay: Lay, tmp_path: Path
) -> None:
    setups = tmp_path / ".boxstrap/setups"
    for name, begun, key in (
        ("20260101-000000-aaaaaa", 900, "homework-1"),
        ("20260101-000000-bbbbbb", 2000, "homework-1"),
        ("20260101-000000-cccccc", 950, "another-1"),
    ):
        (setups / name).mkdir(parents=True)
        (setups / name / "events.jsonl").write_text(events(name, begun))
        (setups / name / "key").write_text(f"{key}\n")
    (tmp_path / "homework/out").mkdir(parents=True)
    (tmp_path / "homework/out/model.pt").write_bytes(b"12345")
    (tmp_path / "homework/out/link").symlink_to("/etc/passwd")
    (tmp_path / os.fsdecode(b"homework/out/bad\xff")).write_bytes(b"1")
    run, names = tmp_path / ".boxstrap/runs/homework-1/train-1", ("out/",)
    run.mkdir(parents=True)
    write_files(str(run / MADE), RunResults(str(run), f"{tmp_path}/homework", names).find())
    (tmp_path / "homework/out/later.pt").write_bytes(b"1")
    samples = "\n".join(json.dumps(each) for each in (HEAD, *SAMPLES, "cut"))[:-3]
    history = lay("", samples=samples, dir=f"{tmp_path}/homework\n", results="out/\nnone/\n")
    head, rows = history.read_samples()
    assert head.gpus[0].name == "A100"
    assert len(rows) == 10
    assert history.results == (("out/model.pt", 5),)
    assert {event.setup for event in history.read_events()} == {"20260101-000000-aaaaaa"}


def events(setup: str, begun: float) -> str:
    base = {"v": 1, "setup": setup}
    rows = [
        {"seq": 1, "t": begun, "step": "preflight", "event": "start", "why": "new"},
        {"seq": 2, "t": begun + 1, "step": "preflight", "event": "ok"},
        {"seq": 3, "t": begun + 1, "step": "python", "event": "start", "why": "new"},
        {"seq": 4, "t": begun + 1, "step": "repo", "event": "skip", "why": "done"},
        {"seq": 5, "t": begun + 9, "step": "python", "event": "fail", "code": "build-failed"},
        {"seq": 6, "t": begun + 10, "step": "setup", "event": "done", "rc": 7},
    ]
    return "".join(json.dumps({**base, **each}) + "\n" for each in rows)


def test_the_setup_steps_are_drawn_as_bars_in_the_report() -> None:
    bars = {
        bar.step: bar for bar in step_bars(RunHistory(events=tuple(events("s", 5).split("\n"))))
    }
    assert (bars["preflight"].start, bars["preflight"].width) == (0, 10)
    assert (bars["python"].start, bars["python"].width) == (10, 80)
    assert (bars["python"].state, bars["python"].took) == ("failed", "8.0 s")
    assert (bars["repo"].state, bars["repo"].width) == ("skipped", 0)


def test_a_report_lists_the_uncommitted_changes_of_its_run(lay: Lay, tmp_path: Path) -> None:
    store = tmp_path / ".boxstrap/store/homework-1.git"
    work = tmp_path / "work"

    def git(*words: str) -> str:
        command = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return captured(command).stdout.strip()

    work.mkdir()
    git("init", "-q")
    (work / "train.py").write_text("one\n")
    git("add", "-A")
    git("commit", "-qm", "Train <b>more</b>")
    commit = git("rev-parse", "HEAD")
    (work / "train.py").write_text("two\nthree\n")
    (work / "new.py").write_text("x\n")
    git("add", "-A")
    git("commit", "-qm", "snapshot")
    snapshot = git("rev-parse", "HEAD")
    subprocess.run(["git", "clone", "-q", "--bare", work, store], check=True)
    history = lay("", commit=f"{commit}\n", snapshot=f"{snapshot}\n")
    assert history.subject == "Train <b>more</b>"
    assert history.changes == ("1 0 new.py", "2 1 train.py")


def test_report_raises_an_error_that_says_no_sense_at_a_senseless_answer_of_a_box(
    lay: Lay, tmp_path: Path
) -> None:
    (tmp_path / ".boxstrap/agent/bin").mkdir(parents=True)
    python = tmp_path / ".boxstrap/agent/bin/python"
    for answer, said in (
        ('{"curves": 3}', "no sense"),
        ("[" * 9999, "no sense"),
        ('{"curves":[{"name":"a","axis":"step"}]}', "no sense"),
        ("", "missing, or of another version"),
    ):
        python.write_text(f"#!/bin/sh\necho '{answer}'\n")
        python.chmod(0o755)
        with pytest.raises((NoAnswer, BoxLacksError), match=said):
            lay("")


def test_the_box_redacts_a_secret_in_the_name_of_a_metric_before_it_sends_curves(
    lay: Lay, tmp_path: Path
) -> None:
    (tmp_path / ".boxstrap/secrets").write_bytes(b"TOKEN=hunter22abc\0")
    (tmp_path / ".boxstrap/agent/bin").mkdir(parents=True)
    (tmp_path / ".boxstrap/agent/bin/python").symlink_to(
        captured(["sh", "-c", "command -v python3"]).stdout.strip()
    )
    history = lay("hunter22abc/loss 3\n", redact=["TOKEN"])
    assert "hunter22" not in history.model_dump_json()
    assert "hidden" in history.curves[0].name


def test_metrics_of_one_kind_share_a_plot_in_the_report() -> None:
    names = ["lr", "train_loss", "val_loss", "accuracy", *(f"x{n}" for n in range(20))]
    plots, left_out = metric_plots([curve(name) for name in names])
    assert [plot.title for plot in plots[:3]] == [
        "train_loss, val_loss by step",
        "lr by step",
        "accuracy by step",
    ]
    assert (len(plots), left_out) == (12, 11)
    (bad,), _ = metric_plots([curve("loss", odd=700.0, count=5000)])
    assert "became nan or inf at step 700" in bad.note
    assert "5,000 values" in bad.note
    assert "By time" not in bad.note
    (timed,), _ = metric_plots([curve("loss", axis="seconds")])
    assert "By time, since not each of its lines has a step" in timed.note


def curve(name: str, **more: Any) -> MetricCurve:
    return MetricCurve(name=name, points=((0, 1), (9, 0.5)), **{"axis": "step", "count": 2, **more})


def test_the_report_plots_load_and_memory_of_only_the_gpus_assigned_to_its_run() -> None:
    history = RunHistory(samples=tuple(map(json.dumps, (HEAD, *SAMPLES))))
    head, rows = history.read_samples()
    plots = {plot.title: plot for plot in machine_plots(head, rows, RUN)}
    assert [line.name for line in plots["GPU load"].lines] == ["GPU 0", "GPU 1"]
    assert plots["GPU memory"].lines[0].points[:2] == [(0, 64.0), (10, 64.0)]
    assert plots["Memory"].lines[0].points[0] == (0, 8.0)
    given = {plot.title: plot for plot in machine_plots(head, rows, replace(RUN, gpus="1"))}
    assert [line.name for line in given["GPU load"].lines] == ["GPU 1"]
    assert given["GPU temperature" if "GPU temperature" in given else "GPU power"].lines
    assert machine_plots(head, [], RUN) == []


def test_each_line_of_a_report_plot_has_its_own_colour_in_the_legend() -> None:
    drawn = Plot("x", [PlotLine(str(n), [(0, n), (1, n)]) for n in range(12)]).drawn()
    keys = re.findall(r'<line [^>]*stroke="(#\w+)" stroke-dasharray="(.*?)"', drawn)
    lines = re.findall(r'class="line"[^>]*stroke="(#\w+)"[^>]*stroke-dasharray="(.*?)"', drawn)
    assert len({*keys}) == 12
    assert lines == keys * 2  # for wide and for narrow screens


def test_the_axis_of_a_report_plot_has_round_numbers() -> None:
    plot = Plot("x", [PlotLine("a", [(0, 0.13), (299, 0.97)])], unit=" %")
    svg = ElementTree.fromstring(plot.svg((430, 180)))
    assert [one.text for one in svg.iter("text")] == [
        *("0.2 %", "0.4 %", "0.6 %", "0.8 %", "0", "100", "200")
    ]
    for one in svg.iter("text"):
        assert 0 < float(one.attrib["x"]) < 430
        assert 0 < float(one.attrib["y"]) < 180


def hostile() -> RunReport:
    verdict = document(
        verdict="return",
        reasons=[reason(check=EVIL, says=EVIL, advice=EVIL)],
        gpus=[gpu(0, name=EVIL)],
        checks=[row(EVIL, 0, "return", EVIL, EVIL, EVIL)],
    )
    said = {
        "curves": [{"name": EVIL, "axis": "step", "points": [[0, 1], [1, 2]], "count": 2}],
        "subject": EVIL,
        "changes": [f"1 2 {EVIL}"],
        "samples": [
            json.dumps({**HEAD, "gpus": [{"index": 0, "name": EVIL}]}),
            *map(json.dumps, SAMPLES),
        ],
        "events": events("20260101-000000-aaaaaa", 900).splitlines(),
    }
    run = replace(
        RUN, command=EVIL, commit=EVIL, snapshot=EVIL, state="finished", rc=1, tree=EVIL, name=EVIL
    )
    return RunReport(
        EVIL,
        EVIL,
        run,
        1200,
        RunHistory.model_validate_json(json.dumps(said)),
        read_verdict(json.dumps(verdict).encode()),
        Failure("unknown", EVIL, lines=(EVIL,)),
        [ReportedFile(EVIL, 5, EVIL)],
    )


def test_html_and_links_from_a_hostile_box_are_plain_text_in_the_report() -> None:
    text = report_page(hostile())
    seen, plain = parsed(text), parsed(report_page(report()))
    assert set(seen.tags) - set(plain.tags) <= {"pre", "ol", "li"}
    assert "script" not in seen.tags
    assert not {name for name, _ in seen.attributes if name.startswith("on") or name == "href"}
    assert {name for name, _ in seen.attributes} <= {name for name, _ in plain.attributes}
    assert seen.text.count("<script>alert(1)</script>") > 10
    assert "{{ 7*7 }}" in seen.text
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    for word in ("http://", "https://", "url(", "@import", "<link", "<iframe", "<script"):
        assert word not in text, word


def report(**more: Any) -> RunReport:
    history = RunHistory(
        curves=(curve("loss"),),
        samples=tuple(map(json.dumps, (HEAD, *SAMPLES))),
        events=tuple(events("20260101-000000-aaaaaa", 900).splitlines()),
        changes=("2 1 train.py",),
        subject="Train more",
    )
    run = replace(RUN, snapshot="b" * 40)
    found = [ReportedFile("out/model.pt", 5, "c" * 64)]
    verdict = read_verdict(json.dumps(document()).encode())
    return replace(RunReport("gpu", "homework", run, 1200, history, verdict, None, found), **more)


def test_the_report_page_shows_all_known_facts_of_a_run_redacted() -> None:
    text = report_page(report())
    seen = re.sub(r"\s+", " ", parsed(text).text)
    for part in (
        "train-1 finished",
        "python t.py",
        "1970-01-01 00:16:40 UTC",
        "1 min 40 s",
        "aaaaaaaaaaaa Train more with changes on it: snapshot bbbbbbbbbbbb",
        "2 A100: 50 % busy on average; at most 64.0 of 80.0 GiB of one in use",
        "loss by step",
        "loss: 0.5 at the end.",
        "21train.py",
        "Keep this box.",
        f"out/model.pt5 B{'c' * 64}",
        "a package could not be built",
    ):
        assert part in seen, part
    # Each curve is a path with points: loss, load, memory and power of two GPUs, temperature of one
    # GPU, the machine.
    assert len(re.findall(r'<path d="M[^"]+" class="line', text)) >= 10
    secret = report_page(report(), lambda said: said.replace("train.py", "[X hidden]"))
    assert "train.py" not in secret
    assert "[X hidden]" in secret


def test_a_run_without_metrics_samples_or_results_still_has_a_report_page() -> None:
    text = parsed(report_page(report(history=RunHistory(), verdict=None, results=()))).text
    for part in (
        "No line of its log has a metric",
        "Nothing was recorded",
        "no verdict",
        "None, by",
    ):
        assert part in text
    bare = report(results=[ReportedFile("out/a", 5)])
    assert "not brought home yet: boxstrap pull --run train-1" in parsed(report_page(bare)).text


def test_the_report_lists_results_of_the_pull_manifest_and_none_of_a_damaged_one(
    tmp_path: Path,
) -> None:
    file, place = tmp_path / MANIFEST, PullPlace(tmp_path)
    row = {"path": "out/a\x1b[2J", "size": 5, "sha256": "d" * 64}
    file.write_text(json.dumps({"v": 1, "files": [row]}))
    assert read_results(place) == [ReportedFile("out/a", 5, "d" * 64)]
    for damaged in ("", "[]", '{"files": [3]}', '{"files": 3}', "[" * 9999):
        file.write_text(damaged)
        assert read_results(place) == []
    assert read_results(PullPlace(tmp_path / "none")) == []


EXTREMES = (0.0, 5e-324, 1e-300, 1e300, -1e300, 1.0, 1 + 2**-52, 0.3333333333333333, 1e15, 1e15 + 1)


def test_no_point_of_a_report_plot_lies_outside_the_picture_even_for_extreme_numbers() -> None:
    pairs = [(0.3333333333333333, 0.33333333333333337), *itertools.permutations(EXTREMES, 2)]
    many = [[(a, 1.0), (b, 2.0)] for a, b in pairs] + [[(0.0, a), (1.0, b)] for a, b in pairs]
    for points, top in itertools.product([[], [(0, 0)], [(5, 3), (6, 3)], *many], (None, 100.0)):
        plot = Plot("x", [PlotLine(EVIL, points)], in_seconds=True, top=top)
        assert "<script" not in plot.drawn()
        places = re.findall(r'[M ]([^ ",]+),([^ "]+)', plot.svg((430, 180)))
        assert len(places) == len(points)
        for x, y in places:
            assert 0 <= float(x) <= 430
            assert 0 <= float(y) <= 180


def test_report_draws_no_negative_gpu_power_limit() -> None:
    head = SampleHead(gpus=(SampledGpu(index=0, power_limit=-1000.0),))
    rows = [(1000.0, 1.0, 2, ((97.0, 1, 5e-324, 1.0),)), (1010.0, 1.0, 2, ((97.0, 1, 9.0, 1.0),))]
    (power,) = (plot for plot in machine_plots(head, rows, RUN) if plot.title == "GPU power")
    assert power.top is None
