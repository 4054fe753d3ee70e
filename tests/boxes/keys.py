"""SSH keys, made in this process: starting ssh-keygen takes longer than making a key."""

import base64
import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def make_key(path: Path, comment: str) -> None:
    """Write a new Ed25519 key to `path`, and its public half next to it (`.pub`)."""
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    path.with_suffix(".pub").write_text(f"{public} {comment}\n")


def fingerprint(public: str) -> str:
    """Return the SHA256:… fingerprint of a public key, as ssh-keygen prints it."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"
