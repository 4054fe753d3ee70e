"""What is sent of a commit: its objects, its tags, and dependencies as bundles.

Objects go as `git receive-pack --stateless-rpc` on a box reads them: one command line, `old new
ref`, then a pack, without waiting for an advertisement. The receiving git does quarantine, the
connectivity check and compare-and-swap of the ref (gitprotocol-pack(5), "Pushing Data To a
Server"). A stream that stops early sets no ref, and can be sent again.

Tags go along, since tools derive a version from them: those of a commit, and with a dependency its
full history (git-bundle(1)).
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import selectors
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.paths import temporary_dir
from bootstrap.repo.git import FRUGAL, Folders, GitError, git_error, run_git, start_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.names import decoded, shown
from bootstrap.repo.place import head, read_text
from bootstrap.repo.snapshot import Snapshot
from bootstrap.value import dataclass, field

PIECE = 64 * 1024

ProgressCallback = Callable[[int, int, int], None]

_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FLUSH = b"0000"
_LONGEST_SAID = 64 * 1024

# What pack-objects prints on standard error, each time with a carriage return:
# `Counting objects: 40% (2/5)`, `Writing objects: 100% (5/5), 1.2 MiB | …`.
_METER = re.compile(rb"(Counting|Writing) objects: +\d+% \((\d+)/(\d+)\)")


def have_locally(
    here: LocalRepository, commits: Iterable[str], snapshot: Snapshot | None = None
) -> list[str]:
    """Return those of `commits`, as a box names them, that are the repository's or, with
    `snapshot`, earlier snapshots; only full ids count. Raises BoxstrapError if git fails."""
    asked = list(dict.fromkeys(commit for commit in commits if _ID.fullmatch(commit)))
    if not asked:
        return []
    lines = "".join(f"{commit}\n" for commit in asked).encode()
    try:
        answers = run_git(
            snapshot.folders if snapshot else here.folders,
            *("cat-file", "--batch-check=%(objectname) %(objecttype)"),
            stdin=lines,
        )
    except GitError as failure:
        raise git_error(here.root, failure) from failure
    found = {line.removesuffix(" commit") for line in answers.decode().splitlines()}
    return [commit for commit in asked if commit in found]


def missing_objects(here: LocalRepository) -> list[str]:
    """List the commit's files that a partial clone lacks, by names that are safe to show. Nothing
    is fetched. Raises BoxstrapError if the tree object of a folder is missing too."""
    try:
        entries = run_git(here.folders, "ls-tree", "-r", "-z", "--full-tree", here.commit).split(
            b"\0"
        )
        blobs = {
            about.split(b" ")[2]: path
            for about, _, path in (entry.partition(b"\t") for entry in entries if entry)
            if not about.startswith(b"160000")
        }
        ask = ("cat-file", "--batch-check=%(objectname)")
        told = run_git(here.folders, *ask, stdin=b"\n".join(blobs) + b"\n")
    except GitError as failure:
        raise git_error(here.root, failure) from failure
    lines = (line.split(b" ") for line in told.splitlines())
    return [shown(decoded(blobs[blob])) for blob, *word in lines if word == [b"missing"]]


class SharedPack:
    """A pack that several boxes get: git makes it once, and each reads it as it grows.

    It lies in a temporary file without a name. Iterating, in any number of threads, raises
    BoxstrapError if git can't pack.
    """

    def __init__(self, made: ObjectStream) -> None:
        self.made = made  # the stream that makes it; has its progress
        self._file = tempfile.TemporaryFile(dir=temporary_dir(), buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._grown = threading.Condition()
        self._size, self._is_whole = 0, False
        self._error: Exception | None = None
        threading.Thread(target=self._fill, name="pack", daemon=True).start()

    def _fill(self) -> None:
        error: Exception | None = None
        try:
            for piece in self.made.pack():
                self._file.write(piece)
                with self._grown:
                    self._size += len(piece)
                    self._grown.notify_all()
        except BoxstrapError as failure:
            error = failure
        except OSError as failure:
            error = BoxstrapError(f"no room for what is sent to the boxes: {failure.strerror}.")
        with self._grown:
            self._error, self._is_whole = error, True
            self._grown.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        at = 0
        while True:
            with self._grown:
                self._grown.wait_for(lambda: self._size > at or self._is_whole)  # noqa: B023
                if at == self._size:
                    if self._error:
                        raise self._error
                    return
            while piece := os.pread(self._file.fileno(), PIECE, at):
                at += len(piece)
                yield piece


SharePack = Callable[[tuple[object, ...], Callable[[], SharedPack]], SharedPack]
"""Returns the pack of that key, made by whichever box's thread needs it first."""


class ObjectStream:
    """The input for the box's `git receive-pack --stateless-rpc STORE`, piece by piece.

    It makes the ref of `snapshot` (else of `here.commit`), if the box has none yet. `have` are
    commits that the box has and that `have_locally` found here; objects reachable from them are
    not sent.

    Pieces have at most 64 KiB. `progress` is called in the iterating thread, with objects
    done, objects in total (0 while unknown) and bytes so far.
    Iterating raises BoxstrapError if git can't pack: the stream is incomplete then, and must
    not be ended as if it were complete. A partial clone sends the commit without its history.
    A stream is iterated once. `close` ends it early, from any thread; the iterating thread
    then gets that error. With `share`, boxes that have the same commits get the same pack.
    """

    def __init__(
        self,
        here: LocalRepository,
        *,
        have: Sequence[str] = (),
        progress: ProgressCallback | None = None,
        snapshot: Snapshot | None = None,
        share: SharePack | None = None,
    ) -> None:
        self._here = here
        self._snapshot = snapshot
        self._new = snapshot.id if snapshot else here.commit
        self._folders = snapshot.folders if snapshot else here.folders
        self._have = have
        self._progress = progress
        self._share = share
        self._is_closed = False
        self._child: subprocess.Popen[bytes] | None = None
        self.bytes_sent = 0
        self.objects_done = 0
        self.objects_total = 0
        if odd := [commit for commit in have if not _ID.fullmatch(commit)]:
            raise ValueError(f"not the full id of a commit: {odd[0]!r}")

    def __iter__(self) -> Iterator[bytes]:
        try:
            # Ends of a shallow history, the command, a flush; then the pack.
            lines = [_packet(f"shallow {commit}") for commit in self._shallow_ends()]
            wishes = f"report-status quiet object-format={self._here.object_format}"
            new = self._new
            command = _packet(f"{'0' * len(new)} {new} refs/boxstrap/{new}\0 {wishes}")
            head = b"".join([*lines, command, _FLUSH])
            yield from self._counted(head[at : at + PIECE] for at in range(0, len(head), PIECE))
            yield from self._counted(self._shared(self._share) if self._share else self.pack())
        finally:
            self.close()

    def close(self) -> None:
        """Kill git if it is running, unless others read from it. The rest is lost."""
        self._is_closed = True
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            self.bytes_sent += len(piece)
            self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.objects_done, self.objects_total, self.bytes_sent)

    def _shallow_ends(self) -> list[str]:
        if self._here.partial:  # its history may be missing here, so the commit is sent alone
            return [self._here.commit]
        if not self._here.shallow:
            return []
        listed = (self._here.git_dir / "shallow").read_text("ascii", "replace").split()
        return [commit for commit in listed if _ID.fullmatch(commit)]

    def _shared(self, share: SharePack) -> Iterator[bytes]:
        here, have = self._here, self._have
        key = ("pack", str(here.git_dir), self._new, tuple(sorted(have)))

        def make() -> SharedPack:
            return SharedPack(ObjectStream(here, have=have, snapshot=self._snapshot))

        pack = share(key, make)
        for piece in pack:
            if self._is_closed:
                raise BoxstrapError("sending the commit was ended.")
            self.objects_done, self.objects_total = pack.made.objects_done, pack.made.objects_total
            yield piece
        self.objects_done, self.objects_total = pack.made.objects_done, pack.made.objects_total

    def pack(self) -> Iterator[bytes]:
        """Yield the pack alone, made now. Raises as iterating does."""
        options = ["--revs", "--thin", "--stdout", "--delta-base-offset", "--all-progress"]
        env: dict[str, str] = {}
        if self._here.shallow or self._here.partial:
            options.append("--shallow")
            ends = "".join(f"{commit}\n" for commit in self._shallow_ends())
            env["GIT_SHALLOW_FILE"] = str(self._here.repository.view.file("shallow-ends", ends))
        wanted = "\n".join([self._new, *(f"^{commit}" for commit in self._have), ""])
        child = start_git(self._folders, *FRUGAL, "pack-objects", *options, env=env)
        self._child = child
        stdin, pack, words = cast(
            "tuple[IO[bytes], IO[bytes], IO[bytes]]", (child.stdin, child.stdout, child.stderr)
        )
        said = bytearray()
        with child:
            try:
                with contextlib.suppress(BrokenPipeError):  # git's own message says why
                    stdin.write(wanted.encode())
                    stdin.close()
                yield from self._both(pack.fileno(), words.fileno(), said)
                returncode = child.wait()
            finally:
                child.kill()  # without a reader it would go on packing until its next write
        if returncode != 0:
            failure = GitError(returncode, said.decode("utf-8", "replace").replace("\r", "\n"))
            raise git_error(self._here.root, failure)

    def _both(self, pack: int, words: int, said: bytearray) -> Iterator[bytes]:
        """Yield pieces of the pack; git's messages go to `said` and the progress."""
        with selectors.DefaultSelector() as ready:
            for descriptor in (pack, words):
                ready.register(descriptor, selectors.EVENT_READ)
            while ready.get_map():
                for key, _ in ready.select():
                    piece = os.read(key.fd, PIECE)
                    if not piece:
                        ready.unregister(key.fd)
                    elif key.fd == pack:
                        yield piece
                    else:
                        self._take_messages(said, piece)

    def _take_messages(self, said: bytearray, piece: bytes) -> None:
        said += piece
        del said[:-_LONGEST_SAID]
        for phase, done, total in _METER.findall(bytes(said[-len(piece) - 80 :])):
            self.objects_total = int(total)
            self.objects_done = int(done) if phase == b"Writing" else 0
        self._tell()


def parse_report(answer: bytes, said: bytes = b"") -> None:
    """Check receive-pack's answer; `said`: its errors. Raises BoxstrapError if it took not all.

    That it had the ref before is no refusal: its name is that of the only commit it can lead to.
    """
    lines = _packets(answer)
    if not lines:
        raise _not_taken("its git gave no report", said)
    status, refs = lines[0], lines[1:]
    if status != "unpack ok":
        raise _not_taken(status.removeprefix("unpack "), said)
    refused = [line for line in refs if not line.startswith("ok ")]
    if (refused and b"reference already exists" not in said) or not refs:
        raise _not_taken(refused[0].removeprefix("ng ") if refused else "no ref was named", said)


def _not_taken(why: str, said: bytes) -> BoxstrapError:
    lines = [shown(line) for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    told = "".join(f"\n  {line[:200]}" for line in lines[-5:])
    return BoxstrapError(
        f"the box did not take the commit: {shown(why)[:200]}.{told}",
        hint="Nothing changed; run again.",
    )


def _packet(text: str) -> bytes:
    data = text.encode() + b"\n"
    return b"%04x" % (len(data) + 4) + data


def _packets(answer: bytes) -> list[str]:
    """Return the lines up to the flush; none if the answer is incomplete."""
    lines: list[str] = []
    while answer:
        if answer.startswith(_FLUSH):
            return lines
        if not re.match(rb"[0-9a-f]{4}", answer):
            return []
        size = int(answer[:4], 16)
        if not 4 < size <= len(answer):
            return []
        lines.append(answer[4:size].decode("utf-8", "replace").rstrip("\n"))
        answer = answer[size:]
    return []


_MOST_TAGS = 40  # how many tags are sent, the newest first: a repository may have thousands
_MOST_REFS = 1024 * 1024  # bytes of packed refs that are searched before git is asked
_MOST_TAG_BYTES = 16 * 1024
"""Limit for the packed objects of annotated tags: they are part of the script."""
_DESCRIBES: tuple[tuple[str, ...], ...] = ((), ("--match", "*[0-9]*"), ("--match", "v[0-9]*"))
_TAG_ROW = "%(objecttype) %(*objecttype) %(objectname) %(*objectname) %(refname:strip=2)"


class Tags(NamedTuple):
    """The tags of a commit: a row `ID COMMIT NAME` each, and a pack of the annotated ones."""

    rows: tuple[str, ...] = ()
    objects: str = ""  # in base64; "" if none is annotated


def find_tags(here: LocalRepository) -> Tags:
    """Return those that `git describe` may find from the commit; none if git can't tell."""
    try:
        if not _may_have_tags(here.git_dir):
            return Tags()
        found = _list_tags(
            here, "--merged", here.commit, "--sort=-creatordate", f"--count={_MOST_TAGS + 1}"
        )
        if len(found) > _MOST_TAGS:
            nearest = {name for words in _DESCRIBES for name in _nearest_tags(here, words)}
            far = [name for name in nearest if name not in found]
            found = (
                _list_tags(here, *(f"refs/tags/{name}" for name in far)) | found if far else found
            )
            found = dict([*found.items()][:_MOST_TAGS])
        annotated = [row.split(" ")[0] for row in found.values() if _is_annotated(row)]
        while annotated and len(pack := _pack_tags(here, annotated)) > _MOST_TAG_BYTES:
            annotated = annotated[: len(annotated) // 2]
    except GitError:
        return Tags()
    packed = {*annotated}
    rows = [row for row in found.values() if not _is_annotated(row) or row.split(" ")[0] in packed]
    return Tags(tuple(rows), base64.b64encode(pack).decode() if annotated else "")


def _may_have_tags(git_dir: Path) -> bool:
    packed, folder = git_dir / "packed-refs", git_dir / "refs/tags"
    is_long = packed.is_file() and packed.stat().st_size > _MOST_REFS
    is_packed = is_long or " refs/tags/" in read_text(packed, _MOST_REFS)
    return is_packed or any(folder.glob("*")) or (git_dir / "reftable").exists()


def _list_tags(here: LocalRepository, *words: str) -> dict[str, str]:
    """Return the rows of tags of commits by name, in git's order."""
    patterns = [] if any(word.startswith("refs/tags/") for word in words) else ["refs/tags"]
    printed = run_git(here.folders, "for-each-ref", f"--format={_TAG_ROW}", *words, *patterns)
    found = {}
    for line in decoded(printed).split("\n")[:-1]:  # a name may hold what else ends a line
        kind, of, tag, commit, name = line.split(" ", 4)
        if "commit" in (kind, of) and shown(name) == name:
            found[name] = f"{tag} {commit or tag} {name}"
    return found


def _is_annotated(row: str) -> bool:
    tag, commit, _ = row.split(" ", 2)
    return tag != commit


def _nearest_tags(here: LocalRepository, words: tuple[str, ...]) -> list[str]:
    """Return the nearest tag of any kind, and the nearest annotated one."""
    found = []
    for kind in (("--tags",), ()):
        command = ("describe", *kind, *words, "--abbrev=0", here.commit)
        found.append(decoded(run_git(here.folders, *command, ok=(0, 128))).strip())
    return [name for name in found if name]


def _pack_tags(here: LocalRepository, tags: list[str]) -> bytes:
    """Pack these objects alone, the same way each time: the pack is part of the script's id."""
    options = ("--stdout", "-q", "--threads=1", "--window=0", "--no-reuse-object")
    return run_git(
        here.folders, "pack-objects", *options, stdin="".join(f"{t}\n" for t in tags).encode()
    )


@dataclass
class Wanted:
    """What to send of a mirror: refs by name, with their object ids."""

    refs: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)  # the commit of each requested ref
    head: str = "-"  # the ref that a clone checks out
    with_submodules: bool = False

    @property
    def object_format(self) -> str:
        return "sha256" if any(len(each) == 64 for each in self.refs.values()) else "sha1"


def find_wanted(mirror: Path, asked: Iterable[str]) -> Wanted:
    """Resolve all that was asked for: commits, branches, tags, "" for the default branch. Raises
    UsageError if one does not exist, BoxstrapError if git fails."""
    wanted, folders = Wanted(), Folders(mirror)
    try:
        for ref in asked:
            names = _names_of(mirror, ref)
            commit = _commit_of(mirror, names[0] if names else ref or "HEAD")
            if not commit:
                what = shown(ref) or "to begin with"
                raise UsageError(f"it has no branch, tag or commit {what}.")
            if not names:
                names = [f"refs/boxstrap/{commit}"]
                run_git(folders, "update-ref", names[0], commit)
            wanted.resolved[ref] = commit
            if not ref or wanted.head == "-":
                wanted.head = names[0]
            listed = ("--format=%(refname)", f"--merged={commit}", "refs/tags")
            names += decoded(run_git(folders, "for-each-ref", *listed)).split()
            wanted.refs |= {name: _id_of(folders, name) for name in names}
            wanted.with_submodules |= bool(run_git(folders, "ls-tree", commit, ".gitmodules"))
    except GitError as failure:
        raise git_error(mirror, failure) from failure
    return wanted


def write_bundle(mirror: Path, wanted: Wanted, have: Sequence[str], file: Path) -> None:
    """Write the bundle without what is reachable from `have`. Raises BoxstrapError."""
    here = (each for each in have if _ID.fullmatch(each) and _commit_of(mirror, each))
    known = [f"^{each}" for each in here]
    try:
        try:
            _write_revisions(mirror, [*wanted.refs, *known], file)
        except GitError:
            if not known:
                raise
            _write_revisions(mirror, [*wanted.refs], file)  # git refuses an empty bundle
    except GitError as failure:
        raise git_error(mirror, failure) from failure


def _write_revisions(mirror: Path, revisions: Sequence[str], file: Path) -> None:
    lines = "".join(f"{each}\n" for each in revisions).encode("utf-8", "surrogateescape")
    make = ("bundle", "create", "--quiet", str(file), "--stdin")
    run_git(Folders(mirror), *FRUGAL, *make, stdin=lines)


def _names_of(mirror: Path, ref: str) -> list[str]:
    """Return the refs of the mirror that `ref` may name; none if it is a commit."""
    if not ref:
        at = head(mirror) or ""
        return [at.removeprefix("ref: ").strip()] if at.startswith("ref: ") else []
    named = [f"refs/heads/{ref}", f"refs/tags/{ref}"] if not ref.startswith("refs/") else [ref]
    return [name for name in named if _id_of(Folders(mirror), name)]


def _commit_of(mirror: Path, name: str) -> str:
    return _id_of(Folders(mirror), f"{name}^{{commit}}")


def _id_of(folders: Folders, name: str) -> str:
    ask = ("rev-parse", "--quiet", "--verify", "--end-of-options", name)
    try:
        return run_git(folders, *ask).decode().strip()
    except GitError:
        return ""
