"""Finds planted secrets on a box: on its disk, in its processes' memory, in tmux.

Disk and processes are read from this machine, so the box can't interfere. Only what differs from
its image is read of the disk; of a process, its writable memory, arguments and environment.
"""

import base64
import contextlib
import gzip
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tests.boxes import RigBox

PIECE = 8 << 20
OVERLAP = 4096


@dataclass(frozen=True, order=True)
class Leak:
    """A secret, by its name, and where it was found."""

    kind: str
    """disk, deleted, memory, environ, cmdline, tmux."""
    where: str
    name: str


class Planted:
    """Values to look for: plain, in base64 at any alignment, quoted for a URL and for JSON."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._needles = {form: name for name, text in values.items() for form in _forms(text)}

    def found_in(self, data: bytes) -> set[str]:
        """Return the names of the values that are in it."""
        return {name for form, name in self._needles.items() if form in data}


def _forms(value: str) -> Iterator[bytes]:
    raw = value.strip().encode("utf-8", "surrogateescape")
    lines = raw.splitlines()
    # For a private key, the last line but one: earlier lines are the same in many keys.
    own = lines[-2] if len(lines) > 3 else raw
    yield own
    yield quote(own, safe="").encode()
    yield json.dumps(own.decode("utf-8", "replace"))[1:-1].encode()
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + own)
        yield whole[-(-before * 8 // 6) : (before + len(own)) * 8 // 6]


def leaks(box: RigBox, planted: Planted) -> list[Leak]:
    """Return all leaks on a box."""
    return sorted({*on_disk(box, planted), *in_processes(box, planted), *in_tmux(box, planted)})


def on_disk(box: RigBox, planted: Planted) -> Iterator[Leak]:
    """Search files, their names, targets of links, and the contents of git's objects."""
    upper = box._spec.folder / "upper"
    roots = [(upper, "")]
    for line in (box.root.parent / "mountinfo").read_text().splitlines():
        point, kind = line.split()[4], line.partition(" - ")[2].split()[0]
        if kind == "tmpfs":
            roots.append((box.root / point.lstrip("/"), point))
    for root, point in roots:
        for path in _below(root):
            shown = f"{point}/{path.relative_to(root)}"
            for name in planted.found_in(_content(path) + b"\0" + os.fsencode(path)):
                yield Leak("disk", shown, name)
    for folder, objects in _git_objects(box):
        for name in planted.found_in(objects):
            yield Leak("disk", folder, name)


def _below(root: Path) -> Iterator[Path]:
    device = root.lstat().st_dev
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        # Other mounts are searched on their own.
        folders[:] = [name for name in folders if (here / name).lstat().st_dev == device]
        yield from (here / name for name in (*files, *folders))


def _content(path: Path) -> bytes:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return os.fsencode(path.readlink())
    if not stat.S_ISREG(mode):
        return b""
    data = path.read_bytes()
    with contextlib.suppress(OSError, EOFError):
        if data.startswith(b"\x1f\x8b"):
            data += gzip.decompress(data)
    return data


_CAT = r"""
find / -xdev -type d -name objects -print0 | while IFS= read -r -d '' objects; do
  git=${objects%/objects}
  [ -f "$git/HEAD" ] || continue
  printf '\0%s\0' "$git"
  git -c safe.directory='*' --git-dir="$git" cat-file --batch-all-objects --batch --buffer
done
"""


def _git_objects(box: RigBox) -> Iterator[tuple[str, bytes]]:
    parts = os.fsencode(box.run(f"! command -v git >/dev/null || {{ {_CAT} }}", timeout=120))
    for part in re.split(rb"\0(?=/[^\0\n]*\0)", parts)[1:]:
        folder, _, objects = part.partition(b"\0")
        yield os.fsdecode(folder), objects


def processes(box: RigBox) -> dict[int, str]:
    """Return the box's processes: name by PID on this machine."""
    own = Path(f"/proc/{box._alive()}/ns/pid").readlink()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "ns/pid").readlink() == own:
                found[int(folder.name)] = (folder / "comm").read_text().strip()
    return found


def of_the_training(pid: int) -> bool:
    """Return whether a process belongs to a run, which may have its secrets."""
    with contextlib.suppress(OSError):
        return b"\0BOXSTRAP_RUN=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    return False


def in_processes(box: RigBox, planted: Planted) -> Iterator[Leak]:
    """Search memory, arguments, environment, and deleted files that are still open."""
    for pid, comm in processes(box).items():
        if of_the_training(pid):
            continue
        folder = Path(f"/proc/{pid}")
        pieces: list[tuple[str, Iterable[bytes]]] = [
            ("cmdline", _read(folder / "cmdline")),
            ("environ", _read(folder / "environ")),
            ("memory", _memory(folder)),
            ("deleted", _deleted(folder)),
        ]
        for kind, data in pieces:
            for name in {name for piece in data for name in planted.found_in(piece)}:
                yield Leak(kind, comm, name)


def _read(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        yield path.read_bytes()


def _memory(folder: Path) -> Iterator[bytes]:
    """Yield a process's writable memory; the rest maps files, which are on the disk."""
    with contextlib.suppress(OSError), (folder / "mem").open("rb", buffering=0) as memory:
        for line in (folder / "maps").read_text().splitlines():
            place, flags, *_ = line.split()
            if not flags.startswith("rw"):
                continue
            at, end = (int(side, 16) for side in place.split("-"))
            while at < end:
                with contextlib.suppress(OSError, OverflowError):
                    yield os.pread(memory.fileno(), min(PIECE + OVERLAP, end - at), at)
                at += PIECE


def _deleted(folder: Path) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        for link in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                target = link.readlink().name
                if target.endswith(" (deleted)") and stat.S_ISREG(link.stat().st_mode):
                    yield link.read_bytes()


_TMUX = r"""
for socket in /tmp/tmux-*/*; do
  [ -S "$socket" ] || continue
  t() { tmux -S "$socket" "$@" 2>/dev/null; }
  t list-sessions >/dev/null || continue
  printf '\0%s buffer\0' "$socket"
  t list-buffers -F '#{buffer_name}' | while read -r name; do t show-buffer -b "$name"; done
  printf '\0%s environment\0' "$socket"
  t show-environment -g
  t list-sessions -F '#{session_name}' | while read -r name; do t show-environment -t "=$name"; done
  printf '\0%s screen\0' "$socket"
  t list-panes -a -F '#{pane_id}' | while read -r pane; do
    t capture-pane -pJ -S - -t "$pane"
    t capture-pane -apJ -S - -t "$pane"
  done
done
true
"""


def in_tmux(box: RigBox, planted: Planted) -> Iterator[Leak]:
    """Search tmux's buffers, environments, screens and scrollback."""
    said = os.fsencode(box.run(f"! command -v tmux >/dev/null || {{ {_TMUX} }}"))
    parts = said.split(b"\0")[1:]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        for name in planted.found_in(text):
            yield Leak("tmux", title.decode(), name)
