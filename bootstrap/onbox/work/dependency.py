"""A private dependency of an environment, sent for the setup that waits for it.

`onbox work.dependency BOX_HOME REQUEST`: a document of JSON, with the `store` of the dependency,
the `setup_id`, and whether it `is_last`. Prints what the store has; then reads a line
`BYTES FORMAT HEAD` and a bundle from standard input.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from ..git import BoxGit
from ..processes import identity
from ..run_folder import write_whole
from ..step_report import question
from .repair import note_packs, remove_folder, wrong_packs
from .store import open_store, read_line, read_pieces

_NAMED = ("refs/heads", "refs/tags", "refs/boxstrap")
_REFS = ("+refs/*:refs/*", "+refs/boxstrap/*:refs/heads/boxstrap/*")
"""A clone gets only branches and tags."""
_FORMAT = "--format=ref%09%(objectname)%09%(refname)"


def _take(git: BoxGit, bundle: str, head: str) -> None:
    if bundle:
        git.variables["GIT_ALLOW_PROTOCOL"] = "file"
        git.ask("fetch", "-q", "--no-auto-gc", "--update-head-ok", bundle, *_REFS)
        note_packs(f"{git.folder}/packs", f"{git.folder}/objects/pack")
    if head.startswith("refs/boxstrap/"):
        head = f"refs/heads/{head[5:]}"
    if head.startswith("refs/heads/"):
        git.ask("symbolic-ref", "HEAD", head)
    git.ask("config", "uploadpack.allowAnySHA1InWant", "true")


def main() -> None:
    home, asked = question()
    os.umask(0o077)
    folder, store = (
        f"{home}/setups/{asked['setup_id']}",
        f"{home}/dependencies/{asked['store']}.git",
    )
    write_whole(f"{folder}/dependencies.sender", f"{identity(os.getpid())}\n")
    if wrong_packs(f"{store}/packs", f"{store}/objects/pack"):
        remove_folder(store)
    if os.path.isdir(store):
        os.write(1, os.fsencode(BoxGit(store).ask("for-each-ref", _FORMAT, *_NAMED)))
    os.write(1, b"\nready\n")
    size, object_format, head = [*read_line().split(), "", "", ""][:3]
    part, is_whole, why = f"{store}.sent.{os.getpid()}", bool(head), ""
    try:
        if head and head != "-":
            git = open_store(store, object_format)
            with open(part, "wb") as file:
                file.writelines(read_pieces(int(size)))
            is_whole = os.stat(part).st_size == int(size)  # what was cut off is sent again
            if is_whole:
                _take(git, part if int(size) else "", head)
    except OSError as error:
        why = str(error)
    finally:
        with suppress(OSError):
            os.unlink(part)
    # The setup does not wait for what could not be stored.
    if is_whole and asked["is_last"]:
        write_whole(f"{folder}/dependencies", "")
    if why or not is_whole:
        sys.exit(why)
    os.write(1, b"\narrived\n")
