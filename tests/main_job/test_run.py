"""`run`: a new run of the local work, whatever ran before; each once, each in its own tree.

The box is this machine. All tests share it and one user.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Running, User, UserRepository
from tests.faults.plugin import Faults
from tests.main_job.own_backend import PROJECT, backend
from tests.plain_environment import BIN, HERE
from tests.unit.repo.standing import placed, standing
from tests.used_here import seem_set_up
from tests.waiting import wait_until

PROFILE = """\
version: 1
extends: local
box: {workdir: ~/work}
env: {GREETING: "hello"}
train: {command: python train.py, resume: 'echo "goes on in $PWD"'}
"""
SHOW = "import os, sys\nprint(sys.argv[1:], os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
TO_LOCAL = ("--host", "local")


@dataclass
class Runner:
    """A repository, and a box that was set up for it."""

    user: User
    repository: UserRepository

    def run(self, *more: str, rc: int = 0, program: str = "boxstrap") -> dict[str, Any]:
        """What `run --json` prints, called from the folder where `inv` finds its tasks."""
        words = ("run", *TO_LOCAL, "--json", "--repo", str(self.repository.root), *more)
        return Running([str(BIN / program), *words], HERE, self.user.env).end().must(rc).json()

    def runs(self) -> list[Path]:
        return sorted(self.user.home.glob("work/.boxstrap/runs/*/*/"))

    def states(self) -> dict[str, str]:
        told = self.user.run("status", *TO_LOCAL, "--json").must(0).json()
        return {run["name"]: run["state"] for run in told["runs"]}

    def folder(self, name: str) -> Path:
        """The record of this run."""
        return next(run for run in self.runs() if run.name == name)

    def end_of(self, name: str) -> tuple[int, str]:
        """Wait for its end; the exit code, and what decided it."""
        run = self.folder(name)
        wait_until((run / "exit").exists, lambda: name)
        return int((run / "exit").read_text()), (run / "ended").read_text().strip()

    def status(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.user.run("status", *TO_LOCAL, "--json").json()["runs"]
        return runs

    def stop(self) -> None:
        self.user.run("stop", *TO_LOCAL, "--all").must(0)

    def kill(self, name: str, record: str = "pid") -> None:
        """Kill a run with all that it started, as what ends a box does; or what it recorded."""
        lines = (self.folder(name) / record).read_text().splitlines()
        for number in (int(line.split()[0]) for line in lines):
            is_leader = os.getpgid(number) == number
            (os.killpg if is_leader else os.kill)(number, signal.SIGKILL)

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.repository.root / f"{name}.py").write_text(text)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    user = seem_set_up(User(tmp_path_factory.mktemp("run") / "home"))
    repository = user.repository(boxstrap__yaml=PROFILE)
    user.run("setup", *TO_LOCAL).must(0)
    # As where two GPUs were seen: one that the box lacks is refused.
    (user.home / "work/.boxstrap/gpu.said").write_text("gpus 2\n")
    yield Runner(user, repository)
    user.run("stop", *TO_LOCAL, "--all")


def test_run_starts_a_new_run_of_the_local_files_each_time(here: Runner) -> None:
    here.write(train=SHOW)
    words = ("--gpus", "1,0", "--", "python", "train.py", "--lr", "3e-4", "a b", "$HOME")
    before, made = len(here.runs()), []
    for program in ("boxstrap", "inv", "inv"):
        here.write(lib=f"# {program}\n")
        made.append(here.run(*words, program=program))
        assert made[-1]["first_lines"] == ["['--lr', '3e-4', 'a b', '$HOME'] 1,0"]
        assert (here.user.home / "work/homework/lib.py").read_text() == f"# {program}\n"
        # Nothing was set up for it.
        assert "steps" not in made[-1]
    assert len(here.runs()) == before + 3
    assert {one["tree"] for one in made} == {str(here.user.home / "work/homework")}
    assert len({one["id"] for one in made}) == len({one["run"]["name"] for one in made}) == 3
    unknown = here.user.run("run", *TO_LOCAL, "--after", "none-1", "--", "true").must(2)
    assert "there is no run none-1 on this box" in unknown.err


def test_run_on_a_gpu_number_that_the_box_lacks_is_refused(here: Runner) -> None:
    seen = here.user.home / "work/.boxstrap/gpu.said"
    before = len(here.runs())
    try:
        words = ("run", *TO_LOCAL, "--repo", str(here.repository.root))
        for count, gpus, lacks in ((0, "0", ""), (2, "1,2", " 2: they are 0 to 1")):
            seen.write_text(f"gpus {count}\n")
            refused = here.user.run(*words, "--gpus", gpus, "--", "true").must(7)
            assert "the box lacks a GPU that was asked for" in refused.err
            assert f"this box has no GPU{lacks}\n" in refused.err
        assert len(here.runs()) == before
        here.run("--gpus", "1", "--", "true")
    finally:
        seen.write_text("gpus 2\n")


def test_run_without_a_command_runs_the_profiles_training_and_a_quoted_command_in_a_shell(
    here: Runner,
) -> None:
    here.write(train="print('the profile')\n")
    assert here.run()["first_lines"] == ["the profile"]
    line = here.run("--session", "sweep_1", "--", 'echo "$GREETING" | tr a-z A-Z')
    assert (line["run"]["name"], line["first_lines"]) == ("sweep_1-1", ["HELLO"])
    failed = here.run("--session", "sweep_1", "--", "exit 3", rc=10)
    assert (failed["run"]["name"], failed["run"]["rc"]) == ("sweep_1-2", 3)
    # A setup asks whether the work already ran: `run` did that.
    before = here.runs()
    here.user.run("setup", *TO_LOCAL).must(0)
    assert here.runs() == before


def test_run_reports_the_exit_code_of_its_command_with_any_byte_in_its_output(
    here: Runner, faults: Faults
) -> None:
    """What says how a run ended comes after its first output, which may hold any byte."""
    for says in (r"\0", r"a\0b\n\0\nfinished 0\n", r"\0\nrunning\n", r"\377\0\ta\rb", ""):
        with faults.attempt("any byte in a run's first output", repr(says)) as attempt:
            failed = here.run("--", "sh", "-c", f"printf '{says}'; exit 3", rc=10)
            assert (failed["run"]["state"], failed["run"]["rc"]) == ("finished", 3)
            attempt.outcome("exit 10, its own exit code")
    done = here.run("--", "sh", "-c", r"printf '\0done\0\n'")
    assert (done["run"]["rc"], done["first_lines"]) == (0, ["done"])


def test_run_prints_the_lines_of_a_command_that_fails_at_once_only_once(here: Runner) -> None:
    words = ("run", *TO_LOCAL, "--repo", str(here.repository.root), "--")
    for says in ("echo one; echo two; exit 3", "echo one; sleep 0.1; echo two; exit 3"):
        failed = here.user.run(*words, says).must(10)
        said = [line.strip() for line in failed.text.splitlines()]
        assert [said.count(line) for line in ("one", "two")] == [1, 1], failed.text


def test_runs_lists_a_run_as_finished_once_wait_or_stop_saw_its_end(here: Runner) -> None:
    for ends, seconds in {"wait": "1.5", "stop": "60"}.items():
        name = here.run("--", f"echo up; sleep {seconds}")["run"]["name"]
        here.user.run(ends, *TO_LOCAL, "--run", name).must(0)
        rows = here.user.run("runs", "--json").must(0).json()["runs"]
        (state,) = (row["state"] for row in rows if row["name"] == name)
        assert state == "finished"


def test_each_run_started_during_another_run_gets_a_tree_of_its_own(here: Runner) -> None:
    waits = "import time\nprint(open('lib.py').read(), end='', flush=True)\ntime.sleep(60)\n"
    live = []
    for number in range(3):
        here.write(train=waits, lib=f"# work {number}\n")
        live.append(here.run())
    try:
        assert [one["run"]["state"] for one in live] == ["running"] * 3
        assert [one["first_lines"] for one in live] == [[f"# work {n}"] for n in range(3)]
        assert [Path(one["tree"]).name for one in live] == [
            *("homework", "homework@2", "homework@3")
        ]
        sessions = {one["run"]["name"]: one for one in live}
        assert len(sessions) == 3
        for number, one in enumerate(live):
            assert (Path(one["tree"]) / "lib.py").read_text() == f"# work {number}\n"
        # They need the same packages, so they share an environment.
        made_with = {(run / "venv").read_text() for run in here.runs() if run.name in sessions}
        assert made_with == {f"{here.user.home}/work/homework/.venv\n"}
        entered = here.user.run("exec", "--host", "local", "--", "true").must(0).err
        assert f"{live[2]['run']['name']}, has its files beside it: cd ../homework@3" in entered
    finally:
        here.stop()
    # Trees of runs that are over are used again, the main tree first.
    quiet = here.run("--", "true")
    assert Path(quiet["tree"]).name == "homework"
    assert "beside" not in here.user.run("exec", "--host", "local", "--", "true").must(0).err
    for task in ("status", "wait"):
        told = here.user.run(task, "--run", quiet["run"]["name"]).must(0).text
        assert "printed nothing, left no results: was that the training?" in told
        assert "trees beside" not in told
    assert "trees beside the main one" in here.user.run("status", *TO_LOCAL).must(0).out
    own, other = here.user.place, here.user.repository("other")  # whose clean leaves them
    here.user.place = own
    elsewhere = here.user.run("status", *TO_LOCAL, "--repo", str(other.root))
    assert "trees beside" not in elsewhere.must(0).out


def test_ctrl_c_while_run_waits_for_first_lines_leaves_the_run_running(here: Runner) -> None:
    silent = "import time; time.sleep(60)"
    going = here.user.begin("run", *TO_LOCAL, "--session", "silent", "--", "python", "-c", silent)
    going.await_said("silent-1: waiting up to")
    going.interrupt()
    said = going.end().must(130).err
    assert "interrupted here; the box continues" in said
    assert "silent-1 goes on. To follow it: boxstrap logs -f --run silent-1 --host local; " in said
    assert here.states()["silent-1"] == "running"
    here.stop()
    assert here.states()["silent-1"] == "finished"


WORKS = """\
import lib, os, sys, time
os.makedirs("out", exist_ok=True)
with open("out/model", "w") as model:
    model.write(lib.NAME)
print(lib.NAME, lib.__file__, sys.prefix, flush=True)
time.sleep(60)
"""
MADE_THERE = (b".venv", b"out", b"__pycache__")


def test_clean_keeps_trees_with_a_live_run_or_results_not_pulled(here: Runner) -> None:
    """Two run with `-I`, isolated from the script's folder, with the repository installed: only
    their environment decides which `lib` they import."""
    root, names = here.repository.root, ("one", "two", "three")
    stood, live = [], []

    def cleaned(*words: str, rc: int = 0) -> dict[str, str]:
        said = here.user.run("clean", *TO_LOCAL, "--json", "--yes", *words).must(rc).json()
        return {tree["tree"]: tree["state"] for tree in said["trees"]}

    builds = 'return write_wheel(folder, "own.pth", os.getcwd())'
    here.write(train=WORKS, backend=backend("own", builds))
    (root / "pyproject.toml").write_text(PROJECT.format(name="own"))
    try:
        for name in names:
            here.write(lib=f"NAME = {name!r}\n")
            if name == "three":
                (root / "requirements.txt").write_text("# nothing\n")
            stood.append(standing(root))
            command = f"python {'-I ' * (name != 'three')}train.py"
            live.append(here.run("--", command))
            if name == "two":
                # The same work again uses the same tree, without a setup.
                here.user.run("stop", *TO_LOCAL, "--run", live[-1]["run"]["name"]).must(0)
                first, live[-1] = live[-1], here.run("--", command)
                assert live[-1]["tree"] == first["tree"]
                assert "steps" not in live[-1]
        trees = [Path(one["tree"]) for one in live]
        beside = [tree.name for tree in trees[1:]]
        assert trees[0] == here.user.home / "work/homework"
        assert len({*trees}) == 3
        for one, tree, stands in zip(live, trees, stood, strict=True):
            assert one["run"]["state"] == "running"
            there = placed(tree)
            own = {path for path in there if path.split(b"/")[0] in MADE_THERE}
            assert {path: there[path] for path in there.keys() - own} == stands
        assert [one["first_lines"] for one in live] == [
            [f"{name} {tree}/lib.py {tree}/.venv"] for name, tree in zip(names, trees, strict=True)
        ]
        # Trees of live runs are left alone, even with --discard.
        cleaned()
        assert cleaned("--discard", beside[0], rc=9) == dict.fromkeys(beside, "kept")
        os.utime(here.folder(first["run"]["name"]))  # as if it ended after the next one began
        named = here.user.run("status", *TO_LOCAL, "--json").must(0).json()["trees"]
        assert [(tree["tree"], tree["run"]) for tree in named] == [
            (Path(one["tree"]).name, one["run"]["name"]) for one in live[1:]
        ]
    finally:
        here.stop()
    assert cleaned(rc=9) == dict.fromkeys(beside, "kept")
    assert [(tree / "out/model").read_text() for tree in trees] == ["one", "two", "three"]
    (trees[1] / "out/model").unlink()
    large = here.user.home / "large"
    large.write_bytes(bytes(9 << 20))
    os.link(large, trees[1] / ".venv/large")  # as an environment has files of uv's cache
    shown = here.user.run("--dry", "clean", *TO_LOCAL, "--json").must(9).json()["trees"]
    sizes = {one["tree"]: one["bytes"] for one in shown}
    assert sizes[beside[0]] < 9 << 20
    told = here.user.run("status", *TO_LOCAL, "--json").must(0).json()["trees"]
    assert {one["tree"]: one["bytes"] for one in told} == sizes
    assert cleaned(rc=9) == {beside[0]: "removed", beside[1]: "kept"}
    assert cleaned("--discard", beside[1]) == {beside[1]: "removed"}
    assert [tree.exists() for tree in trees] == [True, False, False]
    assert cleaned() == {}
    for name in ("requirements.txt", "pyproject.toml", "backend.py"):
        (root / name).unlink()


def test_stop_without_a_name_ends_no_run_when_several_are_alive(here: Runner) -> None:
    words = ("--session", "stay", "--", "echo begun; exec sleep 60")
    names = [here.run(*words)["run"]["name"] for _ in range(2)]
    for _ in range(2):
        refused = here.user.run("stop", *TO_LOCAL).must(2).err
        assert all(f"--run {name}  running" in refused for name in names)
    for words, name in ((("--run", names[1]), names[1]), ((), names[0])):
        stopped = here.user.run("stop", *TO_LOCAL, "--json", *words).must(0).json()
        assert stopped["stopped"] == [name]


def test_run_with_follow_prints_the_whole_log_and_exits_with_10_on_failure(here: Runner) -> None:
    command = "echo first; sleep 2; echo last; exit 4"
    done = here.user.run("run", "-f", *TO_LOCAL, "--session", "seen", "--", command).must(10)
    shown = [line.strip() for line in done.out.splitlines()]
    assert (shown[-1], shown.count("first")) == ("last", 1)


def test_queued_runs_begin_when_their_gpu_is_free_or_the_named_run_succeeded(here: Runner) -> None:
    gate, wait = here.user.home / "gate", "echo up; until [ -e {} ]; do sleep 0.1; done"
    live = here.run("--gpus", "0", "--session", "live", "--", wait.format(gate))["run"]["name"]
    wished = {
        "other": ("--queue", "--gpus", "1"),
        "same": ("--queue", "--gpus", "0"),
        "out": ("--queue", "--gpus", "0"),
        "well": ("--after", live),
        "never": ("--after", "well-1"),
    }
    codes = {"well": 7}
    said = {
        name: here.run("--session", name, *words, "--", f"exit {codes.get(name, 0)}")["run"]
        for name, words in wished.items()
    }
    assert said.pop("other")["state"] != "queued"  # its GPU is free
    assert {one["state"] for one in said.values()} == {"queued"}
    told = here.user.run("status", *TO_LOCAL).must(0).out
    assert f"queued: begins once {live} has ended with 0" in told
    assert "queued: begins once its GPUs are free" in told
    followed = {
        name: here.user.begin("logs", "-f", *TO_LOCAL, "--run", f"{name}-1")
        for name in ("out", "same")
    }
    for one in followed.values():
        one.await_said("-1 of ")
    time.sleep(3)  # which the one that waits for its turn did not run
    assert here.user.run("stop", *TO_LOCAL, "--run", "out-1", "--json").must(0).json()["stopped"]
    unknown = here.user.run("run", *TO_LOCAL, "--after", "none-1", "--", "true").must(2)
    assert re.search(r"there is no run none-1 on this box; there is:\n  --run \S+", unknown.err)
    assert "setup" not in unknown.err
    gate.touch()
    ends = {name: here.end_of(f"{name}-1") for name in wished}
    assert ends == {
        **{"other": (0, "exit 0"), "same": (0, "exit 0"), "out": (143, "stop")},
        **{"well": (7, "exit 7"), "never": (143, "after well-1")},
    }
    said_last = {name: one.end().err.splitlines()[-1] for name, one in followed.items()}
    assert said_last["out"].endswith("  out-1 was stopped before it began")
    assert re.search(r"  same-1 finished after [0-2] s$", said_last["same"])
    late = here.user.run("run", *TO_LOCAL, "--after", "well-1", "--", "true").must(10)
    assert ": it was not started, since well-1 did not end with 0." in late.err


def test_status_shows_a_queued_run_that_never_began_without_cost(here: Runner) -> None:
    """Of the queue above: one was stopped in it, of another the run before it failed."""
    words = {
        "out-1": "was stopped before it began",
        "never-1": "was not started, since well-1 did not end with 0",
    }
    shown = here.user.run("status", *TO_LOCAL).must(0).out
    known = {run["name"]: run for run in here.status()}
    for name, outcome in words.items():
        (line,) = (line for line in shown.splitlines() if f"{name} " in line)
        assert re.search(rf"{outcome} +ended [^,]+ ago  ", line), line
        rc = 10 if name == "never-1" else 0
        waited = here.user.run("wait", *TO_LOCAL, "--run", name, "--json").must(rc).json()["runs"]
        for one in (known[name], *waited):
            assert (one["begun"], one["seconds"], one["dollars"]) == (None, None, None)
        said = here.user.run("wait", *TO_LOCAL, "--run", name).must(rc).out
        assert said.splitlines()[0] == f"{name} {outcome}"
        page = here.user.home / "page.html"
        here.user.run("report", *TO_LOCAL, "--run", name, "--out", str(page)).must(0)
        assert "<dt>Ran</dt>" not in page.read_text()
        assert "<dd>never</dd>" in page.read_text()


def test_run_resume_continues_a_run_that_died_but_not_one_that_finished(here: Runner) -> None:
    here.write(train="import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    begun = here.run("--session", "dies", "--gpus", "1")
    here.kill("dies-1")
    (died,) = (run for run in here.status() if run["name"] == "dies-1")
    assert (died["state"], died["can_resume"]) == ("died", True)
    here.write(train="print('newer')\n")
    resumed = here.run("--resume", "dies-1")
    assert resumed["warnings"] == [
        "it has the files that dies-1 began with, not your edits: 1 updated (train.py)"
    ]
    assert resumed["first_lines"] == [f"goes on in {begun['tree']}"]
    assert (resumed["run"]["name"], resumed["resumes"]) == ("dies-2", "dies-1")
    for file in ("gpus", "grace", "log_max"):
        kept = [(here.folder(name) / file).read_text() for name in ("dies-1", "dies-2")]
        assert kept[0] == kept[1], file
    refused = here.run("--resume", "dies-1", rc=9)["error"]
    assert "it finished with exit code 0" in refused["what"]
    assert refused["where"].endswith("dies-2, which went on from dies-1")
    assert "none-1" in here.run("--resume", "none-1", rc=2)["error"]["what"]


def test_run_resume_is_refused_while_another_run_uses_its_tree_or_changed_it(here: Runner) -> None:
    here.write(train="import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    here.run("--session", "lost")
    here.kill("lost-1")
    told = here.user.run("status", *TO_LOCAL).must(0).out
    assert "boxstrap run --resume lost-1" in told
    assert "boxstrap run --resume lost-1" in here.user.run("setup", *TO_LOCAL).must(10).err
    # The tree is free again, so the next run uses it.
    holds = here.run("--session", "holds")
    here.run("--queue", "--session", "late", "--", "true")
    here.kill("late-1", "waiter")
    try:
        assert "another run has its tree" in here.run("--resume", "lost-1", rc=9)["error"]["what"]
        assert next(run for run in here.status() if run["name"] == "late-1")["attended"]
    finally:
        here.stop()
    here.write(lib="# other files\n")
    assert here.run("--", "true")["tree"] == holds["tree"]
    assert (
        "the files of its tree have changed"
        in here.run("--resume", "lost-1", rc=9)["error"]["what"]
    )
    assert "lost-2" not in here.states()


@pytest.mark.slow
def test_a_resumed_run_starts_before_queued_runs_whose_waiting_process_died(here: Runner) -> None:
    here.write(train="import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    here.run("--session", "first", "--set", "train.resume=sleep 2")
    here.run("--queue", "--session", "next", "--", "true")  # in a tree beside, same environment
    here.kill("next-1", "waiter")
    here.kill("first-1")
    words = "next-1 queued, but no process waits to start it: the next setup or run"
    left = here.user.run("wait", *TO_LOCAL, "--run", "next-1").must(7)
    assert left.err.count(words) == 2  # at once, and when nothing had started it for 20 s
    waiting = here.user.begin("wait", *TO_LOCAL, "--run", "next-1")
    waiting.await_said(words)
    assert here.run("--resume", "first-1")["run"]["name"] == "first-2"
    assert (here.end_of("first-2")[0], here.end_of("next-1")[0]) == (0, 0)
    began, over = (
        here.folder(name) / file for name, file in (("next-1", "pid"), ("first-2", "exit"))
    )
    assert began.stat().st_mtime_ns >= over.stat().st_mtime_ns
    waiting.end().must(0)


def test_run_installs_new_requirements_before_it_starts(here: Runner) -> None:
    (here.repository.root / "requirements.txt").write_text("iniconfig>=2\n")
    here.write(train="import iniconfig; print(iniconfig.__name__)\n")
    made = here.run()
    assert made["first_lines"] == ["iniconfig"]
    assert {step["step"]: step["state"] for step in made["steps"]}["python"] == "ok"
    (here.repository.root / "requirements.txt").unlink()
