"""OpenSSH's known_hosts files (sshd(8)): which keys they list for a host."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.public_key import PublicKey


@dataclass(frozen=True)
class ListedKeys:
    """The keys that known_hosts files list for one host."""

    keys: frozenset[PublicKey]
    revoked: frozenset[PublicKey]


def read_known_hosts(files: Iterable[Path], host: str) -> ListedKeys:
    """Read the keys of `host` from the files (`name`, or `[name]:port` for other ports than 22).

    Supports plain, wildcard, negated and hashed names and `@revoked`. `@cert-authority`
    is ignored: a key counts as it is, certified or not.
    """
    keys: set[PublicKey] = set()
    revoked: set[PublicKey] = set()
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for marker, names, key in key_lines(text):
            if marker != "@cert-authority" and _names_match(names, host):
                (revoked if marker == "@revoked" else keys).add(key)
    return ListedKeys(frozenset(keys - revoked), frozenset(revoked))


def key_lines(text: str) -> Iterator[tuple[str, str, PublicKey]]:
    """Yield marker, names and key of each line that has them; other lines are skipped."""
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
        yield marker, words[0], PublicKey(words[1], blob)


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
