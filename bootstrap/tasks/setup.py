"""setup, plan, verify: what a box should become, would become, and whether it is worth it."""

from __future__ import annotations

from bootstrap.tasks.command import BOX, Call, Option, command

_COMMITTED = Option(
    "committed_only", "Take the commit alone; what is not committed stays behind.", False
)
_RESTART = Option("restart", "Start the training again, also where a run is alive.", False)
_WAIT = Option("wait", "Seconds to wait for another setup on this box.", 60)


@command(*BOX, _COMMITTED, _RESTART, _WAIT)
def setup(call: Call) -> None:
    """Take a box to its first training step; running it again continues, or changes nothing.

    Example: boxstrap setup --host root@203.0.113.7:46769 --set train.command="python train.py"
    """
    given = call.given
    if given["host"]:
        call.screen.note("host", given["host"])  # before anything heavy is imported
    from bootstrap.setup.drive import Wishes
    from bootstrap.setup.perform import Order, perform

    wishes = Wishes(restart=given["restart"], wait_s=given["wait"])
    perform(Order(call.asked(), wishes, given["committed_only"]), call.screen)


@command(*BOX, Option("show_origin", "Where each value of the profile comes from.", False))
def plan(call: Call) -> None:
    """Show which steps would run on a box, which would not, and why. Changes nothing.

    Example: boxstrap plan --host my-box --show-origin
    """
    from bootstrap.setup.foresee import foresee

    foresee(call.asked(), call.screen, show_origin=call.given["show_origin"])


@command(*BOX, _WAIT)
def verify(call: Call) -> None:
    """Keep this box, or return it? Looks at its GPU through NVML, before anything is built.

    Example: boxstrap verify --host my-box --set gpu.name=A100 --set gpu.count=8
    """
    from bootstrap.setup.verify import verify_box

    verify_box(call.asked(), call.screen, wait_s=call.given["wait"])
