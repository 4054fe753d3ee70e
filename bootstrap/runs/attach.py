"""Attach the terminal to a run's session, with the system's ssh and the box's tmux."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys

from bootstrap.errors import BoxLacksError, UsageError
from bootstrap.link.exchange import exchange
from bootstrap.link.handle import BoxHandle, BoxOptions
from bootstrap.link.shell_command import shell_command
from bootstrap.runs.connection import connect
from bootstrap.sshconfig.entry import quoted
from bootstrap.ui.screen import Screen


def attach_to(options: BoxOptions, screen: Screen, *, run: str | None, every: bool) -> None:
    """Replace this process with the attached session. Raises UsageError, BoxLacksError."""
    if not sys.stdin.isatty():
        where = f" --host {shlex.quote(options.host)}" if options.host else ""
        raise UsageError(
            "attaching needs a terminal.", hint=f"To read the log instead: boxstrap logs -f{where}"
        )
    with connect(options, screen) as connection:
        chosen = connection.runs(run, every=every)[0]
        whose = connection.repository(chosen)
        has_tmux = exchange(connection.link.wire, "command -v tmux || :", timeout=60).strip()
        name = connection.box.known.name
        if not has_tmux:
            raise BoxLacksError(
                "there is no tmux on this box, so the run has no session to attach to.",
                where=connection.link.label,
                hint=f"Its log, as it grows: boxstrap logs -f --host {name}",
            )
        if chosen.state == "queued":
            raise UsageError(
                f"{chosen.name} of {whose} has no session yet; it is {chosen.outcome()}.",
                where=connection.link.label,
                hint=f"The queue: boxstrap status --host {name}",
            )
        if chosen.state != "running":
            raise UsageError(
                f"{chosen.name} of {whose} {chosen.outcome()}: there is no session any more.",
                where=connection.link.label,
                hint=f"Its log: boxstrap logs --host {name}",
            )
    screen.close()
    tmux = ["tmux", "-u", "-L", "boxstrap", "attach-session", "-t", f"={chosen.session}"]
    # Through sh, because a login shell zsh would expand `=train` to the path of a program.
    line = shell_command(f"exec {shlex.join(tmux)}")
    become(ssh_command(connection.box, line, terminal=True) or tmux)


def ssh_command(box: BoxHandle, line: str, *, terminal: bool) -> list[str]:
    """Return the ssh command that runs this line on the box; an empty list for `local`."""
    endpoint = box.endpoint
    if endpoint is None:
        return []
    options = {
        "UserKnownHostsFile": quoted(box.known.known_hosts),
        "HostKeyAlias": box.known.host_key_alias,
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ControlPath": "none",  # an existing master may have checked another key, or isn't ours
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    if endpoint.chosen_identity:
        flags += ["-i", str(endpoint.chosen_identity).replace("%", "%%")]
    place = ["-p", str(endpoint.port), "-l", endpoint.user, "--", endpoint.alias]
    return ["ssh", "-t" if terminal else "-T", *flags, *place, line]


def become(command: list[str]) -> None:
    """Replace this process with another program. Raises UsageError if it is not installed."""
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]} is not installed on this machine.")
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # else it inherits Python's SIG_IGN
    os.execv(program, command)  # noqa: S606 - a list, no shell
