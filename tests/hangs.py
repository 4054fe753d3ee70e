"""A test that hangs ends its worker; the report says which it was and what it waited for.

A limit that raises in the test's main thread doesn't end every hang: a `with` that waits for a
thread or a process waits on, and to Hypothesis it is one more failing example.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator
from math import inf
from pathlib import Path
from time import monotonic, sleep, time  # tests put clocks of their own into the module

import psutil
import pytest

from tests.plain_environment import HERE

_FOLDER = "TESTS_HANGS"
"""The variable with the folder in which each worker writes what it waits for."""
_BEGIN = pytest.StashKey[Callable[[], None]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hang-after",
        type=float,
        default=420.0,
        metavar="SECONDS",
        help="with -n: end a test, its fixtures included, that lasts longer",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="boxstrap-hangs-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[_FOLDER])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not hasattr(item.config, "workerinput"):
        return (yield)
    path = Path(os.environ[_FOLDER], item.config.workerinput["workerid"])
    limit, watch = item.config.option.hang_after, _watch(path.with_suffix(".processes"))
    with path.open("w") as stacks:
        # In C, since a test may keep Python's lock.
        begin: Callable[[], None] = functools.partial(
            faulthandler.dump_traceback_later, limit + 1, exit=True, file=stacks
        )
        item.stash[_BEGIN] = begin
        begin()
        watch.limit = monotonic() + limit
        try:
            return (yield)
        finally:
            watch.limit = inf
            faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Begin again: pytest switches it off, and what ends the test may hang too."""
    if _BEGIN in node.stash:
        node.stash[_BEGIN]()


class _Watch(threading.Thread):
    """Writes once, when a test is at its limit, what its processes do."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="hangs", daemon=True)
        self.limit = inf
        self._path = path
        self.start()

    def run(self) -> None:
        while monotonic() < self.limit:
            sleep(0.5)
        _write_processes(self._path)


_watch = functools.cache(_Watch)


def _write_processes(path: Path) -> None:
    """Write which processes this worker started, how old they are, and what each does."""
    lines = []
    for each in psutil.Process().children(recursive=True):
        try:
            age, words = time() - each.create_time(), " ".join(each.cmdline())
            lines.append(f"process {each.pid} {each.status()} {age:.0f} s: {words[:150]!r}")
        except psutil.Error:
            continue
    path.write_text("\n".join(lines))


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Say at once which test hung and where: what runs us may soon be ended too."""
    path = Path(os.environ[_FOLDER], report.node.gateway.id)
    stacks = path.read_text() if path.exists() else ""
    processes = path.with_suffix(".processes")
    lines = [f"{report.longrepr}", *_ours(stacks)]
    if processes.exists():
        lines += processes.read_text().splitlines()[:20]
    report.longrepr = "\n".join(lines)
    print(f"\n{report.longrepr}", flush=True)


def _ours(stacks: str) -> list[str]:
    """Return this repository's frames of each thread, and the innermost if it is another."""
    kept = []
    for thread in stacks.split("\n\n"):
        frames = [line for line in thread.splitlines() if line.startswith("  File ")]
        ours = [line for line in frames if f"{HERE}/tests/" in line or f"{HERE}/bootstrap/" in line]
        kept += [frames[0], *ours] if ours and ours[0] != frames[0] else ours
    return [line.replace(f"{HERE}/", "") for line in kept]
