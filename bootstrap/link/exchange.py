"""Send a script to the box and read its answer, whole or streamed: one exec, under any shell.

The script travels in one single-quoted word that bash, dash, zsh, fish, tcsh and busybox ash pass
on unchanged: each character that one of them would interpret is replaced by an unused one; what is
not ASCII is sent as base64. `/bin/sh` decodes and runs it, without what the box's environment would
change about shells. A random sentinel frames the answer, which is read with limits, so that what rc
files print around it doesn't matter (docs/adr/0028). No other module converts a box's text to
numbers: `int` takes digits of other scripts, and thousands of them; `str.isdigit` is true for
characters that `int` refuses.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator

from bootstrap.errors import BoxstrapError
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Stream, Wire
from bootstrap.sanitize import one_line, sanitize
from bootstrap.sizes import LATEST
from bootstrap.steps.shell import SHELL_SETTINGS
from bootstrap.value import dataclass

_TAKEN = "'!\\\n"  # characters that some login shell interprets even between single quotes
_STAND_INS = "QXJZKVWYUGjzq" + "^@,%+78460" + "BCDFLNPRST" + "\2\3\4\5"
_EXEC = f"exec env {' '.join(f'-u {name}' for name in SHELL_SETTINGS)}"
_PLAIN = re.compile("[ -~\t\n]*")
_DECODE = (
    'r() {{ IFS=$1 j=$2; set -f; set -- $s; IFS=$j; s="$*"; }}; '
    'i=$IFS s=$4; r "{}" "$1"; r "{}" "$2"; r "{}" "$3"; r "{}" "${{i#??}}"; '
    'set +f; set --; IFS=$i; unset -f r; eval "unset i j s; $s"'
)
"""Splitting at one character and joining with another starts no process; `base64` does. The newline
is restored last: splitting drops a separator at the end, and the script ends with a newline."""


def shell_command(script: str, shell: str = "/bin/sh") -> str:
    """Return a command line that runs `script` in `shell`, the same under any login shell. The
    script's standard input is the command's. `shell` is a plain path or name."""
    text = script.rstrip("\n") + "\n"
    spare = [character for character in _STAND_INS if character not in text]
    if not _PLAIN.fullmatch(text):
        encoded = base64.b64encode(script.encode(errors="surrogateescape")).decode()
        return f"{_EXEC} {shell} -c 'eval \"$(echo {encoded} | base64 -d)\"'"
    for character, stand_in in zip(_TAKEN, spare, strict=False):
        text = text.replace(character, stand_in)
    decode = _DECODE.format(*spare)
    return f"{_EXEC} {shell} -c '{decode}' {shell.split(maxsplit=1)[0]} \"'\" \\! \\\\ '{text}'"


BASH = "bash --norc"  # for queries written in bash: only a box that was set up is sure to have it
LIMIT = 8 * 1024 * 1024
"""Most bytes of an answer: a box that prints without end can't fill this machine's memory."""
BEGIN_S = 60.0  # how long a box may take to start a streamed answer, in seconds
_HELD = 64 * 1024
_NOISE_SHOWN = 2000
_ERRORS_SHOWN = 4096
_ERRORS_PATIENCE = 1.0
_SAID_SHOWN = 300
_RUNPOD = (
    "A proxy that is interactive only can't be used: take the direct SSH address from the "
    "provider's page (RunPod: “SSH over exposed TCP”)."
)
_TMUX = (
    "tmux seems to start at login: run `touch ~/.no_auto_tmux` on the box (Vast.ai), or take it "
    "out of its rc file."
)
_HINTS = (
    ("doesn't support pty", _RUNPOD),
    ("does not support pty", _RUNPOD),
    ("open terminal failed", _TMUX),
    ("not a terminal", _TMUX),
    ("tmux", _TMUX),
)
_DEFAULT_HINT = (
    "Something on the box answers instead of a shell. Log in with ssh and look at its "
    "rc files (~/.bashrc and the like)."
)


@dataclass(frozen=True)
class Answer:
    """A script's output between the sentinels, its exit code and the end of its errors."""

    output: bytes
    code: int
    errors: bytes
    is_noisy: bool  # whether rc files printed something before it, which breaks scp and rsync


def run_script(wire: Wire, script: str, stdin: bytes = b"", timeout: float | None = None) -> bytes:
    """Run `script` by `/bin/sh` on the box, for `timeout` seconds; return its output, whatever its
    exit code, see `ask`. Raises LinkLost, NoAnswer."""
    return run_script_checked(wire, script, stdin, timeout).output


def run_script_checked(
    wire: Wire, script: str, stdin: bytes = b"", timeout: float | None = None
) -> Answer:
    """Run `script` there by `/bin/sh`; return output, exit code, errors. Raises as `exchange`."""
    sentinel = os.urandom(16).hex()
    stream = wire.start(shell_command(_frame(script, sentinel)))
    out_of_time = threading.Event()
    timer = threading.Timer(timeout, _give_up, (stream, out_of_time)) if timeout else None
    try:
        if timer:
            timer.daemon = True
            timer.start()
        feeder = threading.Thread(target=_feed, args=(stream, stdin), daemon=True)
        if stdin:
            feeder.start()
        else:
            stream.close_write()
        raw = _read_answer(stream, wire.label, sentinel)
        answer = _unframe(raw, sentinel.encode())
        errors = _read_errors(stream, sentinel.encode(), complete=answer is not None)
    finally:
        if timer:
            timer.cancel()
        stream.close()
    if answer is None:
        raise _no_answer(wire.label, raw, errors, timeout if out_of_time.is_set() else None)
    noise, output, code = answer
    return Answer(output, code, errors, is_noisy=bool(noise))


def stream_script(wire: Wire, script: str, shell: str = "/bin/sh") -> AnswerStream:
    """Run `script` on the box with `shell` and stream its output to the end. Raises LinkLost;
    reading raises NoAnswer if the box prints something else."""
    mark = os.urandom(16).hex()
    stream = wire.start(shell_command(f"echo\necho {mark}\n{script}", shell))
    return AnswerStream(stream, mark, wire.label)


def _frame(script: str, sentinel: str) -> str:
    """Wrap the script in a subshell, with a sentinel before and after it and after its errors."""
    end = f"set $?; echo {sentinel} >&2; echo {sentinel}- $1"
    return f"echo; echo {sentinel}+\n(\n{script}\n)\n{end}\n"


def _give_up(stream: Stream, out_of_time: threading.Event) -> None:
    out_of_time.set()
    stream.close()


def _feed(stream: Stream, data: bytes) -> None:
    """Runs in parallel with the reading: a box that answers early must not stall both sides."""
    with contextlib.suppress(OSError, ValueError, LinkLost):
        for start in range(0, len(data), PIECE):
            stream.write(data[start : start + PIECE])
    stream.close_write()


def _read_answer(stream: Stream, label: str, sentinel: str) -> bytes:
    """Read up to the end sentinel; a process that keeps the output open is not waited for."""
    end = re.compile(sentinel.encode() + rb"- [0-9]+\n")
    pieces: list[bytes] = []
    size, tail = 0, b""
    while piece := stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        tail = (tail + piece)[-PIECE - 64 :]
        if end.search(tail, max(0, len(tail) - len(piece) - 64)):
            break
        if size > LIMIT:
            raise NoAnswer(
                f"it printed more than {LIMIT // 2**20} MiB instead of an answer.",
                where=label,
                hint=_DEFAULT_HINT,
            )
    return b"".join(pieces)


def _read_errors(stream: Stream, sentinel: bytes, *, complete: bool) -> bytes:
    """Return the end of the errors, which may arrive a moment later than the output."""
    mark = sentinel + b"\n"
    deadline = time.monotonic() + (_ERRORS_PATIENCE if complete else 0)
    while True:
        said = stream.read_err()
        errors, end, _ = said.rpartition(mark)
        if end or time.monotonic() >= deadline:
            return (errors if end else said)[-_ERRORS_SHOWN:]
        time.sleep(0.002)


def _unframe(raw: bytes, sentinel: bytes) -> tuple[bytes, bytes, int] | None:
    """Return what came before the sentinels, the output between them, and the exit code; None if
    they are missing."""
    noise, begin, rest = raw.partition(b"\n" + sentinel + b"+\n")
    output, end, tail = rest.rpartition(sentinel + b"- ")
    code = answer_exit_code(tail.split(b"\n", 1)[0])
    return None if not begin or not end or code is None else (noise, output, code)


def _no_answer(label: str, raw: bytes, errors: bytes, timeout: float | None) -> NoAnswer:
    said = "\n".join(
        sanitize(text).strip() for text in (raw[-_NOISE_SHOWN:], errors) if text.strip()
    )
    said = said[-_NOISE_SHOWN:]
    hint = next((text for sign, text in _HINTS if sign in said.lower()), _DEFAULT_HINT)
    what = f"it gave no answer within {timeout:g} s" if timeout else "it gave no answer"
    shown = f"; it printed:\n{said}" if said else ", and printed nothing."
    return NoAnswer(what + shown, where=label, hint=hint)


def read_until(wire: Wire, stream: Stream, until: bytes, lacking: str) -> bytes:
    """Return what a command prints before the line `until`, given with a newline on both sides.
    Raises LinkLost; BoxstrapError, which names what is `lacking`, if that line doesn't come."""
    answer = bytearray(b"\n")
    while until not in answer and len(answer) < LIMIT // 2:
        if not (piece := stream.read(PIECE)):
            break
        answer += piece
    if until in answer:
        return bytes(answer.partition(until)[0])
    if not wire.alive():  # closed by this side, or lost
        raise LinkLost(wire.label)
    said = sanitize(stream.read_err()).strip()[-_SAID_SHOWN:]
    raise BoxstrapError(f"the box did not take {lacking}{said and ': ' + said}.")


class AnswerStream:
    """The output after a line with `mark`; what comes before it is noise of rc files.

    Reading raises NoAnswer if the mark comes late, or after too much noise.
    """

    def __init__(self, stream: Stream, mark: str, label: str) -> None:
        self._stream = stream
        self._mark: bytes | None = f"\n{mark}\n".encode()
        self._label = label
        self._held = b""
        self._noise = 0
        self._is_late = False
        self._timer = threading.Timer(BEGIN_S, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def read(self, n: int) -> bytes:
        """As `Stream.read`. Raises NoAnswer."""
        while self._mark is not None:
            piece = self._stream.read(n)
            if self._is_late:
                raise self._no_answer(f"it did not start to answer within {BEGIN_S:g} s.")
            if not piece:
                self._timer.cancel()
                return b""
            self._held += piece
            _, found, rest = self._held.partition(self._mark)
            if found:
                self._timer.cancel()
                self._mark, self._held = None, b""
                if rest:
                    return rest
                continue
            self._noise += len(piece)
            if self._noise > LIMIT:
                self.close()
                limit = LIMIT // 2**20
                raise self._no_answer(f"it printed more than {limit} MiB instead of an answer.")
            if len(self._held) > _HELD:
                self._held = self._held[-len(self._mark) :]
        return self._stream.read(n)

    def whole(self) -> bytes:
        """Close the input, read all of the output, and close the stream. Raises NoAnswer."""
        answer = bytearray()
        try:
            self.close_write()
            while len(answer) < LIMIT and (piece := self.read(PIECE)):
                answer += piece
        finally:
            self.close()
        return bytes(answer)

    def read_err(self) -> bytes:
        return self._stream.read_err()

    def write(self, b: bytes) -> None:
        self._stream.write(b)

    def close_write(self) -> None:
        self._stream.close_write()

    def exit_status(self) -> int | None:
        return self._stream.exit_status()

    def close(self) -> None:
        self._timer.cancel()
        self._stream.close()

    def _give_up(self) -> None:
        self._is_late = True
        self._stream.close()

    def _no_answer(self, what: str) -> NoAnswer:
        return NoAnswer(what, where=self._label, hint="Log in with ssh and look at its rc files.")


MOST_LINES = 5000
LONGEST = 4096  # bytes that are read of one line
_MOST_CODE = 255


def answer_number(text: str | bytes) -> int | None:
    """Parse a number of at most 18 digits; None for anything else."""
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return int(plain) if re.fullmatch(r"[0-9]{1,18}", plain) else None


def answer_time(text: str | bytes) -> int:
    """Parse a time in seconds since 1970; 0 for anything else, also for one that no clock has."""
    return valid_time(answer_number(text))


def valid_time(seconds: object) -> int:
    """Return a time that a box told, or that was kept of it; 0 for one that no clock has."""
    return seconds if type(seconds) is int and 0 <= seconds < LATEST else 0


def answer_exit_code(text: str | bytes) -> int | None:
    """Parse a shell's exit code (0 to 255); None for anything else."""
    code = answer_number(text)
    return code if code is not None and code <= _MOST_CODE else None


def answer_version(text: str) -> tuple[int, ...]:
    """Return the first numbers in the text, at most two; empty if there are none."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,6}", text)[:2])


def answer_rows(answer: bytes) -> Iterator[tuple[str, str]]:
    """Yield word and value of each line with a tab between them, sanitized; skip other lines."""
    for line in answer.split(b"\n", MOST_LINES)[:MOST_LINES]:
        word, tab, value = one_line(line[:LONGEST]).partition("\t")
        if tab:
            yield word, value
