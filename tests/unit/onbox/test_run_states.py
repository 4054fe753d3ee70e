"""Every reader of run records agrees with one table about the state of a run."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.boxes import probe, run_history
from bootstrap.boxes.run import STATES, Run, as_it_ended
from bootstrap.link import build_query
from bootstrap.link.query import ask
from bootstrap.onbox import run_processes
from bootstrap.onbox.processes import boot_id, identity
from bootstrap.onbox.run_folder import RunFolder, alive_in
from bootstrap.onbox.runs import new_run, resume, top_stream
from bootstrap.steps.shell import functions, sent_module
from tests.box_programs import lay_programs, onbox
from tests.programs import captured
from tests.run_states import CASES, Processes, lay, some_processes
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a box is a Linux machine"),
    pytest.mark.slow,
]
each_case = pytest.mark.parametrize("name", CASES)
each_state = pytest.mark.parametrize(
    "name", {case.state: name for name, case in CASES.items()}.values()
)
BEGUN = [name for name, case in CASES.items() if case.pid is not None]
OVER = [name for name, case in CASES.items() if case.state in ("finished", "died")]
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    found = some_processes()
    yield found
    found.close()


@pytest.fixture
def workdir(processes: Processes, name: str, tmp_path: Path) -> Path:
    """A box with one run, in the state of the case."""
    home = tmp_path / ".boxstrap"
    lay(CASES[name], processes, home / "runs/homework/train-1")
    lay_programs(home / "box/current")
    return tmp_path


def said(shell: str, script: str) -> str:
    """What a shell prints."""
    command = [shell, *(["sh"] if shell == "busybox" else []), "-c", script]
    done = captured(command, timeout=PATIENCE_S)
    assert done.stderr == ""
    return done.stdout


def run_of(workdir: Path) -> Path:
    return workdir / ".boxstrap/runs/homework/train-1"


def probed(workdir: Path) -> Run:
    """Return the first run as this machine reads it from the box's answer."""
    values = dict.fromkeys(
        ("repo_key", "repo_root", "script_id", "hint_names", "hint_files", "details"), ""
    )
    text = sent_module("onbox/probe.py")
    answer = said("sh", build_query("probe", workdir=str(workdir), text=text, **values))
    return min(probe.parse_probe(answer.encode()).runs, key=lambda run: run.name)


@each_case
def test_each_combination_of_files_of_a_run_on_a_box_gives_the_expected_run_state(
    name: str, workdir: Path
) -> None:
    case = CASES[name]
    words = [case.state, *([] if case.rc is None else [str(case.rc)])]
    assert RunFolder(run_of(workdir)).state() == " ".join(words)


@pytest.mark.parametrize("name", [one for one, case in CASES.items() if case.ended or case.queue])
def test_status_shows_state_exit_code_and_why_it_ended_of_each_run(
    name: str, workdir: Path
) -> None:
    case, run = CASES[name], probed(workdir)
    assert (run.state, run.rc, run.ended) == (case.state, case.rc, case.ended or "")
    assert run.queue == (case.queue if case.state == "queued" else "")


@pytest.mark.parametrize("name", ["waits for its turn"])
def test_status_says_what_a_queued_run_waits_for_and_if_nothing_will_start_it(
    workdir: Path, processes: Processes
) -> None:
    run = run_of(workdir)
    for word, attended in (("alive", True), ("dead", False), ("other boot", False)):
        (run / "waiter").write_text(f"{processes.line(word)}\n")
        assert probed(workdir).attended == attended
        assert ("no process waits" in probed(workdir).outcome()) != attended
    for what, words in WAITS.items():
        (run / "queue").write_text(f"{what}\n")
        (run / "waiter").write_text(f"{processes.line('alive')}\n")
        assert probed(workdir).outcome() == f"queued: begins {words}"
    (run / "queue").write_text("gpus\n")
    (run / "gpus").write_text("0\n")
    assert probed(workdir).outcome() == "queued: begins once its GPUs are free"


WAITS = {
    "gpus": "once the runs before it are over",
    "after train-1": "once train-1 has ended with 0",
    "after-any other-1a2b3c4d/train-1": "once other-1a2b3c4d/train-1 has ended",
}


@pytest.mark.parametrize("name", ["both were killed"])
def test_a_run_that_died_can_be_resumed_until_another_run_resumed_it(
    workdir: Path, processes: Processes
) -> None:
    assert not probed(workdir).can_resume
    (run_of(workdir) / "resume").write_text("python train.py --resume\n")
    assert probed(workdir).can_resume
    again = run_of(workdir).with_name("train-2")
    lay(CASES["made, never begun"], processes, again)
    (again / "resumes").write_text("homework/train-1\n")
    assert probed(workdir).can_resume, "it was made, and could not be started"
    (again / "exit").write_text("0\n")
    assert (probed(workdir).can_resume, probed(workdir).resumed_by) == (False, "train-2")


@pytest.mark.parametrize("name", ["not begun, since another failed"])
def test_status_of_a_queued_run_says_was_not_started_naming_the_failed_run(workdir: Path) -> None:
    assert probed(workdir).outcome() == "was not started, since train-1 did not end with 0"


@each_state
def test_the_box_tells_logs_follow_state_exit_code_and_cause_of_the_runs_end(
    name: str, workdir: Path
) -> None:
    query = ask("verbs", {"verb": "end", "run": "homework/train-1"}, workdir=str(workdir))
    case, before = CASES[name], probed(workdir)
    run = as_it_ended(before, said("sh", query).split("\t")[0])
    assert run
    assert (run.state, run.rc, run.ended) == (case.state, case.rc, case.ended or "")
    assert as_it_ended(before, "") is as_it_ended(before, "gone") is None


@pytest.mark.parametrize("name", ["failed"])
def test_top_shows_the_newest_runs_state_exit_code_and_log_line(name: str, workdir: Path) -> None:
    case, [run] = CASES[name], top_stream.shown_runs(workdir / ".boxstrap/runs")
    assert run
    assert (run["state"], run["rc"], run["last"]) == (case.state, case.rc, "step 1")
    sample = run_history.parse_sample(json.dumps({"run": run}).encode())
    assert sample
    assert sample.run
    assert (sample.run.state, sample.run.rc) == (case.state, case.rc)


@pytest.mark.parametrize("name", ["at work"])
def test_top_lists_the_newest_run_and_every_other_live_run(name: str, workdir: Path) -> None:
    live = run_of(workdir)
    for number in (2, 3):
        over = live.with_name(f"train-{number}")
        shutil.copytree(live, over)
        (over / "exit").write_text("0\n")
        os.utime(over / "started", (2e9 + number, 2e9 + number))
    shown = top_stream.shown_runs(workdir / ".boxstrap/runs")
    assert [run and (run["name"], run["state"]) for run in shown] == [
        ("train-3", "finished"),
        ("train-1", CASES[name].state),
    ]


@each_state
def test_only_a_running_run_without_its_tmux_session_is_reported_as_lacking_it(
    name: str, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_run, "has_tmux", lambda: True)
    monkeypatch.setattr(new_run, "tmux", lambda *_: None)
    case = CASES[name]
    misses = case.state == "running" and len(case.pid or ()) == 2
    assert new_run.has_session(RunFolder(run_of(workdir))) is not misses


@each_state
def test_no_run_may_use_the_tree_of_a_running_or_queued_run(name: str, workdir: Path) -> None:
    home, folder = workdir / ".boxstrap", run_of(workdir) / "nowhere"
    # A queued run has its tree already.
    alive = CASES[name].state in ("running", "queued")
    for key in ("homework", "other"):
        run = alive_in(str(home), key, str(folder))
        assert (run and run.path) == (str(run_of(workdir)) if alive else None)


def wait_for_training(workdir: Path) -> subprocess.CompletedProcess[str]:
    """The carrier's function, on a box with this folder."""
    lay_programs(workdir / ".boxstrap/box/current")
    parts = [functions("lib", "stage0", ("find_python", "onbox"))]
    parts += [functions("doors", "carrier", ("tell_newest", "look_after_training"))]
    script = f"BOX_HOME={workdir}/.boxstrap WAIT=yes\n"
    script += "REPO_KEY=homework REPO_ROOT='' REPO_NAME=''\n"
    command = ["bash", "-c", f"{script}{''.join(parts)}\nlook_after_training"]
    return captured(command, check=False, timeout=PATIENCE_S)


@pytest.mark.parametrize("name", OVER[-3:])
def test_a_container_job_started_by_a_setup_script_exits_with_the_code_of_its_run(
    name: str, workdir: Path
) -> None:
    done = wait_for_training(workdir)
    rc = CASES[name].rc
    assert (done.returncode, done.stdout) == (1 if rc is None else rc, "step 1\n")


def test_a_container_job_started_by_a_setup_script_waits_for_the_newest_run(tmp_path: Path) -> None:
    """What an older run still uploads is written into its folder later."""
    for at, (name, rc) in enumerate([("train-1", 3), ("train-2", 0)]):
        run = tmp_path / ".boxstrap/runs/homework" / name
        run.mkdir(parents=True)
        for file, text in {"started": "0", "log": "step 1", "exit": str(rc)}.items():
            (run / file).write_text(f"{text}\n")
        os.utime(run / "started", (at, at))
    os.utime(tmp_path / ".boxstrap/runs/homework/train-2", (0, 0))
    assert wait_for_training(tmp_path).returncode == 0


@pytest.mark.parametrize("name", BEGUN[:2] + BEGUN[-2:])
def test_a_tmux_window_closes_only_when_its_run_ended(name: str, workdir: Path) -> None:
    program = onbox(workdir / ".boxstrap/box/current")
    command = [sys.executable, str(program), "runs.window", str(run_of(workdir))]
    window = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    alive = CASES[name].state == "running"
    try:
        window.wait(1.5 if alive else PATIENCE_S)
    except subprocess.TimeoutExpired:
        assert alive
    else:
        assert not alive
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(window.pid, signal.SIGKILL)
        window.wait()


def test_the_cases_of_the_run_state_tests_cover_every_run_state() -> None:
    assert {case.state for case in CASES.values()} == STATES


def test_stop_ends_runs_of_the_given_repository_only(tmp_path: Path) -> None:
    each = {key: some_processes() for key in ("homework", "other")}
    lay_programs(tmp_path / ".boxstrap/box/current")
    try:
        for key, processes in each.items():
            run = tmp_path / f".boxstrap/runs/{key}/train-1"
            lay(CASES["its runner was killed"], processes, run)
        query = ask("run_processes", {"runs": "homework/*"}, workdir=str(tmp_path))
        assert said("sh", query) == "stopped\ttrain-1\tfinished 143\n"
        assert each["homework"].living.wait(PATIENCE_S) == -signal.SIGTERM
        assert each["other"].living.poll() is None
    finally:
        for processes in each.values():
            processes.close()


def test_status_counts_processes_left_by_a_run_only_while_they_live(tmp_path: Path) -> None:
    processes = some_processes()
    try:
        lines = [processes.line(word) for word in ("alive", "dead", "reused", "zombie", "alive")]
        (tmp_path / "left").write_text("\n".join([*lines, ""]))
        assert len(run_processes.left_of(RunFolder(tmp_path))) == 2
    finally:
        processes.close()


@pytest.mark.parametrize(("ended", "why"), [("exit 0", "over"), ("stop", "")])
def test_a_run_that_was_stopped_and_saved_its_work_can_go_on_though_it_ended_with_0(
    tmp_path: Path, ended: str, why: str
) -> None:
    run = tmp_path / ".boxstrap/runs/homework/train-1"
    run.mkdir(parents=True)
    for name, text in {"exit": "0", "ended": ended, "resume": "x", "command": "x"}.items():
        (run / name).write_text(f"{text}\n")
    assert resume.why_not(RunFolder(run)) == why


@pytest.mark.parametrize("name", ["both were killed"])
def test_status_counts_a_process_that_outlived_its_killed_run_and_stop_ends_it(
    workdir: Path,
) -> None:
    run = run_of(workdir)
    (run / "resume").write_text("python train.py\n")
    run_processes.note_killed(RunFolder(run))  # it began before the container did
    assert not (run / "left").exists()
    with subprocess.Popen(["sleep", "60"]) as command:
        (run / "pid").write_text(f"{identity(command.pid)}\n" * 2)
        command.kill()
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "BOXSTRAP_RUN": str(run)}) as living:
        assert probed(workdir).outcome() == (
            "was killed, and its runner too; 1 of its processes live on"
        )
        assert not probed(workdir).can_resume
        assert resume.why_not(RunFolder(run)) == "left"
        run_processes.note_killed(RunFolder(run))
        # As after a restart of the box: it did not die with that.
        pid = (run / "pid").read_text()
        (run / "pid").write_text(pid.replace(boot_id(), "another boot"))
        assert probed(workdir).outcome().startswith("was killed, and its runner too")
        (run / "pid").write_text(pid)
        run_processes._stop(RunFolder(run))
        assert living.wait(PATIENCE_S) != 0
    assert RunFolder(run).state() == "finished 143"
