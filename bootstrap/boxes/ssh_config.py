"""All live boxes as one file of ssh config entries, which the user's own includes.

A box has its own entry (ssh_config(5)), under its name. A box that is reached by an alias of the
user's own ssh config keeps that alias as the user wrote it; only its pinned host key, next to the
user's own known_hosts files, and the key file that was named are added.

The lines that include ours are at the very top, because an `Include` after a `Host` or `Match`
applies only to that host or match. They are changed in bytes, to keep the rest.
"""

import contextlib
import fcntl
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from bootstrap.boxes.userfile import ConfigPlace, LeftAloneError, UserFile
from bootstrap.errors import UsageError
from bootstrap.link.endpoint import has_keys
from bootstrap.link.record import KnownBox, all_boxes, is_newer, unreadable_record
from bootstrap.link.target import PLAIN_HOST
from bootstrap.paths import ask_program, make_private, shipped, write_private
from bootstrap.value import dataclass, field

_GSSAPI = "GSSAPIDelegateCredentials"
COMMON_OPTIONS = (
    # A dead link ends after a minute, and routers don't drop an idle one.
    ("ServerAliveInterval", "15"),
    ("ServerAliveCountMax", "4"),
    # A box gets no access to this machine: not to its keys, display or Kerberos tickets.
    ("ForwardAgent", "no"),
    ("ForwardX11", "no"),
    ("ForwardX11Trusted", "no"),
    (_GSSAPI, "no"),
    # Editors run commands of their own.
    ("RemoteCommand", "none"),
    ("RequestTTY", "auto"),
)
_UNWRITABLE = r'["\\\x00-\x1f\x7f]|\$\{'


class UnwritableError(UsageError):
    """A value that an ssh config can't hold."""


@dataclass(frozen=True)
class Entry:
    """A `Host` block: the alias and its options, in order."""

    alias: str
    options: tuple[tuple[str, str], ...]

    also: str = ""  # another name of the same host

    def text(self) -> str:
        lines = [f"    {name} {value}" for name, value in self.options]
        names = f"{self.alias} {self.also}".rstrip()
        return "\n".join([f"Host {names}", *lines, ""])


def is_users_alias(box: KnownBox) -> bool:
    """Whether the box's name is an alias of the user's own ssh config."""
    try:
        typed = box.target.address
    except UsageError:
        return False
    return typed == box.name and box.address.lower() != typed.lower()


def own_entry(box: KnownBox) -> Entry:
    """Return the whole entry of a box: how it is reached, and which host keys are its own.

    It names no shared connection: with one, `-A`, `-L` and `-D` would do nothing, or outlive the
    command. Raises UnwritableError for a path that an ssh config can't hold.
    """
    identities = [path for path in box.route.identities if Path(path).exists()]
    only = [("IdentitiesOnly", "yes")] if identities and box.route.identities_only else []
    options = [
        *_address(box),
        *(("IdentityFile", quoted(path)) for path in identities),
        *only,
        *_trust(box, quoted(box.known_hosts)),
        *COMMON_OPTIONS,
        *_route(box),
    ]
    return _entry_with(box, options)


def windows_entry(box: KnownBox, keys: Iterable[str]) -> str:
    """Return the text of a box's entry for Windows' ssh. `keys` are names of files in its .ssh
    folder; the host keys are in `boxstrap/` there."""
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
    if not re.fullmatch(PLAIN_HOST, box.address) or not re.fullmatch(r"[\w.+@-]*", box.user):
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


def quoted(path: object) -> str:
    """Quote a path for an option that expands `%`. Raises UnwritableError if that can't be done."""
    text = str(path)
    if re.search(_UNWRITABLE, text):
        raise UnwritableError(f"no ssh config can name the path {text!r}")
    return '"' + text.replace("%", "%%") + '"'


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
TAKEN = "your own ssh config, or a file of known hosts, has a host of that name"
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
        notes = [f"{_LEFT_OUT}{alias}: {why}\n" for alias, why in self.left_out.items()]
        return "\n".join([HEAD + "".join(notes), *(entry.text() for entry in self.entries)])


def reachable(boxes: Iterable[KnownBox]) -> list[KnownBox]:
    """List the boxes that ssh can reach, in their order. Addresses are reused: of the boxes at one
    only the first, which is the newest, is still alive."""
    found: dict[tuple[object, ...], KnownBox] = {}
    for box in boxes:
        if box.address and box.known_hosts.is_file():
            place = (box.address.lower(), box.port, box.route.jump, box.route.proxy)
            found.setdefault(place, box)
    return list(found.values())


def entries_of_boxes(boxes: Iterable[KnownBox], *, taken: Collection[str] = ()) -> Entries:
    """Make the entries of `boxes`, newest first. `taken` are aliases that mean something else in
    the user's own ssh config; they are left out."""
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
            made[alias] = _entry(box, everything)
        except UnwritableError as error:
            left_out[alias] = str(error)
    return Entries(tuple(made.values()), left_out)


def _entry(box: KnownBox, boxes: Iterable[KnownBox]) -> Entry:
    if not is_users_alias(box):
        return own_entry(box)
    # Added to a user's own alias: host keys that were pinned under it, for any box, stay known.
    others = [b for b in boxes if b.name != box.name and b.host_text == box.host_text and b.address]
    theirs = box.route.known_hosts or ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
    files = " ".join(map(quoted, [*theirs, *(each.known_hosts for each in (box, *others))]))
    key = [("IdentityFile", quoted(box.route.identity))] if box.route.identity else []
    return Entry(box.target.address, (*key, ("UserKnownHostsFile", files)))


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
    """Return the file with our lines at its top, once. `is_new`: there was no such file. Line ends
    are those of its first line; a byte order mark stays first."""
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
    return _pattern(include).search(data) is not None


def _pattern(include: str) -> re.Pattern[bytes]:
    """Match our lines, wherever they were moved; the comment and empty line may be missing."""
    words = rb"(?:" + re.escape(_WORDS) + rb"(?P<made>" + re.escape(_MADE) + rb")?\r?\n)?"
    line = rb"[ \t]*Include[ \t]+" + re.escape(include.encode()) + rb"[ \t]*(?:\r?\n|\Z)"
    return re.compile(rb"(?:^|(?<=\xef\xbb\xbf))" + words + line + rb"(?:\r?\n)?", re.MULTILINE)


_SSH_TIMEOUT_S = 30


def common_options() -> dict[str, str]:
    """Return the options of every login that the ssh here knows."""
    return {name: value for name, value in COMMON_OPTIONS if name != _GSSAPI or _knows_tickets()}


def _knows_tickets() -> bool:
    """Whether the ssh here has Kerberos; one without it complains of the option at each login."""
    answer = _ask(["ssh", "-G", "-F", "none", "-o", f"{_GSSAPI}=no", "--", "boxstrap-looks"])
    return answer is None or f'Unsupported option "{_GSSAPI.lower()}"' not in answer.stderr


def _without_tickets(text: str) -> str:
    return re.sub(rf"^ *{_GSSAPI} .*\n", "", text, flags=re.MULTILINE)


@dataclass(frozen=True)
class UpdateResult:
    entries: Entries
    changed: bool  # whether anything was written
    trouble: str = ""  # why the user's ssh config does not include the entries, and what to do

    def alias(self, box: KnownBox) -> str:
        """Return what to type after `ssh` for this box; "" if it has no entry."""
        alias = box.name
        return alias if alias in self.entries.aliases and not self.trouble else ""


def update(place: ConfigPlace, *, afresh: bool = False) -> UpdateResult:
    """Update the entries from the known boxes. `afresh`: check again the aliases that were left out
    because they mean something else."""
    make_private(place.folder)
    with _alone(place):
        before = _read(place)
        boxes = all_boxes()
        taken = frozenset() if afresh else taken_in(before)
        own = (box.name for box in reachable(boxes) if not is_users_alias(box))
        new = [alias for alias in own if alias not in aliases_in(before) | taken]
        taken |= {alias for alias in new if _is_users_host(place, alias)}
        found = entries_of_boxes(boxes, taken=taken)
        text = found.text() + _blocks_of_newer(before, found)
        if before == _without_tickets(text) or (text != before and not _knows_tickets()):
            text = _without_tickets(text)
        if text != before:
            write_private(place.entries, text)
        try:
            included = _include(place)
        except LeftAloneError as error:
            trouble = (
                f"{error}, so it was left as it is.\n"
                f"Put this at its top yourself: Include {place.include}"
            )
            return UpdateResult(found, text != before, trouble)
        changed = included or text != before
    return UpdateResult(found, changed, _without_effect(place, found) if changed else "")


def remove_block(place: ConfigPlace) -> bool:
    """Restore the user's ssh config; return whether it had our lines. Raises UsageError."""
    file = UserFile(place.config)
    make_private(place.folder)
    with _alone(place):
        try:
            data = file.read()
            if there := data is not None and has_block(data, place.include):
                rest = without_block(data, place.include)
                if rest is None:
                    file.remove()
                else:
                    file.prepare(rest).put()
        except LeftAloneError as error:
            raise UsageError(
                f"{error}, so it was left as it is.",
                hint=f"Take this line out yourself: Include {place.include}",
            ) from None
        place.entries.unlink(missing_ok=True)
        place.off.touch()
    return there


@contextlib.contextmanager
def _alone(place: ConfigPlace) -> Iterator[None]:
    """Lock out other boxstrap processes; the user may still edit the file."""
    with (place.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(place: ConfigPlace) -> str:
    try:
        return place.entries.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _blocks_of_newer(before: str, found: Entries) -> str:
    """Return the blocks of boxes whose record a newer boxstrap wrote, to keep them unchanged."""
    files = [str(box.known_hosts) for box in unreadable_record() if is_newer(box.folder)]
    blocks = [block for block in before.split("\n\n") if any(file in block for file in files)]
    return "".join(
        f"\n{block.rstrip()}\n" for block in blocks if block.split()[1] not in found.aliases
    )


def _is_users_host(place: ConfigPlace, alias: str) -> bool:
    """Whether this name, as it is or lower-case, is a host of the user's: their ssh config has
    something for it, they have logged in there, or it is a git host, an address, this machine."""
    if re.fullmatch(_ADDRESS, alias.lower()):
        return True
    for form in {alias, alias.lower()}:
        files = (place.config.with_name("known_hosts"), shipped("templates") / "known_hosts")
        if has_keys(form, files):
            return True
        if place.config.exists():
            if _leads_to(place, form) not in ("", alias.lower()):
                return True
            # A pattern such as `gpu-*` or `*-gpu`, which may be there for boxes, says the same of
            # these; one such as `*.lan` is about hosts.
            near = [f"{form}x", *([] if "." in form else [f"x{form}"])]
            if _settings(place, form, *_REACHED) not in [
                _settings(place, each, *_REACHED) for each in near
            ]:
                return True
    return False


_ADDRESS = r"local|localhost(\.localdomain)?|[0-9.]+"
_REACHED = ("user", "port", "identityfile", "proxyjump", "proxycommand", "hostkeyalias")


def _without_effect(place: ConfigPlace, found: Entries) -> str:
    """Return what to do if our lines were moved to where they have no effect, else ""."""
    for entry in found.entries:
        address = dict(entry.options).get("HostName")
        if address and not address.count("%"):
            if _leads_to(place, entry.alias) in ("", address.lower()):
                return ""
            return (
                f"the Include in {place.config} has no effect at its position.\n"
                "Put it above every Host and Match; or take it out, then: boxstrap ssh-config"
            )
    return ""


def _leads_to(place: ConfigPlace, alias: str) -> str:
    """Return the address that ssh would connect to, in lower case; "" if ssh doesn't say."""
    return "".join(value.lower() for _, value in _settings(place, alias, "hostname"))


def _settings(place: ConfigPlace, alias: str, *names: str) -> list[tuple[str, str]]:
    """Return what the user's ssh config says of these for a host; nothing if ssh doesn't say."""
    answer = _ask([*place.ssh, "-G", "--", alias])
    lines = answer.stdout.splitlines() if answer and not answer.returncode else []
    found = (line.partition(" ") for line in lines)
    return [(name, value) for name, _, value in found if name in names]


def _include(place: ConfigPlace) -> bool:
    """Include our file; returns whether anything was written. Raises LeftAloneError."""
    file = UserFile(place.config)
    data = file.read()
    if data is not None and has_block(data, place.include):
        return False
    draft = file.prepare(with_block(data or b"", place.include, is_new=data is None))
    try:
        answer = _ask(["ssh", "-G", "-F", str(draft.path), "--", "boxstrap-looks"])
        if answer is None or answer.returncode:
            said = answer.stderr.strip()[-300:] if answer else "it does not answer"
            said = said.replace(str(draft.path), str(place.config))
            raise LeftAloneError(f"ssh does not accept {place.config} ({said})")
        draft.put()
    finally:
        draft.drop()
    return True


def _ask(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return ask_program(command, _SSH_TIMEOUT_S)
    return None
