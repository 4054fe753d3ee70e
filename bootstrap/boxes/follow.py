"""Follow files on the box as they grow, each byte once, across lost links."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from bootstrap.boxes.disk import MOST_IN_LINE, LowDisk, parse_low_line
from bootstrap.boxes.failure import last_traceback
from bootstrap.boxes.run import GOES_ON, STATES, Run
from bootstrap.errors import StepFailedError, TrainingFailedError, UnreachableError
from bootstrap.link.exchange import (
    AnswerStream,
    answer_exit_code,
    answer_number,
    answer_time,
    run_script,
    stream_script,
)
from bootstrap.link.query import AskedBox, BoxRedaction, ask, build_query
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.link.wire import LinkLost, NoAnswer, Stream, Wire
from bootstrap.onbox.python.lacking import advice
from bootstrap.sanitize import sanitize
from bootstrap.steps.events import Event, EventLines
from bootstrap.value import dataclass

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of events that one setup may send: two events a second for most of a day."""
MOST_REFUSED = 100_000
"""Limit of lines that are not valid events; another boxstrap version may write some."""
EVERY_S = 1.0
ANSWER_S = 30.0  # how long one answer may take
_SHOWN_S = 15.0
"""The longest time between two polls: by them a setup sees that it is still followed."""
_MOST_UNANSWERED = 3
_MOST_WAITED = 3
_MOST_SAID = 2000  # bytes of what the shell of a setup said that ended by itself
_LONGEST_SECRET = 256 * 1024  # upper bound for a secret in its longest (encoded) form, in bytes
_LOOK = "What runs on the box goes on. Log in with ssh and see what it does."


def file_tail(wire: Wire, file: str, workdir: str, most: int, redact: Sequence[str] = ()) -> bytes:
    """Return the last `most` bytes of a file in boxstrap's folder; empty if it doesn't exist. The
    box redacts the secrets that `redact` names. Raises LinkLost, NoAnswer."""
    query = tail_query(file, str(most), workdir, BoxRedaction(redact))
    return run_script(wire, query, timeout=60)


def tail_query(
    file: str, part: str, workdir: str, there: BoxRedaction, *, follows: bool = False
) -> str:
    """Return what prints a file from its byte `+N` on, or its last N bytes."""
    return build_query("tail", there, workdir=workdir, file=file, bytes=part, follows=follows)


def follow_file(
    wire: Wire, file: str, *, workdir: str = "", start: int = 0, redact: Sequence[str] = ()
) -> AnswerStream:
    """Stream `file` (in boxstrap's folder) from byte `start` on, until the link ends.

    The box redacts the secrets that `redact` names, and keeps the number of bytes. Waits for a file
    that doesn't exist yet. Raises LinkLost; reading raises NoAnswer.
    """
    # The link may have broken inside a secret, so the box must read that secret from its start.
    skip = min(start, _LONGEST_SECRET) if redact else 0
    there = BoxRedaction(redact, skip, same_length=True)
    query = tail_query(file, f"+{start - skip + 1}", workdir, there, follows=True)
    return stream_script(wire, query)


class CompletionPoller(threading.Thread):
    """Poll over the same login whether the writer has ended; close the stream once all is read.

    The answer to `query` is a state (`running`, `queued`, or other words), a tab, the file's size
    in bytes, and optionally the times when the writer ended and when it began, and what `tell_low`
    is called with each time: how little room its disk has. After three unanswered polls in a row
    the box is given up: the stream is closed, and `trouble` says why.
    """

    def __init__(
        self,
        wire: Wire,
        stream: Stream | AnswerStream,
        query: str,
        seen: int = 0,
        tell_low: Callable[[LowDisk], None] = lambda _: None,
    ) -> None:
        super().__init__(name="end-watch", daemon=True)
        self.seen = seen  # bytes of the file that were read so far; the reader updates it
        self.reached = False  # whether the writer has ended and everything it wrote was read
        self.state = ""  # the writer's last reported state, in the box's words
        self.ended: int | None = None  # when it ended, on the box's clock, if the box reports that
        self.begun: int | None = None  # when it began, in the same way
        self.is_stuck = False
        """Whether the writer ended but its last bytes don't arrive: read the file again."""
        self.trouble: UnreachableError | None = None  # why the box was given up
        self._wire = wire
        self._stream = stream
        self._query = query
        self._tell_low = tell_low
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        """Poll whenever no new bytes arrived, until the end, or until the link is gone. Then the
        stream ends too: a shared connection that is back may carry it on, unpolled."""
        before, unanswered, waited, polled = -1, 0, 0, time.monotonic()
        while not self._done.wait(EVERY_S) and self._wire.alive():
            if self.seen != before:
                before, waited = self.seen, 0
                if time.monotonic() - polled < _SHOWN_S:
                    continue
            polled = time.monotonic()
            try:
                self.reached = self._is_over()
                unanswered = 0
                waited += self.state != "running"
                self.is_stuck = not self.reached and waited == _MOST_WAITED
            except LinkLost:
                break
            except UnreachableError as error:
                unanswered += 1
                self.trouble = error if unanswered == _MOST_UNANSWERED else None
            if self.reached or self.is_stuck or self.trouble:
                break
        if not self._done.is_set():
            self._stream.close()

    def _is_over(self) -> bool:
        answer = sanitize(run_script(self._wire, self._query, timeout=ANSWER_S)[:MOST_IN_LINE])
        self.state, size, ended, begun, *disk = [*answer.strip().split("\t"), *[""] * 4]
        if low := parse_low_line("\t".join(disk)):
            self._tell_low(low)
        self.ended, self.begun = answer_time(ended) or None, answer_time(begun) or None
        written = answer_number(size)
        if written is None:
            raise NoAnswer("its answers make no sense.", where=self._wire.label, hint=_LOOK)
        return self.state not in GOES_ON and self.seen >= written

    def stop(self) -> None:
        self._done.set()


def follow_events(
    link: ReconnectingLink, setup: str, *, workdir: str, redact: Sequence[str] = ()
) -> Iterator[Event]:
    """Yield all events of a setup, each once and in order, up to its `done`.

    After a lost link, reading continues where it broke (`ReconnectingLink.reconnect`, which may
    give up with UnreachableError). Raises StepFailedError if the setup died without reporting it,
    with what its shell said (in which the box redacts the secrets of `redact`); NoAnswer if the box
    sends too much, or stops answering; CancelledError.
    """
    lines, backoff = EventLines(), Backoff(cancel=link.cancel)
    last = told = 0
    query = build_query("setup_end", workdir=workdir, setup_id=setup, follows=True)
    while True:
        try:
            wire = link.wire
            stream = follow_file(
                wire, f"setups/{setup}/events.jsonl", workdir=workdir, start=lines.consumed
            )
            # Count what earlier links read: nothing more may arrive.
            end = CompletionPoller(wire, stream, query, seen=lines.consumed)
            while piece := stream.read(64 * 1024):
                told += len(piece)
                if told > MAX_EVENT_BYTES or lines.refused > MOST_REFUSED:
                    end.stop()
                    stream.close()
                    raise NoAnswer(
                        "it sends more events than any setup has.",
                        where=link.label,
                        hint="Don't trust this box with your work, or log in with ssh and see "
                        "what it does.",
                    )
                for event in lines.feed(piece):
                    if event.seq <= last or event.setup != setup:
                        continue
                    last = event.seq
                    yield event
                    if event.event == "done":
                        end.stop()
                        stream.close()
                        return
                end.seen = lines.read
            if end.reached:
                output = file_tail(wire, f"setups/{setup}/output", workdir, _MOST_SAID, redact)
                raise _gone(link.label, output)
            if end.trouble:
                raise end.trouble
            raise LinkLost(link.label, "the box stopped reporting on the setup")
        except LinkLost as lost:
            lines.link_lost()
            backoff.lost(lost, news=lines.consumed)
            link.reconnect(lost)


def _gone(label: str, output: bytes) -> StepFailedError:
    said = sanitize(output).strip()
    return StepFailedError(
        "the setup's process on the box is gone"
        + (f". Its shell said:\n{said}" if said else ": it was killed, or the box restarted."),
        where=label,
        hint="Run the same command again: it goes on where it stopped.",
    )


FIRST_OUTPUT_S = 30  # how long to wait for a run's first output, in seconds
_SHOWN_LINES = 10


@dataclass(frozen=True)
class FirstOutput:
    """A run's first lines, or its last ones if it failed immediately."""

    state: str
    rc: int | None
    lines: tuple[str, ...]
    made_nothing: bool  # whether it is over with 0, without a word in its log and without results


def watch_beginning(box: AskedBox, run: Run, seconds: int = FIRST_OUTPUT_S) -> FirstOutput:
    """Wait for the run's first output or its end, and read it. Raises LinkLost, NoAnswer."""
    asked = {"verb": "first", "run": run.path, "seconds": str(seconds)}
    script = ask("verbs", asked, BoxRedaction(box.redacted_there), workdir=box.workdir)
    answer = run_script(box.wire, script, timeout=FIRST_OUTPUT_S + 30)
    return first_output(answer)


def waits_for_output(name: str) -> str:
    """Return the message to show while waiting for a run's first line."""
    return (
        f"{name}: waiting up to {FIRST_OUTPUT_S} s for its first line (Ctrl-C is safe: it goes on)"
    )


def raise_if_failed(run: Run, box: str, lines: Sequence[str]) -> None:
    """Raise TrainingFailedError if a run that just started failed: by its exit code, or killed."""
    if run.rc or run.failed:
        raise TrainingFailedError(
            f"it {run.outcome()}."
            if run.ended or not run.rc
            else f"the command ended with exit code {run.rc}.",
            where=run.name,
            hint=hint_with_log(lines, f"boxstrap logs --host {box} --run {run.name}"),
        )


def hint_with_log(lines: Sequence[str], log: str) -> str:
    """Return what to do about what a run that just failed said, and the command for its log."""
    return "\n".join(filter(None, (advice("\n".join(lines)), f"Its log: {log}")))


def first_output(answer: bytes) -> FirstOutput:
    """Parse what the verb `first` says."""
    head, _, log = sanitize(answer).partition("\n")
    state, rc, nothing = [*head.split(" "), "", ""][:3]
    failed = state == "finished" and rc != "0"
    lines = [line for line in log.splitlines() if line.strip()]
    first = 0
    if len(lines) > _SHOWN_LINES:  # else all are shown, and no pattern need be compiled
        from bootstrap.onbox.runs.first_output import is_first

        first = next((at for at, line in enumerate(lines) if is_first(line)), 0)
    early = lines[max(0, first - _SHOWN_LINES + 1) :][:_SHOWN_LINES]
    return FirstOutput(
        state=state if state in STATES else "died",
        rc=answer_exit_code(rc),
        lines=tuple((last_traceback(lines) or lines)[-_SHOWN_LINES:] if failed else early),
        made_nothing=nothing == "nothing" and not lines,
    )


def not_shown(lines: tuple[str, ...], shown: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of a `FirstOutput` that go on after those which were `shown` as they came,
    perhaps with marks and other lines of a traceback that it leaves out."""
    before = tuple(last_traceback(shown) or shown)
    return lines[next((n for n in range(len(lines), 0, -1) if before[-n:] == lines[:n]), 0) :]
