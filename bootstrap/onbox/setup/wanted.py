"""What is asked for: the recipe of a script, and the words with which it was started.

`restart` starts the training again, `revive` does so if it died with the box, `resume` continues
such runs with their own commands; `queue=after:train-1` makes a new run wait for its turn;
`only=gpu,smoke` runs these steps and what they need, `without=gpu` leaves one out; `redo=prepare`
does a step again although it is right; `adopt` takes a tree that boxstrap did not make;
`overwrite` lets a run overwrite results that are not home; `beside` gives a new run a tree without
any. `run=ID` starts a new run whatever ran before, once for that id: `command=TEXT`,
`session=NAME`, `gpus=0,1`, `variables=TEXT`, a line NAME=VALUE each, both with `\\xNN` for each
byte; `nodes=ID` with those of other nodes, as `onbox/nodes/check.py` wrote down.
"""

from __future__ import annotations

import os

from ..git import BoxTree
from ..steps.step import SetupFacts
from ..work.repository import find_repository
from .recipe import read_recipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FLAGS = ("restart", "revive", "resume", "adopt", "overwrite", "beside")
_ENCODED = ("command", "variables")


class WantedSetup:
    def __init__(self, script: str, words: Iterable[str]) -> None:
        """`script`: the file that has the recipe."""
        recipe = read_recipe(script)
        self.steps, self.values, self._page = recipe.steps, recipe.values, recipe.page
        rows = (row.split() for row in self.values.needs)
        self._needs = {step: needs for step, *needs in rows}
        self.asked = dict.fromkeys(
            (*_FLAGS, "queue", "run", "gpus", "variables", "nodes", "redo", "only"), ""
        )
        for word in words:
            self._take(*word.partition("=")[::2])
        self.workdir = _expanded(self.values.workdir)
        self.home = f"{self.workdir}/.boxstrap"
        self.grace_s = float(self.values.train_grace)
        """How long what is ended may take for that."""

    def _take(self, name: str, text: str) -> None:
        if name in _ENCODED:
            text = os.fsdecode(bytes.fromhex(text.replace("\\x", "")))
        if name == "run":
            self._add_training()
        if name in ("command", "session"):
            setattr(self.values, f"train_{name}", text)
        elif name == "without":
            self.steps = [step for step in self.steps if step != text]
        elif name in self.asked:
            self.asked[name] = "yes" if name in _FLAGS else text
        if name == "only":
            kept = {each for step in text.split(",") for each in self._closure(step)}
            self.steps = [step for step in self.steps if step in kept]

    def _add_training(self) -> None:
        """A run may be asked for although the profile has no training of its own."""
        if "train" not in self.steps:
            self._needs["train"] = [*self.steps]
            self.steps.append("train")

    def _closure(self, step: str) -> set[str]:
        return {step}.union(*map(self._closure, self._needs[step]))

    def needs(self, step: str) -> list[str]:
        """Return the steps of this setup that must have succeeded before one."""
        return [each for each in self._needs[step] if each in self.steps]

    def repository(self) -> tuple[str, str]:
        """Return the key that the repository has on this box, and its folder."""
        values = self.values
        return find_repository(self.home, values.repo_key, values.repo_root, values.repo_name)

    def facts(self, tree: BoxTree, main: str, **more: str) -> SetupFacts:
        """Return what the steps are told of this tree, whose repository has the folder `main`."""
        asked = {**self.asked, "id": self.asked["run"], "nodes_id": self.asked["nodes"]}
        asked["queue"] = asked["queue"].replace(":", " ", 1)
        places = {"main": main, "main_venv": os.path.join(main, _expanded(self.values.venv))}
        places.update(usual=f"{self.workdir}/{self.values.repo_name}", page=self._page)
        return SetupFacts(tree, self.values, {**asked, **places, **more}, self.steps)


def _expanded(path: str) -> str:
    """Return a path of the profile as the box needs it: `~/` is the box's home, the rest is
    literal."""
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
