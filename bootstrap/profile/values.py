"""What a key of a profile may hold: its kind, what it takes from the user, the rules of its values.

A section of the schema is a class, and each key is a line of it. The annotation says what a key
holds, and what it takes from the user apart from what it says about a box: a test checks that each
key is marked with that, and a repository's own profile needs their consent to it. It is plain
Python because every command that reads a profile waits for its import
(docs/adr/0024-a-schema-in-plain-python.md).

A value that ends up in a shell, a path or an argument has an allow-list here. The renderer quotes
all of them as well, so this is the first of two defences. Free text (a command, the value of a
variable) may contain any printable character, including quotes and `$()`: it arrives byte for byte.
"""

from __future__ import annotations

import enum
import keyword
import posixpath
import re
import types
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from bootstrap.errors import UsageError
from bootstrap.steps.shell import SHELL_SETTINGS
from bootstrap.value import dataclass

LONGEST_TEXT = 4 * 1024
ANYTHING = r"(?s).+"

# Marks that turn or hide the direction of the text around them (UAX #9).
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN = {"Cc": "a control character", "Zl": "a line break", "Zp": "a line break"}

_ONE_LINE = "write it as one line, with && between commands (YAML's >- joins lines)"


@dataclass(frozen=True)
class Rule:
    """What a text must look like, and how messages describe it.

    `longest` counts bytes of UTF-8. With `stays`, a path must not contain `..`.
    Without `leading_dash`, a text that a program would take for an option is refused.
    With `block`, the last line may end with a newline, as YAML's `|` has it.
    `finish` gets a text that passed, and returns the final text or raises ValueError.
    A rule annotates a field: `Annotated[str, USER]`.
    """

    expected: str
    pattern: str
    longest: int = LONGEST_TEXT
    stays: bool = False
    empty: bool = False
    leading_dash: bool = False
    block: bool = False
    finish: Callable[[str], str] | None = None

    def __call__(self, text: str) -> str:
        """Return `text`, or raise ValueError that says what is wrong with it."""
        if self.block:
            text = text.rstrip("\n")
        if wrong := self._wrong(text):
            raise ValueError(f"{wrong}: {_ONE_LINE}" if self.block and "\n" in text else wrong)
        return self.finish(text) if self.finish else text

    def _wrong(self, text: str) -> str:
        if not self.empty and not text.strip():
            return f"expected {self.expected}, got nothing"
        return _find_unseen(text) or self._out_of_bounds(text)

    def _out_of_bounds(self, text: str) -> str:
        size = len(text.encode())
        if size > self.longest:
            return f"{size:,} bytes are too long: {self.longest:,} at most"
        if text.startswith("-") and not self.leading_dash:
            return f"{shown_value(text)} starts with a dash: a program would take it for an option"
        if self.stays and ".." in text.split("/"):
            return f"{shown_value(text)} leaves its folder with '..'"
        if text and not re.fullmatch(self.pattern, text):
            return f"expected {self.expected}, got {shown_value(text)}"
        return ""

    def json_schema(self) -> dict[str, object]:
        """Return the rule as far as JSON Schema can express it: its \\w is ASCII only."""
        schema: dict[str, object] = {"type": "string", "maxLength": self.longest}
        if not self.empty:
            schema["minLength"] = 1
        if r"\w" not in self.pattern and self.pattern != ANYTHING:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


def fits(rule: Rule, text: str) -> bool:
    try:
        rule(text)
    except ValueError:
        return False
    return True


def shown_value(text: str, longest: int = 60) -> str:
    """Return `text` in quotes, shortened and safe to print on a terminal."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")


def _find_unseen(text: str) -> str:
    for char in text:
        if char.isascii() and char.isprintable():
            continue
        kind = unicodedata.category(char)
        if kind == "Cs":
            return f"{shown_value(text)} is not UTF-8 text"
        if char in _DIRECTION:
            what = "a Unicode direction control"
        elif kind in _UNSEEN:
            what = _UNSEEN[kind]
        else:
            continue
        return f"{shown_value(text)} holds {what} (U+{ord(char):04X})"
    return ""


KIB = 1024
LONGEST_COMMAND = 8 * KIB
LONGEST_LIST = 1000
LONGEST_GRACE_S = 600  # the most seconds that `stop` may have to wait for a run to end
GRACE_S = 10
LOG_MAX_MIB = 1024  # also for a run whose profile has no `train:`

# Assigning these breaks the shells that read the environment file: bash refuses
# to set the read-only ones and stops there; values are not expanded, so a PATH
# of "$PATH:/opt/bin" would leave the box without ls; BASH_ENV and ENV run a file
# in shells that boxstrap did not start; others change how bash works. git's would
# make each git command on the box, the setup's too, use another repository.
# LD_PRELOAD and the like do no such harm.
_REFUSED_NAMES = frozenset(
    {*SHELL_SETTINGS}
    | {"BASH_VERSINFO", "EUID", "HOME", "IFS", "PATH", "PPID", "PWD", "UID", "_"}
    | {"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE"}
    | {"GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_WORK_TREE"}
)


def _not_of_the_shell(name: str) -> str:
    if name in _REFUSED_NAMES:
        raise ValueError(f"{name} belongs to the shells or to git on the box and can't be set")
    return name


def _without_slash(folder: str) -> str:
    return folder.rstrip("/") or "/"


def _not_of_git(path: str) -> str:
    """Refuse git's own folder, which no box may write; some file systems ignore case."""
    if any(part.rstrip(". ").lower() == ".git" for part in path.split("/")):
        raise ValueError(f"{shown_value(path)} is in git's own folder")
    return path


def ordinary(path: str) -> str:
    """Return `path`; raises ValueError if it is in /proc, /sys or /dev. `/dev/shm` is allowed: an
    ordinary file system in memory, which may have repositories."""
    top = "/" + path.lstrip("/") if path.startswith("/") else path
    root, *folders = posixpath.normpath(top).split("/")
    if not root and folders[0] in ("proc", "sys", "dev") and folders[:2] != ["dev", "shm"]:
        raise ValueError(f"{shown_value(path)} is no ordinary file")
    return path


def _public(path: str) -> str:
    """Refuse all but `.pub` files: a private key must never travel to a box."""
    ordinary(path)
    if not path.endswith(".pub"):
        raise ValueError(f"expected a public key file, which ends in .pub, got {shown_value(path)}")
    return path


def _below(folder: str) -> str:
    """Refuse the repository itself as the folder of the environment."""
    if not set(folder.split("/")) - {"", "."}:
        raise ValueError(f"expected {VENV.expected}, got {shown_value(folder)}")
    return folder.rstrip("/")


def _shared(path: str) -> str:
    """Return the normalized path of a folder inside the repository."""
    if not set(path.split("/")) - {"", "."}:
        raise ValueError(f"{shown_value(path)} is the repository itself")
    return posixpath.normpath(_not_of_git(path))


def _git_takes(url: str) -> str:
    """Refuse URLs for which git would run a program or read a file (`repo/urls.py`)."""
    from bootstrap.repo.urls import check_url

    try:
        check_url(url)
    except UsageError as error:
        raise ValueError(error.what) from None
    return url


def _once(text: str) -> str:
    numbers = [int(number) for number in text.split(",")]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{text} names one of them twice")
    return ",".join(map(str, numbers))


def _known_check(name: str) -> str:
    """Refuse a name that is not in the table of checks, which is among the box's code."""
    from bootstrap.onbox.verdict.judge import NAMES

    return name if name in NAMES else _unknown("check", name, NAMES)


def _known_provider(name: str) -> str:
    """Refuse a name that is neither one of ours nor one of an installed package."""
    from bootstrap.providers import NAMES, is_provider, outside

    return name if is_provider(name) else _unknown("provider", name, (*NAMES, *outside()))


def _unknown(what: str, name: str, known: Collection[str]) -> NoReturn:
    close = nearest(name, known)
    hint = f"did you mean {close}?" if close else f"there are {', '.join(known)}"
    raise ValueError(f"there is no {what} {shown_value(name)}: {hint}")


ENV_NAME = Rule(
    "a variable's name (letters, digits, _)",
    r"[A-Za-z_][A-Za-z0-9_]*",
    256,
    finish=_not_of_the_shell,
)
ENV_VALUE = Rule("text", ANYTHING, empty=True, leading_dash=True)
FREE_TEXT = Rule("text", ANYTHING)
COMMAND = Rule("a command, as you would type it in a shell", ANYTHING, LONGEST_COMMAND, block=True)
GIT_URL = Rule("a git URL", ANYTHING, finish=_git_takes)
GIT_REF = Rule(
    "a branch, tag or commit (letters, digits, . _ / + @ = # -)",
    r"(?!.*\.\.)[A-Za-z0-9._/+@=#-]+",
    255,
)
PROVIDER = Rule("a provider's name", r"[a-z][a-z0-9-]{1,30}", finish=_known_provider)
PERSON = Rule("a name", r"[^<>\"`$\\]+", 256)
EMAIL = Rule("an e-mail address", r"[A-Za-z0-9.!#%&*+/=?^_{|}~-]+@[A-Za-z0-9.-]+", 256)
USER = Rule("a login name (letters, digits, . _ -)", r"[A-Za-z0-9_][A-Za-z0-9_.-]*", 64)
WORKDIR = Rule(
    "a folder on the box that starts with / or ~/ (letters, digits, . _ + @ = -)",
    r"~|~?/[A-Za-z0-9._+@=/-]*",
    stays=True,
    finish=_without_slash,
)
VENV = Rule(
    "a folder in the repository, or on the box if it starts with / (letters, digits, . _ + @ = -)",
    r"[A-Za-z0-9._+@=/-]+",
    stays=True,
    finish=_below,
)
REPO_PATH = Rule(
    "a path inside the repository (letters, digits, spaces, . , _ + @ = -)",
    r"[\w.,+@=-][\w .,+@=/-]*",
    stays=True,
    finish=_not_of_git,
)
SHARED = Rule(REPO_PATH.expected, REPO_PATH.pattern, stays=True, finish=_shared)
LOCAL_PATH = Rule(
    "a path on this machine that starts with ~/ or /", r"~?/[\w .,+@=:()/-]+", finish=ordinary
)
PUBLIC_KEY = Rule(LOCAL_PATH.expected, LOCAL_PATH.pattern, finish=_public)
PARENT = Rule("a shipped profile or a path", r"[\w .,+@=:()/~-]+", finish=ordinary)
BOX_FILE = Rule("a path on the box that starts with /", r"/[A-Za-z0-9._+@=/-]+")
PYTHON = Rule('a version of Python, as in "3.11" or "3.11.7"', r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")
DAY = Rule('a day, as in "2023-05-01"', r"20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
TORCH = Rule(
    "auto, cpu, xpu, cu126 (any CUDA) or rocm6.3 (any ROCm)",
    r"auto|cpu|xpu|cu[0-9]{2,3}|rocm[0-9]{1,2}(\.[0-9]{1,2}){0,2}",
)
EXTRA = Rule(
    "the name of an extra (letters, digits, . _ -)",
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
    128,
)
GROUP = Rule(EXTRA.expected.replace("an extra", "a group"), EXTRA.pattern, EXTRA.longest)
DISTRIBUTION = Rule(EXTRA.expected.replace("an extra", "a package"), EXTRA.pattern, EXTRA.longest)
# No user name before the host: a credential for git or an index must not get to the box.
_URL = r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?"
_SPECIFIER = r" ?(===?|~=|!=|[<>]=?) ?[0-9][A-Za-z0-9.*+!_-]*"
_EXTRAS = r"(\[[A-Za-z0-9._, -]+\])?"
REQUIREMENT = Rule(
    "a requirement, as in torch, torch>=2.4, name @ git+https://host/path, ./folder or -e .[extra]",
    rf"({EXTRA.pattern}{_EXTRAS}"
    rf"(({_SPECIFIER})( ?,{_SPECIFIER})*| ?@ ?(git\+)?{_URL}/[A-Za-z0-9._~%+@#=&/-]+)?"
    r"( ?; ?[A-Za-z0-9_.<>=!~'\" ()]+)?"
    rf"|(-e )?\.(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*{_EXTRAS})",
    512,
    leading_dash=True,
)
INDEX_URL = Rule(
    "the address of a package index without a name or password, as in https://host/simple",
    rf"{_URL}(/[A-Za-z0-9._~%+-]*)*",
    512,
)
# apt reads a trailing dash as "remove this".
PACKAGE = Rule(
    "the name of a package (letters, digits, . _ + -)",
    r"[A-Za-z0-9]([A-Za-z0-9.+_-]*[A-Za-z0-9+.])?",
    128,
)
METRIC = Rule(
    "a line of the log with a {name} where a number stands, as in 'score is {score}'",
    r"[^{}]*\{[A-Za-z][A-Za-z0-9_./@-]{0,40}\}([^{}]+\{[A-Za-z][A-Za-z0-9_./@-]{0,40}\}){0,20}[^{}]*",
    500,
)
TIME = Rule("a time, as in 90s, 30m, 2h or 1d", r"[1-9][0-9]{0,6}[smhd]")
TIME_OR_0 = Rule("a time, as in 90s, 30m, 2h or 1d, or 0", r"0|[1-9][0-9]{0,6}[smhd]")
IMAGE = Rule("an image, as in vastai/pytorch:latest", r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", 255)
VOLUME = Rule("a volume's id, as the account has it", r"[A-Za-z0-9][A-Za-z0-9._-]*", 64)
REGION = Rule("a region, as in US or us-east-1", r"[A-Za-z][A-Za-z0-9 ,._-]*", 64)
RESULTS_KEY = "RESULTS_KEY"
"""The secret with which a box puts results into a bucket: ID:SECRET or ID:SECRET:TOKEN."""
NOTIFY_URL = "NOTIFY_URL"  # the secret that is an address: the box posts news of runs to it
BUCKET_FOLDER = Rule(
    "s3://BUCKET/PATH (letters, digits, . _ + @ = -)",
    r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._+@=-]+)*/?",
    stays=True,
    finish=_without_slash,
)
SESSION = Rule("a session's name (letters, digits, _ -)", r"[A-Za-z0-9_-]+", 64)
RUN = Rule(
    "the name of a run, as `status` has it",
    r"([A-Za-z0-9._-]{1,120}/)?[A-Za-z0-9_-][A-Za-z0-9._-]*",
    120,
)
GPUS = Rule(
    "numbers of GPUs with commas between, as in 0,1", r"[0-9]{1,3}(,[0-9]{1,3}){0,63}", finish=_once
)
_GPU = "[A-Za-z0-9 ._+()/-]*[A-Za-z0-9][A-Za-z0-9 ._+()/-]*"
GPU_NAME = Rule("names of GPUs, as in A100 or H100, A100", rf"{_GPU}(?:,{_GPU})*", 256)
CHECK = Rule("the name of a check, as in ecc", r"[a-z0-9-]+", 64, finish=_known_check)
DRIVER = Rule('a driver version, as in "550.54"', r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
CUDA = Rule('a CUDA version, as in "12.1"', r"[0-9]{1,2}\.[0-9]{1,2}")


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the one of `words` most like `word`, or ""; `cutoff` is the least likeness, 0 to 1."""
    import difflib  # late: of misspelt words alone

    close = difflib.get_close_matches(word[:64], list(words), n=1, cutoff=cutoff)
    return close[0] if close else ""


T = TypeVar("T")


class Permission(enum.Enum):
    """What is taken; the values are the words in the list that the user agrees to."""

    NOTHING = "nothing"
    SECRET = "secret"  # noqa: S105
    FILE = "file"
    REPOSITORY = "repository"
    PUBLIC_KEY = "public key"
    DEPENDENCY = "dependency"
    DATA = "data"
    BUCKET = "bucket"
    MONEY = "money"
    ACCOUNT = "account"
    ACCESS = "access"


Free = Annotated[T, Permission.NOTHING]
Secrets = Annotated[T, Permission.SECRET]
File = Annotated[T, Permission.FILE]
Repository = Annotated[T, Permission.REPOSITORY]
PublicKeys = Annotated[T, Permission.PUBLIC_KEY]
Dependencies = Annotated[T, Permission.DEPENDENCY]
Data = Annotated[T, Permission.DATA]
Buckets = Annotated[T, Permission.BUCKET]
Money = Annotated[T, Permission.MONEY]
Account = Annotated[T, Permission.ACCOUNT]
Access = Annotated[T, Permission.ACCESS]
S = TypeVar("S", bound="Section")
Kind = Literal["text", "whole", "number", "truth", "list", "map", "section"]

EXPECTED: dict[Kind, str] = {
    "text": "text",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
    "list": "a list, as in [a, b]",
    "map": "names and values, as in {NAME: value}",
    "section": "a section with keys of its own",
}
_PLAIN: dict[object, Kind] = {str: "text", int: "whole", float: "number", bool: "truth"}
REQUIRED = object()  # the default of a key that must be given


@dataclass(frozen=True)
class Field:
    """What a key may hold; `choices` lists the only words allowed."""

    kind: Kind
    optional: bool = False
    choices: tuple[str, ...] = ()
    rule: Rule | None = None
    item: Field | None = None  # what each item of a list, or each value of a map, must be
    name_rule: Rule | None = None  # what the names in a map must look like
    joins: bool = False  # whether a list of such texts is taken, too: as one text, with commas
    section: type[Section] | None = None
    takes: Permission | None = None
    default: object = REQUIRED
    """A type is called for each profile, so that no two profiles share a list."""
    description: str = ""
    gt: float | None = None
    ge: float | None = None
    le: float | None = None

    @property
    def fields(self) -> dict[str, Field]:
        """The keys inside a section."""
        return self.section.fields if self.section else {}

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Field]]:
        """Yield the dotted key and field of everything inside that holds a value."""
        for name, inner in self.fields.items():
            if inner.section:
                yield from inner.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name, inner


class _Given(dict[str, Any]):
    """What a line of the schema says in addition to its annotation."""


def field(description: str, **given: object) -> Any:  # noqa: ANN401 - it stands for a value
    """Declare a key: its `default`, and limits of a number (`gt`, `ge`, `le`).

    Without `default`, an optional key is None, a list or map is empty, and a section has
    its defaults; any other key must be given. With `joins`, a list of texts is taken as one
    text, with commas.
    """
    return _Given(given, description=description)


class Section:
    """A section of a profile: one attribute per key, immutable.

    The attribute of a key that is a Python keyword ends with `_`.
    """

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        cls.fields = {
            name.rstrip("_"): Field(**{**_read(annotation), **given})
            for name, annotation in cls.__annotations__.items()
            if isinstance(given := vars(cls).get(name), _Given)
        }

    def __init__(self, **values: object) -> None:
        for name, each in self.fields.items():
            made = each.default() if isinstance(each.default, type) else each.default
            vars(self)[self.attribute(name)] = values.pop(name, made)
        vars(self).update(values)

    @staticmethod
    def attribute(key: str) -> str:
        return f"{key}_" if keyword.iskeyword(key) else key

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a profile stays as it was read")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def replace(self: S, **values: object) -> S:
        """Return a copy with other values, which are not checked."""
        return type(self)(**{**vars(self), **values})

    def changed(self, names: Collection[str]) -> dict[str, Any]:
        """Return the attributes among `names` that differ from their default."""
        default, own = vars(type(self)()), vars(self)
        return {name: own[name] for name in own if name in names and own[name] != default[name]}

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, in the order of the schema."""
        values = ((name, getattr(self, name)) for name in type(self).__annotations__)
        return {name.rstrip("_"): _plain(value) for name, value in values}


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.as_dict() if isinstance(value, Section) else value


def _read(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, of any kind
    """Return the arguments of `Field` that an annotation stands for."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = {"takes" if isinstance(mark, Permission) else "rule": mark for mark in args[1:]}
        return {**_read(args[0]), **marks}
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return {**_read(inner), "optional": True, "default": None}
    if origin is Literal:
        return {"kind": _PLAIN[type(args[0])], "choices": tuple(map(str, args))}
    if origin is list:
        item = {**_read(args[0]), "default": REQUIRED}
        return {"kind": "list", "item": Field(**item), "default": list}
    if origin is dict:
        names, item = map(_read, args)
        return {"kind": "map", "name_rule": names["rule"], "item": Field(**item), "default": dict}
    kind = _PLAIN.get(annotation)
    return (
        {"kind": kind}
        if kind
        else {"kind": "section", "section": annotation, "default": annotation}
    )
