"""setup, plan, verify: what a box should become, would become, and whether it is worth it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bootstrap.paths import expanded
from bootstrap.tasks.command import BOX, Call, Option, command

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxOptions

_COMMITTED = Option(
    "committed_only", "Take the commit alone; what is not committed stays behind.", False
)
_RESTART = Option("restart", "Start the training again, also where a run is alive.", False)
_ADOPT = Option("adopt", "Take a clone of yours on the box as the repository's folder.", False)
_STRICT = Option("strict", "A warning of the verdict is a reason to return the box.", False)
_WAIT = Option("wait", "Seconds to wait for another setup on this box.", 60)
_AGAIN = "Run the same command again to follow it, or: boxstrap stop --setup"


@command(*BOX, _COMMITTED, _RESTART, _ADOPT, _STRICT, _WAIT, changes=(), interrupted=_AGAIN)
def setup(call: Call) -> None:
    """Take a box to its first training step; running it again continues, or changes nothing.

    Example: boxstrap setup --host root@203.0.113.7:46769 --set train.command="python train.py"
    """
    given = call.given
    if given["host"]:
        call.screen.note("host", given["host"])  # before anything heavy is imported
    from bootstrap.setup.drive import Wishes
    from bootstrap.setup.foresee import foresee
    from bootstrap.setup.perform import Order, perform

    if call.dry:
        restart, committed = given["restart"], given["committed_only"]
        foresee(_asked(call), call.screen, committed_only=committed, restart=restart)
        return
    wishes = Wishes(restart=given["restart"], adopt=given["adopt"], wait_s=given["wait"])
    perform(Order(_asked(call), wishes, given["committed_only"]), call.screen)


@command(
    *BOX, Option("show_origin", "Where each value of the profile comes from.", False), changes=()
)
def plan(call: Call) -> None:
    """Show which steps would run on a box, which would not, and why. Changes nothing.

    Example: boxstrap plan --host my-box --show-origin
    """
    from bootstrap.setup.foresee import foresee

    foresee(call.options(), call.screen, show_origin=call.given["show_origin"])


@command(
    *BOX,
    _STRICT,
    Option("report", "Write the verdict as a page of HTML, for the host's owner."),
    _WAIT,
    interrupted=_AGAIN,
)
def verify(call: Call) -> None:
    """Keep this box, or return it? Its GPUs, what its container grants, its disk and network.

    Example: boxstrap verify --host my-box --set gpu.name=A100 --set gpu.count=8
    """
    from bootstrap.setup.verify import verify_box

    given = call.given
    report = expanded(given["report"]) if given["report"] else None
    verify_box(_asked(call), call.screen, wait_s=given["wait"], report=report)


def _asked(call: Call) -> BoxOptions:
    """What was asked of a box that is to be judged."""
    options = call.options()
    strict = ("gpu.strict=true",) if call.given["strict"] else ()
    return replace(options, sets=(*options.sets, *strict))
