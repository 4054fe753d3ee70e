"""Which keys a login tries, in which order, and the errors when none works.

OpenSSH's order: certificates, keys of the agent that an IdentityFile names, other keys of the agent
(unless IdentitiesOnly), key files. The key that the user named and the one that logged in last time
go first: each wrong key costs a round trip and one of the few tries that the box allows. Of a key
file the public half is read first, which needs no passphrase.

The agent's protocol (draft-miller-ssh-agent) is spoken from here: paramiko's client supports only
SSH_AUTH_SOCK, and loses all keys if the agent has one that it can't parse.
"""

import base64
import binascii
import io
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from paramiko.auth_strategy import AuthStrategy
from paramiko.config import SSHConfig

from bootstrap.errors import UnreachableError
from bootstrap.link.endpoint import Endpoint, resolve
from bootstrap.link.hostkeys import HostKeyCheck
from bootstrap.link.prompt import Prompt
from bootstrap.link.public_key import (
    CERTIFICATE,
    ECDSA,
    FILE_KEYS,
    RSA,
    RSA_SIGNATURES,
    PublicKey,
    pack,
    parse_public_key,
    unpack_key,
)
from bootstrap.link.shared import SilentKey
from bootstrap.link.target import parse_host
from bootstrap.link.transport import BoxTransport
from bootstrap.link.wire import LoginRefused, read_exactly
from bootstrap.paths import read_regular

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
        data = read_regular(path)
        mode, owner = path.stat().st_mode, path.stat().st_uid
    except FileNotFoundError:
        return KeyFile(path, beside, False, "its private key file does not exist")
    except OSError as error:
        return KeyFile(path, beside, False, f"can't be read: {error.strerror}")
    if alone := parse_public_key(data.decode("utf-8", "replace")):
        return KeyFile(path, alone, False, "it is a public key; its private half is in no agent")
    if owner == os.getuid() and mode & 0o077:
        problem = f"others can read it, so ssh ignores it: chmod 600 {path}"
        return KeyFile(path, beside, False, problem)
    inside, encrypted = _look_inside(data)
    public = beside if beside and (not inside or beside.blob == inside.blob) else inside
    is_unusable = public and public.kind not in FILE_KEYS
    problem = _problem_of_kind(public.kind) if public and is_unusable else ""
    return KeyFile(path, public, encrypted, problem)


def read_public(path: Path) -> PublicKey | None:
    try:
        return parse_public_key(read_regular(path).decode("utf-8", "replace"))
    except OSError:
        return None


def load_private(path: Path, passphrase: str | None) -> paramiko.PKey:
    """Load and decrypt a private key, by `cryptography`: paramiko itself doesn't read PKCS#8.
    Raises KeyUnusable."""
    data = read_regular(path)
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
    if not fields or not certificate.kind.endswith(CERTIFICATE):
        return None
    try:
        parts = unpack_key(certificate.blob)
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
        parts = unpack_key(rest)
        cipher, kdf, options = next(parts), next(parts), next(parts)
        start = 12 + len(cipher) + len(kdf) + len(options) + 4  # past the number of keys
        blob = next(unpack_key(rest[start:]))
        kind = next(unpack_key(blob)).decode()
    except (binascii.Error, struct.error, StopIteration, ValueError):
        return None, False
    return PublicKey(kind, blob), cipher != b"none"


def _problem_of_kind(kind: str) -> str:
    if kind.startswith("sk-"):
        return "it lives on a hardware key: add it to your agent first (ssh-add), then try again"
    if "dss" in kind or "DSA" in kind:
        return "DSA keys are no longer accepted by ssh: make one with ssh-keygen -t ed25519"
    return f"keys of type {kind} can't be used from a file: ssh-add it, or use an ed25519 key"


_REQUEST_IDENTITIES = b"\x0b"
_IDENTITIES_ANSWER = 12
_SIGN_REQUEST = b"\x0d"
_SIGN_RESPONSE = 14
_ANSWER_TIMEOUT = 5.0
"""Seconds for the list of keys. Signing has no limit: a hardware key waits for a touch."""
_LONGEST_ANSWER = 1 << 20
_NOBODY_S = 0.25
"""A signature that took the agent longer may have waited for a person: a touch, a `confirm`."""


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
        if self._socket:
            self._socket.close()

    def sign(self, blob: bytes, data: bytes, flags: int) -> bytes:
        """Return the agent's signature of `data` with the key `blob`. Raises KeyUnusable."""
        try:
            request = _SIGN_REQUEST + pack(blob) + pack(data) + struct.pack(">I", flags)
            kind, answer = self._ask(request)
            if kind != _SIGN_RESPONSE:
                raise KeyUnusable("the agent refused to sign with it")
            return next(unpack_key(answer))
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
        parts = list(unpack_key(answer[4:]))
        for blob, comment in zip(parts[::2], parts[1::2], strict=True):
            name = next(unpack_key(blob)).decode("ascii", "replace")
            self.keys.append(PublicKey(name, blob, comment.decode("utf-8", "replace")))

    def _ask(self, message: bytes) -> tuple[int, bytes]:
        if self._socket is None:
            raise ValueError("no connection")
        self._socket.sendall(pack(message))
        (length,) = struct.unpack(">I", read_exactly(self._socket, 4))
        if not 1 <= length <= _LONGEST_ANSWER:
            raise ValueError(f"an answer of {length} bytes")
        answer = read_exactly(self._socket, length)
        return answer[0], answer[1:]


class AgentKey(paramiko.PKey):
    """A key in the agent, for paramiko to sign with; works for hardware keys too."""

    def __init__(self, agent: Agent, public: PublicKey) -> None:
        self.public_blob = None
        self._agent = agent
        self._public = public
        self.asked = public.kind.startswith("sk-")  # whether a signature may have asked somebody

    def get_name(self) -> str:
        return self._public.kind

    def asbytes(self) -> bytes:
        """Return the public half in SSH's wire format."""
        return self._public.blob

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> bytes:  # type: ignore[override]
        """Let the agent sign. Raises KeyUnusable."""
        flags = RSA_SIGNATURES.get((algorithm or "").removesuffix(CERTIFICATE), 0)
        began = time.monotonic()
        signature = self._agent.sign(self._public.blob, data, flags)
        self.asked = self.asked or time.monotonic() - began > _NOBODY_S
        return signature


_loaded: dict[Path, paramiko.PKey] = {}
"""Decrypted keys, so that reconnecting doesn't ask for the passphrase again."""


@dataclass(frozen=True)
class Candidate:
    """A key to try: where it is from, its public half, and the file or agent that signs."""

    where: str
    public: PublicKey | None
    file: KeyFile | None = None
    agent: Agent | None = None
    certificate: PublicKey | None = None
    path: Path | None = None  # the identity file that it belongs to, if any

    @property
    def shown(self) -> PublicKey | None:
        """The part that is sent to the box."""
        return self.certificate or self.public


def candidates(endpoint: Endpoint, agent: Agent, last_key: str = "") -> list[Candidate]:
    """List the keys to try, in order; unusable ones are included, with their problem."""
    files = [read_key_file(path) for path in dict.fromkeys(endpoint.identity_files)]
    held = {key.blob: key for key in agent.keys}
    named = {file.public.blob: file.path for file in files if file.public}
    in_agent = [
        Candidate(_agent_name(key), key, agent=agent, path=named.get(key.blob))
        for key in agent.keys
        if key.blob in named or not endpoint.identities_only
    ]
    in_agent.sort(key=lambda candidate: candidate.path is None)
    on_disk = [
        Candidate(_home(file.path), file.public, file=file, path=file.path)
        for file in files
        if not file.public or file.public.blob not in held
    ]
    found = [*_certified(endpoint, in_agent + on_disk), *in_agent, *on_disk]

    def rank(candidate: Candidate) -> int:
        if endpoint.chosen_identity and candidate.path == endpoint.chosen_identity:
            return 0
        shown = candidate.shown
        return 1 if shown and shown.fingerprint == last_key else 2

    return sorted(found, key=rank)


def _certified(endpoint: Endpoint, plain: list[Candidate]) -> Iterator[Candidate]:
    """Yield a candidate for each certificate that has its key among `plain`."""
    beside = [path.with_name(path.name + "-cert.pub") for path in endpoint.identity_files]
    for path in dict.fromkeys([*endpoint.certificate_files, *beside]):
        certificate = read_public(path)
        blob = inner_blob(certificate) if certificate else None
        for key in plain:
            if blob and key.public and key.public.blob == blob:
                yield Candidate(_home(path), key.public, key.file, key.agent, certificate, key.path)
                break


class KeyLogin(AuthStrategy):
    """Logs in with the first key that the box accepts."""

    def __init__(
        self, endpoint: Endpoint, check: HostKeyCheck, prompt: Prompt, *, last_key: str = ""
    ) -> None:
        super().__init__(ssh_config=SSHConfig())
        self._endpoint = endpoint
        self._check = check
        self._prompt = prompt
        self._agent = Agent(endpoint.identity_agent)
        self._candidates = candidates(endpoint, self._agent, last_key)
        self._tried: list[tuple[Candidate, str]] = []
        self.used = ""  # fingerprint of the key that was accepted
        self.silent: SilentKey | None = None
        """That key, if it can log in once more without asking anybody anything."""

    def get_sources(self) -> Iterator[paramiko.auth_strategy.AuthSource]:
        """Return none: the candidates are tried in `authenticate`."""
        return iter(())

    def authenticate(
        self, transport: paramiko.Transport
    ) -> list[paramiko.auth_strategy.SourceResult]:
        """Check the host key, then try the keys. Raises HostKeyError, UnreachableError."""
        if not isinstance(transport, BoxTransport):
            raise TypeError("made by BoxTransport only")
        host_key = transport.get_remote_server_key()
        self._check.judge(PublicKey(host_key.get_name(), host_key.asbytes()))
        try:
            for candidate in self._candidates:
                if self._try(transport, candidate):
                    return []
        finally:
            self._agent.close()
        raise self._refused()

    def _try(self, transport: BoxTransport, candidate: Candidate) -> bool:
        try:
            key = self._unlock(transport, candidate)
            if key is None:
                self._tried.append((candidate, "refused"))
                return False
            more = transport.auth_publickey(self._endpoint.user, key)
        except KeyUnusable as reason:
            self._tried.append((candidate, str(reason)))
            return False
        except paramiko.BadAuthenticationType as error:
            raise self._no_keys(error.allowed_types) from None
        except (paramiko.SSHException, EOFError, OSError) as error:
            self._tried.append((candidate, "refused"))
            if transport.is_active() and "timeout" not in str(error).lower():
                return False
            self._hung_up(transport, error)
        if more:
            raise self._no_keys(more, second=True)
        self.used = candidate.shown.fingerprint if candidate.shown else ""
        self.silent = self._silent(candidate, key)
        return True

    def _silent(self, candidate: Candidate, key: paramiko.PKey) -> SilentKey | None:
        if candidate.certificate:
            return None
        if isinstance(key, AgentKey):
            agent = self._endpoint.identity_agent or ""
            line = candidate.public.line if candidate.public else ""
            return None if key.asked else SilentKey(None, line, agent)
        file = candidate.file
        return SilentKey(file.path) if file and not file.encrypted else None

    def _unlock(self, transport: BoxTransport, candidate: Candidate) -> paramiko.PKey | None:
        """Return the key, ready to sign; None if the box would not accept it anyway."""
        file = candidate.file
        if candidate.agent and candidate.public:
            key: paramiko.PKey = AgentKey(candidate.agent, candidate.public)
        elif file is None or file.problem:
            raise KeyUnusable(file.problem if file else "it has no private half")
        elif file.path in _loaded:
            key = _loaded[file.path]
        elif not file.encrypted:
            key = load_private(file.path, None)
        else:
            shown = candidate.shown
            if shown and not transport.would_accept(self._endpoint.user, shown.kind, shown.blob):
                return None
            if not self._prompt.has_terminal():
                raise KeyUnusable(
                    f"it needs its passphrase and there is no terminal to ask: ssh-add {file.path}"
                )
            passphrase = self._prompt.secret(f"Passphrase for {_home(file.path)}: ")
            if not passphrase:
                raise KeyUnusable("no passphrase was given")
            key = _loaded[file.path] = load_private(file.path, passphrase)
        if candidate.certificate:
            key.public_blob = paramiko.pkey.PublicBlob(
                candidate.certificate.kind, candidate.certificate.blob
            )
        elif not candidate.agent:
            key.public_blob = None
        return key

    def _refused(self) -> LoginRefused:
        user = self._endpoint.user
        if not self._tried:
            problem = f" ({self._agent.problem})" if self._agent.problem else ""
            return self._refusal(
                f"there is no ssh key to log in with{problem}.",
                "Make one with `ssh-keygen -t ed25519`, add its .pub file on the provider's page, "
                "or name one with --identity.",
            )
        for key, why in self._tried:
            if why != "refused" and key.shown and key.file and key.file.encrypted:
                what = f"it accepts your key {key.where}, but {why}."
                return self._refusal(what, "Unlock it, then run the same command again.")
        return self._refusal(
            f"it accepts none of your keys for the user {user}.\n{self._table()}",
            f"{self._paste()}\nIs {user} the right user? boxstrap logs in with keys only, "
            "never with passwords.",
        )

    def _hung_up(self, transport: BoxTransport, error: Exception) -> NoReturn:
        if transport.is_active():
            raise self._error("it did not answer the login in time.", "Try again.")
        if isinstance(error, EOFError) or self._tried[1:] or transport.disconnect_reason:
            said = f" ({transport.disconnect_reason})" if transport.disconnect_reason else ""
            raise self._error(
                f"it hung up after {len(self._tried)} keys{said}.\n{self._table()}",
                "Name the right key with --identity, or set IdentityFile and IdentitiesOnly yes "
                "for this host in your ssh config.",
            )
        raise self._error("it hung up during the login.", "Try again in a minute.")

    def _no_keys(self, allowed: list[str], *, second: bool = False) -> LoginRefused:
        ways = ", ".join(allowed)
        what = "it wants more than a key" if second else "it does not accept keys"
        return self._refusal(
            f"{what}; it asks for: {ways}.",
            "boxstrap logs in with keys only, never with passwords. Add your public key on the "
            "provider's page.",
        )

    def _table(self) -> str:
        rows = []
        for candidate, outcome in self._tried:
            rows.append(f"  {outcome}: {candidate.where}  {candidate.shown or '?'}")
        return "\n".join(rows)

    def _paste(self) -> str:
        """Return a hint with the public key to add on the provider's page."""
        lines = [c.public.line for c, outcome in self._tried if c.public and outcome == "refused"]
        lines += [c.public.line for c, _ in self._tried if c.public]
        if not lines:
            return "Add your public key on the provider's page, then try again."
        return f"Add this public key on the provider's page, then try again:\n{lines[0]}"

    def _error(self, what: str, hint: str) -> UnreachableError:
        return UnreachableError(what, where=self._endpoint.label, hint=hint)

    def _refusal(self, what: str, hint: str) -> LoginRefused:
        return LoginRefused(what, where=self._endpoint.label, hint=hint)


def _home(path: Path) -> str:
    home = str(Path.home())
    text = str(path)
    return "~" + text[len(home) :] if text.startswith(home + os.sep) else text


def own_public_key(identity: str | None) -> PublicKey | None:
    """Return the key that a login to a new box would try first, or None."""
    endpoint = resolve(parse_host("root@rented.invalid"), identity=identity)
    agent = Agent(endpoint.identity_agent)
    try:
        usable = (
            each.public
            for each in candidates(endpoint, agent)
            if each.public and not (each.file and each.file.problem)
        )
        return next(usable, None)
    finally:
        agent.close()


def _agent_name(key: PublicKey) -> str:
    return f"agent: {key.comment}" if key.comment else "agent"
