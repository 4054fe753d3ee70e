"""Take in objects from a box apart from the repository, and add them only after all checks.

A box may send anything: wrong objects, trees with names that leave the tree or mean `.git`,
packs that unpack to more than fits, history with missing parts. git checks the objects and
their names (`index-pack --strict`), and that nothing is missing; boxstrap sets the limits.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer

from bootstrap.errors import BoxstrapError, write_error
from bootstrap.paths import cache_dir, make_private
from bootstrap.repo.git import Folders, GitError, run_git, start_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.names import shown
from bootstrap.repo.snapshot_store import SUBMODULE, changes_between

_MEMORY_KIB = 2 * 1024 * 1024
_FORGOTTEN_S = 3600  # seconds after which leftovers of a killed call are removed
_SAID = 300


@dataclass(frozen=True)
class Bounds:
    """Limits: the size of a pack, and the seconds for each call of git."""

    mib: int
    seconds: float


class Quarantine:
    """A temporary git folder that sees the repository's objects, but not the other way round.

    A context manager: leaving it removes the folder.
    """

    def __init__(self, here: LocalRepository, bounds: Bounds, *, sender: str) -> None:
        self._here = here
        self._bounds = bounds
        self._sender = sender
        self._folder = _new_folder()

    def __enter__(self) -> Quarantine:
        objects = self._here.git_dir / "objects"
        for name in ("objects/info", "objects/pack", "refs"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "HEAD").write_text("ref: refs/heads/none\n")
        (self._folder / "config").write_text(_CONFIG[self._here.object_format])
        (self._folder / "objects/info/alternates").write_text(f"{objects}\n")
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, pack: Iterable[bytes]) -> None:
        """Take a pack in. Raises BoxstrapError if an object, a name or a size is wrong."""
        child = start_git(
            Folders(self._folder),
            *("-c", "core.packedGitLimit=256m", "-c", "core.packedGitWindowSize=32m"),
            *("index-pack", "--stdin", "--fix-thin", "--strict"),
            most_memory_kib=_MEMORY_KIB,
        )
        late = Timer(self._bounds.seconds, child.kill)
        late.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # git's own message says why
                for piece in self._bounded(pack):
                    child.stdin.write(piece)  # type: ignore[union-attr] # it was piped
                    if child.poll() is not None:
                        break
            _, said = child.communicate()
        except BaseException:
            child.kill()
            child.communicate()
            raise
        finally:
            is_late = not late.is_alive()
            late.cancel()
        if is_late:
            raise self._refused(f"it takes longer than {self._bounds.seconds:.0f} s")
        if child.returncode:
            raise self._refused(_last_line(said))

    def _bounded(self, pack: Iterable[bytes]) -> Iterator[bytes]:
        taken = 0
        for piece in pack:
            taken += len(piece)
            if taken > self._bounds.mib * 2**20:
                raise self._refused(f"it is more than {self._bounds.mib} MiB")
            yield piece

    def check(self, tips: Sequence[str]) -> None:
        """Raise BoxstrapError unless these are commits, and everything they lead to is there."""
        lines = "".join(f"{tip}\n" for tip in tips).encode()
        kinds = self._ask("cat-file", "--batch-check=%(objecttype)", stdin=lines).split()
        if kinds != [b"commit"] * len(tips):
            raise self._refused("what it calls a commit is not one")
        # As `git fetch` does: what the repository's own refs don't reach must be complete.
        self._ask("rev-list", "--objects", "--quiet", "--stdin", "--not", "--all", stdin=lines)

    def own_commits(self, tip: str) -> int:
        """Count the commits up to `tip` that no branch, tag or remote of the repository has."""
        known = ("--not", "--exclude=refs/boxstrap/*", "--all")
        return int(self._ask("rev-list", "--count", tip, *known))

    def with_submodules(self, edits: str) -> tuple[str, list[bytes]]:
        """Return the edits as a commit that can be merged, "" for none, and the submodules in which
        there are more.

        Submodules travel as folders, which a merge would put in their place: that commit and its
        parent have them as the commit below has. Without any it is `edits`. Raises BoxstrapError.
        """
        own = Folders(self._folder)
        ask = partial(self._ask, folders=own)
        asked = (("rev-parse", "-q", "--verify", f"{edits}~{number}") for number in (1, 2))
        base, below = (ask(*words, ok=(0, 1)).decode().strip() for words in asked)
        sent = below and self.own_commits(base)  # else the user's own commit was placed
        links = [
            change
            for change in (changes_between(own, below, base) if sent else ())
            if change.mode_before == SUBMODULE != change.mode
        ]
        if not links:
            return edits, []
        rows = b"".join(b"%s %s\t%s\0" % (SUBMODULE, one.blob_before, one.path) for one in links)
        trees, made = set[bytes](), base.encode()
        for commit in (base, edits):
            ask("read-tree", commit)
            ask("update-index", "--replace", "-z", "--index-info", stdin=rows)
            tree = ask("write-tree", "--missing-ok").strip()
            rest = ask("cat-file", "commit", commit).partition(b"\n")[2]
            text = b"tree %s\n%s" % (tree, rest.replace(base.encode(), made, 1))
            made = ask("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).strip()
            trees.add(tree)
        paths = [change.path for change in changes_between(own, base, edits)]
        inside = [
            link.path for link in links if any(path.startswith(link.path + b"/") for path in paths)
        ]
        return made.decode() if len(trees) > 1 else "", inside

    def keep(self, refs: Mapping[str, str]) -> None:
        """Add the objects, and set these refs: all of them or none. Raises BoxstrapError."""
        target = self._here.git_dir / "objects"
        try:
            # In this order: git sees a pack once it has an index, and commits after their files.
            for kind in ("pack/*.pack", "pack/*.idx", "??/*"):
                for file in (self._folder / "objects").glob(kind):
                    _add(file, target / file.parent.name)
        except OSError as error:
            raise write_error(target, error) from None
        updates = "".join(f"update {ref} {commit}\n" for ref, commit in refs.items())
        self._ask("update-ref", "--stdin", stdin=updates.encode())

    def _ask(
        self,
        *arguments: str,
        stdin: bytes = b"",
        ok: Sequence[int] = (0,),
        folders: Folders | None = None,
    ) -> bytes:
        """Run git on the repository, or on `folders`, as it would be with the new objects."""
        also = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{self._folder / "objects"}"'}
        try:
            seconds, where = self._bounds.seconds, folders or self._here.folders
            return run_git(where, *arguments, stdin=stdin, env=also, ok=ok, timeout=seconds)
        except GitError as failure:
            raise self._refused(_last_line(failure.said.encode())) from None

    def _refused(self, why: str) -> BoxstrapError:
        return BoxstrapError(
            f"what the box sent is refused: {why}.",
            where=self._sender,
            hint="None of it was kept, and your repository is unchanged.",
        )


_CONFIG = {
    "sha1": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    "sha256": "[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
    "[extensions]\n\tobjectFormat = sha256\n",
}


def _new_folder() -> Path:
    """Make an empty private folder, and remove old leftovers of killed calls next to it."""
    above = cache_dir() / "incoming"
    try:
        make_private(above)
        for old in above.iterdir():
            if time.time() - old.stat().st_mtime > _FORGOTTEN_S:
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=above))
    except OSError as error:
        raise write_error(above, error) from None


def _add(file: Path, folder: Path) -> None:
    """Copy a file of objects atomically. An existing file of that name has the same content."""
    folder.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix="tmp_pack_")  # git removes such leftovers
    new = Path(name)
    try:
        with open(handle, "wb") as to, file.open("rb") as source:  # noqa: PTH123 - a descriptor
            shutil.copyfileobj(source, to)
        new.chmod(0o444)
        new.replace(folder / file.name)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _last_line(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return shown(lines[-1].removeprefix("fatal: "))[:_SAID] if lines else "git says no more"
