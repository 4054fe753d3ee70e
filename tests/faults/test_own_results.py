"""Runs one after another in one tree, with kills at any moment: each result that was there when its
run ended is at home or on the box, under its own run's name, byte for byte.

The box is this machine: its programs keep and report the results, and a pull reads them as always.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bootstrap.link import LocalWire
from bootstrap.onbox import MAIN
from bootstrap.onbox.results.complete_files import FileState
from bootstrap.onbox.results.keep_results import clean_copies
from bootstrap.onbox.results.run_results import digest_of
from bootstrap.transfer.frames import BoxLook, BoxResults, GivenFile, Transfer, WantedFile
from tests.faults.plugin import Faults

PARTS = 4
"""With 50 tries each, 200 sequences."""
KEY = "homework-01234567"


class ResultsBox:
    """A tree, its runs, and what came home of each."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self.place, self.chance = place, chance
        self.out = place / "tree/out"
        self.out.mkdir(parents=True)
        self.made: dict[str, dict[str, bytes]] = {}
        """What each run had made when it ended."""
        self.home: dict[str, dict[str, bytes]] = {}
        self.did: list[str] = []

    def folder(self, name: str) -> Path:
        return self.place / f".boxstrap/runs/{KEY}/{name}"

    def keep(self, *words: str, kill: bool = False) -> int:
        """Run the box's program; with `kill`, kill it at some moment."""
        argv = [sys.executable, "-I", "-S", "-B", MAIN, "results.keep_results", *words]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            if kill:
                time.sleep(self.chance.uniform(0, 0.15))
                process.send_signal(signal.SIGKILL)
            return process.wait()

    def keep_ahead(self) -> None:
        """Have earlier results copied ahead, by a process that may be killed at any moment."""
        words = [str(self.folder("")), f"{self.place}/tree", ["out/"]]
        program = f"from bootstrap.onbox.runs.start import keep_ahead; keep_ahead(*{words})"
        argv = [sys.executable, "-S", "-B", "-c", program]
        no = subprocess.DEVNULL
        with subprocess.Popen(argv, stdin=no, stdout=no) as process:
            if self.chance.random() < 0.5:
                time.sleep(self.chance.uniform(0, 0.15))
                process.send_signal(signal.SIGKILL)

    def run(self) -> None:
        """Begin a run, let it write, and end it in some way; it may be killed and begun again."""
        name = f"train-{len(self.made) + 1}"
        run = self.folder(name)
        run.mkdir(parents=True)
        (run / "dir").write_text(f"{self.place}/tree\n")
        (run / "results").write_text("out/\n")
        while self.chance.random() < 0.3:
            self.keep("begin", str(run), kill=True)
        if self.chance.random() < 0.5:
            self.keep_ahead()
        assert self.keep("begin", str(run)) == 0
        (run / "pid").write_text("1 2 x\n")
        touched = {self.write() for _ in range(self.chance.randrange(1, 5))}
        there = self.contents()
        self.made[name] = {p: there[p] for p in touched if p in there}
        end = self.chance.choice(("exit", "exit", "killed", "died"))
        if end != "died":
            (run / "exit").write_text("0\n")
            self.keep("end", str(run), kill=end == "killed")
        self.did.append(f"{name} {end}")

    def contents(self) -> dict[str, bytes]:
        files = (one for one in self.out.rglob("*") if one.is_file())
        return {f"out/{one.relative_to(self.out)}": one.read_bytes() for one in files}

    def write(self) -> str:
        """Write to a result as programs do; return its path."""
        file = self.out / self.chance.choice(("ckpt", "log", "best", "deep/a"))
        file.parent.mkdir(exist_ok=True)
        content = self.chance.randbytes(self.chance.choice((0, 7, 7, 7, 100_000)))
        how = self.chance.choice(("in place", "append", "rename", "remove", "same time"))
        found = file.stat() if file.exists() else None
        if how == "rename":
            new = file.with_name(f"{file.name}.new")
            new.write_bytes(content)
            new.replace(file)
        elif how == "remove":
            file.unlink(missing_ok=True)
        else:
            with file.open("ab" if how == "append" else "wb") as out:
                out.write(content or b"0"[: how == "append"])  # adding nothing changes nothing
            if how == "same time" and found:  # only its ctime tells
                os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        return f"out/{file.relative_to(self.out)}"

    def results(self, name: str) -> tuple[BoxLook, dict[str, bytes]]:
        """Return what the box says of a run's results, and their contents."""
        with Transfer(LocalWire(), str(self.place)) as transfer:
            source = BoxResults(transfer, "box", f"{KEY}/{name}", "", (), stood_s=0.0)
            look = source.look(live=False)
            wanted = [WantedFile(one, 0) for one in look.files.values() if one.kind != "after"]
            contents = {one.file.path: b"" for one in wanted}
            for one, item in source.get(wanted):
                if isinstance(item, bytes):
                    contents[one.file.path] += item
                elif isinstance(item, GivenFile):
                    assert not item.problem
                    contents[one.file.path] += item.piece
        return look, contents

    def pull(self) -> None:
        """Bring a run's results home; the box is told if that was all."""
        if not self.made:
            return
        name = self.chance.choice(list(self.made))
        look, contents = self.results(name)
        self.home[name] = {**self.home.get(name, {}), **contents}
        if not look.lost:
            states = {p: FileState(*look.files[p].state) for p in contents}
            (self.folder(name) / "results.home").write_text(f"{digest_of(states)}\n")
        self.did.append(f"pull {name}")

    def clean(self) -> None:
        clean_copies(str(self.place / ".boxstrap"), look=False)
        self.did.append("clean")

    def check(self) -> None:
        """Compare what can be had of each run with what it had made."""
        for name, made in self.made.items():
            _, contents = self.results(name)
            for path, content in contents.items():
                assert made.get(path) == content, (name, path, "of another run", self.did)
            for path, content in made.items():
                had = (contents.get(path), self.home.get(name, {}).get(path))
                assert content in had, (name, path, "lost", self.did)


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_runs_killed_at_any_moment_in_one_tree_never_get_each_others_results(
    part: int, tmp_path: Path, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    seed = seeded.random()
    for number in range(request.config.getoption("tries")):
        chance = random.Random(f"{seed} {part} {number}")
        box = ResultsBox(tmp_path / str(number), chance)
        with faults.attempt("runs one after another", at="any moment") as attempt:
            for _ in range(chance.randrange(4, 10)):
                chance.choice((box.run, box.run, box.run, box.pull, box.clean))()
            box.check()
            attempt.outcome("each result its own")
