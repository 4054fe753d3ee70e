"""Send states of a repository to its tree on a box, one after the other over one command."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bootstrap.link.exchange import BASH, answer_rows, stream_script
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.protocol.query import build_long_query
from bootstrap.repo.names import unquoted
from bootstrap.shell import Value

_MOST_ANSWER = 4 * 1024 * 1024
_KINDS = {"A": "new", "D": "removed"}
_WAITS = re.compile(rb"^waits\t", re.MULTILINE)
_ALL = "-"
_OVER = b"\nover\t\n"
WITH_COMMAND = 8 * 1024
"""Bytes of objects that fit into a command."""


@dataclass(frozen=True)
class SyncState:
    """The wanted state of a tree: snapshot, the commit it is based on, content, branch.

    `base` is a commit that the box should have, "" for none: the objects are packed against it.
    """

    snapshot: str
    commit: str
    tree: str
    branch: str
    base: str = ""

    def header(self, size: int | None) -> bytes:
        """Return the line before its objects; with `size` None they extend to the end of input."""
        words = (self.base, self.snapshot, self.commit, self.tree, self.branch)
        shown = [*(word or "-" for word in words), _ALL if size is None else str(size)]
        return f"{' '.join(shown)}\n".encode()


@dataclass(frozen=True)
class SyncAnswer:
    """A box's answer to a state. All text in it is sanitized."""

    placed: bool
    problem: str
    """Why it was not placed, in one word: fresh, alive, lacks, refused, busy, failed, setup."""
    detail: str
    have: tuple[str, ...]
    """Commits in its store, if it lacks the base."""
    files: Mapping[str, tuple[str, ...]]
    """File names under `updated`, `new` and `removed`."""
    warnings: tuple[str, ...]
    """Codes of warnings."""
    log: tuple[str, ...]
    """The last lines of the log, if placing failed."""
    facts: Mapping[str, str]
    """All other values it reported, by word."""


class SyncStream:
    """The command on the box, which takes several states, the last perhaps of unknown size.

    A `first` state with few objects is part of the command, as its only state: sending it as input
    would cost another round trip, since sshd reads none before the command runs. The query `run`
    also starts a run. `waits` is called if the box reports that it waits for a setup.
    """

    def __init__(  # noqa: PLR0913 - what is sent, and who hears of it
        self,
        wire: Wire,
        values: Mapping[str, Value],
        first: SyncState | None = None,
        objects: bytes = b"",
        query: str = "sync",
        *,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self._wire, self._waits = wire, waits
        self._after = b""
        state = first.header(None).decode().strip() if first else ""
        given = {"STATE": state, "OBJECTS": b64encode(objects).decode(), **values}
        self._stream = stream_script(wire, build_long_query(query, **given), BASH)

    def answer(self) -> SyncAnswer:
        """Return the answer to the state in the command itself. Raises LinkLost, NoAnswer."""
        self._stream.close_write()
        return self._answer()

    def send_last(self, state: SyncState, objects: Iterable[bytes]) -> SyncAnswer:
        """Send a last state with objects that are streamed. Raises LinkLost, NoAnswer."""
        self._write(state.header(None), objects)
        self._stream.close_write()
        return self._answer()

    def send(self, state: SyncState, objects: bytes) -> SyncAnswer:
        """Send a state; more may follow. Raises LinkLost, NoAnswer."""
        pieces = (objects[at : at + PIECE] for at in range(0, len(objects), PIECE))
        self._write(state.header(len(objects)), pieces)
        return self._answer()

    def rest(self, until: bytes = b"") -> bytes:
        """Read the output after the last answer: to its end, or to the first `until`.

        Raises LinkLost, also if the output ends before `until`.
        """
        said, self._after = bytearray(self._after), b""
        while not (until and until in said) and len(said) <= _MOST_ANSWER:
            piece = self._stream.read(PIECE)
            if not piece and (until or not self._wire.alive()):
                raise LinkLost(self._wire.label)
            if not piece:
                break
            said += piece
        if until:
            found, _, self._after = bytes(said).partition(until)
            return found
        return bytes(said)

    def close(self) -> None:
        """Close the stream; the command then ends on its own."""
        self._stream.close()

    def _write(self, header: bytes, objects: Iterable[bytes]) -> None:
        try:
            self._stream.write(header)
            for piece in objects:
                self._stream.write(piece)
        except BrokenPipeError:
            pass  # the box's answer says why

    def _answer(self) -> SyncAnswer:
        answer, told = bytearray(b"\n"), False
        while _OVER not in answer[-PIECE - 16 :]:
            piece = self._stream.read(PIECE)
            answer += piece
            if not told and _WAITS.search(answer):
                told = True
                self._waits()
            if not piece:
                self._fail("it did not say what became of the state that was sent.")
            if len(answer) > _MOST_ANSWER:
                self._fail(f"it answers with more than {_MOST_ANSWER // 2**20} MiB.")
        said, _, self._after = bytes(answer).partition(_OVER)
        return _parse(said)

    def _fail(self, what: str) -> None:
        self._stream.close()
        if not self._wire.alive():
            raise LinkLost(self._wire.label)
        raise NoAnswer(what, where=self._wire.label, hint="Log in with ssh and look.")


def _parse(answer: bytes) -> SyncAnswer:
    facts: dict[str, str] = {}
    many: dict[str, list[str]] = {"have": [], "warn": [], "log": []}
    files: dict[str, list[str]] = {"updated": [], "new": [], "removed": []}
    for word, value in answer_rows(answer):
        if word in many:
            many[word].append(value)
        elif len(word) == 1 and word.isupper():
            files[_KINDS.get(word, "updated")].append(unquoted(value))
        else:
            facts[word] = value
    problems = ("fresh", "alive", "lacks", "refused", "busy", "failed", "setup")
    problem = next((word for word in problems if word in facts), "")
    return SyncAnswer(
        placed="placed" in facts and not problem,
        problem=problem,
        detail=facts.get(problem, ""),
        have=tuple(many["have"]),
        files={kind: tuple(names) for kind, names in files.items()},
        warnings=tuple(many["warn"]),
        log=tuple(many["log"]),
        facts=facts,
    )
