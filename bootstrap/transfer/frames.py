"""This machine's side of a transfer: a stream of requests out, a stream of frames back.

The box's side is a boxstrap program (`bootstrap/onbox/transfer`) that is sent with the query. Its
answers are not trusted: frames have a maximum length, and callers read each value by type
(`text_of`, `number_of`).

A run's results on a box are listed, and fetched, with it. Types and sizes are checked here; whether
a path may be created on this machine is checked by the code that creates it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from bootstrap.errors import BoxLacksError, BoxstrapError
from bootstrap.link.exchange import stream_script
from bootstrap.link.query import build_query
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.onbox.results.complete_files import MOST_FILES, STOOD_S, link_digest
from bootstrap.onbox.transfer.frames import AT_ONCE, BadFrame, Bundle, read_frames
from bootstrap.sanitize import sanitize
from bootstrap.steps.shell import sent_program
from bootstrap.value import dataclass, field, replace

Frame = tuple[Mapping[str, Any], bytes]  # header and body
SILENT_S = 60.0
"""How long the box may send nothing while we wait, in seconds; while it works, it sends frames."""
_TICK_S = 1.0
_LONGEST = 300
_MOST_NUMBER = 2**63
PROGRAM = "onbox/transfer/serve.py"  # the box's side, which is sent along


class Transfer:
    """One exchange with that program. A context manager: leaving it closes the stream."""

    def __init__(self, wire: Wire, workdir: str) -> None:
        """Start the program without waiting for it. Raises LinkLost."""
        self._wire = wire
        query = build_query("transfer", workdir=workdir, program=sent_program(PROGRAM), request="")
        self._stream = stream_script(wire, query)
        self._held = bytearray()
        self._came = deque[Frame]()
        self._failure: BaseException | None = None
        self._waits_since: float | None = None
        self._fed = time.monotonic()
        self._is_silent = False
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="transfer", daemon=True).start()

    def __enter__(self) -> Transfer:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._stream.close()

    def _watch(self) -> None:
        """Close the link if the program sends nothing: the box's sshd may still be answering."""
        tick = time.monotonic()
        while not self._over.wait(_TICK_S):
            now, last = time.monotonic(), tick
            tick, since = now, self._waits_since
            if now - last > 4 * _TICK_S:  # this process was suspended: don't blame the box
                self._fed = now
            if since is not None and now - max(since, self._fed) > SILENT_S:
                self._is_silent = True
                self._wire.close()
                return

    def run(self, requests: Iterable[Frame]) -> Iterator[Frame]:
        """Send the requests, and in parallel yield the answers, until the last one.

        A separate thread iterates over `requests`; its exceptions are raised here. May be called
        several times in a row. Raises LinkLost, NoAnswer, BoxLacksError (no Python on the box),
        BoxstrapError (the box's program ended).
        """
        feeder = threading.Thread(target=self._feed, args=(requests,), name="feeder", daemon=True)
        feeder.start()
        whole = False
        try:
            while True:
                header, body = self._frame()
                if "end" in header:
                    break
                if "v" not in header:
                    yield header, body
            whole = True
        except LinkLost:
            if not self._is_silent:
                raise
            why = f"it said nothing of the transfer for {SILENT_S:g} s"
            raise LinkLost(self._wire.label, why) from None
        finally:
            if not whole:
                self._stream.close()
            feeder.join(5)

    def _feed(self, requests: Iterable[Frame]) -> None:
        """Write small frames together, since each write is a packet."""
        waiting = Bundle()
        try:
            for header, body in requests:
                if not waiting.has_room(body) or waiting.size >= PIECE:
                    self._stream.write(waiting.take())
                    self._fed = time.monotonic()
                waiting.add(header, body)
            self._stream.write(waiting.take())
            waiting.add({"op": "end"})
            self._stream.write(waiting.take())
        except (LinkLost, BrokenPipeError, ValueError):
            pass  # reading the answers raises it
        except BaseException as error:  # raised again while reading the answers
            self._failure = error
            self._stream.close_write()

    def _frame(self) -> Frame:
        if self._came:
            return self._came.popleft()
        try:
            frames = read_frames(self._read)
        except BadFrame as error:
            raise NoAnswer(
                f"it sends something that is not part of a transfer: {error}.",
                where=self._wire.label,
                hint="Log in with ssh and look at its rc files.",
            ) from None
        if not frames:
            raise self._why_it_ended()
        if frames[0][0].get("problem") == "python":
            raise BoxLacksError(
                "there is no Python 3.8 or later to take and give files with.",
                where=self._wire.label,
                hint="Set the box up first: boxstrap setup",
            )
        self._came.extend(frames)
        return self._came.popleft()

    def _read(self, count: int) -> bytes:
        while len(self._held) < count:
            self._waits_since = time.monotonic()
            piece = self._stream.read(PIECE)
            self._waits_since = None
            if not piece:
                break
            self._held += piece
        taken = bytes(memoryview(self._held)[:count])
        del self._held[:count]
        return taken

    def _why_it_ended(self) -> BaseException:
        if self._failure is not None:
            return self._failure
        if not self._wire.alive():
            return LinkLost(self._wire.label)
        said = sanitize(self._stream.read_err()).strip().rpartition("\n")[2][-_LONGEST:]
        return BoxstrapError(
            f"the box ended the transfer{said and ': ' + said}.",
            where=self._wire.label,
            hint="What has arrived stays. Run the same command again to go on.",
        )


def text_of(header: Mapping[str, Any], name: str) -> str:
    """Return a string from a frame's header; "" if it isn't one."""
    value = header.get(name)
    return value if isinstance(value, str) else ""


def number_of(header: Mapping[str, Any], name: str) -> int:
    """Return a non-negative integer from a frame's header; -1 if it isn't one."""
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value >= _MOST_NUMBER:
        return -1
    return max(value, -1)


CLOSED = "closed"  # not complete, but the file may be read ahead: see `ResultFile.why`
WAITS = ("young", CLOSED, "held", "checkpoint")  # why a file on a box is not complete
LEFT = ("outside", "dead", "stray", "special", "unreadable", "name", "missing", "many")
LOST = ("by", "changed", "gone")
KINDS = ("own", "kept", "after")
NOT_GIVEN = ("absent", "unread", "changed")
_WHY = ("", *WAITS)
_ROWS = [[str] * 4 + [int] * 5, [str] * 4 + [int] * 5 + [str]]
"""Types in the description of a file, and of a link."""
_GIVEN = [str, str, int]
MOST_LET_GO = 1000
_LONGEST_PATH = 8192
_MOST_TEXT = 32 * 1024 * 1024  # characters in all paths together
_LONGEST_NAME = 140


class BoxFile(NamedTuple):
    """A result file, as the box reports it; the path is not sanitized."""

    path: str
    why: str  # one of `WAITS`; "" if the file is complete
    checkpoint: str  # the same for all files of one checkpoint; "" for a file on its own
    state: tuple[int, ...]  # device, inode, size, mtime and ctime
    kind: str = "own"  # own; kept: a copy made before a later run began; after: no run made it
    to: str = ""  # to which other path a link leads; not sanitized

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.state[2]

    @property
    def unit(self) -> str:
        """The same for files that must arrive together."""
        return self.checkpoint or f"/{self.path}"

    @property
    def modified(self) -> int:
        """Modification time in nanoseconds since 1970, on the box's clock."""
        return self.state[3]


class LostResult(NamedTuple):
    """A result that the box no longer has, or only with other content."""

    state: tuple[int, ...]  # as it was when the run ended; see `BoxFile`
    why: str  # one of `LOST`
    by: str  # the run that overwrote it, for `by`; not sanitized


@dataclass
class BoxLook:
    files: dict[str, BoxFile] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """Paths that can't be transferred, each with one of `LEFT`."""
    lost: dict[str, LostResult] = field(default_factory=dict)
    given_up: bool = False
    """Whether the user allowed a later run to overwrite the results."""
    without: list[str] = field(default_factory=list)
    """Paths and patterns of results that the user lets go of."""
    unmet: list[str] = field(default_factory=list)
    """Those of them that no result has."""


class WantedFile(NamedTuple):
    file: BoxFile
    at: int


class GivenFile(NamedTuple):
    """How getting a file ended: `problem` is one of `NOT_GIVEN`; "" if it is complete."""

    problem: str
    sha256: str
    piece: bytes = b""  # its last bytes: a small file comes with its end


class BegunFile(NamedTuple):
    """Digest of the part before byte `at`, from which the file was asked for."""

    at: int
    sha256: str


class BoxResults:
    def __init__(  # noqa: PLR0913
        self,
        transfer: Transfer,
        label: str,
        run: str,
        tree: str,
        paths: Sequence[str],
        *,
        stood_s: float = STOOD_S,
        without: Sequence[str] | None = None,
        also: Sequence[str] | None = None,
    ) -> None:
        """`run`: REPO/NAME; `tree` and `paths` are used if the box noted none with the run.

        `without`: the box notes that the user lets go of these; None: of what they did before.
        `also`: that these are results of the run too, and `paths` if it noted none; None: nothing.
        """
        self._transfer, self._label = transfer, label
        self._asked: dict[str, object] = {"op": "results", "run": run, "tree": tree}
        self._asked["paths"] = [*paths]
        if also is not None:
            self._asked["also"] = [*also]
        if without is not None:
            self._asked["without"] = [*without]
        self.stood_s = self._asked["stood_s"] = stood_s
        self.reads_all = False
        """Nothing of it is here: each file that the next look finds complete is then read."""
        self._files: dict[str, BoxFile] = {}
        self._before = BoxLook()
        self._text = 0
        self.tree, self._kept = tree, ""
        self.paths: Sequence[str] = paths
        """Paths of the results in the tree; empty if none are declared."""
        self.profile = ""  # digest of the run's settings from its profile

    def look(self, *, live: bool) -> BoxLook:
        """List what is there now; `live`: the run is still going. Raises as `Transfer.run`."""
        look, before = BoxLook(self._files), self._before
        self._text = sum(map(_text_in, self._files.values()))
        request = {**self._asked, "live": live, "reads_all": self.reads_all}
        self.reads_all = False
        for header, _ in self._transfer.run([(request, b"")]):
            for row in _list(header, "files"):
                file = self._file(row)
                look.files[file.path] = file
            for path in _list(header, "gone"):
                look.files.pop(str(path), None)
            for row in _list(header, "left"):
                self._leave(look, row)
            if "looked" in header:
                self.tree, self.profile = text_of(header, "tree"), text_of(header, "profile")
                self._kept, look.given_up = text_of(header, "kept"), bool(header.get("given_up"))
                self.paths = _texts(header, "looked")
                look.without, look.unmet = _texts(header, "without"), _texts(header, "unmet")
                if max(len(look.without), len(look.unmet)) > MOST_LET_GO:
                    raise self._nonsense(f"it lists more than {MOST_LET_GO:,} results to let go of")
            others = len(look.left) + len(look.lost)
            if len(look.files) > MOST_FILES or len(look.files) + others > 2 * MOST_FILES:
                raise self._nonsense(f"it lists more than {MOST_FILES:,} files")
            if self._text > _MOST_TEXT:
                raise self._nonsense("it tells of more names than any run has")
            if header.get("left_as_before") is True:
                look.left, look.lost = before.left, before.lost
        self._before = look
        return replace(look, files=dict(look.files))

    def _file(self, row: object) -> BoxFile:
        if isinstance(row, list) and [*map(type, row)] in _ROWS:
            path, why, checkpoint, kind, *state = row[:9]
            to = row[9] if row[9:] else ""
            self._text += len(path) + len(checkpoint) + len(to)
            is_short = max(len(path), len(checkpoint), len(to)) <= _LONGEST_PATH
            if _in_range(state) and is_short and why in _WHY and kind in KINDS:
                return BoxFile(path, why, checkpoint, tuple(state), kind, to)
        raise self._nonsense("its description of a file is invalid")

    def _leave(self, look: BoxLook, row: object) -> None:
        match row:
            case [str(path), str(why), str(by), *state] if (
                why in LOST and (numbers := _numbers(state)) and len(path) <= _LONGEST_PATH
            ):
                look.lost[path] = LostResult(numbers, why, by[:_LONGEST_NAME])
                self._text += len(path)
            case [str(path), str(why)] if why in LEFT:
                look.left[path[:_LONGEST_PATH]] = why
                self._text += min(len(path), _LONGEST_PATH)
            case _:
                raise self._nonsense("its description of a file is invalid")

    def get(
        self, wanted: Sequence[WantedFile]
    ) -> Iterator[tuple[WantedFile, bytes | BegunFile | GivenFile]]:
        """Yield for each file in turn: an optional BegunFile, its pieces, and a GivenFile, which
        has the last of them.

        Raises as `Transfer.run`, and NoAnswer if the box gives something else than was asked for.
        """
        number = 0
        for header, body in self._transfer.run(self._requests(wanted)):
            rows = _list(header, "given")
            if number + (len(rows) or 1) > len(wanted):
                raise self._nonsense("it gives more than it was asked for")
            if header and header.get("i") != number:
                raise self._nonsense("it gives a file that it was not asked for")
            if not header:
                yield wanted[number], body
            elif not rows:
                begun = BegunFile(number_of(header, "begun"), text_of(header, "sha256"))
                yield wanted[number], begun
            at = 0
            for row in rows:
                if not isinstance(row, list) or [*map(type, row)] != _GIVEN:
                    raise self._nonsense("its description of a file is invalid")
                problem, digest, length = row
                piece = body[at : at + length]
                at += length
                if problem and problem not in NOT_GIVEN:
                    problem = "unread"
                yield wanted[number], GivenFile(problem, digest, piece)
                number += 1
        if number < len(wanted):
            raise self._nonsense("it does not give all that it was asked for")

    def digests(self, files: Sequence[BoxFile]) -> Iterator[tuple[BoxFile, GivenFile]]:
        """Yield the SHA-256 of each file on the box, without transferring it. Raises as `get`."""
        yield from ((file, GivenFile("", link_digest(file.to))) for file in files if file.to)
        plain = [WantedFile(file, file.size) for file in files if not file.to]
        for (file, _), item in self.get(plain):
            if isinstance(item, GivenFile):
                yield file, item

    def _requests(self, wanted: Iterable[WantedFile]) -> Iterator[Frame]:
        for is_kept, group in groupby(enumerate(wanted), lambda one: one[1].file.kind == "kept"):
            root, files = self._kept if is_kept else self.tree, list(group)
            for begin in range(0, len(files), AT_ONCE):
                some = files[begin : begin + AT_ONCE]
                # A copy has a ctime of its own.
                rows = [
                    [file.path, at, *file.state[2:4], None if is_kept else file.state[4]]
                    for _, (file, at) in some
                ]
                yield {"op": "get", "root": root, "i": some[0][0], "files": rows}, b""

    def _nonsense(self, what: str) -> NoAnswer:
        return NoAnswer(f"{what}.", where=self._label, hint="Log in with ssh and look.")


def _text_in(file: BoxFile) -> int:
    return len(file.path) + len(file.checkpoint) + len(file.to)


def _numbers(state: Sequence[Any]) -> tuple[int, ...]:
    """Return device, inode, size, mtime and ctime; () if these are none."""
    is_any = len(state) == 5 and {*map(type, state)} == {int} and _in_range(state)
    return tuple(state) if is_any else ()


def _in_range(state: Sequence[int]) -> bool:
    return state[2] >= 0 and min(state) > -_MOST_NUMBER and max(state) < _MOST_NUMBER


def _list(header: Mapping[str, Any], name: str) -> list[Any]:
    value = header.get(name)
    return value if isinstance(value, list) else []


def _texts(header: Mapping[str, Any], name: str) -> list[str]:
    return [one[:_LONGEST_PATH] for one in _list(header, name) if isinstance(one, str)]
