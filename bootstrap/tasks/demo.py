"""demo: a setup of this machine, with a small training that boxstrap brings along."""

from __future__ import annotations

from bootstrap.tasks.command import JSON, Call, command


@command(JSON)
def demo(call: Call) -> None:
    """Set this machine up for a small training and start it: no account, no GPU, nothing rented.

    Example: boxstrap demo
    """
    from bootstrap.demo import run_demo
    from bootstrap.tasks.setup_report import show_result

    result = run_demo(call.screen)
    show_result(result, call.screen)
    result.raise_for_status()
