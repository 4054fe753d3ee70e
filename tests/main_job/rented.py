"""A rented box, and what a test can ask of it."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.boxes import RigBox, environment_probe
from tests.cli import Completed, Running, User
from tests.programs import captured

PLACES = ("/root", "/home", "/workspace", "/etc")


@dataclass
class Rented:
    """`user` has rented `box`; all of the user's commands are for it."""

    user: User
    box: RigBox
    program: str = field(default="boxstrap", kw_only=True)

    def begin(self, task: str, *arguments: str, host: str | None = None, **env: str) -> Running:
        """Start a task for this box, without waiting for its end."""
        there = ["--host", host or self.box.host_string, "--identity", str(self.box.identity)]
        return self.user.begin(task, *there, *arguments, program=self.program, **env)

    def run(self, task: str, *arguments: str, host: str | None = None, **env: str) -> Completed:
        """Run a task for this box and wait for its end."""
        return self.begin(task, *arguments, host=host, **env).end()

    def ssh(self, *command: str) -> str:
        """Run a command with the real ssh; its output."""
        done = captured(self.box.ssh_command(*command), stdin=subprocess.DEVNULL, timeout=120)
        return done.stdout

    def as_user(self, command: str) -> str:
        """Run a command as the box's user, not through ssh; its output."""
        user = self.box.user
        return self.box.run(command, user=None if user == "root" else user)

    def listing(self) -> str:
        """Everything that a setup could change."""
        return self.box.listing([place for place in PLACES if self.box.exists(place)])

    @property
    def folder(self) -> str:
        """boxstrap's folder on the box."""
        return self.box.real(f"{self.box.home}/.boxstrap")

    @property
    def tree(self) -> str:
        """The repository's folder on the box."""
        return f"{self.folder.removesuffix('/.boxstrap')}/{self.user.place.name}"

    def environments(self) -> dict[str, dict[str, str]]:
        """The variables that each kind of shell, and a training, have on the box."""
        probe = "/tmp/environment_probe.py"
        self.box.write(probe, Path(environment_probe.__file__).read_text())
        python = f"{self.folder}/agent/bin/python"
        said = self.ssh(f"{python} -I -S {probe} {self.folder} {self.tree}")
        found: dict[str, dict[str, str]] = json.loads(said.splitlines()[-1])  # banners are first
        return found

    def runs(self) -> list[str]:
        """The names of all runs that were ever started."""
        place, folders = f"{self.folder}/runs", self.box.folders
        return sorted(name for key in folders(place) for name in folders(f"{place}/{key}"))

    def trainings(self) -> int:
        """How many trainings are alive: processes that run `train.py`."""
        return int(self.box.run("pgrep -fc 'bin/python [t]rain.py'", check=False).strip() or 0)

    def status(self) -> dict[str, Any]:
        """What `status --json` says."""
        return self.run("status", "--json").must(0).json()

    def planned(self, *words: str) -> dict[str, str]:
        """The steps that would run, and why."""
        steps = self.run("plan", "--json", *words).must(0).json()["steps"]
        return {row["step"]: row["why"] for row in steps if row["runs"]}


class SeveralBoxes:
    """Boxes of one user, by name; all of the user's commands have their key."""

    def __init__(self, user: User, boxes: dict[str, RigBox]) -> None:
        self.user, self.boxes = user, boxes
        self.identity = str(next(iter(boxes.values())).identity)

    def begin(self, task: str, *words: str) -> Running:
        return self.user.begin(task, "--identity", self.identity, *words)

    def run(self, task: str, *words: str) -> Completed:
        return self.begin(task, *words).end()
