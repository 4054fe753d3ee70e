"""The program `boxstrap`: the same tasks as `inv`, anywhere."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


def _leave_out_this_folder() -> None:
    """Import nothing from the current folder, which may be a repository with a `yaml.py`.

    Only if it holds this package, as in a checkout, does it stay.
    """
    try:
        here = os.path.realpath(os.curdir)
    except OSError:  # it was removed
        return
    if here != os.path.realpath(Path(__file__).parents[1]):
        sys.path[:] = [path for path in sys.path if os.path.realpath(path) != here]


_leave_out_this_folder()

# Imports create long-lived objects and little garbage: collecting took an eighth of the start.
gc.set_threshold(100_000, 50, 50)


class _Later(ModuleType):
    """Stands in for a module during another import; calling one of its functions imports it."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):  # imports look for these
            raise AttributeError(name)

        def call(*given: object, **named: object) -> object:
            return getattr(import_module(self.__name__), name)(*given, **named)

        return call


def _import_invoke() -> None:
    """Import Invoke without a mock library, and without its own YAML for configuration files.

    No task uses the first, few users have such files, and the two take half of the import's time.
    """
    later = {name: _Later(name) for name in ("unittest.mock", "invoke.vendor.yaml")}
    wanted = {name: module for name, module in later.items() if name not in sys.modules}
    sys.modules.update(wanted)
    import_module("invoke")
    for name in wanted:
        del sys.modules[name]


def _postpone_methods_of_dataclasses() -> None:
    """Let what `dataclass` adds to a class be compiled when it is first called.

    Most of it never is, and compiling it took a quarter of a start. From Python 3.13 on, which
    compiles it much faster, there is no such function.
    """
    create = vars(dataclasses).get("_create_fn")
    if not create:
        return

    def postpone(name: str, *given: object, **named: object) -> Callable[..., Any]:
        made: Callable[..., Any] | None = None

        def method(self: object, *args: object, **options: object) -> object:
            nonlocal made
            if made is None:
                made = create(name, *given, **named)
                made.__qualname__ = method.__qualname__
                for each in type(self).__mro__:
                    if vars(each).get(name) is method:
                        setattr(each, name, made)
            return made(self, *args, **options)

        method.__name__ = name
        return method

    vars(dataclasses)["_create_fn"] = postpone


_postpone_methods_of_dataclasses()
_import_invoke()

from bootstrap import __version__  # noqa: E402
from bootstrap.errors import UNREAD, write_error  # noqa: E402
from bootstrap.tasks import namespace  # noqa: E402
from bootstrap.tasks.program import BoxProgram  # noqa: E402

program = BoxProgram(version=__version__, namespace=namespace, name="boxstrap", binary="boxstrap")


def main() -> None:
    """Run the task that was typed, and exit with the documented code."""
    code: str | int | None = 0
    try:
        try:
            program.run()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError as error:  # the reader of the output is gone (`| head`)
        untold = getattr(error.__context__, "code", None)  # of the Exit that was being printed
        code = code or untold or UNREAD
    except OSError as error:  # such as a full disk
        if not code:
            code = 1
            sys.stderr.write(f"{write_error('the output', error)}\n")
    if "bootstrap.repo.git" in sys.modules:
        sys.modules["bootstrap.repo.git"].remove_git_dirs()
    if "bootstrap.link.shared" in sys.modules:  # it has its answer: now there is time
        sys.modules["bootstrap.link.shared"].open_offered()
    # Tearing down the modules takes a tenth of a second, and there is nothing left to save.
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
