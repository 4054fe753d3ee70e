"""The host that a user typed, parsed and checked.

    user@address:port     ssh://user@address:port     [2001:db8::1]:22
    an alias of ~/.ssh/config, the name of a known box, or `local`
    vast:12345678     runpod:a1b2c3     lambda:…     paperspace:…     by the account's id
    "ssh -p 46769 root@203.0.113.7 -L 8080:localhost:8080"   as a dashboard shows it

`parse_host` is pure: nothing is run or looked up. Anything that a shell or ssh could interpret
is refused there: leading dashes, quotes, `$`, backticks, semicolons, whitespace, control
and direction characters.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bootstrap.errors import UsageError
from bootstrap.paths import expanded
from bootstrap.providers import NAMES, is_provider
from bootstrap.value import dataclass, field, replace

if TYPE_CHECKING:
    from concurrent.futures import Future

_T = TypeVar("_T")

_KEPT = {"p": "port", "i": "identity", "l": "user", "J": "jump", "L": "forwards"}
_WITH_VALUE = set("BbcDEeFIiJLlmOoPpRSWwQ")
_FORBIDDEN = set("\"'`$;\\&|<>(){}!*?#^")
_FORWARD = r"[A-Za-z0-9._:\[\]/-]+"
_RENTED = r"([a-z][a-z0-9-]{1,30}):([A-Za-z0-9][A-Za-z0-9_-]{0,62})"
_PORT = "[0-9]{1,5}"
_FORMS = (
    "A host is user@address:port, ssh://user@address:port, an alias of your ssh config, "
    "the name of a known box, `local`, the id that your account has (vast:12345678), or the "
    "provider's whole ssh command in quotes: "
    '--host "ssh -p 46769 root@203.0.113.7"'
)
KeyAndRoot = tuple[str, str]  # key and first commit of a repository; both "" for none
AT_ONCE = 64
"""Boxes that a command works on at a time. What follows a run holds its thread until that ends."""


class Once:
    """What is made once for all boxes of a command, by whichever thread needs it first."""

    is_shared = True

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self.hosts = hosts  # all boxes of the command
        self.turn = threading.Lock()
        """Held by the thread that asks the user, or runs a command of theirs."""
        self._made: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned for this key, or raise what it raised."""
        from concurrent.futures import Future  # late: only several boxes share

        with self._lock:
            is_first = key not in self._made
            future: Future[_T] = self._made.setdefault(key, Future())
        if is_first:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    @property
    def share(self) -> Callable[[Hashable, Callable[[], _T]], _T] | None:
        """`get`, if there are several boxes."""
        return self.get if self.is_shared else None


class EachTime(Once):
    """For a command on one box: nothing is kept."""

    is_shared = False

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:  # noqa: ARG002
        return make()


@dataclass(frozen=True)
class BoxOptions:
    host: str | None = None
    profile: str | None = None
    sets: tuple[str, ...] = ()
    repo: Path | None = None
    identity: str | None = None
    host_key: str | None = None
    name: str | None = None
    new_box: bool = False
    consent: str | None = None
    renames: bool = True
    """Whether `name` may rename a known box: not for a run, nor for a command that only looks."""
    once: Once = field(default_factory=EachTime, compare=False, repr=False)
    """Shared by the boxes of a command: profile, repository and snapshot are the same for all."""

    @property
    def place(self) -> Path:
        return self.repo or Path.cwd()

    @property
    def repository(self) -> KeyAndRoot:
        """The current repository. Raises nothing if it can't be read, see `repo.local.current`."""
        from bootstrap.repo.local import current  # late: most starts need no git

        return self.once.get("repository", lambda: current(self.place))

    def checked(self: _Options) -> _Options:
        """Return what a program gave as the command line gives it. Raises UsageError."""
        words = ("host", "profile", "identity", "host_key", "name", "consent")
        given = {name: getattr(self, name) for name in words}
        changes: dict[str, Any] = {
            name: given_text(name, text) for name, text in given.items() if text is not None
        }
        if self.repo is not None:
            changes["repo"] = expanded(given_text("repo", self.repo))
        sets: Any = self.sets
        if isinstance(sets, str | None):
            raise UsageError(f"sets: {sets!r} is no list of texts.")
        return replace(self, sets=tuple(given_text("sets", each) for each in sets), **changes)


_Options = TypeVar("_Options", bound=BoxOptions)
_Object = TypeVar("_Object")


def given_text(name: str, value: object) -> str:
    """Return a text or path that a program gave. Raises UsageError for what can't be typed, and
    where there is nothing: `Box(host="")` doesn't mean the only box."""
    text = os.fspath(value) if isinstance(value, Path) else value
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise UsageError(f"{name}: {value!r} is no value for it.")
    return text


def given_object(name: str, value: _Object | None, kind: type[_Object]) -> _Object:
    """Return what a program gave, by default a new one. Raises UsageError for another thing."""
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"{name}: {value!r} is no {kind.__name__}.")
    return kind() if value is None else value


PLAIN_HOST = r"[A-Za-z0-9._:%+][A-Za-z0-9._:%+-]*"
"""An address or a name that no shell and no ssh config can take for anything else."""


@dataclass(frozen=True)
class Target:
    """A host as it was typed. The ssh config decides about fields that are None."""

    text: str
    address: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    jump: str | None = None
    forwards: tuple[str, ...] = ()
    is_local: bool = False
    is_rented: bool = False  # whether it was given as `provider:id`; its account has the address
    price: float = 0.0
    """Dollars an hour; `since` is when it was started. Both only if its account reported them."""
    since: float = 0.0
    let_in: bool = False  # whether its account let this machine's address in just now
    ends: float = 0.0  # when it ends by a limit of its own; 0 if it has none


def parse_host(text: str) -> Target:
    """Parse `text`. Raises UsageError with the forms to use."""
    stripped = text.strip(" ")
    if not stripped:
        raise _wrong(text, "it is empty")
    _refuse_dangerous(stripped)
    if stripped == "local":
        return Target(text=stripped, address="local", is_local=True)
    words = stripped.split(" ")
    if words[0] == "ssh":
        return _parse_command(stripped, [word for word in words[1:] if word])
    if len(words) > 1:
        raise _wrong(text, "it has a space in it")
    if _is_rented(stripped):
        return Target(text=stripped, address="", is_rented=True)
    user, address, port = _parse_destination(stripped)
    return Target(text=stripped, address=address, user=user, port=port)


def shortened(host: str) -> str:
    """Return a whole ssh command as where it leads, `root@203.0.113.7:46769`; else the host."""
    if not host.startswith("ssh "):
        return host
    target = parse_host(host)
    user = f"{target.user}@" if target.user else ""
    address = f"[{target.address}]" if ":" in target.address else target.address
    return f"{user}{address}" + (f":{target.port}" if target.port else "")


def _is_rented(text: str) -> bool:
    """Whether it is `provider:id`. A port is none of another package's ids."""
    named = re.fullmatch(_RENTED, text)
    if named is None:
        return False
    return named[1] in NAMES or (not re.fullmatch(_PORT, named[2]) and is_provider(named[1]))


def looks_like_unquoted_ssh(argv: Sequence[str]) -> str | None:
    """Return the quoted form of `--host ssh -p 46769 root@…` if it was typed without quotes, or
    without --host."""
    words = [part for word in argv for part in word.split("=", 1)]
    for index, (before, word) in enumerate(itertools.pairwise(words)):
        if word == "ssh" and (before == "--host" or not before.startswith("-")):
            pasted = itertools.takewhile(lambda word: not word.startswith("--"), words[index + 2 :])
            command = " ".join(["ssh", *pasted])
            return f'--host "{command}"' if command != "ssh" else None
    return None


def _parse_command(text: str, words: list[str]) -> Target:
    """Parse a whole ssh command; options may be before and after the address, as in ssh."""
    options, forwards, addresses = _read_options(text, words)
    if not addresses:
        raise _wrong(text, "the ssh command names no address")
    if len(addresses) > 1:
        raise _wrong(text, f"the ssh command has a command of its own: {addresses[1]}")
    user, address, port = _parse_destination(addresses[0])
    jump = options.get("jump")
    if jump is not None and jump != "none":
        for hop in jump.split(","):
            if not hop:
                raise _wrong(text, "-J names an empty host")
            _parse_destination(hop)
    return Target(
        text=text,
        address=address,
        user=_one(text, "users", user, _checked_user(text, options.get("user"))),
        port=_one(text, "ports", port, _checked_port(text, options.get("port"))),
        identity=options.get("identity"),
        jump=jump,
        forwards=tuple(_checked_forward(text, spec) for spec in forwards),
    )


def _read_options(text: str, words: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the options that are kept, the forwards, and what is no option."""
    options, forwards, addresses = dict[str, str](), list[str](), list[str]()
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            return options, forwards, addresses + queue
        if not word.startswith("-"):
            addresses.append(word)
            continue
        letter = word[1:2]
        name = _KEPT.get(letter)
        if name is None:
            what = f"-{letter}" if letter else word
            value = f" {queue[0]}" if letter in _WITH_VALUE and not word[2:] and queue else ""
            raise _wrong(text, f"option {what}{value} of the ssh command is not kept: leave it out")
        value = word[2:] or (queue.pop(0) if queue else "")
        if not value or value.startswith("-"):
            raise _wrong(text, f"option -{letter} of the ssh command lacks its value")
        if name == "forwards":
            forwards.append(value)
        elif name in options:
            raise _wrong(text, f"option -{letter} of the ssh command is given twice")
        else:
            options[name] = value
    return options, forwards, addresses


def _parse_destination(text: str) -> tuple[str | None, str, int | None]:
    """Split `[ssh://][user@]address[:port][/]` into user, address and port."""
    rest = text
    if rest.startswith("ssh://"):
        rest = rest.removeprefix("ssh://").removesuffix("/")
    user, at, rest = rest.rpartition("@")
    if at and not user:
        raise _wrong(text, "there is no user before the @")
    address, port = _split_port(text, rest)
    if not address:
        raise _wrong(text, "there is no address")
    if address.startswith("-"):
        raise _wrong(text, "an address doesn't start with a dash")
    if ":" in address or "%" in address:
        _check_ipv6(text, address)
    else:
        _check_word(text, "address", address, "._+-")
    return _checked_user(text, user or None), address, _checked_port(text, port)


def _split_port(text: str, rest: str) -> tuple[str, str | None]:
    if rest.startswith("["):
        address, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")) or tail == ":":
            raise _wrong(text, "an address in brackets looks like [2001:db8::1]:22")
        _check_ipv6(text, address)
        return address, tail[1:] or None
    if rest.count(":") > 1:
        return rest, None
    address, colon, port = rest.partition(":")
    if colon and not port:
        raise _wrong(text, "there is no port after the colon")
    return address, port or None


def _check_ipv6(text: str, address: str) -> None:
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        raise _wrong(text, f"{address} is no IPv6 address") from None
    if zone := address.partition("%")[2]:
        _check_word(text, "zone", zone, "._-")


def _checked_user(text: str, user: str | None) -> str | None:
    if user is not None:
        if user.startswith("-"):
            raise _wrong(text, "a user doesn't start with a dash")
        _check_word(text, "user", user, "._+@-")
    return user


def _checked_port(text: str, port: str | None) -> int | None:
    if port is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise _wrong(text, f"{port} is no port (1 to 65535)")
    return int(port)


def _checked_forward(text: str, spec: str) -> str:
    if not re.fullmatch(_FORWARD, spec) or spec.count(":") < 1:
        raise _wrong(text, f"-L {spec} is no forward like 8080:localhost:8080")
    return spec


def _check_word(text: str, kind: str, word: str, marks: str) -> None:
    for char in word:
        if not (char.isalnum() or char in marks):
            raise _wrong(text, f"{_show(char)} is not allowed in the {kind}")


def _one(text: str, kind: str, first: _T | None, second: _T | None) -> _T | None:
    """Return the value that was given; UsageError if two different ones were."""
    if first is not None and second is not None and first != second:
        raise _wrong(text, f"it names two {kind}: {first} and {second}")
    return second if first is None else first


def _refuse_dangerous(text: str) -> None:
    if text.startswith("-"):
        raise _wrong(text, "it starts with a dash")
    for char in text:
        if char in _FORBIDDEN or (char != " " and unicodedata.category(char)[0] in "CZ"):
            raise _wrong(text, f"{_show(char)} is not allowed in a host")


def _show(char: str) -> str:
    return f"`{char}`" if char.isascii() and char.isprintable() else f"U+{ord(char):04X}"


def _wrong(text: str, why: str) -> UsageError:
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:200])
    return UsageError(f"{shown!r} is no host: {why}.", where="--host", hint=_FORMS)
