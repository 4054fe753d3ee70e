"""What a setup tells: a line of `events.jsonl` for each event, and its state. The engine alone
writes; steps report to it through a pipe."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress

from ..run_folder import lines_of, write_whole

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_VERSIONS = ("need", "have")


class SetupEvents:
    def __init__(self, folder: str, setup: str) -> None:
        """`folder`: the setup's own."""
        self._folder, self._setup = folder, setup
        self._path = f"{folder}/events.jsonl"
        told = [json.loads(line) for line in lines_of(self._path)]
        self._count = len(told)
        self.begun = {event["step"] for event in told if event["event"] == "start"}
        """The steps that brought the Python in which this runs."""

    def write(self, step: str, event: str, *pairs: str) -> None:
        """`pairs`: KEY=VALUE each. Numbers stay bare, but for versions."""
        self._count += 1
        about: dict[str, object] = {"v": 1, "setup": self._setup, "seq": self._count}
        about.update(t=time.time(), step=step, event=event)
        for name, _, value in (pair.partition("=") for pair in pairs):
            is_number = _NUMBER.fullmatch(value) and not (name in _VERSIONS and "." in value)
            about[name] = (float if "." in value else int)(value) if is_number else value
        with suppress(OSError), open(self._path, "a", encoding="ascii") as file:  # a full disk
            file.write(_line(about))

    def note_state(self, script: str, state: str, code: int) -> None:
        """Write what `status` and a second setup read."""
        about = {"v": 1, "setup": self._setup, "script": script, "state": state, "exit": code}
        with suppress(OSError):
            write_whole(f"{self._folder}/status.json", _line({**about, "t": time.time()}), 0o600)


def _line(about: dict[str, object]) -> str:
    return json.dumps(about, separators=(",", ":")) + "\n"
