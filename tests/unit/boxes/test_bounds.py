"""Following is bounded, and a report's page: how much a box may send, how long it may be silent."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run, follow
from bootstrap.boxes.at_home import RunAtHome
from bootstrap.boxes.follow import follow_events
from bootstrap.errors import BoxstrapError
from bootstrap.link import (
    LinkLost,
    LocalStream,
    LocalWire,
    NoAnswer,
    exchange,
    made_beside,
    reconnecting,
)
from bootstrap.link.exchange import AnswerStream, shell_command
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.runs import bring_home, report
from bootstrap.setup import send as send_module
from bootstrap.setup.send import CommitSender
from tests.unit.boxes.conftest import text_of
from tests.waiting import PATIENCE_S, wait_until

SETUP = "20260101-000000-abcdef"


class Scripted(LocalWire):
    """A wire on which each query is answered by the first script whose word is in the query's text.

    The queries are sent unchanged; the script runs in place of the query.
    """

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self._answers = answers

    def start(self, command: str) -> LocalStream:
        text = text_of(command)
        script = next((answer for word, answer in self._answers.items() if word in text), "exit")
        mark = re.search("echo ([0-9a-f]{32})", text)
        return super().start(shell_command(script.replace("MARK", mark[1] if mark else "")))


Wires = Callable[[dict[str, str]], Scripted]


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Make wires; they are closed after the test."""
    made: list[Scripted] = []

    def make(answers: dict[str, str]) -> Scripted:
        made.append(Scripted(answers))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten time limits to tenths of a second."""
    monkeypatch.setattr(follow, "EVERY_S", 0.05)
    monkeypatch.setattr(follow, "ANSWER_S", 0.4)
    monkeypatch.setattr(exchange, "BEGIN_S", 0.3)
    monkeypatch.setattr(reconnecting, "PAUSES_S", (0.01, 0.02))


def steady(login: Callable[[], Any]) -> ReconnectingLink:
    return ReconnectingLink(login, lost=lambda _: None, back=lambda: None, warn=lambda _: None)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("answer", ["sleep 600", "echo no; exit", "yes"])
def test_setup_fails_when_the_box_sends_nothing_or_floods(answer: str, wires: Wires) -> None:
    silent = {"exec tail": "echo; echo MARK; sleep 600", "state=gone": answer}
    with pytest.raises(NoAnswer):
        list(follow_events(steady(lambda: wires(silent)), SETUP, workdir="/nowhere"))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_setup_asks_again_and_finishes_if_the_box_fails_to_answer_once(
    tmp_path: Path, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "ANSWER_S", 1.5)  # others are in time on a busy machine too
    once, again = tmp_path / "once", tmp_path / "again"
    end = f'{{"v":1,"setup":"{SETUP}","seq":1,"t":1.5,"step":"setup","event":"done","rc":0}}'
    box = {
        "exec tail": f"echo; echo MARK; until [ -e {again} ]; do sleep 0.05; done; echo '{end}'",
        "state=gone": f"echo; echo MARK+; [ -e {once} ] || {{ touch {once}; sleep 600; }}; "
        f"touch {again}; printf 'running\\t0\\n'; echo MARK >&2; echo MARK- 0",
    }
    found = list(follow_events(steady(lambda: wires(box)), SETUP, workdir="/nowhere"))
    assert [event.event for event in found] == ["done"]


@pytest.mark.usefixtures("quick")
def test_a_box_that_never_begins_an_answer_times_out(wires: Wires) -> None:
    stream = AnswerStream(LocalWire.start(wires({}), "exec sleep 600"), "mark", "box")
    with pytest.raises(NoAnswer, match="did not start to answer"):
        stream.read(100)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_time_limit_for_an_answer_of_a_box_ends_with_its_first_byte(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BEGIN_S", 1.5)
    late = LocalWire.start(wires({}), "echo; echo mark; sleep 1.8; echo late")
    stream = AnswerStream(late, "mark", "box")
    assert stream.read(100) == b"late\n"
    assert stream.read(100) == b""


def test_setup_doubles_its_pause_between_fruitless_logins_up_to_15_s_and_fails_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, wires: Wires
) -> None:
    """Each login succeeds, and the following ends immediately."""
    pauses: list[float] = []
    passing: Any = SimpleNamespace(wait=pauses.append)
    monkeypatch.setattr(reconnecting, "time", SimpleNamespace(monotonic=lambda: sum(pauses)))
    monkeypatch.setattr(follow, "Backoff", lambda **_: Backoff(60.0, cancel=passing))
    logins = 0

    def login() -> Scripted:
        nonlocal logins
        logins += 1
        return wires({"exec tail": "echo; echo MARK", "state=gone": "exit"})

    with pytest.raises(LinkLost):
        list(follow_events(steady(login), SETUP, workdir="/nowhere"))
    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15]
    assert logins == len(pauses) + 2


@pytest.mark.slow
def test_the_time_limit_for_a_lost_link_starts_anew_with_each_new_event_of_a_setup() -> None:
    back = Backoff(patience_s=0.0)
    for news in range(5):
        back.lost(LinkLost("box"), news)
    time.sleep(0.01)
    with pytest.raises(LinkLost):
        back.lost(LinkLost("box"), 4)


class _Silent:
    """An empty object stream."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None: ...


@pytest.fixture
def send(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Scripted, list[BoxstrapError]], CommitSender]:
    """Start to send an empty object stream; errors are put into the list."""
    monkeypatch.setattr(send_module, "ObjectStream", _Silent)
    monkeypatch.setattr(send_module, "have_locally", lambda *_: [])

    def begin(wire: Scripted, told: list[BoxstrapError]) -> CommitSender:
        here = SimpleNamespace(commit="a" * 40, object_format="sha1")
        snapshot = SimpleNamespace(commit="a" * 40, id="a" * 40)
        sending = CommitSender(
            wire=wire,
            here=here,  # type: ignore[arg-type]
            snapshot=snapshot,  # type: ignore[arg-type]
            have=[],
            workdir="/nowhere",
            repo_key="k",
            repo_root="",
            setup="20260101-000000-abcdef",
            progress=lambda *_: None,
            failed=told.append,
        )
        sending.start()
        return sending

    return begin


def test_an_endless_git_answer_to_a_sent_commit_is_cut_at_1_mib(send: Any, wires: Wires) -> None:
    told: list[BoxstrapError] = []
    sending = send(wires({"work.store": "exec yes"}), told)
    sending.join(PATIENCE_S)
    assert not sending.is_alive()
    assert "more than 1 MiB" in told[0].what


def test_ctrl_c_while_a_commit_is_sent_is_not_reported_as_a_refusal(
    send: Any, wires: Wires
) -> None:
    """For example after Ctrl-C."""
    told: list[BoxstrapError] = []
    wire = wires({"work.store": "exec sleep 60"})
    sending = send(wire, told)
    sending.join(1)
    assert sending.is_alive()
    wire.close()
    sending.join(PATIENCE_S)
    assert not sending.is_alive()
    assert told == []
    ended = send(wires({"work.store": "exit"}), told)
    ended.join(PATIENCE_S)
    assert "gave no report" in told[0].what


def test_logs_follow_ends_without_traceback_if_the_box_sends_a_nonsense_log_size(
    monkeypatch: pytest.MonkeyPatch, wires: Wires
) -> None:
    """The size in an answer may not be a number, or may have thousands of digits."""
    monkeypatch.setattr(follow, "EVERY_S", 0.02)
    ended: list[object] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    for size in ("9" * 50_000, "\u00b2", "-1", "1e9", "", "0x10"):
        frame = f"echo; echo MARK+; printf 'gone\\t%s\\n' '{size}'; echo MARK >&2; echo MARK- 0"
        wire = wires({"state=gone": frame})
        end = follow.CompletionPoller(wire, LocalWire.start(wire, "exec sleep 5"), "state=gone")
        end.join(PATIENCE_S)
        assert end.trouble is not None
        assert not end.reached
    assert ended == []


def for_ever(*_: object) -> str:
    while True:
        time.sleep(0)


@pytest.mark.slow
def test_a_report_page_that_takes_too_long_or_crashes_gives_an_error() -> None:
    assert made_beside(lambda: "page", 20) == "page"
    failed = made_beside(lambda: str(1 // 0), 20)
    assert isinstance(failed, BoxstrapError)
    assert "ZeroDivisionError" in failed.what
    before = threading.active_count()
    late = made_beside(for_ever, 0.1)
    assert isinstance(late, BoxstrapError)
    assert late.what == "it did not finish within 0.1 s"
    wait_until(lambda: threading.active_count() <= before)  # and computes no longer


def test_a_run_comes_home_with_a_warning_if_its_report_page_never_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warned: list[str] = []
    box: Any = SimpleNamespace(
        redactor=SimpleNamespace(text=str, secrets={}), reporter=SimpleNamespace(warn=warned.append)
    )
    monkeypatch.setattr(report, "report_page", for_ever)
    monkeypatch.setattr(report, "report_at_home", lambda *_: None)
    monkeypatch.setattr(bring_home, "_PAGE_S", 0.1)
    run = Run("k-1", "train-1", "finished", 0, 1, "c" * 40, "w", "train", 0, 12, "python x")
    nothing: Any = None
    bringing = bring_home._Bringing(box, 1)
    bringing._put_page(nothing, RunAtHome("gpu", 1.0, "vast:1", run), nothing)
    assert warned == ["no report of train-1 was made: it did not finish within 0.1 s"]
