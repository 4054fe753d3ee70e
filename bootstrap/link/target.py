"""The host that a user typed, parsed and checked; where it leads.

    user@address:port     ssh://user@address:port     [2001:db8::1]:22
    an alias of ~/.ssh/config, the name of a known box, or `local`
    vast:12345678     runpod:a1b2c3     lambda:…     paperspace:…     by the account's id
    "ssh -p 46769 root@203.0.113.7 -L 8080:localhost:8080"   as a dashboard shows it

`parse_host` is pure: nothing is run or looked up. Anything that a shell or ssh could interpret
is refused there: leading dashes, quotes, `$`, backticks, semicolons, whitespace, control
and direction characters.

`resolve` goes through the user's own ssh configuration. The real `ssh -G` does this, because
paramiko ignores `Include` and doesn't support `Match` (docs/adr/0004). A ProxyJump becomes an
`ssh -W` of the real OpenSSH, so that the user's configuration, keys and host-key checks apply to
the jump host unchanged.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import ipaddress
import itertools
import os
import pwd
import re
import shlex
import socket
import subprocess
import threading
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.paths import expanded
from bootstrap.providers import NAMES, is_provider
from bootstrap.value import dataclass

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


KeyAndRoot = tuple[str, str]
"""Key and first commit of a repository; both "" for none."""


AT_ONCE = 64
"""Boxes that a command works on at a time. What follows a run holds its thread until that ends."""


class Once:
    """What is made once for all boxes of a command, by whichever thread needs it first."""

    is_shared = True

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self.hosts = hosts
        """All boxes of the command."""
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
        """Return what `make` returns."""
        return make()


@dataclass(frozen=True)
class BoxOptions:
    """The options that every task about a box has."""

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
    """Whether `name` may rename a known box: not for a command that only looks."""
    once: Once = field(default_factory=EachTime, compare=False, repr=False)
    """Shared by the boxes of a command: profile, repository and snapshot are the same for all."""

    @property
    def place(self) -> Path:
        """The folder that the task is about."""
        return self.repo or Path.cwd()

    @property
    def repository(self) -> KeyAndRoot:
        """The current repository. Raises nothing if it can't be read, see `repo.local.current`."""
        from bootstrap.repo.local import current  # late: most starts need no git

        return self.once.get("repository", lambda: current(self.place))


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
    is_rented: bool = False
    """Whether it was given as `provider:id`; its account has the address."""
    price: float = 0.0
    """Dollars an hour; `since` is when it was started. Both only if its account reported them."""
    since: float = 0.0
    let_in: bool = False
    """Whether its account let this machine's address in just now."""
    ends: float = 0.0
    """When it ends by a limit of its own; 0 if it has none."""


@dataclass
class _Options:
    """The options of a pasted ssh command."""

    single: dict[str, str] = field(default_factory=dict)
    forwards: list[str] = field(default_factory=list)


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


def _is_rented(text: str) -> bool:
    """Whether it is `provider:id`. A port is none of another package's ids."""
    named = re.fullmatch(_RENTED, text)
    if named is None:
        return False
    return named[1] in NAMES or (not re.fullmatch(_PORT, named[2]) and is_provider(named[1]))


def looks_like_unquoted_ssh(argv: Sequence[str]) -> str | None:
    """Return the quoted form to use if `--host ssh -p 46769 root@…` was typed without quotes.

    None for any other command line `argv`.
    """
    words = [part for word in argv for part in word.split("=", 1)]
    for index in range(len(words) - 1):
        if words[index : index + 2] == ["--host", "ssh"]:
            pasted = itertools.takewhile(lambda word: not word.startswith("--"), words[index + 2 :])
            command = " ".join(["ssh", *pasted])
            return f'--host "{command}"' if command != "ssh" else None
    return None


def _parse_command(text: str, words: list[str]) -> Target:
    """Parse a whole ssh command; options may be before and after the address, as in ssh."""
    options, addresses = _read_options(text, words)
    if not addresses:
        raise _wrong(text, "the ssh command names no address")
    if len(addresses) > 1:
        raise _wrong(text, f"the ssh command has a command of its own: {addresses[1]}")
    user, address, port = _parse_destination(addresses[0])
    single = options.single
    return Target(
        text=text,
        address=address,
        user=_one(text, "users", user, _checked_user(text, single.get("user"))),
        port=_one(text, "ports", port, _checked_port(text, single.get("port"))),
        identity=single.get("identity"),
        jump=_checked_jump(text, single.get("jump")),
        forwards=tuple(_checked_forward(text, spec) for spec in options.forwards),
    )


def _read_options(text: str, words: list[str]) -> tuple[_Options, list[str]]:
    options, addresses = _Options(), list[str]()
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word == "--":
            return options, addresses + queue
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
            options.forwards.append(value)
        elif name in options.single:
            raise _wrong(text, f"option -{letter} of the ssh command is given twice")
        else:
            options.single[name] = value
    return options, addresses


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
    zone = address.partition("%")[2]
    if zone:
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


def _checked_jump(text: str, jump: str | None) -> str | None:
    if jump is not None and jump != "none":
        for hop in jump.split(","):
            if not hop:
                raise _wrong(text, "-J names an empty host")
            _parse_destination(hop)
    return jump


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
        if char in _FORBIDDEN:
            raise _wrong(text, f"{_show(char)} is not allowed in a host")
        if char != " " and unicodedata.category(char)[0] in "CZ":
            raise _wrong(text, f"{_show(char)} is not allowed in a host")


def _show(char: str) -> str:
    """Return a printable form of any character."""
    return f"`{char}`" if char.isascii() and char.isprintable() else f"U+{ord(char):04X}"


def _wrong(text: str, why: str) -> UsageError:
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:200])
    return UsageError(f"{shown!r} is no host: {why}.", where="--host", hint=_FORMS)


class SshSettings:
    """The output of `ssh -G`: lower-case keys, some of them several times."""

    def __init__(self, text: str) -> None:
        self._pairs = [
            (key, value)
            for key, _, value in (line.partition(" ") for line in text.splitlines())
            if value
        ]

    def first(self, key: str) -> str | None:
        """Return the first value of the key, which is the one that ssh uses."""
        return next((value for name, value in self._pairs if name == key), None)

    def all(self, key: str) -> list[str]:
        """Return all values of a key that may be there several times."""
        return [value for name, value in self._pairs if name == key]

    def tokens(self, alias: str, hostname: str, user: str, port: int) -> dict[str, str]:
        """Return the values of `%h` and the like (ssh_config(5), TOKENS)."""
        local = socket.gethostname()
        jump = self.first("proxyjump") or ""
        hashed = hashlib.sha1(f"{local}{hostname}{port}{user}{jump}".encode())  # noqa: S324 - as ssh does
        return {
            "%": "%",
            "C": hashed.hexdigest(),
            "L": local.partition(".")[0],
            "d": _home(),
            "h": hostname,
            "i": str(os.getuid()),
            "j": jump,
            "k": self.first("hostkeyalias") or alias,
            "l": local,
            "n": alias,
            "p": str(port),
            "r": user,
            "u": getpass.getuser(),
        }


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Expand `~`, `%` tokens and `${NAME}` of a path in an ssh config, as ssh does.

    ssh uses the account's home folder, not $HOME.
    """
    text = re.sub(r"\$\{([^}]+)\}", lambda m: os.environ.get(m[1], ""), text)
    text = re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), text)
    if text == "~" or text.startswith("~/"):
        return _home() + text[1:]
    return str(expanded(text)) if text.startswith("~") else text


def _home() -> str:
    return pwd.getpwuid(os.getuid()).pw_dir


CONNECT_TIMEOUT = 10.0
"""Seconds until a connection times out, if the ssh config doesn't set it."""


_OF_AN_ENTRY = ("hostname", "user", "port", "identityfile", "proxyjump", "hostkeyalias")


@dataclass(frozen=True)
class Endpoint:
    """Everything needed to dial a box and log in to it."""

    alias: str
    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...] = ()
    chosen_identity: Path | None = None
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    proxy_command: str | None = None
    proxy_jump: str | None = None
    """The jump hosts from which `proxy_command` was made, if any."""
    host_key_alias: str | None = None
    known_hosts_files: tuple[Path, ...] = ()
    """The user's and the system's known_hosts files."""
    user_known_hosts_files: tuple[Path, ...] = ()
    address_family: str = "any"
    connect_timeout: float = CONNECT_TIMEOUT

    @property
    def label(self) -> str:
        """Its name in messages: `user@address:port`."""
        return f"{self.user}@{self.address}"

    @property
    def address(self) -> str:
        """`address:port`, with an IPv6 address in brackets."""
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"{host}:{self.port}"

    @property
    def pin_name(self) -> str:
        """Its address as known_hosts files write it."""
        name = self.hostname.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"


def resolve(
    target: Target,
    *,
    user: str | None = None,
    identity: str | None = None,
    config: Path | None = None,
) -> Endpoint:
    """Return the endpoint that `target` means to OpenSSH.

    `user` is the profile's: it is used if neither the host nor the ssh config
    names one. `identity` is a key file; it wins over the one in a pasted
    command. `config` replaces the user's ssh config (`ssh -F`). Raises
    UsageError for a missing key file or a broken ssh config, UnreachableError
    if there is no `ssh`.
    """
    chosen = _existing_identity(identity or target.identity)
    settings = _ask_ssh(_ssh_arguments(target, chosen, config))
    hostname = settings.first("hostname") or target.address
    resolved_user = settings.first("user") or getpass.getuser()
    if user and not target.user and resolved_user == getpass.getuser():
        resolved_user = user
    port = int(settings.first("port") or 22)
    tokens = settings.tokens(target.address, hostname, resolved_user, port)
    return Endpoint(
        alias=target.address,
        hostname=hostname,
        user=resolved_user,
        port=port,
        identity_files=_existing(settings.all("identityfile"), tokens),
        chosen_identity=chosen,
        certificate_files=_existing(settings.all("certificatefile"), tokens),
        identities_only=settings.first("identitiesonly") == "yes",
        identity_agent=_agent_socket(settings.first("identityagent"), tokens),
        proxy_command=_proxy_command(settings, tokens, config),
        proxy_jump=_jump(settings),
        host_key_alias=settings.first("hostkeyalias"),
        known_hosts_files=_known_hosts(
            settings, tokens, "userknownhostsfile", "globalknownhostsfile"
        ),
        user_known_hosts_files=_known_hosts(settings, tokens, "userknownhostsfile"),
        address_family=settings.first("addressfamily") or "any",
        connect_timeout=_seconds(settings.first("connecttimeout")),
    )


def has_alias(name: str) -> bool:
    """Whether the user's ssh config has an entry for this name. Raises as `resolve`.

    A number is an address to ssh: `1572395042` leads to 93.184.216.34 without an entry.
    """
    is_number = re.fullmatch("0x[0-9a-f]+|[0-9]+", name, re.IGNORECASE)
    return not is_number and _entry(name) != _entry(f"{name}-{os.urandom(4).hex()}")


_RESOLVE_S = 2.0


def resolved(name: str) -> set[str]:
    """Return the addresses of a name; none if nobody answers soon."""
    found = set[str]()

    def resolve() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.update(str(each[4][0]) for each in socket.getaddrinfo(name, None))

    asked = threading.Thread(target=resolve, daemon=True)
    asked.start()
    asked.join(_RESOLVE_S)
    return {*found}


def has_keys(name: str, files: Iterable[Path]) -> bool:
    """Whether one of these files of known hosts has a key for this name."""
    asked = (["ssh-keygen", "-F", name, "-f", str(file)] for file in files)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        ran = (subprocess.run(one, capture_output=True, check=False, timeout=30) for one in asked)
        return any(answer.returncode == 0 for answer in ran)
    return False


def _entry(host: str) -> list[list[str]]:
    settings = _ask_ssh(["ssh", "-G", "--", host])
    own = host.lower()
    return [[value for value in settings.all(key) if value.lower() != own] for key in _OF_AN_ENTRY]


def _ssh_arguments(target: Target, identity: Path | None, config: Path | None) -> list[str]:
    arguments = ["ssh", "-G"]
    options = {
        "-F": config,
        "-l": target.user,
        "-p": target.port,
        "-i": identity,
        "-J": target.jump,
    }
    for option, value in options.items():
        if value is not None:
            arguments += [option, str(value)]
    return [*arguments, "--", target.address]


def _ask_ssh(arguments: list[str]) -> SshSettings:
    try:
        answer = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=30,
            check=False,
        )
    except FileNotFoundError:
        raise UnreachableError(
            "the program `ssh` is not installed on this machine.",
            hint="Install OpenSSH's client: `apt install openssh-client`, "
            "`dnf install openssh-clients`; macOS has it.",
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            "`ssh -G` did not answer within 30 s.",
            where="ssh config",
            hint="A `Match exec` in your ssh config seems to hang.",
        ) from None
    if answer.returncode:
        raise UsageError(
            f"ssh does not accept it: {answer.stderr.strip()[-500:]}",
            where="ssh config",
            hint=f"Try it: {shlex.join(arguments)}",
        )
    return SshSettings(answer.stdout)


def _existing_identity(text: str | None) -> Path | None:
    if text is None:
        return None
    path = expanded(text).absolute()
    if not os.path.isfile(path):  # noqa: PTH113 - pathlib's raises for a name that is too long
        raise UsageError(
            f"there is no key file {path}.",
            where="--identity",
            hint="Windows folders are below /mnt here: /mnt/c/Users/…"
            if re.match(r"[A-Za-z]:[\\/]", text)
            else "Make a key with `ssh-keygen -t ed25519`, or name another.",
        )
    private = path.with_suffix("")
    if path.suffix == ".pub" and private.is_file():
        hint = f"Name the private one: {private}"
        raise UsageError(f"{path} is the public key.", where="--identity", hint=hint)
    return path


def _existing(texts: list[str], tokens: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that exist, or whose `.pub` does: an agent may hold the private key."""
    paths = [Path(expand(text, tokens)) for text in texts if text != "none"]
    return tuple(p for p in paths if p.is_file() or p.with_name(p.name + ".pub").is_file())


def _known_hosts(
    settings: SshSettings, tokens: Mapping[str, str], *options: str
) -> tuple[Path, ...]:
    found: list[Path] = []
    for line in filter(None, map(settings.first, options)):
        words = line.split(" ")
        while words:
            # `ssh -G` drops the quotes of paths with spaces: take the longest path that exists.
            ends = range(len(words), 0, -1)
            paths = [Path(expand(" ".join(words[:end]), tokens)) for end in ends]
            path = next((path for path in paths if os.path.isfile(path)), paths[-1])  # noqa: PTH113
            del words[: len(words) - paths.index(path)]
            found.append(path)
    return tuple(path for path in found if str(path) != "none")


def _agent_socket(text: str | None, tokens: Mapping[str, str]) -> str | None:
    """Return the path of the agent's socket, or None to use no agent."""
    if text is None or text == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if text == "none":
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:]) or None
    return expand(text, tokens)


def _proxy_command(
    settings: SshSettings, tokens: Mapping[str, str], config: Path | None
) -> str | None:
    jump = _jump(settings)
    if jump:
        *before, last = jump.split(",")
        arguments = ["ssh", *(["-F", str(config)] if config else [])]
        arguments += ["-J", ",".join(before)] if before else []
        arguments += ["-W", f"[{tokens['h']}]:{tokens['p']}"]
        uri = last if last.startswith("ssh://") else f"ssh://{last}"
        return shlex.join([*arguments, "--", uri])
    command = settings.first("proxycommand")
    if not command or command == "none":
        return None
    return re.sub(r"%([%hnpr])", lambda m: tokens[m[1]], command)


def _jump(settings: SshSettings) -> str | None:
    jump = settings.first("proxyjump")
    return jump if jump and jump != "none" else None


def _seconds(text: str | None) -> float:
    """Parse ConnectTimeout as `ssh -G` prints it: seconds, or `none`."""
    return float(text) if text and text.isdigit() and int(text) > 0 else CONNECT_TIMEOUT
