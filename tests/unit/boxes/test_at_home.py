"""A run's log comes home in parts, bounded and redacted, whatever its box does."""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import BoxRecord, Run, RunHistory, run_history
from bootstrap.boxes.at_home import (
    FOLDER,
    PullPlace,
    RunAtHome,
    all_kept,
    find_kept,
    note_name,
    results_place,
    row_of,
    run_of,
)
from bootstrap.boxes.record_folder import LogAtHome, RecordFolder
from bootstrap.link import KnownBox, LinkLost, LocalWire, NoAnswer, all_boxes, save_box
from bootstrap.onbox.runs.logs import RunLog
from bootstrap.runs import bring_home
from bootstrap.runs.report import _usual_place
from tests.box_programs import lay_programs
from tests.boxes.loopback import LoopbackBox
from tests.cli import Completed, User
from tests.logins import login_on
from tests.run_states import identity

pytestmark = pytest.mark.slow  # each starts programs

TOKEN = "a-token-that-nobody-may-see"
ENDED = {"exit": "0\n", "ended": "exit 0\n"}
RUN = Run("homework", "train-1", "finished", 0, 5, "", "", "", 0, 0, "python t.py")


@dataclass
class There:
    """A box with one run, whose folder the test writes, and a user who pulls it."""

    user: User
    box: LoopbackBox
    root: Path
    run: Path
    host: Sequence[str]

    def do(self, *words: str) -> Completed:
        return self.user.run(*words, *self.host)

    def pull(self, *words: str) -> dict[str, Any]:
        return self.do("pull", "--json", *words).must(0).json()["record"]

    def write(self, log: bytes | None = None, **notes: str | None) -> None:
        if log is not None:
            (self.run / "log").write_bytes(log)
        for name, text in notes.items():
            if text is None:
                (self.run / name).unlink(missing_ok=True)
            else:
                (self.run / name).write_text(text)

    def give_secret(self) -> None:
        """Let the box have been given a secret."""
        (record,) = self.user.state.glob("boxes/*/box.json")
        document = json.loads(record.read_text())
        document["extra"]["secrets"] = ["API_TOKEN"]
        record.write_text(json.dumps(document))
        self.user.env["API_TOKEN"] = TOKEN

    @property
    def place(self) -> Path:
        (found,) = self.root.glob("boxstrap-results/*/train-1/boxstrap-run")
        return found

    @property
    def log(self) -> bytes:
        return (self.place / "log").read_bytes()

    def files(self) -> dict[Path, int]:
        """Return all files that came home, and when each was written."""
        found = self.root.rglob("boxstrap-results/**/*")
        return {path: path.stat().st_mtime_ns for path in found if path.is_file()}

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / "run.json").read_text())
        return found


def make_there(user: User, box: LoopbackBox, host: str) -> There:
    """Put a run of the user's new repository on the box, which is reached as `host`."""
    repository = user.repository()
    lay_programs(Path(box.home, ".boxstrap/box/current"))
    words = ("--host", host, "--identity", str(box.identity))
    user.run("status", *words).must(0)
    (known,) = user.state.glob("repositories/*.json")
    run = Path(box.home, ".boxstrap/runs", json.loads(known.read_text())["id"], "train-1")
    run.mkdir(parents=True)
    made = There(user, box, repository.root, run, words)
    made.write(
        b"",
        command="python train.py\n",
        started="1700000000\n",
        commit=f"{'a' * 40}\n",
        work="w\n",
        session="train\n",
        dir=f"{box.home}/homework\n",
        pid="1 1 x\n1 1 x\n",
        **ENDED,
    )
    return made


@pytest.fixture
def there(user: User) -> Iterator[There]:
    box = LoopbackBox()
    try:
        yield make_there(user, box, box.host_string)
    finally:
        box.stop()


def test_the_next_pull_continues_a_log_without_splitting_a_secret(there: There) -> None:
    there.give_secret()
    half = len(TOKEN) // 2
    begin = b"step 1 loss 0.5\ntoken " + TOKEN[:half].encode()
    there.write(begin, pid=f"{identity(os.getpid())}\n", exit=None, ended=None)
    there.pull()
    assert there.log == b"step 1 loss 0.5\n"
    assert there.document["run"]["state"] == "running"
    assert not (there.place / "report.html").exists()
    there.write(begin + TOKEN[half:].encode() + b" end\nstep 2 loss 0.4", **ENDED)
    assert there.pull()["dropped"] == 0
    assert there.log.startswith(b"step 1 loss 0.5\ntoken [API_TOKEN hidden")
    assert there.log.endswith(b" end\nstep 2 loss 0.4")
    assert len(there.log) == (there.run / "log").stat().st_size
    assert there.document["metric"] == "step 2 loss 0.4"
    before = there.files()
    there.pull()
    assert there.files() == before
    # Something that lives on writes more.
    with (there.run / "log").open("ab") as file:
        file.write(b"\nlate\n")
    there.pull()
    assert there.log.endswith(b"0.4\nlate\n")


@pytest.mark.parametrize("is_another_known", [True, False])
def test_wait_and_pull_of_a_finished_run_already_at_home_work_after_its_box_was_forgotten(
    there: There, *, is_another_known: bool
) -> None:
    there.write(b"step 1\n", exit="3\n", ended="exit 3\n")
    there.pull()
    (known,) = there.user.state.glob("boxes/*")
    there.user.run("boxes", "--forget", known.name).must(0)
    with contextlib.ExitStack() as stack:
        words = ["--run", "train-1"]
        if is_another_known:
            other = LoopbackBox()
            stack.callback(other.stop)
            lay_programs(Path(other.home, ".boxstrap/box/current"))
            words += ["--identity", str(other.identity)]
            there.user.run("status", "--host", other.host_string, *words[2:]).must(0)
        waited = there.user.run("wait", *words).must(10)
        assert "train-1 ended with exit code 3" in waited.out
        assert "from home, as of" in waited.out
        pulled = there.user.run("pull", *words).must(0).out
        assert "nothing to pull: it ended with exit code 3, and is at home" in pulled
        words[1] = "train-2"
        for task in ("wait", "pull"):
            there.user.run(task, *words).must(2)


def test_pull_reports_how_many_bytes_the_box_dropped_of_a_log_and_saves_the_rest(
    there: There,
) -> None:
    first = b"".join(b"line %05d\n" % at for at in range(1000))  # 11 bytes each
    there.write(bytes(5500) + first[5500:], times="1700000000 5500\n1700000060 11000\n")
    assert there.pull() == {"place": str(there.place), "log": 5500, "dropped": 5500}
    assert there.log == first[5500:]
    # Later it dropped more than came home.
    more = b"".join(b"line %05d\n" % at for at in range(1000, 3000))
    times = "1700000100 22000\n1700000200 27500\n1700000300 33000\n"
    there.write(bytes(22000) + (first + more)[22000:], times=times)
    there.pull()
    assert there.log == first[5500:] + (first + more)[22000:]
    assert there.document["log"] == [[5500, 5500], [22000, 11000]]
    shown = there.do("logs").must(0)  # of the box
    there.box.kill_sshd()
    kept = there.do("logs").must(0)
    assert "from home, as of" in kept.err
    assert "16 kB of the log were dropped" in kept.err
    assert kept.out.encode() == there.log
    assert kept.out.endswith(shown.out)


def test_logs_of_an_unreachable_box_exits_with_3_if_its_newest_run_is_unpulled(
    there: There,
) -> None:
    there.write(b"step 1\n", **ENDED)
    there.pull()
    newer = there.run.with_name("train-2")
    shutil.copytree(there.run, newer)
    for file in ("exit", "ended"):
        (newer / file).unlink(missing_ok=True)
    (newer / "pid").write_text(f"{identity(os.getpid())}\n")
    (newer / "started").write_text("1800000000\n")
    there.do("status").must(0)
    there.box.kill_sshd()
    for task in ("logs", "report"):
        refused = there.do(task).must(3)
        assert "train-2 is the newest run known, and is not at home" in refused.err
        assert refused.out == ""
    assert there.do("logs", "--run", "train-1").must(0).out == "step 1\n"
    assert there.do("logs", "--run", "train-1", "--tail", "0").must(0).out == ""


def test_logs_follow_of_an_unreachable_box_prints_the_pulled_log_and_ends(there: There) -> None:
    there.write(b"step 1\n", pid=f"{identity(os.getpid())}\n", exit=None, ended=None)
    there.pull()
    there.box.kill_sshd()
    followed = there.do("logs", "-f").must(3)
    assert followed.out == "step 1\n"
    assert "train-1 went on when its box was last seen" in followed.err


def test_logs_since_a_time_are_the_same_from_a_pulled_log_and_the_box(there: There) -> None:
    log = b"".join(b"line %05d\n" % at for at in range(3000))
    times = "".join(f"{1700000000 + at} {at * 1100}\n" for at in range(10, 31))
    there.write(bytes(11000) + log[11000:], times=times)
    there.pull()
    (file,) = there.user.state.glob("runs/*.json")
    row = json.loads(file.read_text())
    run = run_of(row["run"])
    assert run is not None
    parts = tuple((start, size) for start, size in row["log"])
    kept = RunAtHome("box", 0.0, "", run, place=row["place"], log=parts, log_end=33000)
    for second in range(1700000005, 1700000035, 2):
        with contextlib.closing(RunLog(f"{there.run}/log")) as there_log:
            at = there_log.written_since(second)
        assert b"".join(kept.pieces(second)) == log[max(at, 11000) :], second


def test_pull_saves_only_the_newest_lines_of_a_log_larger_than_max_size(there: There) -> None:
    log = b"".join(b"line %05d\n" % at for at in range(9000))
    there.write(log)
    whole = 20_000 // 11 * 11  # whole lines
    assert there.pull("--max-size", "20k")["dropped"] == len(log) - whole
    assert there.log == log[-whole:]
    # A length that the box only claims costs nothing here.
    os.truncate(there.run / "log", 1 << 40)
    assert there.pull("--max-size", "50k")["log"] == 49_999
    assert there.log.strip(b"\0") == b""


def test_a_log_that_was_emptied_on_the_box_is_pulled_from_its_start(there: There) -> None:
    there.write(b"first\n" * 1000)
    there.pull()
    there.write(b"again\n", **ENDED)
    os.utime(there.run / "exit", (1800000000, 1800000000))
    there.pull()
    assert there.log == b"again\n"


def test_log_lines_left_by_an_interrupted_pull_are_not_doubled_by_the_next(there: There) -> None:
    there.write(b"one\n", pid=f"{identity(os.getpid())}\n", exit=None, ended=None)
    there.pull()
    with (there.place / "log").open("ab") as file:
        file.write(b"tw")
    there.write(b"one\ntwo\n", **ENDED)
    there.pull()
    assert there.log == b"one\ntwo\n"
    # This machine's own record is lost: it is fetched again, into the same folder.
    shutil.rmtree(there.user.state / "runs")
    there.pull()
    assert there.log == b"one\ntwo\n"


def test_status_says_only_the_first_time_that_a_box_has_runs_of_this_repository(
    there: There,
) -> None:
    there.write(b"one\n")
    assert "says that it has runs of this repository" in there.do("status").must(0).err
    (file,) = there.user.state.glob("boxes/*/box.json")
    (row,) = json.loads(file.read_text())["extra"]["repositories"]
    assert row["used"] == 0
    assert "says that" not in there.do("status").must(0).err


def test_the_max_size_of_a_pulled_log_cuts_no_secret_in_two(there: There) -> None:
    there.give_secret()
    rest = b"step 1 loss 0.5\n" * 100
    there.write(b"token " + TOKEN.encode() + b"\n" + rest)
    there.pull("--max-size", str(len(rest) + len(TOKEN) // 2))
    assert there.log == rest
    # Nor if no line ends before what may come.
    there.write(b"x" * 1000 + TOKEN.encode(), started="1700009999\n")
    second = Path(there.pull("--max-size", str(len(TOKEN) // 2))["place"])
    assert (second / "log").read_bytes() == b""


def test_pull_exits_with_9_and_writes_nothing_if_the_results_folder_is_a_symlink(
    there: There, tmp_path: Path
) -> None:
    """A repository may have links and pipes where a pull put its folders before."""
    live = {"pid": f"{identity(os.getpid())}\n", "exit": None, "ended": None}
    there.write(b"one\n", **live)
    there.pull()
    results, theirs = there.place.parents[2], tmp_path / "theirs"
    results.rename(theirs)
    results.symlink_to(theirs)
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    there.write(b"one\ntwo\n", **ENDED)
    assert "link" in there.do("pull").must(9).err
    there.box.kill_sshd()
    assert "link" in there.do("report").must(9).err
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before


def test_a_pipe_or_symlink_in_place_of_a_run_record_is_not_read(there: There) -> None:
    there.write(b"one\n", times="1700000000 0\n1700000060 4\n")
    there.pull()
    there.box.kill_sshd()
    for name in ("times", "history.json", "../boxstrap-manifest.json"):
        (there.place / name).unlink(missing_ok=True)
        os.mkfifo(there.place / name)
    there.do("logs", "--since", "1m").must(0)
    assert "did not come home" in there.do("report").must(2).err
    (there.place / "history.json").unlink()
    (there.place / "history.json").symlink_to("/dev/zero")
    assert "did not come home" in there.do("report").must(2).err
    (there.place / "log").unlink()
    os.mkfifo(there.place / "log")
    assert "not at its place" in there.do("logs").must(2).err


def test_pull_gives_up_on_a_log_whose_dropped_part_never_stops_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ever_more(*_: object, at: int, **_more: object) -> BoxRecord:
        stream: Any = SimpleNamespace(close=lambda: None)
        return BoxRecord({}, b"", at, 20_000, stream, b"x" + bytes(8192), stream)

    monkeypatch.setattr(run_history, "ask_record", ever_more)
    monkeypatch.setattr(bring_home._Bringing, "_goes_on_at", lambda *_: 0)
    bringing = bring_home._Bringing(login_on(LocalWire()), 1 << 20)
    file = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    with LogAtHome(file, ()) as log, pytest.raises(NoAnswer, match="changes each time"):
        bringing._take(RUN, log)


@pytest.mark.parametrize("is_lost", [True, False])
def test_log_and_history_are_asked_for_again_only_if_the_first_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    asked: list[str] = []

    def record(*_: object, **_more: object) -> BoxRecord:
        asked.append(threading.current_thread().name)
        stream: Any = SimpleNamespace(close=lambda: None, read=lambda _: b"lo\n")
        return BoxRecord({}, b"", 0, 6, stream, b"hel", stream)

    def answer(*_: object, **_more: object) -> RunHistory:
        asked.append(threading.current_thread().name)
        if is_lost and len(asked) == 2:
            raise LinkLost("box")
        return RunHistory(subject="Go on")

    monkeypatch.setattr(run_history, "ask_record", record)
    monkeypatch.setattr(run_history, "ask_history", answer)
    box = login_on(LocalWire())
    bringing = bring_home._Bringing(box, 1 << 20, bring_home.ask_ahead(box, RUN, 1 << 20))
    file = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    with LogAtHome(file, ()) as log:
        bringing._take(RUN, log)
    assert (tmp_path / "log").read_bytes() == b"hello\n"
    found = bringing._history(RUN)
    assert found
    assert found.subject == "Go on"
    assert asked == [*["asked"] * 2, *["MainThread"] * 2 * is_lost]


@pytest.mark.parametrize("name", ["boxstrap-run", "boxstrap-run/log"])
def test_nothing_is_written_by_pull_through_a_symlink_in_its_results_folder(
    there: There, name: str, tmp_path: Path
) -> None:
    there.write(b"hello\n")
    there.pull()
    shutil.rmtree(there.user.state / "runs")
    way = there.place.parent / name
    shutil.rmtree(way) if way.is_dir() else way.unlink()
    target = tmp_path / "mine"
    target.mkdir() if name == "boxstrap-run" else target.write_text("mine")
    way.symlink_to(target)
    refused = there.do("pull").must(9).err
    assert "link" in refused or "symbolic" in refused
    assert [*target.iterdir()] == [] if target.is_dir() else target.read_text() == "mine"


def test_another_run_with_the_same_name_is_pulled_into_its_own_folder(there: There) -> None:
    there.write(b"the first\n")
    there.pull()
    there.write(b"the second\n", started="1700009999\n")
    second = Path(there.pull()["place"])
    assert second.name == "boxstrap-run-2"
    assert (second / "log").read_bytes() == b"the second\n"
    assert there.log == b"the first\n"
    listed = there.user.run("runs", "--json").must(0).json()["runs"]
    assert [(one["name"], one["started"]) for one in listed] == [
        ("train-1", 1700009999),
        ("train-1", 1700000000),
    ]


def test_a_pulled_run_is_shown_when_its_box_is_unreachable(there: There) -> None:
    there.write(b"step 1 loss 0.5\nValueError: it broke\n", exit="1\n", ended="exit 1\n")
    there.do("pull").must(0)
    there.box.kill_sshd()
    assert there.do("logs", "--run", "train-1").must(0).out == (
        "step 1 loss 0.5\nValueError: it broke\n"
    )
    said = there.do("status", "--run", "train-1").must(0)
    assert "from home, as of" in said.out
    assert "| ValueError: it broke" in said.out
    whole = there.do("status", "--json").must(3).json()
    assert [run["name"] for run in whole["runs"]] == ["train-1"]
    assert "report: " in there.do("report", "--run", "train-1").must(0).out
    there.do("logs", "--run", "train-2").must(3)
    (there.place / "log").unlink()
    assert "is not at its place any more" in there.do("logs", "--run", "train-1").must(2).err
    (row,) = there.user.run("runs", "--json").must(0).json()["runs"]
    assert (row["log"]["where"], row["results"]["where"]) == ("moved", "none")


def test_box_slash_run_shows_the_pulled_run_of_a_forgotten_box(there: There) -> None:
    """The repository has another box, which was asked for it instead."""
    there.write(b"step 1 loss 0.5\n", **ENDED)
    there.do("pull").must(0)
    (box,) = all_boxes()
    there.user.run("boxes", "--forget", box.name).must(0)
    other = KnownBox("other", "root@127.0.0.1:1", "127.0.0.1", port=1)
    save_box(other.using(there.run.parent.name))
    for task, shown in (("logs", "step 1 loss"), ("status", "train-1"), ("report", "report: ")):
        assert shown in there.user.run(task, "--run", f"{box.name}/train-1").must(0).out
    for task, said in (("wait", "train-1 finished"), ("pull", "nothing to pull: it finished")):
        assert said in there.user.run(task, f"{box.name}/train-1").must(0).out


def test_a_saved_run_record_is_read_back_equal_and_unknown_fields_in_it_are_ignored() -> None:
    run = Run("homework", "train-1", "finished", 0, 5, "", "", "", 0, 0, "python t.py")
    assert run_of(row_of(run)) == run
    row = json.loads(json.dumps(row_of(run)))
    assert run_of({**row, "later": 1, "rc": "x", "gpus": 7, "state": "finished"}) is not None
    for broken in ({**row, "state": "flying"}, {**row, "name": "../.."}, [], None):
        assert run_of(broken) is None


def test_a_run_is_pulled_into_the_same_folder_after_its_box_is_renamed(tmp_path: Path) -> None:
    run = Run("key", "train-1", "running", None, 1, "", "", "train", 0, 0, "true")
    place = tmp_path / "boxstrap-run"
    before = RunAtHome("gpu", 5.0, "host", run, place=str(place))
    before.save()
    RecordFolder(tmp_path, (), before).close()
    nina = KnownBox("nina", "host", created=6.0)
    note_name(KnownBox("gpu", "host", created=5.0), nina)
    kept = find_kept(nina, run)
    assert kept is not None
    with RecordFolder(tmp_path, (), kept) as folder:
        assert folder.place == place
    with RecordFolder(tmp_path, (), before) as folder:  # another box of the old name
        assert folder.place == tmp_path / "boxstrap-run-2"


def test_after_a_move_of_the_repository_runs_and_down_still_find_its_pulled_results(
    there: There,
) -> None:
    there.write(results="out/\n")
    out = Path(there.box.home, "homework/out")
    out.mkdir(parents=True)
    (out / "a.pt").write_bytes(b"1" * 1000)
    (out / "b.pt").write_bytes(b"2" * 1000)
    assert there.do("pull", "--json").must(0).json()["received"] == 2000
    there.root = there.user.place = there.root.rename(there.root.with_name("moved"))
    (listed,) = there.user.run("runs", "--json").must(0).json()["runs"]
    assert (listed["results"]["where"], listed["log"]["where"]) == ("home", "home")
    there.user.run("--dry", "down", *there.host).must(0)
    (out / "b.pt").unlink()  # as a later run, or a clean, may
    again = there.do("pull", "--json").must(0).json()
    assert (again["received"], again["place"]) == (0, str(there.place.parent))


def test_a_broken_git_file_does_not_change_where_a_pull_is_recorded(tmp_path: Path) -> None:
    run = Run("key", "train-1", "finished", 0, 1, "", "", "train", 0, 0, "true")
    place, files = PullPlace(tmp_path, (FOLDER, "gpu", "train-1")), set()
    for text in ("gitdir: /nowhere", None):
        dot_git = tmp_path / ".git"
        dot_git.write_text(text) if text else dot_git.unlink()
        files.add(place.record(tmp_path / "box", run))
    assert len(files) == 1


def test_down_keeps_logs_of_repositories_unknown_here_in_folders_that_name_them(
    there: There,
) -> None:
    there.write(b"mine\n")
    shutil.copytree(there.run, there.run.parents[1] / "click-1234" / "train-1")
    there.user.run("down", *there.host)
    assert there.log == b"mine\n"
    (other,) = there.root.glob("boxstrap-results/*/click-1234/train-1/boxstrap-run")
    assert (other / "log").read_bytes() == b"mine\n"


def test_pulled_results_of_a_renamed_box_stay_where_they_are(tmp_path: Path) -> None:
    run = Run("key", "train-1", "finished", 0, 1, "", "", "train", 0, 0, "true")
    for box, created in (("gpu", 5.0), ("gpu", 6.0), ("other", 5.0)):
        where = str(tmp_path / FOLDER / box / "train-1")
        RunAtHome(box, created, "host", run, place="/results", result_place=where).save()
    note_name(KnownBox("gpu", "host", created=5.0), KnownBox("nina", "host", created=5.0))
    kept = find_kept(KnownBox("nina", "host", created=5.0), run)
    assert kept is not None
    assert kept.place == "/results"
    assert sorted((one.box, one.created) for one in all_kept()) == [
        ("gpu", 6.0), ("nina", 5.0), ("other", 5.0),
    ]  # fmt: skip
    # A pull goes on where the results are; where the user removed them, under the new name.
    nina = KnownBox("nina", "host", created=5.0)
    results = tmp_path / FOLDER / "gpu/train-1"
    assert results_place(nina, run, "key", tmp_path).path == tmp_path / FOLDER / "nina/train-1"
    results.mkdir(parents=True)
    assert results_place(nina, run, "key", tmp_path).path == results
    assert results_place(nina, run, "key", tmp_path, tmp_path / "to").path == tmp_path / "to"
    box: Any = SimpleNamespace(known=nina, own="key", options=SimpleNamespace(place=tmp_path))
    assert _usual_place(box, run).parent == results, "a report lies with them"
    replace(kept, place=str(results / "boxstrap-run"), result_place="").save()
    assert results_place(nina, run, "key", tmp_path).path == results, "also where only its log came"
