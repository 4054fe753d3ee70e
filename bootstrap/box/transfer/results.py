"""Tells a run's results: which files there are, and which of them are complete."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

from .complete_files import CompleteFiles, LeftOut, ResultFile

AT_ONCE = 250  # files in a frame
EVERY_S = 1.0
OF_PROFILE = ("command", "made_of", "results", "resume", "grace", "log_max")
"""What is noted of a run that its profile said."""


class ResultTeller:
    """The request `results`: all there is at first, then what is other than it was told last."""

    def __init__(self, home: bytes, say: Callable[..., None], beat: Callable[[], None]) -> None:
        """`beat` is called again and again while a look takes long."""
        self.home, self.say, self.beat = os.fsdecode(home), say, beat
        self.looker: CompleteFiles | None = None
        self.told: dict[str, ResultFile] = {}
        self.left_out: list[LeftOut] = []
        self.noted = 0.0

    def results(self, request: dict[str, Any]) -> None:
        """Frames with `files`, each as [path, why, checkpoint, *state]; the last one ends it."""
        if self.looker is None:
            self.begin(request)
        assert self.looker is not None  # noqa: S101 - for the type checker
        look = self.looker.look(live=request["live"])
        self.noted = time.monotonic()
        now = {file.path: file for file in look.files}
        rows = [
            [file.path, file.why, file.checkpoint, *file.state]
            for file in look.files
            if self.told.get(file.path) != file
        ]
        for at in range(0, len(rows), AT_ONCE):
            self.say({"files": rows[at : at + AT_ONCE]})
        gone = [path for path in self.told if path not in now]
        for at in range(0, len(gone), AT_ONCE):
            self.say({"gone": gone[at : at + AT_ONCE]})
        same = look.left_out == self.left_out
        for at in range(0, 0 if same else len(look.left_out), AT_ONCE):
            self.say({"left": look.left_out[at : at + AT_ONCE]})
        self.told, self.left_out = now, look.left_out
        about = {"tree": self.tree, "looked": self.paths, "profile": self.profile}
        self.say({**about, "left_as_before": same})

    def between(self) -> None:
        """While a large file is read: what else is there stands already, and need not wait anew."""
        if self.looker is not None and time.monotonic() - self.noted > EVERY_S:
            self.looker.note()
            self.noted = time.monotonic()
        self.beat()

    def begin(self, request: dict[str, Any]) -> None:
        """Where results lie is noted with the run; where no paths are, an earlier version did."""
        run = os.path.join(self.home, "runs", request["run"])
        self.tree = "".join(lines_of(os.path.join(run, "dir"))[:1]) or request["tree"]
        self.paths = lines_of(os.path.join(run, "results")) or request["paths"]
        noted = "".join(f"{name}\0{lines_of(os.path.join(run, name))}\n" for name in OF_PROFILE)
        self.profile = hashlib.sha256(noted.encode("utf-8", "surrogateescape")).hexdigest()
        self.looker = CompleteFiles(self.tree, self.paths, stood_s=request["stood_s"])
        self.looker.between = self.beat


def lines_of(path: str) -> list[str]:
    """Those of a file; none where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []
