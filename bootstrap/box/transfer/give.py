"""Send files: read what is requested, and write nothing."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from typing import Any

from .frames import BLOCK, encoded_name

KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))


def facts(found: os.stat_result) -> list[Any]:
    """Return kind, size, mtime, inode and ctime; times are in nanoseconds."""
    kind = next((word for test, word in KINDS if test(found.st_mode)), "other")
    return [kind, found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


class Giver:
    """Handles the request `get`."""

    def __init__(self, home: bytes, say: Callable[..., None], between: Callable[[], None]) -> None:
        """`between` is called between the pieces of a file."""
        self.workdir, self.say, self.between = os.path.dirname(home), say, between

    def get(self, request: dict[str, Any]) -> None:
        """Send a file from offset `at` on, up to offset `size`.

        First `begun`: the digest of the bytes before `at`. Then blocks. Then the digest of all,
        with the file's facts before the reading and after it: the same, unless the file changed.
        """
        i, at, size = request["i"], request["at"], request["size"]
        path = os.path.join(self.root(request), encoded_name(request["path"]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(path, flags)
        except OSError:
            self.say({"i": i, "problem": "absent"})
            return
        try:
            before = os.fstat(file)
            if not stat.S_ISREG(before.st_mode):
                self.say({"i": i, "problem": "kind"})
                return
            self.read(file, i, at, size, facts(before))
        except OSError:
            self.say({"i": i, "problem": "unread"})
        finally:
            os.close(file)

    def read(self, file: int, i: int, at: int, size: int, before: list[Any]) -> None:
        """Read and send an open file. Raises OSError."""
        digest = hashlib.sha256()
        done = 0
        while done < at:
            piece = os.read(file, min(BLOCK, at - done))
            if not piece:
                break
            digest.update(piece)
            done += len(piece)
            self.between()
        if at:
            self.say({"i": i, "begun": done, "sha256": digest.hexdigest()})
        while True:
            piece = os.read(file, min(BLOCK, size - done))
            digest.update(piece)
            done += len(piece)
            if not piece or done == size:
                break
            self.say({}, piece)
            self.between()
        found = {"before": before, "now": facts(os.fstat(file)), "sha256": digest.hexdigest()}
        self.say({"i": i, "read": done, **found}, piece)

    def root(self, request: dict[str, Any]) -> bytes:
        """Return the requested folder: absolute, or below the working folder."""
        return os.path.join(self.workdir, encoded_name(request["root"]))
