"""This machine's key, without which secrets' fingerprints and receipts can't be forged."""

from __future__ import annotations

import contextlib
import secrets
import threading

from bootstrap.paths import state_dir, write_private

_BYTES = 32
_ONE_KEY = threading.Lock()


def machine_key() -> bytes:
    """Return the key; make it if there is none yet. Raises OSError."""
    with _ONE_KEY:  # two setups in one program must not make two keys
        file = state_dir() / "secrets.key"
        with contextlib.suppress(FileNotFoundError):
            key = file.read_bytes()
            if len(key) == _BYTES:  # a power cut may leave an empty file, which is no key
                return key
        key = secrets.token_bytes(_BYTES)
        write_private(file, key)
        return key
