"""Complete files: unchanged for a while, open to no writer, all their parts; and whose they are."""

import json
import mmap
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from bootstrap.onbox.processes import held_files
from bootstrap.onbox.report.run_history import results_of
from bootstrap.onbox.results.complete_files import (
    CompleteFiles,
    absent_parts,
    checkpoints,
    pointers,
)
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
from bootstrap.onbox.transfer.serve import BoxSender
from tests.unit.transfer.boxes import held


class Looks:
    """Looks at `out` in a folder, with a clock that only tests advance."""

    def __init__(self, tree: Path, *, reads_all: bool = False) -> None:
        self.tree, self.now = tree, 100.0
        self._files = CompleteFiles(str(tree), ["out/"], clock=lambda: self.now)
        self._files.reads_all = reads_all

    def after(self, seconds: float, *, live: bool = True) -> dict[str, str]:
        """Look again so much later; return for each file why it is not complete."""
        self.now += seconds
        return {file.path: file.why for file in self._files.look(live=live).files}

    def pointing(self) -> set[str]:
        """Return which files are taken for pointers."""
        return {file.path for file in self._files.look(live=True).files if file.is_pointer}


@pytest.fixture(params=(False, True), ids=("some are here", "all is read next"))
def looks(request: pytest.FixtureRequest, tmp_path: Path) -> Looks:
    (tmp_path / "out").mkdir()
    return Looks(tmp_path, reads_all=request.param)


def test_a_result_file_is_complete_after_two_unchanged_seconds(looks: Looks) -> None:
    file = looks.tree / "out/a"
    file.write_text("1")
    assert looks.after(0) == {"out/a": "young"}
    assert looks.after(1.9) == {"out/a": "young"}
    assert looks.after(0.1) == {"out/a": ""}
    # With the same size and mtime, a rewrite still shows in the inode's ctime.
    times = file.stat().st_mtime_ns
    file.write_text("2")
    os.utime(file, ns=(times, times))
    assert looks.after(9) == {"out/a": "young"}
    assert looks.after(2) == {"out/a": ""}
    other = looks.tree / "out/b"
    other.write_text("3")
    other.rename(file)
    assert looks.after(9) == {"out/a": "young"}


@pytest.mark.slow
def test_a_result_file_rewritten_all_the_time_is_pulled_once_a_minute(looks: Looks) -> None:
    """Part of a checkpoint, or open to a writer at that look, it does not. Once its run is over it
    is only read ahead."""
    best, part = looks.tree / "out/best.pt", looks.tree / "out/checkpoint-5/model.pt"
    part.parent.mkdir()

    def seen(*open_then: Path, live: bool = True) -> list[str]:
        for file in (best, part):
            file.with_name("new").write_text("x")
            file.with_name("new").rename(file)
        with held(*open_then) if open_then else nullcontext():
            return [*looks.after(2, live=live).values()]

    assert [seen() for _ in range(30)] == [["young", "young"]] * 30
    assert seen(best) == ["held", "young"]
    assert [seen() for _ in range(30)] == [["young", "young"]] * 30
    assert [seen() for _ in range(2)] == [["", "young"], ["young", "young"]]
    assert [seen(live=at < 29) for at in range(30)][-1] == ["closed", "closed"]


def test_a_result_not_open_for_writing_after_its_run_ended_is_marked_as_closed_at_once(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (looks.tree / "out" / name).write_text("1")
    with held(looks.tree / "out/b"):
        assert looks.after(0, live=True) == {"out/a": "young", "out/b": "young"}
        assert looks.after(1, live=False) == {"out/a": "closed", "out/b": "young"}
        with monkeypatch.context() as coarse:  # two writes may leave the same timestamp
            coarse.setattr("bootstrap.onbox.results.complete_files._FINE_NS", 1)
            assert looks.after(0, live=False) == {"out/a": "young", "out/b": "young"}
        assert looks.after(1, live=False) == {"out/a": "", "out/b": "held"}


@pytest.mark.parametrize("reads_all", [False, True])
def test_a_result_changed_by_another_machine_on_a_shared_disk_counts_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_all: bool
) -> None:
    """On a shared disk, stat of a path is cached for seconds; stat of an opened file is not. A
    look leaves that to who reads the file, where all are read next: see `BoxSender.send`."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_text("1")
    (tmp_path / "newer").write_text("2")
    looks = Looks(tmp_path, reads_all=reads_all)
    listed = (tmp_path / "out/a").stat()
    assert looks.after(0, live=False) == {"out/a": "closed"}
    said: list[dict[str, Any]] = []
    with monkeypatch.context() as shared:
        shared.setattr("os.fstat", lambda _: (tmp_path / "newer").stat())
        assert looks.after(2, live=False) == {"out/a": "" if reads_all else "young"}
        home, say = os.fsencode(tmp_path / "home"), lambda one, _: said.append(one)
        row = ["out/a", 0, 1, listed.st_mtime_ns, listed.st_ctime_ns]
        BoxSender(home, say, int, int).get({"root": ".", "i": 0, "files": [row]})
    assert said[0]["given"][0][0] == "changed"
    assert looks.after(0, live=False) == {"out/a": ""}


def test_file_times_set_by_a_box_do_not_decide_whether_a_file_is_complete(looks: Looks) -> None:
    for name, when in {"past": 1, "future": 4 * 10**18}.items():
        (looks.tree / "out" / name).write_text("1")
        os.utime(looks.tree / "out" / name, ns=(when, when))
    assert looks.after(0) == {"out/past": "young", "out/future": "young"}
    assert looks.after(2) == {"out/past": "", "out/future": ""}


def test_a_result_that_a_process_has_open_for_writing_is_incomplete(looks: Looks) -> None:
    file, read = looks.tree / "out/log", looks.tree / "out/read"
    file.write_text("1")
    read.write_text("1")
    with held(file), read.open():
        looks.after(0)
        assert looks.after(50) == {"out/log": "held", "out/read": ""}
    assert looks.after(0) == {"out/log": "", "out/read": ""}


def test_a_closed_file_that_is_mapped_for_writing_is_still_incomplete(tmp_path: Path) -> None:
    file, found = tmp_path / "a", {(0, 0)}
    file.write_bytes(bytes(4096))
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 4096)
    wanted = {(file.stat().st_dev, file.stat().st_ino)} | found
    # Python keeps a descriptor of its own next to the mapping; this fake /proc hides it.
    proc = tmp_path / "proc/7"
    proc.mkdir(parents=True)
    (proc / "maps").write_text(Path("/proc/self/maps").read_text())
    assert held_files(wanted, str(tmp_path / "proc")) == wanted - found
    mapped.close()
    (proc / "maps").write_text(Path("/proc/self/maps").read_text())
    assert held_files(wanted, str(tmp_path / "proc")) == set()


def test_a_checkpoint_of_several_files_is_complete_only_as_a_whole(looks: Looks) -> None:
    folder = looks.tree / "out/checkpoint-500"
    (folder / "optimizer").mkdir(parents=True)
    for name in ("model.pt", "optimizer/0.pt"):
        (folder / name).write_text("1")
    (looks.tree / "out/alone").write_text("1")
    with held(folder / "optimizer/0.pt"):
        looks.after(0)
        assert looks.after(2) == {
            "out/alone": "",
            "out/checkpoint-500/model.pt": "checkpoint",
            "out/checkpoint-500/optimizer/0.pt": "held",
        }
    assert set(looks.after(0).values()) == {""}
    (folder / "late").write_text("1")
    assert looks.after(1)["out/checkpoint-500/model.pt"] == "checkpoint"


SHARDS = [f"out/model-0000{at}-of-00002.safetensors" for at in (1, 2)]
INDEX = "out/model.safetensors.index.json"


@pytest.mark.parametrize(
    ("there", "whole"),
    [
        (SHARDS, True),
        (SHARDS[:1], False),
        ([INDEX], True),
        ([SHARDS[1], INDEX], False),
        (["out/ck/__0_0.distcp"], False),
        (["out/ck/__0_0.distcp", "out/ck/.metadata"], True),
        (["out/step_10/0.pt"], True),
    ],
)
def test_missing_shards_of_a_checkpoint_are_waited_for_while_the_run_lives(
    there: list[str], whole: bool
) -> None:
    found = checkpoints([*there, "out/log.txt"], live=True)
    assert {path: complete for path, (_, complete) in found.items()} == dict.fromkeys(there, whole)
    assert len({name for name, _ in found.values()}) == 1
    assert all(complete for _, complete in checkpoints(there, live=False).values())


DEEP = "a/" * 900


@pytest.mark.slow
@pytest.mark.parametrize(
    "paths",
    [
        [f"{DEEP}{at}/{at}" for at in range(1000)],
        [
            f"{DEEP[:100]}step_1/{at}/{name}"
            for at in range(12000)
            for name in ("a.distcp", ".metadata")
        ],
        [
            f"out/{name}{at}"
            for at in range(3000)
            for name in ("latest", "step_1/a", f"step_{at}/a")
        ],
    ],
    ids=["deep", "parts in parts", "pointers"],
)
def test_finding_checkpoints_among_many_paths_is_fast(paths: list[str]) -> None:
    """A manifest of a box, or of a cloned repository, may list so many."""
    began = time.process_time()
    found = checkpoints(paths, live=True)
    pointers(paths, set(paths), found, lambda _: "1 2 3 4 5 6 7 8 step_9")
    assert time.process_time() - began < 3


OF_TWO = [f"out/checkpoint-{at}/{name}" for at in (1, 2) for name in ("model", "rng_0", "rng_1")]


@pytest.mark.parametrize(
    ("there", "half"),
    [
        (OF_TWO, False),
        (OF_TWO[:-1], True),  # another one's number is no other file
        (OF_TWO[:-2], True),
        ([*OF_TWO, "out/checkpoint-1/eval.json"], True),
        # Of two, either may be half; of three, what one alone has is somebody's.
        (["out/step_1/a", "out/step_2/a", "out/step_2/b", "out/step_3/a"], True),
        ([*(f"out/step_{at}/a" for at in (1, 2, 3, 4)), "out/step_3/mine"], False),
        ([f"out/step_{at}/{name}" for at in (1, 2, 3, 4) for name in "ab"[: 1 + (at < 4)]], True),
        (["out/epoch=1-step=10.ckpt/a", "out/epoch=1-step=9.ckpt/b"], True),
        (["out/checkpoint-2/a", "other/checkpoint-1/b", "out/step_1/c"], False),
    ],
)
def test_a_checkpoint_with_fewer_files_than_earlier_ones_is_incomplete(
    there: list[str], half: bool
) -> None:
    """The files of one come seconds apart, and each of them stands as if it were all."""
    found = checkpoints(there, live=True)
    assert (not all(complete for _, complete in found.values())) is half
    newest = {one for one, complete in found.values() if not complete}
    assert len(newest) <= 1
    assert set(absent_parts(there)) == set() or half
    stood = {path for path, (one, _) in found.items() if one in newest}
    assert all(whole for _, whole in checkpoints(there, live=True, stood=stood).values())


def test_a_checkpoint_is_complete_once_it_has_the_files_of_an_earlier_run() -> None:
    own, earlier = ["out/checkpoint-2/model"], OF_TWO[:3]
    assert checkpoints(own, live=True)[own[0]][1]
    assert not checkpoints(own, live=True, others=earlier)[own[0]][1]
    # What is left of an earlier run in the same folder does not complete it.
    assert not checkpoints(own, live=True, others=OF_TWO)[own[0]][1]


@pytest.mark.parametrize(
    ("name", "text", "to"),
    [
        ("latest", "global_step2", "out/global_step2/"),
        ("latest_checkpointed_iteration.txt", "2\n", "out/global_step2/"),
        ("latest", "global_step7", "out/global_step7/"),
        ("latest", "7", "out/7/"),
        ("last.txt", "/workspace/homework/out/epoch=1.pt", "out/epoch=1.pt/"),
        ("checkpoint", 'model_checkpoint_path: "global_step2"', "out/global_step2/"),
        ("latest", "loss 0.5", None),
        ("notes.txt", "global_step2", None),
    ],
)
def test_a_short_result_file_that_contains_a_checkpoints_name_is_taken_as_pointer_to_it(
    name: str, text: str, to: str | None
) -> None:
    paths = ["out/global_step2/a", "out/epoch=1.pt", f"out/{name}"]
    found = pointers(paths, paths, checkpoints(paths, live=True), lambda _: text)
    assert found == ({f"out/{name}": to} if to else {})


def test_a_file_that_names_a_checkpoint_is_pulled_only_after_the_checkpoint(looks: Looks) -> None:
    out = looks.tree / "out"
    for name in ("global_step1/a", "global_step1/b", "global_step2/a"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("1")
    for name, text in {"latest": "global_step2", "last": "x.pt", "x.pt": "1"}.items():
        (out / name).write_text(text)
    with held(out / "x.pt"):
        looks.after(0)
        found = looks.after(2)
    waits = {"out/global_step2/a": "checkpoint", "out/latest": "checkpoint"}
    waits |= {"out/x.pt": "held", "out/last": "checkpoint"}
    assert {path: why for path, why in found.items() if why} == waits
    # It may have all that it will ever have.
    assert {path for path, why in looks.after(58).items() if why} == set()
    assert looks.pointing() == {"out/latest", "out/last"}


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("out/checkpoint-5/a", True),
        ("out/epoch=3-step=40.ckpt/checkpoint/a", True),
        ("out/global_step500/a", True),
        ("out/ckpt_7/sub/a", True),
        # An experiment's folder is not a checkpoint: its log is open to the end.
        ("out/resnet_epochs100_lr0.1/a", False),
        ("out/checkpoints/a.pt", False),
        ("out/version_0/a", False),
        ("out/step-5.pt", False),
    ],
)
def test_a_folder_named_as_training_frameworks_name_checkpoints_counts_as_one(
    path: str, is_one: bool
) -> None:
    assert bool(checkpoints([path], live=True)) is is_one


@pytest.mark.parametrize(
    ("there", "lacks"),
    [
        (["m-00001-of-00003.bin", "m-00003-of-00003.bin"], {"m-00002-of-00003.bin": (2, 3)}),
        (["m-00000-of-00002.bin"], {"m-00001-of-00002.bin": (1, 2)}),
        (["m-00001-of-00002.bin", "m-00002-of-00002.bin", "n-00001-of-00001.bin"], {}),
        (["dcp/__0_0.distcp", "dcp/__1_0.distcp"], {"dcp/.metadata": (2, 3)}),
        (["dcp/__0_0.distcp", "dcp/.metadata", "other"], {}),
    ],
)
def test_pull_names_a_missing_shard_of_a_checkpoint(
    there: list[str], lacks: dict[str, tuple[int, int]]
) -> None:
    assert absent_parts(there) == lacks


def test_pull_reports_pipes_odd_names_and_outside_symlinks_among_results_and_follows_none(
    looks: Looks, tmp_path: Path
) -> None:
    out = looks.tree / "out"
    (out / "a").write_text("1")
    for name, to in {"latest": "a", "out": "/etc/passwd", "up": "../..", "gone": "nope"}.items():
        (out / name).symlink_to(to)
    os.mkfifo(out / "pipe")
    (out / os.fsdecode(b"\xff")).write_text("1")
    look = CompleteFiles(str(looks.tree), ["out/", "none/"]).look(live=True)
    assert [(file.path, file.to) for file in look.files] == [("out/a", ""), ("out/latest", "out/a")]
    assert sorted(look.left_out) == [
        ("none", "missing"),
        ("out/gone", "dead"),
        ("out/out", "outside"),
        ("out/pipe", "special"),
        ("out/up", "outside"),
        ("out/\udcff", "name"),
    ]


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
    for name, text in {"pid": "1 1 x\n", "exit": "0\n"}.items():
        (tmp_path / "k/train-1" / name).write_text(text)
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


def test_a_run_that_never_began_has_no_results_of_what_lies_there(tmp_path: Path) -> None:
    tree = SharedTree(tmp_path)
    run = tree.run()
    (tree.out / "a").write_text("by hand")
    for note in ("pid", "results.before", MADE):
        Path(run.path, note).unlink()
    assert OwnResults(run, 0.0).look(live=False) == ([], [], [])
    assert results_of(run) == []


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
