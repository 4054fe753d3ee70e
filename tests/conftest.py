"""Shared by all tests: a home separate from the real user's, and boxes."""

import atexit
import contextlib
import faulthandler
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key, get_timeout_config_value
from _pytest.unraisableexception import gc_collect_iterations_key

from tests.boxes import places
from tests.boxes.fixtures import *  # noqa: F403 - fixtures, and what counts the tests left out
from tests.cli import User, close_shared
from tests.forked import SHARED, start_server
from tests.plain_environment import forget_settings, measuring, plain_environment

# The table of faults, and `--seed`; `--second-try`.
pytest_plugins = ["tests.faults.plugin", "tests.second_try"]

# Before any of our programs starts, including what a session shares. (PYTHONDONTWRITEBYTECODE is
# removed too: uncompiled modules make each start of a program take three times as long.)
forget_settings(os.environ, kept="BOXSTRAP_RIG_")
# Layers of boxes are kept for the next run; a test's own home would hide them.
if os.geteuid() == 0:
    os.environ["BOXSTRAP_RIG_CACHE"] = str(places.cache())

MOST_USED = ("vast", "nosudo", "bare", "lambda", "runpod")
"""Kinds of boxes, in the order in which tests want them."""

# What starts us in the background may ignore it, and so would every program that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Collected tests stay to the end: searching them for garbage took a tenth of each worker's time.
gc.disable()

hypothesis.settings.register_profile("ours", deadline=None, print_blob=True, max_examples=40)
hypothesis.settings.register_profile(
    "every", hypothesis.settings.get_profile("ours"), max_examples=100
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[gc_collect_iterations_key] = 0  # two at its end take a second, for nothing
    if getattr(config.option, "numprocesses", None) and SHARED not in os.environ:
        os.environ[SHARED] = start_server()
        if not config.option.file_or_dir and (memory := places.memory()):
            # A disk takes processor time too; nobody reads the files of so many tests.
            config.option.basetemp = tempfile.mkdtemp(prefix="t-", dir=memory)  # for sockets: short
            atexit.register(shutil.rmtree, config.option.basetemp, ignore_errors=True)
        if os.geteuid() == 0 and not config.option.file_or_dir:
            # Else the first tests with boxes, on all workers, would wait for these.
            build = [sys.executable, "-m", "tests.boxes", "build", *MOST_USED]
            os.posix_spawn(sys.executable, build, os.environ)
    if measuring():
        import_module("tests.coverage").use_whole_programs()
    hypothesis.settings.load_profile("every" if config.option.every else "ours")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """For whole folders, let each worker import another part first: otherwise all compile all."""
    config = session.config
    worker = getattr(config, "workerinput", None)
    folders = [config.rootpath / folder for folder in config.option.file_or_dir or ("tests",)]
    if worker is None or not all(folder.is_dir() for folder in folders):
        return
    files = sorted(file for folder in folders for file in folder.glob("**/test_*.py"))
    for file in files[int(worker["workerid"][2:]) :: worker["workercount"]]:
        name = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # reported at collection
            import_module(name)


@pytest.hookimpl(specname="pytest_collection_modifyitems")
def pytest_mix_of_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, spread unit tests among those with boxes, some of which wait long.

    What may last long begins before the last eighth, so that no worker is left alone with it; and
    boxes once the first of their file systems may be there.
    """
    if not hasattr(config, "workerinput"):
        return
    files = list(dict.fromkeys(item.path for item in items))
    long = {item.path for item in items if item.get_closest_marker("slow")}
    others = [file for file in files if "unit" not in file.relative_to(config.rootpath).parts]
    slow = [file for file in files if file in long and file not in others]
    quick = [file for file in files if file not in long and file not in others]
    parts = ((quick, 0, 1), (slow, 0, 7 / 8), (others, 1 / 4, 7 / 8))
    place = {
        file: begin + (end - begin) * at / len(part)
        for part, begin, end in parts
        for at, file in enumerate(part)
    }
    items.sort(key=lambda item: (place[item.path], item.path))


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Watch for a hang again: pytest stops that, and what ends the test may hang too."""
    limit = get_timeout_config_value(node.config)
    if limit and isinstance(node, pytest.Item):
        out = node.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(limit, exit=True, file=out)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)  # as in boxstrap itself
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write tests/golden anew from what is rendered now; then read the difference",
    )
    parser.addoption(
        "--provider", help="tests/providers/test_any_provider.py: this one, as of another package"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests that share a box on one worker, so that it is set up once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByBox(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            shared = next(filter(None, (pattern.match(nodeid) for pattern in _SHARING)), None)
            return "".join(part or "" for part in shared.groups()) if shared else nodeid

        def _reschedule(self, node: Any) -> None:
            # xdist gives work to what replaces a crashed worker before it knows its tests.
            if node not in self.registered_collections:
                return
            super()._reschedule(node)
            # A worker runs its last test when told that no other follows: xdist leaves what
            # replaces a crashed worker with one, or with a unit of none.
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

        def remove_node(self, node: Any) -> Any:
            # xdist would run what crashed a worker again, on the next one.
            units = self.assigned_work[node]
            undone = ((unit, name) for unit in units.values() for name in unit if not unit[name])
            if crashed := next(undone, None):
                unit, name = crashed
                del unit[name]
            super().remove_node(node)
            return name if crashed else None

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            # xdist recounts finished scopes after each test: thousands of them, thousands of times.
            units = self.assigned_work[node]
            for scope in [scope for scope, unit in units.items() if all(unit.values())]:
                del units[scope]

    return ByBox(config, log)


# Tests with the same groups share something: the module, and for example the kind of box.
_SHARING = tuple(
    map(
        re.compile,
        (
            r"(tests/main_job/test_(?:fresh|local|after|ssh_config|code|whose|enter|run|pull)\.py)"
            r"::[^\[]*(\[.*\])?$",
            r"(tests/smoke/test_smoke\.py|tests/packaging/test_wheel\.py)::",
            r"(tests/unit/(?:renting/test_unsafe|setup/test_doors|transfer/test_buckets)\.py)::",
            r"(tests/(?:main_job/test_(?:nodes|sync|several)|faults/test_several)\.py)::",
            r"(tests/(?:unit/onbox/test_upload_results|hostile/test_box_output)\.py)::",
            r"(tests/smoke/test_backends\.py)::[^\[]*(\[(?:torch|numpy)\])$",
            r"(tests/faults/test_kills\.py)::[^\[]*\[(\d+)-",
            r"(tests/faults/test_mending\.py)::[^\[]*damage",
        ),
    )
)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for homes. pytest's own numbering scans all folders made before."""
    folder = tmp_path_factory.mktemp("h", numbered=False)
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep tests away from the home, the state and the configuration of the real user."""
    home = next(homes)
    home.mkdir()
    for name, value in plain_environment(home).items():
        if name.startswith(("HOME", "PATH", "XDG_", "GIT_", "BOXSTRAP_")):
            monkeypatch.setenv(name, value)
    return home


@pytest.fixture
def user(own_home: Path) -> User:
    """A user who types commands in that home."""
    return User(own_home)


@pytest.fixture
def keeps_open(user: User) -> Iterator[None]:
    """That user's connections stay open after each command, until the end of the test."""
    user.env["BOXSTRAP_KEEP_OPEN"] = "2m"
    with tempfile.TemporaryDirectory(prefix="bx-") as short:  # a socket's path must be
        user.env["XDG_STATE_HOME"] = short
        yield
        close_shared(user.env)
