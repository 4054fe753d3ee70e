"""`run` over a link that is cut at any time: one run per id, or an error that it is unknown."""

import io
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.errors import UnreachableError
from bootstrap.link import LocalStream, LocalWire, ReconnectingLink
from bootstrap.setup import SetupRequest, run_setup
from bootstrap.setup.new_run import start_run
from bootstrap.setup.request import RunOptions
from bootstrap.ui.screens import PlainScreen
from tests.cli import User
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PROFILE = "version: 1\nextends: local\nbox: {workdir: ~/work}\n"
LONGEST_S = 1.0
"""About the duration of the exchange."""


class Scissors:
    """Closes the wire of the next command `after_s` seconds after its start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.after_s: float | None = None
        begin = LocalWire.start

        def start(wire: LocalWire, command: str) -> LocalStream:
            stream = begin(wire, command)
            if self.after_s is not None:
                threading.Timer(self.after_s, wire.close).start()
                self.after_s = None
            return stream

        monkeypatch.setattr(LocalWire, "start", start)


def await_settled(home: Path) -> None:
    """Wait until nothing runs on the box, which continues without the link."""
    lock = home / "work/.boxstrap/lock"
    wait_until(lambda: f":{lock.stat().st_ino} " not in Path("/proc/locks").read_text())


def test_run_whose_link_is_cut_at_its_start_begins_exactly_one_run(
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    seeded: random.Random,
    request: pytest.FixtureRequest,
) -> None:
    repository = user.repository(boxstrap__yaml=PROFILE)
    asked = SetupRequest(host="local", repo=repository.root)
    run_setup(asked)
    scissors, begun = Scissors(monkeypatch), user.home / "begun"
    for number in range(request.config.getoption("tries")):
        (repository.root / "train.py").write_text(f"print({number})\n")
        wish = RunOptions(f"echo {number} >>{begun}; echo said")
        with monkeypatch.context() as patch:
            gives_up = seeded.random() < 0.4
            if gives_up:
                patch.setattr(ReconnectingLink, "reconnect", raises)
            scissors.after_s = seeded.uniform(0, LONGEST_S)
            said = outcome(replace(asked, run=wish))
            assert said == wish.id or (gives_up and "unknown whether the run was started" in said)
        await_settled(user.home)
        # Asking again with the same id returns the one existing run.
        assert outcome(replace(asked, run=wish)) == wish.id
        runs = list(user.home.glob("work/.boxstrap/runs/*/*/id"))
        assert [path.read_text() for path in runs].count(f"{wish.id}\n") == 1
        assert begun.read_text().splitlines().count(str(number)) == 1
        assert len(runs) == number + 1


def raises(_: ReconnectingLink, why: UnreachableError) -> None:
    raise why


def outcome(request: SetupRequest) -> str:
    """Return the id of the run that was started, or the error that says why it is unknown."""
    shown: list[str] = []
    screen = PlainScreen(io.StringIO(), io.StringIO())
    try:
        begun = start_run(request, screen, shown.extend)
    except UnreachableError as error:
        return error.text()
    assert shown == ["said"] == list(begun.first_lines)
    return begun.wish.id
