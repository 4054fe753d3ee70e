"""The parsers that argparse makes of the options: of the program, and of a command."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bootstrap.tasks.options import ANYWHERE, PROGRAM, WITH_COMMAND, Option, looks_like_a_host

if TYPE_CHECKING:
    from bootstrap.tasks.command import Command

_NARROW = partial(argparse.HelpFormatter, width=80)
"""Argparse's help is not shown: without a width it asks the terminal, which imports much."""


def parse_program(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the program's own options, and the words from the command on. Raises UsageError."""
    parser = _parser(PROGRAM, None)
    parser.add_argument("words", nargs=argparse.REMAINDER)
    typed, unknown = _parsed(parser, PROGRAM, words, None)
    return typed, [*unknown, *typed.pop("words")]


def parse_command(
    command: Command, words: Sequence[str], behind: Sequence[str] = (), *, bare: bool = True
) -> dict[str, Any]:
    """Return the command's and the program's options; `bare`: also by words, and those `behind` a
    `--` are no options. Raises UsageError."""
    options = (*command.options, *ANYWHERE)
    parser = _parser(options, command)
    if command.name in WITH_COMMAND:
        parser.add_argument("words", nargs=argparse.REMAINDER)
        behind = ()
    typed, unknown = _parsed(parser, options, words, command)
    unknown += behind
    theirs = typed.get("words")
    if theirs and (not bare or _is_a_box(theirs[0])):
        unknown = [*unknown, *theirs]
    option = command.bare if bare else None
    if option and unknown:
        named = [word for word in unknown if word in behind or not word.startswith("-")]
        if option.name == "run":
            named = [word for word in named if not _is_a_box(word)]
        if not option.many:
            named = named[: 0 if typed[option.name] else 1]
        unknown = [word for word in unknown if word not in named]
        if named:
            typed[option.name] = [*typed[option.name], *named] if option.many else named[0]
    if unknown:
        from bootstrap.tasks.usage import unknown_word, wrong_usage

        if unknown[0] in behind:
            raise wrong_usage(f"{command.name} takes no {unknown[0]!r} behind --.", command)
        bad, has_host = unknown[0], bool(typed.get("host"))
        if option and not bad.startswith("-") and not _is_a_box(bad):
            raise wrong_usage(f"{option.flag} {_TWICE}.", command)
        meant = f"{command.bare.flag} {bad}" if command.bare and not bare else ""
        if theirs and not bare:
            meant = f"{command.name} -- {shlex.join(theirs)}"
        raise unknown_word(bad, command, has_host=has_host, meant=meant)
    return typed


class _Once(argparse.Action):
    """Takes one value: a second one would replace the first without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - as argparse calls it
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        if getattr(namespace, self.dest) not in {self.default, values}:
            raise argparse.ArgumentError(self, _TWICE)
        setattr(namespace, self.dest, values)


_TWICE = "takes one value, and is given two"


def _parser(options: Sequence[Option], command: Command | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, formatter_class=_NARROW
    )
    for option in options:
        if option.default is False:
            made.add_argument(*option.flags, dest=option.name, action="store_true")
        else:
            made.add_argument(
                *option.flags,
                dest=option.name,
                action="append" if option.many else _Once,
                default=[] if option.many else option.default,
                type=_reader(option, command),
            )
    return made


def _reader(option: Option, command: Command | None) -> Callable[[str], object]:
    def read(text: str) -> object:
        """Raises UsageError: `--gpus "$MINE"` without that variable doesn't mean no --gpus."""
        wrong = f"{text!r} is no whole number from 0 on"
        if not text.strip():
            wrong = "its value is empty; leave it out, or give it one"
        elif not isinstance(option.default, int):
            return text
        else:
            with contextlib.suppress(ValueError):
                if (number := int(text)) >= 0:
                    return number
        from bootstrap.tasks.usage import wrong_usage

        raise wrong_usage(f"{option.flag}: {wrong}", command)

    return read


def _parsed(
    parser: argparse.ArgumentParser,
    options: Sequence[Option],
    words: Sequence[str],
    command: Command | None,
) -> tuple[dict[str, Any], list[str]]:
    try:
        typed, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        from bootstrap.tasks.usage import wrong_usage

        flag = (error.argument_name or "").partition("/")[0]
        takes = any(each.flag == flag and each.default is not False for each in options)
        says = "needs a value" if takes else "takes no value"
        says = _TWICE if error.message == _TWICE else says
        raise wrong_usage(f"{flag} {says}.", command) from None
    return vars(typed), unknown


def _is_a_box(word: str) -> bool:
    """Whether a word is no run's name, but a host or the name of a known box."""
    from bootstrap.link.registry import box_by_name

    return looks_like_a_host(word) or box_by_name(word) is not None
