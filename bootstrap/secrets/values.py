"""The secrets that a profile names: read on this machine, sent only over the login's input.

The names of those that a box was given are kept in its record. Their values are redacted in what
it says from then on: on this machine, or on the box itself if this machine lacks the value.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.paths import state_dir, write_private
from bootstrap.secrets.sources import (
    BYTES,
    COMMAND,
    ENVIRONMENT,
    SecretSource,
    ask_command,
    commands_file,
    find_sources,
)
from bootstrap.text.redact import SHORTEST, Redactor, TooShortError

if TYPE_CHECKING:
    from bootstrap.link.record import KnownBox
    from bootstrap.protocol.probe import BoxState

_COMMANDS_MARK = "\0"  # no value contains a NUL


@dataclass(frozen=True)
class SecretSet:
    """The secrets of one setup; those from a command have no value until it is run."""

    sources: tuple[SecretSource, ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    """The values known so far."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names, as the profile has them."""
        return tuple(source.name for source in self.sources)

    @property
    def ids(self) -> list[str]:
        """For each an id that changes with its value; if from a command, with the command."""
        return [identity_of(source) for source in self.sources]

    @property
    def id(self) -> str:
        """One such id for all of them."""
        return fingerprint({source.name: _what_changes(source) for source in self.sources})

    def ask_commands(self, held: Mapping[str, str]) -> bool:
        """Run the commands for what the box lacks; `held` has the names and ids that it has.

        Returns whether any was run. Raises UsageError if one gives no value.
        """
        asked = [
            source
            for source, identity in zip(self.sources, self.ids, strict=True)
            if source.name not in self.values and held.get(source.name) != identity
        ]
        self.values.update({source.name: ask_command(source) for source in asked})
        return bool(asked)

    def describe(self, held: Mapping[str, str]) -> str:
        """Return each name, its value's source, and whether the box has another value."""
        return ", ".join(
            source.name + _remark(source, held.get(source.name), source.name in self.values)
            for source in self.sources
        )


def identity_of(source: SecretSource) -> str:
    """Return an id that changes with the secret, and reveals nothing about it."""
    return fingerprint({source.name: _what_changes(source)})


def _what_changes(source: SecretSource) -> str:
    return _COMMANDS_MARK + source.command if source.origin == COMMAND else source.value


def _remark(source: SecretSource, held: str | None, has_value: bool) -> str:
    if not has_value:
        return " (the box has it; its command is not asked)"
    words = [f"from {source.origin}"] if source.origin != ENVIRONMENT else []
    if held and held != identity_of(source):
        words.append("changed")
    return f" ({', '.join(words)})" if words else ""


def take_secrets(
    names: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> SecretSet:
    """Return the secrets of `names`; a `.env` may be in `folder`. No command is run yet.

    Raises UsageError naming those that have no source.
    """
    sources = find_sources(names, folder, environment)
    missing = [name for name in names if name not in {source.name for source in sources}]
    if missing:
        raise UsageError(
            f"the profile names secrets that are not in your environment: {', '.join(missing)}.",
            where="secrets",
            hint=f"Set them first: export {missing[0]}=…; or put {missing[0]}=… into a .env beside "
            f"the profile, which git ignores, or a command for it into {commands_file()}.",
        )
    values = {each.name: each.value for each in sources if each.origin != COMMAND}
    return SecretSet(tuple(sources), values)


def redactor_of(
    boxes: Iterable[KnownBox],
    more: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Redactor:
    """Return a redactor for `more`, and for these boxes' secrets that are in the environment.

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


def redacted_by_box(box: KnownBox, box_state: BoxState, values: Mapping[str, str]) -> list[str]:
    """Return the secrets that the box itself must redact, because `values` are not what it has.

    If a run may have been started with earlier ones, these are all that it was ever given.
    """
    if not box_state.can_redact:
        return []
    if box_state.had_other_secrets:
        return [*dict.fromkeys((*(box.secrets or ()), *box_state.secrets))]
    return [
        name
        for name, identity in box_state.secrets.items()
        if not values.get(name) or fingerprint({name: values[name]}) != identity
    ]


def unredacted(box: KnownBox, box_state: BoxState, values: Mapping[str, str]) -> list[str]:
    """Return the secrets that can't be redacted: neither this machine nor the box has the value."""
    there = box_state.secrets if box_state.can_redact else ()
    return [
        name
        for name in box.secrets or ()
        if name not in there and len(values.get(name, "").strip()) < SHORTEST
    ]


def packed(values: Mapping[str, str]) -> bytes:
    """Return them as the box reads them: NAME=VALUE, each ended by a NUL."""
    # A value from the environment may be any bytes, and is sent unchanged.
    return b"".join(f"{name}={value}\0".encode(*BYTES) for name, value in values.items())


def fingerprint(values: Mapping[str, str]) -> str:
    """Return a hash of the values, keyed with this machine's key so that it reveals nothing."""
    if not values:
        return ""
    return hmac.new(machine_key(), packed(values), hashlib.sha256).hexdigest()[:32]


_KEY_BYTES = 32
_ONE_KEY = threading.Lock()


def machine_key() -> bytes:
    """Return this machine's key, which fingerprints and receipts are made with; make it if needed.

    Raises OSError.
    """
    with _ONE_KEY:  # two setups in one program must not make two keys
        file = state_dir() / "secrets.key"
        with contextlib.suppress(FileNotFoundError):
            key = file.read_bytes()
            if len(key) == _KEY_BYTES:  # a power cut may leave an empty file, which is no key
                return key
        key = secrets.token_bytes(_KEY_BYTES)
        write_private(file, key)
        return key
