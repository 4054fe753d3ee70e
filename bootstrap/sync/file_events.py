"""Watch a working tree for changes, except in what git ignores."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from bootstrap.errors import BoxstrapError
from bootstrap.repo.git import run
from bootstrap.repo.here import LocalRepository

_QUIET_MS = 20
"""Quiet time that ends a change: editors write a file next to the old one, then rename it."""
_MOST_MS = 200
"""Longest wait for that quiet time: something may write all the time."""
_OF_GIT = ("HEAD", "packed-refs")
"""Files of a git folder that, with `refs/heads`, show that another commit is checked out."""


def file_events(here: LocalRepository, tick_ms: int) -> Iterator[bool]:
    """Yield True after each change that may travel, False after others or `tick_ms` without one.

    Changes between two calls are not lost. Raises BoxstrapError if the system can't
    watch so many folders, KeyboardInterrupt.
    """
    import watchfiles

    try:
        for changes in watchfiles.watch(
            *_folders(here),
            watch_filter=None,
            debounce=_MOST_MS,
            step=_QUIET_MS,
            rust_timeout=tick_ms,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        ):
            yield may_travel(here, [Path(name) for _, name in changes])
    except OSError as error:
        raise _cant_watch(here.root, error) from None


def _folders(here: LocalRepository) -> list[Path]:
    """Return the tree, and the parts of its git folders that are outside of it."""
    place = here.repository.place
    outside = (place.git_dir, place.common_dir / "refs" / "heads")
    return [here.root, *(path for path in outside if not path.is_relative_to(here.root))]


def may_travel(here: LocalRepository, paths: list[Path]) -> bool:
    """Whether one of these is neither git's own bookkeeping nor ignored by git."""
    inside: list[Path] = []
    for path in paths:
        if _is_head(here, path):
            return True
        if (
            path.is_relative_to(here.root)
            and ".git" not in (parts := path.relative_to(here.root)).parts
        ):
            inside.append(parts)
    return bool(inside) and not _all_ignored(here, inside)


def _is_head(here: LocalRepository, path: Path) -> bool:
    place = here.repository.place
    heads = place.common_dir / "refs" / "heads"
    return path.is_relative_to(heads) or (
        path.name in _OF_GIT and path.parent in (place.git_dir, place.common_dir)
    )


def _all_ignored(here: LocalRepository, names: list[Path]) -> bool:
    wanted = sorted({bytes(name) for name in names} - {b"."})
    stdin = b"".join(name + b"\0" for name in wanted)
    # 1: none is ignored. 128: one is in a submodule, which has its own rules: counts as a change.
    ignored = run(here.folders, "check-ignore", "--stdin", "-z", stdin=stdin, ok=(0, 1, 128))
    return ignored.count(b"\0") == len(wanted)


def _cant_watch(root: Path, error: OSError) -> BoxstrapError:
    if error.errno in (errno.ENOSPC, errno.EMFILE) or "limit" in str(error):
        hint = (
            "The system watches no more folders: raise the limit (Linux: sysctl "
            "fs.inotify.max_user_watches), or set WATCHFILES_FORCE_POLLING=1."
        )
    else:
        hint = "Set WATCHFILES_FORCE_POLLING=1, which looks again and again instead."
    return BoxstrapError(f"the files can't be watched: {error}.", where=str(root), hint=hint)
