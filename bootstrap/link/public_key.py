"""OpenSSH's public keys: a line in a file, a blob on the wire, a fingerprint (RFC 4251, 4253)."""

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterator

from bootstrap.value import dataclass

CERTIFICATE = "-cert-v01@openssh.com"
"""The end of the type of a key that a certificate authority signed."""
RSA = "ssh-rsa"
RSA_SIGNATURES = {"rsa-sha2-512": 4, "rsa-sha2-256": 2}
"""Signature types of an RSA key, and an agent's flag for each (draft-miller-ssh-agent, 6)."""
ECDSA = tuple(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521))
FILE_KEYS = ("ssh-ed25519", RSA, *ECDSA)  # types of keys that can be used from a file


@dataclass(frozen=True)
class PublicKey:
    """A public key of a person or a host: type, wire blob and comment."""

    kind: str
    blob: bytes
    comment: str = ""

    @property
    def fingerprint(self) -> str:
        """As OpenSSH prints it: `SHA256:` and base64 without padding."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """The line for authorized_keys or a provider's page."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()} {self.comment}".rstrip()

    def __str__(self) -> str:
        short = self.kind.removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper()
        return f"{short} {self.fingerprint}"


def parse_public_key(text: str) -> PublicKey | None:
    """Return the key in the first line of `text`, if there is one."""
    words = text.split("\n", 1)[0].split(None, 2)
    if len(words) < 2:
        return None
    try:
        blob = base64.b64decode(words[1], validate=True)
        kind = next(unpack_key(blob)).decode()
    except (binascii.Error, struct.error, StopIteration, ValueError):
        return None
    comment = words[2].strip() if len(words) > 2 else ""
    return PublicKey(kind, blob, comment) if kind == words[0] else None


def unpack_key(data: bytes) -> Iterator[bytes]:
    """Yield SSH's length-prefixed strings. Raises ValueError, struct.error."""
    while data:
        (length,) = struct.unpack(">I", data[:4])
        if length > len(data) - 4:
            raise ValueError("cut short")
        yield data[4 : 4 + length]
        data = data[4 + length :]


def pack(part: bytes) -> bytes:
    """Return `part` as one of SSH's length-prefixed strings."""
    return struct.pack(">I", len(part)) + part
