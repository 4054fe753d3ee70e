"""The runner of a training: what it records, and what it ends."""

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from bootstrap.link.query import ask
from bootstrap.onbox.run_folder import RunFolder
from bootstrap.onbox.runs import new_run, runner
from tests.box_programs import lay_programs, runner_of
from tests.plain_environment import HERE
from tests.programs import captured
from tests.run_states import CASES
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


def make_run(folder: Path, command: str, **profile: str) -> Path:
    """Make a run without starting it; return its folder. `profile`: variables of its profile."""
    run = folder / ".boxstrap/runs/homework/train-1"
    run.mkdir(parents=True)
    (run / "command").write_text(f"{command}\n")
    (run / "dir").write_text(f"{folder}\n")
    (run / "venv").write_text(f"{folder}/none\n")
    lines = [f"export {name}={shlex.quote(x)}\n" for name, x in profile.items()]
    (folder / ".boxstrap/env").write_text("".join(lines))
    return run


def begin(folder: Path, command: str, **profile: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """Make and start a run; return its folder and its runner."""
    run = make_run(folder, command, **profile)
    return run, start(run)


def start(run: Path, window: int | None = None) -> subprocess.Popen[bytes]:
    """Start the runner of a run, perhaps in a window; programs in `bin` come first in PATH."""
    folder = run.parents[3]
    box = lay_programs(folder / ".boxstrap/box/current")
    return subprocess.Popen(
        runner_of(box, run),
        stdin=subprocess.DEVNULL,
        stdout=window,
        env={"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder)},
        start_new_session=True,
    )


def finish(folder: Path, command: str, **profile: str) -> tuple[str, str, str]:
    """Run until it ends on its own; return exit code, what decided it, and the log."""
    run, runner = begin(folder, command, **profile)
    runner.wait(PATIENCE_S)
    return was(run, "exit"), was(run, "ended"), (run / "log").read_text()


def was(run: Path, name: str) -> str:
    """Return this part of the record; "" if it has none."""
    return (run / name).read_text().strip() if (run / name).exists() else ""


def test_env_of_a_profile_reaches_a_run_also_under_the_runners_own_names(tmp_path: Path) -> None:
    names = ("run", "env_file", "venv", "child", "rc", "shown", "identity", "stat", "fields", "IFS")
    code, why, log = finish(tmp_path, 'echo "$run $child"', **dict.fromkeys(names, "abc"))
    assert (code, why, log) == ("0", "exit 0", "abc abc\n")


def test_a_run_does_not_inherit_a_tmpdir_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder, stays in ((tmp_path, True), (tmp_path / "gone", False)):
        monkeypatch.setenv("TMPDIR", str(folder))
        new_run.clean_environment(str(tmp_path))
        assert ("TMPDIR" in os.environ) == stays


def test_path_in_env_of_a_profile_applies_to_the_training_command_alone(tmp_path: Path) -> None:
    code, _, log = finish(tmp_path, "true", PATH="/nowhere")
    assert code == "127"
    assert "bash" in log


@pytest.mark.parametrize("before", ["", "head -c 100000 /dev/zero; "])
def test_the_exit_code_of_a_run_is_recorded_even_if_its_tmux_window_hangs(
    before: str, tmp_path: Path
) -> None:
    """It was once written after that, too late for a client that watches a run start."""
    run = make_run(tmp_path, f"{before}echo the last line; exit 7")
    screen, window = os.openpty()
    assert start(run, window).wait(PATIENCE_S) == 0
    os.close(window)
    assert (b"the last line" in os.read(screen, 100000)) is not bool(before)
    os.close(screen)
    assert was(run, "exit") == "7"


def test_closing_the_terminal_does_not_end_the_work_that_follows_a_runs_end(tmp_path: Path) -> None:
    def note() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        os.kill(os.getpid(), signal.SIGHUP)  # as the kernel does when the runner ends
        runner._apart()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        (tmp_path / "noted").touch()

    os.waitpid(runner._fork(note), 0)
    assert (tmp_path / "noted").exists()


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("exit 3", "3", "exit 3"),
        ("kill -9 $$", "137", "exit 137"),
        ("false || true", "0", "pipeline 0"),
        ("(exit 7) | cat", "7", "pipeline 7 0"),
        ("yes | head -n 1", "141", "pipeline 141 0"),
        ("set +o pipefail; yes | head -n 1", "0", "pipeline 141 0"),
    ],
)
def test_the_record_of_a_run_names_the_part_of_its_command_that_failed_and_its_code(
    command: str, code: str, why: str, tmp_path: Path
) -> None:
    assert finish(tmp_path, command)[:2] == (code, why)


SAVES = "trap 'sleep 0.3; exit 5' TERM; while :; do sleep 0.1; done"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sleep 600", "143"),
        ("trap 'exit 0' TERM; while :; do sleep 0.1; done | cat", "0"),
        (SAVES, "5"),
        # Of several commands, the running one decides; none is started after it.
        (f'true && bash -c "{SAVES}" || touch after; touch after', "5"),
        (f'bash -c "{SAVES}" | (trap "" TERM; cat); touch after', "5"),
        ("trap '' TERM; while :; do sleep 0.1; done", "137"),
    ],
)
def test_a_stopped_run_is_recorded_as_stop_with_the_exit_code_its_command_gave(
    command: str, code: str, tmp_path: Path
) -> None:
    run, runner = begun(tmp_path, command)
    (run / "grace").write_text("2\n")
    time.sleep(0.3)  # until the command has set its trap
    runner.send_signal(signal.SIGTERM)
    runner.wait(PATIENCE_S)
    assert was(run, "exit") == code
    assert was(run, "ended") == "stop"
    assert not (tmp_path / "after").exists()


# Each writes that it was asked to end, and ends; `far` has its own session and no BOXSTRAP_RUN.
ASKED = """
word() { trap 'echo asked >>"$1"; exit 143' TERM; echo up >>"$1"; while :; do sleep 0.1; done; }
export -f word
env -u BOXSTRAP_RUN setsid bash -c 'word far' &
bash -c 'word near'
"""


@pytest.mark.parametrize("killed", [False, True], ids=["runner lives", "runner was killed"])
def test_stop_asks_each_process_of_a_run_only_once(killed: bool, tmp_path: Path) -> None:
    run, runner = begun(tmp_path, ASKED)
    words = [tmp_path / name for name in ("far", "near")]
    wait_until(lambda: all(word.exists() for word in words))
    if killed:
        runner.kill()
        runner.wait()
    text = ask("run_processes", {"runs": "homework/train-1"}, workdir=str(tmp_path))
    # As on a box, its parent reaps the runner when it ends.
    waiting = threading.Thread(target=runner.wait)
    waiting.start()
    done = captured(["sh", "-c", text])
    waiting.join()
    assert (done.stdout, done.stderr) == ("stopped\ttrain-1\tfinished 143\n", "")
    assert [word.read_text() for word in words] == ["up\nasked\n"] * 2
    assert (run / "ended").read_text() == "stop\n"


def test_a_real_runs_files_give_the_states_waiting_running_died_and_failed(tmp_path: Path) -> None:
    """The records of a real runner have the states that `tests/run_states.py` lists."""
    assert state(make_run(tmp_path / "made", "true")) == CASES["made, never begun"].state
    run, runner = begun(tmp_path / "killed", "echo up; sleep 600")
    wait_until(lambda: was(run, "log") == "up")
    assert state(run) == CASES["at work"].state
    runner.kill()
    runner.wait()
    assert state(run) == CASES["its runner was killed"].state
    os.killpg(int((run / "pid").read_text().splitlines()[1].split()[0]), signal.SIGKILL)
    wait_until(lambda: state(run) == CASES["both were killed"].state)
    finish(tmp_path / "failed", "exit 7")
    failed = tmp_path / "failed/.boxstrap/runs/homework/train-1"
    assert state(failed) == f"{CASES['failed'].state} {CASES['failed'].rc}"


def state(run: Path) -> str:
    """Return the state of a run, each of whose files is known."""
    _, listed = (HERE / "docs/architecture.md").read_text().split("\n### The files of a run\n")
    known = re.findall(r"^\| `([^`/]+)/?` \|", listed.partition("\n## ")[0], re.MULTILINE)
    # One is renamed into place as it is looked at.
    assert {re.sub(r"\.new\.\d+$", "", file.name) for file in run.iterdir()} <= {*known}
    return RunFolder(run).state()


def test_stop_kills_a_process_that_ignores_sigterm_after_the_grace(tmp_path: Path) -> None:
    deaf = "trap '' TERM; echo deaf >ready; while :; do sleep 0.1; done"
    run = make_run(tmp_path, f'setsid bash -c "{deaf}" & wait')
    (run / "grace").write_text("2\n")
    runner = start(run)
    wait_until((tmp_path / "ready").exists)
    began = time.monotonic()
    runner.send_signal(signal.SIGTERM)
    runner.wait(PATIENCE_S)
    assert 1.9 < time.monotonic() - began < 9
    assert not [one for one in Path("/proc").glob("[0-9]*/environ") if holds(one, str(run))]


def test_stopping_train_1_ends_no_process_of_train_10(tmp_path: Path) -> None:
    run, runner = begun(tmp_path, "sleep 600")
    other = subprocess.Popen(["sleep", "600"], env={"BOXSTRAP_RUN": f"{run}0"})
    runner.send_signal(signal.SIGTERM)
    runner.wait(PATIENCE_S)
    assert other.poll() is None
    other.kill()
    other.wait()


def holds(environ: Path, text: str) -> bool:
    """Whether a process's environment contains this text."""
    try:
        return text.encode() in environ.read_bytes()
    except OSError:
        return False


def begun(folder: Path, command: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """Start a run; wait until its command runs."""
    run, runner = begin(folder, command)
    wait_until(lambda: (run / "pid").exists() and (run / "pid").read_text().count("\n") == 2)
    return run, runner
