"""The profile's commands before training, in its environment: once for the same commands, files and
data in a tree."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from ..env_files import env_file
from ..quoted import quoted
from ..run_folder import lines_of, names_in, write_whole
from ..step_report import StepError, tell
from .step import BoxStep

_PUSHED = re.compile(r'\[(.*), [0-9]+, (-?[0-9]*?)[0-9]{1,9}, \2[0-9]{1,9}, "([0-9a-f]{64})"\]')
"""A file that a push put there: it has the time of its source. Others were there already."""
_RUN = """\
unset LC_ALL LC_MESSAGES LC_NUMERIC
export LANG="${LANG:-C.UTF-8}" PYTHONUNBUFFERED=1
[ ! -r "$1" ] || . "$1"
export VIRTUAL_ENV="$2" PATH="$2/bin:$PATH"
[ ! -r "$2/etc/conda/activate.sh" ] || . "$2/etc/conda/activate.sh"
exec bash -o pipefail -c "$3"
"""
"""As a training is run. The profile may set any variable, ours too."""


class PrepareStep(BoxStep):
    is_of_tree = True

    def inputs(self) -> str:
        read = self._read_data()
        return self._itself + (hashlib.sha256(os.fsencode(read)).hexdigest() if read else "")

    def what_changed(self, noted: str) -> str:
        if noted.startswith(self._itself):
            return "data"
        own = quoted("v1", self.setup.tree.path, *self.values.prepare)
        return "files" if noted.startswith(own) else "changed"

    @cached_property
    def _itself(self) -> str:
        """The commands, and digests of the files that they name: by path, as an option's value, or
        as a module."""
        words = re.sub("[\"'=]", " ", " ".join(self.values.prepare)).split()
        names = [
            f"{word.replace('.', '/')}.py" if last == "-m" else word
            for last, word in zip(["", *words], words)  # noqa: B905 - Python 3.8
        ]
        tree = self.setup.tree.path
        sums = ((_sum_of(os.path.join(tree, name)), name) for name in names)
        lines = (f"{sha256}  {name}" for sha256, name in sums if sha256)
        return quoted("v1", tree, *self.values.prepare, "\n".join(lines))

    def _read_data(self) -> str:
        """Return what stands for the data that the commands read: the profile's and what was pushed
        by content, shared files by size and time; "" if they never ran. Those that they wrote
        themselves, and those that came later, don't count."""
        noted = f"{self.setup.tree.notes}/prepare.read"
        if not os.path.isfile(noted):
            return ""
        data = ""
        if self.values.data:
            from .data import DataStep  # late: few profiles have both

            data = DataStep(self.setup).noted_content
        shared = (_state_of(path) for path in "\n".join(lines_of(noted)).split("\0")[:-1])
        return "".join([f"{data}\n", *self._pushed(), *shared])

    def _pushed(self) -> Iterator[str]:
        """Yield content and name of each file that was pushed, to this repository's folders or to
        none's."""
        for name in names_in(f"{self.home}/data"):
            lines = lines_of(f"{self.home}/data/{name}") if name.endswith(".jsonl") else []
            target = lines[0][len('{"target": "') : -len('"}')] if lines else ""
            if lines and not self._is_of_another(target):
                rows = filter(None, map(_PUSHED.fullmatch, lines))
                last = {row[1]: row[3] for row in rows}
                yield f'{target}"}}\n' if last else ""
                yield from sorted(f"{sha256}{name}\n" for name, sha256 in last.items())

    def _is_of_another(self, folder: str) -> bool:
        own = self.setup.one("main")
        for key in names_in(f"{self.home}/steps"):
            for place in lines_of(f"{self.home}/steps/{key}/repo.dir")[:1]:
                if f"{folder}/".startswith((f"{own}/", f"{own}@")):
                    return False
                if place != own and f"{folder}/".startswith((f"{place}/", f"{place}@")):
                    return True
        return False

    def check(self) -> bool:
        """The tree itself remembers it: one that was made again has nothing that they wrote."""
        return os.path.isfile(self._mark)

    @property
    def _mark(self) -> str:
        return f"{self.setup.tree.work.folder}/boxstrap.prepared"

    def apply(self) -> None:
        commands, before = self.values.prepare, self._shared_files()
        for finished, command in enumerate(commands):
            tell(f"progress done={finished} total={len(commands)} unit=commands")
            sys.stdout.write(f"$ {command}\n")
            sys.stdout.flush()
            if code := self._run(command):
                why = f"it ended with exit code {code}: {command}"
                raise StepError("prepare-failed", why)
        tell(f"progress done={len(commands)} total={len(commands)} unit=commands")
        # What is the same before and after was not written by them.
        after = self._shared_files()
        same = sorted(path for path, state in after.items() if before.get(path) == state)
        read = "".join(f"{path}\0" for path in same)
        write_whole(f"{self.setup.tree.notes}/prepare.read", read)
        write_whole(self._mark, "")

    def _run(self, command: str) -> int:
        from subprocess import DEVNULL, run  # slow to import

        environment = self.setup.environment.folder
        env = env_file(self.home, self.setup.tree.key)
        words = ("bash", "-c", _RUN, "bash", env, environment, command)
        done = run(words, cwd=self.setup.tree.path, stdin=DEVNULL, check=False)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode

    def _shared_files(self) -> dict[str, tuple[int, int]]:
        """Return the files of the shared folders, with sizes and times, except results."""
        main, found = self.setup.one("main"), {}
        results = {f"{main}/{path.rstrip('/')}" for path in self.values.results}
        for shared in self.values.shared:
            top = f"{main}/{shared.rstrip('/')}"
            name = os.path.basename(top)
            walk = os.walk(top) if os.path.isdir(top) else [(os.path.dirname(top), [""], [name])]
            for folder, folders, names in walk:
                folders[:] = [name for name in folders if f"{folder}/{name}" not in results]
                for path in {f"{folder}/{name}" for name in names} - results:
                    with suppress(OSError):  # it is gone already
                        state = os.lstat(path)
                        if stat.S_ISREG(state.st_mode):
                            found[path] = (state.st_size, state.st_mtime_ns)
        return found


def _sum_of(path: str) -> str:
    """Return the SHA-256 of a file; "" if it isn't one that can be read."""
    total = hashlib.sha256()
    if not os.path.isfile(path):
        return ""
    with suppress(OSError), open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            total.update(piece)
        return total.hexdigest()
    return ""


def _state_of(path: str) -> str:
    """Return size, time and name of a file, as `stat` prints them; "" if it isn't there."""
    try:
        state = os.lstat(path)
    except OSError:
        return ""
    seconds, rest = divmod(state.st_mtime_ns, 10**9)
    day, zone = (time.strftime(form, time.localtime(seconds)) for form in ("%F %T", "%z"))
    return f"{state.st_size} {day}.{rest:09} {zone} {path}\n"
