"""Seeded days of use, through the program itself: run, run beside, queue, resume, stop, pull, sync,
a full disk, kills here and on the box, and `down` at the end. Each result that was complete when
its run ended is at home then, under its own run's name, byte for byte.

The box is this machine, for root with a disk of its own. The trainings write down what they made,
each file once it is whole.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import Completed, User
from tests.faults.plugin import Faults
from tests.faults.program import with_numbers

PROFILE = """\
version: 1
extends: local
box: {workdir: ~/work}
train: {command: python train.py 0, results: [out/], grace: 2, resume: python train.py 1}
"""
TRAIN = """\
import hashlib, os, random, signal, sys, time
from pathlib import Path

chance = random.Random(os.environ["BOXSTRAP_RUN"] + sys.argv[1])
noted = Path(MADE) / os.environ["BOXSTRAP_RUN"].rpartition("/")[2]
noted.parent.mkdir(exist_ok=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
out = Path("out")
(out / "deep").mkdir(parents=True, exist_ok=True)


def note(word, file, content=b""):
    with noted.open("a") as said:
        said.write(f"{word} {file} {hashlib.sha256(content).hexdigest()}\\n")


print("step 1 loss 0.5", flush=True)
for name in chance.sample(["ckpt", "best", "deep/a", "log.txt"], chance.randrange(1, 5)):
    file, content = out / name, chance.randbytes(chance.choice([0, 5, 5, 90_000]))
    note("begins", file)
    if chance.random() < 0.5:
        file.write_bytes(content)
    else:
        file.with_suffix(".new").write_bytes(content)
        file.with_suffix(".new").replace(file)
    note("wrote", file, content)
time.sleep(float(sys.argv[1]))
print("step 2 loss 0.4", flush=True)
sys.exit(chance.choice([0, 0, 3]))
"""
LOCAL = ("--host", "local")
IS_ROOT = os.geteuid() == 0
ENDS = {0, 2, 8, 9, 10, 130}
"""How a command may end here: done, nothing to do it with, held by a live run, refused, failed."""
ENDS_ON_FULL_DISK = ENDS | {5, 7}
"""Also: the disk is too full to begin, a step failed on it."""
DISK_MB = 120


class Day:
    """A user at work on one box."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance, self.did = chance, list[str]()
        self.user = User(folder / "home")
        # Not below `~`: a tmux server of the day before has that day's home.
        train = f"MADE = {str(self.user.home / 'made')!r}\n{TRAIN}"
        repository = self.user.repository(boxstrap__yaml=PROFILE, train__py=train)
        (repository.root / ".gitignore").write_text("out/\n")
        repository.commit({}, "Ignore results")
        self.place = repository.root
        self.box = self.user.home / "work"
        # A box's disk is larger than one that a test can fill.
        self.program = with_numbers(self.user.home, MIN_FREE_MB=1)

    @contextlib.contextmanager
    def disk(self) -> Iterator[None]:
        """Give the box a disk of its own, which can become full; only root can."""
        if not IS_ROOT:
            yield
            return
        self.box.mkdir()
        size = f"size={DISK_MB}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "box", self.box], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", self.box], check=True)

    def do(self, *words: str, ends: set[int] = ENDS) -> Completed:
        done = self.user.run(words[0], *LOCAL, *words[1:], program=self.program)
        self.did.append(f"{' '.join(words)} = {done.rc}")
        assert done.rc in ends, (self.did, done.text)
        assert "Traceback" not in done.text
        return done

    def names(self) -> list[str]:
        return sorted(one.name for one in self.box.glob(".boxstrap/runs/*/*") if one.is_dir())

    def step(self) -> None:
        """Do one thing that people do."""
        some = self.chance.choice([*self.names(), "train-1"])
        long = self.chance.choice(["0", "0", "1.5"])
        run = ("--", "python", "train.py", long)
        what = self.chance.randrange(14 if IS_ROOT else 13)
        if what < 4:
            self.do("run", *run)
        elif what == 4:
            self.do("run", "--beside", *run)
        elif what == 5:
            self.do("run", "--queue", *run)
        elif what == 6:
            self.do("run", "--resume", some)
        elif what == 7:
            self.do("stop", "--run", some)
        elif what == 8:
            self.do("pull", *self.chance.choice([(), ("--all",), ("--run", some)]))
        elif what == 9:
            (self.place / "notes.txt").write_text(str(self.chance.random()))
            self.do("sync")
        elif what == 12:
            self.do("setup", "--restart")
        elif what == 13:
            self.fill_disk(leave=self.chance.choice([0, 40_000, 300_000]))
            self.do(
                *self.chance.choice([("run", *run), ("setup", "--restart"), ("pull", "--all")]),
                ends=ENDS_ON_FULL_DISK,
            )
            self.do("stop", "--all")
            (self.box / "ballast").unlink()
        elif what == 10:
            self.kill_here(*self.chance.choice([("pull", "--all"), ("run", *run), ("down",)]))
        else:
            self.kill_there()

    def fill_disk(self, leave: int) -> None:
        """Fill the box's disk until `leave` bytes are free; a live run may take some meanwhile."""
        with (self.box / "ballast").open("wb") as ballast:
            while (free := os.statvfs(self.box)).f_bavail:
                size = max(1, free.f_bavail * free.f_frsize - leave)
                with contextlib.suppress(OSError):
                    os.posix_fallocate(ballast.fileno(), 0, size)
                    break
        self.did.append(f"the disk has {leave} bytes")

    def kill_here(self, *words: str) -> None:
        """Kill a command of this machine at some moment."""
        running = self.user.begin(words[0], *LOCAL, *words[1:], program=self.program)
        time.sleep(self.chance.uniform(0.1, 1.5))
        running.kill()
        running.end()
        self.did.append(f"killed: {' '.join(words)}")

    def kill_there(self) -> None:
        """Kill a run on the box with all of its processes, as a restart of the box would."""
        for file in self.box.glob(".boxstrap/runs/*/*/pid"):
            if (file.parent / "exit").exists():
                continue
            for line in file.read_text().splitlines():
                with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
                    os.kill(int(line.split()[0]), signal.SIGKILL)
            self.did.append(f"killed there: {file.parent.name}")

    def made(self) -> dict[str, dict[str, set[str]]]:
        """What each run had made: the digests that a file may have; it was whole, or unknown."""
        found: dict[str, dict[str, set[str]]] = {}
        for file in (self.user.home / "made").glob("*"):
            whole = found.setdefault(file.name, {})
            for line in file.read_text().splitlines():
                word, path, digest = line.split()
                if word == "begins":
                    whole.pop(path, None)  # cut here, nobody knows what it holds
                else:
                    whole[path] = {digest}
        return found

    def begun(self, run: str) -> set[str]:
        """Every file that a run began to write, by its own name or the one that it had first."""
        noted = self.user.home / "made" / run
        lines = noted.read_text().splitlines() if noted.exists() else []
        names = {Path(line.split()[1]) for line in lines}
        return {str(name) for one in names for name in (one, one.with_suffix(".new"))}

    def at_home(self, run: str) -> Path:
        return self.place / "boxstrap-results/local" / run

    def check(self) -> None:
        """Compare what was made with what is at home; a manifest names only what its run made."""
        made = self.made()
        assert made, self.did
        for run, files in made.items():
            for path, digests in files.items():
                here = self.at_home(run) / path
                assert here.is_file(), (run, path, "not at home", self.did)
                assert digest_of(here) in digests, (run, path, "another file", self.did)
        for file in self.place.glob("boxstrap-results/local/*/boxstrap-manifest.json"):
            manifest = json.loads(file.read_text())
            own = made.get(file.parent.name, {})
            theirs = self.begun(file.parent.name)
            for row in manifest["files"]:
                assert row.get("after_run") or row["path"] in theirs, (
                    file.parent.name,
                    row,
                    self.did,
                )
                if row["path"] in own and not row.get("after_run"):
                    assert row["sha256"] in own[row["path"]], (file.parent.name, row, self.did)


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(4))
def test_down_leaves_every_result_at_home_after_a_day_of_runs_pulls_syncs_and_kills(
    part: int, tmp_path: Path, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    seed = seeded.random()
    for number in range(request.config.getoption("tries")):
        chance = random.Random(f"{seed} {part} {number}")
        day = Day(tmp_path / str(number), chance)
        named = faults.attempt("a day of runs, killed here and there", at="any moment")
        with day.disk(), named as attempt:
            try:
                day.do("setup")
                for _ in range(chance.randrange(3, 8)):
                    day.step()
                day.do("stop", "--all")
                ended = day.do("down", "--stop-runs")
                if ended.rc == 9:  # what can't come is named; what was made can
                    assert "would be lost" in ended.text, ended.text
                    day.do("pull", "--all")
                day.check()
                attempt.outcome("each result home as its own")
            finally:
                day.user.run("stop", "--all", *LOCAL, program=day.program)
                day.kill_there()
