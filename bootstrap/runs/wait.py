"""`wait`: wait for runs to end, across lost links, and report how they ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from bootstrap.errors import TrainingFailedError, UsageError
from bootstrap.link.answers import number
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import AnswerStream, stream_answer
from bootstrap.link.handle import BoxOptions
from bootstrap.link.reconnecting import Backoff
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import Run, as_it_ended
from bootstrap.protocol.run_details import END_BYTES, ask_details
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.failure import Failure, find_failures
from bootstrap.runs.notify import notify, own_notifiers, ring
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import spent, took_in_words
from bootstrap.ui.screen import Screen

_MOST_TOLD = 1000
"""Lines that a box may send about one run."""
_LONGEST = 400


def wait_for(options: BoxOptions, screen: Screen, *, run: str | None, every: bool) -> None:
    """Wait until the run is over; with `every`, all runs that are live or wait for their turn.

    Raises UsageError if there is none, or it was never started; TrainingFailedError if one
    failed.
    """
    notifiers = own_notifiers()
    with connect(options, screen) as connection:
        meant = connection.runs(run, every=every)
        awaited = [one for one in meant if one.goes_on] if every else meant[:1]
        if any(one.state == "waiting" for one in awaited):
            raise UsageError(
                f"{awaited[0].name} was created, but never started.",
                where=connection.link.label,
                hint="The next boxstrap setup of its work starts it.",
            )
        names = ", ".join(_called(connection, one) for one in awaited if one.goes_on)
        if names:
            screen.say(
                f"waiting for {names}. This machine must stay awake and connected; "
                "the box needs neither, and goes on after Ctrl-C."
            )
        over = [_await_end(connection, one, screen) for one in awaited]
        over, failures = _why(connection, over)
        box, price = connection.box.known.name, connection.box.known.price
        lines = _lines(over, failures, price)
        screen.result(_document(connection, over, failures), "\n".join(lines))
        for before, after in zip(awaited, over, strict=True):
            if before.goes_on:
                notify(notifiers, after, box, f"{box}: {_sentence(after)}", screen.warn)
    if names:
        ring()
    failed = [one for one in over if one.failed]
    if failed:
        raise TrainingFailedError(
            "; ".join(map(_sentence, failed)), hint=f"The log: boxstrap logs --run {failed[0].name}"
        )


def _await_end(connection: BoxConnection, run: Run, screen: Screen) -> Run:
    """Wait, and return the run as it ended. Raises NoAnswer for nonsense, and as `reconnect`."""
    query = build_query("wait", workdir=connection.workdir, repo_key=run.repo_key, name=run.name)
    told, backoff = 0, Backoff()
    while run.goes_on:
        try:
            for line in _answer_lines(stream_answer(connection.link.wire, query)):
                told += 1
                state, ended, begun = [*line.split("\t"), "", ""][:3]
                now = as_it_ended(run, state)
                if now is None or told > _MOST_TOLD:
                    raise NoAnswer("its answers make no sense.", where=connection.link.label)
                if now.state != run.state and now.goes_on:
                    screen.say(f"{run.name} is {now.state}")
                run = replace(now, over=number(ended) or 0, begun=number(begun) or 0)
            if run.goes_on:
                raise LinkLost(connection.link.label)
        except LinkLost as lost:
            backoff.lost(lost, news=told)
            connection.link.reconnect(lost)
    return run


def _answer_lines(stream: AnswerStream) -> Iterator[str]:
    rest = b""
    while piece := stream.read(4096):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:_LONGEST]
        yield from (sanitize(line[:_LONGEST]) for line in lines)


def _why(connection: BoxConnection, runs: list[Run]) -> tuple[list[Run], dict[Run, Failure]]:
    """If any run failed, ask again: return the runs as they are now, and why they failed."""
    if not any(run.failed for run in runs):
        return runs, {}
    ask = partial(
        ask_details,
        workdir=connection.workdir,
        repo_key=connection.own,
        repo_root="",
        redact=connection.box.known.secrets or (),
    )
    box_state, details = connection.link.ask(ask)
    now = {(one.repo_key, one.name): one for one in box_state.runs}
    runs = [now.get((run.repo_key, run.name), run) for run in runs]
    redact = connection.redactor.text
    return runs, find_failures(runs, details.log_ends, redact, END_BYTES)


def _document(
    connection: BoxConnection, runs: Sequence[Run], failures: dict[Run, Failure]
) -> dict[str, object]:
    rows = [
        {
            **run.as_dict(),
            "repository": connection.repository(run),
            "seconds": run.seconds(run.over),
            "dollars": spent(run.seconds(run.over), connection.box.known.price),
            "failure": failures[run].as_dict() if run in failures else None,
        }
        for run in runs
    ]
    return {"box": connection.box.known.name, "runs": rows}


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


def _called(connection: BoxConnection, run: Run) -> str:
    return f"{connection.repository(run)}/{run.name}"
