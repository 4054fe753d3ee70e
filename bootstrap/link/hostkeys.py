"""The box's host key: pinned at first contact, refused when it changed.

Each box has a known_hosts file of its own, read by paramiko and OpenSSH alike
(docs/adr/0004: no hashed names, no markers, the address line and the
alias line both). A new pin is kept only once the login succeeded. What the
user's own known_hosts says of the host counts too: agreement pins silently, a
contradiction is refused.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bootstrap.errors import HostKeyError, UsageError
from bootstrap.link import known
from bootstrap.link.known import KnownBox
from bootstrap.link.resolve import Endpoint
from bootstrap.link.talk import Talk

FirstContact = Literal["pin", "ask", "strict"]


@dataclass(frozen=True)
class HostKey:
    """A public host key: its type, and its blob as it goes over the wire."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As OpenSSH prints it: `SHA256:` and base64 without padding."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def __str__(self) -> str:
        short = self.kind.removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper()
        return f"{short} {self.fingerprint}"


@dataclass(frozen=True)
class Known:
    """What a known_hosts file says of one host."""

    keys: frozenset[HostKey]
    revoked: frozenset[HostKey]


def read_known_hosts(files: Iterable[Path], host: str) -> Known:
    """What the files say of `host` (`name`, or `[name]:port` beside port 22).

    Understands plain, wildcard, negated and hashed names and `@revoked`. Host
    certificates (`@cert-authority`) say nothing here: paramiko offers none.
    """
    keys: set[HostKey] = set()
    revoked: set[HostKey] = set()
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for marker, names, key in _lines(text):
            if marker != "@cert-authority" and _names_match(names, host):
                (revoked if marker == "@revoked" else keys).add(key)
    return Known(frozenset(keys - revoked), frozenset(revoked))


def host_name(endpoint: Endpoint) -> str:
    """How known_hosts files call the endpoint."""
    if endpoint.host_key_alias:
        return endpoint.host_key_alias
    name = endpoint.hostname.lower()
    return name if endpoint.port == 22 else f"[{name}]:{endpoint.port}"


@dataclass(frozen=True)
class Rules:
    """What the user asked for: a fingerprint to expect, and what to do at first contact."""

    expected: str | None = None
    first_contact: FirstContact = "pin"


class Trust:
    """Judges the host key that a box shows, before anything is sent to it."""

    def __init__(self, endpoint: Endpoint, box: KnownBox, rules: Rules, talk: Talk) -> None:
        self._endpoint = endpoint
        self._box = box
        self._rules = rules
        self._talk = talk
        self._expected = check_fingerprint(rules.expected) if rules.expected else None
        self._is_new = False
        self._pinned = read_pins(box)
        self._users = read_known_hosts(endpoint.known_hosts_files, host_name(endpoint))
        self._accepted: HostKey | None = None

    def wanted_kinds(self) -> list[str]:
        """Key types to ask the box for first: those that are known of it."""
        keys = self._pinned or (frozenset() if self._box.own_pin else self._users.keys)
        return sorted({key.kind for key in keys})

    def judge(self, key: HostKey) -> None:
        """Accept the key, or raise HostKeyError."""
        if key == self._accepted:
            return
        if key in self._users.revoked:
            raise self._refuse(f"your known_hosts marks its host key as revoked: {key}.")
        if self._pinned and key not in self._pinned:
            raise self._changed(key, self._pinned, f"pinned for {self._box.name}")
        if self._expected and key.fingerprint != self._expected:
            raise self._refuse(
                f"its host key is not the one expected.\n"
                f"  expected  {self._expected}\n  shown     {key}",
                "Nothing was sent. Compare with the provider's page, and mind the key's type.",
            )
        if not self._pinned and not self._expected:
            self._first(key)
        self._accepted = key

    def keep(self) -> None:
        """Pin what was accepted; call it once the login succeeded."""
        if self._accepted:
            pin(self._box, self._endpoint, self._pinned | {self._accepted})
        if self._is_new:
            name = self._box.name
            self._talk.say(f"first contact with {name}: pinned its host key {self._accepted}")
            self._is_new = False

    def _first(self, key: HostKey) -> None:
        if self._users.keys and not self._box.own_pin:
            if key not in self._users.keys:
                raise self._changed(key, self._users.keys, "known in your known_hosts")
            return
        if self._rules.first_contact == "strict":
            raise self._refuse(
                f"its host key is not known yet: {key}.",
                f"If the provider shows the same: --host-key {key.fingerprint}",
            )
        if self._rules.first_contact == "ask":
            question = (
                f"First contact with {self._endpoint.label}. Its host key is {key}. Trust it?"
            )
            if not self._talk.confirm(question):
                raise self._refuse(
                    f"its host key was not confirmed: {key}.",
                    f"Without a terminal, confirm it with --host-key {key.fingerprint}",
                )
            return
        self._is_new = True

    def _changed(self, key: HostKey, before: Iterable[HostKey], whose: str) -> HostKeyError:
        lines = "\n".join(f"  {whose}  {old}" for old in sorted(before, key=str))
        return self._refuse(
            f"its host key changed.\n{lines}\n  shown now  {key}",
            "Nothing was sent. Rented addresses are reused: if this is another box than before, "
            "add --new-box, which keeps the old one. If it should be the same box, someone may "
            "be in between: compare with the provider's page.",
        )

    def _refuse(self, what: str, next_: str = "") -> HostKeyError:
        return HostKeyError(what, where=self._endpoint.label, next_=next_)


def check_fingerprint(text: str) -> str:
    """`SHA256:…` as OpenSSH prints it. Raises UsageError for anything else."""
    bare = text.strip().rstrip("=")
    if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", bare):
        raise UsageError(
            f"{text!r} is no fingerprint.",
            where="--host-key",
            next_="It looks like SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
        )
    return bare


def read_pins(box: KnownBox) -> frozenset[HostKey]:
    """The keys pinned for the box, whatever its address was then."""
    try:
        text = box.known_hosts.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return frozenset()
    return frozenset(key for marker, _, key in _lines(text) if not marker)


def pin(box: KnownBox, endpoint: Endpoint, keys: Iterable[HostKey]) -> None:
    """Write the box's known_hosts: one line for its address, one for its name as HostKeyAlias."""
    name = endpoint.hostname.lower()
    address = name if endpoint.port == 22 else f"[{name}]:{endpoint.port}"
    names = list(dict.fromkeys([address, box.name]))
    lines = [
        f"{host} {key.kind} {base64.b64encode(key.blob).decode()}\n"
        for key in sorted(keys, key=str)
        for host in names
    ]
    text = "".join(lines)
    if not box.known_hosts.is_file() or box.known_hosts.read_text(encoding="utf-8") != text:
        known.make_folder(box)
        known.write_private(box.known_hosts, text)


def _lines(text: str) -> Iterator[tuple[str, str, HostKey]]:
    """Marker, names and key of each line that has them; other lines are passed over."""
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3:
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield marker, words[0], HostKey(words[1], blob)


def _names_match(names: str, host: str) -> bool:
    """OpenSSH's rule: any pattern matches and no negated one does."""
    found = False
    for pattern in names.split(","):
        bare = pattern.removeprefix("!")
        if _name_matches(bare, host):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _name_matches(pattern: str, host: str) -> bool:
    if not pattern.startswith("|1|"):
        # Brackets belong to `[host]:port`; only * and ? are wildcards here.
        literal = pattern.lower().replace("[", "[[]")
        return fnmatch.fnmatchcase(host.lower(), literal)
    try:
        _, _, salt, digest = pattern.split("|")
        wanted = base64.b64decode(digest)
        made = hmac.new(base64.b64decode(salt), host.encode(), "sha1").digest()
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(made, wanted)
