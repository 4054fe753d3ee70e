"""Copies of files: as clones of their blocks, which takes no time and no room, or byte by byte."""

from __future__ import annotations

import errno
import fcntl
import os
import time

FOREVER = float("inf")
_CLONE = 0x40049409
"""FICLONE of linux/fs.h."""
_PIECE = 1 << 22


class CantKeep(Exception):  # noqa: N818 - not an error of this program
    """Results can't be kept; `args[0]` is why."""


def clone(source: int, copy: int) -> bool:
    """Share the blocks of a file; return whether the file system can."""
    try:
        fcntl.ioctl(copy, _CLONE, source)
    except OSError:
        return False
    return True


def copy_bytes(source: int, copy: int, until: float) -> None:
    """Copy a file. Raises CantKeep if it takes too long, OSError."""
    while True:
        if time.monotonic() > until:
            raise CantKeep("slow")
        try:
            done = os.sendfile(copy, source, None, _PIECE)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            piece = os.read(source, _PIECE)
            done = len(piece)
            while piece:
                piece = piece[os.write(copy, piece) :]
        if not done:
            return
