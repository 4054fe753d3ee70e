"""git's own programs, asked about a repository in which anybody may have set anything: none of its
hooks, monitors of files and transports runs, and none of this process's variables leads elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .run_folder import RunFolder, names_in

_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "gc.auto=0"),
    *("maintenance.auto=false", "core.bigFileThreshold=64m", "safe.directory=*"),
)
_VARIABLES = {
    **{"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ""},
    **{"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_LITERAL_PATHSPECS": "1"},
}


class BoxGit:
    """git on one folder of its own, perhaps with the files of a tree. All raise OSError."""

    def __init__(self, folder: str, tree: str = "", objects: str = "") -> None:
        """`objects`: a folder with more of them, in case this one lost some."""
        self.folder, self._tree = folder, tree
        settings = [word for one in _SETTINGS for word in ("-c", one)]
        self.command = ["git", *settings, f"--git-dir={folder}"]
        self.command += [f"--work-tree={tree}"] if tree else []
        kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        self.variables = {**kept, **_VARIABLES}
        if objects:
            self.variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = objects

    def ask(self, *words: str, given: bytes = b"") -> str:
        """Return what it prints. Raises OSError if it fails."""
        import subprocess  # slow to import, and a run's own programs load this

        said = subprocess.run(
            [*self.command, *words],
            cwd=self._tree or self.folder,
            env=self.variables,
            input=given,
            capture_output=True,
            check=False,
        )
        if said.returncode:
            raise OSError(os.fsdecode(said.stderr))
        return os.fsdecode(said.stdout)

    def paths(self, *words: str) -> list[str]:
        """Return the paths that it prints, each ended by a NUL."""
        return self.ask(*words).split("\0")[:-1]

    def lines(self, *words: str) -> list[str]:
        """Return its lines: names may have other ends of lines in them."""
        return self.ask(*words).split("\n")[:-1]

    def id_of(self, name: str) -> str:
        """Return the id of an object; "" if there is none."""
        try:
            return self.ask("rev-parse", "-q", "--verify", name).strip()
        except OSError:
            return ""


class BoxTree:
    """A tree of a repository, the main one or one beside it, and what boxstrap notes of it."""

    def __init__(self, home: str, key: str, path: str, number: str = "1") -> None:
        self.home, self.key, self.path, self.number = home, key, path, number
        self.steps = f"{home}/steps/{key}"
        self.notes = self.steps if number == "1" else f"{self.steps}/beside/{number}"
        self.objects = f"{path}/.git/objects"
        self.work = BoxGit(f"{path}/.git", path)
        """The user's git."""
        self.placed = BoxGit(f"{self.notes}/placed", path, self.objects)
        """What boxstrap placed, byte for byte; what the store lost, the user's git has."""
        self.store = BoxGit(f"{home}/store/{key}.git", objects=self.objects)
        """What was sent to this box."""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def note(self, name: str) -> str:
        """Return the first line of a note about the repository; "" if there is none."""
        return RunFolder(self.steps).first(name)


def trees_of(home: str, keys: Sequence[str] = ()) -> list[BoxTree]:
    """Return all trees of a box, or of some repositories: the main one, then those beside it."""
    found = []
    for key in keys or names_in(f"{home}/steps"):
        notes = RunFolder(f"{home}/steps/{key}")
        if not notes.has("repo.key"):
            found.append(BoxTree(home, key, notes.first("repo.dir")))
            for number in names_in(f"{notes.path}/beside"):
                path = RunFolder(f"{notes.path}/beside/{number}").first("repo.dir")
                found.append(BoxTree(home, key, path, number))
    return [tree for tree in found if tree.path]
