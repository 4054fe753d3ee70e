"""Install the program of the proof: a VS Code server from a package registry.

code-server is VS Code's own server, made usable from a browser. Only the parts
that a terminal needs are compiled; what would be fetched from elsewhere
(a search program, Kerberos) is left out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.boxes import places
from tools import browser
from tools.browser import MissingError, need, run_npm

PACKAGE = "code-server@4.100.3"
"""The newest version for Node 20, which Debian and its derivatives have."""
COMPILED = ("node-pty", "@vscode/spdlog", "native-watchdog", "@parcel/watcher")


def install() -> Path:
    """Return the folder with the server; it is made once, and kept next to the rig's layers."""
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
        # node-pty's last script writes a file for its own developers, and may fail.
        run_npm(["rebuild", module], server, check=module != "node-pty")
    if not list(server.glob("node_modules/node-pty/build/Release/pty.node")):
        raise MissingError("node-pty could not be compiled: a terminal needs it")
    (folder / "done").touch()
    return folder


def server_folder(folder: Path) -> Path:
    """Return the folder of code-server."""
    return folder / "node_modules" / "code-server"
