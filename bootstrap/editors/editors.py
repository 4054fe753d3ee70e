"""The supported editors: their names, and where they keep settings and servers.

Sources: VS Code's documentation of its command line, remote settings and links.
The other editors are forks of VS Code and differ only in these names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

EXTENSIONS = ("ms-python.python",)
"""Extensions that Python training needs; each editor installs them from its own gallery."""


@dataclass(frozen=True)
class Editor:
    """One supported editor."""

    name: str
    """The name of its program, and the value of `--editor`."""
    title: str
    scheme: str
    """The URI scheme of its links."""
    config: str
    """Its folder below the user's configuration folder."""
    server: str
    """The folder of its server, below the home folder on the box."""

    def link(self, authority: str, folder: str) -> str:
        """Return the link that opens `folder` in the editor, from a browser or a chat."""
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
    """Return the URI of the folder, for `--folder-uri`."""
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
