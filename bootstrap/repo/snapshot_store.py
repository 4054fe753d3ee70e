"""boxstrap's git folder for the snapshots of one working tree; the user's is never written.

    snapshots/NAME-DIGEST/   in the cache folder, mode 0700: a bare repository
        objects/             what was written here: git sees no others while it writes, since it
                             would set the time of an object of the user's that it finds
        all/                 a second git folder, to read objects: these, the user's, and
                             those of submodules
        info/attributes      git takes bytes as they are
        index                kept between calls, so that only changed files are read
        tree                 the index as a tree, and a mark of the index at that time
        state.json, listing, paths, absent, checked   what the last snapshot was made of

It can be made again at any time, and is if anything in it is damaged.

boxstrap runs no filter (such as git-crypt's), so git calls a filtered file on disk modified. But
git's index has the size and times of the file that git wrote: unchanged since, it is no change.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bootstrap.errors import write_error
from bootstrap.paths import PROFILE, cache_dir, make_private, write_private
from bootstrap.repo.git import Folders, GitError, Settings, run_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.names import decoded, slug
from bootstrap.value import dataclass, field

RAW = "* -text -ident -filter !working-tree-encoding !eol\n"
"""Attributes with which git reads and writes a file's bytes as they are."""

KEPT = 8  # how many of the snapshots taken stay readable, and of those sent
MOST = 1024 * 1024 * 1024
"""Bytes that may accumulate before objects that no snapshot needs any more are removed."""
_SAMPLE = 16  # how many of the 256 object folders are measured
_UNUSED_S = 60 * 24 * 3600
_CONFIG = """\
[core]
	repositoryformatversion = 1
	bare = true
	logAllRefUpdates = false
	autocrlf = false
	safecrlf = false
	ignoreCase = false
	attributesFile = /dev/null
	looseCompression = 0
	compression = 0
	bigFileThreshold = 16m
	fsync = none
	untrackedCache = false
{compared}[index]
	threads = true
[extensions]
	objectFormat = {format}
"""
# The user's settings for comparing a working tree, which also apply to this index.
_COMPARED = ("filemode", "symlinks", "precomposeunicode", "trustctime", "checkstat")


@dataclass
class State:
    commit: str = ""
    include: str = ""
    tree: str = ""
    id: str = ""
    content: str = ""
    only_profile: bool = False
    changes: list[int] = field(default_factory=list)  # how many files are modified, new, deleted
    new: list[str] = field(default_factory=list)  # its files that git doesn't track
    left: list[tuple[str, str]] = field(default_factory=list)  # what can't travel, and why
    pointers: list[tuple[str, str]] = field(default_factory=list)
    """LFS files whose content isn't here, with that as the reason."""
    named: list[str] = field(default_factory=list)  # untracked files that were shown to the user
    taken: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    bytes_kept: int = 0  # how large the objects were after the last `tidy` that removed any


class SnapshotStore:
    """The folder of one working tree. Everything but reading objects needs `locked`."""

    def __init__(self, here: LocalRepository) -> None:
        place = here.repository.place
        digest = hashlib.sha256(os.fsencode(place.root)).hexdigest()[:16]
        self.git_dir = cache_dir() / "snapshots" / f"{slug(place.root.name)}-{digest}"
        self.root = place.root
        self._objects = place.common_dir / "objects"
        self._compared = _compared(here.repository.settings)
        core = "".join(f"\t{name} = {value}\n" for name, value in self._compared.items())
        self._config = _CONFIG.format(format=here.object_format, compared=core)

    @property
    def folders(self) -> Folders:
        """For git to find all objects, and write none."""
        return Folders(self.git_dir / "all")

    @property
    def own(self) -> Folders:
        """For git to take in the working tree, and write objects."""
        return Folders(self.git_dir, self.root)

    @property
    def with_all(self) -> Folders:
        """For git to compare the working tree with all objects."""
        return Folders(self.git_dir / "all", self.root)

    def objects_of_all(self) -> dict[str, str]:
        """Return the variable with which git finds all objects, whatever repository it runs on."""
        folder = str(self.git_dir / "all" / "objects")
        quoted = folder.replace("\\", r"\\").replace('"', r"\"")
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's lock. Raises BoxstrapError if the folder can't be made."""
        try:
            make_private(self.git_dir.parent)
            lock = self.git_dir.with_name(f"{self.git_dir.name}.lock").open("w")
        except OSError as error:
            raise write_error(self.git_dir.parent, error) from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def prepare(self) -> None:
        """Make the store, unless it exists as configured."""
        if self.read("config") != self._config.encode():
            self.remove()
            for folder in (self.git_dir, self.git_dir / "all"):
                for name in ("objects/info", "refs", "info"):
                    (folder / name).mkdir(mode=0o700, parents=True)
                (folder / "HEAD").write_text("ref: refs/heads/none\n")
                (folder / "info/attributes").write_text(RAW)
                (folder / "config").write_text(self._config)
            self.git_dir.chmod(0o700)
            (self.git_dir / "others").mkdir()
        self.add_objects(self.git_dir / "objects")
        self.add_objects(self._objects)

    def add_objects(self, folder: Path) -> None:
        """Let git find the objects of another repository too."""
        # Through a link, since the path may contain characters that are special in this file.
        link = f"others/{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
        if not (self.git_dir / link).is_symlink():
            (self.git_dir / link).symlink_to(folder)
        file, line = "all/objects/info/alternates", f"../../{link}\n"
        listed = (self.read(file) or b"").decode()
        if line not in listed:
            self.write(file, listed + line)

    def add_commit(self, text: str, format_: str) -> str:
        """Write a commit as git does, in a fifth of the time that starting git takes."""
        content = f"commit {len(text)}\0{text}".encode()
        id_ = hashlib.new(format_, content).hexdigest()
        self.write(f"objects/{id_[:2]}/{id_[2:]}", zlib.compress(content, 0))
        return id_

    @property
    def ignores_modes(self) -> bool:
        """Whether the user's disk has no executable bit: git has it alone."""
        return self._compared.get("filemode") == "false"

    def read(self, name: str) -> bytes | None:
        """Read one of the store's files; None if there is none."""
        try:
            return (self.git_dir / name).read_bytes()
        except OSError:
            return None

    def write(self, name: str, content: str | bytes) -> None:
        """Write one of the store's files atomically."""
        write_private(self.git_dir / name, content)

    def forget(self, *names: str) -> None:
        for name in names:
            (self.git_dir / name).unlink(missing_ok=True)

    def state(self) -> State:
        """Load the saved state; an empty one if it can't be read."""
        try:
            return State(**json.loads(self.read("state.json") or b"{}"))
        except (ValueError, TypeError, RecursionError):
            return State()

    def save(self, state: State) -> None:
        self.write("state.json", json.dumps(vars(state)))

    def remove(self) -> None:
        shutil.rmtree(self.git_dir, ignore_errors=True)

    def tidy(self, state: State) -> None:
        """If much has accumulated, keep only what `KEPT` snapshots need."""
        if self._size() < state.bytes_kept + MOST:
            return
        needed = set[str]()
        for snapshot in {*state.taken[-KEPT:], *state.sent[-KEPT:], state.id}:
            asked = ("rev-parse", "--verify", "-q", f"{snapshot}^{{tree}}")
            if tree := run_git(self.folders, *asked, ok=(0, 1)).decode().strip():
                listed = run_git(self.folders, "ls-tree", "-r", "-t", "-z", tree).split(b"\0")
                needed |= {entry.split(None, 3)[2].decode() for entry in listed if entry}
                needed |= {snapshot, tree}
        objects = self.git_dir / "objects"
        for folder in objects.glob("[0-9a-f][0-9a-f]"):
            for file in folder.iterdir():
                if folder.name + file.name not in needed:
                    file.unlink()
        for index in (objects / "pack").glob("*.idx"):
            told = run_git(self.folders, "show-index", stdin=index.read_bytes())
            if needed.isdisjoint(line.split()[1] for line in told.decode().splitlines()):
                for file in (index, *index.parent.glob(f"{index.stem}.*")):
                    file.unlink(missing_ok=True)
        state.bytes_kept = self._size()
        for other in self.git_dir.parent.glob("*/state.json"):
            with contextlib.suppress(OSError):
                if other.stat().st_mtime < time.time() - _UNUSED_S:
                    shutil.rmtree(other.parent)

    def _size(self) -> int:
        """Estimate the bytes of all objects: their folders fill evenly."""
        objects = self.git_dir / "objects"
        packs = sum(file.stat().st_size for file in objects.glob("pack/*"))
        some = (objects / f"{number:02x}" for number in range(_SAMPLE))
        loose = sum(file.stat().st_size for folder in some for file in folder.glob("*"))
        return packs + loose * 256 // _SAMPLE


def _compared(settings: Settings) -> dict[str, str]:
    own = {key.partition(".")[2]: value for key, value in settings if key.startswith("core.")}
    words = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}
    told = {name: (own[name] or "").lower() for name in _COMPARED if own.get(name)}
    return {name: words.get(word, word) for name, word in told.items() if word.isalnum()}


_UNSET = (b"unspecified", b"unset")
_CONVERT = ("text", "crlf", "eol", "ident", "working-tree-encoding")
"""Attributes by which git compares other bytes than a file has."""

# An entry of `git ls-files --debug -z`: the name, then lines with the file's lstat(2) values.
_ENTRY = (
    rb"([^\0]+)\0  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n"
    rb"  dev: .*\n  uid: .*\n  size: (\d+)\t.*\n"
)


def as_git_wrote_them(here: LocalRepository, filtered: set[bytes]) -> set[bytes]:
    """Return the files that have the size and times that git recorded. Raises GitError."""
    if not filtered:
        return set()
    listed = run_git(here.folders, "ls-files", "--debug", "-z")
    return {
        path
        for path, *numbers in re.findall(_ENTRY, listed)
        if path in filtered and _is_as_written(here, path, [int(number) for number in numbers])
    }


def filters_of(
    here: LocalRepository, paths: Iterable[bytes], index: Path | None = None
) -> dict[bytes, bytes]:
    """Return the `filter` attribute of each path: by the working tree's attributes, or by those in
    `index`. Raises GitError."""
    return {path: one for path, (one,) in _attributes(here, paths, "filter", index=index).items()}


def _attributes(
    here: LocalRepository, paths: Iterable[bytes], *names: str, index: Path | None = None
) -> dict[bytes, list[bytes]]:
    view = Folders(here.repository.view.with_filters, None if index else here.root)
    ask = ("check-attr", "--stdin", "-z", *(["--cached"] if index else []), *names)
    env = {"GIT_INDEX_FILE": str(index)} if index else None
    fields = run_git(view, *ask, stdin=b"\0".join(paths), env=env).split(b"\0")
    width = 3 * len(names)
    starts = range(0, len(fields) - 1, width)
    return {fields[at]: fields[at + 2 : at + width : 3] for at in starts}


def _is_as_written(here: LocalRepository, path: bytes, numbers: list[int]) -> bool:
    changed_s, changed_ns, written_s, written_ns, size = numbers
    try:
        found = (here.root / decoded(path)).lstat()
    except OSError:
        return False
    times = (changed_s * 10**9 + changed_ns, written_s * 10**9 + written_ns)
    return (found.st_ctime_ns, found.st_mtime_ns, found.st_size) == (*times, size)


SUBMODULE = b"160000"


class ChangeCount(NamedTuple):
    """How many files differ from the commit, as git itself compares them."""

    modified: int = 0
    new: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return any(self)

    def __str__(self) -> str:
        kinds = ((self.modified, "modified"), (self.new, "new"), (self.deleted, "deleted"))
        return ", ".join(f"{number} {kind}" for number, kind in kinds if number)


class Change(NamedTuple):
    """A file that differs between two trees, as `git diff-tree --raw` prints it."""

    mode_before: bytes
    mode: bytes
    blob_before: bytes
    blob: bytes
    status: bytes
    path: bytes


def changes_between(folders: Folders, before: str, after: str) -> list[Change]:
    """List the files that differ between two trees, byte for byte. Raises GitError."""
    if before == after:
        return []
    printed = run_git(folders, "diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)
    fields = printed.split(b"\0")
    rows = zip(fields[::2], fields[1::2], strict=False)
    return [Change._make([*about[1:].split(b" "), path]) for about, path in rows if about]


def content_of(folders: Folders, tree: str) -> str:
    """Return a digest of the tree without the repository's profile, as the box computes it too.
    What the profile says reaches the box in the script. Raises GitError."""
    listed = run_git(folders, "-c", "core.quotePath=true", "ls-tree", tree) or b"\n"  # as in shell
    own = f"\t{PROFILE}\n".encode()
    lines = (line for line in listed.splitlines(keepends=True) if not line.endswith(own))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def count_changes(
    here: LocalRepository, changes: Iterable[Change], store: SnapshotStore
) -> ChangeCount:
    """Count the changes as git does: converted line endings, say, are none. Raises GitError."""
    of = {b"A": set[bytes](), b"D": set[bytes](), b"M": set[bytes](), b"T": set[bytes]()}
    modified, changes = [], list(changes)
    for change in changes:
        if SUBMODULE in (change.mode, change.mode_before):
            inside = change.path + b"/"  # the submodule is a folder of files now
            if change.status == b"D" and not any(e.path.startswith(inside) for e in changes):
                of[b"D"].add(change.path)
            continue
        of[change.status].add(change.path)
        if change.status == b"M":
            modified.append(change)
    paths = {change.path for change in modified}
    said = _attributes(here, paths, "filter", *_CONVERT) if paths else {}
    converts_all = dict(here.repository.settings).get("core.autocrlf", "false") != "false"
    if not (converts_all or store.ignores_modes):  # git would say that all of them differ
        modified = [each for each in modified if {*said[each.path][1:]} - {*_UNSET}]
    alike = {change.path for change in modified} - _differing(here, modified, store)
    filtered = {path for path in paths - alike if said[path][0] not in (*_UNSET, b"set")}
    alike |= as_git_wrote_them(here, filtered)
    return ChangeCount(len(of[b"M"] - alike) + len(of[b"T"]), len(of[b"A"]), len(of[b"D"]))


def _differing(
    here: LocalRepository, changes: Collection[Change], store: SnapshotStore
) -> set[bytes]:
    """Return the files that git would call modified, compared through a separate index."""
    if not changes:
        return set()
    index = store.git_dir / "compared"
    index.unlink(missing_ok=True)
    own = {"GIT_INDEX_FILE": str(index), **store.objects_of_all()}
    lines = (b"%s %s\t%s\0" % (each.mode_before, each.blob_before, each.path) for each in changes)
    compare = ("diff", "--name-only", "-z", "--ignore-submodules=all")
    try:
        run_git(here.folders, "update-index", "-z", "--index-info", stdin=b"".join(lines), env=own)
        return set(run_git(here.folders, *compare, env=own).split(b"\0"))
    except GitError:  # e.g. an encoding that this machine lacks; only the count is affected
        return {change.path for change in changes}
