"""Make scripts for doors, with a profile and a commit that the box fetches by its address.

A door can't carry a repository, so the commit must be on the git host, at an
address that needs no key of this machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError
from bootstrap.render.doors import COMPACT, FULL, IN_JSON, MINIMAL, MINIMAL_LIMIT

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.render.variables import Source
    from bootstrap.repo.local import LocalRepository
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.screen import Reporter

_REFUSED = ("Authentication failed", "could not read", "not found", "403")
PASTE_LIMIT = 36 * 1024
_USUAL = "vast"
"""The provider if the profile names none: its boxes have a web terminal to paste into."""
_MOST_LISTED = 10
LOOK_S = 10
"""How long the git host may take to answer, in seconds."""


@dataclass(frozen=True)
class CarriedScript:
    """A script for the user to carry, and what `--json` says about it."""

    text: str
    data: Mapping[str, object]


@dataclass(frozen=True)
class FetchedScript:
    """A script that the user puts at an address, and the paste that fetches it from there."""

    script: str
    sha256: str
    text: str
    edition: str = IN_JSON[FULL]


def render_readable(request: SetupRequest, reporter: Reporter) -> CarriedScript:
    """Return the script itself. Raises UsageError, ProfileError."""
    from bootstrap.profile.consent import NO_SECRET, load_profile
    from bootstrap.profile.detect_provider import FALLBACK
    from bootstrap.setup.payload import build_payload

    loaded = load_profile(request, kinds=NO_SECRET).for_provider(FALLBACK)
    payload = build_payload(
        loaded,
        dataclasses.replace(request, committed_only=True),
        local=loaded.profile.name in {"local", "demo"},
        with_secrets=False,
    )
    for warning in payload.warnings:
        reporter.warn(warning)
    return CarriedScript(payload.script, {"door": None, "edition": IN_JSON[FULL]})


def render_for_door(name: str, request: SetupRequest, reporter: Reporter) -> CarriedScript:
    """Return the script packed for a provider's start-up hook. Raises UsageError, ProfileError."""
    from bootstrap.render.doors import door_named
    from bootstrap.render.through_door import render_door

    door = door_named(name)
    made = render_door(door.name, *_for_door(request, reporter, door.profile))
    reporter.note("door", f"{door.name}, the {made.edition} script, {made.size:,} bytes")
    reporter.note("use", door.use)
    _note_left_out(made.edition, reporter)
    data = {
        "door": door.name,
        "edition": IN_JSON[made.edition],
        "limit": door.limit,
        "use": door.use,
    }
    return CarriedScript(made.text, data)


def render_paste(
    request: SetupRequest, reporter: Reporter, *, small: bool, uvx: str
) -> CarriedScript:
    """Return one paste for a terminal; `uvx`: what uvx installs to make the script on the box.

    Raises UsageError, ProfileError.
    """
    profile, source = _for_door(request, reporter, _USUAL)
    if uvx:
        from bootstrap.render.remote import by_uvx

        text, edition = by_uvx(uvx, profile, source), FULL
    else:
        text, edition = _paste(profile, source, small=small)
        _note_left_out(edition, reporter)
    reporter.note("paste", f"{len(text):,} characters, the {edition} script")
    return CarriedScript(text, {"edition": IN_JSON[edition]})


def render_fetched(request: SetupRequest, reporter: Reporter, url: str) -> FetchedScript:
    """Return a paste that fetches the script from `url`. Raises UsageError, ProfileError."""
    from bootstrap.render.compact import render_carrier
    from bootstrap.render.remote import by_url

    script = render_carrier(*_for_door(request, reporter, _USUAL))
    digest = hashlib.sha256(script.encode()).hexdigest()
    return FetchedScript(script, digest, by_url(url, digest))


def _paste(profile: Profile, source: Source, *, small: bool) -> tuple[str, str]:
    from bootstrap.render.compact import render_compact
    from bootstrap.render.minimal import render_minimal
    from bootstrap.render.pack import paste
    from bootstrap.render.through_door import droppable

    make, edition, limit = (
        (render_minimal, MINIMAL, MINIMAL_LIMIT)
        if small
        else (render_compact, COMPACT, PASTE_LIMIT)
    )
    text = paste(make(profile, source))
    if len(text) > limit:
        raise UsageError(
            f"the {edition} script has {len(text):,} characters packed; {limit:,} are the limit.",
            hint=f"What could go: {', '.join(droppable(profile))}.\n"
            "Or let the box fetch it: boxstrap oneliner --url https://…",
        )
    return text, edition


def _note_left_out(edition: str, reporter: Reporter) -> None:
    from bootstrap.render.doors import left_out

    for what in left_out(edition):
        reporter.note("without", what)


def _for_door(request: SetupRequest, reporter: Reporter, provider: str) -> tuple[Profile, Source]:
    """Return the profile, and the source with an address that a box can use.

    `provider` is the base profile if the user's own names none.
    Raises ProfileError, UsageError: no repository, no address, a commit that is
    not on the host, or work that is more than that commit.
    """
    from bootstrap.profile.consent import load_profile
    from bootstrap.repo.urls import check_url
    from bootstrap.setup.source import address_warning, resolve_source

    profile = load_profile(request).for_provider(provider).profile
    for number, item in enumerate(profile.data):
        if item.place in ("local", "bucket"):
            raise UsageError(
                f"a door can't bring {item.source} along: nobody is there to send it or to sign "
                "for it. Through a door come public addresses and what a named secret opens.",
                where=f"data[{number}].from",
                hint="Send it from here: boxstrap setup --host …",
            )
    here, snapshot, source = resolve_source(profile, request)
    if here is not None and snapshot is not None and not request.committed_only:
        _check_nothing_left_behind(here, snapshot)
    if here is not None and not (profile.git.url and here.bare):  # a mirror has what its host has
        _is_on_the_host(here)
    if here is not None:
        _warn_of_dependencies(profile, here, snapshot, reporter)
    url = door_url(source.url)
    warning = address_warning(profile, source) or check_url(url).warning
    if warning:
        reporter.warn(warning)
    if anyone_may_read(url) is False:
        reporter.warn(
            f"{url} is private: the box asks for a token on its terminal, or takes GIT_TOKEN "
            "from its environment; without either it stops before it begins."
        )
    return profile, dataclasses.replace(source, url=url, tree="")


def _warn_of_dependencies(
    profile: Profile, here: LocalRepository, snapshot: Snapshot | None, reporter: Reporter
) -> None:
    """Warn of dependencies that a setup over SSH would send."""
    from bootstrap.repo.names import shown
    from bootstrap.setup.payload import private_dependencies

    sent, _ = private_dependencies(profile, here, snapshot)
    for address in dict.fromkeys(each.address for each in sent):
        reporter.warn(
            f"a door can't bring {shown(address)} along: the box asks for it by itself, and needs "
            "a credential. Over SSH it is sent from here: boxstrap setup --host …"
        )


def _check_nothing_left_behind(here: LocalRepository, snapshot: Snapshot) -> None:
    """Raise UsageError if the commit alone is less than the work on this machine."""
    from bootstrap.repo.names import shown
    from bootstrap.repo.snapshot import take_snapshot

    lines = []
    if snapshot.changes and not snapshot.only_profile:
        lines.append(f"your changes ({snapshot.changes})")
    commit = take_snapshot(here, "commit")
    if commit.tree != here.tree:
        lines.append("the files of its submodules")
    lines += [f"{shown(path)}: {why}" for path, why in commit.left]
    if lines:
        listed = "\n".join(f"  {line}" for line in lines[:_MOST_LISTED])
        raise UsageError(
            f"a door can't carry this; through it the box fetches commit {here.commit[:12]} "
            f"alone:\n{listed}",
            where=str(here.root),
            hint="Send it from here: boxstrap setup --host …\n"
            "Or commit and push it, or say that the commit is enough: --committed-only",
        )


def door_url(url: str | None) -> str:
    """Return the address over https; `http://` and `git://` stay, and the caller warns of them.

    Raises UsageError if there is none.
    """
    from bootstrap.repo.urls import as_https, check_url, without_user_info

    if not url:
        raise UsageError(
            "a door can't carry a repository, and this one has no address.",
            hint="Push it to a git host and add that as origin, or set git.url; "
            "or send it from here: boxstrap setup --host …",
        )
    return without_user_info(url) if check_url(url).warning else as_https(url)


def anyone_may_read(url: str) -> bool | None:
    """Whether the host serves it without a credential; None if the host can't be asked."""
    from bootstrap.repo.git import NOWHERE, GitError, run_git

    ask = ("-c", "credential.helper=", "ls-remote", "-q", "--end-of-options", url, "HEAD")
    nobody = {
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": "https:http:git",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    try:
        run_git(NOWHERE, *ask, env=nobody, timeout=LOOK_S)
    except GitError as failure:
        return False if any(word in failure.said for word in _REFUSED) else None
    return True


def _is_on_the_host(here: LocalRepository) -> None:
    """Raise UsageError if no branch of a remote, as last fetched, has the commit."""
    if not _remote_branches(here):
        raise UsageError(
            f"commit {here.commit[:12]} is not on {here.url or 'a git host'} yet, "
            "and a door can't carry it.",
            where=str(here.root),
            hint="git push, or send it from here: boxstrap setup --host …",
        )


def _remote_branches(here: LocalRepository) -> list[str]:
    from bootstrap.repo.git import run_git

    options = ("--format=%(refname)", "--contains", here.commit, "refs/remotes")
    listed = run_git(here.folders, "for-each-ref", *options)
    return listed.decode("utf-8", "replace").split()
