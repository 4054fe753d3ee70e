"""Which commit the box should work on, and from where it gets it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import ProfileError, UsageError
from bootstrap.render.variables import ROOT, Source

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile
    from bootstrap.repo.here import LocalRepository
    from bootstrap.repo.left_behind import Changes
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.setup.request import SetupRequest

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MEANT = (
    "Stand in the repository of your training, or name it: --repo PATH, or git.url in its profile."
)


def resolve_source(
    profile: Profile, request: SetupRequest
) -> tuple[LocalRepository | None, Source]:
    """The commit, and the repository that sends it (None: the box clones it by its URL).

    Raises ProfileError, UsageError: no repository, boxstrap's own checkout, or work that would
    stay behind.
    """
    from bootstrap.repo.here import is_boxstrap_checkout, read
    from bootstrap.repo.snapshot import take_snapshot

    url, ref = profile.git.url, profile.git.ref
    if url and profile.git.access == "url":
        return None, _by_url(url, ref)
    here = _of_url(url, ref, request.place) if url else read(request.place, ref)
    if is_boxstrap_checkout(here) and request.repo is None and not url:
        raise UsageError(
            "this is boxstrap's own source, and no training.", where=str(here.root), hint=_MEANT
        )
    if profile.git.access == "url":
        if here.url is None:
            raise ProfileError(
                "git.access: url needs an address, and this repository has no remote.",
                where=str(here.root),
                hint="Set git.url, or leave git.access out: the commit then travels over ssh.",
            )
        return None, replace(source_of(here, take_snapshot(here, "commit")), tree="")
    if not request.committed_only:
        nothing_stays_behind(here)
    return here, source_of(here, take_snapshot(here, "commit"))


def source_of(here: LocalRepository, snapshot: Snapshot) -> Source:
    """A snapshot of a repository, and under which name it lives on a box."""
    return Source(
        key=here.key,
        name=here.name,
        commit=here.commit,
        branch=here.branch,
        url=here.url,
        user_name=here.identity_name,
        user_email=here.identity_email,
        root=here.root_commit,
        usual_key=here.usual_key,
        snapshot=snapshot.id,
        tree=snapshot.tree,
    )


def _by_url(url: str, ref: str | None) -> Source:
    """The commit that `ref` is at the URL now; this machine asks, with the user's own access."""
    from bootstrap.repo.here import name_and_key
    from bootstrap.repo.urls import without_user_info

    clean = without_user_info(url)
    commit = ref if ref and _COMMIT.fullmatch(ref) else _resolved(url, ref)
    name, key = name_and_key(clean, Path())  # as where somebody stands in it
    return Source(
        key=key,
        name=name,
        commit=commit,
        branch=None,
        url=clean,
        user_name=None,
        user_email=None,
        root=_root_of_paste(),
        usual_key=key,
        snapshot=commit,
    )


def _root_of_paste() -> str:
    """The first commit, where a paste brought it along; "" elsewhere: a URL alone has none."""
    told = os.environ.get(ROOT, "")
    return told if _COMMIT.fullmatch(told) else ""


def _resolved(url: str, ref: str | None) -> str:
    from bootstrap.repo.hosts import ask_host
    from bootstrap.repo.urls import without_user_info

    clean, options = without_user_info(url), ref or "HEAD"
    refs = [f"refs/heads/{options}", f"refs/tags/{options}^{{}}", f"refs/tags/{options}"]
    patterns = ["HEAD"] if options == "HEAD" else refs
    lines = ask_host(url, "ls-remote", "--end-of-options", clean, *patterns).splitlines()
    found = {name: commit for commit, _, name in (line.partition("\t") for line in lines)}
    for pattern in patterns:
        if pattern in found:
            return found[pattern]
    raise ProfileError(
        f"git.ref: {clean} has no branch or tag {options!r}.",
        hint="Name one, or a whole commit id.",
    )


def _of_url(url: str, ref: str | None, place: Path) -> LocalRepository:
    """The repository at the URL; where you stand in it, yours."""
    from bootstrap.repo.here import read
    from bootstrap.repo.mirror import read_url
    from bootstrap.repo.urls import without_user_info

    try:
        mine = read(place).url == without_user_info(url)
    except UsageError:
        mine = False
    return read(place, ref) if mine else read_url(url, ref)


def address_warning(profile: Profile, source: Source) -> str | None:
    """What to say of an address from which this machine or the box fetches."""
    from bootstrap.repo.urls import check_url

    url = source.url if profile.git.access == "url" else profile.git.url
    return check_url(url).warning if url else None


def nothing_stays_behind(here: LocalRepository) -> None:
    """Raise UsageError where the repository has work that is in no commit."""
    from bootstrap.profile.find import OF_A_REPOSITORY
    from bootstrap.repo.left_behind import left_behind

    # The profile is read from the working tree, committed or not.
    changes: Changes = left_behind(here).without(OF_A_REPOSITORY)
    if changes:
        listed = "\n".join(f"  {line}" for line in changes.lines(10))
        raise UsageError(
            f"this would stay behind, since only commit {here.commit[:12]} travels:\n{listed}",
            where=str(here.root),
            hint="Commit it, or say that the commit is enough: --committed-only",
        )


def nothing_is_missing(here: LocalRepository) -> None:
    """Raise UsageError where a partial clone lacks files of the commit: none is fetched for it."""
    if not here.partial:
        return
    from bootstrap.repo.objects import missing

    names = missing(here)
    if names:
        listed = "\n".join(f"  {name}" for name in names[:10])
        raise UsageError(
            f"this clone is partial, and {len(names)} files of commit {here.commit[:12]} are not "
            f"in it:\n{listed}",
            where=str(here.root),
            hint="Let git fetch them: git archive --output=/dev/null HEAD",
        )
