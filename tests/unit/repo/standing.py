"""The files of a working tree, or of a folder on a box, to be compared byte for byte."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

Entry = tuple[str, bytes]
"""`f`, `x` (executable) or `l`, and the content or the link's target."""


def standing(root: Path) -> dict[bytes, Entry]:
    """Return the files that a box should have of the working tree at `root`.

    The disk says which files exist; git says what it tracks and ignores, what a sparse checkout
    leaves out, and the modes if core.fileMode is off.
    """
    found = {os.fsencode(path.relative_to(root)): _entry(path) for path in _travelling(root)}
    modes = dict[bytes, bytes]()
    for line in _git(root, "ls-files", "-t", "--stage").split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        tag, mode, blob, _stage = about.split(b" ")
        modes[path] = mode
        around = {path[:at] for at in range(len(path)) if path[at : at + 1] == b"/"}
        if tag == b"S" and path not in found and not around & found.keys():
            content = _git(root, "cat-file", "blob", blob.decode(), z=False)
            found[path] = ("x" if mode == b"100755" else "f", content)
    if _git(root, "config", "--default", "true", "core.fileMode", z=False) == b"false\n":
        for path, (kind, content) in found.items():
            if kind in "fx":
                found[path] = ("x" if modes.get(path) == b"100755" else "f", content)
    return found


def placed(root: Path) -> dict[bytes, Entry]:
    """Return the files in a folder, without its `.git`."""
    files = (path for path in _walked(root) if path.is_symlink() or path.is_file())
    return {os.fsencode(path.relative_to(root)): _entry(path) for path in files}


def _travelling(root: Path) -> Iterator[Path]:
    tracked = {*_git(root, "ls-files").split(b"\0")}
    files = []
    for path in _walked(root):
        name = os.fsencode(path.relative_to(root))
        if path.is_symlink() or path.is_file():
            files.append(name)
        elif path.is_dir() and name in tracked:  # a submodule
            yield from _travelling(path)
    ignored = {*_git(root, "check-ignore", "--stdin", stdin=b"\0".join(files)).split(b"\0")}
    for name in files:
        if name in tracked or name not in ignored:
            yield root / os.fsdecode(name)


def _walked(root: Path) -> Iterator[Path]:
    """Yield all files, links and nested repositories, which are not entered."""
    for folder, folders, files in os.walk(root):
        top = Path(folder)
        folders[:] = [name for name in folders if name != ".git"]
        inner = [name for name in folders if (top / name / ".git").exists()]
        linked = [name for name in folders if (top / name).is_symlink()]
        yield from (top / name for name in [*files, *linked, *inner] if name != ".git")
        folders[:] = [name for name in folders if name not in inner]


def _entry(place: Path) -> Entry:
    if place.is_symlink():
        return "l", os.fsencode(place.readlink())
    return "x" if place.stat().st_mode & 0o100 else "f", place.read_bytes()


def _git(root: Path, *words: str, stdin: bytes = b"", z: bool = True) -> bytes:
    command = ["git", "-C", str(root), *words, *(["-z"] if z else [])]
    return subprocess.run(command, input=stdin, capture_output=True, check=False).stdout
