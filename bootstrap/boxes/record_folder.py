"""The folder that receives a run's log and record, as pulls bring them. What is known of the run,
and where it is found again, is in `at_home`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from bootstrap.boxes.at_home import LOG, MOST_FILE, RunAtHome, read_kept
from bootstrap.errors import BusyError, NotSafeError
from bootstrap.transfer.destination import RECORD, LocalFolder

_MOST_FOLDERS = 1000
_LOG_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


class RecordFolder(LocalFolder):
    """The folder that receives a run's log and record. One process at a time can open it."""

    def __init__(self, base: Path, inside: Sequence[str], kept: RunAtHome) -> None:
        """`kept`: what is here already. Raises OSError, NotSafeError, BusyError."""
        base.mkdir(parents=True, exist_ok=True)
        for number_ in range(1, _MOST_FOLDERS):
            name = RECORD if number_ == 1 else f"{RECORD}-{number_}"
            super().__init__(base, (*inside, name), make=True)
            if self._owner() in ("", kept.id):
                break
            self.close()
        else:
            raise NotSafeError("there are records of too many runs.", where=str(base))
        try:
            fcntl.flock(self._root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise BusyError(
                "another pull brings this run's log here.",
                where=str(self.place),
                hint="Let it end, or end it, and run the same command again.",
            ) from None
        self._kept = kept
        try:
            self.put("run.json", kept.text())
        except OSError:  # the disk is full: what comes again must find the folder free
            self.close()
            raise

    def _owner(self) -> str:
        """Return the id of the run whose record is here; "" if there is none."""
        try:
            with os.fdopen(os.open("run.json", _READ, dir_fd=self._root), "rb") as file:
                found = read_kept(json.loads(file.read(MOST_FILE)))
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, RecursionError):
            return "?"
        return found.id if found else "?"

    def put(self, name: str, content: str | bytes) -> None:
        """Write a file of the record, whole or not at all. Raises OSError."""
        new = f".{name}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=self._root)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=self._root), "wb") as file:
            file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)
        os.rename(new, name, src_dir_fd=self._root, dst_dir_fd=self._root)

    def open_log(self) -> LogAtHome:
        """Open the log to go on with it. Raises OSError."""
        file = os.open(LOG, _LOG_FLAGS, 0o600, dir_fd=self._root)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.close(file)
            raise NotSafeError("the log here is a link, or no file.", where=str(self.place))
        return LogAtHome(file, self._kept.log if self._kept.log_bytes <= found.st_size else ())


_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class LogAtHome:
    """A log that is being received. `parts` are as `RunAtHome.log`. A context manager."""

    def __init__(self, file: int, parts: Sequence[tuple[int, int]]) -> None:
        """What is in the file beyond `parts` is dropped: the last pull was cut short."""
        self._file = file
        self.parts = [*parts]
        os.ftruncate(file, self.size)
        os.lseek(file, 0, os.SEEK_END)

    def __enter__(self) -> LogAtHome:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    @property
    def size(self) -> int:
        return sum(size for _, size in self.parts)

    @property
    def at(self) -> int:
        """The byte of the box's log that comes next."""
        return sum(self.parts[-1]) if self.parts else 0

    def begin_at(self, at: int, most: int) -> None:
        """What comes next is from byte `at` on; `most` bytes of the log may be here. What is here
        from that byte on was written anew on the box: it is dropped."""
        kept = [(start, min(size, at - start)) for start, size in self.parts if start < at]
        if self.size > most:
            kept = []
        if kept != self.parts:
            self.parts = kept
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, 0, os.SEEK_END)
        if at != self.at or not self.parts:
            self.parts.append((at, 0))

    def write(self, piece: bytes) -> None:
        """Append a piece. Raises OSError."""
        rest = memoryview(piece)
        while rest:
            count = os.write(self._file, rest)
            start, size = self.parts[-1]
            self.parts[-1] = (start, size + count)
            rest = rest[count:]

    def cut_line(self, most: int) -> None:
        """Drop an unfinished last line: the rest of it may be the rest of a secret."""
        if not self.parts:
            return
        start, size = self.parts[-1]
        back = min(size, most)
        end = os.pread(self._file, back, self.size - back)
        cut = max(end.rfind(b"\n"), end.rfind(b"\r")) + 1
        self.parts[-1] = (start, size - back + cut)
        os.ftruncate(self._file, self.size)
        os.lseek(self._file, 0, os.SEEK_END)

    def sync(self) -> None:
        """Make sure that a power cut loses nothing of it. Raises OSError."""
        os.fsync(self._file)
