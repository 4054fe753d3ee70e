"""The environment of a tree: what a profile wants of it, where it is, and whether it is right."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cached_property
from glob import escape, glob

from ..git import BoxTree
from ..quoted import quoted
from ..run_folder import RunFolder, is_in_tree, lines_of, live_runs
from ..values import Values
from ..work.trees import is_user
from .sources import Sources, find_sources


class BoxEnvironment:
    """That of a tree. `mains` is the main tree's."""

    def __init__(self, values: Values, tree: BoxTree, main: str, mains: str) -> None:
        self.values, self.tree, self._main, self._mains = values, tree, main, mains
        venv = values.venv
        self._is_everyones = venv.startswith(("/", "~"))
        """Whether the profile says where it is: then all trees share it."""
        is_mains = self._is_everyones or tree.number == "1"
        self.folder = mains if is_mains else f"{tree.path}/{venv}"
        self.notes = tree.steps if is_mains else tree.notes

    @property
    def python(self) -> str:
        return f"{self.folder}/bin/python"

    @property
    def packages(self) -> list[str]:
        """Where its packages are."""
        return sorted(glob(f"{escape(self.folder)}/lib/python*/site-packages"))

    def noted(self, name: str) -> str:
        return f"{self.notes}/python.{name}"

    @cached_property
    def sources(self) -> Sources:
        return find_sources(self.tree.path, self.values)

    def share(self, *, is_cell: bool) -> None:
        """Use the main tree's, once this tree's files are placed, if it is right, made from the
        same, and does not contain the repository itself. What a sweep's cells need is made there,
        if no run uses that: once, not for each."""
        own = self.folder, self.notes
        if own[0] == self._mains:
            return
        self.folder, self.notes = self._mains, self.tree.steps
        is_made = self.inputs in lines_of(self.noted("ok")) and self.is_right()
        if self.sources.holds_project or not (is_made or (is_cell and not self._is_held())):
            self.folder, self.notes = own

    def _is_held(self) -> bool:
        key, main = self.tree.key, self._main
        live = live_runs(self.tree.home)
        return any(is_in_tree(run, key, main) or is_user(run, main) for run in live)

    @cached_property
    def _words(self) -> tuple[list[str], list[str]]:
        """What comes before driver and files in its inputs, and what comes after. The main tree's
        path: it makes no difference to the work in which tree it runs."""
        values = self.values
        own = [values.python_version, values.installer, values.torch_backend]
        added = [*values.added_arguments, *values.built_last, *values.python_index]
        added += [values.as_of] if values.as_of else []
        return ["v1", self._mains, *own, *(values.extras or [""])], added

    @property
    def chosen(self) -> str:
        """What of its inputs the user chose."""
        return quoted(*self._words[0], *self._words[1])

    @cached_property
    def inputs(self) -> str:
        before, after = self._words
        sums, built = self.sources.sums, self.built
        # In a shared environment each tree has its own link to the project.
        if self._is_everyones and self.tree.number != "1" and self.sources.holds_project:
            sums += f" {self.tree.path}"
        return quoted(*before, self.driver, sums, *after) + (f"{built} " if built else "")

    @property
    def driver(self) -> str:
        """The one that NVML saw; it decides which build of torch fits."""
        return "\n".join(lines_of(f"{self.tree.home}/gpu.driver"))

    @cached_property
    def built(self) -> str:
        """A digest of what the builds read, with all files of a folder of which a copy is
        installed; "" if there is nothing of it."""
        copied = [self.tree.placed.id_of(f"HEAD:{folder}") for folder in self.sources.copied]
        if not copied:
            return self.sources.built
        lines = "".join(f"{line}\n" for line in (self.sources.built, *filter(None, copied)))
        return hashlib.sha256(lines.encode()).hexdigest()

    def is_right(self) -> bool:
        """uv does not notice a package whose files are gone; the folders noted by the last build
        show it."""
        if self.values.reuse == "never" and os.path.exists(self.noted("reused")):
            return False
        return (
            not self.has_other_python()
            and os.access(self.python, os.X_OK)
            and not os.path.exists(self.noted("building"))
            and os.path.isfile(self.noted("folders"))
            and self._is_all_there()
        )

    def _is_all_there(self) -> bool:
        try:
            for name in lines_of(self.noted("folders")):
                os.lstat(f"{self.folder}/{name}")
        except OSError:
            return False
        return True

    def listed(self) -> list[str]:
        """Return all folders of packages, and the files next to them, sorted, since boxes are
        compared."""
        found: list[str] = []
        for site in self.packages:
            for folder, folders, files in os.walk(site):
                folders[:] = [name for name in folders if name != "__pycache__"]
                found += [folder, *(f"{site}/{name}" for name in files if folder == site)]
        return sorted((path[len(self.folder) + 1 :] for path in found), key=os.fsencode)

    @property
    def is_ours(self) -> bool:
        """Whether boxstrap made it for this repository alone: then it is made to match. An adopted
        or shared one only gains."""
        steps = glob(f"{escape(self.tree.home)}/steps/*/python.venv")
        others = [path for path in steps if path.split("/")[-2] != self.tree.key]
        return os.path.isfile(f"{self.folder}/.boxstrap") and not any(
            self.folder in lines_of(path) for path in others
        )

    @cached_property
    def wanted_version(self) -> str:
        """What the profile wants, or else the repository's .python-version, of which only plain
        numbers are read; "" if neither wants one."""
        file = f"{self.tree.path}/.python-version"
        lines = [line.strip() for line in (lines_of(file) if os.path.isfile(file) else ())]
        first = next((line for line in lines if line and not line.startswith("#")), "")
        plain = first if re.fullmatch(r"[0-9]+(\.[0-9]+)*", first) else ""
        return self.values.python_version or plain

    def has_other_python(self) -> bool:
        """Whether it is ours, and has another Python than is wanted."""
        if self.values.conda or not self.wanted_version:
            return False
        text = "\n".join(RunFolder(self.folder).lines("pyvenv.cfg") or [])
        found = re.search(r"version(?:_info)? = ([0-9.]+)", text)
        return found is not None and not fits(found[1], self.wanted_version) and self.is_ours


def fits(version: str, wanted: str) -> bool:
    return f"{version}.".startswith(f"{wanted}.")
