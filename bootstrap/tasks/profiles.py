"""profiles, init: list, show and check profiles, write one; render, oneliner: scripts for doors."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError, write_error
from bootstrap.paths import expanded, read_regular, write_users_file
from bootstrap.tasks.command import CONSENT, JSON, SET, Call, chosen, command
from bootstrap.tasks.options import COMMITTED, PROFILE, REPO, Option
from bootstrap.value import replace

if TYPE_CHECKING:
    from bootstrap.setup.doors import CarriedScript, Pushing

_OLD_S = 365 * 86_400
"""A repository without a commit for so long may not run with the packages of today."""


@command(
    JSON,
    Option("show", "Show this profile whole, and where each value comes from."),
    Option("validate", "Check this profile: a name or a path."),
    SET,
    changes=(),
)
def profiles(call: Call) -> None:
    """List the profiles there are; show one with the origin of each value; check one.
    Example: boxstrap profiles --show vast --set gpu.count=2"""
    from bootstrap.profile.load import listed, origin_lines, read_profile
    from bootstrap.repo.place import repository_root

    given = call.given
    name = given["show"] or given["validate"]
    if not name:
        found = listed()
        rows = [
            f"{item.name:<12} {item.description}{' (your own)' if item.own else ''}"
            for item in found
        ]
        call.screen.result({"profiles": found}, "\n".join(rows))
        return
    loaded = read_profile(
        name, sets=tuple(given["set_"] or ()), repo_root=repository_root(Path.cwd())
    )
    if given["validate"]:
        files = [str(path) for path in loaded.chain]
        call.screen.result({"valid": True, "files": files}, f"right: {', '.join(files)}")
        return
    from bootstrap.repo.urls import without_user_info

    shown = loaded.profile.as_dict()
    shown["git"]["url"] = without_user_info(loaded.profile.git.url or "") or None
    call.screen.result(
        {"profile": shown}, "\n".join(origin_lines(loaded.profile, loaded.origins, described=True))
    )


@command(
    JSON, REPO, Option("command", "The training's command; default: what the repository shows.")
)
def init(call: Call) -> None:
    """Write a commented boxstrap.yaml from what the repository shows. Nothing of it is run.
    Example: boxstrap init --command "python train.py --epochs 3"
    """
    from bootstrap.link.prompt import Prompt
    from bootstrap.profile.scaffold import notes, write_profile
    from bootstrap.profile.survey.facts import look_where_you_stand
    from bootstrap.profile.values import COMMAND
    from bootstrap.repo.local import read_repository

    place, command, last_commit = call.options().place, call.given["command"] or "", ""
    try:
        COMMAND(command or "none")
    except ValueError as error:
        raise UsageError(str(error), where="--command") from None
    try:
        here = read_repository(place)
        root, url, lacking = here.root, here.url, []
        if time.time() - int(here.committed) > _OLD_S:
            last_commit = time.strftime("%Y-%m-%d", time.gmtime(int(here.committed)))
    except UsageError as error:
        # A folder without a repository, or without a commit, can still get a profile.
        root, url, lacking = place, None, [f"{error.what} {error.hint}"]
    file, facts = root / "boxstrap.yaml", look_where_you_stand(root, place, command=command)
    prompt = Prompt(print)
    if len(facts.candidates) > 1 and not (call.is_json or file.exists()) and prompt.has_terminal():
        script = prompt.choose("Which of them is the training?", facts.candidates)
        facts = look_where_you_stand(root, place, script=script)
    facts = replace(facts, url=url, last_commit=last_commit)
    try:
        if file.is_symlink():  # also one that leads nowhere
            raise FileExistsError
        mode = "x"
        if command and file.exists():
            # Its notes advise commands: one is taken while the file is as it was written.
            first = look_where_you_stand(root, place)
            written = write_profile(replace(first, url=url, last_commit=last_commit))
            mode = "w" if read_regular(file) == written.encode() else "x"
        write_users_file(file, write_profile(facts), mode)
    except FileExistsError:
        raise UsageError(
            "it is there already; nothing was written.",
            where=str(file),
            hint=f"See what it says: boxstrap profiles --show {shlex.quote(str(file))}",
        ) from None
    except OSError as error:
        raise write_error(file, error) from None
    remarks = [*notes(facts), *lacking]
    lines = [
        f"written: {file}" + " (over the one that init wrote, unchanged since)" * (mode == "w"),
        *remarks,
        "Read it through, then: boxstrap setup --host …, or boxstrap up",
    ]
    call.screen.result({"written": str(file), "notes": remarks}, "\n".join(lines))


_OUTPUT = Option("output", "Write it into this file.")
_PUSH = Option(
    "push", "Put boxstrap's program on the commit's git host, for the box to fetch.", False
)


@command(
    *(PROFILE, SET, JSON, REPO, CONSENT, COMMITTED),
    Option("for_", "The door it is for, as in ec2; without it, the script itself, readable."),
    Option("host", "A box for --for skypilot-pool or dstack-fleet. Repeatable.", many=True),
    Option("hosts", "The boxes of this group for these, as groups.yaml names them."),
    _PUSH,
    _OUTPUT,
    changes=("output", "push"),
    takes_all=True,
)
def render(call: Call) -> None:
    """Show the script that sets a box up; or pack it for a provider's start-up hook.
    Example: boxstrap render --for ec2 --output user-data.yaml"""
    from bootstrap.fleet.export import EXPORTS, export_boxes
    from bootstrap.setup.door_table import door_named
    from bootstrap.setup.doors import CarriedScript, render_for_door, render_readable

    door = call.given["for_"]
    if call.given["host"] or call.given["hosts"] or door in EXPORTS:
        if door not in EXPORTS:
            raise UsageError(f"boxes are named for --for {' or '.join(EXPORTS)} alone.")
        group, boxes = call.given["hosts"] or "", chosen(call)
        text = export_boxes(door, boxes, group)
        _show(call, CarriedScript(text, {"format": door, "boxes": boxes}))
    elif door:
        door_named(door, EXPORTS)
        _show(call, render_for_door(door, call.request(), call.screen, push=_pushing(call)))
    else:
        _show(call, render_readable(call.request(), call.screen))


@command(
    *(PROFILE, SET, JSON, REPO, CONSENT, COMMITTED),
    _PUSH,
    Option("url", "Fetch the script from this address, against its SHA-256; see --output."),
    Option("uvx", "Let uvx make the script on the box: what to install boxstrap from."),
    _OUTPUT,
    changes=("output", "push"),
)
def oneliner(call: Call) -> None:
    """Print one paste for the terminal of a fresh box: keys, code, environment, GPU, training.
    Example: boxstrap oneliner --profile vast"""
    from bootstrap.setup.doors import render_paste

    given = call.given
    if sum(bool(given[way]) for way in ("push", "url", "uvx")) > 1:
        raise UsageError("--push, --url and --uvx are three ways: choose one.")
    if given["url"]:
        _show_fetched(call)
        return
    uvx = given["uvx"] or ""
    _show(call, render_paste(call.request(), call.screen, push=_pushing(call), uvx=uvx))


def _pushing(call: Call) -> Pushing:
    from bootstrap.link.prompt import Prompt
    from bootstrap.setup.doors import Pushing

    def ask(question: str) -> bool:
        return not call.is_json and Prompt(call.screen.say).confirm(question)

    return Pushing(bool(call.given["push"]), ask)


def _show_fetched(call: Call) -> None:
    """Write the script into a file for the user to put at the address; show the paste for it."""
    from bootstrap.setup.doors import render_fetched

    given = call.given
    if not given["output"]:
        raise UsageError(
            "--url needs --output FILE: the script that you then put at that address.",
            hint="boxstrap oneliner --url https://example.org/box.sh --output box.sh",
        )
    made = render_fetched(call.request(), call.screen, given["url"])
    file = _write(given["output"], made.script)
    call.screen.note(
        "put", f"{file} at {given['url']}, byte for byte; a script that differs is not run"
    )
    data = {"sha256": made.sha256, "written": str(file), "text": made.text}
    call.screen.result(data, made.text.rstrip("\n"))


def _show(call: Call, made: CarriedScript) -> None:
    size = len(made.text.encode())
    if call.given["output"]:
        file = _write(call.given["output"], made.text)
        call.screen.result({**made.data, "bytes": size, "written": str(file)}, f"written: {file}")
    elif call.is_json:
        call.screen.result({**made.data, "bytes": size, "lines": made.text.splitlines()})
    else:
        # Byte for byte, not through the screen, which limits and sanitizes untrusted text.
        sys.stdout.write(made.text)


def _write(name: str, text: str) -> Path:
    file = expanded(name)
    try:
        write_users_file(file, text)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}.", where="--output") from error
    return file
