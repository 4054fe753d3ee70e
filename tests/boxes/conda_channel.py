"""A locally made conda channel: a Python, and the packages that a test adds.

The Python is the one that runs the tests, patched to find its library next to itself. Packages
are stored, not compressed, so making the channel takes a second.
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SKIPPED = {
    *("test", "idlelib", "tkinter", "lib2to3", "site-packages", "__pycache__", "turtledemo"),
    "EXTERNALLY-MANAGED",  # Debian's word about its own Python, not about this one
}
_RAW_BLOCK = 128 * 1024

Files = Mapping[str, bytes]


def make_channel(folder: Path, packages: Mapping[str, Files]) -> None:
    """Write a channel with `python` and `packages` (name: files below site-packages)."""
    subdir = f"linux-{'64' if platform.machine() == 'x86_64' else 'aarch64'}"
    _write(folder / subdir, [("python", platform.python_version(), _python(), False)])
    pure = [
        (name, "1.0", {f"site-packages/{path}": data for path, data in files.items()}, True)
        for name, files in packages.items()
    ]
    _write(folder / "noarch", pure)


def _python() -> dict[str, bytes]:
    """Return the files of this Python, made relocatable."""
    base, version = Path(sys.base_prefix), f"python3.{sys.version_info[1]}"
    program = (base / "bin" / version).read_bytes()
    here, beside = f"{base}/lib".encode(), b"$ORIGIN/../lib"
    if here + b"\0" in program:
        program = program.replace(here + b"\0", beside.ljust(len(here), b"\0") + b"\0")
    files = {f"bin/{name}": program for name in ("python", "python3", version)}
    files |= {f"lib/{each.name}": each.read_bytes() for each in base.glob("lib/libpython3*.so.*")}
    for each in (base / "lib" / version).rglob("*"):
        parts = each.relative_to(base).parts
        if each.is_file() and not _SKIPPED & {*parts} and not parts[2].startswith("config-"):
            files["/".join(parts)] = each.read_bytes()
    # Debian's own, whose `site` is frozen, looks for packages elsewhere.
    place = f'f"{{sys.prefix}}/lib/{version}/site-packages"'
    added = f"import site, sys\nsite.addsitedir({place})\n"
    files[f"lib/{version}/sitecustomize.py"] = added.encode()
    return files


def _write(folder: Path, packages: Sequence[tuple[str, str, Files, bool]]) -> None:
    folder.mkdir(parents=True)
    rows = {}
    for name, version, files, pure in packages:
        index: dict[str, Any] = {
            **{"name": name, "version": version, "build": "0", "build_number": 0},
            **{"subdir": folder.name, "depends": ["python"] if pure else []},
        }
        if pure:
            index["noarch"] = "python"
        data = _package(name, version, index, files)
        file = folder / f"{name}-{version}-0.conda"
        file.write_bytes(data)
        rows[file.name] = {
            **index,
            "sha256": hashlib.sha256(data).hexdigest(),
            "md5": hashlib.md5(data).hexdigest(),
            "size": len(data),
        }
    repodata = {"info": {"subdir": folder.name}, "packages": {}, "packages.conda": rows}
    (folder / "repodata.json").write_text(json.dumps(repodata))


def _package(name: str, version: str, index: dict[str, Any], files: Files) -> bytes:
    """A .conda: a zip of two tar files in zstd."""
    paths = [
        {
            **{"_path": path, "path_type": "hardlink", "size_in_bytes": len(data)},
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for path, data in files.items()
    ]
    info = {"index.json": index, "paths.json": {"paths": paths, "paths_version": 1}}
    if "noarch" in index:
        info["link.json"] = {"noarch": {"type": "python"}, "package_metadata_version": 1}
    told = {f"info/{file}": json.dumps(data).encode() for file, data in info.items()}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr(f"pkg-{name}-{version}-0.tar.zst", _stored(_tar(files)))
        archive.writestr(f"info-{name}-{version}-0.tar.zst", _stored(_tar(told)))
    return whole.getvalue()


def _tar(files: Files) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), 0o755 if path.startswith("bin/") else 0o644
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _stored(data: bytes) -> bytes:
    """A zstd frame of raw blocks (RFC 8878): magic, no content size, a window of 1 MiB."""
    frame = [b"\x28\xb5\x2f\xfd\x00\x50"]
    for at in range(0, len(data), _RAW_BLOCK):
        block = data[at : at + _RAW_BLOCK]
        last = at + _RAW_BLOCK >= len(data)
        frame += [(len(block) << 3 | last).to_bytes(3, "little"), block]
    return b"".join(frame)
