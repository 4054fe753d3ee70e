"""Receive files from a box, block by block: written to partial files, counted and compared."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator

from bootstrap.errors import NotSafeError
from bootstrap.protocol.results import BegunFile, BoxFile, GivenFile, WantedFile
from bootstrap.repo.names import shown
from bootstrap.text.sizes import size
from bootstrap.transfer.landing import Landing
from bootstrap.transfer.partial import PartialFile, TooLong

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)

Came = Iterable[tuple[WantedFile, "bytes | BegunFile | GivenFile"]]


class NoRoom(Exception):  # noqa: N818 - of this machine's disk
    """Nothing more can be written here; `args[0]` says why."""


def file_error(error: OSError) -> str:
    """Return an error of one file in words. Raises NoRoom if it would affect all files."""
    why = (error.strerror or str(error)).lower()
    if error.errno in _FULL:
        raise NoRoom(f"can't be written here: {why}") from error
    return f"can't be written here: {why}"


class ResultReceiver:
    """Receives files one after the other, as `BoxResults.get` yields them."""

    def __init__(self, landing: Landing, tell: Callable[[int], None]) -> None:
        """`tell` is called with the number of bytes received."""
        self._landing, self._tell = landing, tell
        self._partial: PartialFile | None = None
        self._problem = ""

    def receive(self, came: Came) -> Iterator[tuple[BoxFile, PartialFile | str]]:
        """Yield each file with its partial file, complete, or the reason why it is not.

        Raises NoRoom, NotSafeError if more of a file comes than was announced, and as `came`.
        """
        try:
            for (file, at), item in came:
                try:
                    ended = self._take(file, at, item)
                except TooLong:
                    raise NotSafeError(
                        f"the box sends more of {shown(file.path)} than the {size(file.size)} "
                        "that it announced.",
                        hint="None of it was kept. Look at the box before you trust it.",
                    ) from None
                except OSError as error:
                    self._problem = file_error(error)
                    ended = isinstance(item, GivenFile)
                if ended:
                    yield file, self._problem or self._opened(file, 0)
                    self._let_go()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._partial is not None:
            self._partial.close()
        self._partial, self._problem = None, ""

    def _opened(self, file: BoxFile, at: int) -> PartialFile:
        """Return the current partial file; what is here of it counts only if it has `at` bytes."""
        if self._partial is None:
            self._partial = self._landing.partial(file.path, file.state, file.size)
            if self._partial.at != at:
                self._partial.restart()
        return self._partial

    def _take(self, file: BoxFile, at: int, item: bytes | BegunFile | GivenFile) -> bool:
        """Take an item; return whether it was the last of this file. Raises OSError, TooLong."""
        if isinstance(item, GivenFile):
            self._problem = self._problem or self._finish(file, at, item)
            return True
        if self._problem:
            return False
        partial = self._opened(file, at)
        if isinstance(item, BegunFile):
            if item != (partial.at, partial.sha256):
                partial.restart()  # the next round gets it from its start
                self._problem = "changed"
        else:
            partial.write(item)
            self._tell(len(item))
        return False

    def _finish(self, file: BoxFile, at: int, given: GivenFile) -> str:
        """Finish the file; return why it is not complete, or "". Raises OSError."""
        if given.problem:
            return given.problem
        partial = self._opened(file, at)
        if (partial.at, partial.sha256) != (file.size, given.sha256):
            partial.restart()
            return "damaged"
        partial.finish(file.modified)
        return ""
