"""What an editor's server finds on this box, and its settings here; if asked, others are written,
whole or not at all, if nobody changed them.

Comes with a query, with BOX_HOME and a REQUEST: `settings`, their path below the home folder, and
`python`; or `bytes` of standard input to write, and the `sum` of what was read before.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress

_LARGEST = 1_000_000
_CXX = ("/usr/lib/*", "/usr/lib64", "/usr/lib", "/lib/*")


def read_bytes(path: str, most: int = -1) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(most)
    return b""


def facts(home: str, python: str) -> Iterator[tuple[str, str]]:
    try:
        yield "libc", os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:
        yield "libc", "musl"
    yield "kernel", os.uname().release
    libraries = (file for place in _CXX for file in glob.glob(f"{place}/libstdc++.so.6"))
    if any(b"GLIBCXX_3.4.25" in read_bytes(file) for file in libraries):
        yield "cxx", "new"
    for tool in filter(shutil.which, ("bash", "tar", "curl", "wget")):
        yield "tool", tool
    for folder in (home, "/tmp"):  # noqa: S108 - editors' servers use it
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            yield "noexec", folder
    if not os.access(home, os.W_OK):
        yield "unwritable", home
    disk = os.statvfs(home)
    yield "free", str(disk.f_bavail * disk.f_frsize // 1024)
    if os.access(python, os.X_OK):
        yield "python", python


def write(file: str, text: bytes) -> None:
    new = f"{file}.new"
    os.makedirs(os.path.dirname(file), exist_ok=True)
    try:
        with open(new, "wb") as out:
            out.write(text)
        if os.path.exists(file):
            shutil.copystat(file, new)
        os.replace(new, file)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new)


def main() -> None:
    asked, home = json.loads(sys.argv[2]), os.path.expanduser("~")
    file = os.path.realpath(f"{home}/{asked['settings']}")
    known = hashlib.sha256(read_bytes(file)).hexdigest() if os.path.exists(file) else ""
    if "bytes" in asked:
        text = sys.stdin.buffer.read(asked["bytes"])
        if len(text) == asked["bytes"] and known == asked["sum"]:
            write(file, text)
            sys.stdout.write("written\n")
        return
    for row in facts(home, asked["python"]):
        sys.stdout.write("\t".join(row) + "\n")
    if known:
        sys.stdout.write(f"sum\t{known}\nsettings\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(read_bytes(file, _LARGEST))
