"""Put a snapshot's files into a tree, with the commit as HEAD. What was edited, added or committed
on the box is never overwritten: git refuses, and the step lists what it found.

The step `repo` places what a setup asks for, `sync.py` what comes later.

Two git folders track one tree: the user's, where HEAD is the commit, so that their git shows what
the snapshot changes, and boxstrap's own (`placed.py`). The store must have the snapshot by then.
"""

from __future__ import annotations

import binascii
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..git import BoxTree
from ..run_folder import RunFolder, lines_of, write_whole
from ..step_report import StepError, caution, log
from ..values import Values
from .edits import begins_like, cut_files, find_edits, list_edits
from .placed import begin_placed, copy_index, count_known_as_placed, index_as_placed, take_over
from .repair import Repair, locks_in, note_packs, remove_folder, take_objects, wrong_packs
from .shared import SharedFolders

_RAW = "* -text -ident -filter -working-tree-encoding\n"
_FORGET = ("update-index", "-z", "--force-remove", "--stdin")
_NOT_WRITTEN = "error: unable to "
_MOST_FILES, _MOST_COUNTED = 2000, 500_000
_LEAST_FREE = 100 << 10


class WantedTree:
    """What a tree is to be, and what the profile says of it."""

    def __init__(
        self, tree: BoxTree, main: str, values: Values, usual: str = "", *, adopts: bool = False
    ) -> None:
        """`main`: the folder of its repository; `usual`: what that would be called if no other one
        was; `adopts`: takes one that boxstrap did not make."""
        self.tree, self.values, self.usual, self.adopts = tree, values, usual, adopts
        self.commit, self.snapshot = values.repo_commit, values.repo_snapshot
        self.branch = values.repo_branch
        self.shared = SharedFolders(tree, main, values.shared, values.results)
        self.is_beside = tree.path != main

    @property
    def user(self) -> dict[str, str]:
        own = {"name": self.values.git_user_name, "email": self.values.git_user_email}
        return {name: text for name, text in own.items() if text}


class Placing:
    """All of it raises StepError, and OSError where git fails."""

    def __init__(self, wanted: WantedTree, *, repairs: bool = True) -> None:
        self._wanted, self._tree, self._repairs = wanted, wanted.tree, repairs
        self._new, self._snapshot = wanted.commit, wanted.snapshot
        self._refs: list[str] = []
        """The commits of HEAD, of the branch, and of what was placed last; "" for none."""
        self.changes: list[tuple[str, str]] = []
        """A letter and the name of each file that differs from the one placed before."""

    def place(self) -> None:
        tree, wanted = self._tree, self._wanted
        self._store_raw_files()
        if wanted.is_beside:
            wanted.shared.refuse_tracked(self._snapshot)
        notes = RunFolder(tree.notes)
        is_ours = notes.has("repo.placed") or notes.first("repo.dir") == tree.path
        if os.path.lexists(tree.path) and not is_ours:
            self._adopt()
            self._switch()
        elif os.path.lexists(tree.work.folder):
            if self._repairs:
                Repair(tree, self._new, wanted.branch).repair()
            self._switch()
        else:
            self._check_out_whole()
        if wanted.is_beside:
            wanted.shared.link()
            if not (notes.has("repo.placed") or wanted.values.prepare):
                wanted.shared.warn_of_ignored(wanted.values.venv, wanted.values.results)
        note_packs(f"{tree.store.folder}/packs", f"{tree.store.folder}/objects/pack")
        note_packs(f"{tree.notes}/repo.packs", f"{tree.objects}/pack")
        tree.note_lines("repo.placed", [self._new, self._snapshot])

    def rows(self) -> Iterator[str]:
        """Yield what changed, most names of it, and which files are other ones than were placed."""
        yield from (f"{how}\t{_quoted(path)}" for how, path in self.changes[:_MOST_FILES])
        yield from (f"{how}\t…" for how, _ in self.changes[_MOST_FILES:_MOST_COUNTED])
        yield from (f"edited\t{name}" for name in lines_of(f"{self._tree.notes}/repo.edited"))

    def _store_raw_files(self) -> None:
        """Files are taken from the store byte for byte, as they were sent, whatever .gitattributes
        says. Its index is one file."""
        store = self._tree.store.folder
        if not os.path.isfile(f"{store}/info/attributes"):
            os.makedirs(f"{store}/info", exist_ok=True)
            with open(f"{store}/config", "a", encoding="ascii") as file:
                file.write("[core]\n\tsplitIndex = false\n\tlogAllRefUpdates = false\n")
            write_whole(f"{store}/info/attributes", _RAW)

    def _adopt(self) -> None:
        """Somebody else's tree is taken only if the user says so. Nothing in it is repaired: it may
        be their work."""
        tree = self._tree
        # A file named .git is a worktree's or a submodule's: its repository is elsewhere.
        if not os.path.isdir(tree.work.folder):
            raise StepError("tree-in-the-way", f"{tree.path} is there, and no git repository")
        if not self._wanted.adopts:
            raise StepError("tree-not-ours", f"boxstrap did not make {tree.path}")
        if locks_in(tree.work.folder):
            raise StepError("git-busy", f"another git is at work in {tree.path}")
        remove_folder(tree.placed.folder)
        tree.note_lines("repo.adopted", [""])

    def _check_out_whole(self) -> None:
        """Make the tree in a folder beside, then give it its name."""
        tree, usual = self._tree, self._wanted.usual
        # As `find_repository` names it. Another name is one that the repository had before.
        if tree.path == f"{usual}-{tree.key.rpartition('-')[2][:4]}":
            caution("own-folder", f"another repository has {usual}: this one lies in {tree.path}")
        with suppress(OSError):
            os.rmdir(tree.path)
        if os.path.lexists(tree.path):
            raise StepError("tree-in-the-way", f"{tree.path} is in the way")
        new = BoxTree(tree.home, tree.key, f"{tree.home}/trees/boxstrap-{os.getpid()}", tree.number)
        os.makedirs(new.path)
        remove_folder(tree.placed.folder)
        for note in ("repo.adopted", "repo.switch"):
            tree.note_lines(note, [])
        kind = ["--object-format=sha256"] if len(self._new) == 64 else []
        new.work.ask("init", "-q", "--template=", *kind)
        is_whole = take_objects(new) and not os.path.isfile(f"{tree.store.folder}/shallow")
        if not (is_whole and new.work.id_of(f"{self._new}^{{commit}}")):
            self._fetch_from_store(new)
        begin_placed(new, new.placed)
        done = new.placed.run("checkout", "-q", "--detach", self._snapshot, "--")
        said = os.fsdecode(done.errors)
        if done.code or _NOT_WRITTEN in said:
            remove_folder(new.path)
            log(said)
            raise _not_written() if _NOT_WRITTEN in said else OSError("git could not check it out")
        copy_index(new.placed, new.work)
        if self._snapshot != self._new:
            new.work.ask("read-tree", "-i", "-m", self._new)
        self._move_head(new)
        os.rename(new.path, tree.path)
        # If another tree is still in there, this fails, as after a kill, and the next setup sweeps
        # the leftovers.
        with suppress(OSError):
            os.rmdir(os.path.dirname(new.path))

    def _fetch_from_store(self, tree: BoxTree) -> None:
        """A snapshot builds on its commit: if the snapshot is whole, so is the commit."""
        sent = f"refs/boxstrap/{self._new}"
        if self._snapshot != self._new:
            tree.store.ask("update-ref", sent, self._new)
        # As a pack, which git syncs to the disk.
        words = ("fetch", "-q", "--no-tags", "--update-shallow", "--no-recurse-submodules")
        tree.work.variables["GIT_ALLOW_PROTOCOL"] = "file"
        tree.work.ask("-c", "fetch.unpackLimit=1", *words, tree.store.folder, sent)
        tree.work.variables["GIT_ALLOW_PROTOCOL"] = ""
        # So that the tree is the same, whichever way the commit came in.
        os.unlink(f"{tree.work.folder}/FETCH_HEAD")

    def _switch(self) -> None:
        """Update the tree in place."""
        tree, wanted = self._tree, self._wanted
        self._find_refs()
        old = self._refs[0]
        if old != self._new:
            self._fetch_commit()
            self._refuse_own_commits("HEAD", old)
        self._refuse_own_commits(wanted.branch, self._refs[1])
        if not os.path.isdir(tree.placed.folder):
            take_over(tree)
        look = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", "HEAD", self._snapshot)
        self.changes = tree.placed.pairs(*look, "--")
        lacks = {path for how, path in self.changes if how == "D"}
        self._leave_pushed(lacks)
        edited, removed = find_edits(tree)
        if removed := [file for file in removed if file not in lacks]:
            placed = ("checkout-index", "-q", "-z", "--stdin")
            tree.placed.succeeds(*placed, given=_with_nul(removed))
            caution("removed-files", *(f"{file} was removed here: restored" for file in removed))
        self._switch_index(old, "-n")
        self._refuse_linked_folders()
        write_whole(tree.switch_note, f"{self._snapshot} {self._new}\n", 0o600)
        _sync_to_disk(tree.switch_note)
        self._switch_files()
        self._switch_index(old)
        self._move_head(tree)
        # Before the note goes: after a power cut, a file's name may be on the disk long before its
        # content.
        _sync_to_disk(f"{tree.placed.folder}/HEAD", f"{tree.placed.folder}/index")
        if old != self._new:
            refs = ("HEAD", "index", "refs/boxstrap/placed", f"refs/heads/{wanted.branch}")
            _sync_to_disk(*(f"{tree.work.folder}/{name}" for name in refs))
        os.unlink(tree.switch_note)
        # Some of them may be as they were sent by now.
        tree.note_lines("repo.edited", list_edits(find_edits(tree)[0]) if edited else [])

    def _leave_pushed(self, lacks: set[str]) -> None:
        """Leave files that the snapshot lacks and `push` has brought since: they were sent before
        they had their line in .gitignore, and are data now, and nobody's edits."""
        from ..data.records import pushed_files  # late: few boxes have any

        tree = self._tree
        came = pushed_files(Path(tree.home, "data"), Path(tree.path)) if lacks else ()
        if left := lacks.intersection(map(str, came)):
            tree.placed.ask(*_FORGET, given=_with_nul(left))
            index_as_placed(tree.placed)
            self.changes = [row for row in self.changes if row[1] not in left]

    def _find_refs(self) -> None:
        names = ("HEAD^{commit}", f"refs/heads/{self._wanted.branch}^{{commit}}")
        given = os.fsencode("\n".join((*names, "refs/boxstrap/placed", "")))
        done = self._tree.work.run("cat-file", "--batch-check=%(objectname)", given=given)
        found = os.fsdecode(done.output).splitlines()
        found = ["" if line.endswith(" missing") else line for line in found]
        self._refs = [*found, "", "", ""][:3]

    def _fetch_commit(self) -> None:
        try:
            self._fetch_from_store(self._tree)
        except OSError as error:
            log(str(error))
            if "No space left" in str(error) or is_disk_full(self._tree.home):
                raise _not_written() from None
            raise StepError("git-damaged", f"{self._tree.work.folder} is damaged") from None

    def _refuse_own_commits(self, name: str, commit: str) -> None:
        """Fail unless a commit was sent to this box, or the new one builds on it."""
        tree, sent = self._tree, f"refs/boxstrap/{commit}"
        if (
            commit not in ("", self._new, self._refs[2])
            and tree.store.run("show-ref", "-q", "--verify", sent).code
            and tree.work.run("merge-base", "--is-ancestor", commit, self._new).code
        ):
            log(*tree.work.lines("log", "--oneline", "-n", "10", f"{self._new}..{commit}"))
            what = f"the box has commits of its own in {tree.path}, on {name} (listed above)"
            raise StepError("box-commits", what)

    def _switch_index(self, old: str, *only_try: str) -> None:
        """Move the user's index along; what they staged stays."""
        if old != self._new:
            versions = filter(None, (old, self._new))
            if not self._tree.work.succeeds("read-tree", "-i", "-m", *only_try, *versions):
                raise self._box_edits()

    def _refuse_linked_folders(self) -> None:
        """Find folders that somebody replaced with a link, to a larger disk for example: git would
        put a folder in its place."""
        tree, placed = self._tree, self._tree.placed
        folders: set[str] = set()
        paths = {path for _, path in self.changes}
        while paths := {os.path.dirname(path) for path in paths} - {""}:
            folders |= paths
        links = [each for each in sorted(folders) if os.path.islink(f"{tree.path}/{each}")]
        links = [each for each in links if not placed.id_of(f":{each}")]
        if links:
            log(*(f"{each} is a link on the box" for each in links))
            raise self._box_edits()

    def _switch_files(self) -> None:
        """Ignored files are the box's own too, and may be worth more than all others."""
        tree, placed = self._tree, self._tree.placed
        before = RunFolder(placed.folder).first("HEAD")
        words = ("checkout", "-q", "--no-overwrite-ignore", "--detach", self._snapshot, "--")
        done = placed.run(*words)
        if done.code and count_known_as_placed(tree, self._snapshot):
            done = placed.run(*words)
        said = os.fsdecode(done.errors)
        if done.code:
            os.unlink(tree.switch_note)
            # Around the names git speaks of branches, which nobody switched.
            log(*[line for line in said.splitlines() if line[:1] == "\t"] or [said])
            if "untracked working tree files would be" in said:
                raise StepError("untracked-in-the-way")
            raise self._box_edits()
        if _NOT_WRITTEN in said:
            log(said)
            self._drop_unwritten(before)
            os.unlink(tree.switch_note)
            raise _not_written()

    def _box_edits(self) -> StepError:
        return StepError("box-edits", f"files in {self._tree.path} were edited (listed above)")

    def _drop_unwritten(self, before: str) -> None:
        """git only prints a message about files that it could not write, and takes them for placed.
        They are removed from what was placed, so that they are written once there is room."""
        tree, lost = self._tree, []
        look = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=d")
        for file in tree.placed.paths(*look, before, self._snapshot, "--"):
            path = f"{tree.path}/{file}"
            if os.path.lexists(path):
                if not begins_like(tree, self._snapshot, file, shorter=True):
                    continue
                os.unlink(path)
            lost.append(file)
        tree.placed.ask(*_FORGET, given=_with_nul(lost))
        index_as_placed(tree.placed)

    def _move_head(self, tree: BoxTree) -> None:
        """Move HEAD and its branch, and mark the tree as boxstrap's. `origin` is the real one,
        without a user in it; the store never shows. No remote is ever removed, and in an adopted
        tree none is changed."""
        work, branch, url = tree.work, self._wanted.branch, self._wanted.values.repo_url
        config = "\n".join((*lines_of(f"{work.folder}/config"), ""))
        is_origin = f'[remote "origin"]\n\turl = {url}\n' in config  # git need not be asked then
        if url and not is_origin and not os.path.exists(f"{tree.notes}/repo.adopted"):
            origin = os.fsdecode(work.run("config", "--get", "remote.origin.url").output)
            if origin != f"{url}\n" and work.run("remote", "set-url", "origin", url).code:
                work.ask("remote", "add", "origin", url)
        # In a switch: HEAD, the branch and the mark may be there already.
        if self._refs != [self._new] * 3:
            moves = f"update refs/heads/{branch}" if branch else "option no-deref\nupdate HEAD"
            lines = f"update refs/boxstrap/placed {self._new}\n{moves} {self._new}\n"
            work.ask("update-ref", "--stdin", given=os.fsencode(lines))
        if branch and lines_of(f"{work.folder}/HEAD") != [f"ref: refs/heads/{branch}"]:
            work.ask("symbolic-ref", "HEAD", f"refs/heads/{branch}")


def place_tags(wanted: WantedTree) -> None:
    """Put the tags that describe the commit into the user's git, as far as their commits are here:
    versions are derived from them. One that the box has, and that was not put there, stays."""
    tree, work = wanted.tree, wanted.tree.work
    tags = [row.split(" ", 2) for row in wanted.values.repo_tags]
    if not tags:
        return
    if objects := wanted.values.tag_objects:
        work.ask("unpack-objects", "-q", given=binascii.a2b_base64(objects))
    given = "".join(f"{commit}\n" for _, commit, _ in tags).encode()
    here = work.lines("cat-file", "--batch-check", given=given)
    rows = work.lines("for-each-ref", "--format=%(objectname) %(refname:strip=2)", "refs/tags")
    there, ours = (
        {name: tag for tag, _, name in (row.partition(" ") for row in each)}
        for each in (rows, lines_of(f"{tree.notes}/repo.tags"))
    )
    taken, news = [], ""
    for (tag, _, name), found in zip(tags, here):  # noqa: B905 - Python 3.8
        now = there.get(name, "")
        if not found.endswith("missing") and now in ("", tag, ours.get(name)):
            taken.append(f"{tag} {name}")
            news += "" if now == tag else f"update refs/tags/{name} {tag}\n"
    if not news or work.succeeds("update-ref", "--stdin", given=os.fsencode(news)):
        tree.note_lines("repo.tags", taken)


def is_user_right(wanted: WantedTree) -> bool:
    rows = "".join(f"\t{name} = {text}\n" for name, text in wanted.user.items())
    if f"[user]\n{rows}" in "\n".join(lines_of(f"{wanted.tree.work.folder}/config")) + "\n":
        return True  # as git writes it
    look = ("config", "--local", "-z", "--get-regexp", "^user[.]")
    said = os.fsdecode(wanted.tree.work.run(*look).output).split("\0") if wanted.user else []
    return all(f"user.{name}\n{text}" in said for name, text in wanted.user.items())


def set_user(wanted: WantedTree) -> None:
    """Only in this repository; the box's own settings are not ours."""
    for name, text in {} if is_user_right(wanted) else wanted.user.items():
        wanted.tree.work.ask("config", "--local", f"user.{name}", text)


def is_placed(wanted: WantedTree) -> bool:
    tree = wanted.tree
    # Also asks for the tree's id: git opens the pack for it, and notices if the pack is damaged.
    said = tree.work.run("rev-parse", "HEAD", "HEAD^{tree}")
    with open(f"{tree.work.folder}/index", "rb") as index:
        begins_right = index.read(4) == b"DIRC"
    return (
        begins_right
        and not said.code  # what it can't read it prints all the same
        and os.fsdecode(said.output).split("\n")[0] == wanted.commit
        and RunFolder(tree.placed.folder).first("HEAD") == wanted.snapshot
        and not os.path.exists(tree.switch_note)
        and (not wanted.is_beside or wanted.shared.are_linked())
        and is_user_right(wanted)
        and not wrong_packs(f"{tree.store.folder}/packs", f"{tree.store.folder}/objects/pack")
        and not wrong_packs(f"{tree.notes}/repo.packs", f"{tree.objects}/pack")
    )


def check(wanted: WantedTree, *, notes: bool) -> bool:
    """Return whether the tree is right. What was edited here stays so: a setup warns of it; a plan,
    which writes nothing, prints it."""
    tree = wanted.tree
    edited, removed = find_edits(tree) if is_placed(wanted) else ([], [""])
    if removed or cut_files(tree, edited):
        return False
    sys.stdout.write("".join(f"edited\t{name}\n" for name in list_edits(edited)))
    if notes:
        tree.note_lines("repo.edited", list_edits(edited))
        if edited:
            caution(f"edited-files count={len(edited)}")
    return True


def is_disk_full(folder: str) -> bool:
    """On a full disk git may not say so."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE


def _not_written() -> StepError:
    return StepError("disk-full", "not every file could be written (listed above)")


def _sync_to_disk(*paths: str) -> None:
    for path in paths:
        with suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)


def _with_nul(paths: Iterable[str]) -> bytes:
    return os.fsencode("".join(f"{path}\0" for path in paths))


def _quoted(path: str) -> str:
    """Quote a name as git does, if it is to be (`core.quotePath`)."""
    text = os.fsencode(path)
    if all(32 <= each < 127 and each not in b'"\\' for each in text):
        return path
    return '"' + "".join(f"\\{each:03o}" for each in text) + '"'
