"""What the shell offers when Tab is pressed: tasks, options, and values that this machine knows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from invoke.tasks import Task

from bootstrap.tasks.command import BoxTask, Option


def _boxes() -> Iterable[str]:
    from bootstrap.link.record import all_boxes

    return (box.name for box in all_boxes())


def _runs() -> Iterable[str]:
    """Runs of boxes that are here, and runs at home, as this machine knows them."""
    from bootstrap.boxes.at_home import all_kept, seen_on
    from bootstrap.link.record import all_boxes

    seen = (one.run.name for box in all_boxes() for one in seen_on(box))
    return {*seen, *(one.run.name for one in all_kept())}


def _profiles() -> Iterable[str]:
    from bootstrap.profile.load import listed

    return (item.name for item in listed())


def _steps() -> Iterable[str]:
    from bootstrap.plan import STEPS

    return (step.name for step in STEPS)


def _doors() -> Iterable[str]:
    from bootstrap.render.door_table import DOORS

    return DOORS


def _providers() -> Iterable[str]:
    from bootstrap.providers import NAMES

    return NAMES


def _editors() -> Iterable[str]:
    from bootstrap.editors import EDITORS

    return EDITORS


VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    "host": _boxes,
    "forget": _boxes,
    "run": _runs,
    "resume": _runs,
    "after": _runs,
    "after_any": _runs,
    "profile": _profiles,
    "show": _profiles,
    "validate": _profiles,
    "step": _steps,
    "redo": _steps,
    "for_": _doors,
    "provider": _providers,
    "editor": _editors,
}
"""The values of an option that are known without asking a box; other values are left to the
shell, which offers files."""


def candidates(line: str, families: Mapping[str, Sequence[Task[Any]]]) -> list[str]:
    """Return what may stand where the cursor is, at the end of a command line.

    `line` begins with the program's name. What the user has begun to type is in it, too; the
    shell compares it with what is returned.
    """
    tasks = {str(task.name).replace("_", "-"): task for task in chain(*families.values())}
    words = _words(line)[1:]
    name = next((word for word in words if word in tasks), "")
    task = tasks.get(name)
    options = task.options if isinstance(task, BoxTask) else ()
    if not name:
        return [*tasks, "help"]
    behind = words[words.index(name) + 1 :]
    if "--" in behind:
        return []  # a command of the user's own: files
    flags = {flag: option for option in options for flag in _flags(option)}
    for word in behind[-1:-3:-1]:  # the value's option is the last word, or the one before
        option = flags.get(word.partition("=")[0])
        if option is not None and option.default is not False:
            return _values(option)
    bare = next((option for option in options if option.bare), None)
    begins_option = behind[-1:] and behind[-1].startswith("-")
    return [*(_values(bare) if bare and not begins_option else ()), *flags]


def _values(option: Option) -> list[str]:
    return sorted(VALUES[option.name]()) if option.name in VALUES else []


def _flags(option: Option) -> list[str]:
    long = f"--{option.name.rstrip('_').replace('_', '-')}"
    return [long, f"-{option.short}"] if option.short else [long]


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # inside quotes
        return line.split()
