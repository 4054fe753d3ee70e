"""Where a host leads by the user's own ssh configuration.

The real `ssh -G` reads it, because paramiko ignores `Include` and doesn't support `Match`
(docs/adr/0004). A ProxyJump becomes an `ssh -W` of the real OpenSSH, so that the user's
configuration, keys and host-key checks apply to the jump host unchanged.
"""

import contextlib
import getpass
import hashlib
import os
import pwd
import re
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.link.target import Target
from bootstrap.paths import ask_program, expanded
from bootstrap.value import dataclass


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
    """Expand `~`, `%` tokens and `${NAME}` as ssh does: `~` is the account's home, not $HOME."""
    text = re.sub(r"\$\{([^}]+)\}", lambda m: os.environ.get(m[1], ""), text)
    text = re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), text)
    if text == "~" or text.startswith("~/"):
        return _home() + text[1:]
    return str(expanded(text)) if text.startswith("~") else text


def _home() -> str:
    return pwd.getpwuid(os.getuid()).pw_dir


CONNECT_TIMEOUT = 10.0  # seconds until a connection times out, if the ssh config doesn't set it
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
    proxy_jump: str | None = None  # the jump hosts from which `proxy_command` was made, if any
    host_key_alias: str | None = None
    known_hosts_files: tuple[Path, ...] = ()  # the user's and the system's known_hosts files
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

    `user` is the profile's: it counts if neither host nor ssh config names one. `identity` wins
    over the key file of a pasted command. `config` replaces the user's ssh config (`ssh -F`).
    Raises UsageError for a missing key file or a broken ssh config, UnreachableError without `ssh`.
    """
    chosen = _existing_identity(identity or target.identity)
    arguments = ["ssh", "-G"]
    options = {"-F": config, "-l": target.user, "-p": target.port, "-i": chosen, "-J": target.jump}
    for option, value in options.items():
        if value is not None:
            arguments += [option, str(value)]
    settings = _ask_ssh([*arguments, "--", target.address])
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
    """Whether the user's ssh config has an entry for this name. Raises as `resolve`. A number is an
    address to ssh: `1572395042` leads to 93.184.216.34 without an entry."""
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


def _ask_ssh(arguments: list[str]) -> SshSettings:
    try:
        answer = ask_program(arguments, 30, errors="surrogateescape")
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
    if jump := _jump(settings):
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
