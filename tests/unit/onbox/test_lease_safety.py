"""What a box reports as unsafe before its end; what it can't check is unsafe."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.lease import safety
from bootstrap.onbox.lease.safety import ResultsLook, SafetyLook, safe_note
from bootstrap.onbox.processes import identity
from bootstrap.onbox.results.at_risk import MadeHere, Tree, folder_of
from bootstrap.onbox.results.at_risk import told as told_at_risk
from bootstrap.onbox.results.complete_files import state_of
from bootstrap.onbox.results.run_results import LET_GO, RunResults, digest_of, write_files
from bootstrap.onbox.run_folder import runs_below
from bootstrap.onbox.run_queue import take_out
from tests.box_programs import lay_programs_alone, onbox

OLD = 1_700_000_000


class PulledBox:
    """A box's folder with one run, all of whose results were pulled."""

    def __init__(self, place: Path) -> None:
        self.home, self.tree = place / ".boxstrap", place / "homework"
        self.run = self.home / "runs/homework/train-1"
        self.run.mkdir(parents=True)
        (self.tree / "out").mkdir(parents=True)
        self.notes = {"pid": "1 2 x\n", "exit": "0\n", "log_max": "1\n", "results": "out/\n"}
        for name, text in {**self.notes, "dir": f"{self.tree}\n"}.items():
            (self.run / name).write_text(text)
        self.result = self.tree / "out/a.pt"
        self.result.write_text("weights")
        self.pull()

    def pull(self) -> None:
        """Write the note that a verified pull leaves."""
        present = {}
        for one in (self.tree / "out").rglob("*"):
            path = str(one.relative_to(self.tree))
            if one.is_symlink() and one.resolve().is_relative_to(self.tree):
                led = str(one.resolve().relative_to(self.tree)).encode()
                present[path] = (len(led), hashlib.sha256(b"link\0" + led).hexdigest())
            elif one.is_file():
                content = one.read_bytes()
                present[path] = (len(content), hashlib.sha256(content).hexdigest())
        (self.run / "safe").unlink(missing_ok=True)
        (self.run / "safe").write_text(f"{safe_note(present)}\n")

    def unsafe(self) -> list[str]:
        """Return what a look finds unsafe about the results."""
        look = ResultsLook(self.home)
        said = [*look.unsafe(), *look.changed()]
        return [one.removeprefix("train-1: ") for one in said]


@pytest.fixture
def box(tmp_path: Path) -> PulledBox:
    return PulledBox(tmp_path)


def test_results_the_user_agreed_to_lose_are_not_listed_as_unsafe(box: PulledBox) -> None:
    (box.tree / "out/gone").symlink_to("nowhere")
    assert box.unsafe() == []
    (box.tree / "out/elsewhere").symlink_to("/etc/passwd")
    assert box.unsafe() == ["out/elsewhere can't be told (outside)"]
    (box.run / LET_GO).write_text('["out/elsewhere", "out/*.new"]')
    assert box.unsafe() == []
    (box.tree / "out/b.new").write_text("new")
    assert box.unsafe() == []
    (box.run / LET_GO).write_text("[damaged")
    assert box.unsafe() == ["out/elsewhere can't be told (outside)"]


def test_the_safety_check_names_results_not_pulled_and_passes_pulled_ones(box: PulledBox) -> None:
    assert box.unsafe() == []
    (box.run / "safe").unlink()
    assert box.unsafe() == ["its results were never pulled whole"]
    box.result.unlink()
    assert box.unsafe() == []  # nothing that could be lost
    (box.run / "results").unlink()
    assert box.unsafe() == []  # its profile names none
    (box.run / "log_max").unlink()
    assert box.unsafe() == ["where its results are was not recorded"]


CHANGES: dict[str, Callable[[PulledBox], object]] = {
    "grown": lambda box: box.result.write_text("weights and more"),
    "of equal size": lambda box: box.result.write_text("Weights"),
    "one more": lambda box: (box.tree / "out/b.pt").write_text(""),
    "one less, one more": lambda box: box.result.rename(box.tree / "out/b.pt"),
    "another's note": lambda box: (box.run / "safe").chmod(0o666),
    "a note of nothing": lambda box: (box.run / "safe").write_text("v1 \n"),
    "a later format": lambda box: (box.run / "safe").write_text(
        (box.run / "safe").read_text().replace("v1", "v2")
    ),
    "a link to a note": lambda box: (
        (box.run / "safe").rename(box.run / "else"),
        (box.run / "safe").symlink_to("else"),
    ),
    "a link": lambda box: (box.tree / "out/c").symlink_to("a.pt"),
    "a link that leads out": lambda box: (box.tree / "out/c").symlink_to("/etc/passwd"),
    "a folder with a line's end of Unicode's": lambda box: (
        (box.tree / "o\x85t").mkdir(),
        (box.tree / "o\x85t/b.pt").write_text("b"),
        (box.run / "results").write_text("out/\no\x85t/\n"),
    ),
    "a name that is no text": lambda box: (
        Path(os.fsdecode(bytes(box.tree / "out") + b"/\xff")).open("w").close()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_results_that_changed_after_a_pull_are_unsafe(box: PulledBox, change: str) -> None:
    assert box.unsafe() == []  # and the digests are saved
    CHANGES[change](box)
    assert len(box.unsafe()) == 1
    box.pull()
    still = {
        "a link that leads out",
        "a name that is no text",
        "a folder with a line's end of Unicode's",
    }
    assert len(box.unsafe()) == (change in still)


def test_a_result_that_a_process_has_open_for_writing_is_unsafe(box: PulledBox) -> None:
    with box.result.open("a"):
        assert box.unsafe() == ["out/a.pt can't be told (held)"]
    assert box.unsafe() == []


def test_the_safety_check_says_unsafe_if_a_result_is_written_while_others_are_checked(
    box: PulledBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    (box.tree / "out/b.pt").write_text("more")
    box.pull()
    read = ResultsLook._digest

    def written(look: ResultsLook, path: str, state: safety.FileState, *, exact: bool) -> str:
        digest = read(look, path, state, exact=exact)
        if path.endswith("b.pt"):
            box.result.write_text("later")
        return digest

    monkeypatch.setattr(ResultsLook, "_digest", written)
    assert box.unsafe() == ["its results changed during the check"]


@pytest.mark.slow
def test_a_result_written_during_the_safety_check_of_another_folder_is_unsafe(
    box: PulledBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PulledBox(box.home.parent / "b")
    moved = box.run.with_name("train-2")
    other.run.rename(moved)
    read = ResultsLook._digest

    def meanwhile(look: ResultsLook, path: str, state: safety.FileState, *, exact: bool) -> str:
        if path.startswith(str(other.tree)):
            box.result.write_text("later")
        return read(look, path, state, exact=exact)

    assert box.unsafe() == []
    monkeypatch.setattr(ResultsLook, "_digest", meanwhile)
    assert box.unsafe() == ["its results changed during the check"]
    monkeypatch.setattr(ResultsLook, "_digest", read)
    box.pull()
    look = ResultsLook(box.home)
    assert [*look.unsafe(), *look.changed()] == []
    (moved / "pid").write_text("2 2 x\n")
    assert [*look.changed()] == ["runs: one began, and changed during the check"]


def test_the_safety_check_says_that_another_users_boxstrap_folder_is_not_checked(
    box: PulledBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, their = str(box.home.parent), box.home.parent / "theirs"
    monkeypatch.setattr(safety, "people", lambda: [own, str(their), "/nowhere"])
    assert {"/tmp", f"{own}/{box.home.name}"} <= {*safety.working_folders()}
    monkeypatch.setattr(safety, "working_folders", list)
    assert list(safety.all_unsafe(box.home)) == []
    (their / ".boxstrap").mkdir(parents=True)
    said = [f"{their}/.boxstrap: what was started from there is not checked"]
    assert list(safety.all_unsafe(box.home)) == said
    monkeypatch.setattr(safety, "people", list)
    monkeypatch.setattr(safety, "working_folders", lambda: [str(their)])
    assert list(safety.all_unsafe(box.home)) == said
    (their / ".boxstrap").rmdir()
    (their / ".boxstrap").symlink_to(box.home)  # as `~/.boxstrap` does
    assert list(safety.all_unsafe(box.home)) == []


def test_a_second_safety_check_rereads_only_files_written_moments_ago(
    box: PulledBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()
    opened = safety._opened
    monkeypatch.setattr(
        safety, "_opened", lambda file, mode: (read.append(Path(file).name), opened(file, mode))[1]
    )
    monkeypatch.setattr(safety, "_SETTLED_NS", 10**12)
    box.unsafe()
    assert box.unsafe() == []
    assert read.count("a.pt") == 2  # so recent that it may change without a change of its times
    monkeypatch.setattr(safety, "_SETTLED_NS", -(10**12))
    assert box.unsafe() == box.unsafe() == []
    assert read.count("a.pt") == 3
    (box.home / "lease.digests").chmod(0o666)
    box.unsafe()
    assert read.count("a.pt") == 4


def later_run(box: PulledBox) -> Path:
    """Return a later run with results in the same place, and nothing pulled of it."""
    other = box.run.with_name("train-2")
    other.mkdir()
    for note in box.run.iterdir():
        if note.name != "safe":
            (other / note.name).write_bytes(note.read_bytes())
    os.utime(box.run / "pid", (OLD, OLD))
    return other


def test_results_in_no_list_count_as_those_of_the_last_run_for_the_safety_check(
    box: PulledBox,
) -> None:
    other = later_run(box)
    assert box.unsafe() == ["train-2: its results were never pulled whole"]
    (box.run / "safe").rename(other / "safe")
    assert box.unsafe() == []


def test_a_result_that_a_later_run_overwrote_is_safe_only_if_it_was_pulled(box: PulledBox) -> None:
    made = {"out/a.pt": state_of(box.result.stat())}
    write_files(str(box.run / "results.made"), made)
    assert box.unsafe() == []
    other = later_run(box)
    write_files(str(other / "results.before"), made)
    box.result.write_text("of the second")
    (other / "results.made").unlink(missing_ok=True)
    write_files(str(other / "results.made"), {"out/a.pt": state_of(box.result.stat())})
    (box.run / "safe").rename(other / "safe")
    own, box.run = box.run, other
    box.pull()
    assert box.unsafe() == ["its results were never pulled whole"]
    (own / "safe").write_text("v1 0\n")
    assert box.unsafe() == ["out/a.pt was lost before it was pulled"]
    (own / "results.home").write_text(f"{digest_of(made)}\n")
    assert box.unsafe() == []


def test_a_result_changed_by_hand_after_its_run_is_unsafe(box: PulledBox) -> None:
    made = {"out/a.pt": state_of(box.result.stat())}
    write_files(str(box.run / "results.made"), made)
    (box.run / "results.home").write_text(f"{digest_of(made)}\n")
    assert box.unsafe() == []
    box.result.write_text("changed by hand")
    said = ["out/a.pt was changed after its end, and no pull brings that"]
    assert box.unsafe() == said
    (box.run / "results.given_up").write_text("train-2\n")
    assert box.unsafe() == said
    placed = box.home / "steps/homework/placed"
    placed.parent.mkdir(parents=True)
    git("init", "-q", str(box.tree))
    git("-C", str(box.tree), "add", "out")
    (box.tree / ".git").rename(placed)
    assert box.unsafe() == []  # what a newer commit has there is at home
    shutil.rmtree(placed)
    box.result.rename(box.result.with_name("b.pt"))  # a file of its own comes with the run
    assert box.unsafe() == ["its results are not what was pulled"]
    box.pull()
    assert box.unsafe() == []
    # In the place of a later run it comes home with that one.
    box.result.write_text("changed by hand")
    other = later_run(box)
    for note in ("results.made", "results.home", "results.given_up"):
        (other / note).unlink()
    write_files(str(other / "results.before"), made)
    write_files(str(other / "results.made"), {})
    box.run = other
    assert box.unsafe() == ["train-2: its results were never pulled whole"]
    box.pull()
    assert box.unsafe() == []


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return lay_programs_alone(tmp_path / "box/current")


def told(programs: Path, box: PulledBox) -> list[str]:
    command = [sys.executable, "-B", str(onbox(programs)), "lease.safety", str(box.home)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
def test_the_safety_check_reports_live_runs_a_running_setup_and_a_moved_tree(
    programs: Path, box: PulledBox
) -> None:
    assert told(programs, box) == ["over"]
    mine = f"{identity(os.getpid())}\n"
    (box.home / "lock").write_text(mine)
    (box.run / "left").write_text(mine)
    queued = box.run.with_name("train-2")
    queued.mkdir()
    (queued / "queue").write_text("gpus\n")
    assert told(programs, box) == [
        "setup: one is running",
        "train-1: still running",
        "train-2: still running",
        "over",
    ]
    assert take_out(runs_below(box.home / "runs"), "stop")
    assert (queued / "exit").read_text() == "143\n"
    assert not (box.run / "ended").exists()
    assert told(programs, box)[1:] == ["train-1: still running", "over"]
    notes = box.home / "steps/other-1"
    notes.mkdir(parents=True)
    (notes / "repo.dir").write_text(f"{box.home.parent}/moved\n")
    assert told(programs, box)[1:] == ["train-1: still running", "over"]  # it was never placed
    (notes / "repo.placed").write_text("x\n")
    assert told(programs, box)[2:] == [
        "moved: its folder is not there, and may be elsewhere",
        "over",
    ]


def git(*args: str, **variables: str) -> None:
    """Run git as an author of its own."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(
        ["git", *who, *args], check=True, capture_output=True, env=os.environ | variables
    )


@pytest.mark.slow
def test_the_safety_check_finds_unsaved_work_despite_git_environment_variables(
    programs: Path, box: PulledBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor may have been started in a run's environment, which the profile sets."""
    tree, notes = str(box.tree), box.home / "steps/homework-1"
    notes.mkdir(parents=True)
    (notes / "repo.dir").write_text(f"{tree}\n")
    (notes / "repo.placed").write_text("x\n")
    git("init", "-q", tree)
    (box.tree / ".gitignore").write_text("out/\n")
    git("-C", tree, "add", "-A")
    git("-C", tree, "commit", "-qm", "sent")
    placed = ["--git-dir", str(notes / "placed"), "--work-tree", tree]
    git("clone", "-q", "--bare", tree, str(box.home / "store/homework-1.git"))
    git("clone", "-q", "--bare", tree, str(notes / "placed"))
    git(*placed, "read-tree", "HEAD")
    assert told(programs, box) == ["over"]
    git("-C", tree, "commit", "-q", "--allow-empty", "-m", "here")
    (box.tree / "new").write_text("new")
    said = told(programs, box)
    assert len(said) == 4
    index = str(notes / "other")
    git(*placed, "add", "-A", GIT_INDEX_FILE=index)
    monkeypatch.setenv("GIT_DIR", str(box.home / "store/homework-1.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", index)
    assert told(programs, box) == said


@pytest.mark.slow
def test_a_safety_check_that_crashes_says_that_the_box_can_not_be_looked_at(
    programs: Path, box: PulledBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "MAIN", str(onbox(programs)))
    look = SafetyLook(box.home)
    assert look.tell() is None
    assert looked(look) == []
    onbox(programs).write_text("raise SystemExit(1)\n")
    assert looked(look) == ["the box: it can't be looked at"]
    assert look.found == ["the box: it can't be looked at"]


def looked(look: SafetyLook) -> list[str] | None:
    look.begin()
    assert look._at_work is not None
    look._at_work.wait(20)
    return look.tell()


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        *((made, True) for made in ("pred.csv", "artifacts/deep/pred.csv", "wandb/run-1/log")),
        *((made, True) for made in ("src/build/a", "src/mine/own.so")),
        ("out/a.pt", False),  # a result
        ("scratch/x", False),  # let go of
        *((made, False) for made in ("old", "link", "gone", ".venv/lib/a.py")),
        ("other/lib/a.py", False),  # an environment too
        *((made, False) for made in ("src/__pycache__/a.pyc", "src/mine.egg-info/PKG-INFO")),
        *((made, False) for made in (".pytest_cache/a", "build/lib/a.py", "src/mine/_version.py")),
        ("src/mine/fast.cpython-311-x86_64-linux-gnu.so", False),
    ],
)
def test_down_would_lose_git_ignored_files_made_since_the_first_run_except_caches_and_results(
    tmp_path: Path, path: str, is_one: bool
) -> None:
    tree, run = tmp_path / "tree", tmp_path / "k/train-1"
    run.mkdir(parents=True)
    for name, text in {"dir": f"{tree}\n", "results": "out/\n", LET_GO: '["scratch"]'}.items():
        (run / name).write_text(text)
    for file in (tree / path, tree / "other/pyvenv.cfg", tree / "to"):
        file.parent.mkdir(parents=True, exist_ok=True)
        if path not in ("gone", "link") or file != tree / path:
            file.write_text("four")
    if path == "link":
        (tree / path).symlink_to("to")
    (run / "pid").write_text("1")
    os.utime(run / "pid", (0, 0) if path != "old" else None)
    made = MadeHere(str(tmp_path), str(tree), ".venv", [RunResults(str(run))])
    assert made.size(path) == (4 if is_one else -1)


def test_files_that_down_would_lose_are_listed_by_their_highest_untracked_folder() -> None:
    tracked = {"", "src"}
    for path, folder in {"a/b/c": "a/", "src/out/x": "src/out/", "src/x": "src/x"}.items():
        assert folder_of(path, tracked) == folder
    assert told_at_risk("a b") == "'a b'"
    assert told_at_risk("a'\n\udcff1") == r"$'a\x27\x0a\xff1'"


def test_listing_files_that_down_would_lose_raises_gits_error(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/made").write_text("by a setup")
    assert Tree(BoxTree(str(tmp_path), "k", str(tmp_path))).made() == {}, "git need not be asked"
    (tmp_path / "made").write_text("here")
    with pytest.raises(OSError, match="not a git repository"):
        Tree(BoxTree(str(tmp_path), "k", str(tmp_path))).made()
