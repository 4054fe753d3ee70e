"""Detect whether the box is in use: GPUs, processes, growing files, transfers, logins, typing.

Only visible processes count: in a container, the machine's load includes its neighbours'. So does
the network, which is the container's own.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..processes import TICKS, is_alive, stat_of
from ..run_folder import RunFolder, lines_of
from .rules import UseReading

EVERY_S = 30.0
"""Seconds between two looks."""
CORES = 0.1
"""CPU cores in use on average; an idle box's services stay below this."""
GPU_LOAD = 5
"""Percent."""
NETWORK = 50_000
"""Bytes a second, in and out; a scan of its ports and what its services say stay below this."""
IO = 100_000
"""Bytes a second that programs read and write, boxstrap's own left out."""
MOST_FILES = 20_000
"""Most files below one result that are looked at."""
_AT_WORK = (
    *("/.vscode-server/", "/.cursor-server/", "/.windsurf-server/"),
    *("zlib,base64;exec(", "rsync --server", "sftp-server", "scp -", "git-receive-pack"),
    *("git-upload-pack", "receive-pack", "upload_results"),
)
"""Parts of command lines of editors' servers and transfers: they count while they do I/O."""
SILENT_S = 60.0
"""Seconds without a byte after which a login's connection is dead."""
_SOCK_DIAG, _DIAG, _REQUEST, _TCP_INFO, _LAST_DATA_RECEIVED = 4, 20, 1, 2, 52
"""Of linux/netlink.h, sock_diag.h, inet_diag.h; the last one is an offset in tcp.h's tcp_info."""


class _Seen(NamedTuple):
    at: float
    cpu: dict[tuple[int, int], float]
    """CPU seconds of each process, by its pid and start time."""
    io: dict[tuple[int, int], int]
    """Bytes that each process moved."""
    transfers: frozenset[tuple[int, int]]
    """Editors' servers and transfers."""
    entered: bool
    """Whether an `exec` or `shell` is open, over a connection that is alive."""
    network: int
    typed: dict[str, int]
    grown: int


class ActivityReader:
    """Compares each look at the box with the one before."""

    def __init__(self, box_home: Path) -> None:
        self._box_home = box_home
        self._before: _Seen | None = None

    def look(self, runs: Sequence[Path], gpus: Sequence[list[Any] | None]) -> UseReading | None:
        """Return what happened since the last look; None for the first, or if it is too early."""
        now = time.monotonic()
        if self._before and now - self._before.at < EVERY_S:
            return None
        seen, before = _see(now, runs), self._before
        self._before = seen
        if before is None:
            return None
        over = now - before.at
        cores = sum(max(0.0, cpu - before.cpu.get(one, 0.0)) for one, cpu in seen.cpu.items())
        computes = cores / over >= CORES or any(row and (row[0] or 0) >= GPU_LOAD for row in gpus)
        grew = seen.grown != before.grown
        moved = {one: count - before.io.get(one, 0) for one, count in seen.io.items()}
        transfers = any(moved[one] > 0 for one in seen.transfers)
        transfers |= sum(count for count in moved.values() if count > 0) / over >= IO
        transfers |= (seen.network - before.network) / over >= NETWORK
        transfers |= seen.entered
        types = any(before.typed.get(name, at) != at for name, at in seen.typed.items())
        used = computes or grew or transfers or types or is_set_up(self._box_home)
        return UseReading(over, used, computes, grew)


def is_set_up(box_home: Path) -> bool:
    """Return whether a setup is running: the first line of the lock names its process."""
    return is_alive(RunFolder(box_home).first("lock"))


def started_at() -> float:
    """Return when this box or container's first process started, in seconds since boot."""
    stat = stat_of("1")
    return float(stat.start) / TICKS if stat else 0.0


def _see(now: float, runs: Sequence[Path]) -> _Seen:
    cpu: dict[tuple[int, int], float] = {}
    io: dict[tuple[int, int], int] = {}
    transfers: set[tuple[int, int]] = set()
    logins: set[str] = set()
    entered: dict[str, str] = {}
    parents: dict[str, str] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone
        stat = stat_of(name) if name.isdigit() else None
        if stat is None or int(name) == os.getpid():
            continue
        one = int(name), int(stat.start)
        cpu[one] = stat.cpu / TICKS
        words = _words(name)
        is_transfer = any(mark.encode() in words for mark in _AT_WORK)
        if is_transfer:
            transfers.add(one)
        if is_transfer or b"/.boxstrap/box/" not in words:  # to look is no use
            io[one] = _moved(name)
        parents[name] = stat.parent
        if words.startswith((b"sshd: ", b"sshd-session: ")) and b" [listener] " not in words:
            logins.add(name)
        elif (connection := _entered_by(name)) is not None:
            entered[name] = connection
    return _Seen(
        now,
        cpu,
        io,
        frozenset(transfers),
        any(_descends(name, logins, parents) and _is_alive(entered[name]) for name in entered),
        _network(),
        dict(_terminals()),
        hash(tuple(_sizes(runs))),
    )


def _words(pid: str) -> bytes:
    """Return a process's command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


def _entered_by(pid: str) -> str | None:
    """Return over which connection a process was started by `exec` or `shell`, which mark its
    environment, as SSH_CONNECTION names it; "" if that isn't there, None for other processes."""
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return None
    named = dict(pair.partition("=")[::2] for pair in pairs)
    return named.get("SSH_CONNECTION", "") if "BOXSTRAP_ENTERED" in named else None


def _is_alive(connection: str) -> bool:
    """Return whether something came over a connection of late; True if the kernel doesn't say.

    Those of boxstrap send a sign of life every 15 s: one that is silent has lost its other end,
    and TCP may take hours to notice. Anybody may ask the kernel (sock_diag(7)), as `ss -i` does.
    """
    try:
        far, far_port, near, near_port = connection.split()
        family = socket.AF_INET6 if ":" in near else socket.AF_INET
        ends = struct.pack("!HH", int(near_port), int(far_port)) + b"".join(
            socket.inet_pton(family, each).ljust(16, b"\0") for each in (near, far)
        )
        which = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), 0xFFFFFFFF)
        asked = which + ends + b"\0" * 4 + b"\xff" * 8  # on any interface, with any cookie
        head = struct.pack("=IHHII", 16 + len(asked), _DIAG, _REQUEST, 0, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.sendto(head + asked, (0, 0))
            said = kernel.recv(8192)
        size, kind = struct.unpack_from("=IH", said)
        at = 16 + 72  # after the header, and what it says of every socket
        while kind == _DIAG and at < size:
            length, attribute = struct.unpack_from("=HH", said, at)
            if attribute == _TCP_INFO:
                silent_ms: int = struct.unpack_from("=I", said, at + 4 + _LAST_DATA_RECEIVED)[0]
                return silent_ms < SILENT_S * 1000
            at += (length + 3) // 4 * 4 or size
    except (OSError, ValueError, struct.error):
        pass
    return True


def _descends(pid: str, above: set[str], parents: dict[str, str]) -> bool:
    """Return whether a process belongs to one of these: what was detached from a login doesn't."""
    for _ in range(len(parents)):
        if pid in above:
            return True
        pid = parents.get(pid, "")
    return False


def _network() -> int:
    """Return the bytes that came and went over this box's network, loopback left out."""
    rows = [line.replace(":", " ").split() for line in lines_of("/proc/net/dev")[2:]]
    return sum(int(row[1]) + int(row[9]) for row in rows if row[0] != "lo")


def _moved(pid: str) -> int:
    """Return the bytes that a process read and wrote; 0 if that may not be read."""
    lines = (line.split() for line in lines_of(f"/proc/{pid}/io"))
    return sum(int(count) for name, count in lines if name in ("rchar:", "wchar:"))


def _terminals() -> Iterator[tuple[str, int]]:
    """Yield when somebody last typed at each terminal."""
    try:
        with os.scandir("/dev/pts") as found:
            for each in found:
                if each.name.isdigit():
                    yield each.name, int(each.stat().st_atime)
    except OSError:
        return


def _sizes(runs: Sequence[Path]) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and time of each log and result of these runs."""
    for run in runs:
        yield from _files(run / "log")
        tree = RunFolder(run).first("dir")
        for name in lines_of(run / "results") if tree else ():
            yield from _files(Path(tree, name))


def _files(place: Path) -> Iterator[tuple[str, int, int]]:
    waiting, left = [str(place)], MOST_FILES
    while waiting and left:
        name = waiting.pop()
        try:
            stat = os.stat(name)  # noqa: PTH116 - thousands of them
            yield name, stat.st_size, stat.st_mtime_ns
            left -= 1
            with os.scandir(name) as found:
                waiting += [each.path for each in found if not each.is_symlink()]
        except OSError:  # it is a file, so it can't be listed, or it is gone
            continue
