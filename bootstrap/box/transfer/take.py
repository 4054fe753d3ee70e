"""Receive files: check what is already there, take the rest, each file whole or not at all.

A file is first written to the folder `.boxstrap-parts` of its target, under a name made of its
path, size and time; a part of it that is already there is continued. Only files that an earlier
transfer put there are replaced, unless the request says otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any

from .frames import encoded_name
from .held_files import has_open
from .incoming import Incoming, sha256_of, sync
from .record import KnownFile, TargetRecord

PARTS = b".boxstrap-parts"
SYNCED = 1 << 20  # bytes: larger files are synced to the disk before they get their name
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


class Taker:
    """Handles the requests `to`, `look`, `compare`, `folders`, `put`, `done`, in this order."""

    def __init__(self, home: bytes, say: Callable[..., None], between: Callable[[], None]) -> None:
        """`between` is called repeatedly while one file takes long."""
        self.home, self.say, self.between = home, say, between
        self.incoming: Incoming | None = None
        self.is_over = False

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
        self.say({"states": "".join(states), "begun": begun})

    def state(self, path: str, size: int, mtime: int) -> str:
        """Return the letter for what is there of a file, by size and time."""
        try:
            found = os.lstat(self.place(path))
        except FileNotFoundError:
            return ABSENT
        except OSError:
            return FOREIGN
        if not stat.S_ISREG(found.st_mode):
            return FOREIGN
        ours = self.ours(path, found)
        if ours and (size, mtime) == (ours.size, ours.source_mtime):
            return HAS
        if found.st_size == size:
            return SAME_SIZE
        return OLDER if ours or self.replace else FOREIGN

    def is_in_the_way(self, path: str) -> bool:
        """Return whether something is there that must not be replaced."""
        try:
            found = os.lstat(self.place(path))
        except OSError:
            return False
        is_file = stat.S_ISREG(found.st_mode)
        return not is_file or (not self.replace and self.ours(path, found) is None)

    def ours(self, path: str, found: os.stat_result) -> KnownFile | None:
        """Return the record of a file, if the file is as a transfer put it there."""
        known = self.record.files.get(path)
        return known if known and known[:2] == (found.st_size, found.st_mtime_ns) else None

    def compare(self, request: dict[str, Any]) -> None:
        """Report whether the file that is there has the content that would be sent."""
        path = request["path"]
        place, state = self.place(path), FOREIGN
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            ours = self.ours(path, found)
            have = ours.sha256 if ours else sha256_of(place, self.between)
            if have == request["sha256"]:
                state = HAS
                self.note(path, request["mtime"], have, found)
            elif ours or self.replace:
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
        os.utime(incoming.file, ns=(asked["mtime"], asked["mtime"]))
        if asked["size"] > SYNCED:
            sync(incoming.file, self.between)
        try:
            os.rename(incoming.part, place)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.rename(incoming.part, place)
        self.note(asked["path"], asked["mtime"], sha256, os.fstat(incoming.file))

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
        """Return the path of a file."""
        return os.path.join(self.root, encoded_name(path))

    def part(self, path: str, size: int, mtime: int) -> bytes:
        """Return the path of a file while it is being received."""
        name = f"{path}\0{size}\0{mtime}".encode("utf-8", "surrogateescape")
        return os.path.join(self.parts, hashlib.sha256(name).hexdigest()[:32].encode())
