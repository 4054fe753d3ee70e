"""The settings that `ssh -G` prints for a host, and the `%` tokens, `~` and `${NAME}` in them."""

from __future__ import annotations

import getpass
import hashlib
import os
import pwd
import re
import socket
from collections.abc import Mapping

from bootstrap.paths import expanded


class SshSettings:
    """The output of `ssh -G`: lower-case keys, some of them several times."""

    def __init__(self, text: str) -> None:
        self._pairs = [
            (key, value)
            for key, _, value in (line.partition(" ") for line in text.splitlines())
            if value
        ]

    def first(self, key: str) -> str | None:
        """Return the first value of the key, which is the one that ssh uses."""
        return next((value for name, value in self._pairs if name == key), None)

    def all(self, key: str) -> list[str]:
        """Return all values of a key that may be there several times."""
        return [value for name, value in self._pairs if name == key]

    def tokens(self, alias: str, hostname: str, user: str, port: int) -> dict[str, str]:
        """Return the values of `%h` and the like (ssh_config(5), TOKENS)."""
        local = socket.gethostname()
        jump = self.first("proxyjump") or ""
        hashed = hashlib.sha1(f"{local}{hostname}{port}{user}{jump}".encode())  # noqa: S324 - as ssh does
        return {
            "%": "%",
            "C": hashed.hexdigest(),
            "L": local.partition(".")[0],
            "d": _home(),
            "h": hostname,
            "i": str(os.getuid()),
            "j": jump,
            "k": self.first("hostkeyalias") or alias,
            "l": local,
            "n": alias,
            "p": str(port),
            "r": user,
            "u": getpass.getuser(),
        }


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Expand `~`, `%` tokens and `${NAME}` of a path in an ssh config, as ssh does.

    ssh uses the account's home folder, not $HOME.
    """
    text = re.sub(r"\$\{([^}]+)\}", lambda m: os.environ.get(m[1], ""), text)
    text = re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), text)
    if text == "~" or text.startswith("~/"):
        return _home() + text[1:]
    return str(expanded(text)) if text.startswith("~") else text


def _home() -> str:
    return pwd.getpwuid(os.getuid()).pw_dir
