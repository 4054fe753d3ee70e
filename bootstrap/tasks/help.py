"""Help texts, in our own words and layout: of the program, of a command, of a topic.

A topic is a list (`exit-codes`, `hosts`), or one thing by its name: a profile's key or section, the
code with which a step failed, a check of the verdict.
"""

import difflib
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping

from bootstrap.errors import UsageError
from bootstrap.tasks import FAMILIES, NAMES, find
from bootstrap.tasks.command import BOX, Command
from bootstrap.tasks.effects import EFFECTS, NEXT
from bootstrap.tasks.options import PROGRAM, WITH_COMMAND, Option

_MOST = 100  # columns that are used at the most: longer lines are harder to read
_LEAST = 40
_LABEL = 28  # columns for an option; the text about a longer one begins on the next line
_BOX = frozenset(option.name for option in BOX)
_STANDS = {
    "KEY=VALUE": "set_",
    "FILE": "identity out output report sweep",
    "SHA256:…": "host_key",
    "DIGEST": "consent",
    "FOLDER": "to write directory",
    "PATH": "path",
    "PATTERN": "exclude",
    "SIZE": "max_size",
    "DOLLARS": "max_price limit",
    "SECONDS": "wait every",
    "TIME": "wait_offer since",
    "COUNT": "looks",
    "0,1": "gpus",
    "DOOR": "for_",
    "GROUP": "hosts group",
    "BOX": "give_up forget",
    "ADDRESS": "url",
    "RUN": "after after_any resume",
    "PROFILE": "show validate",
    "STEP": "redo",
}
_VALUES = {name: value for value, names in _STANDS.items() for name in names.split()}
"""What stands for an option's value; for any other option its name."""
_GIST = re.compile(r"[.;:]\s|(?<=\?) ")  # what ends the first clause of a sentence


def width() -> int:
    """Return the columns of a help text: those of the terminal, within reason."""
    return max(_LEAST, min(_MOST, shutil.get_terminal_size((80, 24)).columns - 1))


def program_help() -> str:
    usage = ["Usage: boxstrap COMMAND [OPTIONS]", "       boxstrap COMMAND --help"]
    own = ["Options of the program, before COMMAND:", *columns(map(_option_row, PROGRAM))]
    more = ["More, by help TOPIC (or a profile's key):"]
    more += columns((name, title) for name, (title, _) in TOPICS.items())
    return "\n\n".join(["\n".join(usage), family_list(), "\n".join(more), "\n".join(own)])


def family_list() -> str:
    """Return each family with what each of its commands is for; the rest is in their own help."""
    label = 2 + max(map(len, NAMES))
    parts = []
    for title, names in FAMILIES.items():
        rows = [(name, _GIST.split(find(name).text, maxsplit=1)[0]) for name in names]
        parts.append("\n".join([f"{title}:", *columns(rows, label)]))
    return "\n\n".join(parts)


def command_help(command: Command) -> str:
    """Return the help of one command: its own options first, then those about the box."""
    own = [option for option in command.options if option.name not in _BOX]
    box = [option for option in command.options if option.name in _BOX]
    about = [*command.text.splitlines(), EFFECTS[command.name].sentence]
    folded = [line for each in about for line in _fold(textwrap.indent(each, "  "))]
    parts = [_usage(command), "\n".join(folded).rstrip()]
    for title, group in (("Options", own), ("The box, its profile, the output", box)):
        if group:
            parts.append("\n".join([f"{title}:", *columns(map(_option_row, group))]))
    return "\n\n".join(parts)


def topic_help(name: str) -> str:
    """Return the help of a topic, or of a profile's key or another thing. Raises UsageError."""
    title, rows = find_topic(name)
    if rows:
        return "\n".join([*([title, ""] if title else []), *columns(rows)])
    meant = near(name, NAMES)
    hint = f"Did you mean {meant}?" if meant else "The topics: boxstrap help"
    raise UsageError(f"there is no help on {name!r}.", hint=hint)


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


def value_name(option: Option) -> str:
    return _VALUES.get(option.name, option.name.rstrip("_").upper())


def _usage(command: Command) -> str:
    bare = command.bare
    word = f" [{value_name(bare)}{' …' if bare.many else ''}]" if bare else ""
    own = " -- COMMAND" if command.name in WITH_COMMAND else ""
    return f"Usage: boxstrap {command.name}{word} [OPTIONS]{own}"


def _option_row(option: Option) -> tuple[str, str]:
    short = f"-{option.short}, " if option.short else ""
    value = "" if option.default is False else f" {value_name(option)}"
    return f"{short}{option.flag}{value}", option.help


def _fold(line: str) -> list[str]:
    """Fold a sentence to the width; an example stays one line, so that it can be copied."""
    if line.lstrip().startswith("Example:"):
        return [line]
    return textwrap.wrap(line, width(), subsequent_indent="  ", break_on_hyphens=False) or [""]


Rows = Iterable[tuple[str, str]]

_HOSTS = (
    ("root@203.0.113.7:46769", "an address, as in ssh; without user: root, without port: 22"),
    ("'ssh -p 46769 root@203.0.113.7'", "the ssh command as the provider's page shows it"),
    ("gpu", "an alias of your ssh config, or the name of a box that was set up before"),
    ("vast:12345678", "a box of your account, by its id there"),
    ("'gpu-*'", "each known box of such a name, with a command that takes several"),
    ("local", "this machine"),
)
_VARIABLES = (
    ("BOXSTRAP_MAX_PRICE", "here: dollars an hour that any box may cost"),
    ("BOXSTRAP_MAX_DOLLARS", "here: dollars that all boxes may cost in any 24 hours"),
    ("BOXSTRAP_LET_IN", "here: which addresses a box at EC2 lets in, as in 198.51.100.0/24"),
    ("BOXSTRAP_KEEP_OPEN", "here: how long a connection stays open after a command, as in 30m"),
    ("BOXSTRAP_SSH_CONFIG", "here: the ssh config that gets the boxes' names; off: none"),
    ("BOXSTRAP_JOB_RANK", "in a run on several boxes or GPUs: which one of them it is, from 0"),
    ("BOXSTRAP_NUM_JOBS", "there: how many they are"),
    ("BOXSTRAP_SWEEP", "in a run of a sweep: its name"),
    ("BOXSTRAP_CELL", "there: its cell"),
    ("BOXSTRAP_AFTER", "in a run that waited for another: the folder with what that one made"),
    ("BOXSTRAP_NODE_RANK", "in a training of several nodes: which node it is, from 0"),
    ("BOXSTRAP_NUM_NODES", "there: how many they are"),
    ("BOXSTRAP_NODE_IPS", "there: their addresses, one a line"),
    ("BOXSTRAP_GPUS_PER_NODE", "there: the GPUs of this node"),
)


def _keys(section: str = "") -> Rows:
    from bootstrap.profile.schema import PROFILE

    for key, field in PROFILE.leaves():
        if f"{key}.".startswith(f"{section}." if section else ""):
            yield key, field.description


def _providers() -> Rows:
    from bootstrap.providers.accounts import PROVIDERS

    return ((name, f"{one.title}; its key: {one.keys}") for name, one in PROVIDERS.items())


def _codes() -> Rows:
    from bootstrap.steps.event_codes import CODES

    return ((name, f"{code.what}; {code.hint}") for name, code in CODES.items())


def _checks() -> Rows:
    from bootstrap.onbox.verdict.judge import BOX_CHECKS, OF_GPUS

    for check in (*OF_GPUS, *BOX_CHECKS):
        yield check.name, (check.judge.__doc__ or "").partition("\n")[0]


TOPICS: Mapping[str, tuple[str, Callable[[], Rows]]] = {
    "exit-codes": (
        "what each exit code means; what to do then each error says",
        lambda: ((str(code), what) for code, (what, _) in NEXT.items()),
    ),
    "hosts": ("what --host takes", lambda: _HOSTS),
    "profile": ("each key of boxstrap.yaml, as for --set", _keys),
    "providers": ("where boxes are rented, and where your account's key is looked for", _providers),
    "failures": ("each reason with which a step of a setup can fail", _codes),
    "checks": ("what the verdict on a box looks at", _checks),
    "variables": ("variables that boxstrap reads here, or sets for a run", lambda: _VARIABLES),
}


def find_topic(name: str) -> tuple[str, list[tuple[str, str]]]:
    """Return title and rows of a topic, also by the start of its name, or the rows of one thing
    by its name; none if unknown."""
    found = [row for rows in (_codes(), _checks()) for row in rows if row[0] == name]
    found = list(_keys(name)) or found
    begun = [topic for topic in TOPICS if topic.startswith(name)]
    if found or len(begun) != 1:
        return "", found
    title, rows = TOPICS[begun[0]]
    return f"{begun[0]}: {title}", list(rows())


def near(name: str, commands: Iterable[str]) -> str:
    """Return the names that may have been meant, for the error of one that is unknown."""
    known = [*commands, *TOPICS, *(key for key, _ in _keys()), *(code for code, _ in _codes())]
    return ", ".join(difflib.get_close_matches(name, known, 3, 0.65))
