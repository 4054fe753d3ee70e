"""run: a new run of what stands here, whatever ran before."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.tasks.command import BOX, Call, Option, command
from bootstrap.tasks.runs import given_command
from bootstrap.tasks.setup import COMMITTED, WAIT

if TYPE_CHECKING:
    from bootstrap.profile.values import Rule
    from bootstrap.setup.run_wish import RunWish


@command(
    *BOX,
    Option("session", "The name of its session, and of the run; default: the profile's."),
    Option("gpus", "The GPUs that it gets, as in 0,1; default: all."),
    COMMITTED,
    WAIT,
    interrupted="Whether it began: boxstrap status",
)
def run(call: Call) -> None:
    """Start a new run of what stands here, whatever ran before; its command stands behind `--`.

    Example: boxstrap run --host my-box --gpus 0 -- python train.py --lr 3e-4
    """
    wish = _wish(call, given_command(sys.argv))
    from bootstrap.sync.new_run import start_run

    def show(lines: Sequence[str]) -> None:
        call.screen.result({}, "\n".join(f"  {line}" for line in lines))

    begun = start_run(dataclasses.replace(call.request(), run=wish), call.screen, show)
    from bootstrap.tasks.setup_report import after_run  # its first lines don't wait for it

    call.screen.result(begun.as_dict(), f"\n{after_run(begun)}")
    begun.raise_for_status()


def _wish(call: Call, words: Sequence[str]) -> RunWish:
    from bootstrap.profile.values import COMMAND, GPUS, SESSION
    from bootstrap.setup.run_wish import RunWish

    # One word is a line for a shell, as in train.command; of several each stays what it is.
    text = words[0] if len(words) == 1 else shlex.join(words)
    given = {
        "the command": (text, COMMAND),
        "--session": (call.given["session"] or "", SESSION),
        "--gpus": (call.given["gpus"] or "", GPUS),
    }
    return RunWish(*(_checked(name, *each) for name, each in given.items()))


def _checked(name: str, text: str, rule: Rule) -> str:
    try:
        return rule(text) if text else ""
    except ValueError as error:
        raise UsageError(f"{name}: {error}.") from None
