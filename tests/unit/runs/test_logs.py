"""The log of a run: bounded on disk, indexed by time, read across the part that was dropped."""

import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run
from bootstrap.boxes.at_home import LogPart, RunAtHome
from bootstrap.boxes.login import BoxLogin
from bootstrap.link import LinkLost, LocalWire
from bootstrap.onbox.redact import Redactor
from bootstrap.onbox.runs.logs import RunLog
from bootstrap.runs.log_reader import LogReader, together
from bootstrap.runs.logs import JsonLog, LastDrawn, LogOptions, NamedLog, _Logs, _readers, _show
from bootstrap.ui.screens import JsonScreen, make_screen
from tests.box_programs import lay_programs
from tests.logins import login_on
from tests.unit.onbox.test_runner import make_run, start, was
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each starts programs

MIB = 1024 * 1024
LIMIT = 8 * MIB
# Each line has the time when it was written; 30 MiB in all, then one line while no cut is due or
# under way. It never gets further ahead of the cuts and of the reader than these do on a busy
# machine.
WRITES = f"""\
import os, sys, time

log, seen = sys.argv[1:]

def is_cut(most):
    try:
        with open(os.path.dirname(log) + "/times") as times:
            kept = int(times.readline().split()[1])
    except FileNotFoundError:
        return True
    return os.stat(log).st_size - kept <= most

def await_cut(most):
    while not is_cut(most):
        time.sleep(0.02)

for number in range(30 * 1024):
    if number % 512 == 0:
        time.sleep(0.05)
        await_cut({LIMIT * 3 // 2})
        while os.stat(log).st_size - os.stat(seen).st_size > {LIMIT // 4}:
            time.sleep(0.02)
    if number == 30 * 1024 - 1:
        for _ in range(2):
            time.sleep(1)
            await_cut({LIMIT * 3 // 4})
    print(f"{{time.time():.3f}} step {{number}} ".ljust(1023, "x"), flush=True)
"""


MakeReader = Callable[..., LogReader]


@pytest.fixture
def reader() -> Iterator[MakeReader]:
    """Make readers of runs in a folder of this machine."""
    boxes = list[BoxLogin]()

    def make(folder: Path, name: str = "train-1") -> LogReader:
        lay_programs(folder / ".boxstrap/box/current")
        boxes.append(login_on(LocalWire(), str(folder)))
        run = Run("homework", name, "running", None, 0, "", "", "", 0, 0, "")
        return LogReader(boxes[-1], run.log, run)

    yield make
    for box in boxes:
        box.close()


def finished(folder: Path, log: bytes, times: str | None = None, name: str = "train-1") -> Path:
    """Make a run that is over, with this log."""
    run = folder / ".boxstrap/runs/homework" / name
    run.mkdir(parents=True)
    for file, text in {"pid": "1 1 x\n1 1 x\n", "exit": "0\n", "times": times}.items():
        if text is not None:
            (run / file).write_text(text)
    (run / "log").write_bytes(log)
    return run


def test_logs_follow_reads_to_the_end_a_log_whose_beginning_is_dropped_at_its_limit(
    tmp_path: Path, reader: MakeReader
) -> None:
    (tmp_path / "write.py").write_text(WRITES)
    log = tmp_path / ".boxstrap/runs/homework/train-1/log"
    seen = tmp_path / "seen"  # as long as what was read
    seen.touch()
    run = make_run(tmp_path, f"{sys.executable} write.py {log} {seen}")
    assert log.parent == run
    (run / "log_max").write_text(f"{LIMIT}\n")
    runner = start(run)
    most, read = 0, bytearray()
    follower = reader(tmp_path)
    for piece in follower.as_it_grows():
        read += piece
        os.truncate(seen, follower.at)
        most = max(most, (run / "log").stat().st_blocks * 512)
    runner.wait(PATIENCE_S)
    # The run continues to write while the log is cut.
    assert LIMIT / 2 < most < 2 * LIMIT
    kept = int(was(run, "times").split()[1])
    rest = (run / "log").read_bytes()[kept:]
    assert LIMIT / 2 - 1024 <= len(rest) <= LIMIT
    steps = [int(step) for step in re.findall(rb"^[0-9.]+ step ([0-9]+) x+$", read, re.MULTILINE)]
    assert steps[-1] == 30 * 1024 - 1
    assert steps == list(range(30 * 1024))
    assert rest == bytes(read[-len(rest) :])
    # As exact as the index, which has fewer times when the machine is busy.
    noted = [int(line.split()[0]) for line in was(run, "times").splitlines()]
    gap = max(
        later - earlier for earlier, later in zip(noted, [*noted[1:], noted[-1]], strict=True)
    )
    for since in range(int(float(rest.split()[0])) + 2, int(time.time()) + 1):
        assert follower.find_start(since)
        early, late = rest[: follower.at - kept], rest[follower.at - kept :]
        assert not early or float(early.splitlines()[-1].split()[0]) < since
        assert not late or since - gap - 2 < float(late.split()[0])


def test_the_last_line_of_a_log_gets_a_time_though_written_while_its_size_was_read(
    tmp_path: Path,
) -> None:
    """A run that waited for its log to be cut waited for ever."""
    run = make_run(tmp_path, "echo one; exec sleep 600")
    runner = start(run)

    def noted(size: int) -> None:
        wait_until(lambda: f" {size}\n" in (was(run, "times") + "\n"))

    noted(4)
    with (run / "log").open("a") as log:
        log.write("two\n")
    os.utime(run / "log", (1, 1))  # older than its line in `times`
    noted(8)
    os.killpg(int(was(run, "pid").split()[0]), signal.SIGTERM)
    runner.wait(PATIENCE_S)


def test_a_log_is_kept_whole_on_a_file_system_that_can_not_free_its_beginning(
    tmp_path: Path,
) -> None:
    """What would be kept aside meanwhile could be written for ever."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/fallocate").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/fallocate").chmod(0o755)
    run = make_run(tmp_path, "yes line | head -n 1000; sleep 3; echo last")
    (run / "log_max").write_text("100\n")
    start(run).wait(PATIENCE_S)
    assert was(run, "log") == "line\n" * 1000 + "last"
    assert int(was(run, "times").split()[1]) == 0


EMPTIES = """\
import os, sys, time
print("first " * 100, flush=True)
time.sleep(2)
os.truncate(sys.argv[1], 0)
print("again", flush=True)
time.sleep(2)
"""


def test_a_log_emptied_by_its_command_gets_new_times_from_its_first_byte(tmp_path: Path) -> None:
    (tmp_path / "empties.py").write_text(EMPTIES)
    log = tmp_path / ".boxstrap/runs/homework/train-1/log"
    run = make_run(tmp_path, f"{sys.executable} empties.py {log}")
    start(run).wait(PATIENCE_S)
    assert (run / "log").read_text() == "again\n"
    times = [int(line.split()[1]) for line in was(run, "times").splitlines()]
    assert times == [0, 6]


def test_logs_follow_from_beyond_the_end_of_a_log_prints_nothing_and_goes_to_its_end(
    tmp_path: Path, reader: MakeReader
) -> None:
    finished(tmp_path, bytes(98304) + b"x" * 5000 + b"\nlast\n", "1 90000\n2 103310\n")
    follower = reader(tmp_path)
    follower.at = 120_000
    assert b"".join(follower.as_it_grows()) == b""
    assert (follower.at, follower.skipped) == (103310, 0)
    assert follower.over


def test_logs_skips_the_dropped_part_of_a_log_without_reading(
    tmp_path: Path, reader: MakeReader
) -> None:
    hole = 1 << 38  # reading it would take minutes
    run = finished(tmp_path, b"first\n", f"1 {hole}\n2 {hole + 10}\n")
    with (run / "log").open("r+b") as log:
        log.seek(hole)
        # Zeros that the run wrote itself are not a hole.
        log.write(b"begin\n" + bytes(10_000) + b"end\n")
    follower = reader(tmp_path)
    began = time.monotonic()
    assert b"".join(follower.as_it_grows()) == b"first\nbegin\n" + bytes(10_000) + b"end\n"
    assert follower.skipped == hole - 6
    assert follower.over
    assert time.monotonic() - began < 40


LOG = b"one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    ("times", "since", "at"),
    [
        ("100 0\n102 6\n105 19\n", 50, 0),
        ("100 0\n102 6\n105 19\n", 102, 0),
        ("100 0\n102 6\n105 19\n", 103, 4),  # start of the line that was half written
        ("100 0\n102 8\n105 19\n", 103, 8),
        ("100 0\n102 6\n105 19\n", 106, 19),
        ("100 4\n102 6\n105 19\n", 50, 4),  # the part before it was dropped
        ("", 50, 0),
    ],
)
def test_logs_since_a_time_begins_with_the_first_whole_line_of_that_time_or_earlier(
    times: str, since: int, at: int, tmp_path: Path
) -> None:
    with closing(RunLog(f"{finished(tmp_path, LOG, times)}/log")) as log:
        assert log.written_since(since) == at


TIMES = "100 0\n102 6\n105 19\n"


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (LogPart(lines=2), "three four"),
        (LogPart(lines=9), "one two three four"),
        (LogPart(pattern="^t|u"), "two three four"),
        (LogPart(pattern="o", lines=1), "four"),
        (LogPart(pattern="nothing"), ""),
        (LogPart(until=99), ""),
        (LogPart(until=101), "one two"),  # the second was half written
        (LogPart(until=103), "one two"),
        (LogPart(until=104), "one two three four"),
        (LogPart(until=101, lines=1), "two"),
        (LogPart(until=101, pattern="o", lines=1), "two"),
        (LogPart(until=101, pattern="three"), ""),
        (LogPart(until=200), "one two three four"),
    ],
)
@pytest.mark.parametrize("start", [0, 4])
def test_logs_prints_the_same_part_from_the_box_and_from_the_pulled_log(
    part: LogPart, shown: str, start: int, tmp_path: Path, reader: MakeReader
) -> None:
    run = finished(tmp_path, LOG, TIMES)
    there = reader(tmp_path)
    there.at, there.part = start, part
    wanted = shown.split()
    if start and "one" in wanted:
        wanted.remove("one")
    assert b"".join(there.as_it_is()).decode().split() == wanted
    assert there.run
    kept = RunAtHome("box", 0.0, "", there.run, place=str(run), log=((0, len(LOG)),), log_end=19)
    if not start:
        assert b"".join(kept.pieces(None, part)).decode().split() == wanted


def test_logs_finds_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    lines = [f"{number} {'x' * (number % 900)}\n" for number in range(3000)]
    (tmp_path / "log").write_text("".join(lines))
    size = len("".join(lines))
    for begin, end, count in ((0, size, 700), (0, size, 1), (0, size, 9000), (size - 30, size, 5)):
        with closing(RunLog(f"{tmp_path}/log")) as log:
            at = log.lines_before(begin, end, count)
        text = "".join(lines)[begin:end]
        assert text[at - begin :].splitlines() == text.splitlines()[-count:]


@pytest.mark.parametrize(("pattern", "count"), [("number 7", 3), ("^first", 3), ("9 x+$", 400)])
def test_logs_with_grep_prints_the_last_matching_lines_of_a_log_of_90000_lines(
    pattern: str, count: int, tmp_path: Path, reader: MakeReader
) -> None:
    lines = ["first\n", *(f"number {number} {'x' * 90}\n" for number in range(90_000))]
    finished(tmp_path, "".join(lines).encode())
    there = reader(tmp_path)
    there.part = LogPart(pattern=pattern, lines=count)
    found = b"".join(there.as_it_is()).decode().splitlines()
    assert found == [line[:-1] for line in lines if re.search(pattern, line)][-count:]


def test_logs_follow_begins_with_the_requested_last_lines(
    tmp_path: Path, reader: MakeReader
) -> None:
    finished(tmp_path, LOG, TIMES)
    follower = reader(tmp_path)
    follower.find_last_lines(2)
    assert b"".join(follower.as_it_grows()) == b"three\nfour\n"


def test_logs_of_a_queued_run_begin_with_what_the_run_waits_for() -> None:
    queued = Run("k", "train-2", "queued", None, 1, "", "", "train", 0, 0, "x", queue="gpus")
    box: Any = SimpleNamespace(runs=lambda *_, **__: [queued], repository=lambda _: "homework")
    said = io.StringIO()
    _readers(box, LogOptions(), make_screen(stream=said))
    assert f"train-2 of homework ({queued.outcome()})" in said.getvalue()


def test_logs_since_a_time_show_the_whole_log_where_no_times_were_recorded(
    tmp_path: Path, reader: MakeReader
) -> None:
    finished(tmp_path, LOG)
    follower = reader(tmp_path)
    assert not follower.find_start(100)
    assert follower.at == 0
    assert b"".join(follower.as_it_is()) == LOG


def test_logs_of_several_runs_are_printed_at_once_each_to_its_end(
    tmp_path: Path, reader: MakeReader, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    names = ["train-1", "train-20"]
    for name in names:
        lines = "".join(f"{name} step {step}\n" for step in range(50_000))
        finished(tmp_path, f"{lines}last".encode(), name=name)
    readers = [reader(tmp_path, name) for name in names]
    outs = [NamedLog(name.ljust(8)) for name in names]
    for at, piece in together(readers, follow=True):
        if piece:
            outs[at].write(piece)
        else:
            outs[at].end()
    shown = capfdbinary.readouterr().out.decode().splitlines()
    for name in names:
        own = [line.removeprefix(f"{name:8} | ") for line in shown if line.startswith(f"{name} ")]
        assert own == [*(f"{name} step {step}" for step in range(50_000)), "last"]
    assert len(shown) == 2 * 50_001
    assert all(one.over for one in readers)


def test_logs_of_several_runs_tell_of_no_lost_link_in_the_moment_in_which_ctrl_c_ends_them(
    tmp_path: Path, reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends their ssh, too."""
    finished(tmp_path, LOG)
    readers = [reader(tmp_path) for _ in range(2)]
    told = list[object]()
    for one in readers:
        monkeypatch.setattr(one.box.link, "reconnect", told.append)

    def lost(*_: object) -> Iterator[bytes]:
        raise LinkLost("box")

    class Interrupted:  # of that module alone: threads of other tests may sleep, too
        def sleep(self, _: float) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(LogReader, "_over", lost)
    monkeypatch.setattr("bootstrap.runs.log_reader.time", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        list(together(readers, follow=True))
    assert told == []


def test_a_very_long_line_is_split_when_logs_of_several_runs_are_shown(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    out = NamedLog("train-1")
    out.write(b"x" * (2 * MIB))
    out.write(b"y\nz")
    out.end()
    parts = [
        line.removeprefix("train-1 | ")
        for line in capfdbinary.readouterr().out.decode().splitlines()
    ]
    assert parts == ["x" * (2 * MIB), "y", "z"]


def test_json_log_lines_of_several_runs_name_their_run(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    out = JsonLog(run="train-1")
    out.write(b"step 1\nste")
    out.end()
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert lines == [{"v": 1, "run": "train-1", "line": line} for line in ("step 1", "ste")]


@pytest.mark.parametrize(("size", "is_growing"), [(1, False), (3, False), (99, False), (99, True)])
def test_the_last_lines_of_a_progress_bar_are_shown_as_on_a_terminal(
    size: int, is_growing: bool
) -> None:
    log = b"epoch 1\r\n 1%\r 50%\r\r 99%\r100%\r\nepoch 2\n 7%\r 9%\r"
    drawn = LastDrawn(is_growing=is_growing)
    shown = b"".join(drawn.feed(log[at : at + size]) for at in range(0, len(log), size))
    assert shown + drawn.finish() == b"epoch 1\n100%\nepoch 2\n 9%\r"


def test_logs_with_three_lines_counts_a_progress_bar_as_one_line(
    tmp_path: Path, reader: MakeReader, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    finished(tmp_path, b"one\ntwo\n 1%\r 2%\r 3%\nfour\n")
    there = reader(tmp_path)
    logs = _Logs([there], 0, 0.0, Redactor({}), str)
    _show(logs, JsonScreen(io.StringIO()), LogOptions(lines=3), as_json=False, to=None)
    assert capfdbinary.readouterr().out == b"two\n 3%\nfour\n"
