"""YAML as text with its origin: file, line and key; nothing is converted.

PyYAML's events are read one by one, so that limits apply before anything is built. The type that
YAML would give a value (a number, a date) is kept with its text, for the reader of profiles, which
knows what was expected there. Anchors, aliases and tags are refused: a profile needs none, and a
few lines of them can expand to terabytes.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from bootstrap.errors import ProfileError
from bootstrap.paths import open_regular, real
from bootstrap.profile.values import ordinary, shown_value
from bootstrap.value import Document, dataclass

REFUSED = "refused"
LARGEST_FILE = 256 * 1024  # bytes
DEEPEST = 12
MOST_NODES = 20_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Also line breaks that YAML 1.1 counts and editors don't: line numbers would be wrong.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]"
)


@dataclass(frozen=True)
class Scalar:
    """A scalar; `tag` is the type that YAML gives it: str, int, float, bool, null, …

    REFUSED is the tag of a value that was already reported as a problem.
    """

    text: str
    tag: str
    line: int


@dataclass(frozen=True)
class Items:
    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True)
class Keys:
    """A mapping; keys are unique and in the order of the file."""

    entries: tuple[tuple[Scalar, Node], ...]
    line: int


Node = Scalar | Items | Keys


@dataclass
class YamlFile:
    keys: Keys
    problems: list[ProfileProblem]


def read_yaml(path: Path, label: str) -> YamlFile:
    """Read a file that messages name `label`. Raises WrongProfileError if that can't be done."""
    try:
        with open_regular(path) as file:
            ordinary(str(real(path)))
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        why = error.strerror or str(error)
        why = why if error.errno == errno.EINVAL else f"can't be read: {why}"
        raise _stop(label, None, why) from None
    except ValueError as error:
        raise _stop(label, None, str(error)) from None
    if len(data) > LARGEST_FILE:
        raise _stop(label, None, f"a profile is {LARGEST_FILE // 1024} KiB at most")
    try:
        node, problems = _build(data.decode("utf-8-sig"), label)
        if isinstance(node, Scalar) and node.tag == "null":
            node = Keys((), 1)
        if not isinstance(node, Keys):
            raise _stop(label, node.line, "expected keys and values, as in `version: 1`")
        return YamlFile(node, problems)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _stop(label, line, "this is not UTF-8 text") from None


def parse_list(text: str, label: str) -> list[str]:
    """Return the texts of a YAML list in one line, as `[a, "b c"]`. Raises ValueError."""
    try:
        node, problems = _build(text, label)
    except WrongProfileError as error:
        raise ValueError(error.problems[0].message) from None
    if problems:
        raise ValueError(problems[0].message)
    if not isinstance(node, Items):
        raise ValueError("expected a list, as in [a, b]")
    words = [item.text for item in node.items if isinstance(item, Scalar)]
    if len(words) != len(node.items):
        raise ValueError("expected a list of words, as in [a, b]")
    return words


def read_as(scalar: Scalar) -> object:
    """Return what YAML reads a plain `scalar` as, for messages: `3.10` as 3.1, `0600` as 384."""
    constructor = yaml.constructor.SafeConstructor()
    node = yaml.ScalarNode(f"tag:yaml.org,2002:{scalar.tag}", scalar.text)
    make = getattr(constructor, f"construct_yaml_{scalar.tag}", None)
    if make is None or len(scalar.text) > 64:  # int() of a huge text takes seconds
        return scalar.text
    try:
        return make(node)
    except (ValueError, OverflowError):
        return scalar.text


def _stop(label: str, line: int | None, message: str) -> WrongProfileError:
    return WrongProfileError([ProfileProblem(Origin(label, line), "", message)])


def _build(text: str, label: str) -> tuple[Node, list[ProfileProblem]]:
    if bad := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise _stop(label, line, f"a character that can't be seen (U+{ord(bad.group()):04X})")
    composer = _Composer(text, label)
    try:
        return composer.whole(), composer.problems
    except WrongProfileError as error:
        raise WrongProfileError([*composer.problems, *error.problems]) from None
    except yaml.YAMLError as error:
        wrong = _not_yaml(error, text, label)
        raise WrongProfileError([*composer.problems, *wrong.problems]) from None


def _not_yaml(error: yaml.YAMLError, text: str, label: str) -> WrongProfileError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    # If an end is missing, the mark is after the last line.
    line = min(mark.line, text.rstrip("\n").count("\n")) + 1 if mark else None
    if line and text.split("\n")[line - 1].lstrip(" ").startswith("\t"):
        return _stop(label, line, f"line {line} begins with a tab; indent with spaces")
    return _stop(label, line, f"this is not YAML: {getattr(error, 'problem', None) or error}")


def _tag_of(event: yaml.ScalarEvent) -> str:
    if event.tag is not None:
        return REFUSED
    if not event.implicit[0]:
        return "str"
    text: str = event.value
    for tag, pattern in yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ()):
        if pattern.match(text):
            return str(tag).rpartition(":")[2]
    return "str"


class _Composer:
    """Composes nodes of events, within limits."""

    def __init__(self, text: str, label: str) -> None:
        self.label = label
        self.problems: list[ProfileProblem] = []
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)
        self._count = 0

    def whole(self) -> Node:
        root: Node | None = None
        for event in self._events:
            line = _line_of(event)
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _stop(self.label, line, "a second document starts here; one is expected")
            if isinstance(event, yaml.NodeEvent):
                root = self._node(event, "")
        return root or Scalar("", "null", 1)

    def _node(self, event: yaml.Event, key: str, depth: int = 0) -> Node:
        line = _line_of(event)
        self._count += 1
        if self._count > MOST_NODES:
            raise _stop(self.label, line, f"more than {MOST_NODES:,} values")
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(key, line, f"aliases ({_short('*', anchor)}) are not used here")
            return Scalar("", REFUSED, line)
        if anchor is not None:
            self._refuse(key, line, f"anchors ({_short('&', anchor)}) are not used here")
        if tag is not None:
            self._refuse(key, line, f"tags ({_short('', tag)}) are not used here")
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(event.value, _tag_of(event), line)
        if depth >= DEEPEST:
            raise _stop(self.label, line, f"nested more than {DEEPEST} deep")
        if isinstance(event, yaml.MappingStartEvent):
            return Keys(tuple(self._entries(key, depth + 1)), line)
        items = list[Node]()
        for inner in self._inside():
            items.append(self._node(inner, f"{key}[{len(items)}]", depth + 1))
        return Items(tuple(items), line)

    def _entries(self, key: str, depth: int) -> Iterable[tuple[Scalar, Node]]:
        entries: dict[str, tuple[Scalar, Node]] = {}
        for event in self._inside():
            name = None if isinstance(event, yaml.CollectionStartEvent) else self._node(event, key)
            if not isinstance(name, Scalar):
                raise _stop(self.label, _line_of(event), "a key is one word, followed by a colon")
            inside, earlier = f"{key}.{name.text}", entries.get(name.text)
            if earlier:
                self._refuse(inside, name.line, f"given twice; first in line {earlier[0].line}")
            value = self._node(next(self._events), inside, depth)
            entries.setdefault(name.text, (name, value))
        return entries.values()

    def _inside(self) -> Iterator[yaml.Event]:
        """Yield the events of an open list or mapping, up to its end."""
        while not isinstance(event := next(self._events), yaml.CollectionEndEvent):
            yield event

    def _refuse(self, key: str, line: int, message: str) -> None:
        origin = Origin(self.label, line)
        self.problems.append(ProfileProblem(origin, word(key.lstrip("."), 80), message))


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _short(sign: str, name: str | None) -> str:
    return f"{sign}{name or ''}"[:40]


def word(text: str, longest: int = 60) -> str:
    """Return `text` shortened, and in quotes only if it has unprintable characters."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return short if short.isprintable() else shown_value(short)


@dataclass(frozen=True)
class Origin:
    """A file and line (from 1), or a word for a place that is no file, such as `--set`."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


SET = Origin("--set")
DEFAULT = Origin("default")
MOST_SHOWN = 20


@dataclass(frozen=True)
class ProfileProblem(Document):
    """One problem: where, at which dotted key, and what is wrong."""

    KEYS = "file=origin.file, line=origin.line, key, message"

    origin: Origin
    key: str
    message: str

    @property
    def where(self) -> str:
        """The origin, and for `--set` also the key, as the user typed it."""
        return f"{SET} {self.key}" if self.origin == SET and self.key else str(self.origin)

    @property
    def what(self) -> str:
        """What is wrong, after the key if `where` does not name it."""
        return self.message if self.origin == SET or not self.key else f"{self.key}: {self.message}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class WrongProfileError(ProfileError, keys="problems"):
    """A profile with problems; its text has one line for each."""

    def __init__(self, problems: Sequence[ProfileProblem]) -> None:
        self.problems = tuple(problems)
        first, *others = self.problems
        shown = [first.what, *map(str, others[: MOST_SHOWN - 1])]
        left = len(others) - (MOST_SHOWN - 1)
        if left > 0:
            shown.append(f"and {left} more")
        super().__init__("\n".join(shown), where=first.where)

    kind = "Profile"


def raise_problems(problems: Iterable[ProfileProblem], files: Sequence[str]) -> None:
    """Raise WrongProfileError if there are problems, in the order of `files`, then of lines."""
    found = list(dict.fromkeys(problems))
    if not found:
        return
    ranks = {file: rank for rank, file in enumerate(files)}
    found.sort(key=lambda p: (ranks.get(p.origin.file, len(ranks)), p.origin.line or 0))
    raise WrongProfileError(found)
