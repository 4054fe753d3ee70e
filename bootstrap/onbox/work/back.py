"""What was made in a repository's main tree: its branches, and its edits as one commit; then a pack
of what the other side wants. Writes only to a folder of its own, which is removed at the end.

`onbox work.back BOX_HOME REQUEST`: a document of JSON with `key`, `dir`, `format` of objects,
`most_mib` of a new file. Prints lines of JSON up to `ready`; then reads which
commits are wanted and, after a `^`, which are known, one a line, up to `.`, and prints the pack.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ..git import BoxGit, BoxTree
from ..results.at_risk import new_work, told
from ..run_folder import RunFolder, lines_of
from ..step_report import question
from .made import MADE_BY_TOOLS, ignore_lines

_RAW = "* -text -ident -filter -working-tree-encoding\n"
_MOST_REFS, _MOST_SENT = 200, 20
_MEMORY, _LEAST_FREE = "/dev/shm", 16 << 20  # noqa: S108 - of a name that nobody can foresee


class WorkThere:
    """What was made in a tree, through a git folder that can read all objects of the box, and
    writes none but in itself. Files are taken byte for byte."""

    def __init__(self, tree: BoxTree, folder: str, asked: dict[str, Any]) -> None:
        self._tree, self._folder, self._asked = tree, folder, asked
        self.ours = BoxGit(folder, tree.path)
        self._head = tree.work.id_of("HEAD^{commit}")
        for name, text in self._files().items():
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
            with open(f"{folder}/{name}", "wb") as file:
                file.write(os.fsencode(text))
        self.base = RunFolder(tree.placed.folder).first("HEAD")
        if not self.ours.id_of(f"{self.base}^{{commit}}"):
            # That note is lost; the tree's own repository has it too.
            self.base = tree.work.id_of("refs/boxstrap/placed^{commit}")

    def _files(self) -> dict[str, str]:
        tree, is_long = self._tree, self._asked["format"] == "sha256"
        sources = (tree.work.folder, tree.store.folder)
        shallow = {line for each in sources for line in lines_of(f"{each}/shallow")}
        ignored = [
            *lines_of(f"{tree.work.folder}/info/exclude"),
            *MADE_BY_TOOLS,
            *ignore_lines(tree),
        ]
        extension = "[extensions]\nobjectFormat = sha256\n" * is_long
        return {
            "HEAD": "ref: refs/heads/none\n",
            "refs/none": "",
            "config": f"[core]\nrepositoryformatversion = {is_long:d}\n{extension}",
            "objects/info/alternates": "".join(f"{each}/objects\n" for each in sources),
            "info/attributes": _RAW,
            "info/exclude": "\n".join([*ignored, ""]),
            **({"shallow": "".join(f"{one}\n" for one in sorted(shallow))} if shallow else {}),
        }

    def told(self) -> Iterator[dict[str, Any]]:
        """Yield its refs, what was sent, and its edits."""
        work = self._tree.work
        yield {"kind": "tree", "dir": self._tree.path, "base": self.base}
        with suppress(OSError):
            listed = ("for-each-ref", f"--count={_MOST_REFS}", "--format=%(objectname) %(refname)")
            refs = work.lines(*listed, "refs/heads")
            try:
                work.ask("symbolic-ref", "-q", "HEAD")
            except OSError:
                refs.insert(0, f"{self._head} HEAD")
            for commit, _, name in (line.partition(" ") for line in refs):
                yield {"kind": "ref", "commit": commit, "name": name}
        with suppress(OSError):
            # The other side may have what was sent, and its parents.
            newest = (f"--count={_MOST_SENT}", "--sort=-creatordate")
            rows = ("for-each-ref", *newest, "--format=%(objectname) %(parent)", "refs/boxstrap")
            yield {"kind": "sent", "commits": self._tree.store.ask(*rows).split()}
        try:
            yield from list(self._edits())
        except OSError:
            yield {"kind": "unread"}

    def new_files(self) -> Iterator[dict[str, Any]]:
        """Take new files unless git ignores them, they are results, came by `push` or were let go;
        yield those that are other repositories, or too large."""
        taken = b""
        new = self.ours.paths("ls-files", "--others", "--exclude-standard", "-z")
        for path in new_work(self._tree, new):
            found = os.lstat(f"{self._tree.path}/{path}")
            if path.endswith("/") or (
                stat.S_ISREG(found.st_mode) and found.st_size > self._asked["most_mib"] << 20
            ):
                yield {"kind": "left", "path": told(path)}
            else:
                taken += os.fsencode(path) + b"\0"
        self.ours.ask("update-index", "--add", "-z", "--stdin", given=taken)

    def _edits(self) -> Iterator[dict[str, Any]]:
        """The edits become a commit on top of what was placed, and of the box's own commits. Same
        edits, same id."""
        ours, base, head = self.ours, self.base, self._head
        if not base:
            return
        try:
            # With its times: files that are as they were placed are not read again.
            shutil.copy2(f"{self._tree.placed.folder}/index", f"{self._folder}/index")
        except OSError:
            ours.ask("read-tree", base)
        ours.ask("add", "-u")
        yield from self.new_files()
        tree = ours.ask("write-tree").strip()
        if tree == ours.id_of(f"{base}^{{tree}}"):
            return
        parents = ["-p", base]
        if head and ours.ask("rev-list", "-n", "1", head, f"^{base}"):
            if tree == ours.id_of(f"{head}^{{tree}}"):
                return  # all of it is in the box's own commits
            parents += ["-p", head]
        when = ours.ask("log", "-1", "--format=%ct", base).strip() + " +0000"
        who = {"NAME": "boxstrap", "EMAIL": "", "DATE": when}
        for each in ("AUTHOR", "COMMITTER"):
            ours.variables.update({f"GIT_{each}_{name}": text for name, text in who.items()})
        made = ours.ask("commit-tree", *parents, "-m", "Edits made on the box", tree)
        yield {"kind": "edits", "commit": made.strip()}

    def send_pack(self) -> None:
        """Read what is wanted, and send it."""
        wanted = sys.stdin.read().encode()
        if not wanted.endswith(b".\n") or wanted == b".\n":
            return
        words = ("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q")
        command, env = [*self.ours.command, *words], self.ours.variables
        subprocess.run(command, input=wanted[:-2], cwd=self._tree.path, env=env, check=True)


def roomy(folder: str) -> str:
    """Return a folder for what is written meanwhile: memory, where the disk is full."""
    is_full = shutil.disk_usage(folder).free < _LEAST_FREE
    return _MEMORY if is_full and os.access(_MEMORY, os.W_OK) else folder


def main() -> None:
    home, asked = question()
    folder = RunFolder(f"{home}/steps/{asked['key']}").first("repo.dir") or asked["dir"]
    tree = BoxTree(home, asked["key"], folder)
    if not os.path.isdir(tree.work.folder):
        sys.stdout.write('{"kind": "over", "told": 0}\n')
        return
    for each in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(each, lambda *_: sys.exit(1))
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="back.new.", dir=roomy(tree.steps)) as own:
        work = WorkThere(tree, own, asked)
        for row in (*work.told(), {"kind": "ready"}):
            sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        work.send_pack()
