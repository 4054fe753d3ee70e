"""Run a function inside a box, in a thread that enters its namespaces.

Starting nsenter would take longer than most of what is done there.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_Result = TypeVar("_Result")

_LIBC = ctypes.CDLL(None, use_errno=True)
_OWN_FOLDER = 0x200  # CLONE_FS: setns to a mount namespace fails for threads that share it
_NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x20000000 | 0x40000000  # mnt, uts, ipc, pid, net


def inside(pid: int, work: Callable[[], _Result]) -> _Result:
    """Return `work()`, run with the programs that it starts in the namespaces of process `pid`.

    It must import nothing: the modules aren't in the box. Raises OSError if the process is gone.
    """

    def enter() -> _Result:
        handle = os.pidfd_open(pid)
        try:
            _checked(_LIBC.unshare(_OWN_FOLDER))
            _checked(_LIBC.setns(handle, _NAMESPACES))
        finally:
            os.close(handle)
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(enter).result()


def _checked(answer: int) -> None:
    if answer:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def put_owned(file: Path, text: str, mode: int, owner: str) -> None:
    """Write a file and its folder, in the current root; `owner` is a name in its /etc/passwd."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, errors="surrogateescape")
    file.chmod(mode)
    users = (line.split(":") for line in Path("/etc/passwd").read_text().splitlines())
    os.chown(file, *next((int(uid), int(gid)) for name, _, uid, gid, *_ in users if name == owner))


def folders_in(path: str) -> list[str]:
    """Return the sorted names of the folders in a folder."""
    return sorted(each.name for each in Path(path).iterdir() if each.is_dir())
