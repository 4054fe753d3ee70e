"""Read the public keys that a profile authorizes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bootstrap.errors import ProfileError
from bootstrap.paths import expanded, real
from bootstrap.profile.values import ordinary

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile

_PUBLIC_KEY = re.compile(r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/]{40,}={0,2}( .*)?")
_LONGEST_KEY = 16 * 1024


def public_keys(profile: Profile) -> list[str]:
    """Return the keys that may log in; the files are read because the script has the keys in it.

    Raises ProfileError if a file is missing or is not a public key.
    """
    return [public_key(entry) for entry in profile.ssh.authorized_keys]


def public_key(entry: str) -> str:
    """Return the line of one public key file. Raises ProfileError."""
    path = expanded(entry)
    try:
        ordinary(str(real(path)))
        if not path.is_file():  # opening a pipe would block
            raise FileNotFoundError
        with path.open("rb") as file:
            line = file.read(_LONGEST_KEY).decode().strip()
    except (OSError, ValueError) as error:
        raise ProfileError(
            f"ssh.authorized_keys: {entry} can't be read: {error}",
            hint="Name a public key file (*.pub) that is there.",
        ) from error
    if "PRIVATE KEY" in line:
        raise ProfileError(
            f"ssh.authorized_keys: {entry} is a private key; it never leaves this machine",
            hint=f"You probably mean {entry}.pub",
        )
    if not _PUBLIC_KEY.fullmatch(line) or not line.isprintable():
        raise ProfileError(
            f"ssh.authorized_keys: {entry} is not a public key",
            hint="A public key file has one line that begins with its type, as in ssh-ed25519.",
        )
    return line
