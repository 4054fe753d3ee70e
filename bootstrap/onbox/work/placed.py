"""boxstrap's own git folder for a tree, a worktree of the store: its index is what boxstrap placed,
byte for byte. A file is overwritten or removed only if it is in that index and its content is
unchanged. A tree that is adopted has no such folder, nor one whose notes are lost: what its HEAD
has counts as placed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from ..git import BoxGit, BoxTree
from ..run_folder import lines_of, write_whole

_NONE = "ref: refs/heads/none\n"
_BY_US = ("-c", "user.name=boxstrap", "-c", "user.email=boxstrap@localhost")


def begin_placed(tree: BoxTree, git: BoxGit) -> None:
    """Make it as git expects a worktree's, but not in git's own list of worktrees."""
    os.makedirs(git.folder, exist_ok=True)
    name_store(tree, git)
    write_whole(f"{git.folder}/HEAD", _NONE)


def name_store(tree: BoxTree, git: BoxGit) -> None:
    """Note where the store is, relative to it: both are on the same volume, wherever that is
    mounted."""
    where = os.path.relpath(os.path.realpath(tree.store.folder), os.path.realpath(git.folder))
    write_whole(f"{git.folder}/commondir", f"{where}\n")


def take_over(tree: BoxTree) -> None:
    """Make it for a tree of a user's, or one whose notes are lost: what HEAD has counts as placed,
    and what differs from it as somebody's edit. The index has the files' times, so that nothing is
    read or written again."""
    own = tree.placed.folder
    new = BoxGit(f"{own}.new.{os.getpid()}", tree.path, tree.objects)
    begin_placed(tree, new)
    commit = tree.work.id_of("HEAD^{commit}")
    noted = [*lines_of(f"{tree.notes}/repo.placed"), "", ""]
    if noted[0] == commit:
        # There was a folder, and it is lost.
        commit = new.id_of(f"{noted[1]}^{{commit}}") or commit
    commit = commit or index_as_placed(new)
    with suppress(OSError):
        copy_index(tree.work, new)
    new.ask("read-tree", "--reset", commit)
    write_whole(f"{new.folder}/HEAD", f"{commit}\n")
    os.rename(new.folder, own)


def copy_index(git: BoxGit, to: BoxGit) -> None:
    """With its times: git then reads no file again that is as it was."""
    from shutil import copy2  # slow to import

    copy2(f"{git.folder}/index", f"{to.folder}/index")


def index_as_placed(git: BoxGit) -> str:
    """The index is what was placed: make HEAD a commit of it, whether or not its blobs are here."""
    write_whole(f"{git.folder}/HEAD", _NONE)
    tree = git.ask("write-tree", "--missing-ok").strip()
    commit = git.ask(*_BY_US, "commit-tree", "-m", "What was placed", tree).strip()
    write_whole(f"{git.folder}/HEAD", f"{commit}\n")
    return commit


def count_known_as_placed(tree: BoxTree, snapshot: str) -> bool:
    """Files in the way count as placed if they are known: as the snapshot or HEAD has them, edits
    that were brought home and came back, or were discarded here; or as a commit of its history has
    them, edits that were brought home, merged, and changed again. Return whether there are any."""
    known = dict(_as_in(tree, snapshot))
    known.update(_as_in(tree, tree.work.id_of("HEAD")))
    known.update(_merged(tree, snapshot))
    if known:
        rows = "".join(f"{entry}\t{file}\0" for file, entry in known.items())
        tree.placed.ask("update-index", "-z", "--index-info", given=os.fsencode(rows))
        index_as_placed(tree.placed)
    return bool(known)


def _as_in(tree: BoxTree, version: str) -> Iterator[tuple[str, str]]:
    changed = ("diff-index", "--cached", "--no-renames", "-z", version, "--")
    for row, file in tree.placed.pairs(*changed) if version else ():
        mode, _, blob = row[1:].split(" ")[:3]
        if f"{mode} {blob}" == _entry(f"{tree.path}/{file}", len(blob)):
            yield file, f"{mode} {blob}"


def _merged(tree: BoxTree, snapshot: str) -> Iterator[tuple[str, str]]:
    before = tree.work.id_of("refs/boxstrap/placed")
    for file in tree.placed.paths("diff-files", "--name-only", "-z") if before else ():
        entry = _entry(f"{tree.path}/{file}", len(before))
        blob = entry.partition(" ")[2]
        look = ("log", "-m", "-1", "--format=%H", f"--find-object={blob}", snapshot, f"^{before}")
        # git also finds the commit that replaced what was placed.
        is_new = entry and blob != tree.placed.id_of(f":{file}")
        if is_new and tree.placed.run(*look, "--", file).output:
            yield file, entry


def _entry(path: str, id_length: int) -> str:
    """Return mode and id of a file as git's index has them; "" if it is none."""
    if os.path.islink(path):
        mode, text = "120000", os.fsencode(os.readlink(path))
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            text = file.read()
        mode = "100755" if os.stat(path).st_mode & 0o100 else "100644"
    else:
        return ""
    return f"{mode} {git_hash(id_length, b'blob %d' % len(text), bytes(1), text).hex()}"


def git_hash(id_length: int, *texts: bytes) -> bytes:
    """Return the digest by which a repository whose ids are so long names what it stores."""
    import hashlib  # slow to import

    return hashlib.new("sha256" if id_length == 64 else "sha1", b"".join(texts)).digest()
