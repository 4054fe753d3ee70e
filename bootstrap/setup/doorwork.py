"""What a door can carry: a profile, and a commit that the box fetches by its address.

A door can't bring a repository along. So its commit must be on the git host,
and the address one that needs no key of this machine.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError

if TYPE_CHECKING:
    from bootstrap.link.handle import BoxOptions
    from bootstrap.profile.schema import Profile
    from bootstrap.render.variables import Source
    from bootstrap.repo.here import Here
    from bootstrap.ui.screen import Screen

_REFUSED = ("Authentication failed", "could not read", "not found", "403")
LOOK_S = 10
"""How long the git host may take to answer, in seconds."""


@dataclass(frozen=True)
class DoorWork:
    """A profile and its commit. `readable`: whether anyone may read it; None where nobody knows."""

    profile: Profile
    work: Source
    readable: bool | None


def for_door(
    options: BoxOptions, screen: Screen, *, provider: str, committed_only: bool
) -> DoorWork:
    """Profile and commit, with an address that a box can use.

    `provider` is the profile underneath where the person's own names none.
    Raises ProfileError, UsageError: no repository, no address, a commit that is
    not on the host, work that would stay behind.
    """
    from bootstrap.repo.urls import check_url
    from bootstrap.setup.consent import load_profile
    from bootstrap.setup.prepare import nothing_stays_behind
    from bootstrap.setup.work import address_warning, resolve_source

    profile = load_profile(options).for_provider(provider).profile
    here, work = resolve_source(profile, options.place, chosen_repo=options.repo is not None)
    if here is not None:
        if not committed_only:
            nothing_stays_behind(here)
        if not (profile.git.url and here.bare):  # a mirror has what its host has
            _is_on_the_host(here)
    url = door_url(work.url)
    warning = address_warning(profile, work) or check_url(url).warning
    if warning:
        screen.warn(warning)
    readable = anyone_may_read(url)
    if readable is False:
        screen.warn(
            f"{url} is private: the box asks for a token on its terminal, or takes GIT_TOKEN "
            "from its environment; without either it stops before it begins."
        )
    return DoorWork(profile, dataclasses.replace(work, url=url), readable)


def door_url(url: str | None) -> str:
    """The address over https; `http://` stays what it is. Raises UsageError where there is none."""
    from bootstrap.repo.urls import UrlKind, as_https, check_url, without_user_info

    if not url:
        raise UsageError(
            "a door can't carry a repository, and this one has no address.",
            hint="Push it to a git host and add that as origin, or set git.url; "
            "or send it from here: boxstrap setup --host …",
        )
    return without_user_info(url) if check_url(url) is UrlKind.HTTP else as_https(url)


def anyone_may_read(url: str) -> bool | None:
    """Whether the host gives it to somebody without a credential; None where it can't be asked."""
    from bootstrap.repo.git import NOWHERE, GitError, run

    ask = ("-c", "credential.helper=", "ls-remote", "-q", "--end-of-options", url, "HEAD")
    nobody = {
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": "https:http",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    try:
        run(NOWHERE, *ask, env=nobody, timeout=LOOK_S)
    except GitError as failure:
        return False if any(word in failure.said for word in _REFUSED) else None
    return True


def _is_on_the_host(here: Here) -> None:
    """Raise where no branch of a remote, as this machine last saw it, has the commit."""
    if not _remote_branches(here):
        raise UsageError(
            f"commit {here.commit[:12]} is not on {here.url or 'a git host'} yet, "
            "and a door can't carry it.",
            where=str(here.root),
            hint="git push, or send it from here: boxstrap setup --host …",
        )


def _remote_branches(here: Here) -> list[str]:
    from bootstrap.repo.git import run

    options = ("--format=%(refname)", "--contains", here.commit, "refs/remotes")
    listed = run(here.folders, "for-each-ref", *options)
    return listed.decode("utf-8", "replace").split()
