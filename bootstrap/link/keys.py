"""Which keys a login tries, in which order, and the errors when none works.

OpenSSH's order: certificates, keys of the agent that an IdentityFile names,
other keys of the agent (unless IdentitiesOnly), key files. The key that the user
named and the one that logged in last time go first, because each wrong key costs
a round trip and one of the few tries that the box allows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import paramiko
from paramiko.auth_strategy import AuthStrategy
from paramiko.config import SSHConfig

from bootstrap.errors import UnreachableError
from bootstrap.link.errors import LoginRefused
from bootstrap.link.hostkeys import HostKeyCheck
from bootstrap.link.keyfiles import (
    KeyFile,
    KeyUnusable,
    inner_blob,
    load_private,
    read_key_file,
    read_public,
)
from bootstrap.link.prompt import Prompt
from bootstrap.link.resolve import Endpoint, resolve
from bootstrap.link.ssh_agent import Agent, AgentKey
from bootstrap.link.target import parse_host
from bootstrap.link.transport import BoxTransport
from bootstrap.public_key import PublicKey

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
    path: Path | None = None
    """The identity file that it belongs to, if any."""

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
        self.used = ""
        """Fingerprint of the key that was accepted."""

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
        """Try one candidate and record the outcome."""
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
        return True

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
            key = _loaded[file.path] = self._decrypt(file)
        if candidate.certificate:
            key.public_blob = paramiko.pkey.PublicBlob(
                candidate.certificate.kind, candidate.certificate.blob
            )
        elif not candidate.agent:
            key.public_blob = None
        return key

    def _decrypt(self, file: KeyFile) -> paramiko.PKey:
        if not self._prompt.has_terminal():
            raise KeyUnusable(
                f"it needs its passphrase and there is no terminal to ask: ssh-add {file.path}"
            )
        passphrase = self._prompt.secret(f"Passphrase for {_home(file.path)}: ")
        if not passphrase:
            raise KeyUnusable("no passphrase was given")
        return load_private(file.path, passphrase)

    def _refused(self) -> LoginRefused:
        user = self._endpoint.user
        if not self._tried:
            problem = f" ({self._agent.problem})" if self._agent.problem else ""
            return self._refusal(
                f"there is no ssh key to log in with{problem}.",
                "Make one with `ssh-keygen -t ed25519`, add its .pub file on the provider's page, "
                "or name one with --identity.",
            )
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


def _agent_name(key: PublicKey) -> str:
    return f"agent: {key.comment}" if key.comment else "agent"


def _home(path: Path) -> str:
    """Return the path with `~` for the home folder."""
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
