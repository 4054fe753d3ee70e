"""The end of runs: `wait` waits for it, across lost links, and `stop` brings it about.

How they ended is reported, with the terminal's bell and the user's own commands.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import StepFailedError, TrainingFailedError, UsageError
from bootstrap.link.exchange import AnswerStream, answer_number, answer_rows, stream_script
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import Backoff, LinkLost, NoAnswer
from bootstrap.paths import config_dir
from bootstrap.profile.values import LONGEST_GRACE_S
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import (
    Failure,
    Run,
    as_it_ended,
    find_failures,
    qualified,
    repository_names,
)
from bootstrap.protocol.run_details import END_BYTES
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import spent, took_in_words
from bootstrap.ui.layout import still_billing
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


def wait_for(
    options: BoxOptions,
    screen: Screen,
    *,
    run: str | None,
    every: bool,
    tell: Callable[[str, Run], None] = lambda _box, _run: None,
) -> None:
    """Wait until the run is over; with `every`, all runs that are live or wait for their turn.

    `tell` is called with the box and each awaited run: as it is now, and whenever that changes.
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
        for one in awaited:
            tell(box.name, one)
        over = [_await_end(box, one, screen, tell) for one in awaited]
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


def _await_end(box: BoxLogin, run: Run, screen: Screen, tell: Callable[[str, Run], None]) -> Run:
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
                before, begun_at = run.state, answer_number(begun) or 0
                run = replace(now, over=answer_number(ended) or 0, begun=begun_at)
                if run.state != before:
                    tell(box.name, run)
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


_PATIENCE_S = 60
"""Seconds that the box may take in addition to the run's own grace time."""
_MOST_NAMED = 20
"""Processes that are listed; an untrusted box may send any number."""


StopAnswer = tuple[bool, list[list[str]]]
"""Whether it was ended; and for each process that is still alive: run, pid, user, program."""


def stop_run(
    options: BoxOptions, screen: Screen, *, run: str | None, every: bool, setup: bool
) -> None:
    """Stop one run and wait for its end. It is no error if nothing is running.

    With `every`, stop all runs that are live or wait for their turn; with `setup`, the setup at
    work instead.
    Raises UsageError, and StepFailedError with the list of processes that could not be ended.
    """
    if setup and (run or every):
        raise UsageError("a run or the setup: not both.")
    with BoxLogin.open(options, screen) as box:
        meant = [] if setup else box.runs(run, every=every)
        living = [one for one in meant if one.state == "running" or one.left]
        queued = [one for one in meant if one.state == "queued"]
        if setup:
            did, left = _stop(box, "setup")
            holder, ended = box.state.holder, list[Run]()
            stopped = [f"setup ({holder})" if holder else "setup"] if did else []
        else:
            asked = [*queued, *living] if every else (living or queued or meant)[:1]
            answers = end_runs(box, screen, asked)
            left = [row for _, (_, others) in answers for row in others]
            ended = [one for one, (did, _) in answers if did]
            stopped = [f"{one.name} of {box.repository(one)}" for one in ended]
        text = f"stopped: {', '.join(stopped)}" if stopped else _nothing(box, meant, run)
        if not box.is_local:
            known = box.known
            text += f"\n{still_billing(f'boxstrap down --host {known.name}', known.console)}"
        screen.result(
            {
                "box": box.name,
                "stopped": [one.name for one in ended] or (["setup"] if stopped else []),
                "runs": [{"name": one.name, "repository": box.repository(one)} for one in ended],
                "left": left,
            },
            text,
        )
        if ended:
            box.note_runs_now()
    if left:
        named = (
            f"\n  {one}: process {pid} ({program}, of {user})" for one, pid, user, program in left
        )
        raise StepFailedError(
            f"could not be stopped, still running:{''.join(islice(named, _MOST_NAMED))}",
            where=box.name,
            hint="It is another user's, or stuck in a driver: look at it there (ps -fp NUMBER).",
        )


def end_runs(box: BoxLogin, screen: Screen, runs: Sequence[Run]) -> list[tuple[Run, StopAnswer]]:
    """Stop these runs, and return the answer for each. Raises as `end_run`."""
    # Queued runs first: else one of them would start when another run ends.
    asked = sorted(runs, key=lambda run: run.state != "queued")
    if running := ", ".join(one.name for one in asked if one.state == "running"):
        screen.note(
            "stop", f"{running}: asked to end; if it hasn't after its `train.grace`, it is killed"
        )
    return [(one, end_run(box, one)) for one in asked]


def end_run(box: BoxLogin, run: Run) -> StopAnswer:
    """Stop this run, and wait until it has ended. Raises LinkLost, NoAnswer."""
    return _stop(box, run.name, run.repo_key)


def _stop(box: BoxLogin, what: str, repo_key: str = "") -> StopAnswer:
    """Stop the run of that name, or the setup at work."""
    patience = _PATIENCE_S + LONGEST_GRACE_S
    return what_ended(box.query("stop", timeout=patience, what=what, repo_key=repo_key))


def what_ended(answer: bytes) -> StopAnswer:
    """Read the box's answer."""
    said = [(word, value.split("\t")) for word, value in answer_rows(answer)]
    left = [row for word, row in said if word == "left" and len(row) == 4]
    return any(word == "stopped" for word, _ in said), left


def _nothing(box: BoxLogin, meant: list[Run], name: str | None) -> str:
    """Say that nothing selected was running, and which other runs are live on the box."""
    runs = box.state.runs
    names = repository_names({one.repo_key for one in runs})
    others = [qualified(one, names) for one in runs if one.state == "running" and meant]
    if not others:
        return "nothing was running"
    whose = names[meant[0].repo_key]
    what = f"{qualified(meant[0], names)} was not" if name else f"nothing of {whose} was"
    return f"{what} running; still running: {', '.join(others)} (see --run, --all)"
