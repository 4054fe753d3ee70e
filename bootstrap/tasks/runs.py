"""status, logs, report, wait, attach, shell, exec, stop: for a training that was started."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from bootstrap.errors import UsageError
from bootstrap.tasks.command import HOST, JSON, Call, Option, command
from bootstrap.tasks.exit_codes import error_document

_IDENTITY = Option("identity", "The private key to log in with.")
_REPO = Option("repo", "The repository that is meant; default: that of the current folder.")
_RUN = Option("run", "The run, as `status` names it; default: this repository's newest.")
_ALL = Option("all_", "Of all repositories on the box, not only that of the current folder.", False)


@command(HOST, JSON, _IDENTITY, _REPO, changes=())
def status(call: Call) -> None:
    """Say what became of the runs on a box, and of its last setup.

    Example: boxstrap status --host my-box
    """
    from bootstrap.runs.status import failure, find_status

    found = find_status(call.options(), call.screen)
    error = failure(found)
    boxes = [
        {**one.document, "error": error_document(one.error)} if one.error else one.document
        for one in found
    ]
    if any(one.error is None for one in found):
        # A single box's keys are at the top level too, as earlier versions had them.
        own = boxes[0] if len(boxes) == 1 else {}
        call.screen.result(
            {**own, "boxes": boxes}, "\n".join(line for one in found for line in one.lines)
        )
    if error:
        raise error


@command(
    HOST,
    JSON,
    _IDENTITY,
    _REPO,
    Option("run", f"{_RUN.help} Repeatable.", many=True),
    _ALL,
    Option("live", "Every run that is running.", False),
    Option("follow", "Go on as the log grows, across lost links.", False, short="f"),
    Option("since", "What was written since: 10m ago (s, m, h, d), or since 14:30."),
    Option("step", "The log of a step of the last setup, as in python."),
    changes=(),
    interrupted="Run the same command again to read on. To end the training: boxstrap stop",
)
def logs(call: Call) -> None:
    """Print the log of a run, of several at once, or of a step of the last setup.

    Example: boxstrap logs -f --host my-box
    """
    from bootstrap.runs.logs import LogWish, show_log

    given = call.given
    wish = LogWish(
        names=given["run"] or (),
        every=given["all_"],
        live=given["live"],
        step=given["step"],
        since=given["since"],
        follow=given["follow"],
    )
    show_log(call.options(), call.screen, wish, as_json=call.is_json)


@command(
    HOST,
    JSON,
    _IDENTITY,
    _REPO,
    _RUN,
    Option("out", "Where to write it; default: beside the run's results."),
    changes=(),
)
def report(call: Call) -> None:
    """Write a page about a run: its metrics, GPUs, memory, setup, commit, verdict and results.

    Example: boxstrap report --host my-box --run train-1
    """
    from bootstrap.runs.report import make_report

    make_report(call.options(), call.screen, call.given["run"], call.given["out"])


@command(
    HOST,
    JSON,
    _IDENTITY,
    _REPO,
    _RUN,
    Option("all_", "All runs that live or wait for their turn, of whichever repository.", False),
    changes=(),
    interrupted="Run the same command again to wait on. To end the training: boxstrap stop",
)
def wait(call: Call) -> None:
    """Wait until a run is over: exit 0, or 10 where it failed. This machine must stay awake.

    Example: boxstrap wait --host my-box
    """
    from bootstrap.runs.wait import wait_for

    wait_for(call.options(), call.screen, run=call.given["run"], every=call.given["all_"])


@command(HOST, _IDENTITY, _REPO, _RUN, _ALL)
def attach(call: Call) -> None:
    """Attach this terminal to the training's tmux session; Ctrl-B, D leaves it running.

    Example: boxstrap attach --host my-box
    """
    from bootstrap.runs.attach import attach_to

    attach_to(call.options(), call.screen, run=call.given["run"], every=call.given["all_"])


@command(HOST, _IDENTITY, _REPO)
def shell(call: Call) -> None:
    """Open a shell on a box, in the repository's folder and environment.

    Example: boxstrap shell --host my-box
    """
    from bootstrap.runs.remote_command import enter

    enter(call.options(), call.screen, [])


@command(HOST, _IDENTITY, _REPO)
def exec_(call: Call) -> None:
    """Run a command on a box, in the repository's folder and environment; its exit code is ours.

    Example: boxstrap exec --host my-box -- python -c "import torch; print(torch.__version__)"
    """
    from bootstrap.runs.remote_command import enter

    words = given_command(sys.argv)
    if not words:
        example = shlex.join(["boxstrap", "exec", "--", "nvidia-smi"])
        raise UsageError("which command? Put it after `--`.", hint=f"As in: {example}")
    enter(call.options(), call.screen, words)


def given_command(arguments: Sequence[str]) -> list[str]:
    """Return the words after `--`, which Invoke drops; empty if there are none."""
    return list(arguments[arguments.index("--") + 1 :]) if "--" in arguments else []


@command(
    HOST,
    JSON,
    _IDENTITY,
    _REPO,
    _RUN,
    Option("all_", "All runs that live or wait on the box, of whichever repository.", False),
    Option("setup", "Cancel the setup at work instead.", False),
)
def stop(call: Call) -> None:
    """End a run (or, with --setup, a setup). The box keeps running, and still costs money.

    Example: boxstrap stop --host my-box
    """
    from bootstrap.runs.stop import stop_run

    given = call.given
    stop_run(
        call.options(), call.screen, run=given["run"], every=given["all_"], setup=given["setup"]
    )
