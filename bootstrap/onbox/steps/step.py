"""A step of a setup: whether it is right, and how it becomes so. A class each, in a file of its
name: what it depends on (`inputs`), whether the box still is as it was left (`check`), and what
makes it so (`apply`).

A step is skipped only if its inputs are those of its last success, which its stamp has as text, and
its check agrees.
"""

from __future__ import annotations

import os
from functools import cached_property
from importlib import import_module

from ..git import BoxTree
from ..quoted import quoted
from ..run_folder import alive_in, lines_of, write_whole
from ..values import Values

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Mapping, Sequence

    from ..python.environment import BoxEnvironment

SKIPPED = ("done", "alive", "died", "failed")
"""Why a step is left as it is."""


class SetupFacts:
    """What the steps are told, see `WantedSetup`."""

    def __init__(
        self, tree: BoxTree, values: Values, asked: Mapping[str, str], steps: Sequence[str]
    ) -> None:
        self.tree, self.home, self.values = tree, tree.home, values
        self._asked, self._steps = asked, steps
        self.folder = self.one("setup")

    def one(self, name: str) -> str:
        return self._asked.get(name, "")

    def has(self, step: str) -> bool:
        """Whether it is one of those that are done."""
        return step in self._steps

    def is_asked(self, step: str) -> bool:
        return step in f"{self.one('only')},{self.one('redo')}".split(",")

    @property
    def variables(self) -> list[str]:
        """The profile's: their names, then their values."""
        return [*(self.values.env_names or [""]), *(self.values.env_values or [""])]

    @cached_property
    def environment(self) -> BoxEnvironment:
        """That of its tree; for a tree beside, once its files are placed."""
        from ..python.environment import BoxEnvironment  # late: few steps ask

        places = self.one("main"), self.one("main_venv")
        environment = BoxEnvironment(self.values, self.tree, *places)
        environment.share(is_cell="BOXSTRAP_CELL=" in self.one("variables"))
        return environment

    @cached_property
    def alive_run(self) -> str:
        """The live run that has this tree: in a setup, since that began."""
        if "alive" in self._asked:
            return self.one("alive")
        found = alive_in(self.home, self.tree.key, self.tree.path)
        return found.path if found else ""


class BoxStep:
    """One of them, in a setup."""

    is_of_tree = False
    """Whether its stamp belongs to one tree of a repository."""

    def __init__(self, setup: SetupFacts) -> None:
        self.setup, self.home, self.values = setup, setup.home, setup.values

    @property
    def name(self) -> str:
        return type(self).__name__[: -len("Step")].lower()

    @property
    def stamp(self) -> str:
        folder = self.setup.tree.notes if self.is_of_tree else f"{self.home}/steps"
        return f"{folder}/{self.name}.ok"

    def inputs(self) -> str:
        """Return what it depends on, as text."""
        return quoted("v1")

    def check(self) -> bool:
        """Whether the box is as it was left; looks only."""
        raise NotImplementedError

    def apply(self) -> None:
        """Do it. Raises StepError, OSError."""
        raise NotImplementedError

    def why(self) -> str:
        """Say why it runs: asked, new, broken, or what changed; or why not, a word of SKIPPED."""
        reason = self.reason()
        if not reason and (right := self.why_right()):
            return right
        return "alive" if self.is_left_alone() else reason or "broken"  # just now

    def reason(self) -> str:
        """Say why it would run; "" if it is right."""
        if self.is_asked():
            return "asked"
        noted = lines_of(self.stamp)
        if not noted:
            return "new"
        if noted[0] != self.inputs():
            return self.what_changed(noted[0])
        try:
            return "" if len(noted) == 1 and self.check() else "broken"
        except OSError:  # what can't be read isn't as it was left
            return "broken"

    def is_asked(self) -> bool:
        return self.setup.is_asked(self.name)

    def what_changed(self, noted: str) -> str:  # noqa: ARG002 - for those that can tell
        """Say what differs from the inputs that were noted, in the user's words."""
        return "changed"

    def why_right(self) -> str:
        return "done"

    def is_left_alone(self) -> bool:
        """While a run is alive, its tree and environment stay as they are."""
        return self.is_of_tree and bool(self.setup.alive_run)

    @property
    def is_spoiled(self) -> bool:
        """Whether it ran since its last success, and did not succeed."""
        return "unfinished" in lines_of(self.stamp)

    def spoil(self) -> None:
        """Let its last success count no more. Its file stays: that of `repo` says whose a tree
        is."""
        if os.path.isfile(self.stamp) and not self.is_spoiled:
            with open(self.stamp, "a", encoding="ascii") as file:
                file.write("unfinished\n")

    def note_success(self) -> None:
        os.makedirs(os.path.dirname(self.stamp), exist_ok=True)
        write_whole(self.stamp, f"{self.inputs()}\n", 0o600)


def expanded(folder: str, *patterns: str) -> str:
    """Return what a shell makes of patterns in a folder, each name followed by a blank; of one that
    nothing fits, itself."""
    from glob import escape, glob  # late: few ask

    at, own = len(folder) + 1, escape(folder)
    found = (sorted(glob(f"{own}/{each}")) or [f"{folder}/{each}"] for each in patterns)
    return "".join(f"{path[at:]} " for paths in found for path in paths)


def step_named(name: str, setup: SetupFacts) -> BoxStep:
    made: BoxStep = getattr(import_module(f".{name}", __package__), f"{name.capitalize()}Step")(
        setup
    )
    return made
