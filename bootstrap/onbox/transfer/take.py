"""Receive files: check what is already there, take the rest, each file whole or not at all.

A file is first written to the folder `.boxstrap-parts` of its target, under a name made of its
path, size and time; a part of it that is already there is continued. Only files that an earlier
transfer put there are replaced, unless the request says otherwise.

Receive a file block by block; `between` is called while one operation takes long.

Record of what transfers put into a folder: a line for each file, appended soon after it came.

A file is ours while it has the size and time with which it was put there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..processes import has_open
from .frames import decoded_name, encoded_name

PIECE = 1 << 20  # bytes read at once
SYNC_S = 1.0  # seconds between two calls while waiting for the disk


def sha256_of(path: bytes, between: Callable[[], None]) -> str:
    """Return the SHA-256 of a file, or of a link's text. Raises OSError."""
    digest = hashlib.sha256()
    if os.path.islink(path):
        digest.update(os.readlink(path))
        return digest.hexdigest()
    with open(path, "rb", buffering=0) as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)
            between()


def sync(file: int, between: Callable[[], None]) -> None:
    """Sync a file to the disk, which may take long for gigabytes. Raises OSError."""
    failed: list[OSError] = []

    def bring() -> None:
        try:
            os.fsync(file)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=bring, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SYNC_S)
        between()
    if failed:
        raise failed[0]


class Incoming:
    """A file that is being received. What is already there of it is hashed again."""

    def __init__(self, request: dict[str, Any], part: bytes, between: Callable[[], None]) -> None:
        self.request, self.part, self.between = request, part, between
        self.digest = hashlib.sha256()
        self.mode = request["mode"] & 0o777 | 0o600
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        try:
            self.file = os.open(part, flags | os.O_EXCL, self.mode)
        except FileExistsError:
            self.file = os.open(part, flags)
            os.fchmod(self.file, self.mode)
            os.ftruncate(self.file, request["at"])
            self.take_in(request["at"])

    def take_in(self, rest: int) -> None:
        """Hash what is already there. Raises OSError."""
        while rest > 0:
            piece = os.read(self.file, min(PIECE, rest))
            if not piece:
                break
            self.digest.update(piece)
            rest -= len(piece)
            self.between()

    def write(self, block: bytes) -> None:
        """Append a block. Raises OSError."""
        self.digest.update(block)
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(self.file, rest) :]


class KnownFile(NamedTuple):
    """A file that was put there: its size and time there, and its time at the source."""

    size: int
    mtime: int
    source_mtime: int
    sha256: str


class TargetRecord:
    """The record of one target folder, kept in `folder`; for one process at a time."""

    def __init__(self, folder: bytes, target: bytes) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        key = hashlib.sha256(target).hexdigest()[:32]
        self.path = os.path.join(folder, key.encode() + b".jsonl")
        self.lock = os.path.join(folder, key.encode() + b".lock")
        self.files: dict[str, KnownFile] = {}
        self._target = target
        self._lines = 0
        self._file = -1
        self._held: list[bytes] = []

    def read(self) -> None:
        """Read the record; a line that was cut off is skipped."""
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    self._take(line)
        except FileNotFoundError:
            pass

    def load(self) -> None:
        """Read the record, to add to it."""
        self.read()
        if self._lines > 2 * len(self.files) + 1000:
            self._rewrite()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(self.path, flags, 0o600)
        os.write(self._file, b"\n" if self._lines else self._head())

    def _take(self, line: bytes) -> None:
        self._lines += 1
        try:
            path, *known = json.loads(line)
            self.files[path] = KnownFile(*known)
        except (ValueError, TypeError):
            pass

    def _head(self) -> bytes:
        """Return a line that names the target, for human readers."""
        return json.dumps({"target": decoded_name(self._target)}).encode() + b"\n"

    def _rewrite(self) -> None:
        new = self.path + b".new"
        with open(new, "wb") as file:
            file.write(self._head())
            for path, known in self.files.items():
                file.write(json.dumps([path, *known]).encode() + b"\n")
        os.rename(new, self.path)

    def add(self, path: str, known: KnownFile) -> None:
        """Add a file that is there now; `write` saves it."""
        self.files[path] = known
        self._held.append(json.dumps([path, *known]).encode() + b"\n")

    def write(self) -> None:
        """Append what was added to the record's file. Raises OSError."""
        if self._held:
            os.write(self._file, b"".join(self._held))
            self._held = []


PARTS = b".boxstrap-parts"
SYNCED = 1 << 20  # bytes: larger files are synced to the disk before they get their name
MOST_STALE = 1000  # names
HAS, ABSENT, SAME_SIZE, OLDER, FOREIGN = "h", "a", "s", "r", "f"
PROBLEMS = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
}


def problem_of(error: OSError) -> str:
    """Return the word for an error of the system."""
    return PROBLEMS.get(error.errno or 0, "place")


def hold(path: bytes, who: str) -> bool:
    """Lock a target; a process of the same sender that holds it (its link was lost) is ended."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for tries in range(100):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 200, 0).decode("ascii", "replace").split()
            if len(holder) != 2 or holder[1] != who or not holder[0].isdigit():
                return False
            # On a volume of several boxes the pid may be from another box, and here any process.
            if has_open(int(holder[0]), (os.fstat(lock).st_dev, os.fstat(lock).st_ino)):
                with contextlib.suppress(OSError):  # a stopped process reacts only to SIGKILL
                    os.kill(int(holder[0]), signal.SIGTERM if tries < 5 else signal.SIGKILL)
            time.sleep(0.1)
            continue
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d %s\n" % (os.getpid(), who.encode()), 0)
        return True
    return False


class BoxReceiver:
    """Handles the requests `to`, `look`, `compare`, `folders`, `put`, `done`, in this order."""

    def __init__(self, home: bytes, say: Callable[..., None], between: Callable[[], None]) -> None:
        """`between` is called repeatedly while one file takes long."""
        self.home, self.say, self.between = home, say, between
        self.incoming: Incoming | None = None
        self.is_over = False
        self.others: dict[bytes, TargetRecord] = {}
        self.asked: set[str] = set()

    def to(self, request: dict[str, Any]) -> None:
        """Set the target folder, and create it if needed. A problem with it ends the transfer."""
        problem, free = "", 0
        try:
            problem = self.open(encoded_name(request["target"]), request["who"])
            if not problem:
                self.record.load()
                disk = os.statvfs(self.root)
                free = disk.f_bavail * disk.f_frsize
        except OSError as error:
            problem = problem_of(error)
        self.replace = bool(request.get("replace"))
        self.say({"problem": problem} if problem else {"free": free})
        self.is_over = bool(problem)

    def open(self, target: bytes, who: str) -> str:
        """Make and lock the target; return a word for the problem, or "". Raises OSError."""
        workdir = os.path.dirname(self.home)
        asked = os.path.normpath(os.path.join(workdir, os.path.expanduser(target)))
        if not (asked + b"/").startswith(workdir.rstrip(b"/") + b"/"):
            return "outside"
        os.makedirs(asked, exist_ok=True)
        self.root = os.path.realpath(asked)
        self.parts = os.path.join(self.root, PARTS)
        self.record = TargetRecord(os.path.join(self.home, b"data"), self.root)
        return "" if hold(self.record.lock, who) else "busy"

    def look(self, request: dict[str, Any]) -> None:
        """Report what is there of each file, as a letter, and the sizes of partial files."""
        begun = {}
        states = []
        for at, (path, size, mtime) in enumerate(request["files"]):
            states.append(self.state(path, size, mtime))
            if states[-1] != HAS and size:
                with contextlib.suppress(OSError):
                    begun[str(at)] = min(size, os.stat(self.part(path, size, mtime)).st_size)
        self.asked.update(row[0] for row in request["files"])
        stale = [*self.stale()][:MOST_STALE] if request.get("is_all") else []
        self.say({"states": "".join(states), "begun": begun, "stale": stale})

    def stale(self) -> Iterator[str]:
        """Yield what earlier transfers of this folder put there and this one has no more; another
        folder that was sent there shares no file with it."""
        before = self.record.files.keys()
        for path in sorted(before - self.asked if before & self.asked else ()):
            with contextlib.suppress(OSError):
                if self.ours(path, os.lstat(self.place(path))):
                    yield path

    def state(self, path: str, size: int, mtime: int) -> str:
        """Return the letter for what is there of a file, by size and time."""
        try:
            found = os.lstat(self.place(path))
        except FileNotFoundError:
            return ABSENT
        except OSError:
            return FOREIGN
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            return FOREIGN
        if self.is_sent(path, size, mtime, found):
            return HAS
        if found.st_size == size:
            return SAME_SIZE
        return OLDER if self.may_replace(path, found) else FOREIGN

    def is_sent(self, path: str, size: int, mtime: int, found: os.stat_result) -> bool:
        """Return whether a transfer put this file there, or the one that its link leads to."""
        for known in (self.ours(path, found), linked := self.linked(path, found)):
            if known and (size, mtime) == (known.size, known.source_mtime):
                if known is linked:
                    self.note(path, mtime, known.sha256, found)
                return True
        return False

    def may_replace(self, path: str, found: os.stat_result) -> bool:
        """Return whether what is there may be replaced: our own, or with `replace` any file."""
        is_ours = bool(self.ours(path, found) or self.linked(path, found))
        return is_ours or (self.replace and stat.S_ISREG(found.st_mode))

    def is_in_the_way(self, path: str) -> bool:
        """Return whether something is there that must not be replaced."""
        try:
            return not self.may_replace(path, os.lstat(self.place(path)))
        except OSError:
            return False

    def ours(self, path: str, found: os.stat_result) -> KnownFile | None:
        """Return the record of a file, if the file is as a transfer put it there."""
        known = self.record.files.get(path)
        return known if known and known[:2] == (found.st_size, found.st_mtime_ns) else None

    def linked(self, path: str, found: os.stat_result) -> KnownFile | None:
        """Return the record of the file that a link leads to, if a transfer put that into another
        folder: a tree beside has such links to what was sent to the main tree."""
        folder = real = os.path.realpath(self.place(path))
        if not stat.S_ISLNK(found.st_mode) or real.startswith(self.root + b"/"):
            return None
        while len(folder) > 1:
            folder = os.path.dirname(folder)
            record = self.others.get(folder)
            if record is None:
                record = self.others[folder] = TargetRecord(
                    os.path.dirname(self.record.path), folder
                )
                record.read()
            known = record.files.get(decoded_name(os.path.relpath(real, folder)))
            with contextlib.suppress(OSError):
                now = os.stat(real)
                if known and known[:2] == (now.st_size, now.st_mtime_ns):
                    return known
        return None

    def compare(self, request: dict[str, Any]) -> None:
        """Report whether the file that is there has the content that would be sent."""
        path = request["path"]
        place, state = self.place(path), FOREIGN
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            ours = self.ours(path, found)
            have = ours.sha256 if ours else sha256_of(place, self.between)
            if have == request["sha256"] and stat.S_ISLNK(found.st_mode) == request["link"]:
                state = HAS
                self.note(path, request["mtime"], have, found)
            elif self.may_replace(path, found):
                state = OLDER
        self.say({"i": request["i"], "state": state})

    def folders(self, request: dict[str, Any]) -> None:
        """Make empty folders."""
        for path in request["paths"]:
            with contextlib.suppress(OSError):
                os.makedirs(self.place(path), exist_ok=True)

    def put(self, request: dict[str, Any], body: bytes) -> None:
        """Receive a small file, or start a large one, whose blocks and `done` follow."""
        self.drop()
        part = self.part(request["path"], request["size"], request["mtime"])
        with self.telling(request):
            try:
                self.incoming = Incoming(request, part, self.between)
            except FileNotFoundError:
                os.makedirs(self.parts, mode=0o700, exist_ok=True)
                self.incoming = Incoming(request, part, self.between)
            if "sha256" in request:
                self.incoming.write(body)
                self.done(request)

    def block(self, body: bytes) -> None:
        """Add a block to the current file; after a problem there is none, and it is dropped."""
        if self.incoming is not None:
            with self.telling(self.incoming.request):
                self.incoming.write(body)

    def done(self, request: dict[str, Any]) -> None:
        """Finish a file: it gets its name. Without `sha256` it changed while it was read."""
        if self.incoming is None:
            return
        incoming, asked = self.incoming, self.incoming.request
        with self.telling(asked):
            if "sha256" not in request or incoming.digest.hexdigest() != request["sha256"]:
                os.unlink(incoming.part)
                word = "damaged" if "sha256" in request else "changed"
                self.say({"i": asked["i"], "problem": word})
            elif self.is_in_the_way(asked["path"]):
                self.say({"i": asked["i"], "problem": "foreign"})
            else:
                self.name(incoming, request["sha256"])
                self.say({"i": asked["i"]})
        self.drop()

    def name(self, incoming: Incoming, sha256: str) -> None:
        """Move a complete file to its path. Raises OSError."""
        asked = incoming.request
        place = self.place(asked["path"])
        if asked.get("link"):
            text = os.pread(incoming.file, asked["size"], 0)
            os.unlink(incoming.part)
            os.symlink(text, incoming.part)
        os.utime(incoming.part, ns=(asked["mtime"], asked["mtime"]), follow_symlinks=False)
        if asked["size"] > SYNCED:
            sync(incoming.file, self.between)
        try:
            os.rename(incoming.part, place)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.rename(incoming.part, place)
        self.note(asked["path"], asked["mtime"], sha256, os.lstat(place))

    def note(self, path: str, mtime: int, sha256: str, found: os.stat_result) -> None:
        """Record a file that is there now, with its time at the source."""
        self.record.add(path, KnownFile(found.st_size, found.st_mtime_ns, mtime, sha256))

    def rest(self) -> None:
        """Save the record of what arrived, if there is room; called before answers are sent."""
        if hasattr(self, "record"):
            with contextlib.suppress(OSError):
                self.record.write()

    def end(self) -> None:
        """Remove the folder of parts if it is empty."""
        self.drop()
        if hasattr(self, "parts"):
            with contextlib.suppress(OSError):
                os.rmdir(self.parts)

    def drop(self) -> None:
        """Close the current file; what arrived of it stays."""
        if self.incoming is not None:
            os.close(self.incoming.file)
            self.incoming = None

    @contextlib.contextmanager
    def telling(self, request: dict[str, Any]) -> Iterator[None]:
        """Report an OSError about a file, and drop the file."""
        try:
            yield
        except OSError as error:
            self.drop()
            self.say({"i": request["i"], "problem": problem_of(error)})

    def place(self, path: str) -> bytes:
        return os.path.join(self.root, encoded_name(path))

    def part(self, path: str, size: int, mtime: int) -> bytes:
        """Return the path of a file while it is being received."""
        name = f"{path}\0{size}\0{mtime}".encode("utf-8", "surrogateescape")
        return os.path.join(self.parts, hashlib.sha256(name).hexdigest()[:32].encode())
