"""The program's standard streams: also those that it was started without, or that nobody reads."""

import os
import select
import sys
from typing import NamedTuple

from bootstrap.errors import UNREAD


class End(NamedTuple):
    """How a command ended: its exit code, and what is said about it."""

    code: int
    message: str = ""


def tell(end: End) -> int:
    """Print what a command ends with; return its exit code, also where nobody reads it."""
    code = end.code
    try:
        if end.message:
            print(end.message, file=sys.stderr, flush=True)  # noqa: T201
        elif not code:
            sys.stdout.flush()
    except BrokenPipeError:
        leave_unread()
        code = code or UNREAD
    return code


def leave_unread() -> bool:
    """Drop what is printed from now on where nobody reads it; return whether there is any such."""
    watched = select.poll()
    for stream in (1, 2):
        watched.register(stream, 0)
    gone = watched.poll(0)
    for stream, _ in gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return bool(gone)


def open_streams() -> None:
    """Open the standard streams that this program was started without (`>&-`).

    Else the next file that is opened gets such a number, and what is printed. Of a closed standard
    output the reader is gone; what would be said on a closed standard error is dropped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            reading, writing = os.pipe()
            opened = os.open(os.devnull, os.O_RDWR) if number != 1 else writing
            if opened != number:
                os.dup2(opened, number)
            for each in {reading, writing, opened} - {number}:
                os.close(each)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
