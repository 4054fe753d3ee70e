"""run, and what is done with runs: status, logs, wait, attach, shell, exec, stop, report, top."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.errors import (
    BoxesFailedError,
    NoSuchRunError,
    UnreachableError,
    UsageError,
    WhichBoxError,
)
from bootstrap.tasks.command import (
    BOXES,
    EVENTS,
    HOST,
    HOSTS,
    JSON,
    Call,
    chosen,
    command,
    complete,
    is_about_one,
)
from bootstrap.tasks.options import (
    COMMITTED,
    IDENTITY,
    OF_RENTING,
    OVERWRITE,
    REPO_MEANT,
    WAIT,
    Option,
    flag_of,
)
from bootstrap.value import replace

if TYPE_CHECKING:
    from bootstrap.boxes.run import Run
    from bootstrap.setup.new_run import StartedRun
    from bootstrap.setup.request import RunOptions, SetupRequest


@command(
    *BOXES,
    Option("session", "The name of its session, and of the run; default: the profile's."),
    Option("gpus", "The GPUs that it gets, as in 0,1; default: all."),
    Option("after", "Wait in the box's queue until that run has ended with 0."),
    Option("after_any", "The same, however that run ends."),
    Option("queue", "Wait in the box's queue until no other run has its GPUs.", False),
    Option(
        "resume",
        "Instead, resume that run, which ended early, in its tree; RUN or BOX/RUN of a box that is "
        "gone goes on here, from what came home.",
    ),
    Option(
        "each_gpu", "A run for each GPU of each box, with its rank in BOXSTRAP_JOB_RANK.", False
    ),
    Option(
        "sweep", "Instead, queue the cells of this file that have no finished run, on the boxes."
    ),
    Option("give_up", "With --sweep: let others have the cells of this box.", many=True),
    Option("beside", "In a tree of its own, without the results of other runs.", False),
    Option("follow", "Follow its log to its end, as `logs -f` does.", False, short="f"),
    OVERWRITE,
    Option("up", "Where this repository has no box: rent one as `up` does, and run there.", False),
    *OF_RENTING,
    COMMITTED,
    WAIT,
    interrupted="Whether it began: boxstrap status{host}; what is rented: boxstrap boxes --all",
    takes_all=True,
)
def run(call: Call) -> None:
    """Start a new run of your current files, whatever ran before; its command comes last.
    Example: boxstrap run --host my-box --gpus 0 -- python train.py --lr 3e-4"""
    is_one = is_about_one(call)
    words = given_command(sys.argv)
    several = call.given["sweep"] or call.given["each_gpu"] or not is_one
    if call.given["follow"] and (several or call.is_json):
        raise UsageError(
            "--follow shows the log of one run, as text.",
            hint="Start without it, then: boxstrap logs -f",
        )
    if call.given["sweep"] or call.given["give_up"]:
        from bootstrap.tasks.sweeps import run_sweep

        run_sweep(call, chosen(call), words)
    elif several:
        from bootstrap.tasks.sweeps import run_jobs

        run_jobs(
            call,
            chosen(call),
            begin=lambda own, of: _run_one(own, words, of),
            wish=lambda: _wish(call, words),
        )
    else:
        _run_one(call, words)


def _run_one(call: Call, words: Sequence[str], variables: tuple[tuple[str, str], ...] = ()) -> None:
    if call.given["resume"]:
        _resume(call, words)
        return
    wish = replace(_wish(call, words), variables=variables)
    from bootstrap.setup.new_run import start_run

    def start(request: SetupRequest) -> StartedRun:
        if call.among:
            from bootstrap.fleet.nodes import run_node

            return run_node(request, call.screen, call.show_lines, call.among)
        return start_run(request, call.screen, call.show_lines)

    request = replace(call.request(), run=wish)
    if _rents(call, request):
        from bootstrap.tasks.renting import rent_shown, up_request

        begun = rent_shown(call, up_request(call, request), start)
    else:
        begun = start(replace(request, renames=False))
    # Late, so that the first lines don't wait for it.
    from bootstrap.boxes.at_home import note_seen
    from bootstrap.tasks.setup_report import after_run

    note_seen(begun.login.known, [begun.run], call.screen.redact)
    call.screen.result(begun, f"\n{after_run(begun)}")
    _follow(call, begun.box, begun.run)
    begun.raise_for_status()


def _follow(call: Call, box: str, run: Run) -> None:
    """With --follow: print the run's log to its end. Raises as `logs -f`."""
    if call.given["follow"]:
        from bootstrap.runs.logs import LogOptions, show_log

        options = replace(call.options(), host=box)
        show_log(options, call.screen, LogOptions(names=[run.name], follow=True), as_json=False)


def _rents(call: Call, request: SetupRequest) -> bool:
    """Whether to rent first: with --up, where the repository has no box. Raises UsageError."""
    if not call.given["up"]:
        if given := next((one.name for one in OF_RENTING if call.given[one.name]), None):
            raise UsageError(f"{flag_of(given)} is about a box that is rented first: add --up.")
        return False
    if request.host or call.among:
        raise UsageError("--up rents where no box is named: leave out --host, or --up.")
    from bootstrap.link.registry import only_box
    from bootstrap.repo.local import current

    try:
        only_box(current(request.place)[0])
    except WhichBoxError as error:
        return not error.has_several
    return False


def _resume(call: Call, words: Sequence[str]) -> None:
    from bootstrap.setup.new_run import resume_run
    from bootstrap.tasks.setup_report import program_name

    given = [name for name in _OF_A_NEW_RUN if call.given[name]]
    if words or given:
        other = flag_of(given[0]) if given else "a command"
        raise UsageError(f"--resume uses the settings of that run: {other} is only for a new run.")
    name = call.given["resume"]
    try:
        resumed = resume_run(replace(call.request(), renames=False), call.screen, name)
    except NoSuchRunError as unknown:
        _resume_of_another_box(call, name, unknown)
        return
    lines = [f"  {call.screen.safe_text(line)}" for line in resumed.first_lines]
    follow = f"{program_name(sys.argv[0])} logs -f --host {resumed.box} --run {resumed.run.name}"
    command = call.screen.safe_text(resumed.run.typed)
    text = (
        f"{resumed.run.name} goes on from {resumed.resumes}, by {command}; to follow it: {follow}"
    )
    call.screen.result(resumed, "\n".join([*lines, text]))
    _follow(call, resumed.box, resumed.run)
    resumed.raise_for_status()


def _resume_of_another_box(call: Call, name: str, unknown: NoSuchRunError) -> None:
    """Let a run of a box that is gone go on on this one, which has none of that name."""
    from bootstrap.renting.resumption import find_before, resume_on
    from bootstrap.tasks.setup_report import after_run

    request = replace(call.request(), renames=False)
    try:
        find_before(request, name)
    except NoSuchRunError:
        raise unknown from None
    done = resume_on(request, name, call.screen, call.show_lines)
    call.screen.result(done, f"\n{done.text()}\n{after_run(done.started)}")
    _follow(call, done.started.box, done.started.run)
    done.started.raise_for_status()


_QUEUES = {"after": "after:{}", "after_any": "after-any:{}", "queue": "gpus"}
"""What is sent to the box for each option."""
_OF_A_NEW_RUN = ("session", "gpus", "each_gpu", "beside", "up", "committed_only", *_QUEUES)


def _queue(call: Call) -> str:
    """Return what the run waits for; "" for nothing. Raises UsageError."""
    chosen = [name for name in _QUEUES if call.given[name]]
    if len(chosen) > 1:
        raise UsageError(
            f"{flag_of(chosen[0])} or {flag_of(chosen[1])}: a run waits for one thing."
        )
    return "".join(_QUEUES[name].format(call.given[name]) for name in chosen)


def _wish(call: Call, words: Sequence[str]) -> RunOptions:
    """Return the run that a call of `run` asks for. Raises UsageError."""
    from bootstrap.setup.request import RunOptions

    # A single word is a shell command line, like train.command; several words are quoted each.
    text = words[0] if len(words) == 1 else shlex.join(words)
    if words and not text.strip():
        raise UsageError("the command after -- is empty.")
    given = call.given
    return RunOptions(
        text,
        given["session"] or "",
        given["gpus"] or "",
        _queue(call),
        given["beside"],
        given["overwrite_results"],
    ).checked()


RUN = Option(
    "run",
    "The run, as `status` names it, or BOX/RUN; default: this repository's newest. "
    "The word --run may be left out.",
    bare=True,
)
BEGUN_RUN = RUN._replace(help=RUN.help.replace("newest", "newest that has begun"))
_WAY_IN = Option("json_", "Print the command that opens it, as a JSON document.", JSON.default)
_ALL = Option("all_", "Of all repositories on the box, not only that of the current folder.", False)


@command(
    *(*HOSTS, JSON, IDENTITY, REPO_MEANT),
    Option("run", "Only this run, RUN or BOX/RUN; from home if its box is gone."),
    Option("watch", "Ask again every 5 seconds, until Ctrl-C.", False),
    changes=(),
    takes_all=True,
)
def status(call: Call) -> None:
    """Say what became of the runs on a box, and of its last setup.
    Example: boxstrap status --host my-box"""
    if not call.given["watch"]:
        _tell_status(call)
        return
    if call.is_json:
        raise UsageError(
            "--watch is for people.", hint="Lines for programs: boxstrap wait --json --events"
        )
    screen = call.screen
    with contextlib.suppress(KeyboardInterrupt):  # the normal way to end it
        while True:
            began = time.monotonic()
            try:
                _tell_status(replace(call), clear=sys.stdout.isatty())
            except (UnreachableError, BoxesFailedError) as error:  # it may come back
                screen.say(error.text())
            time.sleep(max(1.0, _WATCH_S - (time.monotonic() - began)))


_WATCH_S = 5.0
_CLEAR = "\x1b[H\x1b[J"


def _tell_status(call: Call, *, clear: bool = False) -> None:
    from bootstrap.runs.status import StatusOfAll, failure, find_status

    hosts = chosen(call)
    if call.given["run"] and len(hosts) > 1:
        raise UsageError("--run is about one box, and several are named.")
    options = replace(call.options(), host=hosts[0] if len(hosts) == 1 else None)
    try:
        found = find_status(options, call.screen, call.given["run"], hosts[1:] and hosts)
    except WhichBoxError as none:  # that nothing is there is an answer
        if hosts or call.given["run"]:
            raise
        complete(none)
        why = none.text().removeprefix("which box? ")
        call.screen.result(StatusOfAll([], why), why)
        return
    error = failure(found)
    if any(one.error is None or one.runs for one in found):
        text = "\n".join(line for one in found for line in one.lines)
        sys.stdout.write(_CLEAR * clear)
        call.screen.result(StatusOfAll(found), text)
    if len(hosts) > 1:
        from bootstrap.fleet.fan_out import Outcome, raise_for_failures

        ended = zip(hosts, found, strict=True)
        raise_for_failures([Outcome[None](host, error=one.error) for host, one in ended])
    if error:
        raise error


@command(
    Option("host", "Only runs of this box, by its name here."),
    JSON,
    REPO_MEANT,
    Option("all_", "Of all repositories, not only that of the current folder.", False),
    changes=(),
)
def runs(call: Call) -> None:
    """List the runs of this repository, on boxes that are there or gone. Asks no box.
    Example: boxstrap runs"""
    from bootstrap.boxes.at_home import unreadable_records
    from bootstrap.runs.known_runs import list_runs, run_rows

    every = call.given["all_"]
    found = list_runs(call.place, call.given["host"], every=every)
    for file in unreadable_records():
        call.screen.warn(
            f"{file} can't be read, so a run is left out: remove it, or update boxstrap"
        )
    lines = run_rows(found, time.time(), call.screen.width, every=every)
    call.screen.result({"runs": found}, "\n".join(lines) or "no run is known here")


@command(
    *(*HOSTS, JSON, IDENTITY, REPO_MEANT),
    Option("run", f"{RUN.help} Repeatable.", many=True, bare=True),
    _ALL,
    Option("live", "Every run that is running.", False),
    Option("follow", "Go on as the log grows, across lost links.", False, short="f"),
    Option("since", "What was written since: 10m ago (s, m, h, d), or since 14:30."),
    Option("until", "What was written until then."),
    Option("tail", "The last lines alone, so many; with --grep, of those that match.", -1, "n"),
    Option("grep", "The lines alone that match this regular expression, as grep -E does."),
    Option("step", "The log of a step of the last setup, as in python."),
    changes=(),
    streams=True,
    interrupted="To read on: {again}; to end the training: boxstrap stop{host}",
)
def logs(call: Call) -> None:
    """Print the log of a run, of several at once, or of a step of the last setup.
    Example: boxstrap logs -f --host my-box"""
    from bootstrap.runs.logs import LogOptions, show_log

    given = call.given
    wish = LogOptions(
        names=given["run"] or (),
        every=given["all_"],
        live=given["live"],
        step=given["step"],
        since=given["since"],
        until=given["until"],
        lines=None if given["tail"] < 0 else given["tail"],
        pattern=given["grep"] or "",
        follow=given["follow"],
        among=call.among,
    )
    show_log(call.options(), call.screen, wish, as_json=call.is_json)


@command(
    *(*HOSTS, JSON, IDENTITY, REPO_MEANT),
    Option("run", f"{BEGUN_RUN.help} Repeatable: then side by side.", many=True, bare=True),
    Option("out", "Where to write it; default: beside the run's results."),
    Option("sweep", "Instead, all cells of this sweep side by side: its file, or its name."),
    Option("metric", "The metric by which several runs, or the cells of a sweep, are compared."),
    changes=(),
    interrupted="To make it: {again}",
    takes_all=True,
)
def report(call: Call) -> None:
    """Write a page about a run, or several side by side: metrics, GPUs, setup, commit, results.
    Example: boxstrap report --host my-box --run train-1"""
    given = call.given
    if given["sweep"]:
        from bootstrap.fleet.sweep_report import report_sweep

        if given["host"] or given["hosts"] or given["run"]:
            raise UsageError("--sweep knows its boxes and runs: leave out --host and --run.")
        report_sweep(call.options(), call.screen, given["sweep"], given["metric"], given["out"])
        return
    hosts, names = chosen(call), [*dict.fromkeys(given["run"] or ())]
    options = replace(call.options(), host=hosts[0] if len(hosts) == 1 else None)
    if len(hosts) > 1 or len(names) > 1:
        from bootstrap.fleet.comparison import compare_runs

        compare_runs(options, call.screen, hosts, names, given["metric"], given["out"])
        return
    if given["metric"]:
        raise UsageError("--metric compares runs: name several, or add --sweep FILE.")
    from bootstrap.runs.report import make_report

    make_report(options, call.screen, next(iter(names), None), given["out"])


@command(
    *(*HOSTS, JSON, IDENTITY, REPO_MEANT),
    RUN,
    Option(
        "all_",
        "All runs that live or wait for their turn, of whichever repository; those that were there "
        "with them and have failed count too.",
        False,
    ),
    Option("sweep", "Instead, all cells of this sweep, wherever they are: its file, or its name."),
    EVENTS,
    Option("detach", "Don't wait: the box tells the addresses of notify.yaml.", False),
    changes=("detach",),
    interrupted="To wait on: {again}; to end the training: boxstrap stop{host}",
)
def wait(call: Call) -> None:
    """Wait until a run is over: exit 0, or 10 where it failed. This machine must stay awake.
    Example: boxstrap wait --host my-box"""
    from bootstrap.runs.run_end import say_over, wait_for

    def tell(box: str, run: Run) -> None:
        state = {"run": run.name, "state": run.state, "rc": run.rc}
        sys.stdout.write(json.dumps({"v": 1, "event": "run", "box": box, **state}) + "\n")
        sys.stdout.flush()

    given = call.given
    told = tell if given["events"] else lambda _box, _run: None
    if given["events"] and given["detach"]:
        raise UsageError("--events are of a run that is waited for: leave out --detach.")
    if given["sweep"]:
        from bootstrap.tasks.sweeps import wait_for_sweep

        if given["detach"]:
            raise UsageError("--detach is about the runs of a box: leave out --sweep.")
        wait_for_sweep(call, told)
        return
    try:
        wait_for(
            call.options(),
            call.screen,
            run=given["run"],
            every=given["all_"],
            detach=given["detach"],
            tell=told,
        )
    except (NoSuchRunError, UnreachableError, WhichBoxError) as error:
        say_over(call.options(), call.screen, given["run"], told, error)


@command(HOST, _WAY_IN, IDENTITY, REPO_MEANT, BEGUN_RUN, _ALL)
def attach(call: Call) -> None:
    """Attach this terminal to the training's tmux session; Ctrl-B, D leaves it running.
    Example: boxstrap attach --host my-box"""
    from bootstrap.runs.remote_command import attach_to

    given = call.given
    attach_to(
        call.options(), call.screen, run=given["run"], every=given["all_"], as_json=call.is_json
    )


@command(HOST, _WAY_IN, IDENTITY, REPO_MEANT)
def shell(call: Call) -> None:
    """Open a shell on a box, in the repository's folder and environment.
    Example: boxstrap shell --host my-box"""
    from bootstrap.runs.remote_command import enter

    enter(call.options(), call.screen, [], as_json=call.is_json)


@command(*HOSTS, JSON, IDENTITY, REPO_MEANT, streams=True)
def exec_(call: Call) -> None:
    """Run a command on a box, in the repository's folder and environment; its exit code is ours.
    Example: boxstrap exec --host my-box -- python -c "import torch; print(torch.__version__)"
    """
    from bootstrap.runs.remote_command import enter, run_there

    words = given_command(sys.argv)
    if not "".join(words).strip():
        example = shlex.join(["boxstrap", "exec", "--", "nvidia-smi"])
        raise UsageError("which command?", hint=f"As in: {example}")
    if len(words) == 1:  # a line for bash, as with `run`
        words = ["bash", "-c", *words]
    if call.among or call.is_json:
        run_there(call.options(), call.screen, words, as_lines=not call.is_json)
    else:
        enter(call.options(), call.screen, words)


def given_command(arguments: Sequence[str]) -> list[str]:
    """Return the words after `--`, a command of the user's; empty if there are none."""
    return list(arguments[arguments.index("--") + 1 :]) if "--" in arguments else []


@command(
    *(*HOSTS, JSON, IDENTITY, REPO_MEANT),
    RUN,
    Option("all_", "All runs that live or wait on the box, of whichever repository.", False),
    Option("setup", "Cancel the setup at work instead.", False),
    interrupted="To stop it, or to see that it has ended: {again}",
)
def stop(call: Call) -> None:
    """End a run (or, with --setup, a setup). The box keeps running, and still costs money.
    Example: boxstrap stop --host my-box"""
    from bootstrap.runs.run_end import stop_run

    given = call.given
    stop_run(
        call.options(), call.screen, run=given["run"], every=given["all_"], setup=given["setup"]
    )


@command(
    *HOSTS,
    Option("json_", "JSON lines on standard output, one for each look, nothing else.", False),
    IDENTITY,
    Option("repo", "The repository whose boxes are meant where no host is given."),
    Option("every", "Seconds between two looks.", 2),
    Option("looks", "End after so many looks at each box; 0: when you end it.", 0),
    changes=(),
    takes_all=True,
)
def top(call: Call) -> None:
    """Watch GPUs, processor, memory and the training's last line on one box or several, live.
    Example: boxstrap top --host my-box --host another"""
    from bootstrap.boxes.secrets import redactor_of_all
    from bootstrap.runs.top import TopOptions, make_top_screen, watch_boxes

    given = call.given
    if given["every"] < 1 or given["looks"] < 0:
        raise UsageError("--every is a second at the least, --looks no less than 0.")
    options = replace(call.options(), host=None)
    call.redact = redact = redactor_of_all(options).text
    screen = make_top_screen(sys.stdout, as_json=call.is_json, redact=redact, env=dict(os.environ))
    wanted = TopOptions(every_s=given["every"], samples=given["looks"])
    with contextlib.suppress(KeyboardInterrupt):  # the normal way to end it
        watch_boxes(options, chosen(call), wanted, screen)
