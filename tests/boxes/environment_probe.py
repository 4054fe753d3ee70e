"""Print the environment that each kind of shell on this box gives to a program: JSON, by way.

`environment_probe.py HOME TREE` starts every kind of shell as people and programs start it; in
each, `environment_probe.py tell FILE` writes what it has. It is run by the box's own Python. A way
that gave no answer is left out.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 30.0
KEPT = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "SSH_CONNECTION", "SSH_CLIENT")
"""Variables that a login gives to a shell before any start-up file is read."""
WINDOWS = {"tmux": ["tmux", "-u", "-L", "boxstrap", "-f", "/dev/null"], "own-tmux": ["tmux", "-u"]}
"""How each tmux is called: the server that shows runs, and the user's or the provider's own."""

WAYS = ("ssh", "login", "vscode", "training", *WINDOWS)


def tell(file: str) -> None:
    """Write this program's environment."""
    Path(f"{file}.new").write_text(json.dumps(dict(os.environ)))
    Path(f"{file}.new").replace(file)


def ways(home: str, tree: str, folder: Path, shell: str) -> dict[str, list[str]]:
    """Return the command of each way that this box has."""
    is_csh = Path(shell).name in ("csh", "tcsh")  # they take no `-l` with another option

    def told(way: str, python: str = sys.executable) -> str:
        words = (python, "-I", "-S", str(Path(__file__).resolve()), "tell", str(folder / way))
        return "exec " + shlex.join(words)

    # A dash before its name makes a csh a login shell.
    as_login = ["bash", "--norc", "-c", 'exec -a "$0" "$@"', f"-{Path(shell).name}", shell]
    terminal = f"exec {shlex.quote(shell)} {'-ic' if is_csh else '-i -c'} "
    window = f"exec {shlex.quote(shell)} {'-ic' if is_csh else '-i -l -c'} "
    # A run of the set-up repository, in a home that has no other runs.
    key = next(Path(home, "steps").glob("*/env")).parent.name
    run = folder / "runs" / key / "probe-1"
    run.mkdir(parents=True)
    (folder / "steps").symlink_to(f"{home}/steps")
    venv = f"{tree}/.venv"
    of_run = {"dir": tree, "venv": venv, "command": told("training", f"{venv}/bin/python")}
    for name, text in of_run.items():
        (run / name).write_text(f"{text}\n")
    return {
        "login": [*(as_login if is_csh else [shell, "-l"]), "-c", told("login")],
        # VS Code's terminal has the environment of an interactive login shell.
        "vscode": [
            *(shell, *(["-ic"] if is_csh else ["-i", "-l", "-c"])),
            terminal + shlex.quote(told("vscode")),
        ],
        "training": [
            *(sys.executable, "-I", "-S", "-B", f"{home}/box/current/onbox/__main__.py"),
            *("runs.runner", str(run)),
        ],
        **{
            way: [*tmux, "new-session", "-d", "-s", folder.name, window + shlex.quote(told(way))]
            for way, tmux in WINDOWS.items()
            if shutil.which("tmux")
        },
    }


def look(home: str, tree: str) -> dict[str, Any]:
    """Start all ways at the same time, and return what they found."""
    shell = os.environ["SHELL"]
    plain = {name: value for name, value in os.environ.items() if name in KEPT}
    plain |= {"TERM": "xterm-256color"}
    folder = Path(tempfile.mkdtemp(prefix="probe"))
    try:
        started = ways(home, tree, folder, shell)
        processes = []
        for way, words in started.items():
            more = {"TERM_PROGRAM": "vscode"} if way == "vscode" else {}
            with (folder / f"{way}.log").open("wb") as log:
                process = subprocess.Popen(
                    words,
                    env={**plain, **more},
                    cwd=plain["HOME"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            processes.append(process)
        until = time.monotonic() + LIMIT
        while time.monotonic() < until and not all((folder / way).exists() for way in started):
            time.sleep(0.05)
        for process in processes:
            process.wait(LIMIT)  # a runner still records how its run ended
        answered = [way for way in started if (folder / way).exists()]
        found = {way: json.loads((folder / way).read_text()) for way in answered}
        return {"ssh": dict(os.environ), **found}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1] == "tell":
        tell(sys.argv[2])
    else:
        print(json.dumps(look(*sys.argv[1:])))
