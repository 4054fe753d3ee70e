"""Key files: what can be read of them without a passphrase, and how they are loaded.

An OpenSSH private key contains its public half unencrypted, so its type, its
fingerprint and whether it is encrypted are known before the user is asked.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from bootstrap.public_key import (
    CERTIFICATE,
    ECDSA,
    FILE_KEYS,
    RSA,
    PublicKey,
    pack,
    parse_public_key,
    unpack,
)

_MAGIC = b"openssh-key-v1\0"


class KeyUnusable(Exception):  # noqa: N818 - a reason, said to the user as it is
    """A key can't be used; the message says why, and what to do."""


@dataclass(frozen=True)
class KeyFile:
    """An identity file; `public` is None if it can't be read without the passphrase."""

    path: Path
    public: PublicKey | None
    encrypted: bool
    problem: str = ""


def read_key_file(path: Path) -> KeyFile:
    """Read what is known of an identity file without its passphrase. Never raises."""
    beside = read_public(path.with_name(path.name + ".pub"))
    try:
        data = path.read_bytes()
        mode, owner = path.stat().st_mode, path.stat().st_uid
    except FileNotFoundError:
        return KeyFile(path, beside, False, "its private key file does not exist")
    except OSError as error:
        return KeyFile(path, beside, False, f"can't be read: {error.strerror}")
    alone = parse_public_key(data.decode("utf-8", "replace"))
    if alone:
        return KeyFile(path, alone, False, "it is a public key; its private half is in no agent")
    if owner == os.getuid() and mode & 0o077:
        problem = f"others can read it, so ssh ignores it: chmod 600 {path}"
        return KeyFile(path, beside, False, problem)
    inside, encrypted = _look_inside(data)
    public = beside if beside and (not inside or beside.blob == inside.blob) else inside
    return KeyFile(path, public, encrypted, _problem_of(public))


def read_public(path: Path) -> PublicKey | None:
    """Read the public key or certificate in a file, if there is one."""
    try:
        return parse_public_key(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def load_private(path: Path, passphrase: str | None) -> paramiko.PKey:
    """Load and decrypt a private key. Raises KeyUnusable.

    `cryptography` reads it and passes it on in OpenSSH's format, because
    paramiko itself doesn't read PKCS#8.
    """
    data = path.read_bytes()
    password = passphrase.encode() if passphrase else None
    is_openssh = b"BEGIN OPENSSH PRIVATE KEY" in data[:200]
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    try:
        key = load(data, password)
    except TypeError:
        raise KeyUnusable("it needs its passphrase") from None
    except UnsupportedAlgorithm as error:
        raise KeyUnusable(f"its type can't be used here: {error}") from None
    except ValueError:
        why = "wrong passphrase" if passphrase else "it is damaged, or no private key"
        raise KeyUnusable(why) from None
    classes: list[tuple[type, type[paramiko.PKey]]] = [
        (Ed25519PrivateKey, paramiko.Ed25519Key),
        (RSAPrivateKey, paramiko.RSAKey),
        (EllipticCurvePrivateKey, paramiko.ECDSAKey),
    ]
    for theirs, ours in classes:
        if isinstance(key, theirs):
            text = key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
            return ours.from_private_key(io.StringIO(text.decode()))
    raise KeyUnusable(_problem_of_kind(type(key).__name__))


def inner_blob(certificate: PublicKey) -> bytes | None:
    """Return the blob of the plain public key that a certificate is for."""
    kind = certificate.kind.removesuffix(CERTIFICATE)
    fields = {"ssh-ed25519": 1, **dict.fromkeys((RSA, *ECDSA), 2)}.get(kind)
    if not fields or not certificate.is_certificate:
        return None
    try:
        parts = unpack(certificate.blob)
        next(parts)  # the certificate's type
        next(parts)  # the nonce
        wanted = [next(parts) for _ in range(fields)]
    except (struct.error, StopIteration):
        return None
    return b"".join(pack(part) for part in [kind.encode(), *wanted])


def _look_inside(data: bytes) -> tuple[PublicKey | None, bool]:
    """Return the public half of an OpenSSH private key, and whether the key is encrypted."""
    head = data[:400]
    if b"BEGIN OPENSSH PRIVATE KEY" not in head:
        return None, b"ENCRYPTED" in head
    body = b"".join(line for line in data.splitlines() if not line.startswith(b"-----"))
    try:
        raw = base64.b64decode(body, validate=True)
        if not raw.startswith(_MAGIC):
            return None, False
        rest = raw[len(_MAGIC) :]
        parts = unpack(rest)
        cipher, kdf, options = next(parts), next(parts), next(parts)
        start = 12 + len(cipher) + len(kdf) + len(options) + 4  # past the number of keys
        blob = next(unpack(rest[start:]))
        kind = next(unpack(blob)).decode()
    except (binascii.Error, struct.error, StopIteration, ValueError):
        return None, False
    return PublicKey(kind, blob), cipher != b"none"


def _problem_of(public: PublicKey | None) -> str:
    return _problem_of_kind(public.kind) if public and public.kind not in FILE_KEYS else ""


def _problem_of_kind(kind: str) -> str:
    if kind.startswith("sk-"):
        return "it lives on a hardware key: add it to your agent first (ssh-add), then try again"
    if "dss" in kind or "DSA" in kind:
        return "DSA keys are no longer accepted by ssh: make one with ssh-keygen -t ed25519"
    return f"keys of type {kind} can't be used from a file: ssh-add it, or use an ed25519 key"
