"""Mirrors: local bare copies of the repositories that `git.url` or a dependency names.

A mirror is sent over the login, so that the box needs no credential for it. It is made under
another name and then renamed, so an existing one is complete. Once the refs are fetched it keeps
the host's list of them; a mirror without that list is rebuilt.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import BoxstrapError, ProfileError
from ..paths import state_dir, write_private
from .git import Folders, GitError, broken, run
from .here import LocalRepository, read
from .hosts import ask_host
from .urls import name_of, without_user_info

_LISTED = "boxstrap-refs"
_REFS = ("refs/heads/*", "refs/tags/*")
_DEFAULT = re.compile(r"^ref: (refs/heads/\S+)\tHEAD$", re.MULTILINE)
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_DETACHED = re.compile(r"^([0-9a-f]{40,64})\tHEAD$", re.MULTILINE)


def read_url(url: str, ref: str | None) -> LocalRepository:
    """Return the repository at `url` as its host has it now, at `ref` or its default branch.

    Raises ProfileError if the host can't be asked, UsageError if there is no such ref.
    """
    mirror, listed = _place_of(url), _listed(url)
    with _locked(mirror):
        _update(mirror, url, listed)
        try:
            return read(mirror, ref, exactly=True)
        except BoxstrapError:
            if not _should_be_there(ref, listed):
                raise
            _make(mirror, url, listed)  # damaged by a power cut or a bad disk
            return read(mirror, ref, exactly=True)


@contextlib.contextmanager
def mirrored(address: str, refs: Sequence[str]) -> Iterator[Path]:
    """Yield a dependency's mirror with all of `refs` in it ("": its default branch).

    It stays locked. The host is asked unless all refs are commits that are here already.
    Raises ProfileError if it can't be asked.
    """
    mirror = _place_of(address)
    with _locked(mirror):
        if not all(_COMMIT.fullmatch(ref) and _has(mirror, ref) for ref in refs):
            _update(mirror, address, _listed(address))
            # Fetch by name what is on no branch or tag any more, or in a ref that no clone gets.
            for ref in refs:
                if ref.startswith("refs/"):
                    _fetch_also(mirror, address, f"+{ref}:{ref}")
                elif _COMMIT.fullmatch(ref) and not _has(mirror, ref):
                    _fetch_also(mirror, address, ref)
        yield mirror


def key_of(address: str) -> str:
    """Return the name of a repository's mirror, here and on a box."""
    clean = without_user_info(address)
    return f"{name_of(clean)}-{hashlib.sha256(clean.encode()).hexdigest()[:8]}"


def _place_of(url: str) -> Path:
    mirror = state_dir() / "mirrors" / f"{key_of(url)}.git"
    mirror.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return mirror


def _listed(url: str) -> str:
    clean = without_user_info(url)
    asked = ("--symref", "--quiet", "--end-of-options", clean, "HEAD", *_REFS)
    return ask_host(url, "ls-remote", *asked)


def _has(mirror: Path, commit: str) -> bool:
    if not (mirror / _LISTED).is_file():
        return False
    try:
        run(Folders(mirror), "cat-file", "-e", f"{commit}^{{commit}}")
    except GitError:
        return False
    return True


def _should_be_there(ref: str | None, listed: str) -> bool:
    named = "HEAD" if ref is None else rf"refs/(?:heads|tags)/{re.escape(ref)}"
    return re.search(rf"\t{named}$", listed, re.MULTILINE) is not None


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
        run(Folders(new), "init", *words, *(("--object-format=sha256",) if sha256 else ()))
        run(Folders(new), "config", "remote.origin.url", without_user_info(url))
    except GitError as failure:
        raise broken(new, failure) from failure
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
    ask_host(url, "fetch", *asked, *refs, folders=Folders(mirror))
    if head:
        write_private(mirror / "HEAD", f"{head}\n")
    write_private(mirror / _LISTED, listed)


def _fetch_also(mirror: Path, address: str, ref: str) -> None:
    asked = ("--quiet", "--no-auto-gc", "--end-of-options", address, ref)
    ask_host(address, "fetch", *asked, folders=Folders(mirror))


@contextlib.contextmanager
def _locked(mirror: Path) -> Iterator[None]:
    """Lock the mirror, so that a second process waits; git's own locks would make it fail."""
    with mirror.with_name(f"{mirror.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
