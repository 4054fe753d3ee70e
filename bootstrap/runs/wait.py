"""`wait`: wait for runs to end, across lost links, and report how they ended.

Notify the user that a run is over: the terminal's bell, and the user's own commands.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import TrainingFailedError, UsageError
from bootstrap.link.exchange import AnswerStream, answer_number, stream_script
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.paths import config_dir
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import Run, as_it_ended
from bootstrap.protocol.run_details import END_BYTES
from bootstrap.runs.failure import Failure, find_failures
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import spent, took_in_words
from bootstrap.ui.screen import Screen

_COMMAND_S = 30
"""How long a command may take, in seconds."""


def notify_file() -> Path:
    """Return the file with the user's commands, one per line: `NAME: command`."""
    return config_dir() / "notify.yaml"


def own_notifiers() -> dict[str, str]:
    """Read those commands, by name. Raises UsageError for an unusable file."""
    from bootstrap.profile.load import read_commands

    return read_commands(notify_file(), 'notify-send boxstrap "$BOXSTRAP_MESSAGE"')


def ring() -> None:
    """Ring the terminal's bell, if stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()


def notify(
    commands: dict[str, str], run: Run, box: str, message: str, warn: Callable[[str], None]
) -> None:
    """Run the commands in the home folder; a failed one is only a warning.

    They get the message in their environment, which contains nothing from a log.
    """
    from bootstrap.profile.load import profile_label

    told = {
        "BOXSTRAP_MESSAGE": message,
        "BOXSTRAP_BOX": box,
        "BOXSTRAP_RUN": run.name,
        "BOXSTRAP_STATE": run.state,
        "BOXSTRAP_EXIT": "" if run.rc is None else str(run.rc),
    }
    for name, command in commands.items():
        where = f"{profile_label(notify_file())}: {name}"
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                cwd=Path.home(),
                env={**os.environ, **told},
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            warn(f"{where}: it did not finish within {_COMMAND_S} s")
            continue
        except OSError as error:
            warn(f"{where}: {error.strerror}")
            continue
        if done.returncode:
            warn(f"{where}: it ended with {done.returncode}")


_MOST_TOLD = 1000
"""Lines that a box may send about one run."""
_LONGEST = 400


def wait_for(options: BoxOptions, screen: Screen, *, run: str | None, every: bool) -> None:
    """Wait until the run is over; with `every`, all runs that are live or wait for their turn.

    Raises UsageError if there is none, or it was never started; TrainingFailedError if one
    failed.
    """
    notifiers = own_notifiers()
    with BoxLogin.open(options, screen) as box:
        meant = box.runs(run, every=every)
        awaited = [one for one in meant if one.goes_on] if every else meant[:1]
        if any(one.state == "waiting" for one in awaited):
            raise UsageError(
                f"{awaited[0].name} was created, but never started.",
                where=box.label,
                hint="The next boxstrap setup of its work starts it.",
            )
        names = ", ".join(_called(box, one) for one in awaited if one.goes_on)
        if names:
            screen.say(
                f"waiting for {names}. This machine must stay awake and connected; "
                "the box needs neither, and goes on after Ctrl-C."
            )
        over = [_await_end(box, one, screen) for one in awaited]
        over, failures = _why(box, over)
        lines = _lines(over, failures, box.known.price)
        screen.result(_document(box, over, failures), "\n".join(lines))
        for before, after in zip(awaited, over, strict=True):
            if before.goes_on:
                notify(notifiers, after, box.name, f"{box.name}: {_sentence(after)}", screen.warn)
        if names:
            box.note_runs_now()
    if names:
        ring()
    failed = [one for one in over if one.failed]
    if failed:
        raise TrainingFailedError(
            "; ".join(map(_sentence, failed)), hint=f"The log: boxstrap logs --run {failed[0].name}"
        )


def _await_end(box: BoxLogin, run: Run, screen: Screen) -> Run:
    """Wait, and return the run as it ended. Raises NoAnswer for nonsense, and as `reconnect`."""
    query = build_query("wait", workdir=box.workdir, repo_key=run.repo_key, name=run.name)
    told, backoff = 0, Backoff()
    while run.goes_on:
        try:
            for line in _answer_lines(stream_script(box.wire, query)):
                told += 1
                state, ended, begun = [*line.split("\t"), "", ""][:3]
                now = as_it_ended(run, state)
                if now is None or told > _MOST_TOLD:
                    raise NoAnswer("its answers make no sense.", where=box.label)
                if now.state != run.state and now.goes_on:
                    screen.say(f"{run.name} is {now.state}")
                run = replace(now, over=answer_number(ended) or 0, begun=answer_number(begun) or 0)
            if run.goes_on:
                raise LinkLost(box.label)
        except LinkLost as lost:
            backoff.lost(lost, news=told)
            box.reconnect(lost)
    return run


def _answer_lines(stream: AnswerStream) -> Iterator[str]:
    rest = b""
    while piece := stream.read(4096):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:_LONGEST]
        yield from (sanitize(line[:_LONGEST]) for line in lines)


def _why(box: BoxLogin, runs: list[Run]) -> tuple[list[Run], dict[Run, Failure]]:
    """If any run failed, ask again: return the runs as they are now, and why they failed."""
    if not any(run.failed for run in runs):
        return runs, {}
    box.ask(BoxLogin.refresh_details)
    now = {(one.repo_key, one.name): one for one in box.state.runs}
    runs = [now.get((run.repo_key, run.name), run) for run in runs]
    redact = box.redactor.text
    return runs, find_failures(runs, box.details.log_ends, redact, END_BYTES)


def _document(
    box: BoxLogin, runs: Sequence[Run], failures: dict[Run, Failure]
) -> dict[str, object]:
    rows = [
        {
            **run.as_dict(),
            "repository": box.repository(run),
            "seconds": run.seconds(run.over),
            "dollars": spent(run.seconds(run.over), box.known.price),
            "failure": failures[run].as_dict() if run in failures else None,
        }
        for run in runs
    ]
    return {"box": box.name, "runs": rows}


def _lines(runs: Sequence[Run], failures: dict[Run, Failure], price: float) -> Iterator[str]:
    if not runs:
        yield "nothing runs here, and nothing waits for its turn"
    for run in runs:
        yield _sentence(run, price)
        failure = failures.get(run)
        if failure:
            yield from (f"  | {line}" for line in failure.lines)
            if failure.what not in failure.lines:
                yield f"  {failure.what}. {failure.hint}".rstrip()


def _sentence(run: Run, price: float = 0.0) -> str:
    took = run.seconds(run.over)
    after = "" if took is None else f" after {took_in_words(took, price)}"
    return f"{run.name} {run.outcome()}{after}"


def _called(box: BoxLogin, run: Run) -> str:
    return f"{box.repository(run)}/{run.name}"
