"""git's own programs, asked about a repository in which anybody may have set anything: none of its
hooks, monitors of files and transports runs, and none of this process's variables leads elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .run_folder import RunFolder, lines_of, names_in, write_whole
from .short_program import ProgramEnd, run

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from typing import IO

_SETTINGS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "gc.auto=0"),
    *("maintenance.auto=false", "core.bigFileThreshold=64m", "safe.directory=*"),
    *("core.quotePath=true", "checkout.workers=0", "init.defaultBranch=main"),
)
_KEPT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_VARIABLES = {
    **{"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ""},
    **{"GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_LITERAL_PATHSPECS": "1"},
    **{"GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"},  # its messages are read
}


class BoxGit:
    """git on one folder of its own, perhaps with the files of a tree. All raise OSError."""

    def __init__(self, folder: str, tree: str = "", objects: str = "") -> None:
        """`objects`: a folder with more of them, in case this one lost some."""
        self.folder, self._tree = folder, tree
        settings = [word for one in _SETTINGS for word in ("-c", one)]
        self.command = ["git", "-C", tree or folder, *settings, f"--git-dir={folder}"]
        self.command += [f"--work-tree={tree}"] if tree else []
        kept = {n: text for n, text in os.environ.items() if n in _KEPT or not n.startswith("GIT_")}
        self.variables = {**kept, **_VARIABLES}
        if objects:
            self.variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = objects

    def run(self, *words: str, given: bytes | int = b"") -> ProgramEnd:
        return run([*self.command, *words], self.variables, given)

    @contextmanager
    def reading(self, *words: str) -> Iterator[IO[bytes]]:
        """Give what it prints piece by piece."""
        from subprocess import DEVNULL, PIPE, Popen

        command = [*self.command, *words]
        with Popen(command, env=self.variables, stdout=PIPE, stderr=DEVNULL) as git:
            assert git.stdout  # noqa: S101 - it is a pipe
            yield git.stdout

    def ask(self, *words: str, given: bytes = b"") -> str:
        """Return what it prints. Raises OSError if it fails."""
        said = self.run(*words, given=given)
        if said.code:
            raise OSError(os.fsdecode(said.errors))
        return os.fsdecode(said.output)

    def succeeds(self, *words: str, given: bytes = b"") -> bool:
        """Return whether it ends well; what it says against that goes into the log."""
        said = self.run(*words, given=given)
        sys.stderr.write(os.fsdecode(said.errors))
        return not said.code

    def paths(self, *words: str) -> list[str]:
        """Return the paths that it prints, each ended by a NUL."""
        return self.ask(*words).split("\0")[:-1]

    def pairs(self, *words: str) -> list[tuple[str, str]]:
        """Return what it prints about each path, and the path, each ended by a NUL."""
        said = self.paths(*words)
        return [(said[at], said[at + 1]) for at in range(0, len(said) - 1, 2)]

    def lines(self, *words: str, given: bytes = b"") -> list[str]:
        """Return its lines: names may have other ends of lines in them."""
        return self.ask(*words, given=given).split("\n")[:-1]

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
        self.switch_note = f"{self.notes}/repo.switch"
        """There while files are switched, and after a switch that was cut short."""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def note_lines(self, name: str, lines: Sequence[str]) -> None:
        """Write a note about this tree, whole or not at all; without lines, remove it."""
        path = f"{self.notes}/{name}"
        if lines and lines_of(path) != [*lines]:
            write_whole(path, "".join(f"{line}\n" for line in lines), 0o600)
        elif not lines and os.path.lexists(path):
            os.unlink(path)

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


def trees_beside(home: str) -> list[BoxTree]:
    """Return those beside the main ones; one that a full disk refused to begin with is none yet."""
    return [tree for tree in trees_of(home) if tree.number != "1" and os.path.lexists(tree.path)]
