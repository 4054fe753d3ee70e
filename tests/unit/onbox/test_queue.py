"""The queue on a box: when and on which GPUs a run starts, once, even if waiters are killed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.link.query import ask
from bootstrap.onbox import run_queue
from bootstrap.onbox.processes import is_alive
from bootstrap.onbox.results import keep_results
from bootstrap.onbox.run_folder import RunFolder
from tests.box_programs import lay_programs
from tests.programs import captured
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sampled(of="module")

FOREVER = "while :; do sleep 1; done"


class QueueBox:
    """A box's folder, in which runs are made by hand and started by the shipped programs."""

    def __init__(self, folder: Path) -> None:
        self.home, self.journal = folder / ".boxstrap", folder / "journal"
        self.runs, self.gates = self.home / "runs/homework", folder / "gates"
        self._tmux = tempfile.mkdtemp(dir="/tmp")  # the path of a socket must be short
        (self.home / "box").mkdir(parents=True)
        self.gates.mkdir()
        self.journal.touch()
        (self.home / "agent/bin").mkdir(parents=True)
        (self.home / "agent/bin/python").symlink_to(sys.executable)
        self._programs = lay_programs(self.home / "box/current")
        self.bin = folder / "bin"
        self.bin.mkdir()

    def make(self, name: str, *, queue: str = "", gpus: str = "", command: str = "") -> Path:
        """Make a run without starting it; it lasts until its gate is opened."""
        run = self.runs / name
        run.mkdir(parents=True)
        mine = f"(grep SigIgn /proc/self/status; echo ${{LC_CTYPE-}}) >{self.gates}/{name}.finds;"
        mine += f" echo begin {name} ${{CUDA_VISIBLE_DEVICES-}} >>{self.journal}"
        wait = f"until [ -e {self.gates}/{name} ]; do sleep 0.1; done"
        last = f"echo end {name} >>{self.journal}"
        texts = {"command": command or f"{mine}; {wait}; {last}", "started": "1", "work": "w"}
        texts |= {"commit": "c", "session": "s", "dir": str(self.home), "venv": "/nowhere"}
        texts |= {"gpus": gpus} if gpus else {}
        texts |= {"queue": queue, "exit.new": ""} if queue else {}
        for file, text in texts.items():
            (run / file).write_text(f"{text}\n")
        return run

    def begin(self, run: Path) -> Path:
        """Start a run as a program on the box does."""
        self.do(f"new_run.start(new_run.RunFolder({str(run)!r}), [])")
        return run

    def revive(self) -> None:
        self.do(f"new_run.revive({str(self.home)!r})")

    def do(self, line: str, before: str = "") -> None:
        """Run a line of Python with the box's programs."""
        load = f"import sys; sys.path.insert(0, {str(self._programs)!r})\n"
        load += "from onbox.runs import new_run, window\nnew_run.has_tmux = lambda: False\n"
        load += f"new_run.clean_environment('')\n{line}"
        # Not this machine's own tmux server; and a box says nothing of its language.
        env = {**os.environ, "TMUX_TMPDIR": self._tmux, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        for name in ("LANG", "LC_ALL", "LC_CTYPE"):
            env.pop(name, None)
        # As a login starts it, also where the tests themselves ignore a hangup.
        command = f'{before}exec env --default-signal=HUP {sys.executable} -I -S -B -c "$1"'
        done = captured(
            ["bash", "-c", command, "bash", load], check=False, timeout=PATIENCE_S, env=env
        )
        assert (done.returncode, done.stderr) == (0, "")

    def tmux(self, *words: str) -> list[str]:
        """Return what the tmux server of runs says."""
        command = ["tmux", "-L", "boxstrap", *words]
        env = {**os.environ, "TMUX_TMPDIR": self._tmux}
        done = captured(command, check=False, env=env)
        return done.stdout.split()

    def state(self, run: Path) -> str:
        return RunFolder(run).state()

    def open(self, *names: str) -> None:
        """Let these runs end."""
        for name in names:
            (self.gates / name).touch()

    def said(self) -> list[str]:
        return self.journal.read_text().splitlines()

    def begun(self) -> list[str]:
        """Return the runs whose command started, in that order."""
        return [line.split()[1] for line in self.said() if line.startswith("begin ")]

    def close(self) -> None:
        """Kill all runs, waiters and the tmux server."""
        for run in self.runs.glob("*"):
            for name in ("waiter", "pid"):
                kill(run, name)
        self.tmux("kill-server")
        shutil.rmtree(self._tmux)


def kill(run: Path, name: str) -> None:
    """Kill the processes of a record, and their process groups."""
    for line in (run / name).read_text().splitlines() if (run / name).exists() else ():
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, IndexError):
                end(int(line.split()[0]), signal.SIGKILL)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[QueueBox]:
    box = QueueBox(tmp_path)
    yield box
    box.close()


MEANWHILE = """#!/bin/sh
case $* in *new-session*) {0} -L boxstrap new-session -d -s train 'sleep 60' 2>/dev/null ;; esac
exec {0} "$@" 2>/dev/null
"""


def test_a_tmux_session_name_in_use_gets_the_repository_name_appended(box: QueueBox) -> None:
    """The other setup has the same account but another working folder, so no lock is shared."""
    run = box.make("late")
    (box.bin / "tmux").write_text(MEANWHILE.format(shutil.which("tmux")))
    (box.bin / "tmux").chmod(0o755)
    box.do(f"window.open_session(new_run.RunFolder({str(run)!r}), 'train', ['sleep', '60'])")
    assert (run / "session").read_text() == "train-homework\n"
    sessions = box.tmux("list-sessions", "-F", "#{session_name}")
    assert sorted(sessions) == ["train", "train-homework"]


@pytest.mark.slow
def test_a_run_gets_tmux_session_b_though_an_ended_run_has_session_big(box: QueueBox) -> None:
    for name, seconds in (("big", 0), ("b", 60)):
        run = box.make(name)
        words = f"{name!r}, ['sleep', '{seconds}']"
        box.do(f"assert window.open_session(new_run.RunFolder({str(run)!r}), {words})")
        assert (run / "session").read_text() == f"{name}\n"
        dead = ("list-panes", "-s", "-t", f"={name}", "-F", "#{pane_dead}")
        wait_until(lambda dead=dead, is_over=not seconds: box.tmux(*dead) == [f"{is_over:d}"])
    assert sorted(box.tmux("list-sessions", "-F", "#{session_name}")) == ["b", "big"]


def test_a_queued_run_with_nothing_before_it_has_begun_once_it_is_started(box: QueueBox) -> None:
    assert RunFolder(str(box.begin(box.make("free", queue="gpus")))).state() == "running"
    assert RunFolder(str(box.begin(box.make("next", queue="gpus")))).state() == "queued"
    box.open("free", "next")


@pytest.mark.slow
def test_queued_runs_begin_in_order_once_their_gpus_are_free(box: QueueBox) -> None:
    box.begin(box.make("live", gpus="0"))
    for name, gpus in (("both", "0,1"), ("last", "1")):
        box.begin(box.make(name, gpus=gpus, queue="gpus"))
    wait_until(lambda: box.begun() == ["live"])
    box.open("live")
    wait_until(lambda: box.begun() == ["live", "both"])
    assert (box.runs / "both/session").read_text() == "both\n"
    assert box.tmux("list-sessions", "-F", "#{session_name}") == ["both"]
    box.open("both", "last")
    wait_until(lambda: len(box.said()) == 6)
    begun = ["begin live 0", "begin both 0,1", "begin last 1"]
    assert box.said() == [begun[0], "end live", begun[1], "end both", begun[2], "end last"]
    live, last = ((box.gates / f"{name}.finds").read_text() for name in ("live", "last"))
    assert live == last  # nothing of the Python that waited


OVER, STOPPED, DIED = {"exit": "0"}, {"exit": "0", "ended": "stop"}, {"pid": "4194305 1 none"}
LIVE, BEFORE = {"pid": run_queue.identity(os.getpid())}, {"queue": "gpus"}


@pytest.mark.parametrize(
    ("waits_for", "before", "again", "has_come"),
    [
        ("after first", {}, None, False),
        ("after first", LIVE, None, False),
        ("after first", {"queue": "gpus"}, None, False),
        ("after first", OVER, None, True),
        ("after homework/first", OVER, None, True),
        ("after first", {"exit": "7"}, None, None),
        ("after first", STOPPED, None, None),
        ("after first", {"exit": "0", "ended": "interrupted ec2 1 2"}, None, None),
        ("after other", OVER, None, None),
        ("after first", DIED, None, False),
        ("after first", DIED, OVER, True),
        ("after first", DIED, {"exit": "1"}, None),
        ("after-any first", {}, None, False),
        ("after-any first", {"exit": "7"}, None, True),
        ("after-any first", STOPPED, None, True),
        ("after-any first", DIED, None, True),
        ("after-any first", DIED, {"queue": "gpus"}, False),
        ("after-any other", OVER, None, True),
        ("gpus", LIVE, None, False),
        ("gpus", {**LIVE, "gpus": "1,0"}, None, False),
        ("gpus", {**LIVE, "gpus": "1"}, None, True),
        ("gpus", BEFORE, None, False),
        ("gpus", {**BEFORE, "gpus": "1"}, None, True),
        ("gpus", {"queue": "after other"}, None, True),
        ("gpus", OVER, BEFORE, True),
    ],
)
def test_a_run_queued_after_another_begins_only_if_that_run_succeeded(
    tmp_path: Path,
    waits_for: str,
    before: dict[str, str],
    again: dict[str, str] | None,
    has_come: bool | None,
) -> None:
    notes = {"first": before, "mine": {"queue": waits_for, "gpus": "0"}}
    notes["other"] = {"resumes": "my-homework/first", "exit": "1"}
    if again is not None:  # the last one counts
        notes["earlier"] = {"resumes": "homework/first", "exit": "2"}
        notes["again"] = {"resumes": "homework/first", **again}
    for second, (name, files) in enumerate(notes.items()):
        (tmp_path / "runs/homework" / name).mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / "runs/homework" / name / file).write_text(f"{text}\n")
            os.utime(tmp_path / "runs/homework" / name / file, (second, second))
    mine = RunFolder(tmp_path / "runs/homework/mine")
    assert run_queue.may_begin(mine) is has_come
    if has_come is None:
        for name, text in (("waiter", run_queue.identity(os.getpid())), ("exit.new", "")):
            Path(mine.path, name).write_text(f"{text}\n")
        with pytest.raises(SystemExit):
            run_queue._take_turn(mine)
        assert (mine.state(), mine.first("ended")) == ("finished 143", waits_for)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["live", "homework/live"])
def test_a_run_queued_after_another_finds_the_folder_of_that_one_in_a_variable(
    box: QueueBox, name: str
) -> None:
    live = box.begin(box.make("live"))
    found = box.gates / "found"
    told = f'echo "${{BOXSTRAP_AFTER-}}" >{found}'
    box.begin(box.make("later", queue=f"after {name}", command=told))
    box.open("live")
    wait_until(lambda: found.exists() and found.read_text() != "")
    assert found.read_text() == (live / "dir").read_text()


@pytest.mark.slow
def test_killed_waiting_processes_of_queued_runs_are_restarted_by_another(box: QueueBox) -> None:
    box.begin(box.make("live"))
    queued = [box.begin(box.make(f"queued-{n}", queue="gpus")) for n in range(4)]
    for run in queued[:3]:
        kill(run, "waiter")
    wait_until(lambda: not run_queue.unattended(str(box.home)))
    box.open("live", *(run.name for run in queued))
    wait_until(lambda: len(box.said()) == 10)
    assert box.begun() == ["live", *(run.name for run in queued)]


def test_a_queued_run_does_not_begin_while_copying_earlier_results_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, me = RunFolder(tmp_path / "runs/homework/mine"), run_queue.identity(os.getpid())
    Path(mine.path).mkdir(parents=True)
    for file, text in (("queue", "gpus"), ("waiter", me)):
        Path(mine.path, file).write_text(f"{text}\n")
    for refused in (keep_results.REFUSED, 0):
        monkeypatch.setattr(keep_results, "asked", lambda *_, rc=refused: rc)
        assert run_queue._take_turn(mine) is not bool(refused)
        assert mine.has("results.blocked") is bool(refused)
        assert mine.first("pid") == ("" if refused else me)


@pytest.mark.slow
def test_setup_restarts_the_killed_waiting_processes_of_queued_runs(box: QueueBox) -> None:
    live = box.begin(box.make("live"))
    queued = [box.begin(box.make(f"queued-{n}", queue="gpus")) for n in range(3)]

    def all_are_killed() -> bool:
        """Kill all waiters; one that lives a second longer may have started the others again."""
        for run in queued:
            kill(run, "waiter")
        return not any(RunFolder(run).is_attended for run in queued)

    wait_until(all_are_killed)
    wait_until(lambda: box.begun() == ["live"])
    kill(live, "pid")
    assert len(run_queue.unattended(str(box.home))) == len(queued)
    box.open(*(run.name for run in queued))
    for _ in range(2):
        box.revive()
    wait_until(lambda: len(box.said()) == 7)
    assert box.begun() == ["live", *(run.name for run in queued)]


@pytest.mark.slow
def test_stop_removes_a_queued_run_and_the_next_queued_run_begins(box: QueueBox) -> None:
    box.begin(box.make("live"))
    out, following = (box.begin(box.make(name, queue="gpus")) for name in ("out", "following"))
    query = ask("run_processes", {"runs": "homework/out"}, workdir=str(box.home.parent))
    for shell in ("dash", "bash"):
        done = captured([shell, "-c", query])
        assert (done.stdout, done.stderr) == (
            ("stopped\tout\tfinished 143\n", "") if shell == "dash" else ("", "")
        )
    box.open("live", "out", "following")
    wait_until((following / "exit").exists)
    assert box.begun() == ["live", "following"]
    assert [(out / name).read_text() for name in ("exit", "ended")] == ["143\n", "stop\n"]


@pytest.mark.slow
def test_a_second_waiting_process_of_a_queued_run_makes_the_first_end(box: QueueBox) -> None:
    live = box.begin(box.make("live"))
    run = box.begin(box.make("queued", queue="gpus"))
    waiter = (run / "waiter").read_text()
    (run / "waiter").unlink()  # as if it had no waiter
    box.revive()
    assert (run / "waiter").read_text() != waiter
    wait_until(lambda: not is_alive(waiter))
    box.open("live", "queued")
    wait_until((run / "exit").exists)
    assert box.begun() == ["live", "queued"]
    assert box.state(live) == "finished 0"


@pytest.mark.slow
def test_a_tmux_server_is_not_mistaken_for_the_runner_of_its_first_run(box: QueueBox) -> None:
    """It keeps the words it was started with: later starts of that run waited for it in vain."""
    run = f"new_run.RunFolder({str(box.make('live'))!r})"
    program = f"['true', 'runs.runner', {run}.path]"
    box.do(
        f"import time\nassert window.open_session({run}, 's', {program})\n"
        # The program itself is taken for one until it is over.
        f"assert any(not window.has_runner({run}) or time.sleep(0.05) for _ in range(400))"
    )


@pytest.mark.slow
def test_a_run_begins_without_tmux_if_tmux_fails(box: QueueBox) -> None:
    """It was refused, and could neither be started later nor resumed."""
    run = box.make("live")
    (box.bin / "tmux").write_text("#!/bin/sh\nexit 1\n")
    (box.bin / "tmux").chmod(0o755)
    box.do(f"new_run.has_tmux = lambda: True\nnew_run.start(new_run.RunFolder({str(run)!r}), [])")
    wait_until(lambda: box.begun() == ["live"])
    box.open("live")
    wait_until((run / "exit").exists)


def test_resuming_a_died_run_again_uses_the_record_of_a_resumption_that_never_started(
    box: QueueBox,
) -> None:
    died, made = box.make("s-1"), box.make("s-2")
    for name, text in {"resume": "true", "exit": "1", "pid": ""}.items():
        (died / name).write_text(f"{text}\n")
    (made / "resumes").write_text("homework/s-1\n")
    asked = {"key": "homework", "name": "s-1", "id": "again", "wait_s": "0", "overwrite": ""}
    box.do(
        "from onbox.runs import resume\nresume.start = lambda *_, **__: None\n"
        f"resume._take(new_run.RunFolder({str(died)!r}), {asked} | {{'home': {str(box.home)!r}}})"
    )
    assert (made / "resumes").read_text() == "homework/s-1\n"
    assert (made / "id").read_text() == "again\n"


@pytest.mark.slow
def test_a_run_started_without_tmux_does_not_hold_the_lock_of_setups(box: QueueBox) -> None:
    run = box.make("live")
    hold = f"exec 9>>{box.home}/lock; flock 9;"
    box.do(f"new_run.start(new_run.RunFolder({str(run)!r}), [])", hold)
    wait_until(lambda: box.begun() == ["live"])
    subprocess.run(["flock", "-n", str(box.home / "lock"), "true"], check=True)
    box.open("live")
    wait_until((run / "exit").exists)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["bash {}", "true; bash {}", "bash {} | cat"])
def test_a_runs_exit_code_is_recorded_even_if_its_runner_was_killed(
    box: QueueBox, command: str
) -> None:
    program = box.home / "program"
    program.write_text(f"until [ -e {box.gates}/live ]; do sleep 0.02; done; exit 7\n")
    run = box.begin(box.make("live", command=command.format(program)))
    wait_until(lambda: len((run / "pid").read_text().splitlines()) == 2)
    runner = RunFolder(run).first("pid")
    os.kill(int(runner.split()[0]), signal.SIGKILL)
    wait_until(lambda: not is_alive(runner))
    assert box.state(run) == "running"
    box.open("live")
    wait_until(lambda: box.state(run) != "running")
    assert box.state(run) == "finished 7"
    ended = "pipeline 7 0" if "|" in command else "exit 7"
    assert (run / "ended").read_text() == f"{ended}\n"


@pytest.mark.slow
def test_a_run_that_begins_on_a_box_that_was_restarted_sees_to_what_holds_its_lease(
    box: QueueBox,
) -> None:
    """Its own monitor held the lease, and the box said that nothing did."""
    kept = f"new_run.keep = lambda home: open({str(box.home / 'kept')!r}, 'w').close()"
    run = box.make("live")
    box.do(f"{kept}\nnew_run.start(new_run.RunFolder({str(run)!r}), [])")
    assert (box.home / "kept").exists()
    box.open("live")
    wait_until((run / "exit").exists)
