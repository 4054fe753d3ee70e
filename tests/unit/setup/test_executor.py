"""The state machine that drives a setup over the local link: a real script, a folder as the box.

The script is that of the profile `local` with four of its steps. It waits for a file at the step
`shell`, so that a test decides how far a setup gets.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from bootstrap.boxes import BoxState
from bootstrap.errors import BoxstrapError, BusyError, StepFailedError
from bootstrap.link import (
    CancelledError,
    CancelToken,
    LaunchOptions,
    LinkLost,
    LocalStream,
    LocalWire,
    build_query,
    reconnecting,
)
from bootstrap.link import query as launching
from bootstrap.link.exchange import run_script
from bootstrap.onbox.python.uv_release import VERSION
from bootstrap.repo.objects import ObjectStream
from bootstrap.setup import Reporter, SetupRequest, executor, payload, send
from bootstrap.setup.context import SetupContext, get_context
from bootstrap.setup.executor import SetupExecutor, SetupSenders
from bootstrap.setup.program import Program, program
from bootstrap.setup.script import script_id
from bootstrap.steps.event_codes import CODES
from bootstrap.steps.events import Event
from bootstrap.steps.plan import Step, steps_for
from tests.cli import User
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each starts programs

STEPS = ("preflight", "shell", "tools", "repo")


class Told(Reporter):
    """A reporter that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.begun = threading.Event()
        """Set when the waiting step was reached."""

    def event(self, event: Event) -> None:
        self.events.append(event)
        if (event.step, event.event) == ("shell", "start"):
            self.begun.set()

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.said.append(text)

    def lost(self, seconds: float) -> None:
        self.said.append("lost")

    def of_the_box(self) -> list[Event]:
        """Return events without this machine's own, such as those of sent objects."""
        return [event for event in self.events if event.seq]

    def of(self, step: str) -> list[str]:
        return [event.event for event in self.events if event.step == step]


@dataclass
class Setup:
    """A requested setup; `begin` drives it in its own thread."""

    context: SetupContext
    told: Told
    id: str = ""
    error: BoxstrapError | None = None
    _thread: threading.Thread = field(default_factory=threading.Thread)

    def begin(self, state: BoxState | None = None) -> Setup:
        state = state or self.context.box_state()
        self.executor = SetupExecutor(self.context)

        def run() -> None:
            try:
                self.id = self.executor.run(state)
            except BoxstrapError as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        return self

    def reach_the_wait(self) -> Setup:
        assert self.told.begun.wait(PATIENCE_S), (self.told.said, self.error)
        return self

    def end(self) -> Setup:
        if self._thread.ident:
            self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self

    def well(self) -> str:
        """Wait for the end, check that there was no error, and return the setup's id."""
        self.end()
        assert self.error is None, self.error.text()
        return self.id


class ScriptedBox:
    """A folder of this machine as the box, and a user with a repository."""

    def __init__(self, user: User) -> None:
        self.folder = user.home / "box"
        self.gate = user.home / "go"
        self.repository = user.repository()
        self._begun: list[Setup] = []

    def ask(self, *, cancel: CancelToken | None = None, script: str = "", **asked: object) -> Setup:
        """Request a setup; another `script` makes it a different one."""
        told = Told()
        sets = ("gpu.require=false", f"box.workdir={self.folder}")
        request = SetupRequest("local", "local", sets, self.repository.root, **asked)  # type: ignore[arg-type]
        made = get_context(request, told, cancel)
        text = f"{made.payload.script}# {script}\n"
        vars(made.payload).update(script=text, script_id=script_id(text))
        self._begun.append(Setup(made, told))
        return self._begun[-1]

    def open(self, does: str = "") -> None:
        """Let the step go on, which does that first."""
        new = self.gate.with_name("new")
        new.write_text(does)
        new.rename(self.gate)

    def setups(self) -> list[str]:
        return sorted(path.name for path in (self.folder / ".boxstrap/setups").iterdir())

    def has_the_commit(self) -> bool:
        return any(self.folder.glob(".boxstrap/**/refs/boxstrap/*"))

    def how_it_ended(self, setup: str) -> int:
        """Wait for a setup's end, and return its exit code as recorded on the box."""
        file = self.folder / f".boxstrap/setups/{setup}/status.json"
        wait_until(lambda: file.is_file() and json.loads(file.read_text())["state"] == "over")
        return int(json.loads(file.read_text())["exit"])

    def close(self) -> None:
        self.open()
        for setup in self._begun:
            setup.end()
            setup.context.box.close()


@pytest.fixture
def box(user: User, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBox]:
    def four(profile: object, **asked: bool) -> tuple[Step, ...]:
        return tuple(step for step in steps_for(profile, **asked) if step.name in STEPS)

    monkeypatch.setattr(payload, "steps_for", four)
    made = ScriptedBox(user)
    gate = repr(str(made.gate))
    waits = f"import time\n        while not os.path.exists({gate}): time.sleep(0.05)\n        "
    waits += f"with open({gate}) as file: exec(file.read())"
    applied = "    def apply(self) -> None:\n        "
    before, shell, after = program().text.partition("class ShellStep(BoxStep):\n")
    own = before + shell + after.replace(applied, f"{applied}{waits}\n        ", 1)
    monkeypatch.setattr(payload, "program", lambda: Program(own))
    yield made
    made.close()


def test_a_second_setup_with_the_same_profile_has_nothing_to_do(box: ScriptedBox) -> None:
    box.open()
    first = box.ask().begin()
    setup = first.well()
    assert box.setups() == [setup]
    assert [first.told.of(step)[-1] for step in STEPS] == ["ok"] * 4
    assert (box.folder / "homework/train.py").is_file()
    again = box.ask().begin()
    assert again.well() == ""
    assert again.told.events == []
    assert box.setups() == [setup]
    # A request for a new run is not answered with "all done".
    assert box.ask(restart=True).begin().well() in set(box.setups()) - {setup}


def test_a_setup_with_one_changed_value_sends_at_most_20_kb(
    box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is sent for it: commands and their input, from the probe to the end."""
    sent: list[int] = []
    start, write = LocalWire.start, LocalStream.write
    monkeypatch.setattr(LocalWire, "start", lambda *a: sent.append(len(a[1])) or start(*a))
    monkeypatch.setattr(LocalStream, "write", lambda *a: sent.append(len(a[1])) or write(*a))
    box.open()
    box.ask().begin().well()
    first = sum(sent)
    sent.clear()
    box.ask(script="changed").begin().well()
    print(f"bytes sent: {first:,} for the first setup, {sum(sent):,} for one changed value")
    assert sum(sent) <= 20_000 < first


def test_setup_whose_process_on_the_box_vanishes_prints_its_shells_last_words(
    box: ScriptedBox,
) -> None:
    box.open(
        "with open(f'{self.setup.folder}/output', 'w') as said:\n"
        "    said.write('No space left on device\\n')\n"
        "os.kill(os.getppid(), 9)\n"
    )
    error = box.ask().begin().end().error
    assert error is not None
    assert "process on the box is gone. Its shell said:\nNo space left on device" in error.text()


def test_an_equal_second_setup_shows_the_running_ones_events_and_starts_nothing(
    box: ScriptedBox,
) -> None:
    first = box.ask().begin().reach_the_wait()
    second = box.ask().begin().reach_the_wait()
    at_work = f"this setup is already running ({first.executor.setup}): following it"
    assert at_work in second.told.said
    box.open()
    assert first.well() == second.well()
    assert box.setups() == [first.id]
    assert second.told.of_the_box() == first.told.of_the_box() != []


def test_two_equal_setups_at_once_do_each_step_once_and_both_succeed(box: ScriptedBox) -> None:
    """Both saw that no setup is running; the box lets only one start."""
    second = box.ask()
    nothing_at_work = second.context.box_state()
    first = box.ask().begin().reach_the_wait()
    second.begin(nothing_at_work).reach_the_wait()
    box.open()
    assert first.well() == second.well() == first.executor.setup
    ends = {setup: box.how_it_ended(setup) for setup in box.setups()}
    assert len(ends) == 2
    assert first.told.of("repo").count("ok") == 1


def test_a_different_setup_waits_for_the_running_one_and_prints_its_id(box: ScriptedBox) -> None:
    first = box.ask().begin().reach_the_wait()
    second = box.ask(script="another", wait_s=1).begin().end()
    assert isinstance(second.error, BusyError)
    assert first.executor.setup in second.error.what
    waits = f"waits for setup {first.executor.setup}"
    assert any(said.startswith(waits) for said in second.told.said)
    assert second.told.of("shell") == []
    patient = box.ask(script="another", wait_s=60).begin()
    box.open()
    assert first.well() != patient.well()
    assert box.how_it_ended(patient.id) == 0


def test_a_setup_goes_on_over_broken_links_and_shows_every_event_once(box: ScriptedBox) -> None:
    setup = box.ask().begin().reach_the_wait()
    for _ in range(2):
        setup.context.box.wire.close()
        time.sleep(0.2)
    box.open()
    assert [setup.well()] == box.setups()
    assert "lost" in setup.told.said
    seen = [event.seq for event in setup.told.of_the_box()]
    assert seen == list(range(seen[0], seen[0] + len(seen)))
    assert (box.folder / "homework/train.py").is_file()


def test_a_commit_whose_sending_broke_off_is_sent_again_to_the_box(
    box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = box.ask()
    begun: list[BreakingOff] = []

    class BreakingOff(ObjectStream):
        """The first stream ends in the middle, and its link breaks."""

        def __iter__(self) -> Iterator[bytes]:
            begun.append(self)
            for piece in super().__iter__():
                if len(begun) == 1:
                    yield piece[: len(piece) // 2]
                    setup.context.box.wire.close()
                    return
                yield piece

    monkeypatch.setattr(send, "ObjectStream", BreakingOff)
    box.open()
    setup.begin().well()
    assert "lost" in setup.told.said
    assert len(begun) == 2
    assert (box.folder / "homework/train.py").is_file()


BY_UV = """
from ..python import bring_uv
from ..step_report import log
step_log = f"{self.setup.folder}/logs/shell.log"
wheel = bring_uv.UvWheel(self.home, self.setup.folder, step_log)
bring_uv.call = lambda *_, log=log: log("the index has no uv-") or 1
bring_uv.find_uv = lambda home: (home, "")
"""
"""The box's index does not have uv."""


def uv_wheel(size: int) -> bytes:
    """Make a wheel with the programs `uv` and `uvx`, like the real one."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("uv", "uvx"):
            text = f"#!/bin/sh\n# {name}\n".encode() + os.urandom(size)
            archive.writestr(f"uv-{VERSION}.data/scripts/{name}", text)
    return file.getvalue()


def test_the_uv_wheel_is_sent_again_after_its_sending_broke_off(
    box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step waits until this machine sends it."""
    wheel = uv_wheel(150_000)
    setup = box.ask()
    pieces: list[int] = []

    def break_off(done: int, total: int) -> None:
        pieces.append(done)
        if len(pieces) == 2:
            setup.context.box.wire.close()

    monkeypatch.setattr(send, "fetch_wheel", lambda machine: wheel)
    monkeypatch.setattr(SetupSenders, "_tell_bytes", lambda _, step, *sent: break_off(*sent))
    box.open(f"{BY_UV}wheel._sha256 = '{hashlib.sha256(wheel).hexdigest()}'\nwheel.bring('')\n")
    setup.begin().well()
    assert "lost" in setup.told.said
    assert pieces.count(len(wheel)) == 1
    assert "wait" in setup.told.of("shell")
    assert [said for said in setup.told.said if VERSION in said and "was sent" in said]
    assert (box.folder / ".boxstrap/bin/uv").read_bytes().startswith(b"#!/bin/sh\n# uv\n")
    assert not (box.folder / ".boxstrap/setups" / setup.id / "uv.whl").exists()


def test_setup_fails_and_installs_no_uv_if_the_sent_wheel_has_a_wrong_checksum(
    box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "fetch_wheel", lambda machine: b"another")
    box.open(f"{BY_UV}wheel.bring('')\n")
    failed = box.ask().begin().end()
    assert isinstance(failed.error, StepFailedError)
    assert CODES["uv-checksum"].what in failed.error.what
    assert not (box.folder / ".boxstrap/bin/uv").exists()


@pytest.mark.parametrize("reached", ["nothing", "at work", "over"])
def test_a_setup_is_started_exactly_once_on_the_box_though_the_link_breaks_at_its_launch(
    reached: str, box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def launch(wire: object, start: LaunchOptions) -> None:
        asked.append(start.setup)
        if reached != "nothing" or len(asked) > 1:
            launching.launch(wire, start)  # type: ignore[arg-type]
        if len(asked) > 1:
            return
        lock = box.folder / ".boxstrap/lock"
        # Otherwise the executor may look too early.
        while reached == "at work" and not (lock.is_file() and lock.stat().st_size):
            time.sleep(0.01)
        if reached == "over":
            box.how_it_ended(start.setup)
        raise LinkLost("this machine")

    before = []
    if reached == "over":  # so that no commit has to be sent
        box.open()
        before = [box.ask().begin().well()]
    monkeypatch.setattr(executor, "launch", launch)
    setup = box.ask(script="another").begin()
    if reached == "at work":
        setup.reach_the_wait()
    box.open()
    assert {*before, setup.well()} == set(box.setups())
    assert setup.id == asked[-1]
    assert len(asked) == (2 if reached == "nothing" else 1)
    assert not any("already running" in said for said in setup.told.said)  # recognized as its own


def test_a_link_that_breaks_at_every_launch_of_a_setup_is_given_up(
    box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(wire: object, start: LaunchOptions) -> None:
        raise LinkLost("this machine")

    monkeypatch.setattr(executor, "launch", launch)
    assert isinstance(box.ask().begin().end().error, LinkLost)


def test_setup_after_a_failed_step_skips_finished_steps_and_repeats_that_step(
    box: ScriptedBox,
) -> None:
    box.open()
    (box.folder / "homework").mkdir(parents=True)
    (box.folder / "homework/mine").write_text("not a clone")
    failed = box.ask().begin().end()
    assert isinstance(failed.error, StepFailedError)
    assert "repo" in failed.error.what
    (box.folder / "homework/mine").unlink()
    (box.folder / "homework").rmdir()
    again = box.ask().begin()
    assert sorted([failed.executor.setup, again.well()]) == box.setups()
    assert (again.told.of("tools"), again.told.of("repo")[-1]) == (["skip"], "ok")


def test_a_cancelled_setup_returns_at_once_and_the_box_completes_it(box: ScriptedBox) -> None:
    token = CancelToken()
    setup = box.ask(cancel=token).begin().reach_the_wait()
    wait_until(box.has_the_commit)
    token.cancel()
    setup.end()  # the box waits for ever
    assert isinstance(setup.error, CancelledError)
    box.open()
    assert box.how_it_ended(setup.executor.setup) == 0
    assert box.ask().begin().well() == ""


@pytest.mark.parametrize("when", ["before", "while the link is lost"])
def test_cancelling_a_setup_that_waits_for_a_lost_link_ends_it_with_a_cancelled_error(
    when: str, box: ScriptedBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = CancelToken()
    if when == "before":
        token.cancel()
        with pytest.raises(CancelledError):
            box.ask(cancel=token)
        return
    monkeypatch.setattr(reconnecting, "PAUSES_S", (0.1, 0.1, 600))
    setup = box.ask(cancel=token).begin().reach_the_wait()
    refuse: Callable[[], object] = lambda: (_ for _ in ()).throw(LinkLost("this machine"))  # noqa: E731
    monkeypatch.setattr(setup.context.box.link, "_login", refuse)
    setup.context.box.wire.close()
    wait_until(lambda: setup.told.said.count("lost") >= 3)
    token.cancel()
    assert isinstance(setup.end().error, CancelledError)


def test_a_setup_that_was_stopped_on_the_box_fails_as_cancelled(box: ScriptedBox) -> None:
    setup = box.ask().begin().reach_the_wait()
    wire = box.ask().context.box.wire
    run_script(wire, build_query("stop", workdir=str(box.folder)))
    setup.end()
    assert isinstance(setup.error, StepFailedError)
    assert "was cancelled" in setup.error.what
