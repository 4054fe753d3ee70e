"""States of a repository that come outside a setup: received into the store, and placed.

`onbox work.sync BOX_HOME`. The variable BOXSTRAP_REQUEST, a document of JSON, says which repository
it is (`key`, `root`, `name`: see `find_repository`), how it names objects (`format`), what the
profile says of its tree, how many seconds to wait for the box. Its `state` is a line `BASE
SNAPSHOT COMMIT TREE BRANCH BYTES` with its `objects`; without one such lines come on standard
input, each before so many bytes (`-`: all that comes). What becomes of each is printed: a word, a
tab and a value; at last `over`.
"""

from __future__ import annotations

import io
import os
from binascii import a2b_hex
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from signal import SIG_IGN, SIGHUP, signal

from ..git import BoxTree
from ..run_folder import QUEUED, alive_in, lines_of, write_whole
from ..step_report import StepError, answer, log, question
from ..values import Values
from .lock import holder, take_lock
from .place import Placing, WantedTree, is_disk_full
from .repository import find_repository
from .store import open_store, read_line, read_pieces, take_objects
from .trees import is_placed

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from typing import IO, Any

    Asked = dict[str, Any]

_LOG_LINES = 40
_LONGEST = 500


class SentState:
    """A state, on its way into a tree."""

    def __init__(self, asked: Asked, header: str) -> None:
        self._home, self._asked = asked["home"], asked
        words = ["" if word == "-" else word for word in header.split()]
        self._base, self.snapshot, self.commit, self.content, self.branch = words[:5]
        self.tree = BoxTree(self._home, asked["key"], asked["main"])

    def receive(self, objects: bytes | int) -> bool:
        """Objects that build on something that isn't on the box are refused: the other side makes
        others from what is."""
        os.umask(0o077)
        try:
            store = open_store(self.tree.store.folder, self._asked["format"])
            done = take_objects(store, objects)
        finally:
            os.umask(0o022)
        sent = f"refs/boxstrap/{self.snapshot}"
        if f"ok {sent}\n".encode() in done.output or store.id_of(f"{sent}^{{commit}}"):
            return True
        if is_disk_full(self._home):
            answer("failed", "disk-full")
        elif not self._base or os.path.exists(f"{store.folder}.refused"):
            answer("refused", os.fsdecode(done.errors)[:_LONGEST].replace("\n", " "))
        else:
            answer("lacks", self._base)
            look = ("for-each-ref", "--count=20", "--sort=-creatordate", "--format=%(objectname)")
            for commit in store.lines(*look, "refs/boxstrap"):
                answer("have", commit)
        return False

    def is_in_use(self) -> bool:
        """Its files stay as they are while a run uses them."""
        run = alive_in(self._home, self.tree.key, self.tree.path)
        if run:
            answer("queued" if run.state() == QUEUED else "alive", run.path)
        return bool(run)

    def place(self, values: Values) -> bool:
        """Damage from a kill or a bad disk is looked for only if a switch of files was cut short,
        or placing fails; a setup always looks."""
        values.repo_commit, values.repo_snapshot = self.commit, self.snapshot
        values.repo_branch, values.repo_tree = self.branch, self.content
        wanted = WantedTree(self.tree, self._asked["main"], values)
        is_cut = os.path.exists(self.tree.switch_note)
        placing = Placing(wanted, repairs=is_cut)
        failed = _failure_of(placing)
        if failed and not is_cut:
            placing = Placing(wanted)
            failed = _failure_of(placing)
        if failed:
            report(self._home, *failed)
            return False
        for row in placing.rows():
            answer(*row.split("\t", 1))
        self._stamp()
        answer("placed", self.snapshot)
        return True

    def _stamp(self) -> None:
        """Update the stamp of the step `repo`, if there is one: the next setup finds it done."""
        stamp = f"{self.tree.notes}/repo.ok"
        words = "\n".join(lines_of(stamp)).split(" ", 2)
        if len(words) > 2:
            more = "" if self.snapshot == self.commit else f"+{self.snapshot}"
            write_whole(stamp, f"{words[0]} {self.commit}{more} {words[2]}\n", 0o600)


def _failure_of(placing: Placing) -> tuple[str, str] | None:
    """Place it; pass on its warnings, and return code and log if that failed."""
    said, logged, code = io.StringIO(), io.StringIO(), None
    with redirect_stdout(said), redirect_stderr(logged):
        try:
            placing.place()
        except StepError as error:
            log(*error.sentences)
            code = error.code
        except OSError as error:
            log(str(error))
            code = ""
    for line in said.getvalue().splitlines():
        answer("warn", line.partition("=")[2])
    return None if code is None else (code, logged.getvalue())


def report(home: str, code: str, said: str) -> None:
    for line in said.splitlines()[-_LOG_LINES:]:
        answer("log", line)
    is_full = is_disk_full(home) or "No space left on device" in said
    answer("failed", code or ("disk-full" if is_full else "command-failed"))


def read_request() -> Asked:
    home, asked = question()
    key, folder = find_repository(home, asked["key"], asked["root"], asked["name"])
    os.umask(0o022)
    signal(SIGHUP, SIG_IGN)  # a link that breaks leaves nothing half done
    return {**asked, "home": home, "key": key, "main": folder}


def lock_of(asked: Asked) -> IO[str] | None:
    home = asked["home"]
    lock = take_lock(home, float(asked["wait_s"]), lambda setup: answer("waits", setup))
    if not lock:
        answer("busy", holder(home)[2])
    return lock


def _take(asked: Asked, header: str, objects: bytes | int) -> None:
    state = SentState(asked, header)
    if not is_placed(state.tree):
        # Its first setup may be at work.
        if not (lock := lock_of(asked)):
            return None
        lock.close()
        if not is_placed(state.tree):
            return answer("fresh", state.tree.path)
    if not state.is_in_use() and state.receive(objects) and (lock := lock_of(asked)):
        with lock:
            values = Values({"repo_url": asked["url"], "shared": (), "results": ()})
            _ = state.is_in_use() or state.place(values)
    return None


def taken(take: Callable[[], None], home: str) -> None:
    """A full disk, or a bad one, is answered."""
    try:
        take()
    except OSError as error:
        report(home, "", str(error))


def main() -> None:
    asked = read_request()
    line = asked["state"] or read_line()
    while line:
        size = line.split()[5]
        is_last = size == "-"
        few = a2b_hex(asked["objects"]) if asked["state"] else 0
        objects = few if is_last else b"".join(read_pieces(int(size)))
        taken(partial(_take, asked, line, objects), asked["home"])
        answer("over")
        line = "" if is_last else read_line()
