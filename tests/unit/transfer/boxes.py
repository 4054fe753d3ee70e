"""This machine as a box that has a run with results, reached by the program sent to boxes."""

import dataclasses
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bootstrap.link import LocalWire
from bootstrap.onbox.transfer.frames import Bundle
from bootstrap.transfer import BoxResults, GivenFile, Transfer, WantedFile
from bootstrap.transfer.destination import PARTS, Destination
from bootstrap.transfer.frames import BoxFile, BoxLook
from bootstrap.transfer.manifest import PulledRecord
from bootstrap.transfer.puller import Puller, PullRound

KEY, RUN = "homework-01234567", "train-1"
PLENTY = 10**12
STOOD_S = 0.05
HOLDS = "import sys; files = [open(p, 'ab') for p in sys.argv[1:]]; print(flush=True); input()"


@dataclasses.dataclass
class ResultsHere:
    """A working folder with one run, and the folder that its results are pulled to."""

    workdir: Path
    home: Path
    wire: LocalWire
    results: Sequence[str] = ("out/",)

    def __post_init__(self) -> None:
        run = self.workdir / f".boxstrap/runs/{KEY}/{RUN}"
        run.mkdir(parents=True)
        (run / "pid").write_text("1 1 x\n")
        self.out.mkdir(parents=True)
        (run / "dir").write_text(f"{self.tree}\n")
        (run / "results").write_text("".join(f"{one}\n" for one in self.results))

    @property
    def tree(self) -> Path:
        return self.workdir / "homework"

    @property
    def out(self) -> Path:
        return self.tree / "out"

    def write(self, path: str, content: str | bytes = "x") -> Path:
        file = self.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def landing(self, run: str = RUN) -> Destination:
        return Destination(self.home, (), run)

    def record(self, run: str = RUN) -> PulledRecord:
        return PulledRecord(self.workdir / f"record-{run}.jsonl")

    @contextmanager
    def source(
        self, stood_s: float = STOOD_S, without: Sequence[str] | None = None
    ) -> Iterator[BoxResults]:
        run = f"{KEY}/{RUN}"
        with Transfer(self.wire, str(self.workdir)) as transfer:
            yield BoxResults(transfer, "box", run, "", (), stood_s=stood_s, without=without)

    @contextmanager
    def pulling(self, most: int = PLENTY, run: str = RUN) -> Iterator[Puller]:
        with self.landing(run) as landing, self.record(run) as record:
            yield Puller(landing, record, most=most)

    def pull(
        self, *, live: bool = False, most: int = PLENTY, run: str = RUN, ahead: bool = False
    ) -> PullRound:
        """Pull the files that stood unchanged for a moment; `ahead`: start reading before that."""
        with self.source() as source, self.pulling(most, run) as puller:
            if not ahead:
                source.look(live=live)
                time.sleep(1.2 * STOOD_S)
            return puller.round(source, live=live)

    def here(self) -> dict[str, bytes]:
        """The content of every file at home that has its final name, by path."""
        files = (path for path in self.home.rglob("*") if path.is_file() or path.is_symlink())
        named = {str(path.relative_to(self.home)): path for path in files}
        return {name: path.read_bytes() for name, path in named.items() if PARTS not in name}


class SaidResults:
    """A box that says anything of its results, and gives each file as its own path."""

    stood_s = 0.0

    def __init__(self, *rows: tuple[str, str]) -> None:
        self.files = {
            path: BoxFile(path, "", "", (1, n, len(to or path), 4, 5), "own", to)
            for n, (path, to) in enumerate(rows)
        }

    def look(self, *, live: bool) -> BoxLook:
        return BoxLook(dict(self.files))

    def get(self, wanted: Sequence[WantedFile]) -> Iterator[tuple[WantedFile, Any]]:
        for one in wanted:
            yield one, one.file.path.encode()
            yield one, GivenFile("", hashlib.sha256(one.file.path.encode()).hexdigest())


def pack_frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Encode one frame."""
    bundle = Bundle()
    bundle.add(header, body)
    return bundle.take()


@contextmanager
def held(*files: Path) -> Iterator[None]:
    """Run a process that has these files open for writing."""
    argv = [sys.executable, "-I", "-S", "-c", HOLDS, *map(os.fspath, files)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate(b"\n")
