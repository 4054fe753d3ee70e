"""Private dependencies of a setup: find them in the files that are sent, and get consent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.consent import agree_to_addresses
from bootstrap.profile.git_dependencies import (
    GitDependency,
    find_git_dependencies,
    is_named,
    sent_from_here,
)
from bootstrap.repo.git import Folders, GitError, broken, run
from bootstrap.repo.mirror import key_of

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.repo.here import LocalRepository
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.setup.request import SetupRequest

_LARGEST = 16 * 1024 * 1024
"""Limit for a file in bytes; a lock file of a thousand packages has two million."""


def private_dependencies(
    profile: Profile, here: LocalRepository, snapshot: Snapshot | None
) -> tuple[tuple[GitDependency, ...], list[str]]:
    """Return the dependencies that this machine sends, and the rows about them for the box.

    Raises BoxstrapError if git fails.
    """
    folders, commit = (snapshot.folders, snapshot.id) if snapshot else (here.folders, here.commit)

    def read(names: Sequence[str]) -> dict[str, str]:
        try:
            return _read(folders, commit, names)
        except GitError as failure:
            raise broken(here.root, failure) from failure

    found = find_git_dependencies(profile.python, read)
    sent = sent_from_here(profile.python, found)
    rows = [f"{key_of(each.address)} {_commit(each)} {each.address}" for each in sent]
    # git uses the longest matching address, so public ones that extend a private one get own rows.
    others = {each.address for each in found} - {each.address for each in sent}
    begins = tuple({each.address for each in sent})
    rows += [f"- - {other}" for other in sorted(others) if other.startswith(begins)]
    return tuple(sent), rows if sent else []


def _commit(dependency: GitDependency) -> str:
    return dependency.ref if dependency.is_pinned else "-"


def _read(folders: Folders, commit: str, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of those files that the commit has; paths outside of it are skipped."""
    inside = (name for name in dict.fromkeys(names) if not name.startswith(("../", "/")))
    asked = [name for name in inside if "\n" not in name]
    stdin = "".join(f"{commit}:{name}\n" for name in asked).encode("utf-8", "surrogateescape")
    answer = run(folders, "cat-file", "--batch", stdin=stdin)
    texts: dict[str, str] = {}
    at = 0
    for name in asked:
        line, _, _ = answer[at:].partition(b"\n")
        at += len(line) + 1
        words = line.rsplit(b" ", 2)
        if len(words) == 3 and words[2].isdigit():
            size = int(words[2])
            if words[1] == b"blob" and size <= _LARGEST:
                texts[name] = answer[at : at + size].decode("utf-8", "replace")
            at += size + 1
    return texts


def agree_to_dependencies(
    profile: Profile,
    dependencies: Sequence[GitDependency],
    here: LocalRepository,
    request: SetupRequest,
) -> None:
    """Raise ConsentError unless the user agreed to each address. Those in `python.private` need no
    question: they are part of the profile, which the user agreed to or wrote."""
    private = profile.python.private or []
    asked = {each.address for each in dependencies if not is_named(private, each.address)}
    if asked:
        agree_to_addresses(asked, here.root.resolve(), request.consent)
