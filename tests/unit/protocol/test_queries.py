"""The questions themselves, asked of a box made by hand: the same answer in every shell."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bootstrap.link.exchange import shell_command
from bootstrap.protocol.probe import parse
from bootstrap.protocol.query import build_query
from bootstrap.render.quote import Value
from tests.unit.profile import hostile
from tests.unit.protocol.conftest import BoxHome

SHELLS = {
    "dash": ["dash", "-c"],
    "bash": ["bash", "--norc", "-c"],
    "bash as sh": ["bash", "--posix", "--norc", "-c"],
    "busybox": ["busybox", "sh", "-c"],
}
LOGINS = ["sh", "bash", "zsh", "fish", "tcsh"]
RUN: dict[str, Value] = {"repo_key": "homework-1", "name": "train-2"}
ASKED: dict[str, dict[str, Value]] = {
    "probe": {
        "repo_key": "homework-1",
        "script_id": hashlib.sha256(b"printf 'plan\\ttrain\\tdone\\n'\n").hexdigest(),
        "hint_names": "HINT OTHER",
        "hint_files": "/etc/passwd /nowhere",
    },
    "tail": {"file": "runs/homework-1/train-2/log", "bytes": 5},
    "run_end": RUN,
    "setup_end": {"setup_id": "20260101-000000-abcdef"},
    "first": {**RUN, "tenths": 1, "moment": "0"},
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
        timeout=30,
        check=False,
    )
    assert done.stderr == b""
    # The clock goes on while they are asked.
    return b"\n".join(x for x in done.stdout.splitlines() if not x.startswith(b"time\t"))


def asked(name: str, box_home: BoxHome) -> str:
    return build_query(name, workdir=str(box_home.workdir), **ASKED[name])


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gives_the_same_answer(
    shell: str, name: str, box_home: BoxHome, tmp_path: Path
) -> None:
    before = box_home.listing()
    found = answer(SHELLS[shell], asked(name, box_home), tmp_path)
    assert found == answer(["bash", "--norc", "-c"], asked(name, box_home), tmp_path)
    assert found
    assert box_home.listing() == before, "a question writes nothing"


@pytest.mark.parametrize("login", LOGINS)
def test_every_login_shell_hands_it_on(login: str, box_home: BoxHome, tmp_path: Path) -> None:
    text = asked("probe", box_home)
    found = answer([login, "-c"], shell_command(text), tmp_path)
    assert found == answer(["dash", "-c"], text, tmp_path)


def test_hello_tells_what_is_there(box_home: BoxHome, tmp_path: Path) -> None:
    box_state = parse(answer(["sh", "-c"], asked("probe", box_home), tmp_path))
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


def test_hello_of_a_bare_home_is_short_and_writes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    box_state = parse(answer(["sh", "-c"], build_query("probe", **NOTHING), home))
    assert box_state.runs == ()
    assert box_state.working is None
    assert box_state.plan == {}
    assert list(home.iterdir()) == []


NOTHING: dict[str, Value] = {"repo_key": "", "script_id": "", "hint_names": "", "hint_files": ""}


def test_another_script_is_not_asked_for_its_plan(box_home: BoxHome, tmp_path: Path) -> None:
    values = {**ASKED["probe"], "script_id": "c" * 64}
    text = build_query("probe", workdir=str(box_home.workdir), **values)
    assert parse(answer(["sh", "-c"], text, tmp_path)).plan == {}


@pytest.mark.parametrize(
    "case",
    [case for case in hostile.ACCEPTED if case.key == "env.A" and case.value],
    ids=lambda case: case.value[:20],
)
def test_values_of_a_question_are_data(case: hostile.HostileCase, box_home: BoxHome) -> None:
    folder = box_home.path / "runs"
    text = build_query("tail", workdir=case.value, file=case.value, bytes=1)
    done = subprocess.run(
        ["sh", "-c", text], stdin=subprocess.DEVNULL, cwd=folder, capture_output=True, check=False
    )
    assert done.stdout == b""
    assert [path.name for path in folder.iterdir()] == ["homework-1"]
