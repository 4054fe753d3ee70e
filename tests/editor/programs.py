"""The programs of the proof: a VS Code server that a package registry carries, and a browser.

code-server is VS Code's own server with a door for browsers. Its parts that are
compiled are those that a terminal needs; what would be fetched from elsewhere
(a search program, Kerberos) is left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.boxes import places

PACKAGES = ("code-server@4.100.3", "playwright-core@1.57.0")
"""The newest code-server for Node 20, which Debian and its relatives have."""
COMPILED = ("node-pty", "@vscode/spdlog", "native-watchdog", "@parcel/watcher")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class MissingError(Exception):
    """A program that the proof needs is not here."""


def need(*names: str) -> str:
    """The path of the first of these programs that is here. Raises MissingError."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise MissingError(f"{names[0]} is not installed: apt-get install {names[0]}")


def install() -> Path:
    """The folder with the packages; made once, and kept beside the rig's layers."""
    folder = places.cache() / ("editor-" + "-".join(p.replace("@", "-") for p in PACKAGES))
    if (folder / "done").exists():
        return folder
    npm = need("npm")
    need("make")
    need("g++")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    quiet = ["--no-audit", "--no-fund", "--loglevel", "error"]
    _run([npm, "install", "--prefix", str(folder), "--ignore-scripts", *quiet, *PACKAGES], folder)
    _run([npm, "rebuild", "argon2", *quiet], folder)
    server = server_folder(folder) / "lib" / "vscode"
    _run([npm, "install", "--ignore-scripts", "--omit=dev", "--legacy-peer-deps", *quiet], server)
    for module in COMPILED:
        # The last script of one writes a file for its own developers, and may fail.
        _run([npm, "rebuild", module, *quiet], server, check=module != "node-pty")
    if not list(server.glob("node_modules/node-pty/build/Release/pty.node")):
        raise MissingError("node-pty could not be compiled: a terminal needs it")
    (folder / "done").touch()
    return folder


def server_folder(folder: Path) -> Path:
    """Where code-server lies."""
    return folder / "node_modules" / "code-server"


def _run(command: list[str], cwd: Path, *, check: bool = True) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "CI": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        raise MissingError(
            f"{' '.join(command[:4])}: exit {done.returncode}\n{done.stderr[-2000:]}"
        )
