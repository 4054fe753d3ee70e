"""Find files with a filter (such as git-crypt's) that are unchanged since git wrote them.

boxstrap runs no filter, so git compares such a file on disk with the committed bytes and calls it
modified. But git's index has the size and times of the file that git wrote.
"""

from __future__ import annotations

import re

from .git import Folders, run
from .here import LocalRepository
from .names import decoded

_NONE = (b"unspecified", b"unset", b"set")

# An entry of `git ls-files --debug -z`: the name, then lines with the file's lstat(2) values.
_ENTRY = re.compile(
    rb"([^\0]+)\0  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n"
    rb"  dev: .*\n  uid: .*\n  size: (\d+)\t.*\n"
)


def as_git_wrote_them(here: LocalRepository, paths: set[bytes]) -> set[bytes]:
    """Return those of `paths` that have a filter, and still the size and times that git recorded.

    Raises GitError.
    """
    filtered = _filtered(here, paths) if paths else set[bytes]()
    if not filtered:
        return set()
    listed = run(here.folders, "ls-files", "--debug", "-z")
    return {
        path
        for path, *numbers in _ENTRY.findall(listed)
        if path in filtered and _is_as_written(here, path, [int(number) for number in numbers])
    }


def _filtered(here: LocalRepository, paths: set[bytes]) -> set[bytes]:
    view = Folders(here.repository.view.with_filters, here.root)
    ask = ("check-attr", "--stdin", "-z", "filter")
    fields = run(view, *ask, stdin=b"\0".join(paths)).split(b"\0")
    rows = zip(fields[::3], fields[2::3], strict=False)
    return {path for path, value in rows if value not in _NONE}


def _is_as_written(here: LocalRepository, path: bytes, numbers: list[int]) -> bool:
    changed_s, changed_ns, written_s, written_ns, size = numbers
    try:
        found = (here.root / decoded(path)).lstat()
    except OSError:
        return False
    times = (changed_s * 10**9 + changed_ns, written_s * 10**9 + written_ns)
    return (found.st_ctime_ns, found.st_mtime_ns, found.st_size) == (*times, size)
