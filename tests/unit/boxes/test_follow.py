"""Following a setup's events over a link that breaks anywhere: none is lost or repeated."""

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bootstrap.boxes.follow import CompletionPoller, follow_events
from bootstrap.errors import StepFailedError
from bootstrap.link import LinkLost, LocalStream, LocalWire, ReconnectingLink
from tests.run_states import identity
from tests.unit.boxes.conftest import DEAD
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow  # each starts programs

SETUP = "20260101-000000-abcdef"


def line(seq: int, event: str = "progress", **fields: object) -> str:
    told = {"v": 1, "setup": SETUP, "seq": seq, "t": 1.5, "step": "python", "event": event}
    return json.dumps({**told, **fields}) + "\n"


class Breaking(LocalWire):
    """A wire that reads in small pieces and breaks after a random number of bytes."""

    def __init__(self, dice: random.Random, most: int) -> None:
        super().__init__()
        self._dice = dice
        self._left = dice.randrange(most)

    def start(self, command: str) -> LocalStream:
        stream = super().start(command)
        whole = stream.read

        def read(n: int) -> bytes:
            if self._left <= 0:
                self.close()
                raise LinkLost(self.label)
            piece = whole(min(n, self._dice.randrange(1, 60)))
            self._left -= len(piece)
            return piece

        stream.read = read  # type: ignore[method-assign]
        return stream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".boxstrap/setups" / SETUP
    made.mkdir(parents=True)
    (made / "pid").write_text(identity(os.getpid()) + "\n")
    return made


def link(login: Any) -> tuple[ReconnectingLink, list[str]]:
    told: list[str] = []
    made = ReconnectingLink(
        login,
        lost=lambda _: told.append("lost"),
        back=lambda: told.append("back"),
        warn=told.append,
    )
    return made, told


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(6))
def test_setup_events_arrive_once_in_order_over_cut_links(seed: int, folder: Path) -> None:
    dice = random.Random(seed)
    count = 120

    def write() -> None:
        with (folder / "events.jsonl").open("w") as file:
            for seq in range(1, count):
                file.write(line(seq, done=seq, total=count, unit="packages"))
                file.flush()
                time.sleep(0.002)
            file.write(line(count, "done", rc=0, code="over"))

    writer = threading.Thread(target=write)
    writer.start()
    steady, told = link(lambda: Breaking(dice, 4000))
    found = [event.seq for event in follow_events(steady, SETUP, workdir=str(folder.parents[2]))]
    writer.join()
    steady.close()
    assert found == list(range(1, count + 1))
    assert told.count("lost") == told.count("back") > 0


def test_setup_waits_for_an_events_file_that_is_not_there_yet(folder: Path) -> None:
    timer = threading.Timer(0.5, (folder / "events.jsonl").write_text, [line(1, "done", rc=0)])
    timer.start()
    steady, told = link(LocalWire)
    found = [event.event for event in follow_events(steady, SETUP, workdir=str(folder.parents[2]))]
    steady.close()
    assert (found, told) == (["done"], [])


def test_setup_skips_garbage_and_events_of_other_setups_sent_by_the_box(folder: Path) -> None:
    others = [
        line(1, "start", why="new"),
        "not json\n",
        line(2).replace(SETUP, "20260101-000000-000000"),
        line(1, "start", why="new"),
        "{" * 3000 + "\n",
        "x" * 10_000 + "\n",
        line(2).replace("python", "unheard-of"),
        line(5, "ok"),
        line(4, "ok"),
        line(6, "done", rc=0),
        line(7, "ok"),
    ]
    (folder / "events.jsonl").write_text("".join(others))
    steady, _ = link(LocalWire)
    found = [
        (event.seq, event.event)
        for event in follow_events(steady, SETUP, workdir=str(folder.parents[2]))
    ]
    steady.close()
    assert found == [(1, "start"), (5, "ok"), (6, "done")]


def test_setup_fails_with_the_word_gone_if_its_process_on_the_box_vanished(folder: Path) -> None:
    (folder / "events.jsonl").write_text(line(1, "start", why="new"))
    (folder / "pid").write_text(f"{DEAD}\n")
    steady, told = link(LocalWire)
    events = follow_events(steady, SETUP, workdir=str(folder.parents[2]))
    assert next(events).event == "start"
    with pytest.raises(StepFailedError, match="gone"):
        next(events)
    steady.close()
    assert told == []


def test_setup_shows_every_event_though_its_process_on_the_box_has_ended(folder: Path) -> None:
    (folder / "events.jsonl").write_text(line(1, "start", why="new") + line(2, "done", rc=7))
    (folder / "pid").write_text(f"{DEAD}\n")
    steady, _ = link(LocalWire)
    found = [event.seq for event in follow_events(steady, SETUP, workdir=str(folder.parents[2]))]
    steady.close()
    assert found == [1, 2]


@pytest.mark.parametrize("rest", ["", '{"v":1,"setup'], ids=["whole", "cut"])
def test_a_setup_that_died_while_the_link_was_lost_fails(folder: Path, rest: str) -> None:
    """Nothing more comes over the new link: the old one already brought everything."""
    told = line(1, "start", why="new") + line(2)
    (folder / "events.jsonl").write_text(told + rest)
    (folder / "pid").write_text(DEAD + "\n")

    class BreakingAtTheEnd(LocalWire):
        """A wire that breaks once everything was read."""

        def start(self, command: str) -> LocalStream:
            stream = super().start(command)
            whole, left = stream.read, len(told + rest)

            def read(n: int) -> bytes:
                nonlocal left
                if not left:
                    self.close()
                    raise LinkLost(self.label)
                piece = whole(min(n, left))
                left -= len(piece)
                return piece

            stream.read = read  # type: ignore[method-assign]
            return stream

    wires: list[type[LocalWire]] = [LocalWire, BreakingAtTheEnd]

    def login() -> LocalWire:
        return wires.pop()()

    steady, _ = link(login)
    with pytest.raises(StepFailedError, match="gone"):
        list(follow_events(steady, SETUP, workdir=str(folder.parents[2])))
    steady.close()


def test_logs_follow_ends_if_only_its_query_for_the_runs_end_loses_the_link() -> None:
    """`logs -f` never ended: its run did while the shared connection was out of reach."""

    class Unpolled(LocalWire):
        def start(self, command: str) -> LocalStream:
            raise LinkLost(self.label)

    stream = LocalWire().start("echo one; exec sleep 600")
    assert stream.read(4) == b"one\n"
    CompletionPoller(Unpolled(), stream, "query").join(PATIENCE_S)
    late = threading.Thread(target=stream.read, args=(1,), daemon=True)
    late.start()
    late.join(5)
    is_open = late.is_alive()
    stream.close()
    assert not is_open
