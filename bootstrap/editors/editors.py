"""The editors, as data: what they are called, and where they keep what.

Sources: VS Code's documents on its command line, remote settings and links; the
others are made of its code and differ in these names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

EXTENSIONS = ("ms-python.python",)
"""What a training in Python wants; each editor finds it in its own gallery."""


@dataclass(frozen=True)
class Editor:
    """One of them."""

    name: str
    """Its program, and what `--editor` takes."""
    title: str
    scheme: str
    """Of its links."""
    config: str
    """Its folder below the user's configuration folder."""
    server: str
    """The folder of its server, below the home folder on the box."""

    def link(self, authority: str, folder: str) -> str:
        """What a browser or a chat hands to the editor."""
        return f"{self.scheme}://vscode-remote/{_remote(authority, folder)}"

    @property
    def machine_settings(self) -> str:
        """The settings of the box, below the home folder there."""
        return f"{self.server}/data/Machine/settings.json"

    def user_settings(
        self, env: Mapping[str, str] = os.environ, *, windows_home: Path | None = None
    ) -> Path:
        """The user's settings on this machine, whether they are there or not."""
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
    """The folder as `--folder-uri` takes it."""
    return f"vscode-remote://{_remote(authority, folder)}"


def authority_of(host: str) -> str:
    """The host in a URI. Where it has capitals, which URIs lose, as Remote-SSH writes it itself."""
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
