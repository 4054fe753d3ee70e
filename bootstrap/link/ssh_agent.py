"""A client for the ssh agent at the socket that the ssh config names.

The protocol is draft-miller-ssh-agent. paramiko's own client supports only
SSH_AUTH_SOCK, and loses all keys if the agent has one that it can't parse.
"""

from __future__ import annotations

import socket
import struct

import paramiko

from bootstrap.link.keyfiles import KeyUnusable
from bootstrap.public_key import CERTIFICATE, RSA_SIGNATURES, PublicKey, pack, unpack

_REQUEST_IDENTITIES = b"\x0b"
_IDENTITIES_ANSWER = 12
_SIGN_REQUEST = b"\x0d"
_SIGN_RESPONSE = 14
_ANSWER_TIMEOUT = 5.0
"""Seconds for the list of keys. Signing has no limit: a hardware key waits for a touch."""
_LONGEST_ANSWER = 1 << 20


class Agent:
    """A connection to the agent. If it fails, `keys` is empty and `problem` says why."""

    def __init__(self, path: str | None) -> None:
        self.keys: list[PublicKey] = []
        self.problem = ""
        self._socket: socket.socket | None = None
        if path:
            try:
                self._open(path)
            except (OSError, ValueError, struct.error) as error:
                self.problem = f"the ssh agent at {path} does not answer ({error})"
                self.keys = []

    def close(self) -> None:
        """Close the connection."""
        if self._socket:
            self._socket.close()

    def sign(self, blob: bytes, data: bytes, flags: int) -> bytes:
        """Return the agent's signature of `data` with the key `blob`. Raises KeyUnusable."""
        try:
            request = _SIGN_REQUEST + pack(blob) + pack(data) + struct.pack(">I", flags)
            kind, answer = self._ask(request)
            if kind != _SIGN_RESPONSE:
                raise KeyUnusable("the agent refused to sign with it")
            return next(unpack(answer))
        except (OSError, ValueError, struct.error) as error:
            raise KeyUnusable(f"the agent did not answer ({error})") from None

    def _open(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_TIMEOUT)
        self._socket.connect(path)
        kind, answer = self._ask(_REQUEST_IDENTITIES)
        self._socket.settimeout(None)
        if kind != _IDENTITIES_ANSWER:
            raise ValueError("it refused to list its keys")
        parts = list(unpack(answer[4:]))
        for blob, comment in zip(parts[::2], parts[1::2], strict=True):
            name = next(unpack(blob)).decode("ascii", "replace")
            self.keys.append(PublicKey(name, blob, comment.decode("utf-8", "replace")))

    def _ask(self, message: bytes) -> tuple[int, bytes]:
        if self._socket is None:
            raise ValueError("no connection")
        self._socket.sendall(pack(message))
        (length,) = struct.unpack(">I", self._read(4))
        if not 1 <= length <= _LONGEST_ANSWER:
            raise ValueError(f"an answer of {length} bytes")
        answer = self._read(length)
        return answer[0], answer[1:]

    def _read(self, wanted: int) -> bytes:
        if self._socket is None:
            raise ValueError("no connection")
        data = b""
        while len(data) < wanted:
            piece = self._socket.recv(wanted - len(data))
            if not piece:
                raise ValueError("it closed the connection")
            data += piece
        return data


class AgentKey(paramiko.PKey):
    """A key in the agent, for paramiko to sign with; works for hardware keys too."""

    def __init__(self, agent: Agent, public: PublicKey) -> None:
        self.public_blob = None
        self._agent = agent
        self._public = public

    def get_name(self) -> str:
        """Return the key's type, as SSH names it."""
        return self._public.kind

    def asbytes(self) -> bytes:
        """Return the public half in SSH's wire format."""
        return self._public.blob

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> bytes:  # type: ignore[override]
        """Let the agent sign. Raises KeyUnusable."""
        flags = RSA_SIGNATURES.get((algorithm or "").removesuffix(CERTIFICATE), 0)
        return self._agent.sign(self._public.blob, data, flags)
