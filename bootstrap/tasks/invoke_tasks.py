"""The commands as tasks of Invoke: in a checkout, `inv setup` is `boxstrap setup`.

Invoke lists them, parses and helps in its own way. Wrong usage, for which it exits with 1, is
looked for before, where it loads them, and ends with 2, in our words.
"""

import inspect
import sys
from typing import Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.main import program
from invoke.tasks import Task

from bootstrap.errors import UsageError
from bootstrap.tasks import NAMES, find
from bootstrap.tasks.command import Command
from bootstrap.tasks.parser import parse_command
from bootstrap.tasks.streams import open_streams
from bootstrap.tasks.usage import refuse, unknown_command


class _Task(Task[Any]):
    shorts: dict[str, str]

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """As Invoke's, with the short form that our option has."""
        made: dict[str, Any] = super().arg_opts(name, default, taken_names)
        if self.shorts[name]:
            made["names"] = (*made["names"], self.shorts[name])
        return made


def _task(command: Command) -> _Task:
    def run(context: Context, **given: Any) -> None:  # noqa: ANN401
        # Invoke turns bytecode off, and uv installs none: each start would compile all its
        # imports again, which takes a second.
        sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
        if code := command.run(given, dry=bool(context.config.run.dry)):
            raise Exit(code=code)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(each.name, kind, default=each.default) for each in command.options]
    signature = inspect.Signature([inspect.Parameter("context", kind), *named])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__doc__ = command.text
    made = _Task(
        run,
        name=command.name,
        positional=[],
        iterable=[option.name for option in command.options if option.many],
        auto_shortflags=False,
        help={option.name: option.help for option in command.options},
    )
    made.shorts = {option.name: option.short for option in command.options}
    return made


def make_tasks() -> Collection:
    """Return the tasks. Raises Exit for a command line of `inv` that is wrong."""
    open_streams()
    words = program.core.unparsed if hasattr(program, "core") else []  # else it isn't `inv`
    try:
        if words and words[0] not in NAMES:
            raise unknown_command(words[0])
        if words:
            parse_command(find(words[0]), words[1:], bare=False)
    except UsageError as wrong:
        raise Exit(code=refuse(wrong)) from None
    return Collection(*(_task(find(name)) for name in NAMES))
