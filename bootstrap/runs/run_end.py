"""The end of runs: `wait` waits for it, across lost links, and `stop` brings it about. How they
ended is reported, as are news of them before, to the user's own receivers."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bootstrap.boxes.disk import MOST_IN_LINE, parse_low_line
from bootstrap.boxes.failure import Failure, RunThatEnded, find_failures
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import (
    MADE_NOTHING,
    Run,
    as_it_ended,
    blocked_words,
    called,
    qualified,
    repository_names,
)
from bootstrap.boxes.run_details import NO_DETAILS
from bootstrap.errors import BoxstrapError, StepFailedError, TrainingFailedError, UsageError
from bootstrap.link.exchange import (
    AnswerStream,
    answer_rows,
    answer_time,
    run_script,
    stream_script,
)
from bootstrap.link.query import ask
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.onbox.runs.news import KINDS, passed_on
from bootstrap.profile.values import LONGEST_GRACE_S
from bootstrap.runs.known_runs import as_of, over_at_home
from bootstrap.runs.notifiers import hand_over, notify, own_notifiers, ring
from bootstrap.sanitize import one_line
from bootstrap.sizes import first_of, took_in_words
from bootstrap.ui.layout import still_billing
from bootstrap.ui.screen import Screen
from bootstrap.value import Document

_MOST_TOLD = 1000  # lines that a box may send about one run
_UNATTENDED_S = 20  # seconds, after which a queued run that nobody waits to start is left


def wait_for(  # noqa: PLR0913 - as it was typed
    options: BoxOptions,
    screen: Screen,
    *,
    run: str | None,
    every: bool,
    cell_of: Callable[[str], str] | None = None,
    detach: bool = False,
    tell: Callable[[str, Run], None] = lambda _box, _run: None,
) -> None:
    """Wait until the run is over; with `every`, all runs that are live or wait for their turn.
    Then it also counts which of those that were there with them have failed already. `cell_of`:
    instead, the newest run of each cell of a sweep, by what this returns for a run's name.

    `tell` is called with the box and each awaited run: as it is now, and whenever that changes.
    With `detach` the box tells the user's addresses instead, and nothing is waited for.
    Raises UsageError if there is none, or it was never started; TrainingFailedError if one
    failed; StepFailedError if nothing on the box starts one that is queued.
    """
    notifiers = own_notifiers()
    with BoxLogin.open(options, screen) as box:
        meant = box.runs(run, every=every)
        awaited = all_awaited(meant) if every else meant[:1]
        if cell_of:  # the newest come first
            awaited = [*{key: one for one in meant[::-1] if (key := cell_of(one.name))}.values()]
        if any(one.state == "waiting" for one in awaited):
            raise UsageError(
                f"{awaited[0].name} was created, but never started.",
                where=box.label,
                hint="The next boxstrap setup of its work starts it.",
            )
        names = ", ".join(_called(box, one) for one in awaited if one.goes_on)
        if detach and names:
            _detach(box, [one for one in awaited if one.goes_on], screen)
            return
        if names:
            screen.say(
                f"waiting for {names}. This machine must stay awake and connected; "
                "the box needs neither, and goes on after Ctrl-C."
            )
        seen = dict[str, Run]()

        def note(name: str, one: Run) -> None:
            seen[one.path] = one
            tell(name, one)

        for one in awaited:
            note(box.name, one)
            _warn_if_it_stays_queued(one, box, screen)
        looked = time.monotonic()
        try:
            over = []
            for one in awaited:
                # Nobody has attended it since all were looked at.
                idle = 0 if one.attended else time.monotonic() - looked
                patience = max(1, int(_UNATTENDED_S - idle))
                listener = _Listener(box, notifiers, screen)
                over.append(_await_end(box, one, screen, note, listener, patience))
        except KeyboardInterrupt:
            rows = [_row(box, one) for one in seen.values()]
            screen.result({"box": box.name, "runs": rows})
            raise
        ended = _as_they_ended(box, over)
        over = [*ended.runs]
        lines = _lines(ended, box.known.price)
        rows = [_row(box, one, ended) for one in over]
        screen.result({"box": box.name, "runs": rows}, "\n".join(lines))
        for before, after in zip(awaited, over, strict=True):
            if before.goes_on and not after.goes_on:
                notify(notifiers, after, box.name, "end", f"it {_ending(after)}", screen.warn)
    if names:
        ring()
    _raise_if_not_done(over, box.name)


def _warn_if_it_stays_queued(run: Run, box: BoxLogin, screen: Screen) -> None:
    if run.state == "queued" and not run.attended:
        screen.warn(_sentence(run))
    elif blocked := blocked_words(run, box.state.runs, f" --host {box.name}"):
        screen.warn(f"{run.name} waits: {blocked}")


def say_over(
    options: BoxOptions,
    screen: Screen,
    run: str | None,
    tell: Callable[[str, Run], None],
    error: BoxstrapError,
) -> None:
    """Say how a run ended that is at home, and whose box is gone, or can't be reached. Raises
    `error` if there is none; TrainingFailedError if it failed."""
    kept = over_at_home(options, run, error, screen).kept
    tell(kept.box, kept.run)
    (repository,) = repository_names([kept.repository]).values()
    row = RunThatEnded(kept.run, repository, kept.run.over, kept.price)
    text = f"{_sentence(kept.run, kept.price)}\n  {as_of(kept)}"
    screen.result({"box": kept.box, "runs": [row]}, text)
    _raise_if_not_done([kept.run], kept.box)


def _raise_if_not_done(over: Sequence[Run], box: str) -> None:
    if failed := [one for one in over if one.failed]:
        raise TrainingFailedError(
            "; ".join(map(_sentence, failed)),
            hint=f"The log: boxstrap logs --host {box} --run {failed[0].name}",
        )
    if left := [one for one in over if one.goes_on]:
        raise StepFailedError(
            "; ".join(map(_sentence, left)) + ".",
            where=box,
            hint=f"Then wait again: boxstrap wait --host {box} --run {left[0].name}",
        )


def all_awaited(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that go on, and the failed ones that were there with them, or, where none
    goes on, with the newest; but none whose work was begun anew since. `runs`: the newest first."""
    living = [run for run in runs if run.goes_on]
    since = min((run.started for run in living or runs[:1]), default=0)
    found, works = list[Run](), set[tuple[str, str]]()
    for run in runs:
        is_anew = (run.repo_key, run.work) in works
        failed = run.failed and not is_anew and (run.over or run.started) >= since
        found += [run] if run.goes_on or failed else []
        works.add((run.repo_key, run.work))
    return found


def _detach(box: BoxLogin, runs: Sequence[Run], screen: Screen) -> None:
    """Let the box tell the user's addresses of these runs, and say so."""
    told, addresses = hand_over(box, runs)
    names = ", ".join(_called(box, one) for one in told)
    text = (
        f"{box.name} tells {', '.join(addresses)} of {names}: the first metric, a stall, a low "
        "disk, a lease about to end, the end. This machine may be switched off."
        if told
        else "they ended meanwhile: nobody is told."
    )
    rows = [_row(box, one) for one in runs]
    screen.result({"box": box.name, "runs": rows, "told": addresses if told else []}, text)


class _Listener:
    """Tells the user's notifiers of a run's news, each kind once, but not what was before."""

    def __init__(self, box: BoxLogin, notifiers: dict[str, str], screen: Screen) -> None:
        self._box, self._notifiers, self._screen = box, notifiers, screen
        self._known: set[str] = set()
        self.reads_again = False  # after a lost link, what is old to the box may be new here

    def hear(self, run: Run, word: str, line: str) -> None:
        """Take a line of the box: `KIND SECONDS TEXT`, sanitized."""
        kind, _, rest = line.partition(" ")
        if kind not in KINDS or kind in self._known:
            return
        text = passed_on(kind, rest.partition(" ")[2])
        self._known.add(kind)
        if kind != "end" and (word == "news" or self.reads_again):
            self._screen.say(f"{called(run.name)}: {text}")
            notify(self._notifiers, run, self._box.name, kind, text, self._screen.warn)


def _await_end(  # noqa: PLR0913, PLR0917
    box: BoxLogin,
    run: Run,
    screen: Screen,
    tell: Callable[[str, Run], None],
    listener: _Listener,
    patience: int,
) -> Run:
    """Wait, and return the run as it ended, or is queued while nothing on the box starts it.
    Raises NoAnswer for nonsense, and as `reconnect`."""
    asked = {"verb": "wait", "run": run.path, "patience": str(patience)}
    query = ask("verbs", asked, workdir=box.workdir)
    told, backoff, is_left = 0, Backoff(), False
    while run.goes_on and not is_left:
        try:
            for line in _answer_lines(stream_script(box.wire, query)):
                told += 1
                if line == "unattended":
                    is_left, run = True, replace(run, attended=False)
                    continue
                if line.startswith(("old\t", "news\t")):
                    if told <= _MOST_TOLD:
                        listener.hear(run, *line.split("\t", 1))
                    continue
                state, _, ended, begun, is_low = [*line.split("\t", 4), "", "", "", ""][:5]
                now = as_it_ended(run, state)
                if now is None or told > _MOST_TOLD:
                    raise NoAnswer("its answers make no sense.", where=box.label)
                if low := parse_low_line(is_low):
                    screen.warn(f"{called(run.name)}: {low.words()}")
                if now.state != run.state and now.goes_on:
                    screen.say(f"{called(run.name)} is {now.state}")
                before, begun_at = run.state, answer_time(begun)
                run = replace(now, over=answer_time(ended), begun=begun_at)
                if run.state != before:
                    tell(box.name, run)
            if run.goes_on and not is_left:
                raise LinkLost(box.label)
        except LinkLost as lost:
            backoff.lost(lost, news=told)
            box.link.reconnect(lost)
            listener.reads_again = True
    return run


def _answer_lines(stream: AnswerStream) -> Iterator[str]:
    rest = b""
    while piece := stream.read(4096):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:MOST_IN_LINE]
        yield from (one_line(line[:MOST_IN_LINE]) for line in lines)


@dataclass(frozen=True)
class _Ended:
    runs: Sequence[Run]
    failures: Mapping[Run, Failure]
    metrics: Mapping[str, str]
    made_nothing: Collection[Run]


def _as_they_ended(box: BoxLogin, runs: Sequence[Run]) -> _Ended:
    """Ask again: of its log, whoever waited knows the size from before, and no metric or reason. A
    box may end with its last run: only the reason of a failed one is worth waiting for."""
    if any(run.failed for run in runs):
        box.ask(BoxLogin.refresh_details)
    elif runs:
        with contextlib.suppress(BoxstrapError):
            box.refresh_details()
    if box.details is not NO_DETAILS:
        box.note_runs()
    runs = [box.as_it_is(run) for run in runs]
    redact = box.redactor.text
    failures = find_failures(runs, box.details.log_ends, redact)
    there, was_asked = box.details.results, box.details is not NO_DETAILS
    files = {run: there[run.path].files for run in runs if run.path in there}
    nothing = [run for run in runs if was_asked and run.made_nothing(files.get(run, 0))]
    return _Ended(runs, failures, box.details.metric_lines(redact), nothing)


def _row(box: BoxLogin, run: Run, ended: _Ended | None = None) -> RunThatEnded:
    metric, why = (ended.metrics.get(run.path), ended.failures.get(run)) if ended else (None, None)
    return RunThatEnded(run, box.repository(run), run.over, box.known.price, metric, why)


def _lines(ended: _Ended, price: float) -> Iterator[str]:
    if not ended.runs:
        yield "nothing runs here, and nothing waits for its turn"
    failures = ended.failures
    for run in ended.runs:
        yield _sentence(run, price)
        yield from ([f"  {ended.metrics[run.path]}"] if run.path in ended.metrics else [])
        yield from ([f"  {MADE_NOTHING}"] if run in ended.made_nothing else [])
        if failure := failures.get(run):
            yield from (f"  | {line}" for line in failure.lines)
            what = f"{failure.what}. " if failure.what else ""
            if (what or failure.hint) and failure.what not in failure.lines:
                yield f"  {what}{failure.hint}".rstrip()


def _sentence(run: Run, price: float = 0.0) -> str:
    return f"{called(run.name)} {_ending(run, price)}"


def _ending(run: Run, price: float = 0.0) -> str:
    took = run.seconds(run.over)
    return run.outcome() + ("" if took is None else f" after {took_in_words(took, price)}")


def _called(box: BoxLogin, run: Run) -> str:
    return f"{box.repository(run)}/{called(run.name)}"


_PATIENCE_S = 60  # seconds that the box may take in addition to the run's own grace time
_MOST_NAMED = 20  # processes that are listed; an untrusted box may send any number


@dataclass(frozen=True)
class StoppedRun(Document):
    """A run that was ended, and the state it ended in."""

    KEYS = "name=run.name, repository, state=run.state, rc=run.rc, over=run.over or None, seconds"

    run: Run
    repository: str

    @property
    def seconds(self) -> int | None:
        return self.run.seconds(self.run.over)


StopAnswer = tuple[bool, list[list[str]]]
"""Whether it was ended; and for each process that is still alive: run, pid, user, program."""


def stop_run(
    options: BoxOptions, screen: Screen, *, run: str | None, every: bool, setup: bool
) -> None:
    """Stop one run and wait for its end. It is no error if nothing is running.

    With `every`, stop all runs that are live or wait for their turn; with `setup`, the setup at
    work instead. Raises UsageError, also where several runs are alive and none is named;
    StepFailedError with the list of processes that could not be ended.
    """
    if setup and (run or every):
        raise UsageError("a run or the setup: not both.")
    with BoxLogin.open(options, screen) as box:
        meant = [] if setup else box.runs(run, every=every)
        living = [one for one in meant if one.state == "running" or one.left]
        queued = [one for one in meant if one.state == "queued"]
        if setup:
            did, left = what_ended(box.query("stop", timeout=_PATIENCE_S))
            holder, ended = box.state.holder, list[Run]()
            stopped = [f"setup ({holder})" if holder else "setup"] if did else []
        else:
            asked = [*queued, *living] or meant[:1]
            if len(asked) > 1 and not every:
                raise _which(asked, box.label)
            answers = end_runs(box, screen, asked)
            left = [row for _, (_, others) in answers for row in others]
            ended = [one for one, (did, _) in answers if did]
            if ended:
                box.note_runs_now()
            ended = [box.as_it_is(one) for one in ended]
            stopped = [
                f"{called(one.name)} of {box.repository(one)} ({_ending(one)})" for one in ended
            ]
        if box.state.working and not setup:
            ends = f"boxstrap stop --setup --host {box.name}"
            screen.warn(f"a setup is at work there, and may begin a run; to end that: {ends}")
        text = f"stopped: {', '.join(stopped)}" if stopped else _nothing(box, meant, run)
        if (known := box.known).is_billed:
            text += f"\n{still_billing(f'boxstrap down --host {known.name}', known.console)}"
        screen.result(
            {
                "box": box.name,
                "stopped": [one.name for one in ended] or (["setup"] if stopped else []),
                "runs": [StoppedRun(one, box.repository(one)) for one in ended],
                "left": left,
            },
            text,
        )
    if left:
        named = (
            f"\n  {one}: process {pid} ({program}, of {user})" for one, pid, user, program in left
        )
        raise StepFailedError(
            f"could not be stopped, still running:{''.join(islice(named, _MOST_NAMED))}",
            where=box.name,
            hint="It is another user's, or stuck in a driver: look at it there (ps -fp NUMBER).",
        )


def _which(alive: Sequence[Run], where: str) -> UsageError:
    """Return the error for several runs of which none was named: which one to end is no guess."""
    rows = [f"--run {one.name}  {one.state}{called(one.name)[len(one.name) :]}" for one in alive]
    listed = "".join(f"\n  {row}" for row in first_of(rows, _MOST_NAMED))
    return UsageError(
        f"{len(alive)} runs are alive, or wait for their turn:{listed}",
        where=where,
        hint="Name one of them; --all stops all on the box.",
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
    query = ask("run_processes", {"runs": run.path}, workdir=box.workdir)
    return what_ended(run_script(box.wire, query, timeout=_PATIENCE_S + LONGEST_GRACE_S))


def what_ended(answer: bytes) -> StopAnswer:
    said = [(word, value.split("\t")) for word, value in answer_rows(answer)]
    left = [row for word, row in said if word == "left" and len(row) == 4]
    return any(word == "stopped" for word, _ in said), left


def _nothing(box: BoxLogin, meant: list[Run], name: str | None) -> str:
    """Say that nothing selected was running, and which other runs are live on the box."""
    runs = box.state.runs
    names = repository_names({one.repo_key for one in runs})
    others = [qualified(one, names) for one in runs if one.state == "running" and meant]
    if not others:
        return f"nothing was running on {box.name}"
    whose = names[meant[0].repo_key]
    what = f"{qualified(meant[0], names)} was not" if name else f"nothing of {whose} was"
    return f"{what} running on {box.name}; still running: {', '.join(others)} (see --run, --all)"
