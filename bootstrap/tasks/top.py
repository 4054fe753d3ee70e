"""top: watch several boxes live."""

from __future__ import annotations

from bootstrap.tasks.command import HOST, Call, Option, command


@command(
    Option("host", f"{HOST.help} Repeatable; default: the boxes known.", many=True),
    Option("json_", "JSON lines on standard output, one for each look, nothing else.", False),
    Option("identity", "The private key to log in with."),
    Option("repo", "The repository whose boxes are meant where no host is given."),
    Option("every", "Seconds between two looks.", 2),
    Option("looks", "End after so many looks at each box; 0: when you end it.", 0),
    changes=(),
)
def top(call: Call) -> None:
    """Watch GPUs, processor, memory and the training's last line on one box or several, live.

    Example: boxstrap top --host my-box --host another
    """
    import os
    import sys
    from dataclasses import replace

    from bootstrap.errors import UsageError
    from bootstrap.runs.connection import redactor_of_all
    from bootstrap.runs.top import TopOptions, watch_boxes
    from bootstrap.ui.top_view import make_top_screen

    given = call.given
    if given["every"] < 1 or given["looks"] < 0:
        raise UsageError("--every is a second at the least, --looks no less than 0.")
    options = replace(call.options(), host=None)
    call.redact = redact = redactor_of_all(options).text
    screen = make_top_screen(sys.stdout, as_json=call.is_json, redact=redact, env=dict(os.environ))
    wanted = TopOptions(every_s=given["every"], samples=given["looks"])
    try:
        watch_boxes(options, given["host"], wanted, screen)
    except KeyboardInterrupt:
        return  # the normal way to end it
