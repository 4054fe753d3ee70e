"""The commands, by what they are for, and the module of each; one is imported when it is chosen."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.tasks.command import Command

_LISTED = {
    "First steps": "profiles.init setup.setup runs.logs runs.status runs.stop",
    "Before anything is built": "setup.plan setup.verify",
    "Runs and files": "runs.run files.sync files.push files.pull",
    "A run at work": "runs.wait runs.attach runs.shell runs.exec runs.top runs.report",
    "In your editor and browser": "boxes.code boxes.ssh-config boxes.tunnel",
    "Renting": "estimate.estimate renting.up renting.down boxes.lease boxes.guard",
    "What is there": "runs.runs boxes.boxes boxes.clean boxes.secrets setup.doctor "
    "profiles.profiles completion.completion",
    "Without SSH": "profiles.render profiles.oneliner",
    "For programs and agents": "programs.skill programs.mcp programs.schema",
    "To see it once": "setup.demo",
}
"""In the order in which they are listed, each with the module in which it is."""
FAMILIES = {title: re.findall(r"\.(\S+)", words) for title, words in _LISTED.items()}
_PLACES = re.findall(r"(\w+)\.(\S+)", " ".join(_LISTED.values()))
_MODULES = {name: module for module, name in _PLACES}
NAMES = tuple(_MODULES)


def find(name: str) -> Command:
    """Return the command of that name, one of `NAMES`."""
    import_module(f"bootstrap.tasks.{_MODULES[name]}")
    from bootstrap.tasks.command import COMMANDS

    return COMMANDS[name]
