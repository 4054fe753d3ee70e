"""Checkpoints that are written slowly, moved, replaced and deleted while `pull --watch` runs: none
is ever torn here, and each that stays for ten seconds is here within ten of being complete."""

import hashlib
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import slowness

WITHIN_S = 10.0
STAYS_S = 10.5
"""How long a checkpoint that must arrive stays unchanged."""
PROFILE = """\
version: 1
gpu: {{require: false}}
env: {{TRIES: "{tries}", SIZE_MB: "{size}", PACE_S: "{pace}", CHANCE: "{chance}"}}
train: {{command: python save.py, results: [out/]}}
"""
# Writes to /journal, with the time, what is complete (and its digest) and what is about to go.
SAVE = """\
import hashlib, os, random, shutil, time

TRIES, MB = int(os.environ["TRIES"]), int(os.environ["SIZE_MB"])
PACE = float(os.environ["PACE_S"])
chance = random.Random(os.environ["CHANCE"])
journal = open("/journal", "a", buffering=1)
going = {}  # what is removed, and when


def tell(word, path, rest=""):
    journal.write(f"{word}\\t{path}\\t{rest}\\t{time.time()}\\n")


def remove(until):
    for path, when in sorted(going.items(), key=lambda one: one[1]):
        if when <= until:
            tell("gone", path)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            del going[path]


def write(path, share=1.0, halts=False):
    # With halts it stands half-way: open for longer than a file must stand, then closed for less.
    digest, pieces = hashlib.sha256(), max(2, int(MB * share))
    file = open(path, "wb", buffering=0)
    for at in range(pieces):
        if halts and at == pieces // 3:
            time.sleep(3)
        if halts and at == pieces * 2 // 3:
            file.close()
            time.sleep(1.2)
            file = open(path, "ab", buffering=0)
        piece = chance.randbytes(64) * 16384
        file.write(piece)
        digest.update(piece)
        time.sleep(PACE * share / pieces)
        remove(time.time())
    file.close()
    return digest.hexdigest()


last = 0.0
print("step 1", flush=True)
for step in range(TRIES):
    kind = ("place", "moved", "folder", "short", "last")[step % 5]
    path = f"out/{kind}-{step}.pt"
    if kind == "folder":
        path = f"out/checkpoint-{step}"
        os.mkdir(path)
        for name in ("a.pt", "b.pt", "c.pt"):
            tell("part", f"{path}/{name}", write(f"{path}/{name}", 1 / 3))
        digest = ""
    elif kind == "last":
        path = "out/last.pt"
        if last:
            time.sleep(max(0, last + STAYS - time.time()))
            tell("gone", path)
        digest = write(path, halts=True)
    elif kind == "moved":
        digest = write(f"out/.{step}.tmp")
        tell("part", f"out/.{step}.tmp", digest)
        os.rename(f"out/.{step}.tmp", path)
    else:
        digest = write(path, halts=kind == "place")
    tell("complete", path, digest)
    if kind == "last":
        last = time.time()
    elif kind == "short":
        going[path] = time.time() + chance.uniform(0.1, 9)
    elif step < TRIES - 2:
        going[path] = time.time() + STAYS
time.sleep(STAYS)
remove(time.time())
""".replace("STAYS", str(STAYS_S))


@dataclass
class Watched:
    """What the box says it saved, and what arrived here."""

    rented: Rented
    sound: dict[str, set[str]] = field(default_factory=dict)
    """Valid digests of each path."""
    arrived: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each path with a digest got its name here."""
    gone: set[str] = field(default_factory=set)
    """What was removed on the box; removed here too once seen, to save disk space."""
    _seen: set[tuple[Path, int, int]] = field(default_factory=set)

    @property
    def out(self) -> Path:
        (box,) = (self.rented.user.place / "boxstrap-results").glob("*/train-1")
        return box / "out"

    def journal(self) -> list[tuple[str, str, str, float]]:
        lines = self.rented.box.read("/journal").splitlines()
        words = (line.split("\t") for line in lines if line.count("\t") == 3)
        found = [(word, path, digest, float(when)) for word, path, digest, when in words]
        for word, path, digest, _ in found:
            if word == "gone":
                self.gone.add(path)
            if word != "gone" and digest:
                self.sound.setdefault(path, set()).add(digest)
        return found

    def look(self) -> None:
        """Check that each file with its final name here was complete on the box."""
        files = [path for path in self.out.rglob("*") if path.is_file()]
        states = {path: path.stat() for path in files}
        for path, state in states.items():
            key = (path, state.st_ino, state.st_ctime_ns)
            if key not in self._seen:
                self._seen.add(key)
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                name = f"out/{path.relative_to(self.out)}"
                if digest not in self.sound.get(name, ()):
                    self.journal()
                assert digest in self.sound.get(name, ()), f"{name} is torn"
                self.arrived[name, digest] = state.st_ctime
            elif path.parent == self.out and f"out/{path.name}" in self.gone - {"out/last.pt"}:
                path.unlink()
        for folder in self.out.glob("checkpoint-*"):
            if len(list(folder.iterdir())) < 3:  # its files get their names one after the other
                time.sleep(0.5)
                assert len(list(folder.iterdir())) == 3, f"half of {folder.name} is here"

    def late(self) -> dict[str, float]:
        """Return seconds from completion to arrival, of each checkpoint that stayed."""
        journal, waits = self.journal(), {}
        for word, path, digest, when in journal:
            ends = [at for what, of, _, at in journal if (what, of) == ("gone", path) and at > when]
            if word != "complete" or min(ends, default=when + 99) - when < WITHIN_S:
                continue
            parts = (
                {(path, digest)}
                if digest
                else {
                    (part, mark) for what, part, mark, _ in journal if part.startswith(f"{path}/")
                }
            )
            came = [self.arrived.get(part, float("inf")) for part in parts]
            waits[f"{path} {when:.0f}"] = max(came) - when
        return waits


def test_pull_watch_brings_whole_checkpoints_in_time_while_a_training_replaces_and_moves_them(
    rent: Rent, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    tries = request.config.getoption("tries")
    is_usual = tries < 10
    size, pace = (16, 1.0) if is_usual else (200, 6.0)
    rented = rent("vast", used=True)
    profile = PROFILE.format(
        tries=5 if is_usual else 2 * tries, size=size, pace=pace, chance=seeded.random()
    )
    rented.user.repository(boxstrap__yaml=profile, save__py=SAVE)
    rented.run("setup").must(0)
    watched = Watched(rented)
    with faults.attempt("checkpoints replaced, moved, deleted", at="pull --watch") as attempt:
        going = rented.begin("pull", "--watch")
        going.await_said("watching train-1")
        while going.process.poll() is None:
            watched.journal()
            watched.look()
            time.sleep(0.25)
        ended = going.end()
        ended.must(0)
        watched.look()
        waits = watched.late()
        assert len(waits) >= (3 if is_usual else tries)
        attempt.noticed(max(waits.values()))
        print(sorted(waits.values()))
        assert max(waits.values()) < WITHIN_S * slowness(), waits
