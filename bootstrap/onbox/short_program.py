"""Run a program that soon ends, and read all that it prints. `subprocess` does so as well, and
takes longer to import than git takes to answer."""

from __future__ import annotations

import os
import select
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Mapping

_PIECE = 1 << 16
_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ: Python ignores them, and so would what it starts."""


class ProgramEnd:
    """Its exit code, as a shell has it, and what it printed."""

    def __init__(self, status: int, output: bytes, errors: bytes) -> None:
        self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        self.output, self.errors = output, errors


def run(command: list[str], variables: Mapping[str, str], given: bytes | int = b"") -> ProgramEnd:
    """Run it with `given` as its input, which may be an open file, and no other open file of this
    process. Raises OSError if it can't be started."""
    pipes = [os.pipe(), os.pipe(), os.pipe()]
    if isinstance(given, int):
        os.dup2(given, pipes[0][0], inheritable=False)
        given = b""
    ours = (pipes[0][1], pipes[1][0], pipes[2][0])
    theirs = (pipes[0][0], pipes[1][1], pipes[2][1])
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_CLOSE, file) for file in _inherited()]
    actions += [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(theirs)]
    try:
        begin = os.posix_spawnp
        program = begin(command[0], command, variables, file_actions=actions, setsigdef=_SIGNALS)
    except OSError:
        for file in ours:
            os.close(file)
        raise
    finally:
        for file in theirs:
            os.close(file)
    output, errors = _exchange(*ours, memoryview(given))
    return ProgramEnd(os.waitpid(program, 0)[1], output, errors)


def which(name: str) -> str:
    """Return the path of a program; "" if it isn't there."""
    found = (f"{folder}/{name}" for folder in os.get_exec_path())
    return next((path for path in found if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def _inherited() -> list[int]:
    """Return open files that a program would get from this process, as a lock that it holds."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the list itself is no longer open
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def _exchange(to: int, output: int, errors: int, given: memoryview) -> tuple[bytes, bytes]:
    """Write what is given while reading, so that neither side waits for the other."""
    said = {output: bytearray(), errors: bytearray()}
    poll, files = select.poll(), {to, *said}
    os.set_blocking(to, False)
    for file in files:
        poll.register(file, select.POLLOUT if file == to else select.POLLIN)
    while files:
        for file, _ in poll.poll():
            if file == to:
                try:
                    given = given[os.write(to, given[:_PIECE]) :]
                except BrokenPipeError:
                    given = given[:0]
                is_over = not given
            else:
                piece = os.read(file, _PIECE)
                said[file] += piece
                is_over = not piece
            if is_over:
                poll.unregister(file)
                os.close(file)
                files.remove(file)
    return bytes(said[output]), bytes(said[errors])
