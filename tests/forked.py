"""The programs `boxstrap` and `inv`, forked from a server that has imported them.

Starting a Python and importing everything takes ten times as long as most commands, and the tests
run thousands of them. The fork is the same program, in its own process and session, with its own
environment, folder and streams. `can_fork` says when the program is executed instead.
"""

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import pkgutil
import select
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tests.plain_environment import measuring

HERE = Path(__file__).resolve().parents[1]
PROGRAM = str(Path(sys.executable).with_name("boxstrap"))
INV = str(Path(sys.executable).with_name("inv"))
AT_START = ("LANG", "LC_", "LD_", "PYTHON")
"""Python reads variables with these prefixes once, when it starts."""
_LATE = ("encodings.utf_8_sig",)
"""Modules that most commands import late."""
USUAL = {"LANG": "C.UTF-8", "PYTHONPATH": str(HERE)}


def can_fork(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether this is one of the programs, and its Python is started as usual."""
    named = (name for name in env if name.startswith(AT_START))
    return (
        sys.platform == "linux"
        and argv[0] in (PROGRAM, INV)
        and all(env[name] == USUAL.get(name) for name in named)
    )


class Forked:
    """A forked program, with the interface of subprocess.Popen.

    It has no standard input; without `stdout`, its output goes to a pipe that is read here.
    """

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stderr: int,
        stdout: int | None = None,
    ) -> None:
        self._report, report = os.pipe()
        self._lock = threading.Lock()
        self._out = b""
        self.stdout: io.FileIO | None = None
        self.returncode: int | None = None
        passed = [report]
        if stdout is None:
            read, stdout = os.pipe()
            self.stdout = io.FileIO(read)
            passed.append(stdout)
        asked = json.dumps([list(argv), str(cwd), dict(env)]).encode()
        socket.send_fds(_server(), [asked], [stdout, stderr, report])
        for fd in passed:
            os.close(fd)
        self.pid = self._reported()

    def _reported(self) -> int:
        """Read one line of its report and no more: a program that ends immediately sends two."""
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._report, 1) or b"\n"
        return int(line)

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._await_end(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired if that takes longer."""
        code = self._await_end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        return code

    def _await_end(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
                self.returncode = self._reported()
                os.close(self._report)
            return self.returncode

    def communicate(self, timeout: float = 1e6) -> tuple[str, None]:
        """Return the rest of its output, and wait for its end."""
        limit = time.monotonic() + timeout
        while self.stdout and not self.stdout.closed:
            if not select.select([self.stdout], [], [], max(0, limit - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired(PROGRAM, timeout)
            piece = self.stdout.read(1 << 16)
            self._out += piece
            if not piece:
                self.stdout.close()
        self.wait(max(0, limit - time.monotonic()))
        return self._out.decode(errors="replace"), None


# -- the server: one for all of pytest's processes

SHARED = "TESTS_FORK_SERVER"
"""The variable with the address of the server that pytest's first process started."""


def start_server() -> str:
    """Start a server that ends with this process; return its address."""
    address = str(Path(tempfile.mkdtemp(prefix="boxstrap-forked-")) / "requests")
    ours, theirs = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    with theirs:
        theirs.bind(address)
        theirs.listen(64)
        ours.connect(address)  # the first connection: when it is closed, the server ends
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            cwd=HERE,
            env={"PATH": os.environ["PATH"], **USUAL, **measuring()},
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()
        shutil.rmtree(Path(address).parent)

    atexit.register(end)
    return address


@functools.cache
def _server() -> socket.socket:
    """Return the socket for this process's requests."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.connect(os.environ.get(SHARED) or start_server())
    atexit.register(ours.close)
    return ours


def serve(listener: socket.socket) -> None:
    """Fork a program for each request, and report its pid and how it ended."""
    gc.disable()
    _import_all()
    gc.freeze()
    gc.enable()
    ready = selectors.DefaultSelector()
    first, _ = listener.accept()
    callers = [listener, first]
    for each in callers:
        ready.register(each, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            caller = next((each for each in callers if each is key.fileobj), None)
            if caller is None:
                ready.unregister(key.fd)
                _report_end(key.fd, *key.data)
            elif caller is listener:
                callers.append(listener.accept()[0])
                ready.register(callers[-1], selectors.EVENT_READ)
            elif begun := _fork(caller, callers):
                ready.register(begun[0], selectors.EVENT_READ, begun[1:])
            elif caller is first:
                return
            else:
                ready.unregister(caller)
                callers.remove(caller)
                caller.close()


def _fork(caller: socket.socket, callers: Sequence[socket.socket]) -> tuple[int, int, int] | None:
    """Start the requested program: its pidfd, pid and report; None if the caller has closed."""
    asked, fds, _, _ = socket.recv_fds(caller, 1 << 20, 3)
    if not asked:
        return None
    *streams, report = fds
    child = os.fork()
    if not child:
        for each in callers:
            each.close()
        _begin(*json.loads(asked), *fds)
    for fd in streams:
        os.close(fd)
    return os.pidfd_open(child), child, report


def _import_all() -> None:
    """Import all that the programs may import, without what runs on boxes."""
    import bootstrap

    for found in pkgutil.walk_packages(bootstrap.__path__, "bootstrap."):
        if not found.name.startswith(("bootstrap.__main__", "bootstrap.onbox.")):
            import_module(found.name)
    for name in _LATE:
        with contextlib.suppress(ImportError):
            import_module(name)
    if measuring():
        import_module("tests.coverage").use_whole_programs()
    # Caches that each command for a door, each transfer and each log would fill again.
    program = import_module("bootstrap.setup.program")
    _ = program.program().digest
    program.program_files(bare=True)
    transfer = import_module("bootstrap.transfer.frames")
    shell = import_module("bootstrap.steps.shell")
    shell.sent_program(transfer.PROGRAM)
    # A paste as small as can be takes most of a second; here it is half a percent longer.
    shell._ROUNDS, shell._BLOCKS = 1, 4  # type: ignore[attr-defined]
    import_module("bootstrap.link.query").NO_REDACTION.variables()


def _begin(argv: list[str], cwd: str, env: dict[str, str], *fds: int) -> NoReturn:
    """Become the program in its own session, after reporting its pid."""
    *streams, report = fds
    os.setsid()
    os.write(report, b"%d\n" % os.getpid())
    for at, fd in enumerate(streams, start=1):
        os.dup2(fd, at)
    os.closerange(3, 1024)
    try:
        _become(argv, cwd, env)
    finally:
        traceback.print_exc()
        os._exit(1)


def _report_end(process: int, number: int, report: int) -> None:
    os.close(process)
    _, status = os.waitpid(number, 0)
    with contextlib.suppress(BrokenPipeError):  # the reader is gone
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(report)


def _become(argv: list[str], cwd: str, env: dict[str, str]) -> None:
    """Become the program, as if Python had just started."""
    measured = measuring()
    os.environ.clear()
    os.environ.update(env | measured)
    os.chdir(cwd)
    time.tzset()
    tempfile.tempdir = None
    sys.argv[:] = argv
    import_module("bootstrap.tasks.cli").main() if argv[0] == PROGRAM else _be_inv()


def _be_inv() -> NoReturn:
    """Run Invoke's own program, and exit as Python does."""
    code: str | int | None = 0
    try:
        import_module("invoke.main").program.run()
    except SystemExit as end:
        code = end.code
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    with socket.socket(fileno=os.dup(0)) as listening:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        serve(listening)
