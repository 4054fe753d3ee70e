"""Mirrors: local bare copies of the repositories that `git.url` or a dependency names.

A mirror is sent over the login, so that the box needs no credential for it. It is made under
another name and then renamed, so an existing one is complete. Once the refs are fetched it keeps
the host's list of them; a mirror without that list is rebuilt.

A token in the URL is never in an argument or a file: git asks a boxstrap script for it, which
reads it from the environment and gives it only to the host that the URL names.

By such a URL the program of a door is pushed, too: one commit without history, with one file, the
same one for everybody who has this version. Nothing of a repository is read for it or changed.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from bootstrap.errors import BoxstrapError, ProfileError, UsageError
from bootstrap.paths import make_private, state_dir, temporary_dir, write_private
from bootstrap.repo.git import NOWHERE, Folders, GitError, disk_error, git_error, run_git
from bootstrap.repo.local import LocalRepository, has_commit, read_repository
from bootstrap.repo.names import shown
from bootstrap.repo.urls import UrlKind, check_url, repository_name, without_user_info

_PROTOCOLS = ":".join(kind.value for kind in UrlKind)
_OF_THE_PERSON = r"GIT_(SSH(_COMMAND|_VARIANT)?|ASKPASS|TERMINAL_PROMPT|HTTP_\w+)"
_ANY_USER_INFO = r"//[^/@\s']*@"

_PASSING = (
    r"Recv failure|Empty reply|HTTP/0\.9|returned error: (429|50[234])|early EOF|RPC failed"
    r"|hung up unexpectedly|kex_exchange_identification|SSL_ERROR_SYSCALL|GnuTLS recv"
)
"""git's messages about a broken link or a busy host: another try may succeed."""
_WAITS_S = (0.5, 2.0)
_STALLED = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=60")
_ANSWER_S = 120  # how long a host may take to list its refs, or to take our program, in seconds
_MEMORY_KIB = 2 << 20  # what git may need for that: a host may list refs without end
_FETCH_S = 4 * 3600  # how long a fetch may take, which may be as long and large as the repository

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


def git_credentials(url: str, *arguments: str, folders: Folders = NOWHERE) -> str:
    """Run git with the credential of `url`, and return what it prints.

    `arguments` name the URL without user-info; `folders` is a mirror, if any. Retries on a busy
    host or broken link. Raises ProfileError with git's message, BoxstrapError on a full disk.
    """
    bounds: dict[str, Any] = {"timeout": _ANSWER_S, "most_memory_kib": _MEMORY_KIB}
    if "fetch" in arguments:
        bounds = {"timeout": _FETCH_S}
    with _credential(url) as (options, env):
        try:
            printed = _run_again(
                lambda: run_git(
                    folders, *_STALLED, *options, *arguments, stdin=None, env=env, **bounds
                )
            )
        except GitError as failure:
            amiss = disk_error(folders.git_dir, failure) if folders is not NOWHERE else None
            if amiss:
                raise amiss from failure
            said = shown(re.sub(_ANY_USER_INFO, "//", " ".join(failure.said.split()))[-400:])
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
            if not re.search(_PASSING, failure.said):
                raise
            time.sleep(wait)
    return ask()


@contextmanager
def _credential(url: str) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """Yield the options and environment with which git reaches the host as `url` says."""
    env = {name: value for name, value in os.environ.items() if re.fullmatch(_OF_THE_PERSON, name)}
    env["GIT_ALLOW_PROTOCOL"] = _PROTOCOLS
    if sys.stderr and sys.stderr.isatty():
        env.setdefault("GIT_TERMINAL_PROMPT", "1")
    else:  # nobody would see the question of git, or of its ssh, and the fetch would wait forever
        env |= {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "force"}
        env.setdefault("SSH_ASKPASS", "false")
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


_LISTED = "boxstrap-refs"
_REFS = ("refs/heads/*", "refs/tags/*")
_DEFAULT = re.compile(r"^ref: (refs/heads/\S+)\tHEAD$", re.MULTILINE)
_COMMIT = r"[0-9a-f]{40}([0-9a-f]{24})?"
_DETACHED = re.compile(r"^([0-9a-f]{40,64})\tHEAD$", re.MULTILINE)


def read_url(url: str, ref: str | None) -> LocalRepository:
    """Return the repository at `url` as its host has it now, at `ref` or its default branch. Raises
    ProfileError if the host can't be asked, UsageError if there is no such ref."""
    mirror, listed = _place_of(url), _listed(url)
    with _locked(mirror):
        _update(mirror, url, listed)
        try:
            return read_repository(mirror, ref, exactly=True)
        except BoxstrapError:
            named = "HEAD" if ref is None else rf"refs/(?:heads|tags)/{re.escape(ref)}"
            if not re.search(rf"\t{named}$", listed, re.MULTILINE):
                raise
            _make(mirror, url, listed)  # damaged by a power cut or a bad disk
            return read_repository(mirror, ref, exactly=True)


@contextlib.contextmanager
def mirrored(address: str, refs: Sequence[str]) -> Iterator[Path]:
    """Yield a dependency's mirror, locked, with all of `refs` in it ("": its default branch). The
    host is asked unless all are commits that are here. Raises ProfileError if it can't be."""
    mirror = _place_of(address)
    with _locked(mirror):
        if not all(re.fullmatch(_COMMIT, ref) and _has(mirror, ref) for ref in refs):
            _update(mirror, address, _listed(address))
            # Fetch by name what is on no branch or tag any more, or in a ref that no clone gets.
            for ref in refs:
                if ref.startswith("refs/"):
                    _fetch_also(mirror, address, f"+{ref}:{ref}")
                elif re.fullmatch(_COMMIT, ref) and not _has(mirror, ref):
                    _fetch_also(mirror, address, ref)
        yield mirror


def key_of(address: str) -> str:
    """Return the name of a repository's mirror, here and on a box."""
    clean = without_user_info(address)
    return f"{repository_name(clean)}-{hashlib.sha256(clean.encode()).hexdigest()[:8]}"


def _place_of(url: str) -> Path:
    mirror = state_dir() / "mirrors" / f"{key_of(url)}.git"
    make_private(mirror.parent)
    return mirror


def _listed(url: str) -> str:
    asked = ("--symref", "--quiet", "--end-of-options", without_user_info(url), "HEAD", *_REFS)
    return git_credentials(url, "ls-remote", *asked)


def _has(mirror: Path, commit: str) -> bool:
    return (mirror / _LISTED).is_file() and has_commit(Folders(mirror), commit)


def _update(mirror: Path, url: str, listed: str) -> None:
    try:
        before = (mirror / _LISTED).read_text()
    except (OSError, UnicodeDecodeError):
        _make(mirror, url, listed)
        return
    if before == listed:
        return
    try:
        _fetch(mirror, url, listed)
    except ProfileError:  # the host just answered, so the mirror is at fault
        _make(mirror, url, listed)


def _make(mirror: Path, url: str, listed: str) -> None:
    """Make a new mirror, which replaces the existing one."""
    new, old = (mirror.with_name(f".{mirror.name}.{word}") for word in ("new", "old"))
    for left in (new, old):  # leftovers of a killed process
        shutil.rmtree(left, ignore_errors=True)
    words = ("--bare", "--quiet", "--template=", "--initial-branch=main")
    sha256 = re.search(r"^[0-9a-f]{64}\t", listed, re.MULTILINE)
    try:
        run_git(Folders(new), "init", *words, *(("--object-format=sha256",) if sha256 else ()))
        run_git(Folders(new), "config", "remote.origin.url", without_user_info(url))
    except GitError as failure:
        raise git_error(new, failure) from failure
    _fetch(new, url, listed)
    with contextlib.suppress(FileNotFoundError):
        mirror.rename(old)
    new.rename(mirror)
    shutil.rmtree(old, ignore_errors=True)


def _fetch(mirror: Path, url: str, listed: str) -> None:
    """Fetch all branches and tags, set HEAD as on the host, and write the list of refs last."""
    default, detached = _DEFAULT.search(listed), _DETACHED.search(listed)
    refs = [f"+{ref}:{ref}" for ref in _REFS]
    head = f"ref: {default[1]}" if default else detached[1] if detached else ""
    if head and not default:
        refs.append("HEAD")
    asked = ("--quiet", "--prune", "--no-auto-gc", "--end-of-options", without_user_info(url))
    (mirror / _LISTED).unlink(missing_ok=True)
    git_credentials(url, "fetch", *asked, *refs, folders=Folders(mirror))
    if head:
        write_private(mirror / "HEAD", f"{head}\n")
    write_private(mirror / _LISTED, listed)


def _fetch_also(mirror: Path, address: str, ref: str) -> None:
    asked = ("--quiet", "--no-auto-gc", "--end-of-options", address, ref)
    git_credentials(address, "fetch", *asked, folders=Folders(mirror))


@contextlib.contextmanager
def _locked(mirror: Path) -> Iterator[None]:
    """Lock the mirror, so that a second process waits; git's own locks would make it fail."""
    with mirror.with_name(f"{mirror.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (
        *(("NAME", "boxstrap"), ("EMAIL", "boxstrap@localhost")),
        ("DATE", "1700000000 +0000"),
    )
}


def find_program(url: str, program: str) -> str:
    """Return the ref under which the host has it; "" if it hasn't, or can't be asked."""
    refs = refs_of(program)
    try:
        said = git_credentials(
            url, "ls-remote", "-q", "--end-of-options", without_user_info(url), *refs
        )
    except ProfileError:
        return ""
    there = {line.partition("\t")[2] for line in said.splitlines()}
    return next((ref for ref in refs if ref in there), "")


def push_program(url: str, program: str) -> str:
    """Push it, and return its ref there. Raises UsageError if the host takes none."""
    with tempfile.TemporaryDirectory(prefix="boxstrap-", dir=temporary_dir()) as folder:
        store = Folders(Path(folder))
        run_git(store, "init", "--bare", "--quiet", "--template=")
        blob = _made(store, "hash-object", "-w", "--stdin", stdin=program)
        tree = _made(store, "mktree", stdin=f"100644 blob {blob}\tprogram.sh\n")
        commit = _made(store, "commit-tree", "-m", "The program of boxstrap", tree)
        for ref in refs_of(program):
            asked = ("push", "--quiet", "--end-of-options", without_user_info(url))
            try:
                git_credentials(url, *asked, f"{commit}:{ref}", folders=store)
            except ProfileError as error:
                refused = error
                continue
            return ref
    raise UsageError(
        f"the git host takes no program of boxstrap: {refused.what}",
        hint="Let the box fetch it from another address: boxstrap oneliner --url https://…",
    )


def refs_of(program: str) -> tuple[str, str]:
    """Return the ref that it gets, and the one where a host takes only branches and tags."""
    name = f"boxstrap/{hashlib.sha256(program.encode()).hexdigest()[:16]}"
    return f"refs/{name}", f"refs/heads/{name}"


def _made(store: Folders, *words: str, stdin: str = "") -> str:
    return run_git(store, *words, stdin=stdin.encode(), env=_AUTHOR).decode().strip()
