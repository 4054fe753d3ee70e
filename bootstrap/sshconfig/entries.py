"""All live boxes as one file of ssh config entries. Pure, except for checks that files exist.

One box as an entry of ssh_config(5). Pure.

A box has its own entry, under its name. A box that is reached by an alias of the
user's own ssh config keeps that alias as the user wrote it; only its pinned host
key, next to the user's own known_hosts files, and the key file that was named
are added.

The lines with which the user's ssh config includes ours. Pure; in bytes, to keep the rest.

They are at the very top, because an `Include` after a `Host` or `Match` applies
only to that host or match (ssh_config(5)).
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.link.record import KnownBox
from bootstrap.link.target import parse_host

COMMON_OPTIONS = (
    # A dead link ends after a minute, and routers don't drop an idle one.
    ("ServerAliveInterval", "15"),
    ("ServerAliveCountMax", "4"),
    # A box gets no access to this machine: not to its keys, display or Kerberos tickets.
    ("ForwardAgent", "no"),
    ("ForwardX11", "no"),
    ("ForwardX11Trusted", "no"),
    ("GSSAPIDelegateCredentials", "no"),
    # Editors run commands of their own.
    ("RemoteCommand", "none"),
    ("RequestTTY", "auto"),
)
SOCKET_PATH_MAX = 103 if sys.platform == "darwin" else 107
"""Most bytes of a socket's path: 104 on macOS, 108 on Linux, including a final NUL."""
_OWN, _HASH, _SUFFIX = 4, 40, 17
"""Lengths of `_own_part`, of ssh's `%C`, and of the suffix ssh adds while it makes a socket."""
_UNWRITABLE = re.compile(r'["\\\x00-\x1f\x7f]|\$\{')
_PLAIN_HOST = re.compile(r"[A-Za-z0-9._:%+-]+")


class UnwritableError(UsageError):
    """A value that an ssh config can't hold."""


@dataclass(frozen=True)
class Entry:
    """A `Host` block: the alias and its options, in order."""

    alias: str
    options: tuple[tuple[str, str], ...]

    also: str = ""
    """Another name of the same host."""

    def text(self) -> str:
        """Return the block as it is written to the file."""
        lines = [f"    {name} {value}" for name, value in self.options]
        names = f"{self.alias} {self.also}".rstrip()
        return "\n".join([f"Host {names}", *lines, ""])


def is_users_alias(box: KnownBox) -> bool:
    """Whether the box's name is an alias of the user's own ssh config."""
    try:
        typed = parse_host(box.host_text).address
    except UsageError:
        return False
    return typed == box.name and box.address.lower() != typed.lower()


def own_entry(box: KnownBox, folder: str = "") -> Entry:
    """Return the whole entry of a box; connections are shared in `folder`, if one is given.

    Raises UnwritableError for a path that an ssh config can't hold.
    """
    shared = [
        ("ControlMaster", "auto"),
        ("ControlPath", f'"{folder}/{_own_part(box)}%C"'),
        ("ControlPersist", "10m"),
    ]
    options = [
        *_address(box),
        *_keys(box),
        *_trust(box, quoted(box.known_hosts)),
        *COMMON_OPTIONS,
        *(shared if folder else ()),
        *_route(box),
    ]
    return _entry_with(box, options)


def windows_entry(box: KnownBox, keys: Iterable[str]) -> str:
    """Return the text of a box's entry for Windows' ssh, which can't share connections.

    `keys` are names of files in its .ssh folder; the host keys are in `boxstrap/` there.
    """
    files = [("IdentityFile", quoted(f"~/.ssh/{key}")) for key in keys]
    options = [
        *_address(box),
        *files,
        *([("IdentitiesOnly", "yes")] if files else ()),
        *_trust(box, f"~/.ssh/boxstrap/{box.name}.known_hosts"),
        *COMMON_OPTIONS,
    ]
    return _entry_with(box, options).text()


def _entry_with(box: KnownBox, options: Iterable[tuple[str, str]]) -> Entry:
    """Make the entry, also for the lower-case name: editors use URIs, which lose capitals."""
    alias = box.name
    return Entry(alias, tuple(options), alias.lower() if alias != alias.lower() else "")


def _address(box: KnownBox) -> list[tuple[str, str]]:
    if not _PLAIN_HOST.fullmatch(box.address) or not re.fullmatch(r"[\w.+@-]*", box.user):
        raise UnwritableError(f"{box.address} is no plain address")
    user = [("User", box.user)] if box.user else []
    return [("HostName", box.address.replace("%", "%%")), ("Port", str(box.port)), *user]


def _trust(box: KnownBox, known_hosts: str) -> list[tuple[str, str]]:
    return [
        ("UserKnownHostsFile", known_hosts),
        ("HostKeyAlias", box.host_key_alias),
        ("StrictHostKeyChecking", "yes"),
        ("UpdateHostKeys", "no"),
        ("CheckHostIP", "no"),
    ]


def added_entry(boxes: Iterable[KnownBox]) -> Entry:
    """Return the additions to a user's own alias; `boxes` are all boxes behind it, newest first."""
    first, *others = list(boxes)
    theirs = first.route.known_hosts or ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
    files = [*theirs, *(str(box.known_hosts) for box in (first, *others))]
    key = [("IdentityFile", quoted(first.route.identity))] if first.route.identity else []
    return Entry(
        parse_host(first.host_text).address,
        (*key, ("UserKnownHostsFile", " ".join(quoted(file) for file in files))),
    )


def quoted(path: object) -> str:
    """Quote a path for an option that expands `%`. Raises UnwritableError if that can't be done."""
    text = str(path)
    if _UNWRITABLE.search(text):
        raise UnwritableError(f"no ssh config can name the path {text!r}")
    return '"' + text.replace("%", "%%") + '"'


def control_folder(folders: Iterable[Path]) -> str:
    """Return the first folder with short enough socket paths for shared connections, or ""."""
    for folder in folders:
        text = str(folder)
        if len(text.encode()) + 1 + _OWN + _HASH + _SUFFIX <= SOCKET_PATH_MAX:
            return "" if _UNWRITABLE.search(text) else text.replace("%", "%%")
    return ""


def _own_part(box: KnownBox) -> str:
    """Return a part that distinguishes boxes at one address, for which `%C` is the same.

    A box that was forgotten and is set up again counts as a new one.
    """
    return hashlib.sha256(f"{box.name} {box.created}".encode()).hexdigest()[:_OWN]


def _keys(box: KnownBox) -> list[tuple[str, str]]:
    identities = [path for path in box.route.identities if Path(path).exists()]
    only = [("IdentitiesOnly", "yes")] if identities and box.route.identities_only else []
    return [*(("IdentityFile", quoted(path)) for path in identities), *only]


def _route(box: KnownBox) -> list[tuple[str, str]]:
    """Return the jump host or proxy; `none` keeps the user's `Host` patterns from adding one."""
    if box.route.jump:
        return [("ProxyJump", box.route.jump)]
    command = box.route.proxy
    if command and not re.search(r"[\x00-\x1f]", command):
        return [("ProxyCommand", command.replace("%", "%%"))]
    return [("ProxyCommand", "none")]


HEAD = """\
# Written by boxstrap, and again when a box changes: edit nothing here.
# Your ssh config includes this file. To take it out: boxstrap ssh-config --remove
"""
TAKEN = "your own ssh config has a host of that name"
_SAME = "its name differs from a newer box's only in upper and lower case"
_LEFT_OUT = "# left out: "


@dataclass(frozen=True)
class Entries:
    """The file's entries, and the boxes without an entry, each with the reason."""

    entries: tuple[Entry, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names that may be typed after `ssh`."""
        return tuple(entry.alias for entry in self.entries)

    def text(self) -> str:
        """Return the text of the file."""
        notes = [f"{_LEFT_OUT}{alias}: {why}\n" for alias, why in self.left_out.items()]
        return "\n".join([HEAD + "".join(notes), *(entry.text() for entry in self.entries)])


def reachable(boxes: Iterable[KnownBox]) -> list[KnownBox]:
    """List the boxes that ssh can reach, in the given order (newest first).

    Rented addresses are reused: of the boxes at one address only the first,
    which is the newest, is still alive.
    """
    found: dict[tuple[object, ...], KnownBox] = {}
    for box in boxes:
        if box.address and box.known_hosts.is_file():
            place = (box.address.lower(), box.port, box.route.jump, box.route.proxy)
            found.setdefault(place, box)
    return list(found.values())


def entries_of_boxes(
    boxes: Iterable[KnownBox], *, sockets: str = "", taken: Collection[str] = ()
) -> Entries:
    """Make the entries of `boxes`, newest first.

    `taken` are aliases that mean something else in the user's own ssh config; they are left out.
    """
    everything = list(boxes)
    made: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for box in reachable(everything):
        alias = box.name
        if alias.lower() in (other.lower() for other in made):
            left_out[alias] = _SAME
            continue
        if alias in taken:
            left_out[alias] = TAKEN
            continue
        try:
            made[alias] = _entry(box, everything, sockets)
        except UnwritableError as error:
            left_out[alias] = str(error)
    return Entries(tuple(made.values()), left_out)


def _entry(box: KnownBox, boxes: Iterable[KnownBox], sockets: str) -> Entry:
    if not is_users_alias(box):
        return own_entry(box, sockets)
    # Host keys that were pinned under this alias before, for any box, stay known.
    others = [b for b in boxes if b.name != box.name and b.host_text == box.host_text and b.address]
    return added_entry([box, *others])


def aliases_in(text: str) -> frozenset[str]:
    """Return the aliases that have an entry in an earlier file's text."""
    lines = text.splitlines()
    return frozenset(line.split()[1] for line in lines if line.startswith("Host "))


def taken_in(text: str) -> frozenset[str]:
    """Return the aliases that an earlier file left to the user's own ssh config."""
    notes = (line.partition(": ")[2] for line in text.splitlines() if line.startswith(_LEFT_OUT))
    found = (note.partition(": ") for note in notes)
    return frozenset(alias for alias, _, why in found if why == TAKEN)


_BOM = b"\xef\xbb\xbf"
_WORDS = b"# The boxes of boxstrap. To take this out: boxstrap ssh-config --remove"
_MADE = b" (which removes this file too, if nothing else is in it)"


def with_block(data: bytes, include: str, *, is_new: bool = False) -> bytes:
    """Return the file with our lines at its top; unchanged if it has them already.

    `is_new`: there was no such file. Line ends are those of its first line; a
    byte order mark stays first.
    """
    if has_block(data, include):
        return data
    end = b"\r\n" if re.match(rb"[^\n]*\r\n", data) else b"\n"
    made = _MADE if is_new else b""
    block = end.join([_WORDS + made, b"Include " + include.encode(), b"", b""])
    mark = _BOM if data.startswith(_BOM) else b""
    return mark + block + data[len(mark) :]


def without_block(data: bytes, include: str) -> bytes | None:
    """Return the file without our lines; None if we created it and nothing else is in it."""
    found = _pattern(include).search(data)
    if not found:
        return data
    rest = data[: found.start()] + data[found.end() :]
    return None if found["made"] and not rest else rest


def has_block(data: bytes, include: str) -> bool:
    """Whether the file includes our file."""
    return _pattern(include).search(data) is not None


def _pattern(include: str) -> re.Pattern[bytes]:
    """Match our lines, wherever they were moved; the comment and empty line may be missing."""
    words = rb"(?:" + re.escape(_WORDS) + rb"(?P<made>" + re.escape(_MADE) + rb")?\r?\n)?"
    line = rb"[ \t]*Include[ \t]+" + re.escape(include.encode()) + rb"[ \t]*(?:\r?\n|\Z)"
    return re.compile(rb"(?:^|(?<=\xef\xbb\xbf))" + words + line + rb"(?:\r?\n)?", re.MULTILINE)
