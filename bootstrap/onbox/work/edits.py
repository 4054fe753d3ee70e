"""Which files of a tree are other ones than boxstrap placed: edited, removed, or cut short."""

from __future__ import annotations

import io
import os

from ..git import BoxTree

_NAMED = 200  # no more than anybody reads
_PIECE = 1 << 20


def find_edits(tree: BoxTree) -> tuple[list[str], list[str]]:
    """Return files that are other ones, or of whose removal git was told; and those that are just
    gone: no work is lost by putting them back. Neither those that differ only in their times, nor
    those below a folder that was replaced with a link. Raises OSError if git can't tell."""
    look = ("--name-status", "--no-renames", "--no-ext-diff", "--ignore-submodules=all", "-z")
    edited, gone = [], []
    for status, file in tree.placed.pairs("diff", *look):
        path = f"{tree.path}/{file}"
        if status != "D" or (os.path.isdir(path) and not os.path.islink(path)):
            edited.append(file)
        elif not os.path.lexists(path):
            gone.append(file)
    removals = ("--cached", "--name-only", "--diff-filter=D", "-z", "HEAD", "--")
    staged = tree.work.run("diff-index", *removals).output if gone else b""
    told = {*os.fsdecode(staged).split("\0")}
    edited += [file for file in gone if file in told]
    return edited, [file for file in gone if file not in told]


def begins_like(tree: BoxTree, version: str, file: str, *, shorter: bool = False) -> bool:
    """Return whether a file is that version's ("": as placed), or only its first part; `shorter`:
    less than all of it. A link is never written in part."""
    path = f"{tree.path}/{file}"
    is_link = os.path.islink(path)
    if not (is_link or os.path.isfile(path)):
        return False
    text = io.BytesIO(os.fsencode(os.readlink(path))) if is_link else open(path, "rb")  # noqa: SIM115
    with text, tree.placed.reading("cat-file", "blob", f"{version}:{file}") as blob:
        piece = text.read(_PIECE)
        while piece:
            if blob.read(len(piece)) != piece:
                return False
            piece = text.read(_PIECE)
        rest = bool(blob.read(1))
        return not (rest or shorter) if is_link else rest or not shorter


def cut_files(tree: BoxTree, edited: list[str]) -> list[str]:
    """Return those that were cut within a line, or to nothing, as a bad disk or a lost mount leaves
    them. Any other difference is somebody's edit."""
    cut = []
    for file in edited:
        if begins_like(tree, "", file, shorter=True):
            with open(f"{tree.path}/{file}", "rb") as text:
                text.seek(max(0, os.fstat(text.fileno()).st_size - 1))
                cut += [] if text.read() == b"\n" else [file]
    return cut


def list_edits(edited: list[str]) -> list[str]:
    return [file.replace("\n", " ") for file in edited[:_NAMED]]
