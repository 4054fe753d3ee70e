"""A headless Chromium for proofs; a script for Node drives it, by Playwright.

    require('../browser/page').withPage(async (page) => { … })

is such a script (page.js), and `browse(Path("look.js"), url)` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.boxes import places

PACKAGE = "playwright-core@1.57.0"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class MissingError(Exception):
    """A program that a proof needs is not here."""


def need(*names: str) -> str:
    """The path of the first of these programs that is here. Raises MissingError."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise MissingError(f"{names[0]} is not installed: apt-get install {names[0]}")


def browse(
    script: Path, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 300
) -> str:
    """What the script prints. Raises MissingError; AssertionError where it fails."""
    node, browser, programs = need("node"), need(*BROWSERS), _playwright()
    with tempfile.TemporaryDirectory(prefix="browser-") as profile:
        own = {"BROWSER": browser, "BROWSER_PROFILE": profile}
        done = subprocess.run(
            [node, script, *arguments],
            env={**(env or os.environ), **own, "NODE_PATH": str(programs / "node_modules")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    assert done.returncode == 0, f"{script.name}: exit {done.returncode}\n{done.stderr}"
    return done.stdout


def install(folder: Path, *packages: str) -> None:
    """Packages of npm, without what their own scripts would do. Raises MissingError."""
    run_npm(["install", "--prefix", str(folder), "--ignore-scripts", *packages], folder)


def run_npm(words: list[str], cwd: Path, *, check: bool = True) -> None:
    """npm, quietly. Raises MissingError."""
    quiet = ["--no-audit", "--no-fund", "--loglevel", "error"]
    done = subprocess.run(
        [need("npm"), *words, *quiet],
        cwd=cwd,
        env={**os.environ, "CI": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode:
        raise MissingError(
            f"npm {' '.join(words[:4])}: exit {done.returncode}\n{done.stderr[-2000:]}"
        )


def _playwright() -> Path:
    """The folder with Playwright; made once, and kept beside the rig's layers."""
    folder = places.cache() / f"browser-{PACKAGE.replace('@', '-')}"
    with places.locked(folder.with_suffix(".lock")):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            install(folder, PACKAGE)
            (folder / "done").touch()
    return folder
