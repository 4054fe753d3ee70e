"""The queries themselves, run on a hand-made box: the same answer in every shell."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from bootstrap.boxes import parse_details
from bootstrap.boxes.follow import tail_query
from bootstrap.boxes.probe import parse_probe
from bootstrap.link.exchange import shell_command
from bootstrap.link.query import NO_REDACTION, ask, build_query
from bootstrap.steps.shell import Value, sent_module
from tests.unit.boxes.conftest import BoxHome
from tests.unit.profile import hostile

pytestmark = pytest.mark.slow  # each starts programs

SHELLS = {
    "dash": ["dash", "-c"],
    "bash": ["bash", "--norc", "-c"],
    "bash as sh": ["bash", "--posix", "--norc", "-c"],
    "busybox": ["busybox", "sh", "-c"],
}
ASKED: dict[str, dict[str, Value]] = {
    "probe": {
        "text": sent_module("onbox/probe.py"),
        "repo_key": "homework-1",
        "script_id": hashlib.sha256(b"printf 'plan\\ttrain\\tdone\\n'\n").hexdigest(),
        "hint_names": "HINT OTHER",
        "hint_files": "/etc/passwd /nowhere",
        "details": '{"redact": []}',
    },
    "tail": {"file": "runs/homework-1/train-2/log", "bytes": 5, "follows": False},
    "ask": {
        **{"module": "verbs", "file": "verbs.py", "tool": "sh", "text": "", "lacking": ""},
        **{"request": '{"verb": "end", "run": "homework-1/train-2"}', "waits": 0},
    },
    "setup_end": {"setup_id": "20260101-000000-abcdef", "follows": False},
}


def answer(argv: list[str], text: str, home: Path) -> bytes:
    program = shutil.which(argv[0])
    if program is None:
        pytest.skip(f"{argv[0]} is not installed: no question is asked in it")
    done = subprocess.run(
        [program, *argv[1:], text],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "HINT": "x", "LC_ALL": "C.UTF-8"},
        cwd=home,
        timeout=120,
        check=False,
    )
    assert done.stderr == b""
    # The clock advances between the shells.
    return b"\n".join(x for x in done.stdout.splitlines() if not x.startswith(b"time\t"))


def asked(name: str, box_home: BoxHome) -> str:
    return build_query(name, workdir=str(box_home.workdir), **ASKED[name])


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("shell", SHELLS)
def test_every_query_to_a_box_gives_the_same_answer_in_every_shell_and_writes_nothing(
    shell: str, name: str, box_home: BoxHome, tmp_path: Path
) -> None:
    before = box_home.listing()
    found = answer(SHELLS[shell], asked(name, box_home), tmp_path)
    assert found == answer(["bash", "--norc", "-c"], asked(name, box_home), tmp_path)
    assert found
    assert box_home.listing() == before, "a question writes nothing"


@pytest.mark.parametrize("login", ["sh", "bash", "zsh", "fish", "tcsh"])
def test_a_query_to_a_box_gives_the_same_answer_through_any_login_shell(
    login: str, box_home: BoxHome, tmp_path: Path
) -> None:
    text = asked("probe", box_home)
    found = answer([login, "-c"], shell_command(text), tmp_path)
    assert found == answer(["dash", "-c"], text, tmp_path)


def test_one_query_to_a_box_returns_its_runs_running_setup_environment_hints_and_plan(
    box_home: BoxHome, tmp_path: Path
) -> None:
    box_state = parse_probe(answer(["sh", "-c"], asked("probe", box_home), tmp_path))
    states = {run.name: (run.state, run.rc) for run in box_state.runs}
    assert states == {
        "train-1": ("finished", 0),
        "train-2": ("finished", 3),
        "train-3": ("running", None),
        "train-4": ("died", None),
    }
    assert box_state.working == ("20260101-000000-abcdef", "b" * 64)
    assert box_state.env == {"HINT"}
    assert box_state.files == {"/etc/passwd"}
    assert box_state.facts["work"] == "w" * 64
    assert box_state.facts["boxhome"] == str(box_home.path)
    assert box_state.plan == {"train": "done"}
    log = box_home.path / "runs/homework-1/train-2/log"
    run = next(run for run in box_state.runs if run.name == "train-2")
    assert (run.log_bytes, run.written) == (log.stat().st_size, int(log.stat().st_mtime))


def test_status_fetches_the_last_lines_of_the_log_only_of_failed_or_died_runs(
    box_home: BoxHome, tmp_path: Path
) -> None:
    box_home.run("train-5", exit="143\n", ended="stop\n", log="stopped\n")
    box_home.run("train-6", exit="1\n", started="1800000000\n", log=f"{'x' * 6000}\n")
    said = answer(["sh", "-c"], asked("probe", box_home), tmp_path)
    assert {run.name for run in parse_probe(said).runs} == {f"train-{n}" for n in range(1, 7)}
    found = parse_details(said).log_ends
    assert {path.rpartition("/")[2]: end for path, end in found.items()} == {
        "train-6": b"x" * 5999 + b"\n",
        "train-4": b"step 1\n",
        "train-2": b"no\nsuch data\n",
    }
    assert next(iter(found)) == "homework-1/train-6"


def test_status_reads_the_newest_metric_of_runs_that_are_alive_ended_well_or_were_stopped(
    box_home: BoxHome, tmp_path: Path
) -> None:
    alive = (box_home.path / "runs/homework-1/train-3/pid").read_text()
    # A log may hold what `tail` prints between the logs of several runs.
    other = f"\n==> {box_home.path}/runs/homework-1/train-1/log <==\nloss 9\n"
    bar = "x\nstep 1 loss 3\r step 2 loss 2\r step 3 loss 1"
    for name, files in {
        "train-1": {"exit": "0\n", "started": "10\n", "log": "loss 1\nloss 2\nsaved\n"},
        "train-2": {"exit": "1\n", "started": "20\n", "log": "loss 5\nValueError\n"},
        "train-3": {"pid": alive, "started": "30\n", "log": f"{bar}\n{other}"},
        "train-4": {"pid": alive, "started": "40\n", "metrics": "a\tis (9)\nb\tdice ([0-9]+)\n"},
        "train-5": {"exit": "143\n", "ended": "stop\n", "started": "5\n"},
    }.items():
        box_home.run(name, **{"exit": "", "metrics": "", "log": "loss 1\ndice 7\nx\n", **files})
    found = parse_details(answer(["sh", "-c"], asked("probe", box_home), tmp_path)).metrics
    assert {path.rpartition("/")[2]: line.strip() for path, line in found.items()} == {
        "train-4": b"dice 7",
        "train-3": b"loss 9",
        "train-1": b"loss 2",
        "train-5": b"dice 7",
    }


def test_status_names_the_trees_beside_the_main_tree_with_size_and_last_run(
    box_home: BoxHome, tmp_path: Path
) -> None:
    for number in (2, 10, 3, 11):
        tree = box_home.workdir / f"homework@{number}"
        box_home.write({f"steps/homework-1/beside/{number}/repo.dir": f"{tree}\n"})
        if number < 11:  # a full disk kept a run from making that one
            tree.mkdir()
        if number < 10:
            (tree / "model.pt").write_bytes(bytes(300_000))
    for name in ("train-5", "train-6"):
        box_home.run(name, dir=f"{box_home.workdir}/homework@2\n")
    os.utime(box_home.path / "runs/homework-1/train-5", (1, 1))
    trees = parse_details(answer(["sh", "-c"], asked("probe", box_home), tmp_path)).trees
    assert [(tree.name, tree.last_run) for tree in trees] == [
        ("homework@2", "train-6"),
        ("homework@3", ""),
        ("homework@10", ""),
    ]
    assert [tree.bytes is not None and tree.bytes >= 300_000 for tree in trees] == [
        True,
        True,
        False,
    ]


def test_status_reads_the_gpus_tree_and_memory_kill_of_each_run_and_whether_the_box_restarted(
    box_home: BoxHome, tmp_path: Path
) -> None:
    alive = (box_home.path / "runs/homework-1/train-3/pid").read_text().splitlines()[0]
    box_home.run("train-3", exit="", pid=f"{alive}\n{alive}\n", gpus="0,1\n")
    box_home.run("train-2", exit="137\n", killed="1 - - -\n", dir="/w/homework@2\n", times="9 4\n")
    pid, start, boot = alive.split()
    box_home.run("train-4", exit="", pid=f"{pid} {int(start) + 1} {boot}\n")
    box_state = parse_probe(answer(["sh", "-c"], asked("probe", box_home), tmp_path))
    runs = {run.name: run for run in box_state.runs}
    assert runs["train-3"].gpus == "0,1"
    assert (runs["train-2"].tree, runs["train-3"].tree) == ("homework@2", "")
    assert runs["train-2"].killed_for_memory == "1 - - -"
    assert (runs["train-2"].log_kept, runs["train-3"].log_kept) == (4, 0)
    assert runs["train-2"].over == int(
        (box_home.path / "runs/homework-1/train-2/exit").stat().st_mtime
    )
    assert not runs["train-4"].restarted
    box_home.run("train-4", exit="")
    again = parse_probe(answer(["sh", "-c"], asked("probe", box_home), tmp_path))
    assert next(run for run in again.runs if run.name == "train-4").restarted


def test_the_later_of_two_runs_begun_in_the_same_second_is_the_newest(
    box_home: BoxHome, tmp_path: Path
) -> None:
    for at, name in enumerate(("other-2", "lost-1", "third-1")):
        box_home.run(name, started="1800000000\n")
        file = box_home.path / "runs/homework-1" / name / "started"
        os.utime(file, ns=(0, 1_800_000_000_250_000_000 + at * 1000))
    found = parse_probe(answer(["sh", "-c"], asked("probe", box_home), tmp_path))
    assert [run.name for run in found.runs][:3] == ["third-1", "lost-1", "other-2"]


@pytest.mark.parametrize("module", ["work/sync.py", "setup/run.py"])
def test_sync_asks_for_a_setup_if_an_older_boxstrap_set_the_box_up(
    module: str, box_home: BoxHome, tmp_path: Path
) -> None:
    (box_home.path / "box/current/onbox" / module).unlink()
    about = {"lacking": "fresh\t\nover\t", "workdir": str(box_home.workdir)}
    query = ask(module[:-3].replace("/", "."), {}, **about)
    assert answer(["sh", "-c"], query, tmp_path) == b"fresh\t\nover\t"


def test_the_command_sent_to_a_box_by_run_is_in_no_list_of_processes(
    box_home: BoxHome, tmp_path: Path
) -> None:
    """A training that ends others by their command (`pkill -f train.py`) ends no `run`."""
    python = box_home.path / "agent/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\ntr "\\0" " " </proc/$$/cmdline\necho\necho "$BOXSTRAP_REQUEST"\n')
    python.chmod(0o755)
    asked = {"command": "python train.py"}
    query = ask("setup.run", asked, workdir=str(box_home.workdir))
    listed, _, given = answer(["sh", "-c"], query, tmp_path).decode().partition("\n")
    assert "setup.run" in listed
    assert "train.py" not in listed
    assert json.loads(given) == asked


def _waiter(box_home: BoxHome, patience: str) -> subprocess.Popen[str]:
    about = {"verb": "wait", "run": "homework-1/train-7", "patience": patience}
    text = ask("verbs", about, workdir=str(box_home.workdir))
    return subprocess.Popen(["timeout", "20", "sh", "-c", text], stdout=subprocess.PIPE, text=True)


def test_wait_learns_that_no_process_on_the_box_will_start_a_queued_run(box_home: BoxHome) -> None:
    box_home.run("train-7", exit="", pid="", queue="gpus\n")
    here = (box_home.path / "runs/homework-1/train-3/pid").read_text()
    box_home.write({"lock": here})  # a setup, which would start it
    with _waiter(box_home, patience="1") as waiter:
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(1.5)
        box_home.write({"lock": "4194305 1 none\n"})
        told = waiter.communicate()[0].splitlines()
    assert (told[0].split("\t")[0], told[1:]) == ("queued", ["unattended"])


def test_the_box_tells_wait_queued_running_and_finished_of_a_queued_run_once_each(
    box_home: BoxHome, tmp_path: Path
) -> None:
    here = (box_home.path / "runs/homework-1/train-3/pid").read_text()
    box_home.run("train-7", exit="", pid="", queue="gpus\n")
    with _waiter(box_home, patience="20") as waiter:
        assert waiter.stdout
        state, size, *rest = waiter.stdout.readline().rstrip("\n").split("\t")
        assert (state, size.isdigit(), rest) == ("queued", True, ["", "", ""])
        box_home.write({"runs/homework-1/train-7/pid": here})
        state, _, over, begun, _ = waiter.stdout.readline().rstrip("\n").split("\t")
        assert (state, over, begun.isdigit()) == ("running", "", True)
        box_home.write({f"runs/homework-1/train-7/{name}": "1\n" for name in ("ended", "exit")})
        assert waiter.stdout.readline().split("\t")[0] == "finished 1 1"
        assert waiter.wait(10) == 0


def test_status_starts_as_many_programs_on_the_box_for_many_runs_as_for_few(
    box_home: BoxHome, tmp_path: Path
) -> None:
    def programs() -> list[str]:
        started = tmp_path / "started"
        started.write_text("")
        answer(["sh", "-c"], f"PATH={shims}:$PATH\n{asked('probe', box_home)}", tmp_path)
        return sorted(started.read_text().split())

    shims = tmp_path / "shims"
    shims.mkdir()
    for program in (
        *("bash", "awk", "cat", "cut", "date", "head", "id", "sed", "sort", "stat", "tail", "tr"),
    ):
        shim = shims / program
        real = shutil.which(program)
        shim.write_text(f'#!/bin/sh\necho {program} >>{tmp_path}/started\nexec {real} "$@"\n')
        shim.chmod(0o755)
    for number in range(10, 20):
        box_home.run(f"train-{number}")
    few = programs()
    assert "stat" in few
    for number in range(20, 40):
        box_home.run(f"train-{number}")
    assert programs() == few


def test_the_state_of_a_box_never_set_up_is_empty_and_nothing_is_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    box_state = parse_probe(answer(["sh", "-c"], build_query("probe", **NOTHING), home))
    assert box_state.runs == ()
    assert box_state.working is None
    assert box_state.plan == {}
    assert list(home.iterdir()) == []


NOTHING: dict[str, Value] = {
    "repo_key": "",
    "script_id": "",
    "hint_names": "",
    "hint_files": "",
    "details": "",
}


def test_the_plan_of_a_box_is_empty_for_a_script_other_than_that_of_its_last_setup(
    box_home: BoxHome, tmp_path: Path
) -> None:
    values = {**ASKED["probe"], "script_id": "c" * 64}
    text = build_query("probe", workdir=str(box_home.workdir), **values)
    assert parse_probe(answer(["sh", "-c"], text, tmp_path)).plan == {}


@pytest.mark.parametrize(
    "case",
    [case for case in hostile.ACCEPTED if case.key == "env.A" and case.value],
    ids=lambda case: case.value[:20],
)
def test_a_query_to_a_box_runs_no_command_hidden_in_a_hostile_path(
    case: hostile.HostileCase, box_home: BoxHome
) -> None:
    folder = box_home.path / "runs"
    text = tail_query(case.value, "1", case.value, NO_REDACTION)
    done = subprocess.run(
        ["sh", "-c", text], stdin=subprocess.DEVNULL, cwd=folder, capture_output=True, check=False
    )
    assert done.stdout == b""
    assert [path.name for path in folder.iterdir()] == ["homework-1"]


def test_signed_download_addresses_are_saved_privately_and_only_if_complete(tmp_path: Path) -> None:
    folder = tmp_path / ".boxstrap/setups/20260101-000000-abcdef"
    folder.mkdir(parents=True)
    about = {"workdir": str(tmp_path), "setup_id": folder.name, "what": "addresses"}
    query = build_query("take", **about, file="data.addresses", bytes=26)
    for sent, is_whole in ((b'{"url": "x"}\n', False), (b'{"url": "x"}\n' * 2, True)):
        done = subprocess.run(
            ["sh", "-c", f"umask 022; {query}"],
            input=sent,
            capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            timeout=120,
            check=False,
        )
        assert (b"\narrived\n" in done.stdout) is is_whole
        kept = {file.name: file for file in folder.iterdir() if file.name != "addresses.sender"}
        assert [*kept] == ["data.addresses"] * is_whole
    assert kept["data.addresses"].read_bytes() == sent
    assert stat.S_IMODE(kept["data.addresses"].stat().st_mode) == 0o600
