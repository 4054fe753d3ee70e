"""Ask a git host, with the user's git configuration and the credential in `git.url`.

A token in the URL is never in an argument or a file: git asks a boxstrap script for it, which
reads it from the environment and gives it only to the host that the URL names.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from ..errors import ProfileError
from ..paths import temporary_dir
from .git import NOWHERE, Folders, GitError, disk_error, run
from .names import shown
from .urls import UrlKind, check_url, without_user_info

_PROTOCOLS = ":".join(kind.value for kind in UrlKind)
_OF_THE_PERSON = re.compile(r"GIT_(SSH(_COMMAND|_VARIANT)?|ASKPASS|TERMINAL_PROMPT|HTTP_\w+)")
_ANY_USER_INFO = re.compile(r"//[^/@\s']*@")

_PASSING = re.compile(
    r"Recv failure|Empty reply|HTTP/0\.9|returned error: (429|50[234])|early EOF|RPC failed"
    r"|hung up unexpectedly|kex_exchange_identification|SSL_ERROR_SYSCALL|GnuTLS recv"
)
"""git's messages about a broken link or a busy host: another try may succeed."""
_WAITS_S = (0.5, 2.0)

# git asks `Username for 'https://host': ` and `Password for 'https://user@host': `. Another host,
# to which the first one may redirect, gets no answer; a user name in the redirect may imitate the
# first host, as in `https://user@host/@other`, which older versions of git don't quote.
_ASKPASS = """#!/bin/sh
of=${1#*"'$BOXSTRAP_SCHEME://"}
case $1 in
  "Username for '"*) answer=$BOXSTRAP_USER ;;
  "Password for '"*)
    answer=$BOXSTRAP_PASSWORD
    case $of in
      "$BOXSTRAP_USER@"*) of=${of#"$BOXSTRAP_USER@"} ;;
      "$BOXSTRAP_USER_QUOTED@"*) of=${of#"$BOXSTRAP_USER_QUOTED@"} ;;
      *) exit 1 ;;
    esac
    ;;
  *) exit 1 ;;
esac
case $of in
  *@*) exit 1 ;;
  "$BOXSTRAP_HOST"[\\'/]*) printf '%s\\n' "$answer" ;;
  *) exit 1 ;;
esac
"""


def ask_host(url: str, *arguments: str, folders: Folders = NOWHERE) -> str:
    """Run git with the credential of `url`, and return what it prints.

    `arguments` name the URL without user-info; `folders` is a mirror, if any. Retries on a busy
    host or broken link. Raises ProfileError with git's message, BoxstrapError on a full disk.
    """
    with _credential(url) as (options, env):
        try:
            printed = _run_again(lambda: run(folders, *options, *arguments, stdin=None, env=env))
        except GitError as failure:
            amiss = disk_error(folders.git_dir, failure) if folders is not NOWHERE else None
            if amiss:
                raise amiss from failure
            said = shown(_ANY_USER_INFO.sub("//", " ".join(failure.said.split()))[-400:])
            raise ProfileError(
                f"git.url: {said or 'git failed'}",
                hint="Check the address, and that this machine may read it.",
            ) from failure
    return printed.decode("utf-8", "replace")


def _run_again(ask: Callable[[], bytes]) -> bytes:
    """Return what `ask` returns, retrying after failures that may be temporary."""
    for wait in _WAITS_S:
        try:
            return ask()
        except GitError as failure:
            if not _PASSING.search(failure.said):
                raise
            time.sleep(wait)
    return ask()


@contextmanager
def _credential(url: str) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """Yield the options and environment with which git reaches the host as `url` says."""
    env = {name: value for name, value in os.environ.items() if _OF_THE_PERSON.fullmatch(name)}
    env["GIT_ALLOW_PROTOCOL"] = _PROTOCOLS
    env.setdefault("GIT_TERMINAL_PROMPT", "1")
    user, password = _user_info(url)
    if password is None:
        if user:  # the user's credential helper, or a prompt, gives the password
            env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "credential.username"}
            env["GIT_CONFIG_VALUE_0"] = user
        yield (), env
        return
    scheme, _, rest = without_user_info(url).partition("://")
    with tempfile.TemporaryDirectory(prefix="boxstrap-", dir=temporary_dir()) as folder:
        askpass = Path(folder) / "askpass"
        askpass.write_text(_ASKPASS)
        askpass.chmod(0o700)
        env |= {
            "GIT_ASKPASS": str(askpass),
            "GIT_TERMINAL_PROMPT": "0",
            "BOXSTRAP_SCHEME": scheme,
            "BOXSTRAP_HOST": rest.partition("/")[0],
            "BOXSTRAP_USER": user,
            "BOXSTRAP_USER_QUOTED": quote(user, safe=""),
            "BOXSTRAP_PASSWORD": password,
        }
        # No credential helper of the user's: it would be asked first, and would store the token.
        yield ("-c", "credential.helper="), env


def _user_info(url: str) -> tuple[str, str | None]:
    """Return user name and password of an http(s) URL; other kinds need neither."""
    if check_url(url) not in (UrlKind.HTTP, UrlKind.HTTPS):
        return "", None
    user, colon, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    return unquote(user), unquote(password) if colon else None
