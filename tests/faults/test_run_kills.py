"""Restart the box, kill tmux or a runner, fill the disk, cut the link while a run begins: `status`
tells the truth, no run begins twice, and no exit code is lost.

Each try begins two runs on the same box: one that lives when the fault comes, and one that begins
at that moment, or waits for its turn. Their commands note that they began, and that they ended.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.cli import Running
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.boxes

JOB = """\
echo "begin $1" >>/journal
echo up
until [ -e /dev/shm/open ] || [ -e "/dev/shm/open-$1" ]; do sleep 0.1; done
echo "end $1" >>/journal
exit "$2"
"""
PROFILE = (
    "version: 1\ngpu: {require: false}\ntrain: {command: bash job.sh first 0, resume: 'true'}\n"
)
ENDS = {0, 3, 5, 7, -9}
"""How `run` may end that lost its box, its link, all room or its own life under it."""
WITHOUT_TMUX = ("without tmux",)
BEGINNINGS = ((), ("--queue",), ("--after",), ("--after-any",), WITHOUT_TMUX)
"""How the second run of a try begins."""
PATIENCE_S = 30


class Begun(NamedTuple):
    """A run: the word of its command, which no two have, and its name."""

    word: str
    name: str


@dataclass
class Tried:
    """The box, and what its runs were to end with."""

    rented: Rented
    chance: random.Random
    codes: dict[str, int] = field(default_factory=dict)
    """Exit code of each command, by its word."""
    had_power: bool = True
    """Whether the box had it all the time of this try."""

    def begin(self, *words: str) -> tuple[str, Running]:
        """A run with a command that nobody else has."""
        word = f"job{len(self.codes)}"
        self.codes[word] = self.chance.choice((0, 0, 3, 137))
        command = f"bash job.sh {word} {self.codes[word]}"
        return word, self.rented.begin("run", "--json", *words, "--", command)

    def runs(self) -> dict[str, dict[str, object]]:
        """The runs by the word of their command, which no two have."""
        told = self.rented.status()["runs"]
        words = [str(run["command"]).split()[2] for run in told]
        assert len(words) == len(set(words)), words
        return dict(zip(words, told, strict=True))

    def journal(self) -> list[str]:
        return self.rented.box.read("/journal").splitlines()

    def alive(self) -> set[str]:
        """The words of the commands that really run."""
        listed = self.rented.box.run("pgrep -af 'bash job[.]sh' || true")
        return set(re.findall(r"bash job\.sh (\w+)", listed))

    def truth(self) -> dict[str, dict[str, object]]:
        """What `status` says, which is so: of a moment in which nothing changed meanwhile."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            before = self.alive(), self.journal()
            runs = self.runs()
            if before == (self.alive(), self.journal()):
                alive, journal = before
                wrong = [
                    (word, run)
                    for word, run in runs.items()
                    if not self.is_so(word, run, alive, journal)
                ]
                if not wrong:
                    assert alive <= runs.keys()
                    assert max(map(journal.count, journal), default=1) == 1, journal
                    return runs
                # A runner writes its record a moment after its command ended.
                assert time.monotonic() < limit, (wrong, alive, journal)
            assert time.monotonic() < limit, before

    def is_so(self, word: str, run: dict[str, object], alive: set[str], journal: list[str]) -> bool:
        """Whether this run is what `status` says it is."""
        began, ended = f"begin {word}" in journal, f"end {word}" in journal
        if word in alive:
            return run["state"] == "running"
        if run["state"] == "finished" and str(run["ended"]).startswith(("after ", "stop")):
            return run["rc"] == 143 and not began
        if run["state"] == "finished":
            # There may have been no room for what decided it.
            decided = run["ended"] in (None, f"exit {run['rc']}")
            return ended and decided and run["rc"] == self.codes[word]
        if run["state"] == "running":
            return False
        # The power may go between the end and its record.
        return (
            not began if run["state"] in ("queued", "waiting") else not (ended and self.had_power)
        )

    def open(self, word: str = "") -> None:
        """Let this command come to its end, or all."""
        self.rented.box.run(f"touch /dev/shm/open{word and f'-{word}'}")

    def await_true(self, what: Callable[[dict[str, dict[str, object]]], bool]) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not what(runs := self.truth()):
            assert time.monotonic() < limit, runs
            time.sleep(0.2)

    @contextlib.contextmanager
    def without_tmux(self) -> Iterator[None]:
        place = self.rented.box.run("command -v tmux").strip()
        self.rented.box.run(f"mv {place} /tmux")
        try:
            yield
        finally:
            self.rented.box.run(f"mv /tmux {place}")


def restart(tried: Tried, live: Begun, going: Running) -> None:
    tried.rented.box.power_off()
    tried.had_power = False
    time.sleep(tried.chance.uniform(0, 1))
    tried.rented.box.power_on()


def kill_tmux(tried: Tried, live: Begun, going: Running) -> None:
    tried.rented.box.run("pkill -9 '^tmux' || true")


def fill_disk(tried: Tried, live: Begun, going: Running) -> None:
    """Until a run has ended meanwhile, and is known to have."""
    tried.rented.box.fill_disk(20)
    tried.rented.box.run("cat /dev/zero >>/ballast || true")
    tried.open(live.word)
    end_of(going)
    tried.await_true(lambda runs: runs[live.word]["state"] == "finished")
    tried.rented.box.empty_disk()


def kill_runner(tried: Tried, live: Begun, going: Running) -> None:
    """Of the run that lives, and of the one that begins."""
    runner = f"$(cut -d ' ' -f 1 {tried.rented.folder}/runs/*/{live.name}/pid | head -n 1)"
    tried.rented.box.run(f"kill -9 {runner} || true")
    if tried.chance.random() < 0.5:
        tried.rented.box.run("pkill -9 -f 'box/(runner|waiter)[.]sh' || true")


def cut_link(tried: Tried, live: Begun, going: Running) -> None:
    box = tried.rented.box
    if tried.chance.random() < 0.5:
        box.run("pkill -9 -f '^sshd: [^/]' || true")
        return
    box.blackhole(box.port)
    time.sleep(tried.chance.choice((0.5, 2)))
    box.unblackhole()


def kill_program(tried: Tried, live: Begun, going: Running) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was over before
        going.kill()


FAULTS: tuple[tuple[str, Callable[[Tried, Begun, Running], None]], ...] = (
    ("box restarted", restart),
    ("disk full", fill_disk),
    ("kill -9 of the runner", kill_runner),
    ("kill -9 of tmux", kill_tmux),
    ("link cut", cut_link),
    ("kill -9 of the program", kill_program),
)


def end_of(going: Running) -> None:
    """It may have lost its box or its life, and says so."""
    going.process.wait(120)


def test_status_tells_the_truth_of_runs_after_every_fault(
    rent: Rent, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    rented = rent("vast", used=True, disk="1500M")
    rented.user.repository(boxstrap__yaml=PROFILE, job__sh=JOB)
    # There is room for it when the disk is full.
    rented.box.run("touch /journal && fallocate -n -l 1M /journal && touch /dev/shm/open-first")
    rented.run("setup").must(0)
    tried = Tried(rented, seeded, {"first": 0})
    # Six faults and five beginnings: from wherever it starts, all pairs come in thirty tries.
    first = seeded.randrange(len(FAULTS) * len(BEGINNINGS))
    for number in range(first, first + request.config.getoption("tries")):
        what, fault = FAULTS[number % len(FAULTS)]
        how = BEGINNINGS[number % len(BEGINNINGS)]
        moment = seeded.uniform(0, 1.5)
        with faults.attempt(what, at=f"{moment:.1f} s into a run {' '.join(how)}") as attempt:
            states = one_try(tried, fault, how, moment)
            attempt.outcome("told the truth")
        print(f"{what}, {moment:.1f} s into a run {' '.join(how)}: {states}")


def one_try(
    tried: Tried,
    fault: Callable[[Tried, Begun, Running], None],
    how: tuple[str, ...],
    moment: float,
) -> str:
    """What was said of the two runs after the fault."""
    tried.had_power = True
    tried.rented.box.run("rm -f /dev/shm/open")
    word, going = tried.begin()
    live = Begun(word, going.end().must(0).json()["run"]["name"])
    words = (*how, live.name) if "--after" in "".join(how) else how
    without_tmux: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if how == WITHOUT_TMUX:
        # It has the main tree, since to make one beside is a setup, which would bring tmux.
        tried.open(live.word)
        tried.await_true(lambda runs: is_over(runs[live.word]))
        words, without_tmux = (), tried.without_tmux()
    with without_tmux:
        word, going = tried.begin(*words)
        try:
            time.sleep(moment)
            fault(tried, live, going)
            ended = going.end()
        finally:
            going.close()
    assert ended.rc in ENDS, ended.text
    assert "Traceback" not in ended.text
    runs = tried.truth()
    assert ended.rc != 0 or word in runs, ended.text
    said = f"{runs[live.word]['state']}, {runs[word]['state'] if word in runs else 'not there'}"
    # The next run takes up those that wait for their turn.
    tried.open(live.word)
    _, going = tried.begin("--queue")
    going.end().must(0)
    tried.open()
    tried.await_true(lambda runs: all(is_over(run) for run in runs.values()))
    tried.rented.run("stop", "--all").must(0)
    return f"exit {ended.rc}; {said}"


def is_over(run: dict[str, object]) -> bool:
    """What follows a run that died waits until somebody lets that go on."""
    waits = run["state"] == "queued" and str(run["queue"]).startswith("after ")
    return waits or run["state"] not in ("running", "queued")
