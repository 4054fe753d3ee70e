"""`boxstrap code`: open the repository on a box in an editor, with its environment's Python."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from bootstrap.editors import jsonc, on_box
from bootstrap.editors.editors import EDITORS, Editor, authority_of, folder_uri
from bootstrap.editors.needs import Lack, lacks
from bootstrap.editors.on_here import update_user_settings
from bootstrap.errors import UsageError
from bootstrap.link.handle import BoxHandle, BoxOptions
from bootstrap.link.tunnel import forwards
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.project import RemoteProject, project_of
from bootstrap.sshconfig import wsl
from bootstrap.sshconfig.alias import update_alias
from bootstrap.sshconfig.entry import is_users_alias
from bootstrap.ui.screen import Screen

_OPENS_WITHIN_S = 30


def open_code(options: BoxOptions, screen: Screen, editor_name: str) -> None:
    """Prepare both sides, then open the editor or print a link. Raises UsageError, as `connect`."""
    editor = EDITORS.get(editor_name)
    if editor is None:
        raise UsageError(
            f"there is no editor {editor_name!r}.",
            where="--editor",
            hint=f"There are: {', '.join(EDITORS)}.",
        )
    with connect(options, screen) as connection:
        work = project_of(connection)
        if connection.box.is_local:
            _open_here(editor, work, screen)
            return
        lacking = _prepare_box(connection, editor, work, screen)
        connection.box.save(connection.box.known)
    host = _host(connection.box, screen)
    _prepare_here(editor, host, screen)
    _open(editor, host, work, lacking, screen)


def _prepare_box(
    connection: BoxConnection, editor: Editor, work: RemoteProject, screen: Screen
) -> list[Lack]:
    """Write the box's settings; returns what the editor's server will lack there."""
    wire = connection.link.wire
    found = on_box.read_state(wire, editor, work.python)
    lacking = lacks(found.facts, forwards=forwards(wire))
    for lack in lacking:
        screen.warn(f"{editor.title} may not work on this box: {lack.says}")
    if not found.has_python:
        screen.warn(f"the environment is not built yet: there is no {work.python}")
    settings, box = f"~/{editor.machine_settings}", connection.box
    ours = box.known.editor_settings
    want = on_box.wanted(work.venv, work.folder)
    try:
        text, kept = on_box.merged(found, want, ours)
    except jsonc.JsoncError as error:
        screen.warn(f"{settings} on the box can't be read ({error}), so it was left as it is")
        return lacking
    for name in kept:
        screen.warn(f"{settings} on the box has its own {name}, so it was left as it is")
    if text != found.settings and not on_box.write(wire, editor, found, text):
        screen.warn(f"{settings} on the box could not be written, so the interpreter is not set")
        return lacking
    values = {on_box.name_of(path): value for path, value in want.values.items()}
    box.save(replace(box.known, editor_settings={**ours, **values}))
    return lacking


def _prepare_here(editor: Editor, host: str, screen: Screen) -> None:
    windows_home: Path | None = None
    if wsl.is_wsl():
        try:
            windows_home = wsl.find_windows().folder.parent
        except wsl.NoWindowsError as error:
            screen.warn(f"{editor.title}'s settings were not found: {error}")
            return
    trouble = update_user_settings(editor, host, windows_home)
    if trouble:
        screen.warn(trouble)


def _open(
    editor: Editor, host: str, work: RemoteProject, lacking: list[Lack], screen: Screen
) -> None:
    authority = authority_of(host)
    uri, link = folder_uri(authority, work.folder), editor.link(authority, work.folder)
    program = shutil.which(editor.name)
    opened = program is not None and _run([program, "--folder-uri", uri], screen)
    words = [f"{editor.title} opens {work.folder} on {host}"]
    if program is None:
        words = [
            f"there is no program {editor.name} here. This link opens {work.folder} "
            f"in {editor.title}:"
        ]
    if not opened:
        words.append(f"  {link}")
    screen.result(
        {
            "editor": editor.name,
            "opened": opened,
            "host": host,
            "folder": work.folder,
            "python": work.python,
            "folder_uri": uri,
            "link": link,
            "lacks": [{"code": lack.code, "says": lack.says} for lack in lacking],
        },
        "\n".join(words),
    )


def _open_here(editor: Editor, work: RemoteProject, screen: Screen) -> None:
    program = shutil.which(editor.name)
    opened = program is not None and _run([program, work.folder], screen)
    screen.result(
        {"editor": editor.name, "opened": opened, "folder": work.folder, "python": work.python},
        f"{editor.title} opens {work.folder}" if opened else work.folder,
    )


def _run(command: list[str], screen: Screen) -> bool:
    """Start the editor; its command-line program normally exits once the window is open."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_OPENS_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True  # some keep running while their window is open
    except OSError as error:
        screen.warn(f"{command[0]} can't be started: {error.strerror}")
        return False
    if done.returncode:
        screen.warn(f"{command[0]} ended with exit code {done.returncode}: {done.stderr[-500:]}")
    return done.returncode == 0


def _host(box: BoxHandle, screen: Screen) -> str:
    """Return the host for the editor: its ssh alias, which has port, key and host key."""
    alias = update_alias(box, screen)
    if alias:
        # URIs are lower-case, and the entries that boxstrap writes match lower case too.
        return alias if is_users_alias(box.known) else alias.lower()
    endpoint = box.endpoint
    if endpoint is None or endpoint.alias != endpoint.hostname:
        return endpoint.alias if endpoint else ""
    port = "" if endpoint.port == 22 else f":{endpoint.port}"
    return f"{endpoint.user}@{endpoint.hostname}{port}"
