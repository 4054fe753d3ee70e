"""A terminal or a command on a box, in the repository's folder and environment, by ssh."""

import codecs
import ctypes
import os
import posixpath
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import IO, NoReturn

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import BoxState
from bootstrap.boxes.run import repository_names
from bootstrap.boxes.ssh_config import common_options, quoted
from bootstrap.errors import UNREAD, BoxLacksError, CommandFailedError, UsageError
from bootstrap.link.exchange import BASH, shell_command, stream_script
from bootstrap.link.prompt import Prompt
from bootstrap.link.query import build_query
from bootstrap.link.record import name_of_key
from bootstrap.link.shared import open_offered
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import PIECE
from bootstrap.repo.place import repository_root
from bootstrap.runs.logs import NamedLog, ShownLog
from bootstrap.sanitize import SanitizeStream, sanitize
from bootstrap.steps.shell import functions, quote, shell_part
from bootstrap.ui.screen import TEXT_LENGTH, Screen


def attach_to(
    options: BoxOptions, screen: Screen, *, run: str | None, every: bool, as_json: bool = False
) -> None:
    """Become the attached session; `as_json`: only tell how. Raises UsageError, BoxLacksError."""
    if not as_json and not sys.stdin.isatty():
        where = f" --host {shlex.quote(options.host)}" if options.host else ""
        raise UsageError(
            "attaching needs a terminal.", hint=f"To read the log instead: boxstrap logs -f{where}"
        )
    with BoxLogin.open(options, screen) as box:
        chosen = box.begun_run(run, every=every)
        whose = box.repository(chosen)
        name = box.name
        if not box.state.has_tmux:
            raise BoxLacksError(
                "there is no tmux on this box, so the run has no session to attach to.",
                where=box.label,
                hint=f"Its log, as it grows: boxstrap logs -f --host {name}",
            )
        if chosen.state == "queued":
            raise UsageError(
                f"{chosen.name} of {whose} has no session yet; it is {chosen.outcome()}.",
                where=box.label,
                hint=f"The queue: boxstrap status --host {name}",
            )
        if chosen.state != "running":
            raise UsageError(
                f"{chosen.name} of {whose} {chosen.outcome()}: there is no session any more.",
                where=box.label,
                hint=f"Its log: boxstrap logs --host {name}",
            )
    instead = f"boxstrap logs -f --host {name} --run {chosen.name}"
    script = build_query("attach", session=chosen.session, instead=instead)
    line = shell_command(functions("box", "enter", ("know_terminal",)) + script)
    command = ssh_command(box, line, terminal=True) or ["/bin/sh", "-c", line]
    if as_json:
        screen.result({"box": name, "argv": command})
        return
    if os.environ.pop("TMUX", ""):  # of the user's own tmux; with it, tmux here would refuse
        screen.say("you are in a tmux already: Ctrl-B, Ctrl-B, D leaves the box's session only")
    screen.close()
    become(command)


def ssh_command(box: BoxLogin, line: str, *, terminal: bool) -> list[str]:
    """Return the ssh command that runs this line on the box; an empty list for `local`. It goes the
    way of the login, whatever else the user's ssh config wants of this host."""
    endpoint = box.endpoint
    if endpoint is None:
        return []
    options = {
        "UserKnownHostsFile": quoted(box.known.known_hosts),
        "HostKeyAlias": box.known.host_key_alias,
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        **common_options(),
        # Only the connection that this command went over: any other may have checked another key.
        "ControlPath": quoted(box.shared_socket) if box.shared_socket else "none",
        "ControlMaster": "no",
        "ClearAllForwardings": "yes",  # a port that is in use here would end it
        "Tunnel": "no",
        "PermitLocalCommand": "no",
        "IgnoreUnknown": "SessionType,ForkAfterAuthentication,StdinNull",  # of OpenSSH 8.7
        "SessionType": "default",
        "ForkAfterAuthentication": "no",
        "StdinNull": "no",
    }
    if endpoint.proxy_jump or not endpoint.proxy_command:
        options["ProxyJump"] = endpoint.proxy_jump or "none"
    if endpoint.chosen_identity:
        options["IdentitiesOnly"] = "yes"
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
    open_offered()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # else it inherits Python's SIG_IGN
    os.execv(program, command)  # noqa: S606 - a list, no shell


@dataclass(frozen=True)
class RemoteProject:
    """A repository on a box, and its environment. Absolute paths."""

    folder: str
    venv: str

    @property
    def python(self) -> str:
        return posixpath.join(self.venv, "bin", "python")


def project_of(box: BoxLogin) -> RemoteProject:
    """Return the current repository's project; outside a repository, the last setup's from here.
    Raises UsageError if there is none, or if outside a repository several could be meant."""
    keys = {run.repo_key for run in box.state.runs}
    if not box.own and len(keys) > 1:
        names = sorted(repository_names(keys).values())
        raise UsageError(
            f"whose repository is meant? This box has {', '.join(names)}.",
            where=box.label,
            hint="Run this in one of them, or name it: --repo PATH",
        )
    own, known = box.own, box.known
    found = _of(box, box.state)
    if found is None and own:  # the profile may name another repository, so that is not known yet
        found = _of(box, box.at(repo_key=own).refresh())
    if found is None:
        others = sorted({each.name for each in known.repositories if each.key != own})
        there = f"; of others it has {', '.join(others)}" if others else ""
        raise UsageError(
            f"{name_of_key(own) or 'no repository'} was not set up on this box{there}.",
            where=box.label,
            hint=f"Do that first: boxstrap setup --host {known.name}",
        )
    (key, root), place = box.here, str(repository_root(box.options.place) or "")
    other = known.sent_from(key, root, box.workdir)
    if key and other not in {"", place}:
        box.reporter.warn(
            f"{box.name}: the files of this repository there were sent last from {other}; "
            "those of this folder: boxstrap sync"
        )
    newest = next((run for run in box.state.runs if run.repo_key == box.own), None)
    if newest and newest.tree:
        box.reporter.say(
            f"{box.name}: this is {found.folder}, the main tree; the newest run, {newest.name}, "
            f"has its files beside it: cd ../{newest.tree}"
        )
    return found


def _of(box: BoxLogin, box_state: BoxState) -> RemoteProject | None:
    """Return the project that the box was probed for, if its folder is there."""
    folder = box_state.repo_dir
    if not box_state.is_placed:
        return None
    known = box.known.of(box.own) or box.known.last
    venv = box_state.in_home(box_state.venv or known.venv or ".venv")
    return RemoteProject(folder, posixpath.join(folder, venv))


_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_MOST_BEFORE = 64 * 1024  # bytes of what a login shell's files print that are kept
_LONGEST = 90_000
"""Bytes of a script that fit, as base64, into one argument of a program on Linux (128 KiB)."""

_NO_PIP = (
    "boxstrap: the environment has no pip; this is the box's own, of another Python. What the "
    "requirements or python.packages name, boxstrap setup installs."
)


def enter(
    options: BoxOptions, screen: Screen, command: Sequence[str], *, as_json: bool = False
) -> None:
    """Replace this process with the command on the box, or with a shell if it is empty.

    Or, without a terminal, wait for it: its exit code is this program's. `as_json`: only tell the
    command for it. Raises UsageError, and as `connect`.
    """
    terminal = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    if not (command or terminal or as_json):
        raise UsageError(
            "a shell needs a terminal.", hint="For one command: boxstrap exec -- COMMAND"
        )
    with BoxLogin.open(options, screen) as box:
        script = _script(box, command)
    mark = "" if terminal or as_json or box.endpoint is None else os.urandom(16).hex()
    line = shell_command(f"echo {mark}\n{script}" if mark else script, BASH)
    over_ssh = ssh_command(box, line, terminal=terminal or as_json)
    if over_ssh and not Prompt(screen.say).has_terminal():
        over_ssh[1:1] = ["-o", "BatchMode=yes"]  # it would ask where nobody answers
    if as_json:
        screen.result({"box": box.name, "argv": over_ssh or ["/bin/sh", "-c", line]})
        return
    screen.close()
    if over_ssh and not terminal:
        follow(over_ssh, mark)
    become(over_ssh or ["/bin/sh", "-c", line])


def run_there(
    options: BoxOptions, screen: Screen, command: Sequence[str], *, as_lines: bool
) -> None:
    """Run the command, and pass on its output: lines after the box's name as they come, of one of
    several boxes, or a document. Raises CommandFailedError with its exit code, and as `enter`."""
    text, size = "", 0
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with BoxLogin.open(options, screen) as box:
        shown = ShownLog(None, SanitizeStream(), box.redactor.stream(), NamedLog(box.name))
        stream = stream_script(box.wire, f"exec 2>&1\n{_script(box, command)}", BASH)
        stream.close_write()
        while piece := stream.read(PIECE):
            if as_lines:
                shown.write(piece)
                continue
            part = decode(piece)
            size += len(part)
            text += part[: max(0, TEXT_LENGTH + 1 - len(text))]
        shown.end()
        code = stream.exit_status()
    if size > TEXT_LENGTH:
        screen.warn(
            f"of its {size:,} characters these are the first {TEXT_LENGTH:,}; write them to a "
            "file on the box, or leave out --json"
        )
    screen.result({"box": box.name, "output": text, "code": code})
    if code != 0:
        ended = "without an exit code" if code is None else f"with {code}"
        raise CommandFailedError(f"it ended {ended}.", code=1 if code is None else code)


def _script(box: BoxLogin, command: Sequence[str]) -> str:
    project, home = project_of(box), box.state.home
    words = " ".join(quote(word) for word in (project.folder, *command))
    script = f"box_home={quote(home)} venv={quote(project.venv)}\nset -- {words}\n"
    if command[:1] in (["pip"], ["pip3"]):
        script += f'[ -x "$venv/bin/pip" ] || echo {quote(_NO_PIP)} >&2\n'
    script += shell_part("box", "enter")
    if len(script.encode(errors="surrogateescape")) > _LONGEST:
        raise UsageError(
            "this command is too long for one command line.",
            hint="Put it into a file of the repository, or give it on standard input: "
            "boxstrap exec -- bash -s < FILE",
        )
    return script


def follow(command: Sequence[str], mark: str) -> NoReturn:
    """Run ssh without a terminal, and exit with its code; with 128 + N if signal N ended it.

    What comes before the line `mark` was printed by the login shell's files, and is shown only
    without that line. ssh itself ends with 255 then, as if the link were lost. Its error output
    goes by this process: over a connection that stays, the connection's holder keeps it open until
    the command ends, and who reads it would wait for that. Raises UsageError.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]} is not installed on this machine.")
    came: list[int] = []
    dies_with_us = None
    if sys.platform == "linux":  # whoever kills this process means ssh
        libc = ctypes.CDLL(None)
        dies_with_us = partial(libc.prctl, _DIES_WITH_PARENT, signal.SIGTERM)
    child = subprocess.Popen(
        [program, *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=dies_with_us,  # noqa: PLW1509
    )
    open_offered()

    def pass_on(number: int, _: object) -> None:
        came.append(number)
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    assert child.stdout and child.stderr  # noqa: S101, PT018 - for the type checker
    errors = Thread(target=_pass_errors, args=(child.stderr,), daemon=True)
    errors.start()
    with child.stdout as pipe:
        try:
            _copy_after(f"{mark}\n".encode(), pipe.fileno())
        except BrokenPipeError:  # ssh is told by its own
            pipe.close()
            child.wait()
            raise SystemExit(UNREAD) from None
    code = child.wait()
    if not came:
        errors.join()
    ended_by = came[0] if came and code in (255, -came[0]) else -min(code, 0)
    raise SystemExit(128 + ended_by if ended_by else code)


def _copy_after(mark: bytes, source: int) -> None:
    head, piece = b"", b"-"
    while piece and mark not in head:
        piece = os.read(source, PIECE)
        head = head[-_MOST_BEFORE:] + piece
    before, _, piece = head.partition(mark)
    if mark not in head:
        sys.stderr.write(sanitize(before))
        sys.stderr.flush()
    _copy(source, 1, piece)


def _pass_errors(pipe: IO[bytes]) -> None:
    with pipe, suppress(BrokenPipeError):  # closed, so that ssh is told by its own
        _copy(pipe.fileno(), 2)


def _copy(source: int, target: int, piece: bytes = b"") -> None:
    """Copy all that comes, after `piece`. Raises BrokenPipeError."""
    while piece or (piece := os.read(source, PIECE)):
        piece = piece[os.write(target, piece) :]
