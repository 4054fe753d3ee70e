"""Fetch a commit from its host, for a box that does so itself.

A token that opens a private repository is only in git's environment, and the helper that git asks
for it doesn't contain it.
"""

from __future__ import annotations

import os
from subprocess import DEVNULL, call

from ..git import BoxGit
from ..retries import Retries
from ..run_folder import write_whole

_LONGEST = ("timeout", "14400")
_SSH = (
    "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10"
    " -o StrictHostKeyChecking=yes -o UserKnownHostsFile='{}' -o GlobalKnownHostsFile=/dev/null"
)
_SLOWEST = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=20")
_ASKPASS = """\
#!/bin/sh
case $1 in
  "Username for '$SCHEME://$HOST': ") echo x-access-token ;;
  "Password for '$SCHEME://x-access-token@$HOST': ") echo "$BOXSTRAP_TOKEN" ;;
  *) exit 1 ;;
esac
"""
"""Another host, to which the repository's may redirect, gets no answer."""
_ALL = ("+refs/heads/*:refs/fetched/heads/*", "+refs/tags/*:refs/fetched/tags/*")


class GitHost:
    """What it is asked goes into the log."""

    def __init__(self, home: str, url: str, token: str, known_hosts: str) -> None:
        """`known_hosts`: the only keys that ssh may trust, none from the box's image or its
        network."""
        self._url = url
        write_whole(f"{home}/known_hosts", known_hosts)
        # The box's own settings count, as of a proxy.
        self._variables = {**os.environ, "GIT_SSH_COMMAND": _SSH.format(f"{home}/known_hosts")}
        if token:
            write_whole(f"{home}/askpass", _ASKPASS, 0o700)
            scheme, _, rest = url.partition("://")
            place = {"SCHEME": scheme, "HOST": rest.partition("/")[0]}
            own = {"BOXSTRAP_TOKEN": token, "GIT_ASKPASS": f"{home}/askpass"}
            self._variables.update(**place, **own)

    def fetch(self, store: BoxGit, commit: str, retries: Retries) -> int:
        """Return git's exit code. A server may refuse to send a bare commit: then it comes with the
        branches and tags."""

        def attempt() -> int:
            bare = f"+{commit}:refs/boxstrap/{commit}"
            code = self._ask(store, "fetch", "-q", "--no-tags", "--end-of-options", self._url, bare)
            if not code or retries.network_error():
                return code
            return self._ask(store, "fetch", "-q", "--end-of-options", self._url, *_ALL)

        return retries.run(attempt)

    def _ask(self, git: BoxGit, *words: str) -> int:
        allowed = {"GIT_ALLOW_PROTOCOL": "file:https:ssh:http:git"}
        variables = {**self._variables, **git.variables, **allowed}
        return call([*_LONGEST, *git.command, *_SLOWEST, *words], env=variables, stdin=DEVNULL)
