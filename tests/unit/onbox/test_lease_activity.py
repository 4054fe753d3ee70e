"""What counts as use of a box."""

import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.onbox import processes
from bootstrap.onbox.lease import activity
from bootstrap.onbox.lease.activity import ActivityReader
from bootstrap.onbox.lease.rules import UseReading
from bootstrap.onbox.processes import ProcessStat, boot_id
from bootstrap.steps.shell import sent_program
from bootstrap.transfer.frames import PROGRAM

MOVES = "import os, time\nwhile True: os.write(1, b'x' * 999); time.sleep(0.01)"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = tmp_path / "home/runs/homework/train-1"
    (tmp_path / "homework/out/deep").mkdir(parents=True)
    made.mkdir(parents=True)
    (made / "log").write_text("step 1\n")
    (made / "dir").write_text(f"{tmp_path}/homework\n")
    (made / "results").write_text("out\n")
    return made


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show only the processes that a test names: this machine is busy with other things."""
    monkeypatch.setattr(activity, "EVERY_S", 0.0)
    for module in (activity, processes):
        monkeypatch.setattr(module, "stat_of", seen)
    monkeypatch.setattr(activity, "_terminals", lambda: iter(()))
    monkeypatch.setattr(activity, "_network", lambda: 0)
    monkeypatch.setattr(activity, "IO", float("inf"))
    SEEN.clear()
    yield
    SEEN.clear()


SEEN: dict[str, list[str]] = {}


def seen(number: str) -> ProcessStat | None:
    return ProcessStat(SEEN[number]) if number in SEEN else None


def stat(seconds: float, start: str = "77") -> list[str]:
    ticks = str(int(seconds * os.sysconf("SC_CLK_TCK")))
    return ["S", *["0"] * 10, ticks, *["0"] * 7, start]


def second_look(run: Path, *gpus: list[object] | None) -> UseReading:
    """Return the use that is seen since the first look."""
    found = READERS[run].look([run], gpus)
    assert found is not None
    return found


READERS: dict[Path, ActivityReader] = {}


@pytest.fixture(autouse=True)
def other(run: Path, quiet: None) -> Iterator[int]:  # `quiet` runs first
    """A process of the box that moves no bytes; the reader has taken its first look."""
    reader = READERS[run] = ActivityReader(run.parents[2])
    with subprocess.Popen(["sleep", "60"]) as process:
        SEEN[str(process.pid)] = stat(5)
        assert reader.look([run], ()) is None
        yield process.pid
        process.kill()


def test_a_box_on_which_nothing_happens_counts_as_idle(run: Path) -> None:
    look = second_look(run, [0, 1, 2, 3], None, [None, 1, 2, 3], [4, 1, 2, 3])
    assert (look.used, look.computes, look.grew) == (False, False, False)


def test_a_box_whose_gpu_or_a_process_computes_counts_as_in_use(run: Path, other: int) -> None:
    assert second_look(run, [0], [5]).computes
    assert not second_look(run, [0]).used
    SEEN[str(other)] = stat(500)
    look = second_look(run)
    assert (look.used, look.computes) == (True, True)
    SEEN[str(other)] = stat(0, "88")  # its number belongs to another process now
    assert not second_look(run).used


@pytest.mark.parametrize("where", ["log", "results", "deep"])
def test_a_box_whose_log_or_result_file_grew_counts_as_in_use(run: Path, where: str) -> None:
    tree = run.parents[3] / "homework/out"
    file = {"log": run / "log", "results": tree / "a.pt", "deep": tree / "deep/b.pt"}[where]
    with file.open("a") as out:
        out.write("more\n")
    look = second_look(run)
    assert (look.used, look.grew, look.computes) == (True, True, False)
    assert not second_look(run).used


def test_a_box_is_in_use_while_a_setup_runs_but_not_after_it_died(run: Path, other: int) -> None:
    lock = run.parents[2] / "lock"
    lock.write_text(f"{other} 77 {boot_id()}\nscript\nsetup\n")
    assert second_look(run).used
    lock.write_text(f"{other} 78 {boot_id()}\nscript\nsetup\n")
    assert not second_look(run).used


@pytest.mark.slow
@pytest.mark.parametrize("named", ["/root/.vscode-server/bin/x", "transfer", "other"])
def test_a_box_to_which_an_editor_or_transfer_moves_bytes_counts_as_in_use(
    run: Path, named: str
) -> None:
    words = sent_program(PROGRAM)[:80] if named == "transfer" else named
    if named == "transfer":
        assert any(mark in sent_program(PROGRAM) for mark in activity._AT_WORK)
    moving = subprocess.Popen([sys.executable, "-c", MOVES, words], stdout=subprocess.DEVNULL)
    try:
        SEEN[str(moving.pid)] = stat(0)
        second_look(run)
        before = activity._moved(str(moving.pid))
        while activity._moved(str(moving.pid)) <= before + 5000:
            pass
        assert second_look(run).used is (named != "other")
    finally:
        moving.kill()
        moving.wait()


def test_terminal_typing_means_a_box_is_in_use(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    try:
        typed = {os.path.basename(os.ttyname(theirs)): 5}  # noqa: PTH119
        monkeypatch.setattr(activity, "_terminals", lambda: iter(typed.items()))
        assert not second_look(run).used
        typed = dict.fromkeys(typed, 6)
        assert second_look(run).used
    finally:
        os.close(ours)
        os.close(theirs)
    monkeypatch.undo()
    assert all(at > 0 for _, at in activity._terminals())


@pytest.mark.slow
@pytest.mark.parametrize(("bytes_s", "is_used"), [(1_500_000, True), (5_000, False)])
def test_a_download_over_the_network_counts_as_use_of_the_box(
    run: Path, monkeypatch: pytest.MonkeyPatch, bytes_s: int, is_used: bool
) -> None:
    """It takes hardly any CPU, and what it writes is no result of a run."""
    time.sleep(0.5)
    monkeypatch.setattr(activity, "_network", lambda: bytes_s // 2)
    assert second_look(run).used == is_used


@pytest.mark.slow
def test_a_box_on_which_a_program_reads_or_writes_counts_as_in_use(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "IO", 2_000)
    with subprocess.Popen([sys.executable, "-c", MOVES], stdout=subprocess.DEVNULL) as moving:
        SEEN[str(moving.pid)] = stat(0)
        time.sleep(0.5)
        second_look(run)
        time.sleep(1)
        assert second_look(run).used
        moving.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "is_used"),
    [
        ("sshd: me@notty", True),
        ("sshd-session: me@pts/0", True),
        ("init", False),
        # Where sshd is process 1, it is the parent of whatever was detached.
        ("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups", False),
        ("/usr/sbin/sshd -D", False),
    ],
)
def test_a_box_counts_as_in_use_during_an_exec_but_not_for_a_process_left_detached(
    run: Path, other: int, monkeypatch: pytest.MonkeyPatch, parent: str, is_used: bool
) -> None:
    environment = {**os.environ, "BOXSTRAP_ENTERED": "1"}
    login = subprocess.Popen(["bash", "-c", 'exec -a "$0" sleep 60', parent])
    with login, subprocess.Popen(["sleep", "60"], env=environment) as inside:
        time.sleep(0.3)
        SEEN[str(login.pid)] = stat(0)
        SEEN[str(inside.pid)] = ["S", str(login.pid), *stat(0)[2:]]
        assert second_look(run).used == is_used
        monkeypatch.setattr(activity, "_is_alive", lambda _: False)
        assert not second_look(run).used
        inside.kill()
        login.kill()


@pytest.mark.slow
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])
def test_an_ssh_login_on_a_silent_connection_is_no_use_of_the_box_but_one_on_an_unknown_is(
    monkeypatch: pytest.MonkeyPatch, family: int
) -> None:
    with (
        socket.create_server(
            ("127.0.0.1" if family == socket.AF_INET else "::1", 0), family=family
        ) as server,
        socket.socket(family) as client,
    ):
        client.connect(server.getsockname())
        near, _ = server.accept()
        with near:
            (far, far_port), (here, port) = near.getpeername()[:2], near.getsockname()[:2]
            named = f"{far} {far_port} {here} {port}"
            monkeypatch.setattr(activity, "SILENT_S", 0.3)
            client.send(b"x")
            assert activity._is_alive(named)
            time.sleep(0.5)
            assert not activity._is_alive(named)
            client.send(b"x")  # a sign of life is enough
            assert activity._is_alive(named)
    for unknown in ("", "203.0.113.9 22 203.0.113.7 99999", "203.0.113.9 1 203.0.113.7 22"):
        assert activity._is_alive(unknown)
