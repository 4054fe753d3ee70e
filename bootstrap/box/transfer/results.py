"""Report a run's results: which files there are, and which of them are complete."""

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
"""Notes of a run that come from its profile."""


class ResultReporter:
    """Handles the request `results`: the first answer has all files, later ones what changed."""

    def __init__(self, home: bytes, say: Callable[..., None], beat: Callable[[], None]) -> None:
        """`beat` is called repeatedly while a look takes long."""
        self.home, self.say, self.beat = os.fsdecode(home), say, beat
        self.looker: CompleteFiles | None = None
        self.told: dict[str, ResultFile] = {}
        self.left_out: list[LeftOut] = []
        self.noted = 0.0

    def results(self, request: dict[str, Any]) -> None:
        """Send frames with `files`, each [path, why, checkpoint, *state]; the last one ends it."""
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
        """Note the other files while a large one is read: that counts as part of their wait."""
        if self.looker is not None and time.monotonic() - self.noted > EVERY_S:
            self.looker.note()
            self.noted = time.monotonic()
        self.beat()

    def begin(self, request: dict[str, Any]) -> None:
        """Read the run's notes; earlier versions noted no paths, so the request has them too."""
        run = os.path.join(self.home, "runs", request["run"])
        self.tree = "".join(lines_of(os.path.join(run, "dir"))[:1]) or request["tree"]
        self.paths = lines_of(os.path.join(run, "results")) or request["paths"]
        noted = "".join(f"{name}\0{lines_of(os.path.join(run, name))}\n" for name in OF_PROFILE)
        self.profile = hashlib.sha256(noted.encode("utf-8", "surrogateescape")).hexdigest()
        self.looker = CompleteFiles(self.tree, self.paths, stood_s=request["stood_s"])
        self.looker.between = self.beat


def lines_of(path: str) -> list[str]:
    """Return the lines of a file; none if it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []
