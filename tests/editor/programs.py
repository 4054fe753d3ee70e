"""The program of the proof: a VS Code server that a package registry carries.

code-server is VS Code's own server with a door for browsers. Its parts that are
compiled are those that a terminal needs; what would be fetched from elsewhere
(a search program, Kerberos) is left out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests import browser
from tests.boxes import places
from tests.browser import MissingError, need, run_npm

PACKAGE = "code-server@4.100.3"
"""The newest for Node 20, which Debian and its relatives have."""
COMPILED = ("node-pty", "@vscode/spdlog", "native-watchdog", "@parcel/watcher")


def install() -> Path:
    """The folder with the server; made once, and kept beside the rig's layers."""
    folder = places.cache() / f"editor-{PACKAGE.replace('@', '-')}"
    if (folder / "done").exists():
        return folder
    need("make")
    need("g++")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    browser.install(folder, PACKAGE)
    run_npm(["rebuild", "argon2"], folder)
    server = server_folder(folder) / "lib" / "vscode"
    run_npm(["install", "--ignore-scripts", "--omit=dev", "--legacy-peer-deps"], server)
    for module in COMPILED:
        # The last script of one writes a file for its own developers, and may fail.
        run_npm(["rebuild", module], server, check=module != "node-pty")
    if not list(server.glob("node_modules/node-pty/build/Release/pty.node")):
        raise MissingError("node-pty could not be compiled: a terminal needs it")
    (folder / "done").touch()
    return folder


def server_folder(folder: Path) -> Path:
    """Where code-server lies."""
    return folder / "node_modules" / "code-server"
