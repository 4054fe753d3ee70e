"""`boxstrap code`: open the repository on a box in an editor, with its environment's Python.

The supported editors are forks of VS Code and differ only in names, and in where they keep settings
and servers. What their server needs on a box is as VS Code's documentation has it (2026). Settings
are changed so that the editor asks nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from bootstrap.boxes import alias
from bootstrap.boxes.alias import update_alias
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.ssh_config import is_users_alias
from bootstrap.boxes.userfile import LeftAloneError, UserFile
from bootstrap.errors import UsageError
from bootstrap.link.exchange import answer_number, answer_rows, answer_version, run_script
from bootstrap.link.query import build_query
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import Wire
from bootstrap.paths import ask_program
from bootstrap.runs import jsonc
from bootstrap.runs.remote_command import RemoteProject, project_of
from bootstrap.steps.shell import sent_program
from bootstrap.ui.screen import Screen

OLDEST_GLIBC = (2, 28)
OLDEST_KERNEL = (4, 18)
LEAST_FREE_MB = 1000  # room for the server and a few extensions


@dataclass(frozen=True)
class Lack:
    code: str
    says: str


def lacks(facts: Mapping[str, Sequence[str]], *, forwards: bool) -> list[Lack]:
    """List what is missing, worst first. `forwards`: whether the box's sshd allows forwarding."""
    found: list[Lack] = []

    def lack(code: str, says: str) -> None:
        found.append(Lack(code, says))

    if not facts:
        lack("python", "there is no Python 3.8 or later on it to look with")
        return found
    libc, kernel = _one(facts, "libc"), _one(facts, "kernel")
    tools = set(facts.get("tool", ()))
    if not forwards:
        lack("forwarding", "its sshd forbids forwarding: it needs AllowTcpForwarding yes")
    if "musl" in libc.lower():
        lack("glibc", "its C library is musl (Alpine); editors' servers need glibc")
    elif _older(libc, OLDEST_GLIBC):
        lack("glibc", f"its {libc} is too old: 2.28 is needed")
    if _older(kernel, OLDEST_KERNEL):
        lack("kernel", f"its kernel {kernel} is too old: 4.18 is needed")
    if "cxx" not in facts:
        lack("libstdc++", "there is no libstdc++ of GCC 8 or later: install libstdc++6")
    lack_tools = [tool for tool in ("bash", "tar") if tool not in tools]
    for tool in lack_tools:
        lack(tool, f"there is no {tool}: install it")
    if not tools & {"curl", "wget"}:
        lack("curl", "there is neither curl nor wget: install one, or the editor copies its server")
    for folder in facts.get("noexec", ()):
        lack("noexec", f"no program may run in {folder} (noexec)")
    for folder in facts.get("unwritable", ()):
        lack("home", f"{folder} can't be written")
    free = answer_number(_one(facts, "free"))
    if free is not None and free // 1000 < LEAST_FREE_MB:
        lack("disk", f"the home folder has {free // 1000} MB free; a server takes about 1 GB")
    return found


def _one(facts: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(facts.get(name, ())), "")


def _older(text: str, oldest: tuple[int, int]) -> bool:
    """Whether the first version in the text is older than `oldest`; False if it has none."""
    found = re.search(r"[0-9]{1,6}\.[0-9]{1,6}", text)
    return found is not None and answer_version(found[0]) < oldest


_LARGEST = 1_000_000  # most bytes of settings that are read from a box
_PATHS = (
    ("python.defaultInterpreterPath",),
    ("terminal.integrated.env.linux", "PATH"),
    ("terminal.integrated.env.linux", "PROMPT_COMMAND"),
)


@dataclass(frozen=True)
class EditorState:
    facts: Mapping[str, list[str]]
    settings: str = ""  # the text of the settings; empty if there are none
    sum: str = ""  # checksum of the settings, to notice a change before they are written

    @property
    def has_python(self) -> bool:
        return "python" in self.facts


def read_editor_state(wire: Wire, editor: Editor, python: str) -> EditorState:
    """Query the box; nothing is changed."""
    head, _, rest = _asked(wire, editor, python=python).partition(b"settings\n")
    facts: dict[str, list[str]] = {}
    for name, value in answer_rows(head):
        facts.setdefault(name, []).append(value[:500])
    text = rest[: _LARGEST + 1].decode("utf-8", errors="surrogateescape")
    return EditorState(facts, text, next(iter(facts.get("sum", ())), ""))


def wanted_settings(venv: str, folder: str) -> Mapping[tuple[str, ...], str]:
    """Return the settings for an environment; one inside `folder` is named relative to the open
    workspace, so that several repositories can share a box. Some images' start-up files activate
    one of their own, so the first bash prompt activates this one again."""
    inside = venv.startswith(folder + "/")
    place = "${workspaceFolder}" + venv[len(folder) :] if inside else venv
    script = f"{place}/bin/activate"
    once = f'[ -n "$_BOXSTRAP" ] || {{ _BOXSTRAP=1; [ ! -f "{script}" ] || . "{script}"; }}'
    values = (f"{place}/bin/python", f"{place}/bin:${{env:PATH}}", once)
    return dict(zip(_PATHS, values, strict=True))


def merged_settings(
    found: EditorState, want: Mapping[tuple[str, ...], str], ours: Mapping[str, object]
) -> tuple[str, list[str]]:
    """Return the new text of the settings, and the names of settings that somebody else set.

    Those are kept. `ours` has the values written last, under their `setting_name`: these may be
    replaced. Raises jsonc.JsoncError if the settings can't be parsed.
    """
    text, kept = found.settings, []
    before = jsonc.read_jsonc(text)
    for path, value in want.items():
        now = jsonc.value_at(before, path)
        if now is None or now == ours.get(setting_name(path)):
            text = text if now == value else jsonc.with_value(text, path, value)
        elif now != value:
            kept.append(".".join(path))
    return text, kept


def setting_name(path: tuple[str, ...]) -> str:
    """Return the key under which a setting is kept in the box's record."""
    return "/".join(path)


def write_settings(wire: Wire, editor: Editor, found: EditorState, text: str) -> bool:
    """Write the settings; False if they were changed in the meantime, or the disk is full."""
    data = text.encode("utf-8", errors="surrogateescape")
    return b"written" in _asked(wire, editor, data, bytes=len(data), sum=found.sum)


def _asked(wire: Wire, editor: Editor, data: bytes = b"", **asked: object) -> bytes:
    """Return what `onbox/editor.py` answers there."""
    request = json.dumps({"settings": editor.machine_settings, **asked})
    query = build_query("transfer", program=sent_program("onbox/editor.py"), request=request)
    return run_script(wire, query, stdin=data, timeout=60)


_PLATFORM, _EXTENSIONS = "remote.SSH.remotePlatform", "remote.SSH.defaultExtensions"


def update_user_settings(editor: Editor, host: str, windows_home: Path | None = None) -> str:
    """Set in the user's settings that `host` runs Linux, and which extensions it needs. Returns the
    reason for a failure; "" on success, or if the editor was never started here."""
    path = editor.user_settings(windows_home=windows_home)
    if not path.parents[1].is_dir():
        return ""
    file = UserFile(path)
    try:
        text = (file.read() or b"").decode("utf-8")
        new = _merged(text, host)
        if new != text:
            file.prepare(new.encode()).put()
    except (LeftAloneError, UnicodeDecodeError, jsonc.JsoncError) as error:
        why = str(error) if isinstance(error, LeftAloneError) else f"{path} can't be read ({error})"
        asks = f"{editor.title} may ask which system {host} runs: Linux."
        return f"{why}, so it was left as it is. {asks}"
    return ""


def _merged(text: str, host: str) -> str:
    if jsonc.value_at(jsonc.read_jsonc(text), (_PLATFORM, host)) is None:
        text = jsonc.with_value(text, (_PLATFORM, host), "linux")
    for extension in EXTENSIONS:
        text = jsonc.with_item(text, (_EXTENSIONS,), extension)
    return text


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
    with BoxLogin.open(options, screen) as box:
        work = project_of(box)
        if box.is_local:
            _open_here(editor, work, screen)
            return
        lacking = _prepare_box(box, editor, work, screen)
        box.save(box.known)
    host = _host(box, screen)
    _prepare_here(editor, host, screen)
    _open(editor, host, work, lacking, screen)


def _prepare_box(box: BoxLogin, editor: Editor, work: RemoteProject, screen: Screen) -> list[Lack]:
    """Write the box's settings; returns what the editor's server will lack there."""
    from bootstrap.link.tunnel import forwards  # here, since `doctor` reads the table of editors

    wire = box.wire
    found = read_editor_state(wire, editor, work.python)
    lacking = lacks(found.facts, forwards=forwards(wire))
    for lack in lacking:
        screen.warn(f"{editor.title} may not work on this box: {lack.says}")
    if not found.has_python:
        screen.warn(f"the environment is not built yet: there is no {work.python}")
    settings = f"~/{editor.machine_settings}"
    ours = box.known.editor_settings
    want = wanted_settings(work.venv, work.folder)
    try:
        text, kept = merged_settings(found, want, ours)
    except jsonc.JsoncError as error:
        screen.warn(f"{settings} on the box can't be read ({error}), so it was left as it is")
        return lacking
    for name in kept:
        screen.warn(f"{settings} on the box has its own {name}, so it was left as it is")
    if text != found.settings and not write_settings(wire, editor, found, text):
        screen.warn(f"{settings} on the box could not be written, so the interpreter is not set")
        return lacking
    values = {setting_name(path): value for path, value in want.items()}
    box.save(replace(box.known, editor_settings={**ours, **values}))
    return lacking


def _prepare_here(editor: Editor, host: str, screen: Screen) -> None:
    windows_home: Path | None = None
    if alias.is_wsl():
        try:
            windows_home = alias.find_windows().folder.parent
        except alias.NoWindowsError as error:
            screen.warn(f"{editor.title}'s settings were not found: {error}")
            return
    if trouble := update_user_settings(editor, host, windows_home):
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
        done = ask_program(command, _OPENS_WITHIN_S)
    except subprocess.TimeoutExpired:
        return True  # some keep running while their window is open
    except OSError as error:
        screen.warn(f"{command[0]} can't be started: {error.strerror}")
        return False
    if done.returncode:
        screen.warn(f"{command[0]} ended with exit code {done.returncode}: {done.stderr[-500:]}")
    return done.returncode == 0


def _host(box: BoxLogin, screen: Screen) -> str:
    """Return the host for the editor: its ssh alias, which has port, key and host key."""
    if alias := update_alias(box.known, screen, is_noisy=box.state.is_noisy):
        # URIs are lower-case, and the entries that boxstrap writes match lower case too.
        return alias if is_users_alias(box.known) else alias.lower()
    endpoint = box.endpoint
    if endpoint is None or endpoint.alias != endpoint.hostname:
        return endpoint.alias if endpoint else ""
    port = "" if endpoint.port == 22 else f":{endpoint.port}"
    return f"{endpoint.user}@{endpoint.hostname}{port}"


EXTENSIONS = ("ms-python.python",)
"""Extensions that Python training needs; each editor installs them from its own gallery."""


@dataclass(frozen=True)
class Editor:
    name: str  # the name of its program, and the value of `--editor`
    title: str
    scheme: str  # the URI scheme of its links
    config: str  # its folder below the user's configuration folder
    server: str  # the folder of its server, below the home folder on the box

    def link(self, authority: str, folder: str) -> str:
        return f"{self.scheme}://vscode-remote/{_remote(authority, folder)}"

    @property
    def machine_settings(self) -> str:
        """The path of the box's machine settings, relative to the home folder there."""
        return f"{self.server}/data/Machine/settings.json"

    def user_settings(
        self, env: Mapping[str, str] = os.environ, *, windows_home: Path | None = None
    ) -> Path:
        """Return the path of the user's settings on this machine; the file need not exist."""
        return _config(env, windows_home) / self.config / "User" / "settings.json"


EDITORS: Mapping[str, Editor] = {
    editor.name: editor
    for editor in (
        Editor("code", "VS Code", "vscode", "Code", ".vscode-server"),
        Editor("cursor", "Cursor", "cursor", "Cursor", ".cursor-server"),
        Editor("windsurf", "Windsurf", "windsurf", "Windsurf", ".windsurf-server"),
        Editor("codium", "VSCodium", "vscodium", "VSCodium", ".vscodium-server"),
    )
}


def folder_uri(authority: str, folder: str) -> str:
    return f"vscode-remote://{_remote(authority, folder)}"


def authority_of(host: str) -> str:
    """Return the host for a URI; with capitals, which URIs lose, encoded as Remote-SSH does."""
    if host == host.lower():
        return host
    return f'{{"hostName":"{host}"}}'.encode().hex()


def _remote(authority: str, folder: str) -> str:
    return f"ssh-remote+{quote(authority, safe='@:[]')}{quote(folder)}"


def _config(env: Mapping[str, str], windows_home: Path | None) -> Path:
    home = Path(env.get("HOME", "~")).expanduser()
    if windows_home is not None:
        return windows_home / "AppData" / "Roaming"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config")
