"""The real monitor warns the run, then stops the simulated box, or destroys it if all is safe."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap import __version__
from bootstrap.boxes import parse_lease
from bootstrap.onbox import verbs
from bootstrap.onbox.lease.instance import (
    AGENT,
    APIS,
    MARKERS,
    KeyRefusedError,
    NoAnswerError,
    OwnInstance,
    ShutdownInstance,
    find_instance,
)
from bootstrap.onbox.lease.keeper import LeaseKeeper
from bootstrap.onbox.lease.rules import AccountReading
from bootstrap.onbox.lease.safety import safe_note
from bootstrap.onbox.processes import identity
from bootstrap.onbox.run_folder import RunFolder
from bootstrap.providers import ec2, google_cloud
from bootstrap.value import document
from tests.box_programs import lay_programs_alone, onbox
from tests.providers.accounts import (
    KEY,
    POD_KEY,
    STARTED,
    SimulatedAccount,
    SimulatedBox,
    SimulatedClock,
    simulated,
)
from tests.waiting import slowness, wait_until

pytestmark = pytest.mark.slow

IDS = {"vast": "1000", "runpod": "pod-a"}
KEYS = {"vast": KEY, "runpod": POD_KEY}
SAVES = """trap 'echo saved >"$1"; exit 0' TERM; while :; do sleep 0.05; done"""


@pytest.fixture(params=sorted(APIS))
def account(request: pytest.FixtureRequest) -> Iterator[SimulatedAccount]:
    with simulated(request.param) as made:
        made.boxes = [SimulatedBox(IDS[request.param]), SimulatedBox("2000")]
        made.pod = IDS[request.param]
        yield made


def environment(account: SimulatedAccount) -> dict[str, str]:
    api = APIS[account.provider]
    kept = {name: value for name, value in os.environ.items() if "_API" not in name}
    own = {api.id: IDS[account.provider], api.key: KEYS[account.provider]}
    return {**kept, **own, f"BOXSTRAP_{account.provider.upper()}_API": account.url}


def own(account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch, key: str = "") -> OwnInstance:
    monkeypatch.setenv(f"BOXSTRAP_{account.provider.upper()}_API", account.url)
    name = account.provider
    return OwnInstance(name, IDS[name], key or KEYS[name])


class HeldLease:
    """A lease of these terms, and what keeps it, by a clock that only the test advances."""

    def __init__(self, home: Path, terms: dict[str, Any], find: Callable[[], Any]) -> None:
        (home / "lease.json").write_text(json.dumps(terms))
        self.home, self.now = home, 100.0
        self.keeper = LeaseKeeper(home, clock=lambda: self.now, since=lambda: 0.0, find=find)

    def turn(self, later: float = 0.0, runs: Sequence[Path] = ()) -> dict[str, Any]:
        """Let it take a turn so much later; return what it has noted then."""
        self.now += later
        assert self.keeper.turn([*runs], [])
        said: dict[str, Any] = json.loads((self.home / "lease.state").read_text())
        return said


class BoxWithLease:
    """A box's folder here, with a live run, and once `begin` is called its real monitor."""

    def __init__(self, home: Path, terms: dict[str, object], variables: dict[str, str]) -> None:
        self.home, self.variables = home, variables
        lay_programs_alone(home / "box/current")
        self.run = home / "runs/homework/train-1"
        self.run.mkdir(parents=True)
        self.trained = subprocess.Popen(
            ["bash", "-c", SAVES, "bash", str(self.run / "said")], start_new_session=True
        )
        (self.run / "pid").write_text(f"{identity(self.trained.pid)}\n" * 2)
        (self.run / "grace").write_text("5\n")
        (self.run / "command").write_text("x\n")
        (self.run / "log_max").write_text("1\n")
        (self.run / "dir").write_text(f"{home.parent / 'homework'}\n")
        (self.run / "results").write_text("out/\n")
        self.result = home.parent / "homework/out/model.pt"
        self.result.parent.mkdir(parents=True)
        self.result.write_text("weights")
        (home / "lease.json").write_text(json.dumps(terms))

    def begin(self) -> None:
        monitor = [
            sys.executable,
            "-B",
            str(onbox(self.home / "box/current")),
            "runs.monitor",
            str(self.home),
        ]
        words = [*monitor, "--every", "0.2", "--waits"]
        self.monitor = subprocess.Popen(words, env=self.variables)

    def note_pulled(self) -> None:
        """Write the same note as a verified pull."""
        content = self.result.read_bytes()
        present = {"out/model.pt": (len(content), hashlib.sha256(content).hexdigest())}
        (self.run / "safe").write_text(f"{safe_note(present)}\n")

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


def test_at_the_end_of_a_lease_a_run_is_asked_to_end_and_saves_before_its_box_stops(
    account: SimulatedAccount, tmp_path: Path
) -> None:
    # There is no volume here: if a stop would wipe the rest, only `destroy` lets the box end.
    then = "destroy" if APIS[account.provider].volume else "stop"
    box = BoxWithLease(tmp_path / "b", {"seconds": 4.0, "then": then}, environment(account))
    try:
        began = time.monotonic()
        box.begin()
        wait_until(lambda: box.state.get("held") in {"yes", "no-boot"})
        # Killed and started again, the monitor continues to count.
        box.monitor.kill()
        box.monitor.wait()
        counted = box.state["counted"]["elapsed"]
        box.begin()
        wait_until(lambda: box.state["counted"]["elapsed"] > counted)
        wait_until(lambda: account.boxes[0].state == "stopped")
        assert 3.9 <= time.monotonic() - began <= 10 * slowness()
        assert (box.run / "said").read_text() == "saved\n"
        assert (box.run / "ended").read_text() == "stop\n"
        assert box.state["over"] == "hours"
        assert account.boxes[1].state == "running"
    finally:
        box.end()


@pytest.mark.parametrize("grows", [False, True], ids=["pulled", "pulled, and grown since"])
def test_a_lease_destroys_its_box_only_if_all_results_are_at_home(
    account: SimulatedAccount, tmp_path: Path, grows: bool
) -> None:
    box = BoxWithLease(tmp_path / "b", {"seconds": 2.0, "then": "destroy"}, environment(account))
    try:
        box.trained.kill()
        (box.run / "exit").write_text("0\n")
        box.note_pulled()
        if grows:
            box.result.write_text("more weights")
        box.begin()  # now: on a busy machine two seconds pass quickly
        wait_until(lambda: bool(account.destroyed) or not is_running(account))
        assert account.destroyed == ([] if grows else [IDS[account.provider]])
        assert (len(account.boxes), account.boxes[-1].state) == (1 + grows, "running")
        said = ["train-1: its results are not what was pulled"] if grows else []
        # It is written a moment later.
        wait_until(lambda: box.state.get("unsafe") == said, lambda: box.state)
        assert box.state["over"] == "hours"
    finally:
        box.end()


def is_running(account: SimulatedAccount) -> bool:
    return account.boxes[0].state == "running"


def test_a_lease_stops_its_box_when_the_api_key_may_not_destroy_it(
    account: SimulatedAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = own(account, monkeypatch)
    keeper = LeaseKeeper(tmp_path, find=lambda: instance)
    account.fault_on = {"DELETE" if account.provider == "vast" else "POST /graphql": "500"}
    keeper._end(destroys=True)
    assert "500" in keeper.error
    assert is_running(account)  # it is asked for again
    monkeypatch.setattr(OwnInstance, "destroy", refuse)
    keeper._end(destroys=True)
    assert account.boxes[0].state == "stopped"
    assert account.destroyed == []


def refuse(_: OwnInstance) -> None:
    raise KeyRefusedError("its account answers with 403")


@pytest.mark.parametrize(
    ("mounts", "then", "held"),
    [
        ((), "stop", "wipes"),
        (("/workspace",), "stop", "wipes"),
        (("/workspace",), "destroy", "no-boot"),
        (("own",), "stop", "no-boot"),
    ],
)
def test_a_lease_does_not_stop_a_pod_whose_results_a_stop_would_wipe(
    mounts: tuple[str, ...],
    then: str,
    held: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    account: SimulatedAccount,
) -> None:
    """By default the run is kept and continues to cost money; each contact says so."""
    home = tmp_path / ".boxstrap"
    (home / "runs").mkdir(parents=True)
    volumes = {str(tmp_path) if one == "own" else one for one in mounts}
    monkeypatch.setattr(os.path, "ismount", volumes.__contains__)
    ended, instance = list[object](), own(account, monkeypatch)
    lease = HeldLease(home, {"seconds": 1, "then": then}, lambda: instance)
    monkeypatch.setattr(lease.keeper, "_end", lambda **_: ended.append(1))
    said = [lease.turn(1.0)["held"] for _ in range(60)][-1]
    lease.keeper._safety.end()
    outlives = account.provider == "vast"
    assert said == ("no-boot" if outlives else held)
    assert bool(ended) == (outlives or held != "wipes")


@pytest.mark.parametrize("what", ["released", "extended", "ends"])
def test_a_lease_released_or_extended_during_its_last_request_does_not_end_the_box(
    what: str, tmp_path: Path, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OwnInstance, "keeps", lambda *_: True)
    instance = own(account, monkeypatch)
    lease = HeldLease(tmp_path, {"seconds": 10}, lambda: instance)
    lease.turn()
    answer, keeper = instance.ask(), lease.keeper

    def slow() -> AccountReading:
        if what == "released":
            (tmp_path / "lease.json").unlink()
        return answer

    def late() -> float:
        if what == "extended":
            (tmp_path / "lease.extended").write_text("60\n")
        return 0.0

    monkeypatch.setattr(instance, "ask", slow)
    lease.now += 3700.0
    told = keeper._is_safe
    monkeypatch.setattr(keeper, "_is_safe", lambda: (late(), told())[1])
    keeper.turn([], [])
    assert is_running(account) == (what != "ends")


def test_a_lease_does_not_ask_the_account_again_while_its_safety_check_runs(
    tmp_path: Path, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, instance = list[float](), own(account, monkeypatch)
    answer = instance.ask()
    lease = HeldLease(tmp_path, {"seconds": 10, "then": "destroy"}, lambda: instance)
    monkeypatch.setattr(instance, "ask", lambda: (asked.append(lease.now), answer)[1])
    monkeypatch.setattr(lease.keeper._safety, "begin", lambda: None)
    lease.turn()
    lease.turn(3700.0)
    assert (lease.keeper.looks, len(asked)) == (True, 2)
    lease.keeper._ask_at = 1.0
    lease.turn(1.0)
    assert (lease.keeper.looks, len(asked)) == (True, 2)


def test_a_lease_does_not_stop_a_pod_whose_results_link_outside_the_volume(
    tmp_path: Path, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, beside = tmp_path / "volume", tmp_path / "root"
    home, run = volume / ".boxstrap", volume / ".boxstrap/runs/homework/train-1"
    out = volume / "homework/out"
    for each in (run, beside, out / "deep"):
        each.mkdir(parents=True)
    (run / "dir").write_text(f"{volume}/homework\n")
    (run / "results").write_text("out/\n")
    (out / "deep/here").symlink_to(out)
    monkeypatch.setattr(os.path, "ismount", {str(volume)}.__contains__)
    instance = own(account, monkeypatch)
    lease = HeldLease(home, {"seconds": 100}, lambda: instance)
    lease.turn()
    assert lease.turn(90.0)["held"] == "no-boot"
    (out / "deep/best").symlink_to(beside)
    wipes = account.provider == "runpod"
    assert lease.turn(90.0)["held"] == ("wipes" if wipes else "no-boot")
    assert is_running(account) == wipes


def test_a_lease_reads_price_and_last_start_of_its_box_from_the_account(
    account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.clock = SimulatedClock(time.time)
    began = int(time.time())
    said = own(account, monkeypatch).ask()
    assert (said.started, said.price) == (pytest.approx(STARTED, abs=1), 0.5)
    assert began <= said.now <= time.time()  # by the answer's own date, in whole seconds
    # Vast.ai's `start_date` is when it was made, and no start since changes it.
    box = account.boxes[0]
    box.made, box.since = account.clock.now - 7200, account.clock.now - 60
    assert own(account, monkeypatch).ask().started == pytest.approx(box.since, abs=2)


def test_a_lease_reports_a_refused_api_key_and_a_500_of_the_account_as_different_errors(
    account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"vast": "404", "runpod": "401"}[account.provider]
    with pytest.raises(KeyRefusedError, match=refused):
        own(account, monkeypatch, "another").ask()
    account.faults = [(500, {})]
    with pytest.raises(NoAnswerError, match="500"):
        own(account, monkeypatch).stop()
    assert account.boxes[0].state == "running"
    account.boxes = []
    with pytest.raises((KeyRefusedError, NoAnswerError)):
        own(account, monkeypatch).ask()


def test_a_lease_on_a_box_without_an_api_key_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "runs/homework/train-1"
    run.mkdir(parents=True)
    ended = list[object]()
    monkeypatch.setattr("bootstrap.onbox.lease.keeper._end_runs", lambda *_: ended.append(_))
    lease = HeldLease(tmp_path, {"seconds": 1}, lambda: None)
    said = [lease.turn(1.0, [run]) for _ in range(30)][-1]
    assert ended == []  # the box costs money anyway, so its run continues
    assert (said["held"], said["over"]) == ("no-key", "hours")
    (tmp_path / "lease.extended").write_text("50\n50\n")
    assert lease.turn()["limits"]["hours"][1] == 101.0
    # Released and set again, even between two looks, the lease starts from zero.
    for name in ("lease.state", "lease.extended"):
        (tmp_path / name).unlink()
    assert lease.turn()["limits"]["hours"] == [0.0, 1.0]
    (tmp_path / "lease.json").unlink()
    assert not lease.keeper.turn([], [])


def test_a_lease_is_shown_as_extended_and_not_as_a_look_begun_before_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [json.dumps({"counted": {"extended": seconds}}) for seconds in (0.0, 60.0)]
    left, state = [*states], tmp_path / "lease.state"
    wait = SimpleNamespace(sleep=lambda _: state.write_text(left.pop(0)))
    monkeypatch.setattr(verbs, "time", wait)
    (tmp_path / "lease.json").write_text("{}")
    (tmp_path / "lease.pid").write_text(identity(os.getpid()))
    asked = {"home": str(tmp_path), "what": "extend", "id": "a", "seconds": "60"}
    assert [*verbs.lease(RunFolder(""), asked)] == [f"lease\tkept\t{states[1]}"]


def test_an_extended_lease_counts_no_idle_time_during_the_extension(tmp_path: Path) -> None:
    terms = {"seconds": 9000, "dollars": 5.0, "price": 1.0, "idle": 100, "then": "stop"}
    held, said = HeldLease(tmp_path, terms, lambda: None), []
    for later, file in ((0, ""), (60, "3600\n"), (300, "3600\n")):
        (tmp_path / "lease.extended").write_text(file)
        lease = parse_lease(f"kept\t{json.dumps(held.turn(later))}")
        assert lease
        said.append((lease.left(), lease.over))
    assert said[0][0].endswith("of $5.00, idle for 0 s of 1 min 40 s")
    assert "of $6.00, idle paused for 1 h 00 min by the extension" in said[1][0]
    assert "idle paused for 55 min 00 s by the extension" in said[2][0]
    assert [over for _, over in said] == ["", "", ""]


def test_a_lease_ends_a_runpod_pod_by_graphql_if_the_rest_api_refuses_the_pods_key(
    tmp_path: Path, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RunPod's REST answers a pod's own key with 403; GraphQL lets it end this pod alone."""
    instance = own(account, monkeypatch)
    said = HeldLease(tmp_path, {"seconds": 1000, "then": "destroy"}, lambda: instance).turn()
    is_pod = account.provider == "runpod"
    assert (said["held"], said["price"]) == ("no-boot", 0.5)
    assert said["way"] == ("graphql" if is_pod else "")
    shown = parse_lease(f"kept\t{json.dumps(said)}")
    assert shown
    assert ("GraphQL, until early 2027" in shown.lines()[0]) == is_pod
    assert document(shown)["by"] == ("graphql" if is_pod else None)
    if is_pod:
        # Of another pod it may neither know nor end anything.
        with pytest.raises(KeyRefusedError, match="Unauthorized"):
            OwnInstance("runpod", "2000", POD_KEY).stop()
    instance.stop()
    instance.destroy()
    assert account.destroyed == [IDS[account.provider]]
    assert [(box.id, box.state) for box in account.boxes] == [("2000", "running")]


def test_a_lease_asks_the_account_again_after_a_403_that_a_proxy_answered(
    tmp_path: Path, account: SimulatedAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 403 that isn't the API's own answer says nothing of the key: it is asked again."""
    instance = own(account, monkeypatch)
    lease = HeldLease(tmp_path, {"seconds": 1000}, lambda: instance)
    account.is_edgy = True
    assert lease.turn()["held"] == "no-answer"
    account.is_edgy = False
    assert lease.turn(61.0)["held"] in {"no-boot", "wipes"}
    assert {"User-Agent": f"boxstrap/{__version__}"} == AGENT  # the box has no package to ask


@pytest.fixture
def shutdowns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that notes each call of `shutdown` and `sudo`; `refuses` beside it makes them fail."""
    noted = tmp_path / "shutdowns"
    for name in ("shutdown", "sudo"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{noted}\n! test -e {tmp_path}/refuses\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return noted


@pytest.mark.parametrize(
    ("does", "then", "held", "ends"),
    [
        ("stop", "stop", "no-boot", "is asked to be stopped"),
        ("stop", "destroy", "no-boot", "stopped: it can't destroy itself"),
        ("terminate", "destroy", "no-boot", "is asked to be destroyed"),
        ("terminate", "stop", "wipes", "its shutdown would destroy it"),
    ],
)
def test_a_lease_set_to_stop_never_shuts_down_a_box_that_a_shutdown_would_destroy(
    shutdowns: Path, tmp_path: Path, does: str, then: str, held: str, ends: str
) -> None:
    """One that a shutdown would destroy is not ended by a lease that only stops."""
    marker = tmp_path / "marker"
    marker.write_text(f"ec2 {does} 1.500000\n")
    home = tmp_path / ".boxstrap"
    (home / "runs").mkdir(parents=True)
    terms = {"seconds": 20, "dollars": 9, "then": then}
    box = HeldLease(home, terms, lambda: find_instance((), (str(marker),)))
    for second in range(60):
        state = box.turn(float(second > 0))
        time.sleep(0.002)
    box.keeper._safety.end()
    assert (state["held"], state["way"]) == (held, does)
    assert state["limits"]["dollars"][0] == pytest.approx(59 / 3600 * 1.5, abs=0.002)
    calls = shutdowns.read_text().splitlines() if shutdowns.exists() else []
    wanted = "shutdown -h now" if os.geteuid() == 0 else "sudo -n shutdown -h now"
    assert (wanted in calls) == (held != "wipes")
    lease = parse_lease(f"kept\t{json.dumps(state)}")
    assert lease
    assert ends in lease.lines()[0]
    assert document(lease)["by"] == "shutdown"


def test_a_lease_raises_sudo_refuses_if_the_user_may_not_shut_the_box_down(
    shutdowns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    instance = ShutdownInstance("ec2", "stop", 1.5)
    said = instance.ask()
    assert (said.price, shutdowns.read_text()) == (1.5, "sudo -n true\n")
    assert said.started is not None
    assert 0 < said.now - said.started == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), 1)
    (tmp_path / "refuses").touch()
    for ask in (instance.ask, instance.stop):
        with pytest.raises(KeyRefusedError, match="sudo refuses"):
            ask()
    (tmp_path / "bin/sudo").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(NoAnswerError, match="can't be run"):
        instance.stop()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NoAnswerError, match="shutdown fails"):
        ShutdownInstance("ec2", "stop", 1.5).destroy()


@pytest.mark.parametrize(
    "text", ["", "ec2", "ec2 halt 1.5", "ec2 stop 1.2.3", "azure stop 1", "ec2 stop -1", "\udcff"]
)
def test_a_lease_runs_no_shutdown_with_a_malformed_provider_file(tmp_path: Path, text: str) -> None:
    marker = tmp_path / "marker"
    marker.write_text(text, errors="surrogateescape")
    assert find_instance((), (str(marker),)) is None
    assert find_instance((), (str(tmp_path / "none"),)) is None
    marker.write_text("ec2 terminate 0.150000\n")
    found = find_instance((), (str(marker),))
    assert isinstance(found, ShutdownInstance)
    assert found.way == "terminate"
    assert (ec2.MARKER, google_cloud.MARKER) == MARKERS


def test_the_lease_on_a_pod_of_a_runpod_cluster_never_ends_that_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't be ended without the others, and nobody has looked at those."""
    variables = tmp_path / "environ"
    alone = "RUNPOD_POD_ID=pod-a\0RUNPOD_API_KEY=k\0"
    variables.write_text(f"{alone}HOST_NODE_ADDR=10.65.0.2:29400\0")
    assert find_instance((str(variables),), ()) is None
    variables.write_text(alone)
    assert isinstance(find_instance((str(variables),), ()), OwnInstance)
    (tmp_path / "rp_environment").write_text('export HOST_NODE_ADDR="10.65.0.2:29400"\n')
    assert find_instance((str(variables), str(tmp_path / "rp_environment")), ()) is None
    # By its account's word, where its environment doesn't say.
    with simulated("runpod") as pods:
        pods.boxes = [SimulatedBox("pod-a")]
        pod = own(pods, monkeypatch, KEY)
        pod.ask()
        pods.boxes[0].cluster = "c1"
        with pytest.raises(KeyRefusedError, match="with its whole cluster"):
            pod.ask()
