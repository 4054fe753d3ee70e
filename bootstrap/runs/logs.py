"""The log of a run or of a step, as it is or as it grows: read from the channel in large pieces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bootstrap.errors import TrainingFailedError, UsageError
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import AnswerStream, stream_answer
from bootstrap.link.handle import BoxOptions
from bootstrap.link.reconnecting import Backoff
from bootstrap.plan import NAMES
from bootstrap.protocol.follow import CompletionPoller, follow_file
from bootstrap.protocol.query import RedactedThere, build_query
from bootstrap.protocol.run import Run, as_it_ended
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.setup.secret_values import warn_of_unredacted
from bootstrap.text.sanitize import SanitizeStream
from bootstrap.text.sizes import duration
from bootstrap.ui.screen import Screen

_PIECE = 1024 * 1024
_LONGEST_LINE = 1024 * 1024
"""Bytes of a line in one JSON object; a longer one comes in several."""


def show_log(  # noqa: PLR0913 - what was asked for
    options: BoxOptions,
    screen: Screen,
    *,
    run: str | None,
    every: bool = False,
    step: str | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Write the log to standard output, cleaned, with the secrets of the profile redacted.

    Following ends when the run does, and says how. Raises UsageError where there is no such
    run or step, TrainingFailedError where the run that was followed failed.
    """
    if step and step not in NAMES:
        raise UsageError(f"there is no step {step!r}.", hint=f"The steps: {', '.join(NAMES)}")
    with connect(options, screen) as connection:
        one = None if step else connection.runs(run, every=every)[0]
        file = one.log if one else _step_log(connection, str(step))
        if one:
            screen.note("log", f"{one.name} of {connection.repository(one)}")
        known, values = connection.box.known, connection.redactor.secrets
        warn_of_unredacted(known, connection.box_state, screen, values)
        on_terminal = sys.stdout.isatty()
        sanitizer = SanitizeStream(keep_colour=on_terminal, keep_returns=on_terminal)
        redactor = connection.redactor.stream()
        out = _JsonLog() if as_json else _PlainLog()
        growing = _Growing(connection, file, one)
        for piece in growing.pieces() if follow else _as_it_is(connection, file):
            out.write(redactor.feed(sanitizer.feed(piece)))
        out.write(redactor.feed(sanitizer.finish()) + redactor.flush())
        out.end()
        if growing.over:
            _tell_end(growing.over, connection.repository(growing.over), growing.ended, screen)


def _tell_end(run: Run, repository: str, ended: int | None, screen: Screen) -> None:
    """The last word on a run that was followed to its end."""
    took = None if ended is None else max(0, ended - run.started)
    after = "" if took is None else f" after {duration(took)}"
    text = f"{run.name} {run.outcome()}{after}"
    screen.result({"run": {**run.as_dict(), "repository": repository, "seconds": took}})
    if run.state != "finished" or run.failed:
        raise TrainingFailedError(text)
    screen.say(text)


def _step_log(connection: BoxConnection, step: str) -> str:
    setup = (
        connection.box_state.working[0]
        if connection.box_state.working
        else connection.box_state.last_setup.get("setup")
    )
    if not setup:
        raise UsageError("no setup was made on this box.", where=connection.link.label)
    return f"setups/{setup}/logs/{step}.log"


def _as_it_is(connection: BoxConnection, file: str) -> Iterator[bytes]:
    there = RedactedThere(connection.redacted_there)
    query = build_query("tail", there, workdir=connection.workdir, file=file, bytes="+1")
    yield from _pieces(stream_answer(connection.link.wire, query))


def _pieces(stream: AnswerStream) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece


@dataclass
class _Growing:
    """A file as it grows, each byte once, across lost links; to the end of its run."""

    connection: BoxConnection
    file: str
    run: Run | None
    over: Run | None = None
    """The run as it was when it had ended."""
    ended: int | None = None
    """When that was, on the box's clock."""

    def pieces(self) -> Iterator[bytes]:
        connection, run, read, backoff = self.connection, self.run, 0, Backoff()
        while True:
            try:
                wire = connection.link.wire
                stream = follow_file(
                    wire,
                    self.file,
                    workdir=connection.workdir,
                    start=read,
                    redact=connection.redacted_there,
                )
                end = (
                    CompletionPoller(wire, stream, _end_of(connection, run), seen=read)
                    if run
                    else None
                )
                for piece in _pieces(stream):
                    read += len(piece)
                    if end:
                        end.seen = read
                    yield piece
                if run and end and end.reached:
                    self.over, self.ended = as_it_ended(run, end.state), end.ended
                    if not self.over:
                        raise NoAnswer("its answers make no sense.", where=connection.link.label)
                    return
                if end and end.trouble:
                    raise end.trouble
                raise LinkLost(connection.link.label)
            except LinkLost as lost:
                backoff.lost(lost, news=read)
                connection.link.reconnect(lost)


def _end_of(connection: BoxConnection, run: Run) -> str:
    return build_query("run_end", workdir=connection.workdir, repo_key=run.repo_key, name=run.name)


class _PlainLog:
    """Log as it is."""

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Nothing is held back."""


class _JsonLog:
    """One JSON object a line; of a line that is too long several, all but the last `cut`."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def write(self, data: bytes) -> None:
        begin, *others = data.split(b"\n")
        self._rest += begin
        for other in others:
            self._put(len(self._rest))
            self._rest += other
        while len(self._rest) > _LONGEST_LINE:
            self._put(_whole_characters(self._rest, _LONGEST_LINE), cut=True)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """A last line need not end with a newline."""
        if self._rest:
            self.write(b"\n")

    def _put(self, size: int, **also: object) -> None:
        text = self._rest[:size].decode("utf-8", "replace")
        del self._rest[:size]
        line = json.dumps({"v": 1, "line": text, **also})
        sys.stdout.buffer.write(line.encode() + b"\n")


def _whole_characters(data: bytearray, most: int) -> int:
    """No more than `most` bytes, without cutting a character of UTF-8 in two."""
    return next((at for at in range(most, most - 4, -1) if data[at] & 0xC0 != 0x80), most)
