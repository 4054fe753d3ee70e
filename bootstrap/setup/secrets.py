"""The secrets that a profile names: taken from here, sent over the login's input alone."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets as random
from collections.abc import Mapping, Sequence

from bootstrap.errors import UsageError
from bootstrap.paths import state_dir

BYTES = ("utf-8", "surrogateescape")
"""How Python gives the environment's bytes as text (PEP 383)."""
_KEY_BYTES = 32


def take(names: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name and value of each. Raises UsageError naming those that are not set."""
    environment = os.environ if environment is None else environment
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise UsageError(
            f"the profile names secrets that are not in your environment: {', '.join(missing)}.",
            where="secrets",
            next_=f"Set them first: export {missing[0]}=…",
        )
    return {name: environment[name] for name in names}


def packed(values: Mapping[str, str]) -> bytes:
    """As the box reads them: NAME=VALUE, each ended by a NUL."""
    # A value of the environment may be any bytes, and arrives as these.
    return b"".join(f"{name}={value}\0".encode(*BYTES) for name, value in values.items())


def fingerprint(values: Mapping[str, str]) -> str:
    """Changes when a value does, and tells nothing about it: keyed with a key of this machine."""
    if not values:
        return ""
    return hmac.new(_key(), packed(values), hashlib.sha256).hexdigest()[:32]


def _key() -> bytes:
    file = state_dir() / "secrets.key"
    with contextlib.suppress(FileNotFoundError):
        key = file.read_bytes()
        if len(key) == _KEY_BYTES:  # a power cut leaves an empty one, which keys nothing
            return key
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = random.token_bytes(_KEY_BYTES)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(key)
    return key
