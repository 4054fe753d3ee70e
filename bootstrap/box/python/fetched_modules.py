"""Compile modules in memory while they are still being fetched; write the bytecode afterwards."""

from __future__ import annotations

import contextlib
import marshal
import os
import struct
import time
from collections.abc import Callable
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

MOST_KEPT = 256 * 2**20  # bytes
LONGEST_PAUSE_S = 0.3


class FetchedModules:
    """Modules that uv unpacks in its `cache`, by their paths in the environment's `site`.

    A source may be read while it is still being written, and the cache may have another version
    of it: compiled code is used only if the installed source is the same, byte for byte.
    """

    def __init__(self, cache: Path, site: Path) -> None:
        self.cache = cache
        self._site = site
        self._began = time.time() - 1  # file times are coarse, and may be earlier than the clock
        self._kept: dict[str, tuple[bytes, bytes]] = {}  # source and code
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def sites(self) -> list[Path]:
        """Return the folders of wheels that are being unpacked, or were since this started."""
        found = []
        for folder in (*self.cache.glob(".tmp*"), *self.cache.glob("archive-v0/*")):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime >= self._began:
                    found.append(folder)
        return found

    def compile_until(
        self, installed: Path, installer: int, modules: Callable[[], list[str]]
    ) -> None:
        """Compile `modules`, the last one first, until the file `installed` exists.

        Exits if the parent process, `installer`, ended before that, perhaps long before this
        process got a core.
        """
        pause = 0.0
        while not installed.exists():
            if os.getppid() != installer:
                raise SystemExit
            time.sleep(pause)
            pause = min(2 * pause + 0.05, LONGEST_PAUSE_S)
            for file in reversed(modules()):
                if installed.exists() or os.getppid() != installer:
                    break
                if self.add(Path(file)):
                    pause = 0

    def add(self, file: Path) -> bool:
        """Compile a file of the cache; return whether there was anything to do."""
        first, second, *rest = file.relative_to(self.cache).parts
        place = "/".join([second, *rest] if first.startswith(".tmp") else rest)
        try:
            if self._bytes > MOST_KEPT or self._sizes.get(place) == file.stat().st_size:
                return False
            source = file.read_bytes()
        except OSError:
            return False
        code = b""  # if it can't be compiled, the training reports that
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            compiled = compile(source, self._site / place, "exec", dont_inherit=True)
            code = marshal.dumps(compiled)
        self._kept[place], self._sizes[place] = (source, code), len(source)
        self._bytes += len(source) + len(code)
        return True

    def land(self) -> None:
        """Write the bytecode of the modules that were installed, in import order."""
        for place, (source, code) in reversed(self._kept.items()):
            if code:
                with contextlib.suppress(OSError):
                    land(self._site / place, source, code)
        self._kept.clear()


def land(file: Path, source: bytes, code: bytes) -> None:
    """Write a module's bytecode as an import does, whole or not at all. Raises OSError.

    Does nothing if the file has another source or already has bytecode.
    """
    target = Path(cache_from_source(str(file)))
    seen = file.stat()
    if target.exists() or file.read_bytes() != source:
        return
    # The bytecode is valid for a source of this time and size (PEP 552).
    numbers = (each & 0xFFFFFFFF for each in (0, int(seen.st_mtime), seen.st_size))
    target.parent.mkdir(exist_ok=True)
    new = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        new.write_bytes(MAGIC_NUMBER + struct.pack("<3I", *numbers) + code)
        new.replace(target)
    except OSError:
        new.unlink(missing_ok=True)
        raise
