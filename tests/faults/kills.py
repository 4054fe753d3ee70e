"""Kills: what is killed, at which moment, and how a user continues from there.

A moment is random: a time, uniform over the duration of an undisturbed setup, or a mark, which is
something that can be seen on the box during a setup.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli import Completed, Running
from tests.main_job.rented import Rented
from tests.plain_environment import HERE
from tests.waiting import PATIENCE_S

WORKDIR = "/workspace"
MARKS = (
    *("setup.sh", "pid", "objects", "preflight start", "tools start", "tools ok", "agent start"),
    *("agent ok", "shell start", "ssh start", "gpu start", "repo start", "repo ok"),
    *("python start", "python ok", "train start", "run made", "run begun", "training", "train ok"),
)
"""What can be seen on a box during a setup; steps that have nothing to do are never seen."""
OF_A_RUN = {"run made": "command", "run begun": "pid"}
"""Marks that are a file in the folder of a setup or of a run."""
MOST_TRIES = 6
"""How many times the command may be run in all, the killed one included."""
ENDS = {0, 3, 7, -9}
"""Exit codes of a command whose box, setup or own process was killed."""
DIED = 10
"""Exit code of a setup whose run, of this work, died with the box before."""


@dataclass(frozen=True)
class Undisturbed:
    """An undisturbed setup: its seconds, and the box it made."""

    seconds: float
    box: str


@dataclass(frozen=True)
class Moment:
    """When to kill: after a share of a setup's usual time, or some seconds after a mark."""

    share: float = 0.0
    mark: str = ""
    after_s: float = 0.0

    def __str__(self) -> str:
        if self.mark:
            return f"{1000 * self.after_s:.0f} ms after {self.mark!r}"
        return f"{self.share:.0%} of an undisturbed setup"


def draw(chance: random.Random) -> Moment:
    """Draw a moment: half anywhere in a setup's time, half right after a mark."""
    if chance.random() < 0.5:
        return Moment(share=chance.random())
    mark, late = chance.choice(MARKS), chance.choice((0, chance.uniform(0, 0.1)))
    return Moment(mark=mark, after_s=late)


@dataclass
class Eye:
    """Watches a setup on a box from this machine, without starting anything there."""

    rented: Rented
    _known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._known = {_named(place) for place in (*self._new("setups/*"), *self._new("runs/*/*"))}
        self._begun = begun(self.rented)

    @property
    def _home(self) -> Path:
        return self.rented.box.root / f"{WORKDIR}/.boxstrap"[1:]

    def sees(self, mark: str) -> bool:
        """Return whether setups started since this Eye was made have reached the mark."""
        if mark == "objects":
            return next(self._home.glob("store/*/objects/*incoming*"), None) is not None
        if mark == "training":
            return begun(self.rented) > self._begun
        if mark in OF_A_RUN:
            return any((run / OF_A_RUN[mark]).exists() for run in self._new("runs/*/*"))
        setups = self._new("setups/*")
        if mark in ("setup.sh", "pid"):
            return any((setup / mark).exists() for setup in setups)
        return any(mark in _told(setup / "events.jsonl") for setup in setups)

    def _new(self, pattern: str) -> list[Path]:
        return [place for place in self._home.glob(pattern) if _named(place) not in self._known]

    def await_moment(self, moment: Moment, usual_s: float, going: Running) -> bool:
        """Wait for the moment; return False if the command ended before."""
        if moment.mark and not self._await(lambda: self.sees(moment.mark), going):
            return False
        end = time.monotonic() + moment.after_s + moment.share * usual_s
        return self._await(lambda: time.monotonic() >= end, going)

    def leader(self, going: Running) -> int:
        """Return the newest setup's PID on the box, or 0 if there is none."""
        found: list[Path] = []

        def is_there() -> bool:
            found[:] = [
                place / "pid" for place in self._new("setups/*") if (place / "pid").exists()
            ]
            return bool(found)

        self._await(is_there, going)
        return int(max(found).read_text().split()[0]) if found else 0

    def _await(self, there: Callable[[], bool], going: Running) -> bool:
        while not there():
            if going.process.poll() is not None:
                return False
            time.sleep(0.004)
        return True


def _named(place: Path) -> str:
    """Name a folder so that it stays the same after a power cut."""
    return f"{place.parent.name}/{place.name}"


def _told(events: Path) -> list[str]:
    try:
        lines = events.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    told = [json.loads(line) for line in lines if line.endswith(b"}")]
    return [f"{one['step']} {one['event']}" for one in told if one["event"] in ("start", "ok")]


def begun(rented: Rented) -> int:
    """Return how often the training started: it writes a line outside its tree."""
    try:
        return len((rented.box.root / "root/begun").read_text().splitlines())
    except FileNotFoundError:
        return 0


def watched(rented: Rented) -> Undisturbed:
    """Run an undisturbed setup to its end."""
    done = rented.run("setup").must(0)
    return Undisturbed(done.seconds, described(rented))


def described(rented: Rented) -> str:
    """Describe the box as setup made it, without what differs between two equal boxes.

    First the compiling beside the training ends, which nothing waits for; if it does not, it is
    part of the description.
    """
    compiling = "pgrep -f 'python[.]bytecode'"
    rented.box.run(f"for i in $(seq 300); do {compiling} || exit 0; sleep 0.1; done")
    script = (HERE / "tests/faults/describe.sh").read_text()
    name = rented.user.place.name
    return rented.box.run(["/bin/bash", "-c", script, "describe", WORKDIR, name])


# -- what is killed


def kill_program(rented: Rented, going: Running, eye: Eye, chance: random.Random) -> None:
    """Kill the program on this machine, as when a laptop's battery is empty."""
    going.kill()


def kill_sshd(rented: Rented, going: Running, eye: Eye, chance: random.Random) -> None:
    """Kill the logins' sshd processes; sometimes the listening one too, for a moment."""
    if chance.random() < 0.3:
        rented.box.kill_sshd()
        time.sleep(chance.uniform(0, 2))
        rented.box.start_sshd()
        return
    # The listening sshd has its path in its title.
    rented.box.run("pkill -9 -f '^sshd: [^/]' || true")


def kill_script(rented: Rented, going: Running, eye: Eye, chance: random.Random) -> None:
    """Kill the script on the box: its first process, or its whole session."""
    leader = eye.leader(going)
    if not leader:
        return
    if chance.random() < 0.5:
        rented.box.run(f"kill -9 {leader} || true")
    else:
        rented.box.run(f"pkill -9 -s {leader} || true")


def kill_power(rented: Rented, going: Running, eye: Eye, chance: random.Random) -> None:
    """Cut the box's power for a moment."""
    rented.box.power_off()
    time.sleep(chance.uniform(0, 1))
    rented.box.power_on()


KILLS = {
    "kill -9 of the program": kill_program,
    "kill -9 of sshd": kill_sshd,
    "kill -9 of the script": kill_script,
    "power off and on": kill_power,
}


# -- how a user continues


def await_notice(going: Running) -> bool:
    """Wait until the program says that its link is lost, or ends because of it."""
    limit = time.monotonic() + PATIENCE_S
    while going.process.poll() is None and time.monotonic() < limit:
        if " lost " in going.said():
            return True
        time.sleep(0.02)
    return going.process.poll() in (3, 7)


def go_on(rented: Rented, going: Running) -> list[Completed]:
    """Let the command end, and repeat it until the box is set up; each end must be an allowed one.

    A setup whose run died with the box says so with exit 10, as it does from then on.
    """
    ends = [going.end()]
    while ends[-1].rc != 0 and not (ends[-1].rc == DIED and "died with the box" in ends[-1].err):
        assert ends[-1].rc in ENDS, ends[-1].text
        assert "Traceback" not in ends[-1].text, ends[-1].text
        assert len(ends) < MOST_TRIES, "\n".join(end.text for end in ends)
        ends.append(rented.run("setup"))
    return ends
