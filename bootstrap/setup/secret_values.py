"""The secrets that a profile names: taken from here, sent over the login's input alone.

Which ones a box was given is remembered with it, by name, and their values are redacted in
whatever it says from then on.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets as random
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.paths import state_dir, write_private
from bootstrap.text.redact import SHORTEST, Redactor, TooShortError

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxHandle
    from bootstrap.link.record import KnownBox
    from bootstrap.ui.reporter import Reporter

BYTES = ("utf-8", "surrogateescape")
"""How Python gives the environment's bytes as text (PEP 383)."""
_KEY_BYTES = 32
_ONE_KEY = threading.Lock()


def take(names: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name and value of each. Raises UsageError naming those that are not set."""
    environment = os.environ if environment is None else environment
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise UsageError(
            f"the profile names secrets that are not in your environment: {', '.join(missing)}.",
            where="secrets",
            hint=f"Set them first: export {missing[0]}=…",
        )
    return {name: environment[name] for name in names}


def remember(box: BoxHandle, names: Iterable[str]) -> None:
    """Keep with the box which secrets it is about to be given."""
    after = tuple(sorted({*(box.known.secrets or ()), *names}))
    if after != box.known.secrets:
        box.save(replace(box.known, secrets=after))


def redactor_of(
    boxes: Iterable[KnownBox],
    more: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Redactor:
    """Redacts what these boxes were given, where its value is in the environment, and `more`.

    Raises UsageError for one of `more` that is too short.
    """
    environment = os.environ if environment is None else environment
    values = {name: environment.get(name, "") for box in boxes for name in box.secrets or ()}
    can = {name: value for name, value in values.items() if len(value.strip()) >= SHORTEST}
    try:
        return Redactor({**can, **(more or {})})
    except TooShortError as short:
        raise UsageError(
            f"the secret {short} has fewer than {SHORTEST} characters: too short to redact",
            hint=f"set {short} to its whole value, or take it out of the profile's secrets",
        ) from None


def warn_of_unredacted(box: KnownBox, reporter: Reporter, environment: Mapping[str, str]) -> None:
    """Say which of its secrets can't be redacted, since their values are not here any more."""
    gone = [name for name in box.secrets or () if len(environment.get(name, "").strip()) < SHORTEST]
    if gone:
        reporter.warn(
            f"{', '.join(gone)}: given to this box, but not in your environment now, "
            "so it can't be redacted in what the box says"
        )


def packed(values: Mapping[str, str]) -> bytes:
    """As the box reads them: NAME=VALUE, each ended by a NUL."""
    # A value of the environment may be any bytes, and arrives as these.
    return b"".join(f"{name}={value}\0".encode(*BYTES) for name, value in values.items())


def fingerprint(values: Mapping[str, str]) -> str:
    """Changes when a value does, and tells nothing about it: keyed with a key of this machine."""
    if not values:
        return ""
    with _ONE_KEY:  # two setups of one program must not make two
        key = _key()
    return hmac.new(key, packed(values), hashlib.sha256).hexdigest()[:32]


def _key() -> bytes:
    file = state_dir() / "secrets.key"
    with contextlib.suppress(FileNotFoundError):
        key = file.read_bytes()
        if len(key) == _KEY_BYTES:  # a power cut leaves an empty one, which keys nothing
            return key
    key = random.token_bytes(_KEY_BYTES)
    write_private(file, key)
    return key
