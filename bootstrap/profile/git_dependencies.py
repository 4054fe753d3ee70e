"""The git dependencies of a repository's environment, and which of them this machine sends.

A box has no credential for a git host. An ssh address always needs one; whether an https address
does can't be told without asking the host, so the profile says it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from bootstrap.errors import UsageError
from bootstrap.profile.requirement_files import included as included_by
from bootstrap.profile.requirement_files import requirement_lines
from bootstrap.profile.survey.files import parse_toml
from bootstrap.repo.urls import UrlKind, check_url, without_user_info

if TYPE_CHECKING:
    from bootstrap.profile.schema import Python

ReadFiles = Callable[[list[str]], dict[str, str]]
"""Reads files by name; returns the texts of those that exist."""

_MOST_INCLUDED = 8
_SCHEMES = "|".join(kind.value for kind in UrlKind)
# `git+URL@REF#FRAGMENT` of a requirement; pip takes `git+user@host:path` too.
_REQUIRED = re.compile(
    rf"git\+((?:(?:{_SCHEMES})://[^\s\"'#;/]+/|[\w.-]+@[\w.-]+:)[^\s\"'#;]+?)(?:@([^\s\"'#;@]+))?(?=[\s\"'#;]|$)"
)
_LOCKED = re.compile(r'source = \{ git = "([^"?#]+)(?:\?[^"#]*)?#([0-9a-f]{40,64})" \}')
_USER = re.compile(r"(?<=^ssh://)[^/@]+@")
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
"""A full commit id."""


class GitDependency(NamedTuple):
    """A repository that an environment depends on, as an installer hands it to git."""

    address: str
    ref: str = ""
    """A commit, branch or tag; "" for the default branch."""

    @property
    def is_pinned(self) -> bool:
        """Whether `ref` is a full commit id."""
        return COMMIT.fullmatch(self.ref) is not None


def find_git_dependencies(python: Python, read: ReadFiles) -> list[GitDependency]:
    """Return those named by the profile, and by the files that the box would install from."""
    beside = _required("\n".join([*python.packages, *python.no_build_isolation]))
    return sorted({*beside, *_in_files(python, read)})


def _in_files(python: Python, read: ReadFiles) -> Iterator[GitDependency]:
    """Choose files in the same order as `find_kind` in templates/lib/sources.sh."""
    lock, listed = python.lock or "uv.lock", python.requirements
    named = [python.conda, *(listed or [])] if python.conda else listed or ["requirements.txt"]
    beside_lock = str(PurePosixPath(lock).parent / "pyproject.toml")
    texts = read([lock, *named, beside_lock, "pyproject.toml"])
    if python.conda:
        yield from _in_requirements(named, texts, read)
    elif python.lock or (listed is None and lock in texts):
        yield from _in_lock(texts.get(lock, ""), texts.get(beside_lock, ""))
    elif listed or (listed is None and "requirements.txt" in texts):
        yield from _in_requirements(named, texts, read)
    elif listed is None:
        yield from _in_project(texts.get("pyproject.toml", ""), python.extras, [])
    if python.groups:
        yield from _in_project(texts.get("pyproject.toml", ""), [], python.groups)


def _in_lock(lock: str, project: str) -> Iterator[GitDependency]:
    """Take other users than `git` from pyproject.toml, as uv does: a lock drops them."""
    named = {_USER.sub("", each.address): each.address for each in _sources(project)}
    for address, commit in _LOCKED.findall(lock):
        yield GitDependency(named.get(address, address), commit)


def _in_requirements(
    names: Iterable[str], texts: dict[str, str], read: ReadFiles
) -> Iterator[GitDependency]:
    """Yield from requirements files, and from those that they include."""
    waiting, seen = list(names), set[str]()
    for _ in range(_MOST_INCLUDED):
        seen |= {*waiting}
        included = []
        for name in waiting:
            text = "\n".join(line for _, line in requirement_lines(texts.get(name, "")))
            yield from _required(text)
            folder = PurePosixPath(name).parent
            inner = filter(None, map(included_by, text.splitlines()))
            included += [posixpath.normpath(folder / each) for each in inner]
        waiting = [name for name in dict.fromkeys(included) if name not in seen]
        if not waiting:
            return
        texts = read(waiting)


def _in_project(text: str, extras: list[str], groups: list[str]) -> Iterator[GitDependency]:
    """Yield from pyproject.toml: its dependencies or these groups, these extras, uv's sources."""
    if "git" not in text:
        return
    data = parse_toml(text)
    project = _map(data.get("project"))
    optional, more = _map(project.get("optional-dependencies")), _map(data.get("dependency-groups"))
    needs = [] if groups else [project.get("dependencies"), *map(optional.get, extras)]
    needs += [_map(data.get("build-system")).get("requires"), *map(more.get, groups)]
    yield from _required("\n".join(str(each) for each in needs))
    yield from _sources(text)


def _sources(text: str) -> Iterator[GitDependency]:
    """Yield the git repositories in `tool.uv.sources` of pyproject.toml."""
    if "git" not in text:
        return
    uv = _map(_map(parse_toml(text).get("tool")).get("uv"))
    for source in _map(uv.get("sources")).values():
        for each in source if isinstance(source, list) else [source]:
            address = _map(each).get("git")
            if isinstance(address, str):
                ref = next((each[word] for word in ("rev", "tag", "branch") if word in each), "")
                yield GitDependency(address.removeprefix("git+"), str(ref))


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _required(text: str) -> Iterator[GitDependency]:
    yield from map(GitDependency._make, _REQUIRED.findall(text))


def sent_from_here(python: Python, found: Iterable[GitDependency]) -> list[GitDependency]:
    """Return those that this machine fetches and sends; the box fetches the others itself."""
    return [each for each in found if _is_sent(python.private, each.address)]


def _is_sent(private: list[str] | None, address: str) -> bool:
    try:
        kind = check_url(address)
    except UsageError:
        return False
    if address != without_user_info(address):  # the address has a credential in it
        return False
    return kind is UrlKind.SSH if private is None else is_named(private, address)


def is_named(private: Iterable[str], address: str) -> bool:
    """Whether `private` names this address or a folder above it."""
    bare = _bare(address)
    return any(bare == each or bare.startswith(f"{each}/") for each in map(_bare, private))


def _bare(address: str) -> str:
    return without_user_info(address).rstrip("/").removesuffix(".git")
