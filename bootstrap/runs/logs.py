"""`logs`: select the logs of runs or of a step, and show them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bootstrap.errors import TrainingFailedError, UsageError
from bootstrap.link.answers import number
from bootstrap.link.handle import BoxOptions
from bootstrap.plan import NAMES
from bootstrap.protocol.run import Run
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.log_output import JsonLog, NamedLog, PlainLog
from bootstrap.runs.log_reader import LogReader, together
from bootstrap.runs.selection import qualified, repository_names
from bootstrap.runs.since import seconds_ago
from bootstrap.secrets.values import warn_of_unredacted
from bootstrap.text.redact import RedactStream
from bootstrap.text.sanitize import SanitizeStream
from bootstrap.text.sizes import size, spent, took_in_words
from bootstrap.ui.screen import Screen


@dataclass(frozen=True)
class LogWish:
    """Which logs to show, and which part of them."""

    names: Sequence[str] = ()
    """Runs, as `--run` takes them; the newest run if empty."""
    every: bool = False
    """Whether runs of all repositories on the box count."""
    live: bool = False
    """Whether to show every live run."""
    step: str | None = None
    since: str | None = None
    follow: bool = False


@dataclass
class _ShownLog:
    """A log on its way to standard output: sanitized, then redacted, then written."""

    sanitizer: SanitizeStream
    redactor: RedactStream
    out: PlainLog | NamedLog | JsonLog

    def write(self, piece: bytes) -> None:
        self.out.write(self.redactor.feed(self.sanitizer.feed(piece)))

    def end(self) -> None:
        self.out.write(self.redactor.feed(self.sanitizer.finish()) + self.redactor.flush())
        self.out.end()


def show_log(options: BoxOptions, screen: Screen, wish: LogWish, *, as_json: bool) -> None:
    """Write the logs to standard output, sanitized and with secrets redacted.

    Following ends when the runs end, and shows how they ended. Raises UsageError if there is no
    such run or step, TrainingFailedError if a followed run failed.
    """
    ago = _checked(wish)
    with connect(options, screen) as connection:
        readers = _readers(connection, wish, screen)
        if ago is not None:
            now = number(connection.box_state.facts.get("time", "")) or 0
            for reader in readers:
                if reader.run and not reader.find_start(now - ago):
                    screen.warn(
                        f"{reader.run.name} has no index of times for its log: showing all of it"
                    )
        known, values = connection.box.known, connection.redactor.secrets
        price = known.price
        warn_of_unredacted(known, connection.box_state, screen, values)
        shown = [_shown(connection, readers, at, as_json=as_json) for at in range(len(readers))]
        told: list[dict[str, object]] = []
        failed: list[str] = []
        for at, piece in together(readers, follow=wish.follow):
            if piece:
                shown[at].write(piece)
                continue
            shown[at].end()
            if lost := readers[at].skipped:
                what = f"{size(lost)} of the log were dropped by the box before they could be read"
                screen.warn(f"{what}: see train.log_max_mib")
            if run := readers[at].over:
                took, text = _end_of(run, readers[at].ended, price)
                told.append(
                    {
                        **run.as_dict(),
                        "repository": connection.repository(run),
                        "seconds": took,
                        "dollars": spent(took, price),
                    }
                )
                failed += [text] if run.state != "finished" or run.failed else []
                if text not in failed or len(readers) > 1:
                    screen.say(text)
        if told:
            screen.result({"runs": told} if len(readers) > 1 else {"run": told[0]})
        if failed:
            raise TrainingFailedError("\n".join(failed))


def _checked(wish: LogWish) -> int | None:
    """Return how many seconds ago `--since` is; None without it. Raises UsageError."""
    if wish.step and wish.step not in NAMES:
        raise UsageError(f"there is no step {wish.step!r}.", hint=f"The steps: {', '.join(NAMES)}")
    if wish.step and (wish.names or wish.live or wish.since):
        raise UsageError("--step is the log of a setup: not with --run, --live, --since.")
    if wish.names and wish.live:
        raise UsageError("use either --run or --live, not both.")
    return None if wish.since is None else seconds_ago(wish.since, datetime.now())


def _readers(connection: BoxConnection, wish: LogWish, screen: Screen) -> list[LogReader]:
    if wish.step:
        return [_reader(connection, _step_log(connection, wish.step), None)]
    runs = list(dict.fromkeys(_meant(connection, wish)))
    words = [f"{one.name} of {connection.repository(one)}{_dropped_note(one)}" for one in runs]
    screen.note("log", ", ".join(words))
    readers = [_reader(connection, one.log, one) for one in runs]
    for reader in readers:
        reader.turn = readers[0].turn
    return readers


def _meant(connection: BoxConnection, wish: LogWish) -> list[Run]:
    """Return the named runs in the order given, or the live ones, oldest first."""
    if not wish.live:
        names: list[str | None] = [*wish.names] or [None]
        return [connection.runs(name, every=wish.every)[0] for name in names]
    living = [one for one in connection.runs(None, every=wish.every) if one.state == "running"]
    if not living:
        raise UsageError(
            "no run is running.", where=connection.link.label, hint="See: boxstrap status"
        )
    return living[::-1]


def _reader(connection: BoxConnection, file: str, run: Run | None) -> LogReader:
    return LogReader(
        connection.link,
        connection.workdir,
        file,
        run,
        connection.redacted_by_box,
        at=run.log_kept if run else 0,
    )


def _dropped_note(run: Run) -> str:
    return f" (its first {size(run.log_kept)} were dropped)" if run.log_kept else ""


def _shown(
    connection: BoxConnection, readers: Sequence[LogReader], at: int, *, as_json: bool
) -> _ShownLog:
    on_terminal = sys.stdout.isatty() and len(readers) == 1
    sanitizer = SanitizeStream(keep_colour=on_terminal, keep_returns=on_terminal)
    runs = [reader.run for reader in readers if reader.run]
    out: PlainLog | NamedLog | JsonLog = JsonLog() if as_json else PlainLog()
    if len(runs) > 1:
        keys = {run.repo_key for run in runs}
        names = [
            qualified(run, repository_names(keys)) if len(keys) > 1 else run.name for run in runs
        ]
        out = JsonLog(run=names[at]) if as_json else NamedLog(names[at].ljust(max(map(len, names))))
    return _ShownLog(sanitizer, connection.redactor.stream(), out)


def _end_of(run: Run, ended: int | None, price: float) -> tuple[int | None, str]:
    """Return how long a followed run took, and a sentence on how it ended."""
    took = None if ended is None else max(0, ended - (run.begun or run.started))
    after = "" if took is None else f" after {took_in_words(took, price)}"
    return took, f"{run.name} {run.outcome()}{after}"


def _step_log(connection: BoxConnection, step: str) -> str:
    setup = (
        connection.box_state.working[0]
        if connection.box_state.working
        else connection.box_state.last_setup.get("setup")
    )
    if not setup:
        raise UsageError("no setup was made on this box.", where=connection.link.label)
    return f"setups/{setup}/logs/{step}.log"
