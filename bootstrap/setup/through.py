"""`inv render` and `inv oneliner`: what goes through a door, shown or written."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap.errors import UsageError
from bootstrap.paths import expanded, write_users_file
from bootstrap.render.editions import COMPACT, FULL, IN_JSON, MINIMAL
from bootstrap.setup.doorwork import DoorWork, for_door

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxOptions
    from bootstrap.ui.screen import Screen

PASTE_LIMIT = 32 * 1024
MINIMAL_LIMIT = 4048
"""Characters: what Vast.ai's API takes for `onstart`, the narrowest door."""

_USUAL = "vast"
"""Whose boxes have a web terminal to paste into, where the profile does not say."""


def show_rendering(options: BoxOptions, screen: Screen, given: Mapping[str, Any]) -> None:
    """The script for one door, or the readable one. Raises UsageError, ProfileError."""
    if not given["for_"]:
        _show_script(options, screen, given)
        return
    from bootstrap.render.doors import door_named
    from bootstrap.render.through_door import render_door

    door = door_named(given["for_"])
    found = for_door(
        options, screen, provider=door.profile, committed_only=bool(given["committed_only"])
    )
    made = render_door(door.name, found.profile, found.work)
    screen.note("door", f"{door.name}, the {made.edition} script, {made.size:,} bytes")
    screen.note("use", door.use)
    _say_left_out(made.edition, screen)
    _show(
        made.text,
        screen,
        given,
        {"door": door.name, "edition": IN_JSON[made.edition], "limit": door.limit, "use": door.use},
    )


def _show_script(options: BoxOptions, screen: Screen, given: Mapping[str, Any]) -> None:
    from bootstrap.profile.providers import FALLBACK
    from bootstrap.setup.consent import NO_SECRET, load_profile
    from bootstrap.setup.prepare import prepare

    loaded = load_profile(options, kinds=NO_SECRET).for_provider(FALLBACK)
    prepared = prepare(
        loaded,
        options.place,
        local=loaded.profile.name in {"local", "demo"},
        chosen_repo=options.repo is not None,
        committed_only=True,
        with_secrets=False,
    )
    if prepared.warning:
        screen.warn(prepared.warning)
    _show(prepared.script, screen, given, {"door": None, "edition": IN_JSON[FULL]})


def show_paste(options: BoxOptions, screen: Screen, given: Mapping[str, Any]) -> None:
    """One paste for a terminal. Raises UsageError, ProfileError."""
    if sum(bool(given[way]) for way in ("small", "url", "uvx")) > 1:
        raise UsageError("--small, --url and --uvx are three ways: choose one.")
    found = for_door(options, screen, provider=_USUAL, committed_only=bool(given["committed_only"]))
    if given["url"]:
        _show_fetch(found, screen, given)
        return
    if given["uvx"]:
        from bootstrap.render.remote import by_uvx

        text, edition = by_uvx(given["uvx"], found.profile, found.work), FULL
    else:
        text, edition = _pasted(found, small=bool(given["small"]))
        _say_left_out(edition, screen)
    screen.note("paste", f"{len(text):,} characters, the {edition} script")
    _show(text, screen, given, {"edition": IN_JSON[edition]})


def _pasted(found: DoorWork, *, small: bool) -> tuple[str, str]:
    from bootstrap.render.compact import render_compact
    from bootstrap.render.minimal import render_minimal
    from bootstrap.render.pack import paste
    from bootstrap.render.through_door import droppable

    make, edition, limit = (
        (render_minimal, MINIMAL, MINIMAL_LIMIT)
        if small
        else (render_compact, COMPACT, PASTE_LIMIT)
    )
    text = paste(make(found.profile, found.work))
    if len(text) > limit:
        raise UsageError(
            f"the {edition} script has {len(text):,} characters packed; {limit:,} are the limit.",
            hint=f"What could go: {', '.join(droppable(found.profile))}.\n"
            "Or let the box fetch it: boxstrap oneliner --url https://…",
        )
    return text, edition


def _show_fetch(found: DoorWork, screen: Screen, given: Mapping[str, Any]) -> None:
    """The script goes into a file for the person to put at the address; the paste fetches it."""
    from bootstrap.render.carrier import render_carrier
    from bootstrap.render.remote import by_url

    if not given["output"]:
        raise UsageError(
            "--url needs --output FILE: the script that you then put at that address.",
            hint="boxstrap oneliner --url https://example.org/box.sh --output box.sh",
        )
    script = render_carrier(found.profile, found.work)
    digest = hashlib.sha256(script.encode()).hexdigest()
    file = _write(given["output"], script)
    screen.note("put", f"{file} at {given['url']}, byte for byte; what differs is not run")
    text = by_url(given["url"], digest)
    data = {"edition": IN_JSON[FULL], "sha256": digest, "written": str(file), "text": text}
    screen.result(data, text.rstrip("\n"))


def _say_left_out(edition: str, screen: Screen) -> None:
    from bootstrap.render.editions import left_out

    for what in left_out(edition):
        screen.note("without", what)


def _show(text: str, screen: Screen, given: Mapping[str, Any], data: Mapping[str, object]) -> None:
    size = len(text.encode())
    if given["output"]:
        file = _write(given["output"], text)
        screen.result({**data, "bytes": size, "written": str(file)}, f"written: {file}")
    elif given["json_"]:
        screen.result({**data, "bytes": size, "lines": text.splitlines()})
    else:
        # Ours, byte for byte: what a screen bounds and cleans are the words of strangers.
        sys.stdout.write(text)


def _write(name: str, text: str) -> Path:
    file = expanded(name)
    try:
        write_users_file(file, text)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}.", where="--output") from error
    return file
