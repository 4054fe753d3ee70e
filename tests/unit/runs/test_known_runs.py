"""`runs` counts a run's age and cost by its box's clock, however long ago that was asked."""

import dataclasses
import io
from pathlib import Path

import pytest

from bootstrap.boxes import Run, at_home
from bootstrap.boxes.at_home import RunAtHome, note_seen, seen_on
from bootstrap.boxes.probe import BoxState
from bootstrap.boxes.run_details import ResultsThere, RunDetails
from bootstrap.errors import UnreachableError, WhichBoxError
from bootstrap.link import BoxOptions, KnownBox, parse_host, record, save_box
from bootstrap.link.endpoint import resolve
from bootstrap.link.forgotten import forget_box
from bootstrap.link.wire import not_found
from bootstrap.runs import known_runs, status
from bootstrap.runs.known_runs import ListedRun, box_of_runs, known_on, run_rows
from bootstrap.ui.screens import JsonScreen
from bootstrap.value import document

RUN = Run(
    "homework-1", "train-1", "finished", 0, 1_000, "c" * 40, "w", "train", 0, 9, "python x",
    snapshot="a1b2c3d" + "0" * 33, begun=1_000, over=4_600,
)  # fmt: skip


@pytest.mark.parametrize("every", [True, False])
def test_the_age_of_a_runs_state_counts_from_when_that_run_was_last_read_on_its_box(
    monkeypatch: pytest.MonkeyPatch, every: bool
) -> None:
    """The box's clock is 100 s ahead. A contact that looked at another run alone doesn't count."""
    clock = type("Clock", (), {"time": lambda: 4_600.0})
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", price=2.0, seen=4_600.0))
    monkeypatch.setattr(at_home, "time", clock)
    note_seen(box, [RUN], str, box_time=4_700, every=True)
    clock.time = lambda: 9_000.0
    other = dataclasses.replace(RUN, name="train-2", state="running")
    note_seen(box, [RUN] if every else [other], str, box_time=9_100, every=every)
    kept, *more = seen_on(dataclasses.replace(box, seen=9_000.0))
    seen = 9_000.0 if every else 4_600.0
    assert (kept.seen, kept.box_time) == (seen, seen + 100)
    assert [(one.seen, one.box_time) for one in more] == [(9_000.0, 9_100)] * (not every)
    listed = ListedRun(kept, is_gone=False, results="none", log="box")
    row = " ".join(run_rows([listed], 9_050.0, None, every=False)[0].split())
    assert "train-1 gpu 2 h 16 min ago finished, ran 1 h 00 min, $2.00" in row
    assert f"{'c' * 12}+a1b2c3d" in row
    assert row.endswith(f", log on the box {RUN.typed}")
    assert document(listed)["dollars"] == 2.0


def test_runs_and_status_show_the_live_run_of_an_unreachable_box_with_its_growing_age(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`runs` and `status` tell the same begin, by the same clock; no older metric beside it."""
    clock = type("Clock", (), {"time": lambda: 9_000.0})
    for module in (at_home, status):
        monkeypatch.setattr(module, "time", clock)
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    live = dataclasses.replace(RUN, name="train-2", state="running", begun=8_700, over=0)
    note_seen(box, [live, RUN], str, box_time=9_000)
    home = RunAtHome(box.name, box.created, box.host_text, live, seen=8_900.0, metric="loss 2.3")
    at_home._folder().mkdir(parents=True)
    home.save()
    dataclasses.replace(home, run=dataclasses.replace(live, name="train-0")).save()
    clock.time = lambda: 9_300.0
    told = "\n".join(status._from_home(BoxOptions("gpu", repo=tmp_path), "it is gone.", None).lines)
    assert "gpu: it is gone; from home:" in told
    assert "train-2  running, as of 5 min 00 s ago  started 10 min 00 s ago" in told
    assert "train-0  running, as of 6 min 40 s ago  started 10 min 00 s ago" in told
    assert told.count("loss 2.3") == 1  # train-0's: what was told later of train-2 has none
    listed = ListedRun(known_on(box)[0], is_gone=False, results="box", log="box")
    assert "train-2  gpu  10 min 00 s ago" in run_rows([listed], 9_300.0, None, every=False)[0]


def test_a_run_that_was_pulled_after_its_end_is_not_listed_as_running_on_its_box(
    tmp_path: Path,
) -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    note_seen(box, [dataclasses.replace(RUN, state="running", over=0)], str, box_time=9_000)
    over = RunAtHome(box.name, box.created, box.host_text, RUN, seen=9_100.0, place=str(tmp_path))
    at_home._folder().mkdir(parents=True)
    over.save()
    assert [one.run.state for one in known_on(box)] == ["finished"]


def test_status_says_of_results_that_another_machine_pulled_that_they_are_elsewhere() -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1"))
    home, path = ResultsThere(True, 2, 9, 0, 0, ()), f"{RUN.repo_key}/{RUN.name}"
    told = BoxState(runs=(RUN,)), RunDetails(results={path: home}), box
    assert str(status.rows_of(*told)[0].results) == "results pulled elsewhere"
    RunAtHome(box.name, box.created, box.host_text, RUN, results="home").save()
    assert str(status.rows_of(*told)[0].results) == "results pulled"


def test_runs_shows_the_newest_metric_that_the_box_of_a_run_told() -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    for told in ({"homework-1/train-1": "loss 0.5"}, {}):
        note_seen(box, [RUN], str, metrics=told)
        assert [one.metric for one in known_on(box)] == ["loss 0.5"]


def test_runs_says_that_a_run_has_no_results_if_its_box_last_said_so(tmp_path: Path) -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    at_home._folder().mkdir(parents=True)
    note_seen(box, [RUN], str, box_time=9_000, results={"homework-1/train-1": "none"})
    for seen in (0.0, 9_100.0):
        there = box.name, box.created, box.host_text
        RunAtHome(*there, RUN, seen=seen, place=str(tmp_path)).save()
        assert [one.results_there for one in known_on(box)] == ["none"]


def test_a_log_that_was_pulled_before_its_run_ended_is_listed_as_partly_at_home(
    tmp_path: Path,
) -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    at_home._folder().mkdir(parents=True)
    (tmp_path / at_home.LOG).write_text("epoch")
    for wrote, state, where in (
        (9, "running", "partly"),
        (9, "finished", "partly"),
        (5, "finished", "home"),
    ):
        told = dataclasses.replace(RUN, state=state, log_bytes=wrote)
        there = box.name, box.created, box.host_text
        live = dataclasses.replace(told, state="running")
        RunAtHome(*there, live, seen=8_000.0, place=str(tmp_path), log=((0, 5),), log_end=5).save()
        note_seen(box, [told], str, box_time=9_000, every=True)
        assert [known_runs._listed(one, False).log for one in known_on(box)] == [where]


def test_of_a_pull_that_found_no_result_yet_runs_does_not_say_that_any_is_at_home() -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    there = box.name, box.created, box.host_text
    for files, where in ((0, "results, if any, on the box"), (1, "results moved or removed here")):
        RunAtHome(*there, RUN, results="partly", result_files=files, result_place="/-").save()
        (row,) = known_runs.run_rows(
            known_runs.list_runs(Path(), None, every=True), 0, None, every=True
        )
        assert where in row
        (listed,) = known_runs.list_runs(Path(), None, every=True)
        assert listed.known_results.files == (files or None)
        assert listed.known_results.where == ("moved" if files else "unasked")
        assert listed.known_log.bytes is None


@pytest.mark.parametrize(
    ("forgets", "gone", "there"), [(False, "gone", "went with"), (True, "forgotten", "left on")]
)
def test_runs_says_that_results_went_with_a_destroyed_box_and_were_left_on_a_forgotten_one(
    forgets: bool, gone: str, there: str
) -> None:
    box = KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", created=1.0)
    pin = f"x ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}\n"
    record.save_with_pin(box, pin, is_new=True)
    (forget_box if forgets else record.retire)(box)
    kept = RunAtHome(box.name, box.created, box.host_text, RUN)
    lost = known_runs._listed(kept, True)
    assert lost.known_results.where == "unasked"  # as the text says: whether there were any
    (row,) = run_rows([lost], 9e3, None, every=False)
    assert f"gpu ({gone})" in row
    assert f"results, if any, {there} the box, log {there} the box" in row


def test_a_pulled_run_is_listed_in_both_clones_that_share_its_tree_on_a_box(tmp_path: Path) -> None:
    """A pull in one of them took the run out of the other's list."""
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1"))
    for mine in ("first", "second"):
        note_seen(box, [RUN], str, keys={mine: "homework-1"})
    pulled = RunAtHome(box.name, box.created, box.host_text, RUN, key="second")
    for mine, found in (("first", [pulled]), ("second", [pulled]), ("third", [])):
        assert at_home.kept_of_repository([pulled], mine, [box]) == found
    (box.folder / at_home.SEEN).write_text('{"v": 1, "keys": ["first"]}')
    assert at_home.kept_of_repository([pulled], "first", [box]) == []


def test_an_unknown_host_name_suggests_the_known_box_of_a_similar_name() -> None:
    save_box(KnownBox("nina1", "root@203.0.113.1:22", "203.0.113.1"))
    assert "Did you mean nina1?" in str(not_found(resolve(parse_host("nina9"))).hint)
    assert "Did you mean" not in str(not_found(resolve(parse_host("gpu.invalid"))).hint)


@pytest.mark.parametrize(
    ("names", "box"),
    [(["train-2"], "one"), (["train-3"], "two"), (["train-1"], ""), (["train-9"], ""),
     (["train-2", "homework-1/train-2"], "one"), (["train-2", "train-3"], ""), (["other"], "")],
)  # fmt: skip
def test_without_host_a_run_name_chooses_the_only_known_box_that_has_such_a_run(
    names: list[str], box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`other` is of another repository; a box that was given back doesn't count."""
    monkeypatch.setattr(known_runs, "current", lambda _: ("mine", ""))
    theirs = dataclasses.replace(RUN, name="other", repo_key="theirs-2")
    for name, had, others in (("one", (1, 2), [theirs]), ("two", (1, 3), [])):
        there = save_box(KnownBox(name, f"root@{name}", name, created=had[1]))
        runs = [dataclasses.replace(RUN, name=f"train-{number}") for number in had]
        note_seen(there, [*runs, *others], str, keys={"mine": "homework-1"}, every=True)
    at_home._folder().mkdir(parents=True)
    gone = dataclasses.replace(RUN, name="train-2")
    RunAtHome("gone", 9.0, "root@gone", gone, key="mine").save()
    assert box_of_runs(Path(), names) == box


def test_a_run_shown_from_home_is_this_repositorys_also_where_the_box_had_one_of_that_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bootstrap.repo.local.current", lambda _: ("mine", ""))
    at_home._folder().mkdir(parents=True)
    for key, started in (("theirs", 1), ("mine", 2), ("others", 3)):
        run = dataclasses.replace(RUN, repo_key=f"{key}-1", started=started, begun=started)
        RunAtHome("gpu", 9.0, "root@gpu", run, key=key, place=str(tmp_path)).save()
    error, screen = UnreachableError("no route."), JsonScreen(io.StringIO())
    for options in (BoxOptions(host="gpu"), BoxOptions()):
        (found,) = known_runs.kept_instead(options, ["train-1"], error, screen)
        assert found.key == "mine"
    (found,) = known_runs.kept_instead(BoxOptions("gpu"), ["others-1/train-1"], error, screen)
    assert found.key == "others"
    (found,) = known_runs.kept_instead(BoxOptions("gpu"), [], error, screen)
    assert found.key == "mine"
    monkeypatch.setattr("bootstrap.repo.local.current", lambda _: ("new", ""))
    with pytest.raises(UnreachableError):
        known_runs.kept_instead(BoxOptions("gpu"), [], error, screen)


def test_a_run_at_home_of_a_forgotten_box_is_shown_by_a_name_that_no_known_box_has_a_run_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bootstrap.repo.local.current", lambda _: ("mine", ""))
    there = save_box(KnownBox("one", "root@one", "one", created=1.0))
    theirs = dataclasses.replace(RUN, name="train-3", repo_key="theirs-2")
    note_seen(there, [RUN, theirs], str, keys={"mine": "homework-1"}, every=True)
    at_home._folder().mkdir(parents=True)
    for name in ("train-1", "train-3"):
        run = dataclasses.replace(RUN, name=name)
        RunAtHome("gone", 9.0, "root@gone", run, key="mine", place=str(tmp_path)).save()
    several = WhichBoxError("which box?", hint="", boxes=["one", "two"], has_several=True)
    screen = JsonScreen(io.StringIO())
    (found,) = known_runs.kept_instead(BoxOptions(), ["train-3"], several, screen)
    assert found.box == "gone"
    for names in (["train-1"], []):
        with pytest.raises(WhichBoxError):
            known_runs.kept_instead(BoxOptions(), names, several, screen)
