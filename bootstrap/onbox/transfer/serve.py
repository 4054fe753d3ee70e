"""Answer the frames of a transfer, in order, until they end.

It alternates between reading and writing, and buffers nothing in flight: the other side reads
while it writes. After an hour without input it ends.

Send files: read what is requested, and write nothing.

Report a run's results: which files there are, and which of them are complete.
"""

from __future__ import annotations

import gc
import hashlib
import os
import select
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..results.run_results import KEPT, OwnFile, OwnResults, RunResults
from ..run_folder import lines_of
from .frames import AT_ONCE, BLOCK, Bundle, encoded_name, read_frames
from .take import BoxReceiver


class BoxSender:
    """Handles the request `get`."""

    def __init__(
        self,
        home: bytes,
        say: Callable[..., None],
        between: Callable[[], None],
        beat: Callable[[], None],
    ) -> None:
        """`between` is called between the pieces of a file, `beat` after each file."""
        self.workdir, self.say, self.between = os.path.dirname(home), say, between
        self.beat = beat

    def get(self, request: dict[str, Any]) -> None:
        """Send files below a folder, each [path, at, size, mtime, ctime or null]: from offset
        `at` on, up to `size`. `i` is the number of the first.

        First `begun`: the digest of the bytes before `at`. Then blocks. Then `given`, for several
        files: for each a word for a problem, or the digest of all; and the length of its last
        piece, of those that are the body.
        """
        root = os.path.join(self.workdir, encoded_name(request["root"]), b"")
        self.i, self.size = request["i"], 0
        self.rows: list[list[Any]] = []
        self.pieces: list[bytes] = []
        for path, at, *state in request["files"]:
            problem, digest, piece = self.send(root + encoded_name(path), at, state)
            if self.size + len(piece) > BLOCK:
                self.flush()
            self.rows.append([problem, digest, len(piece)])
            self.pieces.append(piece)
            self.size += len(piece)
            self.beat()
        self.flush()

    def flush(self) -> None:
        """Say how the files since the last time ended."""
        if self.rows:
            self.say({"i": self.i, "given": self.rows}, b"".join(self.pieces))
            self.i, self.size = self.i + len(self.rows), 0
            self.rows, self.pieces = [], []

    def send(self, path: bytes, at: int, state: list[Any]) -> tuple[str, str, bytes]:
        """Send a file but for its last piece; return that after a word for a problem, or "", and
        the digest of all."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return "absent", "", b""
        try:
            return self.read(file, at, state)
        except OSError:
            return "unread", "", b""
        finally:
            os.close(file)

    def read(self, file: int, at: int, state: list[Any]) -> tuple[str, str, bytes]:
        """Read and send an open file. Raises OSError."""
        digest = hashlib.sha256()
        done, size = 0, state[0]
        while done < at:
            piece = os.read(file, min(BLOCK, at - done))
            if not piece:
                break
            digest.update(piece)
            done += len(piece)
            self.between()
        if at:
            self.flush()
            self.say({"i": self.i, "begun": done, "sha256": digest.hexdigest()})
        while True:
            piece = os.read(file, min(BLOCK, size - done))
            digest.update(piece)
            done += len(piece)
            if not piece or done == size:
                break
            self.flush()
            self.say({}, piece)
            self.between()
        # No inode: on some file systems an open file has another number.
        now = os.fstat(file)
        if not stat.S_ISREG(now.st_mode):
            return "absent", "", b""
        is_same = [now.st_size, now.st_mtime_ns, state[2] and now.st_ctime_ns] == state
        return "" if is_same and done == size else "changed", digest.hexdigest(), piece


EVERY_S = 1.0
OF_PROFILE = ("command", "made_of", "results", "resume", "grace", "log_max")
"""Notes of a run that come from its profile."""


class ResultReporter:
    """Handles the request `results`: the first answer has all files, later ones what changed."""

    def __init__(self, home: bytes, say: Callable[..., None], beat: Callable[[], None]) -> None:
        """`beat` is called repeatedly while a look takes long."""
        self.home, self.say, self.beat = os.fsdecode(home), say, beat
        self.of = ""
        self.own: OwnResults | None = None
        self.told: dict[str, OwnFile] = {}
        self.left: list[Any] = []
        self.noted = 0.0

    def results(self, request: dict[str, Any]) -> None:
        """Send frames with `files`, each [path, why, checkpoint, kind, *state], and of a link where
        it leads; the last frame ends it.

        A request about another run than the last begins anew.
        """
        if self.own is None or self.of != request["run"]:
            self.begin(request)
        assert self.own is not None  # noqa: S101 - for the type checker
        self.own.looking.reads_all = request["reads_all"]
        look = self.own.look(live=request["live"])
        self.noted = time.monotonic()
        now = {one.file.path: one for one in look.files}
        rows = [
            [
                file.path,
                file.why,
                file.checkpoint,
                kind,
                *file.state,
                *([file.to] if file.to else []),
            ]
            for file, kind in look.files
            if self.told.get(file.path) != (file, kind)
        ]
        for at in range(0, len(rows), AT_ONCE):
            self.say({"files": rows[at : at + AT_ONCE]})
        gone = [path for path in self.told if path not in now]
        for at in range(0, len(gone), AT_ONCE):
            self.say({"gone": gone[at : at + AT_ONCE]})
        left = [*look.left_out, *([one.path, one.why, one.by, *one.state] for one in look.lost)]
        same = left == self.left
        for at in range(0, 0 if same else len(left), AT_ONCE):
            self.say({"left": left[at : at + AT_ONCE]})
        self.told, self.left = now, left
        run = self.own.run
        about = {"tree": run.tree, "looked": run.results, "profile": self.profile}
        kept = {"kept": f"{run.path}/{KEPT}", "given_up": run.given_up()}
        # What is there, and no result, may be something that git ignores.
        absent = (p for p in run.let_go if not os.path.lexists(f"{run.tree}/{p}"))
        unmet = [p for p in absent if p not in run.met]
        let_go = {"without": run.let_go, "unmet": unmet}
        self.say({**about, **kept, **let_go, "left_as_before": same})

    def between(self) -> None:
        """Note the other files while a large one is read: that counts as part of their wait."""
        if self.own is not None and time.monotonic() - self.noted > EVERY_S:
            self.own.looking.note()
            self.noted = time.monotonic()
        self.beat()

    def begin(self, request: dict[str, Any]) -> None:
        """Read the run's notes; earlier versions noted no paths, so the request has them too."""
        self.of = request["run"]
        path = os.path.join(self.home, "runs", request["run"])
        noted = "".join(f"{name}\0{lines_of(f'{path}/{name}')}\n" for name in OF_PROFILE)
        self.profile = hashlib.sha256(noted.encode("utf-8", "surrogateescape")).hexdigest()
        run = RunResults(path, request["tree"], request["paths"])
        if "also" in request:
            with suppress(OSError):  # a full disk: the answer has what is noted
                run = run.with_results(request["also"])
        if "without" in request:
            with suppress(OSError):  # a full disk: the answer has what is noted
                run.note_let_go(request["without"])
        self.own = OwnResults(run, request["stood_s"])
        self.own.looking.between = self.beat
        self.told, self.left = {}, []


VERSION = 1
EVERY = 0.2  # seconds that an answer may wait for others
GULP = 1 << 20  # bytes read at once
BEAT = 5.0  # seconds without output after which a sign of life is sent
LITTLE = 64  # bytes read at once for a header, if long data follows
LONG = 32 * 1024
PATIENCE = 3600  # seconds


class Channel:
    """Standard input and output."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.gulp = GULP
        self.held = Bundle()
        self.flushed = time.monotonic()
        self.before: Callable[[], None] = lambda: None  # called before answers are sent

    def read(self, count: int) -> bytes:
        """Return `count` bytes; fewer at the end. Long data is read in place."""
        if count >= LONG:
            return self.read_long(count)  # type: ignore[return-value]  # used like bytes
        while len(self.came) < count and self.await_more():
            piece = os.read(0, self.gulp)
            if not piece:
                break
            self.came += piece
        taken = bytes(memoryview(self.came)[:count])
        del self.came[:count]
        self.gulp = GULP
        return taken

    def read_long(self, count: int) -> bytearray:
        """As `read`, without a copy; the next data is probably long too."""
        taken = self.came[:count]
        del self.came[:count]
        done = len(taken)
        taken.extend(bytes(count - done))
        with memoryview(taken) as view:
            while done < count and self.await_more():
                more = os.readv(0, [view[done:]])
                if not more:
                    break
                done += more
        del taken[done:]
        self.gulp = LITTLE
        return taken

    def await_more(self) -> bool:
        """Wait for input; return whether there is more. Held answers are sent before it waits.

        While there is more to read, answers are collected for a moment: one for each file would
        be a packet each, and wake the other side each time.
        """
        if self.held.size and (self.is_late() or not select.select([0], [], [], 0)[0]):
            self.flush()
        return bool(select.select([0], [], [], PATIENCE)[0])

    def is_late(self) -> bool:
        """Return whether held answers have waited long enough."""
        return time.monotonic() - self.flushed > EVERY

    def say(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Queue a frame, to be sent soon."""
        if not self.held.has_room(body):
            self.flush()
        self.held.add(header, body)
        if self.held.size >= BLOCK or self.is_late():
            self.flush()

    def beat(self) -> None:
        """Send a sign of life, if nothing was sent for a while."""
        if time.monotonic() - self.flushed > BEAT:
            self.say({"v": VERSION})
            self.flush()

    def flush(self) -> None:
        self.before()
        rest = memoryview(self.held.take())
        self.flushed = time.monotonic()
        while rest:
            rest = rest[os.write(1, rest) :]


def serve(home: bytes) -> None:
    """Answer requests until the input ends."""
    channel = Channel()
    receiver = BoxReceiver(home, channel.say, channel.beat)
    teller = ResultReporter(home, channel.say, channel.beat)
    sender = BoxSender(home, channel.say, teller.between, channel.beat)
    channel.before = receiver.rest
    plain = {
        **{word: getattr(receiver, word) for word in ("to", "look", "compare", "folders", "done")},
        "get": sender.get,
        "results": teller.results,
    }
    channel.say({"v": VERSION})
    while frames := read_frames(channel.read):
        for header, body in frames:
            if not header:
                receiver.block(body)
            elif header["op"] == "put":
                receiver.put(header, body)
            elif header["op"] == "end":
                receiver.end()
                channel.say({"end": True})
            else:
                plain[header["op"]](header)
            if receiver.is_over:
                return channel.flush()
    return channel.flush()


def main() -> None:
    """Serve a transfer; the argument is boxstrap's folder on the box."""
    gc.set_threshold(500_000, 50, 50)  # as at home: many files are no garbage
    try:
        serve(os.fsencode(sys.argv[1]))
    except BrokenPipeError:
        os._exit(0)
