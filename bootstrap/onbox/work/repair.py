"""Repair what a kill, a power cut or a bad disk did to a tree's repository; the work in the tree
stays as it is."""

from __future__ import annotations

import os
from contextlib import suppress
from time import sleep

from ..git import BoxTree
from ..run_folder import RunFolder, end_of, lines_of, names_in, remove_file, write_whole
from ..step_report import StepError, caution, log
from .edits import begins_like, cut_files, find_edits
from .placed import git_hash, index_as_placed, name_store, take_over


def _is_id(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def locks_in(folder: str) -> list[str]:
    """Return the locks in a git folder: a git that was killed leaves them, and every later git
    refuses to work."""
    found = []
    for place, folders, names in os.walk(folder):
        if place == folder:
            folders[:] = {*folders}.difference(("objects", "lfs"))
        found += [f"{place}/{name}" for name in names if name.endswith(".lock")]
    return found


def _is_git_at_work(folder: str) -> bool:
    """Whether a git process works in this folder, or for it."""
    for process in map(RunFolder, (f"/proc/{number}" for number in names_in("/proc"))):
        if process.first("comm").startswith("git"):
            words = process.first("cmdline").replace("\0", " ")
            with suppress(OSError):
                folder_of = os.readlink(f"{process.path}/cwd")
                if not words:
                    return True  # it is just being started
                words = f"{folder_of}/ {words}"
            if f" {words}".replace("=", " ").find(f" {folder}") >= 0:
                return True
    return False


def free_locks(git_folder: str, folder: str) -> None:
    """Remove locks that nobody holds. Raises StepError if a git at work in `folder` keeps one."""
    for _ in range(50):
        locks = locks_in(git_folder)
        if not locks or not _is_git_at_work(folder):
            for lock in locks:
                remove_file(lock)  # a git that just ended took it along
            return
        sleep(0.2)
    raise StepError("git-busy", f"another git is at work in {folder}: {locks[0]}")


def pack_sizes(folder: str) -> dict[str, str]:
    """Return the size of each of git's packs, by name."""
    ends = (".pack", ".idx")  # as `packs_right` lists them
    names = [name for end in ends for name in names_in(folder) if name.endswith(end)]
    return {name: str(os.stat(f"{folder}/{name}").st_size) for name in names}


def wrong_packs(note: str, folder: str) -> list[str]:
    """Return packs whose size isn't the noted one. A pack never changes; one that is gone was
    repacked, or its commit can't be read, which is noticed elsewhere."""
    sizes = {name: size for size, _, name in (line.partition(" ") for line in lines_of(note))}
    here = pack_sizes(folder) if sizes else {}
    return [name for name, size in here.items() if sizes.get(name, size) != size]


def note_packs(note: str, folder: str) -> None:
    """Note each pack's size, if packs came or went since."""
    with suppress(OSError):
        if os.stat(note).st_mtime_ns > os.stat(folder).st_mtime_ns:
            return
    lines = [f"{size} {name}" for name, size in pack_sizes(folder).items()]
    if lines_of(note) != lines or not os.path.exists(note):
        write_whole(note, "".join(f"{line}\n" for line in lines), 0o600)


def is_index_right(path: str, id_length: int) -> bool:
    """Check an index's own checksum, since git reads a cut index without an error. Zeros: it has
    none."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return False
    own, said = text[: -id_length // 2], text[-id_length // 2 :]
    return text.startswith(b"DIRC") and (not any(said) or git_hash(id_length, own) == said)


def take_objects(tree: BoxTree, *, copy: bool = False) -> bool:
    """Link the store's objects into the user's git, where that is on the same disk; with `copy`,
    copy the others. Return whether all of them are there."""
    from shutil import copyfile  # slow to import

    store = f"{tree.store.folder}/objects"
    for place, _, names in os.walk(store):
        to = f"{tree.objects}{place[len(store) :]}"
        os.makedirs(to, exist_ok=True)
        for name in names:
            if name.endswith(".keep") or os.path.exists(f"{to}/{name}"):
                continue
            try:
                os.link(f"{place}/{name}", f"{to}/{name}")
            except OSError:
                if not copy:
                    return False
                copyfile(f"{place}/{name}", f"{to}/{name}")
    return True


class Repair:
    def __init__(self, tree: BoxTree, commit: str, branch: str) -> None:
        self._tree, self._branch = tree, branch
        self._id_length = len(commit)
        self._commit, self._snapshot = [*lines_of(f"{tree.notes}/repo.placed"), "", ""][:2]
        """What the last success noted that it placed."""

    def repair(self) -> None:
        """Raises StepError, OSError."""
        tree = self._tree
        with suppress(StepError):
            free_locks(tree.store.folder, tree.store.folder)
        free_locks(tree.work.folder, tree.path)
        self._drop_broken_refs()
        if self._commit and not self._is_work_right():
            self._repair_work()
        if os.path.isdir(tree.placed.folder):
            free_locks(tree.placed.folder, tree.placed.folder)
            self._repair_placed()
        if not os.path.isdir(tree.placed.folder):
            take_over(tree)
        if os.path.exists(tree.switch_note):
            self._undo_half_switch()
        for file in cut_files(tree, find_edits(tree)[0]):
            tree.placed.ask("checkout-index", "-f", "--", file)
            caution("cut-files", f"{file} was cut short: restored from the commit")

    def _drop_broken_refs(self) -> None:
        """Remove boxstrap's refs that a power cut left without a commit: git would not overwrite
        them; placing makes new ones."""
        sent = f"{self._tree.store.folder}/refs/boxstrap"
        refs = [f"{sent}/{name}" for name in names_in(sent)]
        for ref in (f"{self._tree.work.folder}/refs/boxstrap/placed", *refs):
            if os.path.isfile(ref) and not _is_id("".join(lines_of(ref))):
                os.unlink(ref)

    def _is_work_right(self) -> bool:
        """Whether git can read both the index and HEAD; what is staged may differ."""
        tree = self._tree
        return (
            not wrong_packs(f"{tree.notes}/repo.packs", f"{tree.objects}/pack")
            and is_index_right(f"{tree.work.folder}/index", self._id_length)
            and tree.work.run("diff-index", "--cached", "--quiet", "HEAD", "--").code in (0, 1)
        )

    def _repair_work(self) -> None:
        """Repair the user's git: lost objects are in the store."""
        tree, work = self._tree, self._tree.work
        log(f"{work.folder} is damaged")
        for name in wrong_packs(f"{tree.notes}/repo.packs", f"{tree.objects}/pack"):
            os.unlink(f"{tree.objects}/pack/{name}")
        take_objects(tree, copy=True)
        self._repair_head()
        index = f"{work.folder}/index"
        if not is_index_right(index, self._id_length) or work.run("ls-files").code:
            remove_file(index)
            work.ask("read-tree", "HEAD")
        fsck = ("fsck", "--connectivity-only", "--no-dangling", "--no-progress", "HEAD")
        if not work.succeeds(*fsck):
            raise StepError("git-damaged", "the commit that was sent does not repair it")
        caution("git-mended")

    def _repair_head(self) -> None:
        work = self._tree.work
        head = "".join(lines_of(f"{work.folder}/HEAD")[:1])
        if not (_is_id(head) or (head.startswith("ref: refs/heads/") and head[16:])):
            head = f"ref: refs/heads/{self._branch or 'main'}"
            write_whole(f"{work.folder}/HEAD", f"{head}\n")
        if not work.id_of("HEAD^{tree}"):
            last = self._last_head()
            name = head[len("ref: ") :] if head.startswith("ref: ") else "HEAD"
            remove_file(f"{work.folder}/{name}")
            if name == "HEAD":
                write_whole(f"{work.folder}/HEAD", f"{last}\n")
            work.ask("update-ref", "--no-deref", name, last)

    def _last_head(self) -> str:
        """Return where HEAD was last, a commit of the box's own too, as far as that can be read."""
        words = end_of(f"{self._tree.work.folder}/logs/HEAD", 1 << 16).splitlines()[-1:]
        last = [*"".join(words).split(" "), "", ""][1]
        return last if last and self._tree.work.id_of(f"{last}^{{tree}}") else self._commit

    def _repair_placed(self) -> None:
        """What was placed is known from the index, else from HEAD, else from the note; without any
        of these from the user's git."""
        tree, placed = self._tree, self._tree.placed
        head = "".join(lines_of(f"{placed.folder}/HEAD")[:1])
        if not lines_of(f"{placed.folder}/commondir") or not _is_id(head):
            name_store(tree, placed)
            write_whole(f"{placed.folder}/HEAD", f"{self._snapshot}\n")
        index = f"{placed.folder}/index"
        if is_index_right(index, self._id_length):
            if not placed.run("diff-index", "--cached", "--quiet", "HEAD", "--").code:
                return
            # Also if a switch ended before HEAD was written.
            if not placed.run("ls-files").code:
                index_as_placed(placed)
                return
        remove_file(index)
        if not placed.succeeds("read-tree", "HEAD"):
            remove_folder(placed.folder)

    def _undo_half_switch(self) -> None:
        """A switch that was cut short leaves files of the new snapshot, which git takes for edits.
        Those that contain no more than git itself wrote go back to what the index says; an edit
        stays."""
        tree = self._tree
        new, _, commit = "".join(lines_of(tree.switch_note)[:1]).partition(" ")
        # A note that a power cut left empty was not on the disk yet, so no file was switched.
        if _is_id(commit):
            look = ("diff-index", "--cached", "--name-only", "--no-renames", "-z", new, "--")
            switched = os.fsdecode(tree.placed.run(*look).output).split("\0")[:-1]
            for file in switched:
                if begins_like(tree, new, file):
                    os.unlink(f"{tree.path}/{file}")
                    with suppress(OSError):  # a folder may be where a file was
                        _remove_empty(tree.path, os.path.dirname(file))
            gone = [file for file in switched if not os.path.lexists(f"{tree.path}/{file}")]
            given = os.fsencode("".join(f"{file}\0" for file in gone))
            tree.placed.run("checkout-index", "-f", "-q", "-z", "--stdin", given=given)
            # The user's index may be ahead of HEAD.
            tree.work.succeeds("read-tree", "-i", "-m", commit, "HEAD")
        os.unlink(tree.switch_note)


def remove_folder(path: str) -> None:
    from shutil import rmtree  # slow to import

    rmtree(path, ignore_errors=True)


def _remove_empty(tree: str, folder: str) -> None:
    while folder:
        os.rmdir(f"{tree}/{folder}")
        folder = os.path.dirname(folder)
