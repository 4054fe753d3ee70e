"""Restart the box, kill tmux or a runner, fill the disk, cut the link while a run starts: `status`
tells the truth, no run starts twice, and no exit code is lost.

Each try starts two runs on the same box: one that is alive when the fault comes, and one that
starts at that moment or waits for its turn. Their commands log that they started and ended.
"""

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tests.cli import NO_GPU, Running
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

JOB = """\
echo "begin $1" >>/journal
echo up
until [ -e /dev/shm/open ] || [ -e "/dev/shm/open-$1" ]; do sleep 0.1; done
echo "end $1" >>/journal
exit "$2"
"""
PROFILE = NO_GPU + "train: {command: bash job.sh first 0, resume: 'true'}\n"
ENDS = {0, 3, 5, 7, 10, -9}  # 10: what the fault killed was over before its first line
"""Exit codes of a `run` whose box, link, disk space or own process was lost."""
WITHOUT_TMUX = ("without tmux",)
BEGINNINGS = ((), ("--queue",), ("--after",), ("--after-any",), WITHOUT_TMUX)
"""How the second run of a try starts."""
PATIENCE_S = 30


class Begun(NamedTuple):
    """A run: the unique word of its command, and its name."""

    word: str
    name: str


@dataclass
class Tried:
    """The box, and the exit codes that its runs should have."""

    rented: Rented
    chance: random.Random
    codes: dict[str, int] = field(default_factory=dict)
    """Exit code of each command, by its word."""
    had_power: bool = True
    """Whether the box had power during the whole try."""

    def begin(self, *words: str) -> tuple[str, Running]:
        """Start a run with a unique command."""
        word = f"job{len(self.codes)}"
        self.codes[word] = self.chance.choice((0, 0, 3, 137))
        command = f"bash job.sh {word} {self.codes[word]}"
        return word, self.rented.begin("run", "--json", *words, "--", command)

    def runs(self) -> dict[str, dict[str, object]]:
        """Return the runs by the unique word of their command."""
        told = self.rented.status()["runs"]
        words = [str(run["command"]).split()[2] for run in told]
        assert len(words) == len(set(words)), words
        return dict(zip(words, told, strict=True))

    def journal(self) -> list[str]:
        return self.rented.box.read("/journal").splitlines()

    def alive(self) -> set[str]:
        """Return the words of the commands that really run."""
        listed = self.rented.box.run("pgrep -af 'bash job[.]sh' || true")
        return set(re.findall(r"bash job\.sh (\w+)", listed))

    def truth(self) -> dict[str, dict[str, object]]:
        """Return what `status` says, checked at a moment when nothing changed in between."""
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
        """Return whether `status` is right about this run."""
        began, ended = f"begin {word}" in journal, f"end {word}" in journal
        if word in alive:
            return run["state"] == "running"
        if run["state"] == "finished" and str(run["ended"]).startswith(("after ", "stop")):
            return run["rc"] == 143 and not began
        if run["state"] == "finished":
            # There may have been no room to write why it ended.
            decided = run["ended"] in (None, f"exit {run['rc']}")
            return ended and decided and run["rc"] == self.codes[word]
        if run["state"] == "running":
            return False
        # Power may be lost between a command's end and its record.
        return (
            not began if run["state"] in ("queued", "waiting") else not (ended and self.had_power)
        )

    def open(self, word: str = "") -> None:
        """Let this command end, or all."""
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
    """Fill the disk until the live run has ended and `status` says so."""
    tried.rented.box.fill_disk(20)
    tried.rented.box.run("cat /dev/zero >>/ballast || true")
    tried.open(live.word)
    end_of(going)
    tried.await_true(lambda runs: runs[live.word]["state"] == "finished")
    tried.rented.box.empty_disk()


def kill_runner(tried: Tried, live: Begun, going: Running) -> None:
    """Kill the live run's runner, and sometimes all runners and waiters."""
    runner = f"$(cut -d ' ' -f 1 {tried.rented.folder}/runs/*/{live.name}/pid | head -n 1)"
    tried.rented.box.run(f"kill -9 {runner} || true")
    if tried.chance.random() < 0.5:
        tried.rented.box.run("pkill -9 -f 'box/.*/(runner[.]sh|.* run_[q]ueue)' || true")


def cut_link(tried: Tried, live: Begun, going: Running) -> None:
    box = tried.rented.box
    if tried.chance.random() < 0.5:
        box.run("pkill -9 -f '^sshd: [^/]' || true")
        return
    box.blackhole(box.port)
    time.sleep(tried.chance.choice((0.5, 2)))
    box.unblackhole()


def kill_program(tried: Tried, live: Begun, going: Running) -> None:
    with contextlib.suppress(ProcessLookupError):  # it had already ended
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
    """Wait for the end of a command, whatever its exit code."""
    going.process.wait(120)


def test_status_shows_the_real_state_of_each_run_after_restarts_kills_full_disks_and_cut_links(
    rent: Rent, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    rented = rent("vast", used=True, disk="1500M")
    rented.user.repository(boxstrap__yaml=PROFILE, job__sh=JOB)
    # Space is reserved for the journal, so that it can be written on a full disk.
    rented.box.run("touch /journal && fallocate -n -l 1M /journal && touch /dev/shm/open-first")
    rented.run("setup").must(0)
    tried = Tried(rented, seeded, {"first": 0})
    # Six faults and five ways to start: any thirty tries in a row cover all pairs.
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
    """Do one try; return what `status` said of the two runs after the fault."""
    tried.had_power = True
    tried.rented.box.run("rm -f /dev/shm/open")
    word, going = tried.begin()
    live = Begun(word, going.end().must(0).json()["run"]["name"])
    words = (*how, live.name) if "--after" in "".join(how) else how
    without_tmux: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if how == WITHOUT_TMUX:
        # It must use the main tree: another tree would need a setup, which installs tmux.
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
    # The next run also starts those that wait for their turn.
    tried.open(live.word)
    _, going = tried.begin("--queue")
    going.end().must(0)
    tried.open()
    tried.await_true(lambda runs: all(is_over(run) for run in runs.values()))
    tried.rented.run("stop", "--all").must(0)
    return f"exit {ended.rc}; {said}"


def is_over(run: dict[str, object]) -> bool:
    """A run queued after a run that died waits until somebody resumes that one."""
    waits = run["state"] == "queued" and str(run["queue"]).startswith("after ")
    return waits or run["state"] not in ("running", "queued")
