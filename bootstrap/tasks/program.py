"""Invoke's Program, with only the options that make sense here, its own help and its own
completion.

`inv` has created its Program before it finds boxstrap's tasks, so that instance gets this class
(docs/adr/0003-invoke.md). Help is in our own words and layout. Tab offers tasks, options, and
values that this machine knows.
"""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from invoke.exceptions import Exit
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.tasks import Task

from bootstrap.errors import UNREAD
from bootstrap.tasks.command import BOX, BoxTask, Option, leave_unread
from bootstrap.tasks.effects import EFFECTS
from bootstrap.tasks.usage import WITH_COMMAND, WrongUsageError, looks_like_a_host, told_as_json

IGNORED = {
    "command-timeout",
    "config",
    "echo",
    "hide",
    "prompt-for-sudo-password",
    "pty",
    "warn-only",
}
"""Options about commands that Invoke runs; no task here lets Invoke run any."""
_SHOWN = {"help", "list", "dry", "version"}
"""Options of the program that help names; Invoke's others mean nothing to people here."""
_FORMATS = ("flat", "nested", "json")


class BoxProgram(Program):
    """The Program of `boxstrap`, and of `inv` once it has found boxstrap's tasks."""

    families: Mapping[str, Sequence[Task[Any]]] = {}
    """The tasks by what they are for, in the order of `--list`."""

    def core_args(self) -> list[Argument]:
        """As Invoke's, with the meaning of --dry here, and with two of our own."""
        found: list[Argument] = super().core_args()
        found += [
            Argument(names=("directory", "C"), kind=str, help="Work as if started in this folder."),
            Argument(
                names=("no-color",), kind=bool, default=False, help="No colours, as NO_COLOR=1."
            ),
        ]
        for argument in found:
            if argument.name == "dry":
                argument.help = "Show what a setup would do; changes nothing."
            if argument.name == "help":
                argument.help = "Show this help, or that of a command."
            if argument.name == "list":
                argument.help = "List the commands."
        return found

    def _make_parser(self) -> Parser:
        """As Invoke's, but only with the named tasks: it copies each option of each task that it
        gets, which took a tenth of the time of most commands."""
        if self.args.complete.value:
            return super()._make_parser()
        typed = " ".join(self.core.unparsed + sys.argv)
        return Parser(
            initial=self.initial_context,
            contexts=[
                ParserContext(name, aliases, self.collection[name].get_arguments())
                for name, aliases in self.collection.task_names.items()
                if any(each in typed for each in (name, *aliases))
            ],
        )

    def parse_core(self, argv: list[str] | None) -> None:
        """As Invoke's. Of `inv` this class comes too late for it."""
        with told_as_json():
            super().parse_core(argv)

    def parse_cleanup(self) -> None:
        """As Invoke's; raises WrongUsageError also for what Invoke ignores or exits with 1 for."""
        with told_as_json():
            self._check_core()
        try:
            super().parse_cleanup()
        except Exit as end:
            raise _told(end) from None

    def _heed_own(self) -> None:
        """Do what our own options of the program say; `inv` was parsed without them."""
        if "directory" in self.args and (folder := self.args.directory.value):
            try:
                os.chdir(folder)
            except OSError as error:
                raise WrongUsageError(f"-C: no such folder: {folder} ({error.strerror})") from None
        if "no-color" in self.args and self.args["no-color"].value:
            os.environ["NO_COLOR"] = "1"

    def _check_core(self) -> None:
        self._heed_own()
        for name in sorted(IGNORED):
            if self.args[name].got_value:
                raise WrongUsageError(
                    f"--{name} (of Invoke) says how commands of tasks are run; "
                    "boxstrap's tasks have none, so it has no effect. Leave it out."
                )
        about, listed = self.args.help.value, self.args.list.value
        if isinstance(about, str) and about not in self.parser.contexts:
            raise WrongUsageError(f"No idea what {about!r} is!")
        if isinstance(listed, str):
            raise WrongUsageError(f"--list: there is no collection {listed!r}.")
        if (form := self.args["list-format"].value) not in _FORMATS:
            raise WrongUsageError(f"--list-format is one of {', '.join(_FORMATS)}, not {form!r}.")
        if self.args.complete.value:
            print("\n".join(candidates(self.core.remainder, self.families)))  # noqa: T201
            raise Exit

    def parse_tasks(self) -> None:
        """As Invoke's, with words that stand for options: a task's bare option, help, version."""
        words = self.core.unparsed
        if words[:1] == ["help"]:
            self._print_topic(words[1:])
            self.args.help.set_value(words[1] if len(words) > 1 else True, cast=False)
            words = words[1:2]
        elif words == ["version"]:
            self.print_version()
            raise Exit
        self.core.unparsed = with_options(words, self.families)
        with told_as_json():
            super().parse_tasks()

    def execute(self) -> None:
        """As Invoke's; an error that nobody reads any more keeps its exit code."""
        try:
            super().execute()
        except Exit as end:
            raise _told(end) from None

    def _print_topic(self, words: list[str]) -> None:
        """Print the help of a topic and exit, unless it is a command that help is wanted of."""
        from bootstrap.tasks.topics import find_topic, near

        commands = [_name(task) for task in chain(*self.families.values())]
        if not words or words[0] in commands:
            return
        title, rows = find_topic(words[0])
        if rows:
            print("\n".join([*([title, ""] if title else []), *columns(rows)]))  # noqa: T201
            raise Exit
        meant = near(words[0], commands)
        hint = f"Did you mean {meant}?" if meant else "The topics: boxstrap help"
        raise WrongUsageError(f"there is no help on {words[0]!r}. {hint}")

    def print_help(self) -> None:
        """Print the tasks by families, and the program's options that have a meaning here."""

        shown = [argument for argument in self.core_args() if argument.name in _SHOWN]
        rows = ParserContext(args=shown).help_tuples()
        print(program_help(self.binary, self.families, rows))  # noqa: T201

    def print_task_help(self, name: str) -> None:
        """Print the help of one task."""

        print(task_help(self.binary, self.collection[name]))  # noqa: T201

    def list_flat(self) -> None:
        """Print the tasks by families."""

        print(family_list(self.families))  # noqa: T201


def _told(end: Exit) -> Exit:
    """Print what a command ends with; return its end, without a message."""
    code = end.code
    try:
        if end.message:
            print(end.message, file=sys.stderr, flush=True)  # noqa: T201
        elif not code:
            sys.stdout.flush()
    except BrokenPipeError:
        leave_unread()
        code = code or UNREAD
    return Exit(code=code)


def with_options(words: list[str], families: Mapping[str, Sequence[Task[Any]]]) -> list[str]:
    """Return a task and its words, with the task's bare option added to words without one."""
    tasks = chain(*families.values())
    task = next((one for one in tasks if one.name.replace("_", "-") in words[:1]), None)
    bare = getattr(task, "bare", "")
    if task is None or not bare:
        return words
    flags = ParserContext(args=task.get_arguments()).flags
    found, value_follows, room = words[:1], False, True
    for word in words[1:]:
        is_bare = room and not word.startswith("-") and not value_follows
        is_bare = is_bare and not (bare == "--run" and _is_a_box(word))
        found.append(f"{bare}={word}" if is_bare else word)
        room = room and (not is_bare or flags[bare].kind is list)
        value_follows = not value_follows and word in flags and flags[word].takes_value
    return found


def _is_a_box(word: str) -> bool:
    """Whether a word is no run's name, but a host or the name of a known box."""
    from bootstrap.link.record import NAME, boxes_folder

    is_name = NAME.fullmatch(word) is not None
    return looks_like_a_host(word) or (is_name and (boxes_folder() / word).is_dir())


def open_streams() -> None:
    """Open the standard streams that this program was started without (`>&-`).

    Else the next file that is opened gets such a number, and what is printed. Of a closed standard
    output the reader is gone; what would be said on a closed standard error is dropped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            reading, writing = os.pipe()
            opened = os.open(os.devnull, os.O_RDWR) if number != 1 else writing
            if opened != number:
                os.dup2(opened, number)
            for each in {reading, writing, opened} - {number}:
                os.close(each)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def use_box_program(families: Mapping[str, Sequence[Task[Any]]]) -> None:
    """Make the running Program, of `inv` or of `boxstrap`, a BoxProgram with these families."""
    BoxProgram.families = families
    open_streams()
    running = sys.modules.get("invoke.main")
    if running is not None:
        running.program.__class__ = BoxProgram


Families = Mapping[str, Sequence[Task[Any]]]
"""The tasks by what they are for, in the order in which they are listed."""

_MOST = 100
"""Columns that are used at the most: longer lines are harder to read."""
_LEAST = 40
_LABEL = 28
"""Columns for an option; the text about a longer one begins on the next line."""
_BOX = frozenset(option.name for option in BOX)
_VALUES = {
    "set_": "KEY=VALUE",
    "identity": "FILE",
    "host_key": "SHA256:…",
    "consent": "DIGEST",
    "out": "FILE",
    "output": "FILE",
    "report": "FILE",
    "to": "FOLDER",
    "write": "FOLDER",
    "path": "PATH",
    "exclude": "PATTERN",
    "max_size": "SIZE",
    "max_price": "DOLLARS",
    "limit": "DOLLARS",
    "wait": "SECONDS",
    "wait_offer": "TIME",
    "every": "SECONDS",
    "looks": "COUNT",
    "gpus": "0,1",
    "since": "TIME",
    "for_": "DOOR",
    "hosts": "GROUP",
    "group": "GROUP",
    "sweep": "FILE",
    "give_up": "BOX",
    "url": "ADDRESS",
    "after": "RUN",
    "after_any": "RUN",
    "resume": "RUN",
    "forget": "BOX",
    "show": "PROFILE",
    "validate": "PROFILE",
    "redo": "STEP",
}
"""What stands for an option's value; for any other option its name."""


def width() -> int:
    """Return the columns of a help text: those of the terminal, within reason."""
    return max(_LEAST, min(_MOST, shutil.get_terminal_size((80, 24)).columns - 1))


def program_help(binary: str, families: Families, core: Iterable[tuple[str, str | None]]) -> str:
    """Return the help of the program; `core` has its own options with their texts."""
    from bootstrap.tasks.topics import TOPICS

    usage = [f"Usage: {binary} COMMAND [OPTIONS]", f"       {binary} COMMAND --help"]
    own = ["Options of the program, before COMMAND:", *columns(core)]
    more = ["More, by help TOPIC (or a profile's key):"]
    more += columns((name, title) for name, (title, _) in TOPICS.items())
    parts = ["\n".join(usage), family_list(families), "\n".join(more), "\n".join(own)]
    return "\n\n".join(parts)


def family_list(families: Families) -> str:
    """Return each family with a line, or a few, for each of its tasks."""
    label = 2 + max(len(_name(task)) for tasks in families.values() for task in tasks)
    parts = []
    for title, tasks in families.items():
        rows = [(_name(task), _first_line(task)) for task in tasks]
        parts.append("\n".join([f"{title}:", *columns(rows, label)]))
    return "\n\n".join(parts)


def task_help(binary: str, task: Task[Any]) -> str:
    """Return the help of one task: its own options first, then those about the box."""
    options = task.options if isinstance(task, BoxTask) else ()
    own = [option for option in options if option.name not in _BOX]
    box = [option for option in options if option.name in _BOX]
    text = textwrap.indent(inspect.getdoc(task) or "", "  ").splitlines()
    folded = [line for each in text for line in _fold(each)]
    effect = EFFECTS[_name(task)].sentence if _name(task) in EFFECTS else ""
    folded += [line for each in filter(None, [effect]) for line in _fold(f"  {each}")]
    parts = [_usage(binary, task, options), "\n".join(folded)]
    for title, group in (("Options", own), ("The box, its profile, the output", box)):
        if group:
            parts.append("\n".join([f"{title}:", *columns(map(_option_row, group))]))
    return "\n\n".join(parts)


def columns(rows: Iterable[tuple[str, str | None]], label: int = _LABEL) -> list[str]:
    """Lay out names and texts in two columns; a text is folded to the width."""
    lines = []
    label = min(label, width() // 2)
    for name, text in rows:
        room = width() - label - 2
        folded = textwrap.wrap(text or "", room, break_on_hyphens=False) or [""]
        if len(name) > label - 2:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name:<{label}}{folded.pop(0)}".rstrip())
        lines += [f"  {'':<{label}}{line}" for line in folded]
    return lines


def typed(option: Option) -> str:
    """Return an option as it is typed: `--host HOST`."""
    flag = f"--{option.name.rstrip('_').replace('_', '-')}"
    return flag if option.default is False else f"{flag} {value_name(option)}"


def value_name(option: Option) -> str:
    """Return what stands for the option's value in a help text."""
    return _VALUES.get(option.name, option.name.rstrip("_").upper())


def _usage(binary: str, task: Task[Any], options: Sequence[Option]) -> str:
    bare = next((option for option in options if option.bare), None)
    word = f" [{value_name(bare)}{' …' if bare.many else ''}]" if bare else ""
    command = " -- COMMAND" if _name(task) in WITH_COMMAND else ""
    return f"Usage: {binary} {_name(task)}{word} [OPTIONS]{command}"


def _option_row(option: Option) -> tuple[str, str]:
    short = f"-{option.short}, " if option.short else ""
    return f"{short}{typed(option)}", option.help


def _fold(line: str) -> list[str]:
    """Fold a sentence to the width; an example stays one line, so that it can be copied."""
    if line.lstrip().startswith("Example:"):
        return [line]
    return textwrap.wrap(line, width(), subsequent_indent="  ", break_on_hyphens=False) or [""]


def _first_line(task: Task[Any]) -> str:
    return (inspect.getdoc(task) or "").partition("\n")[0]


def _name(task: Task[Any]) -> str:
    return str(task.name).replace("_", "-")


def _boxes() -> Iterable[str]:
    from bootstrap.link.record import all_boxes

    return (box.name for box in all_boxes())


def _groups() -> Iterable[str]:
    from bootstrap.fleet.hosts import group_names

    return group_names()


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
    from bootstrap.fleet.export import EXPORTS
    from bootstrap.render.door_table import DOORS

    return [*DOORS, *EXPORTS]


def _providers() -> Iterable[str]:
    from bootstrap.providers import NAMES, outside

    return [*NAMES, *outside()]


def _editors() -> Iterable[str]:
    from bootstrap.runs.editors import EDITORS

    return EDITORS


def _schemas() -> Iterable[str]:
    from bootstrap.tasks.documents import DOCUMENTS

    return (*DOCUMENTS, "profile")


VALUES: Mapping[str, Callable[[], Iterable[str]]] = {
    "host": _boxes,
    "hosts": _groups,
    "group": _groups,
    "forget": _boxes,
    "give_up": _boxes,
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
    if words[:1] == ["help"]:
        from bootstrap.tasks.topics import TOPICS

        return [*tasks, *TOPICS] if len(words) < 3 else []
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
