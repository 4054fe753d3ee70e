"""`status` for people: a line per run, what its GPUs and bucket do, why it failed, what to do."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from bootstrap.boxes import Failure, find_failure
from bootstrap.boxes.at_home import row_of, run_of
from bootstrap.boxes.run import NodeOf, Run, as_it_ended, parse_node, parse_uploaded
from bootstrap.boxes.run_details import ResultsThere, RunDetails, UsedGpu, gpu_use, parse_details
from bootstrap.runs.status import RunFromHome, RunStatus, run_lines
from bootstrap.value import document
from tests.unit.boxes.conftest import told

NOW = 100_000
RUN = Run("k-1", "train-1", "running", None, NOW - 90, "c" * 40, "w", "train", 0, 12, "python x.py")
GIB = 2**30


def run(name: str, **changes: object) -> Run:
    return dataclasses.replace(RUN, name=name, **changes)  # type: ignore[arg-type]


def gpu(index: int, load: int = 50, **held: int) -> UsedGpu:
    """Make a GPU; `held` is GiB of memory by the name of a run."""
    by_run = {f"k-1/{name.replace('_', '-')}": count * GIB for name, count in held.items()}
    return UsedGpu(index, f"GPU-{index}", load, 30 * GIB, 80 * GIB, by_run)


def lines_of(
    runs: Sequence[Run],
    width: int | None = None,
    own: str = "",
    price: float | None = None,
    gpus: Sequence[UsedGpu] = (),
    failures: Mapping[Run, Failure] = MappingProxyType({}),
    metrics: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    rows = [
        RunStatus(
            *(one, one.repo_key, NOW, price, metrics.get(one.path), failures.get(one)),
            gpu_use=gpu_use(one, runs, gpus),
        )
        for one in runs
    ]
    return run_lines(rows, NOW, width=width, own=own, box="gpu")


def test_status_says_when_a_run_started_or_if_finished_when_it_ended_and_how_long_it_took() -> None:
    over = run("train-2", state="finished", rc=0, begun=NOW - 500, over=NOW - 65)
    lines = lines_of([RUN, over])
    assert "running   started 1 min 30 s ago" in lines[0]
    assert "finished  ended 1 min 05 s ago, ran 7 min 15 s" in lines[1]


def test_a_run_is_said_to_have_made_nothing_only_if_it_ended_at_once_without_output() -> None:
    over = {"state": "finished", "rc": 0, "begun": NOW - 90, "over": NOW - 89, "log_bytes": 0}
    assert run("train-1", **over).made_nothing(0)
    assert not run("train-1", **over).made_nothing(1)
    for change in ({"log_bytes": 1}, {"rc": 1}, {"begun": NOW - 9000}, {"state": "running"}):
        assert not run("train-1", **{**over, **change}).made_nothing(0)


def test_run_lines_wrap_on_a_narrow_terminal_without_losing_text() -> None:
    ended = run("train-2", state="finished", rc=0, over=NOW - 65, command="python train.py " * 9)
    whole = lines_of([RUN, ended], price=2.0)
    assert len(whole) == 2
    assert lines_of([RUN, ended], price=2.0, width=300) == whole
    for width in (80, 60, 40):
        narrow = lines_of([RUN, ended], price=2.0, width=width)
        assert max(map(len, narrow)) <= width
        assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(whole).split())
    assert len(lines_of([RUN], price=2.0, width=80)) == 2


def test_status_says_what_a_queued_run_waits_for_and_counts_its_time_from_its_start() -> None:
    queued = run("train-8", state="queued", queue="after train-7", attended=True)
    (line,) = lines_of([queued])
    assert "queued: begins once train-7 has ended with 0  made 1 min 30 s ago" in line
    begun = run("train-8", begun=NOW - 20)
    assert "started 20 s ago" in lines_of([begun])[0]
    assert [begun.seconds(NOW - late) for late in (0, 20, 30)] == [20, 0, 0]  # clocks go back


def test_status_advises_run_resume_if_the_run_that_a_queued_run_waits_for_died() -> None:
    queued = run("train-8", state="queued", queue="after train-7", attended=True)
    for state, other, freed in (
        ("died", "k-1", True), ("running", "k-1", False), ("died", "k-2", False),
    ):  # fmt: skip
        lines = lines_of([queued, run("train-7", state=state, repo_key=other)])
        assert (
            "train-7 died. To go on: boxstrap run --resume train-7 --host gpu; or" in lines[1]
        ) == freed


def test_live_and_queued_runs_are_listed_however_many_ended_after_them() -> None:
    over = [run(f"train-{n}", state="finished", rc=0, over=NOW) for n in range(40, 2, -1)]
    lines = lines_of([*over, run("train-2", state="queued"), run("train-1")])
    assert len(lines) == 13
    assert "k-1/train-2" in lines[10]
    assert "k-1/train-1" in lines[11]
    assert "28 older ones" in lines[12]


def test_status_shows_log_lines_of_the_newest_failed_run_and_one_sentence_of_older_ones() -> None:
    failed = [run(f"train-{n}", state="finished", rc=1, over=NOW) for n in (3, 2)]
    why = [
        Failure("exception", f"ValueError: {n}", lines=("  File", f"ValueError: {n}"))
        for n in (3, 2)
    ]
    lines = lines_of(failed, failures=dict(zip(failed, why, strict=True)))
    assert [line.strip() for line in lines[1:3]] == ["|   File", "| ValueError: 3"]
    assert lines[4].strip() == "ValueError: 2"
    assert len(lines) == 5


def test_a_run_that_died_says_whether_the_box_restarted_and_how_to_resume() -> None:
    with_box, without = run("train-1", state="died"), run("train-1", state="died", restarted=False)
    first, hint = lines_of([with_box])
    assert "died with the box" in first
    assert "its log and results are still there; to start it again: " in hint
    nothing = ResultsThere(False, 0, 0, 0, 0, ())
    row = RunStatus(with_box, "k-1", NOW, None, None, None, results=nothing)
    assert "its log is still there; to start it again: boxstrap setup --restart" in "".join(
        run_lines([row], NOW)
    )
    _, hint = lines_of([run("train-1", state="died", can_resume=True)])
    assert "boxstrap run --resume train-1 --host gpu" in hint
    _, hint = lines_of([run("train-1", state="died", resumed_by="train-2")])
    assert hint.strip() == "train-2 went on from it"
    assert "was killed, and its runner too" in lines_of([without])[0]
    _, hint = lines_of([run("train-1", state="died", left=1)])
    assert "boxstrap stop --run train-1" in hint


def test_status_shows_the_gpus_that_processes_of_a_run_use() -> None:
    gpus = [gpu(0, 97, train_1=20, train_2=5), gpu(1, train_2=5)]
    runs = [RUN, run("train-2")]
    (use,) = gpu_use(runs[0], runs, gpus)
    assert (use.index, use.memory_used) == (0, 20 * GIB)
    first, second = lines_of(runs, gpus=gpus)
    assert "GPU 0: 97 %, 20.0 of 80.0 GiB" in first
    assert "GPUs 0,1: 74 %, 10.0 of 160.0 GiB" in second


@pytest.mark.parametrize(
    ("gpus", "others", "seen"),
    [("1", True, [1]), ("GPU-1", True, [1]), ("", False, [0, 1]), ("", True, []), ("7", False, [])],
)
def test_status_shows_the_assigned_gpus_of_a_run_where_gpu_processes_are_invisible(
    gpus: str, others: bool, seen: list[int]
) -> None:
    mine = run("train-1", gpus=gpus)
    runs = [mine, *([run("train-2")] if others else [])]
    assert [use.index for use in gpu_use(mine, runs, [gpu(0), gpu(1)])] == seen
    queued, (line,) = dataclasses.replace(mine, state="queued"), lines_of([mine])
    assert (f"  GPU {gpus}  " in line) is bool(gpus)
    assert (f"  GPU {gpus}  " in lines_of([queued])[0]) is bool(gpus)
    over = dataclasses.replace(mine, state="finished", rc=0)
    assert gpu_use(over, [over], [gpu(0)]) == ()


def test_the_newest_metric_is_shown_redacted_below_its_run() -> None:
    other = run("train-2", state="finished", rc=0)
    said = RunDetails(metrics={RUN.path: b"\x1b[2Jstep 7   loss 0.5 of hunter22\n"})
    metrics = said.metric_lines(lambda text: text.replace("hunter22", "***"))
    assert metrics == {RUN.path: "step 7 loss 0.5 of ***"}
    lines = lines_of([RUN, other], metrics=metrics)
    assert lines[1] == "      step 7 loss 0.5 of ***"
    assert len(lines) == 3


def test_status_shows_no_value_for_senseless_gpu_numbers_from_a_box() -> None:
    process = {"pid": 7, "name": "python", "memory": 5, "run": "k-1/train-1"}
    good = {"index": 0, "uuid": "GPU-a", "load": 97, "memory_used": 8, "memory_total": 80}
    rows = [
        {**good, "processes": [process, process, {**process, "run": "", "memory": None}]},
        {**good, "index": 1, "load": True, "memory_used": -1, "memory_total": 2.5},
        {**good, "index": 2, "error": 15},
        {**good, "index": "3"},
    ]
    assert parse_details(told("gpus", gpus=rows)).gpus == (
        UsedGpu(0, "GPU-a", 97, 8, 80, {"k-1/train-1": 10}),
        UsedGpu(1, "GPU-a", None, None, None, {}),
    )


@pytest.mark.parametrize(
    ("rc", "ended", "says"),
    [
        (143, "interrupted ec2 99000 99120", "was interrupted: EC2 took its box back"),
        (
            0,
            "interrupted gcp 99000 99030",
            "was interrupted: Google Cloud took its box back, after",
        ),
        (3, "interrupted container 99000 99010", "its container, or machine, was stopped, after"),
    ],
)
def test_status_of_an_interrupted_run_says_who_took_the_box_and_how_to_resume(
    rc: int, ended: str, says: str
) -> None:
    over = run("train-2", state="finished", rc=rc, ended=ended, begun=NOW - 500, over=NOW - 65)
    assert over.failed
    assert not over.stopped
    assert says in over.outcome()
    assert document(over)["interrupted"] == {
        "by": ended.split()[1],
        "noticed": 99000,
        "leaves": int(ended.split()[3]),
    }
    assert find_failure(over, b"saved\n") is not None
    assert "boxstrap up --resume train-2" in "\n".join(lines_of([over]))
    assert run_of(row_of(over)) == over


def test_status_says_was_stopped_if_the_user_stopped_a_run_after_a_notice_of_the_cloud() -> None:
    told = run("train-2", notice="ec2 99000 99120")
    assert "was told to save its work: EC2 took its box back" in told.outcome()
    assert dataclasses.replace(told, state="died").outcome() == "died: EC2 took its box back"
    for notice in ("ec2 99000", "you 1 2", "ec2 1 2; rm", ""):
        assert dataclasses.replace(told, notice=notice).outcome() == "running"
    assert as_it_ended(told, "finished 0 interrupted ec2 1 2") is not None
    stopped = dataclasses.replace(told, state="finished", rc=143, ended="stop", begun=1)
    assert stopped.outcome() == "was stopped"


@pytest.mark.parametrize(
    ("ended", "says"),
    [
        ("node 1 7 exit", "was ended: gpu-b (node 1) ended with exit code 7"),
        ("node 1 143 missing", "was not started: gpu-b (node 1) did not come"),
    ],
)
def test_status_names_the_other_node_whose_end_ended_a_run(ended: str, says: str) -> None:
    node = NodeOf(0, ("gpu-a", "gpu-b"))
    assert run("train-2", state="finished", rc=7, ended=ended, node=node).outcome() == says


def test_status_lists_this_repositorys_runs_first_and_counts_ended_ones_of_others() -> None:
    others = [run(f"train-{n}", repo_key="k-2", state="finished", rc=0) for n in range(9, 3, -1)]
    live, mine = run("train-3", repo_key="k-2"), run("train-1", state="finished", rc=0)
    lines = lines_of([*others, live, mine, RUN], own="k-1")
    assert [line.split()[0] for line in lines[:3]] == ["k-1/train-1", "k-1/train-1", "k-2/train-3"]
    counted = "and 6 of other repositories: --json has all"
    assert lines[3:] == [f"  {counted}"]
    # So they are where it has no run at all.
    assert lines_of(others, own="k-1") == [f"  no run of this repository, {counted}"]
    shown, rest = lines_of([*others, live], own="k-1")
    assert (shown.split()[0], rest) == ("k-2/train-3", f"  {counted}")


def test_status_of_a_run_on_an_unreachable_box_says_how_old_it_is() -> None:
    told = RunFromHome(run("train-1", log_bytes=0), "k-1", NOW - 60, 3600.0)
    (line,) = run_lines([told], NOW)
    assert "running, as of 1 min 00 s ago  started 1 min 30 s ago  $30.00  cccccccccccc" in line


TO = "s3://results/mine/train-1-20261122-084500-a1b2c3"


@pytest.mark.parametrize(
    ("note", "says"),
    [
        (f"whole 2 3000005 0 - {TO}", f"results: 2 files (3.0 MB) are in {TO}"),
        (f"going 0 0 3 - {TO}", f"results: 0 files (0 B) are in {TO}; 3 more are to come"),
        (
            f"failing 1 5 2 AccessDenied {TO}",
            f"results: 1 files (5 B) are in {TO}; 2 are not: AccessDenied",
        ),
        (
            f"left 1 5 2 - {TO}",
            f"results: 1 files (5 B) are in {TO}; 2 are not: still written to; "
            "the next setup or run tries again",
        ),
    ],
)
def test_each_state_of_an_upload_to_a_bucket_has_its_own_sentence(note: str, says: str) -> None:
    uploaded = parse_uploaded(note)
    assert uploaded
    assert uploaded.sentence() == says


@pytest.mark.parametrize(
    "note",
    [
        *("", "whole", f"done 2 5 0 - {TO}", f"whole -2 5 0 - {TO}"),
        *(f"whole {'9' * 40} 5 0 - {TO}", f"whole 2 5 0 why\x1b[2J {TO}"),
        *("whole 2 5 0 - https://elsewhere/", f"whole 2 5 0 - {TO}\x1b]0;title\x07"),
        f"whole 2 5 0 - s3://{'x' * 500}",
    ],
)
def test_a_malformed_upload_state_sent_by_a_box_is_not_shown(note: str) -> None:
    assert parse_uploaded(note) is None


@pytest.mark.parametrize(
    ("note", "node"),
    [
        ("1 2 0123456789abcdef gpu-a gpu-b", NodeOf(1, ("gpu-a", "gpu-b"))),
        ("2 2 0123456789abcdef gpu-a gpu-b", None),  # there is no such rank
        ("0 3 0123456789abcdef gpu-a gpu-b", None),  # a name is missing
        ("0 2 gpu-a gpu-b", None),
        ("", None),
    ],
)
def test_an_impossible_node_rank_sent_by_a_box_is_ignored(note: str, node: NodeOf | None) -> None:
    assert parse_node(note) == node
