"""Runs on several nodes, each with the real runner and watch, on addresses of loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bootstrap.onbox.nodes.check import of_engine
from tests.box_programs import lay_programs, runner_of
from tests.boxes.ports import free_port
from tests.programs import captured

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]
FOREVER = "trap 'exit 4' TERM; echo begun; while :; do sleep 0.1; done"


class Nodes:
    """Runs of one training, a folder for each node; started with `begin`."""

    def __init__(self, folder: Path, *commands: str, least: int = 0, come_s: float = 60) -> None:
        self.runs: list[Path] = []
        self.runners: dict[int, subprocess.Popen[bytes]] = {}
        port, self._programs = free_port(), lay_programs(folder / "box/current")
        for rank, command in enumerate(commands):
            home = folder / str(rank) / ".boxstrap"
            (home / "agent/bin").mkdir(parents=True)
            (home / "agent/bin/python").symlink_to(sys.executable)
            (home / "env").touch()
            run = home / "runs/homework/train-1"
            (run / "nodes").mkdir(parents=True)
            for name, text in {"command": command, "dir": str(run), "venv": "none"}.items():
                (run / name).write_text(f"{text}\n")
            watch = {"rank": rank, "count": len(commands), "address": "127.0.0.1", "port": port}
            watch |= {"token": "a secret", "least": least, "come_s": come_s}
            (run / "nodes/watch.json").write_text(json.dumps(watch))
            (run / "nodes/env").write_text(f"export NODE_RANK={rank}\n")
            (run / "nodes/rank").write_text(f"{rank}\n")
            (run / "nodes/code").write_text("\n")
            self.runs.append(run)

    def begin(self, *ranks: int) -> Nodes:
        """Start the runners of these, or of all."""
        for rank in ranks or range(len(self.runs)):
            run = self.runs[rank]
            self.runners[rank] = subprocess.Popen(
                runner_of(self._programs, run),
                stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "HOME": str(run)},
                start_new_session=True,
            )
        return self

    def ends(self, within: float = 40) -> list[tuple[str, str]]:
        """Wait for the end of those that were started; return their exit codes, and why."""
        until = time.monotonic() + within
        for runner in self.runners.values():
            runner.wait(max(0.1, until - time.monotonic()))
        return [
            (_said(self.runs[rank], "exit"), _said(self.runs[rank], "ended"))
            for rank in self.runners
        ]

    def close(self) -> None:
        """End what a failed test left."""
        for runner in self.runners.values():
            if runner.poll() is None:
                runner.terminate()
                runner.wait(30)


@pytest.fixture
def nodes_of(tmp_path: Path) -> Iterator[Callable[..., Nodes]]:
    """Make the nodes of a training: a command for each."""
    made: list[Nodes] = []

    def make(*commands: str, **settings: float) -> Nodes:
        made.append(Nodes(tmp_path, *commands, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def await_said(run: Path, name: str, text: str) -> None:
    """Wait until this file of the run has that text."""
    until = time.monotonic() + 20
    while _said(run, name) != text:
        assert time.monotonic() < until, (_said(run, name), _said(run, "nodes/output"))
        time.sleep(0.05)


def _said(run: Path, name: str) -> str:
    return (run / name).read_text().strip() if (run / name).exists() else ""


def test_nodes_start_once_all_have_arrived_and_end_with_the_exit_code_of_the_training(
    nodes_of: Callable[..., Nodes],
) -> None:
    nodes = nodes_of(*["echo rank $NODE_RANK; exit 0"] * 3).begin(0, 1)
    for run in nodes.runs[:2]:
        await_said(run, "nodes/waits", "2")
    assert [_said(run, "log") for run in nodes.runs] == ["", "", ""]
    nodes.begin(2)
    assert nodes.ends() == [("0", "exit 0")] * 3
    assert [_said(run, "log") for run in nodes.runs] == ["rank 0", "rank 1", "rank 2"]


@pytest.mark.parametrize("first", [0, 2])
def test_a_failing_node_ends_all_other_nodes_with_its_exit_code(
    nodes_of: Callable[..., Nodes], first: int
) -> None:
    commands = [FOREVER] * 3
    commands[first] = "sleep 0.5; exit 7"
    nodes = nodes_of(*commands).begin()
    expected = [("7", f"node {first} 7 exit")] * 3
    expected[first] = ("7", "exit 7")
    assert nodes.ends() == expected


def test_the_first_node_to_fail_is_named_as_the_cause(nodes_of: Callable[..., Nodes]) -> None:
    nodes = nodes_of("sleep 1.2; exit 1", "sleep 0.8; exit 9", "sleep 1.1; exit 1").begin()
    assert nodes.ends() == [("9", "node 1 9 exit"), ("9", "exit 9"), ("9", "node 1 9 exit")]


@pytest.mark.parametrize("at", [0, 1])
def test_stop_on_one_node_stops_the_run_on_others(nodes_of: Callable[..., Nodes], at: int) -> None:
    nodes = nodes_of(*[FOREVER] * 2).begin()
    for run in nodes.runs:
        await_said(run, "log", "begun")
    nodes.runners[at].terminate()
    assert nodes.ends() == [("4", "stop"), ("4", "stop")]


def test_a_node_taken_by_the_cloud_ends_the_others_whose_record_names_that_node(
    nodes_of: Callable[..., Nodes],
) -> None:
    nodes = nodes_of(*[FOREVER] * 2).begin()
    await_said(nodes.runs[0], "log", "begun")
    await_said(nodes.runs[1], "log", "begun")
    (nodes.runs[1] / "interrupted").write_text("ec2 1763714700 1763714820\n")
    nodes.runners[1].terminate()
    ends = nodes.ends()
    assert ends[0] == ("143", "node 1 143 interrupted")
    assert ends[1][1] == "interrupted ec2 1763714700 1763714820"


@pytest.mark.parametrize("gone", [0, 1])
def test_a_node_that_stops_answering_ends_the_other_nodes_within_ten_seconds(
    nodes_of: Callable[..., Nodes], gone: int
) -> None:
    nodes = nodes_of(*[FOREVER] * 2).begin()
    await_said(nodes.runs[1], "log", "begun")
    _freeze(nodes.runs[gone], signal.SIGSTOP)
    frozen = nodes.runners.pop(gone)
    try:
        assert nodes.ends(10) == [("143", f"node {gone} 143 lost")]
    finally:
        _freeze(nodes.runs[gone], signal.SIGCONT)
        frozen.wait(20)


def test_a_node_whose_watching_process_dies_ends_all_nodes(nodes_of: Callable[..., Nodes]) -> None:
    nodes = nodes_of(*[FOREVER] * 2).begin()
    await_said(nodes.runs[1], "log", "begun")
    _freeze(nodes.runs[1], signal.SIGKILL)
    assert nodes.ends(12) == [("143", "node 1 143 lost"), ("4", "stop")]


def test_if_a_node_never_joins_none_starts_and_the_record_names_it(
    nodes_of: Callable[..., Nodes],
) -> None:
    nodes = nodes_of(*["echo begun"] * 3, come_s=1.5).begin(0, 1)
    assert nodes.ends() == [("143", "node 2 143 missing")] * 2
    assert [_said(run, "log") for run in nodes.runs] == ["", "", ""]


def test_a_node_with_a_wrong_token_can_not_join_a_training(nodes_of: Callable[..., Nodes]) -> None:
    nodes = nodes_of(*["echo begun"] * 2, come_s=1.5)
    other = nodes.runs[1] / "nodes/watch.json"
    other.write_text(other.read_text().replace("a secret", "a guess"))
    assert nodes.begin().ends() == [("143", "node 1 143 missing"), ("143", "node 0 143 missing")]


def test_an_elastic_training_continues_on_the_remaining_nodes_when_one_fails(
    nodes_of: Callable[..., Nodes],
) -> None:
    nodes = nodes_of("sleep 4; exit 0", "sleep 0.5; exit 7", "sleep 4; exit 0", least=2)
    assert nodes.begin().ends() == [("0", "exit 0"), ("7", "exit 7"), ("0", "exit 0")]


def _freeze(run: Path, how: signal.Signals) -> None:
    """Send this to the watch of that run."""
    found = subprocess.run(
        ["pgrep", "-f", f"nodes.watch {run}"], stdout=subprocess.PIPE, check=True
    )
    for pid in found.stdout.split():
        os.kill(int(pid), how)


IPS = "10.0.0.1\n10.0.0.2"
SKYPILOT = {"SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": IPS}
DSTACK = {"DSTACK_NODE_RANK": "1", "DSTACK_NODES_NUM": "2", "DSTACK_NODES_IPS": IPS}


TOLD = 'echo "$PET_NNODES $PET_NODE_RANK $PET_MASTER_ADDR:$PET_MASTER_PORT ${PET_NPROC_PER_NODE-}"'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**SKYPILOT, "SKYPILOT_NUM_GPUS_PER_NODE": "8"}, "2 1 10.0.0.1:29500 8\n"),
        ({**SKYPILOT, "SKYPILOT_NUM_GPUS_PER_NODE": "0"}, "2 1 10.0.0.1:29500 \n"),
        (DSTACK, "2 1 10.0.0.1:29500 \n"),
        ({**DSTACK, "DSTACK_NODES_NUM": "3"}, ""),
        ({}, ""),
    ],
)
def test_setup_scripts_take_rank_and_addresses_of_nodes_from_skypilot_or_dstack_variables(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = of_engine("2")
    words = ["bash", "-c", f"{found}\n[ -z {found[:1]} ] || {TOLD}"]
    assert captured(words).stdout == said
