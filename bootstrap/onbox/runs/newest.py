"""What a door tells of the newest run of a repository: how it begins, and where to look; or, with
`wait`, its output, to its end, whose exit code is ours.

`onbox runs.newest BOX_HOME KEY ROOT NAME [wait]`.
"""

from __future__ import annotations

import os
import sys

from ..run_folder import QUEUED, RUNNING, RunFolder, made_at, names_in
from ..work.repository import find_repository
from .first_output import await_output, begin_of
from .window import show_while

_FIRST_S = 30.0


def _show_begin(run: RunFolder) -> None:
    if os.isatty(1):
        await_output(run, _FIRST_S)
        sys.stdout.writelines(begin_of(run, 4000).splitlines(keepends=True)[:5])
    sys.stdout.write(f"""{run.path.rpartition("/")[2]}: {run.state()}
its log: tail -F {run.path}/log
its terminal: tmux -L boxstrap attach
over SSH, from your own machine: boxstrap status --host HOST
""")


def main() -> int:
    home, key, root, name, *waits = sys.argv[1:]
    folder = f"{home}/runs/{find_repository(home, key, root, name)[0]}"
    # That of an older one may have been written to later.
    runs = [RunFolder(f"{folder}/{name}") for name in names_in(folder)]
    if not runs:
        return 0
    run = max(runs, key=made_at)
    if waits:
        code = show_while(run, RUNNING, QUEUED).partition(" ")[2]
        return int(code) if code.isdigit() else 1
    _show_begin(run)
    return 0
