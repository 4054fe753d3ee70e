"""The key of this machine: by it secrets' fingerprints and receipts are told from made-up ones."""

from __future__ import annotations

import contextlib
import secrets
import threading

from bootstrap.paths import state_dir, write_private

_BYTES = 32
_ONE_KEY = threading.Lock()


def machine_key() -> bytes:
    """The key, made where there is none yet. Raises OSError."""
    with _ONE_KEY:  # two setups of one program must not make two
        file = state_dir() / "secrets.key"
        with contextlib.suppress(FileNotFoundError):
            key = file.read_bytes()
            if len(key) == _BYTES:  # a power cut leaves an empty one, which keys nothing
                return key
        key = secrets.token_bytes(_BYTES)
        write_private(file, key)
        return key
