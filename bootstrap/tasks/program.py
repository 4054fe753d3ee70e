"""Invoke's Program, with only the options that make sense here and its own order of tasks.

`inv` has created its Program before it finds boxstrap's tasks, so that instance gets this class
(docs/adr/0003-invoke.md).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from invoke.collection import Collection
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.tasks import Task

from bootstrap.tasks.usage import WrongUsageError

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
_HIDDEN = IGNORED | {"write-pyc"}  # bytecode is written anyway
_FORMATS = ("flat", "nested", "json")


class BoxProgram(Program):
    """The Program of `boxstrap`, and of `inv` once it has found boxstrap's tasks."""

    families: Sequence[Sequence[Task[Any]]] = ()
    """The tasks in the order of `--list`."""

    def core_args(self) -> list[Argument]:
        """As Invoke's, with the meaning of --dry here."""
        found: list[Argument] = super().core_args()
        for argument in found:
            if argument.name == "dry":
                argument.help = "Show what a setup would do; changes nothing."
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

    def parse_cleanup(self) -> None:
        """As Invoke's; raises WrongUsageError also for what Invoke ignores or exits with 1 for."""
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
        super().parse_cleanup()

    def parse_tasks(self) -> None:
        """As Invoke's, which has no optional or repeatable positional arguments."""
        self.core.unparsed = with_options(self.core.unparsed, self.families)
        super().parse_tasks()

    def print_help(self) -> None:
        """Print the core options that have a meaning here, and the tasks."""
        print(f"Usage: {self.binary} [--core-opts] TASK [--options] ...\n\nCore options:\n")  # noqa: T201
        shown = [argument for argument in self.core_args() if argument.name not in _HIDDEN]
        self.print_columns(ParserContext(args=shown).help_tuples())
        self.list_tasks()

    def _make_pairs(
        self, coll: Collection, ancestors: list[str] | None = None
    ) -> list[tuple[str, str | None]]:
        """As Invoke's, but by families, with an empty line between two of them."""
        pairs = {pair[0]: pair for pair in super()._make_pairs(coll, ancestors)}
        rows: list[tuple[str, str | None]] = []
        for family in self.families:
            rows += [("", None)] if rows else []
            rows += [pairs[task.name.replace("_", "-")] for task in family]
        return rows


def with_options(words: list[str], families: Sequence[Sequence[Task[Any]]]) -> list[str]:
    """Return a task and its words, with the task's bare option added to words without one."""
    tasks = (task for family in families for task in family)
    task = next((one for one in tasks if one.name.replace("_", "-") in words[:1]), None)
    bare = getattr(task, "bare", "")
    if task is None or not bare:
        return words
    flags = ParserContext(args=task.get_arguments()).flags
    found, value_follows, room = words[:1], False, True
    for word in words[1:]:
        is_bare = room and not word.startswith("-") and not value_follows
        found.append(f"{bare}={word}" if is_bare else word)
        room = room and (not is_bare or flags[bare].kind is list)
        value_follows = not value_follows and word in flags and flags[word].takes_value
    return found


def use_box_program(families: Sequence[Sequence[Task[Any]]]) -> None:
    """Make the running Program, of `inv` or of `boxstrap`, a BoxProgram with these families."""
    BoxProgram.families = families
    running = sys.modules.get("invoke.main")
    if running is not None:
        running.program.__class__ = BoxProgram
