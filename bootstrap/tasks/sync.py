"""sync: keep the local repository and its tree on a box in sync."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.tasks.command import BOX, Call, Option, command
from bootstrap.tasks.setup import COMMITTED, WAIT

if TYPE_CHECKING:
    from bootstrap.sync.send import Synced

_OF_THIS = tuple(option for option in BOX if option.name not in ("name", "new_box"))


@command(
    *_OF_THIS,
    COMMITTED,
    WAIT,
    Option("watch", "Keep sending, on every save, until Ctrl-C.", False),
    Option("back", "Bring what was made on the box here, as refs; nothing is checked out.", False),
    interrupted="What was placed stays. To go on: boxstrap sync --watch",
)
def sync(call: Call) -> None:
    """Send your current files to their tree on a box, without a setup; or bring its work home.

    Example: boxstrap sync --host my-box --watch
    """
    given = call.given
    if given["watch"] and given["back"]:
        raise UsageError("--watch and --back are two directions: name one of them.")
    if given["back"]:
        from bootstrap.sync.back import bring_home

        brought = bring_home(call.options(), call.screen)
        call.screen.result(brought.as_dict(), "\n".join(brought.lines()))
    elif given["watch"]:
        _watch(call)
    else:
        from bootstrap.sync.send import send_state

        synced = send_state(call.request(), call.screen)
        call.screen.result(synced.as_dict(), str(synced))


def _watch(call: Call) -> None:
    """Print a line for each placed state; with --json a JSON line."""
    from bootstrap.sync.watch import watch_states

    def tell(synced: Synced) -> None:
        if call.is_json:
            line = json.dumps({"v": 1, **synced.as_dict()})
        else:
            line = call.screen.safe_text(f"{synced} ({synced.seconds:.2f} s)")
        print(line, flush=True)  # noqa: T201 - immediately, not at the end

    try:
        watch_states(call.request(), call.screen, tell)
    except KeyboardInterrupt:
        sys.stdout.flush()
        return  # the normal way to end it
