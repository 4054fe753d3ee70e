"""`logs`: select the logs of runs or of a step, and show them: unchanged, as lines with the run's
name, or as JSON."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import BinaryIO

from bootstrap.boxes.at_home import LogPart, RunAtHome
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run, RunOnABox, called, qualified, repository_names
from bootstrap.boxes.secrets import redactor_of_all
from bootstrap.errors import TrainingFailedError, UnreachableError, UsageError
from bootstrap.link.target import BoxOptions
from bootstrap.onbox.redact import Redactor, RedactStream
from bootstrap.runs.known_runs import as_of, box_or_home
from bootstrap.runs.log_reader import AnyReader, KeptLogReader, LogReader, together
from bootstrap.sanitize import SanitizeStream
from bootstrap.sizes import seconds_of, size, took_in_words
from bootstrap.steps.plan import NAMES
from bootstrap.ui.screen import Screen
from bootstrap.value import dataclass

_LONGEST_LINE = 1024 * 1024
"""Bytes of a line in one JSON object, or after one name; a longer line is split."""


class PlainLog:
    def __init__(self, to: BinaryIO | None = None) -> None:
        self._to = to or sys.stdout.buffer

    def write(self, data: bytes) -> None:
        self._to.write(data)
        self._to.flush()

    def end(self) -> None:
        """Do nothing: no data is held back."""


_COLOURS = (36, 33, 35, 32, 34, 31)  # of the nodes' names, as a terminal counts them


class NamedLog:
    """The log of one run among several: whole lines, each after the run's name."""

    def __init__(self, name: str, rank: int | None = None) -> None:
        """`rank`: which of several nodes it is; on a terminal each has a colour."""
        paints = rank is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        colour = _COLOURS[(rank or 0) % len(_COLOURS)] if paints else 0
        self._name = (f"\x1b[{colour}m{name} |\x1b[0m " if colour else f"{name} | ").encode()
        self._rest = b""

    def write(self, data: bytes) -> None:
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if not newline and len(self._rest) > _LONGEST_LINE:
            whole, newline, self._rest = self._rest, b"\n", b""
        if newline:
            lines = whole.replace(b"\n", b"\n" + self._name)
            sys.stdout.buffer.write(self._name + lines + newline)
            sys.stdout.buffer.flush()

    def end(self) -> None:
        """Write a last line that lacks its newline."""
        if self._rest:
            self.write(b"\n")


class JsonLog:
    """One JSON object per line; several for a line that is too long, all but the last with `cut`.

    `also` is added to each object.
    """

    def __init__(self, **also: object) -> None:
        self._rest = bytearray()
        self._also = also

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
        """Write a last line that lacks its newline."""
        if self._rest:
            self.write(b"\n")

    def _put(self, size: int, **also: object) -> None:
        text = self._rest[:size].decode("utf-8", "replace")
        del self._rest[:size]
        line = json.dumps({"v": 1, **self._also, "line": text, **also})
        sys.stdout.buffer.write(line.encode() + b"\n")


def _whole_characters(data: bytearray, most: int) -> int:
    """Return a size of at most `most` bytes that does not split a UTF-8 character."""
    return next((at for at in range(most, most - 4, -1) if data[at] & 0xC0 != 0x80), most)


_CLOCK = ("%H:%M", "%H:%M:%S")


def seconds_ago(text: str, now: datetime, option: str = "--since") -> int:
    """Return how long ago `text` is; a time of day is the latest past one. Raises UsageError."""
    ago = seconds_of(text)
    if ago is not None:
        return ago
    when = _clock(text, now) or _date(text)
    if when is None:
        raise UsageError(
            f"{option}: {text!r} is no time.",
            hint=f"As in: {option} 10m, {option} 2h, {option} 14:30, {option} '2026-11-22 14:30'",
        )
    return max(0, int((now - when).total_seconds()))


def _clock(text: str, now: datetime) -> datetime | None:
    for form in _CLOCK:
        try:
            time = datetime.strptime(text, form).time()
        except ValueError:
            continue
        today = datetime.combine(now.date(), time)
        return today if today <= now else today - timedelta(days=1)
    return None


def _date(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.astimezone().replace(tzinfo=None) if when.tzinfo else when


@dataclass(frozen=True)
class LogOptions:
    names: Sequence[str] = ()  # runs, as `--run` takes them; the newest run if empty
    every: bool = False  # whether runs of all repositories on the box count
    live: bool = False  # whether to show every live run
    step: str | None = None
    since: str | None = None
    until: str | None = None
    lines: int | None = None  # how many of the last lines; all of them if None
    pattern: str = ""  # only lines that match, as grep's extended regular expressions do
    follow: bool = False
    among: str = ""  # the box, if logs of several are shown


class LastDrawn:
    """Drops of each line what was drawn over, as a progress bar is: a terminal shows the last."""

    def __init__(self, *, is_growing: bool) -> None:
        """`is_growing`: an unfinished line is passed on at once, else held back."""
        self._is_growing = is_growing
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = _last_drawn(rest)
        whole = b"".join(_last_drawn(line.rstrip(b"\r")) + b"\n" for line in lines)
        return whole + self.finish() if self._is_growing else whole

    def finish(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest


def _last_drawn(line: bytes) -> bytes:
    drawn = line.rstrip(b"\r")
    return drawn.rpartition(b"\r")[2] + line[len(drawn) :]


@dataclass
class ShownLog:
    """A log on its way to standard output: drawn, sanitized, then redacted, then written."""

    drawn: LastDrawn | None
    sanitizer: SanitizeStream
    redactor: RedactStream
    out: PlainLog | NamedLog | JsonLog

    def write(self, piece: bytes) -> None:
        piece = self.drawn.feed(piece) if self.drawn else piece
        self.out.write(self.redactor.feed(self.sanitizer.feed(piece)))

    def end(self) -> None:
        rest = self.sanitizer.feed(self.drawn.finish()) if self.drawn else b""
        self.out.write(self.redactor.feed(rest + self.sanitizer.finish()) + self.redactor.flush())
        self.out.end()


def show_log(
    options: BoxOptions,
    screen: Screen,
    wish: LogOptions,
    *,
    as_json: bool = False,
    to: BinaryIO | None = None,
) -> None:
    """Write the logs to standard output, or one to `to`, sanitized and with secrets redacted.

    Following ends when the runs end, and shows how they ended. Raises UsageError if there is no
    such run or step, TrainingFailedError if a followed run failed.
    """
    _checked(wish)
    with contextlib.ExitStack() as stack:
        if wish.step or wish.live:
            found: BoxLogin | list[RunAtHome] = BoxLogin.open(options, screen)
        else:
            found = box_or_home(options, screen, wish.names, every=wish.every)
        if isinstance(found, list):
            logs = _at_home(options, found, screen)
        else:
            box = stack.enter_context(found)
            readers = _readers(box, wish, screen)
            box.warn_of_unredacted()
            most = max((reader.run.log_bytes for reader in readers if reader.run), default=0)
            box.ask(lambda asked: asked.expect(most))
            logs = _Logs(readers, box.state.time, box.known.price, box.redactor, box.repository)
        _show(logs, screen, wish, as_json=as_json, to=to)
    live = [one for one in found if one.run.goes_on] if isinstance(found, list) else []
    if live and wish.follow:
        raise UnreachableError(
            f"{called(live[0].run.name)} went on when its box was last seen: only the part of its "
            "log that is at home was shown.",
            where=live[0].box,
            hint=f"Its end, across lost links: boxstrap wait --host {live[0].box}",
        )


@dataclass
class _Logs:
    readers: Sequence[AnyReader]
    now: int  # the time on the box's clock
    price: float
    redactor: Redactor
    repository: Callable[[Run], str]  # returns the name of a run's repository


def _at_home(options: BoxOptions, found: Sequence[RunAtHome], screen: Screen) -> _Logs:
    screen.note("log", ", ".join(map(as_of, found)))
    redactor = redactor_of_all(options)
    screen.redact = redactor.text
    now = int(max(found, key=lambda one: one.seen).now(time.time()))
    names = repository_names({one.repository for one in found})
    readers = [KeptLogReader(one) for one in found]
    return _Logs(readers, now, found[0].price, redactor, lambda run: names[run.repo_key])


def _show(
    logs: _Logs, screen: Screen, wish: LogOptions, *, as_json: bool, to: BinaryIO | None
) -> None:
    readers, price = logs.readers, logs.price
    since, until = (None if ago is None else logs.now - ago for ago in _checked(wish))
    for reader in readers:
        reader.part = LogPart(until, None if wish.follow else wish.lines, wish.pattern)
        if not reader.run or (since is None and until is None):
            continue
        # Whether it has times is known from asking; without `since` that changes no start.
        if not reader.find_start(since or 0):
            screen.warn(f"{reader.run.name} has no index of times for its log: showing all of it")
    for reader in readers if wish.follow and wish.lines is not None else ():
        reader.find_last_lines(wish.lines or 0)
    shown = [_shown(logs, at, wish, as_json=as_json, to=to) for at in range(len(readers))]
    told: list[RunOnABox] = []
    failed: list[str] = []
    nothing = f"in the last setup {wish.step} printed nothing, as a step that is skipped"
    silent = f"no line matches {wish.pattern!r}" if wish.pattern else wish.step and nothing
    for at, piece in together(readers, follow=wish.follow):
        if piece:
            silent = ""
            shown[at].write(piece)
            continue
        shown[at].end()
        if lost := readers[at].skipped:
            what = f"{size(lost)} of the log were dropped by the box before they could be read"
            screen.warn(f"{what}: see train.log_max_mib")
        if run := readers[at].over:
            took = run.seconds(run.over)
            after = "" if took is None else f" after {took_in_words(took, price)}"
            text = f"{called(run.name)} {run.outcome()}{after}"
            told.append(RunOnABox(run, logs.repository(run), run.over, price))
            failed += [text] if run.state != "finished" or run.failed else []
            if text not in failed or len(readers) > 1:
                screen.say(text)
    if silent:
        screen.note("log", silent)
    if told:
        screen.result({"runs": told} if len(readers) > 1 else {"run": told[0]})
    if failed:
        raise TrainingFailedError("\n".join(failed))


def _checked(wish: LogOptions) -> tuple[int | None, int | None]:
    """Return how many seconds ago `--since` and `--until` are. Raises UsageError."""
    if wish.step and wish.step not in NAMES:
        raise UsageError(f"there is no step {wish.step!r}.", hint=f"The steps: {', '.join(NAMES)}")
    if wish.step and (wish.names or wish.live or wish.since or wish.until):
        raise UsageError("--step is the log of a setup: not with --run, --live, --since, --until.")
    if wish.names and wish.live:
        raise UsageError("use either --run or --live, not both.")
    if wish.follow and (wish.until or wish.pattern):
        raise UsageError(
            "--follow goes on for ever: not with --until, --grep.",
            hint="As in: boxstrap logs -f | grep --line-buffered loss",
        )
    if wish.step and wish.follow and wish.lines is not None:
        raise UsageError("--tail with --follow is of a run's log: not with --step.")
    if wish.pattern:
        ask = ("grep", "-E", "-e", wish.pattern)
        tried = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if tried.returncode > 1:
            why = tried.stderr.decode("utf-8", "replace").strip().removeprefix("grep: ")
            raise UsageError(f"--grep: {wish.pattern!r} can't be searched for: {why[:200]}")
        if "\n" in wish.pattern:
            raise UsageError("--grep: a line holds no newline.")
    now = datetime.now()
    return (
        None if wish.since is None else seconds_ago(wish.since, now),
        None if wish.until is None else seconds_ago(wish.until, now, "--until"),
    )


def _readers(box: BoxLogin, wish: LogOptions, screen: Screen) -> list[LogReader]:
    if wish.step:
        setup = box.state.working[0] if box.state.working else box.state.last_setup.get("setup")
        if not setup:
            raise UsageError("no setup was made on this box.", where=box.label)
        return [LogReader(box, f"setups/{setup}/logs/{wish.step}.log")]
    runs = list(dict.fromkeys(_meant(box, wish)))
    words = [
        f"{called(one.name)} of {box.repository(one)}"
        + (f" (its first {size(one.log_kept)} were dropped)" if one.log_kept else "")
        + ("" if one.has_begun else f" ({one.outcome()})")
        for one in runs
    ]
    screen.note("log", ", ".join(words))
    readers = [LogReader(box, one.log, one, one.log_kept) for one in runs]
    for reader in readers:
        reader.turn = readers[0].turn
    return readers


def _meant(box: BoxLogin, wish: LogOptions) -> list[Run]:
    """Return the named runs in the order given, or the live ones, oldest first."""
    if not wish.live:
        names: list[str | None] = [*wish.names] or [None]
        return [box.runs(name, every=wish.every)[0] for name in names]
    living = [one for one in box.runs(None, every=wish.every) if one.state == "running"]
    if not living:
        hint = f"See: boxstrap status --host {box.name}"
        raise UsageError("no run is running.", where=box.label, hint=hint)
    return living[::-1]


def _shown(
    logs: _Logs, at: int, wish: LogOptions, *, as_json: bool, to: BinaryIO | None
) -> ShownLog:
    readers, among = logs.readers, wish.among
    on_terminal = to is None and sys.stdout.isatty() and len(readers) == 1 and not among
    sanitizer = SanitizeStream(on_terminal=on_terminal)
    runs = [reader.run for reader in readers if reader.run]
    of_box = {"box": among} if among else {}
    out: PlainLog | NamedLog | JsonLog = JsonLog(**of_box) if as_json else PlainLog(to)
    node = runs[at].node if len(runs) == len(readers) else None
    if among and not as_json:
        out = NamedLog(f"{node.rank} {among}", node.rank) if node else NamedLog(among)
    if len(runs) > 1:
        keys = {run.repo_key for run in runs}
        names = [
            qualified(run, repository_names(keys)) if len(keys) > 1 else run.name for run in runs
        ]
        shown = [
            name.replace(run.name, called(run.name)) for name, run in zip(names, runs, strict=True)
        ]
        name = shown[at].ljust(max(map(len, shown)))
        name = f"{among} | {name}" if among else name
        out = JsonLog(run=names[at], **of_box) if as_json else NamedLog(name)
    counts_lines = wish.lines is not None and not on_terminal
    drawn = LastDrawn(is_growing=wish.follow) if counts_lines else None
    return ShownLog(drawn, sanitizer, logs.redactor.stream(), out)
