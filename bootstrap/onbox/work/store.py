"""The bare repository on the box that takes git's objects as they are sent.

`onbox work.store BOX_HOME` takes a setup's commit from standard input, as `ObjectStream` sends it,
and prints git's report, then its errors. The variable BOXSTRAP_REQUEST, a document of JSON, says
which repository it is (`key`, `root`), and how it names objects: `format`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from ..git import BoxGit
from ..processes import identity
from ..run_folder import names_in, remove_file, write_whole
from ..short_program import ProgramEnd
from ..step_report import StepError, question
from .repair import free_locks, remove_folder, wrong_packs
from .repository import find_repository

_OLD_S = 3600
_TAKING = (
    *("-c", "receive.shallowUpdate=true", "-c", "receive.autogc=false"),
    *("-c", "receive.unpackLimit=1", "receive-pack", "--stateless-rpc"),
)
_FULL = (b"No space left", b"Disk quota exceeded")


def open_store(store: str, object_format: str) -> BoxGit:
    """Make sure that it exists and is undamaged. Raises OSError."""
    os.makedirs(os.path.dirname(store), exist_ok=True)
    with suppress(OSError):  # a full disk: git says so
        write_whole(f"{store}.sender", f"{identity(os.getpid())}\n")
    with suppress(StepError):
        free_locks(store, store)
    # Leftovers of a broken transfer do no harm; they only take room.
    for place in (f"{store}/objects", f"{store}/objects/pack"):
        for name in names_in(place):
            is_left = name.startswith(("tmp_objdir-incoming-", "tmp_pack_"))
            with suppress(OSError):
                if is_left and os.stat(f"{place}/{name}").st_mtime < time.time() - _OLD_S:
                    remove_folder(f"{place}/{name}")
                    os.unlink(f"{place}/{name}")
    # A damaged store has nothing that the sender's repository doesn't have: it is made again.
    if wrong_packs(f"{store}/packs", f"{store}/objects/pack"):
        os.rename(store, f"{store}.damaged.{os.getpid()}")
        remove_folder(f"{store}.damaged.{os.getpid()}")
    if not os.path.isdir(store):
        new = BoxGit(f"{store}.new.{os.getpid()}")
        os.makedirs(new.folder)
        kind = [f"--object-format={object_format}"] if object_format == "sha256" else []
        new.ask("init", "-q", "--bare", "--template=", *kind)
        with suppress(OSError):  # somebody else made it
            os.rename(new.folder, store)
        remove_folder(new.folder)
    return BoxGit(store)


def take_objects(store: BoxGit, given: bytes | int) -> ProgramEnd:
    remove_file(f"{store.folder}.refused")
    done = store.run(*_TAKING, store.folder, given=given)
    if any(words in done.errors for words in _FULL):
        # If it were sent again, it would be refused again: the step that waits for it ends.
        with suppress(OSError):
            write_whole(f"{store.folder}.refused", "disk-full\n")
    return done


def read_line() -> str:
    """Read no more of standard input: objects may come next, for git."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(0, 1)):
        line += piece
    return os.fsdecode(line)


def read_pieces(size: int) -> Iterator[bytes]:
    """Yield so many bytes of standard input; fewer if it ends."""
    while size and (piece := os.read(0, min(size, 1 << 20))):
        yield piece
        size -= len(piece)


def main() -> None:
    os.umask(0o077)
    home, asked = question()
    key, _ = find_repository(home, asked["key"], asked["root"], "")
    store = open_store(f"{home}/store/{key}.git", asked["format"])
    os.write(1, b"receive-pack\n")
    done = take_objects(store, 0)
    os.write(1, done.output)
    sys.stderr.write(os.fsdecode(done.errors))
