"""The queue on a box: when and on which GPUs a run starts, once, even if waiters are killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.onbox.run_folder import RunFolder
from bootstrap.protocol.query import build_query
from tests.box_programs import LIBRARY, lay_programs, onbox
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sampled(of="module")

FOREVER = "while :; do sleep 1; done"


class QueueBox:
    """A box's folder, in which runs are made by hand and started by the shipped scripts."""

    def __init__(self, folder: Path) -> None:
        self.home, self.journal = folder / ".boxstrap", folder / "journal"
        self.runs, self.gates = self.home / "runs/homework", folder / "gates"
        self._tmux = tempfile.mkdtemp(dir="/tmp")  # the path of a socket must be short
        (self.home / "box").mkdir(parents=True)
        self.gates.mkdir()
        self.journal.touch()
        (self.home / "queue.lock").touch()
        (self.home / "library").write_text(LIBRARY)
        lay_programs(self.home / "box/current")

    def make(self, name: str, *, queue: str = "", gpus: str = "", command: str = "") -> Path:
        """Make a run without starting it; it lasts until its gate is opened."""
        run = self.runs / name
        run.mkdir(parents=True)
        mine = f"echo begin {name} ${{CUDA_VISIBLE_DEVICES-}} >>{self.journal}"
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
        """Start a run as a script on the box does."""
        self.script(f"start_run '{run}'")
        return run

    def script(self, line: str) -> str:
        """Run a line with the library loaded; return what it prints."""
        programs = self.home / "box/current"
        here = f"have() {{ [ $1 != tmux ]; }}\nBOX_HOME={self.home} PROGRAMS={programs}\n"
        here += f"ONBOX={onbox(programs)}\n"
        here += "RESULTS=() REPO_DIR=/nowhere ENV_FILE=/nowhere STEP_CODE=/dev/null; set -e\n"
        env = {**os.environ, "TMUX_TMPDIR": self._tmux}  # not this machine's own tmux server
        command = ["bash", "-c", f". {self.home}/library\n{here}{line}"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=env
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    def state(self, run: Path) -> str:
        return self.script(f"run_state '{run}'")

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
        self.script("our_tmux kill-server 2>/dev/null || :")
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


MEANWHILE = """
tmux() { command tmux -u -L boxstrap -f /dev/null "$@"; }
our_tmux() {
  case $* in *new-session*) tmux new-session -d -s train 'sleep 60' || : ;; esac
  tmux "$@"
}
TRAIN_SESSION=train REPO_KEY=homework-1
"""


def test_a_session_whose_name_another_setup_took_meanwhile_has_a_longer_one(box: QueueBox) -> None:
    """The other setup has the same account but another working folder, so no lock is shared."""
    run = box.make("late")
    box.script(f"{MEANWHILE}\nnew_session '{run}' window.sh '{run}' 2>/dev/null")
    assert (run / "session").read_text() == "train-homework-1\n"
    sessions = box.script("our_tmux list-sessions -F '#{session_name}'").split()
    assert sorted(sessions) == ["train", "train-homework-1"]


@pytest.mark.slow
def test_eight_side_by_side_and_a_queue_of_twelve_on_two_gpus(box: QueueBox) -> None:
    beside = {f"beside-{n}": str(n % 2) for n in range(8)}
    queued = {f"queued-{n}": ("0", "1", "0,1")[n % 3] for n in range(12)}
    for name, gpus in beside.items():
        box.begin(box.make(name, gpus=gpus))
    for name, gpus in queued.items():
        box.begin(box.make(name, gpus=gpus, queue="gpus"))
    wait_until(lambda: len(box.begun()) == 8)
    box.open(*(name for name, gpus in beside.items() if gpus == "1"))
    wait_until(lambda: len(box.begun()) == 9)
    assert box.begun()[8] == "queued-1"
    session = (box.runs / "queued-1/session").read_text().strip()
    assert session == "queued-1"
    assert session in box.script("our_tmux list-sessions -F '#{session_name}'").split()
    box.open(*beside, *queued)
    wait_until(lambda: len(box.said()) == 2 * 20, 60)
    assert sorted(box.begun()) == sorted([*beside, *queued])
    given = beside | queued
    live: list[str] = []
    for line in box.said():
        word, name, *seen = line.split()
        if word == "end":
            live.remove(name)
            continue
        assert seen == [given[name]]
        mine = set(given[name].split(","))
        if name in queued:
            assert not [one for one in live if mine & set(given[one].split(","))]
            assert name == next(
                one
                for one in queued
                if one not in box.begun()[: box.begun().index(name)]
                and mine & set(given[one].split(","))
            )
        live.append(name)


@pytest.mark.slow
def test_who_follows_another_begins_when_that_ended_well(box: QueueBox) -> None:
    first = box.begin(box.make("first", command="sleep 0.5"))
    second = box.begin(box.make("second", queue="after first", command="exit 7"))
    third = box.begin(box.make("third", queue="after second", command="true"))
    fourth = box.begin(box.make("fourth", queue="after homework/third", command="true"))
    fifth = box.begin(box.make("fifth", queue="after-any third", command="true"))
    runs = [first, second, third, fourth, fifth]
    wait_until(lambda: all((run / "exit").exists() for run in runs))
    states = ["finished 0", "finished 7", "finished 143", "finished 143", "finished 0"]
    assert [box.state(run) for run in runs] == states
    assert (third / "ended").read_text() == "after second\n"
    assert (fourth / "ended").read_text() == "after homework/third\n"
    assert not (third / "pid").exists()


def test_one_that_was_stopped_did_not_end_well_whatever_its_code(box: QueueBox) -> None:
    stopped = box.make("stopped")
    for name, text in (("exit", "0\n"), ("ended", "stop\n")):
        (stopped / name).write_text(text)
    after = box.begin(box.make("after", queue="after stopped", command="true"))
    whatever = box.begin(box.make("whatever", queue="after-any stopped", command="true"))
    wait_until(lambda: (after / "exit").exists() and (whatever / "exit").exists())
    assert [box.state(run) for run in (after, whatever)] == ["finished 143", "finished 0"]
    assert (after / "ended").read_text() == "after stopped\n"


@pytest.mark.slow
def test_who_follows_one_that_died_waits_for_what_goes_on_from_it(box: QueueBox) -> None:
    first = box.begin(box.make("first"))
    last = box.begin(box.make("last", queue="after first"))
    whatever = box.begin(box.make("whatever", queue="after-any first"))
    wait_until(lambda: box.begun() == ["first"])
    kill(first, "pid")
    wait_until(lambda: box.begun() == ["first", "whatever"])
    assert box.state(first) == "died"
    assert box.state(last) == "queued"
    again = box.make("again")
    (again / "resumes").write_text("homework/first\n")
    box.open("again")
    box.begin(again)
    wait_until(lambda: box.begun()[-1] == "last")
    box.open("whatever", "last")
    assert (whatever / "pid").exists()


@pytest.mark.slow
def test_waiters_that_were_killed_come_back_by_those_that_live(box: QueueBox) -> None:
    box.begin(box.make("live"))
    queued = [box.begin(box.make(f"queued-{n}", queue="gpus")) for n in range(4)]
    for run in queued[:3]:
        kill(run, "waiter")
    wait_until(lambda: box.script("is_queue_attended && echo yes || :") == "yes")
    box.open("live", *(run.name for run in queued))
    wait_until(lambda: len(box.said()) == 10)
    assert box.begun() == ["live", *(run.name for run in queued)]


@pytest.mark.slow
def test_when_all_were_killed_the_next_setup_starts_them(box: QueueBox) -> None:
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
    assert box.script("is_queue_attended || echo no") == "no"
    box.open(*(run.name for run in queued))
    box.script("revive_all; revive_all")
    wait_until(lambda: len(box.said()) == 7)
    assert box.begun() == ["live", *(run.name for run in queued)]


@pytest.mark.slow
def test_stop_takes_one_out_and_the_next_takes_its_place(box: QueueBox) -> None:
    box.begin(box.make("live"))
    out, following = (box.begin(box.make(name, queue="gpus")) for name in ("out", "following"))
    query = build_query("stop", workdir=str(box.home.parent), what="out", repo_key="homework")
    for shell in ("dash", "bash"):
        done = subprocess.run([shell, "-c", query], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == (
            ("stopped\tout\tfinished 143\n", "") if shell == "dash" else ("", "")
        )
    box.open("live", "out", "following")
    wait_until((following / "exit").exists)
    assert box.begun() == ["live", "following"]
    assert [(out / name).read_text() for name in ("exit", "ended")] == ["143\n", "stop\n"]


def test_of_two_waiters_one_begins_it(box: QueueBox) -> None:
    live = box.begin(box.make("live"))
    run = box.begin(box.make("queued", queue="gpus"))
    waiter = (run / "waiter").read_text()
    (run / "waiter").unlink()  # as if it had no waiter
    box.begin(run)
    assert (run / "waiter").read_text() != waiter
    box.open("live", "queued")
    wait_until((run / "exit").exists)
    assert box.begun() == ["live", "queued"]
    wait_until(lambda: box.script(f"alive '{waiter.strip()}' || echo gone") == "gone")
    assert box.state(live) == "finished 0"


def test_without_tmux_no_shell_that_waits_for_a_run_holds_the_lock(box: QueueBox) -> None:
    run = box.make("live")
    box.script(f"exec 9>>{box.home}/lock; flock 9; start_run '{run}'")
    wait_until(lambda: box.begun() == ["live"])
    subprocess.run(["flock", "-n", str(box.home / "lock"), "true"], check=True)
    box.open("live")
    wait_until((run / "exit").exists)


@pytest.mark.parametrize("command", ["bash {}", "true; bash {}", "bash {} | cat"])
def test_where_the_runner_was_killed_the_exit_code_is_kept(box: QueueBox, command: str) -> None:
    program = box.home / "program"
    program.write_text(f"until [ -e {box.gates}/live ]; do sleep 0.02; done; exit 7\n")
    run = box.begin(box.make("live", command=command.format(program)))
    wait_until(lambda: len((run / "pid").read_text().splitlines()) == 2)
    os.kill(int((run / "pid").read_text().split()[0]), signal.SIGKILL)
    assert box.state(run) == "running"
    box.open("live")
    wait_until(lambda: box.state(run) != "running")
    assert box.state(run) == "finished 7"
    ended = "pipeline 7 0" if "|" in command else "exit 7"
    assert (run / "ended").read_text() == f"{ended}\n"
