"""The commands, by what they are for, and the module of each; one is imported when it is chosen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.tasks.command import Command

FAMILIES = {
    "First steps": {
        "init": "profiles",
        "setup": "setup",
        "logs": "runs",
        "status": "runs",
        "stop": "runs",
    },
    "Before anything is built": {"plan": "setup", "verify": "setup"},
    "Runs and files": {"run": "runs", "sync": "files", "push": "files", "pull": "files"},
    "A run at work": {
        "wait": "runs",
        "attach": "runs",
        "shell": "runs",
        "exec": "runs",
        "top": "runs",
        "report": "runs",
    },
    "In your editor and browser": {"code": "boxes", "ssh-config": "boxes", "tunnel": "boxes"},
    "Renting": {
        "estimate": "estimate",
        "up": "renting",
        "down": "renting",
        "lease": "boxes",
        "guard": "boxes",
    },
    "What is there": {
        "runs": "runs",
        "boxes": "boxes",
        "clean": "boxes",
        "secrets": "boxes",
        "doctor": "setup",
        "profiles": "profiles",
        "completion": "completion",
    },
    "Without SSH": {"render": "profiles", "oneliner": "profiles"},
    "For programs and agents": {"skill": "programs", "mcp": "programs", "schema": "programs"},
    "To see it once": {"demo": "setup"},
}
"""In the order in which they are listed, with the module in which each is."""
_MODULES = {name: module for family in FAMILIES.values() for name, module in family.items()}
NAMES = tuple(_MODULES)


def find(name: str) -> Command:
    """Return the command of that name, one of `NAMES`."""
    import_module(f"bootstrap.tasks.{_MODULES[name]}")
    from bootstrap.tasks.command import COMMANDS

    return COMMANDS[name]
