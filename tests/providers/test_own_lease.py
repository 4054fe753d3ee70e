"""The real monitor ends a box of a simulated account: its run is warned, then it is stopped."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.box.lease_api import APIS, KeyRefusedError, NoWordError, OwnInstance
from bootstrap.box.lease_keeper import LeaseKeeper
from bootstrap.render.parts import box_files
from tests.providers.accounts import KEY, STARTED, SimulatedAccount, SimulatedBox, simulated

IDS = {"vast": "1000", "runpod": "pod-a"}
SAVES = """trap 'echo saved >"$1"; exit 0' TERM; while :; do sleep 0.05; done"""


@pytest.fixture(params=sorted(APIS))
def account(request: pytest.FixtureRequest) -> Iterator[SimulatedAccount]:
    with simulated(request.param) as made:
        made.boxes = [SimulatedBox(IDS[request.param]), SimulatedBox("2000")]
        yield made


def environment(account: SimulatedAccount) -> dict[str, str]:
    api = APIS[account.provider]
    kept = {name: value for name, value in os.environ.items() if "_API" not in name}
    own = {api.id: IDS[account.provider], api.key: KEY}
    return {**kept, **own, f"BOXSTRAP_{account.provider.upper()}_API": account.url}


def own(account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch, key: str = KEY) -> OwnInstance:
    monkeypatch.setenv(f"BOXSTRAP_{account.provider.upper()}_API", account.url)
    return OwnInstance(account.provider, IDS[account.provider], key)


class BoxWithLease:
    """A box's folder on this machine, with a live run, and its real monitor."""

    def __init__(self, home: Path, terms: dict[str, object], variables: dict[str, str]) -> None:
        self.home, self.variables = home, variables
        (home / "box").mkdir(parents=True)
        for name, text in box_files():
            (home / "box" / name).write_text(text + "\n")
        self.run = home / "runs/homework/train-1"
        self.run.mkdir(parents=True)
        self.trained = subprocess.Popen(
            ["bash", "-c", SAVES, "bash", str(self.run / "said")], start_new_session=True
        )
        ask = ["sh", str(home / "box/processes.sh"), "identity", str(self.trained.pid)]
        identity = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        (self.run / "pid").write_text(identity * 2)
        (self.run / "grace").write_text("5\n")
        (self.run / "command").write_text("x\n")
        (home / "lease.json").write_text(json.dumps(terms))
        self.monitor = self.begin()

    def begin(self) -> subprocess.Popen[bytes]:
        monitor = [sys.executable, "-B", str(self.home / "box/monitor.py"), str(self.home)]
        return subprocess.Popen([*monitor, "--every", "0.2", "--waits"], env=self.variables)

    @property
    def state(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.home / "lease.state").read_text())
            return found
        return {}

    def end(self) -> None:
        for each in (self.monitor, self.trained):
            each.kill()
            each.wait()


def await_(what: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_its_run_is_warned_and_it_is_stopped(account: SimulatedAccount, tmp_path: Path) -> None:
    box = BoxWithLease(tmp_path / "b", {"seconds": 4.0}, environment(account))
    try:
        began = time.monotonic()
        await_(lambda: box.state.get("held") in {"yes", "no-boot"})
        # Killed, it is begun again, and goes on counting; the API is away for a moment.
        box.monitor.kill()
        box.monitor.wait()
        counted = box.state["counted"]["elapsed"]
        box.monitor = box.begin()
        await_(lambda: box.state["counted"]["elapsed"] > counted)
        await_(lambda: account.boxes[0].state == "stopped")
        assert 3.9 <= time.monotonic() - began <= 4.0 + 6.0
        assert (box.run / "said").read_text() == "saved\n"
        assert (box.run / "ended").read_text() == "stop\n"
        assert box.state["over"] == "hours"
        assert account.boxes[1].state == "running"
    finally:
        box.end()


def test_one_read_shows_what_it_costs_and_since_when(
    account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = own(account, monkeypatch).ask()
    assert (said.started, said.price) == (pytest.approx(STARTED, abs=1), 0.5)
    assert said.now == pytest.approx(time.time(), abs=10)  # by the answer's own date


def test_what_it_cant_ask_is_said(
    account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyRefusedError, match="401"):
        own(account, monkeypatch, "another").ask()
    account.faults = [(500, {})]
    with pytest.raises(NoWordError, match="500"):
        own(account, monkeypatch).stop()
    assert account.boxes[0].state == "running"
    account.boxes = []
    with pytest.raises((KeyRefusedError, NoWordError)):
        own(account, monkeypatch).ask()


def test_a_box_without_a_key_says_so_and_its_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lease.json").write_text('{"seconds": 1}')
    run = tmp_path / "runs/homework/train-1"
    run.mkdir(parents=True)
    now = [100.0]
    ended = list[object]()
    monkeypatch.setattr("bootstrap.box.lease_keeper._end_runs", ended.append)
    keeper = LeaseKeeper(tmp_path, clock=lambda: now[0], since=lambda: 0.0, find=lambda: None)
    for _ in range(30):
        assert keeper.turn([run], [])
        now[0] += 1.0
    assert ended == []  # a box that costs on had better train
    said = json.loads((tmp_path / "lease.state").read_text())
    assert (said["held"], said["over"]) == ("no-key", "hours")
    (tmp_path / "lease.extended").write_text("50\n50\n")
    assert keeper.turn([], [])
    assert json.loads((tmp_path / "lease.state").read_text())["limits"]["hours"][1] == 101.0
    (tmp_path / "lease.json").unlink()
    assert not keeper.turn([], [])
