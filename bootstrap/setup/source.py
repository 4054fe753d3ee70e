"""Which commit the box should check out, and where it gets that from."""

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
    from bootstrap.repo.local import LocalRepository
    from bootstrap.repo.snapshot import Include, Snapshot
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.screen import Reporter

_MOST_IGNORED = 5
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MOST_NAMED = 10
"""How many files a line names, or lines a kind has, at most."""
_MEANT = (
    "Run this in your training's repository, or name it: --repo PATH, or git.url in its profile."
)


def resolve_source(
    profile: Profile, request: SetupRequest
) -> tuple[LocalRepository | None, Snapshot | None, Source]:
    """Return what to check out, and the repository and snapshot to send (None: the box clones).

    Raises ProfileError, UsageError: no repository, boxstrap's own checkout, changes to another
    commit than the requested one, or changes that must not be sent.
    """
    from bootstrap.repo.local import is_boxstrap_checkout, read_repository

    url, ref = profile.git.url, profile.git.ref
    if url and profile.git.access == "url":
        return None, None, _by_url(url, ref)
    here = _of_url(url, ref, request.place) if url else read_repository(request.place, ref)
    if is_boxstrap_checkout(here) and request.repo is None and not url:
        raise UsageError(
            "this is boxstrap's own source, not a training repository.",
            where=str(here.root),
            hint=_MEANT,
        )
    if profile.git.access == "url":
        if here.url is None:
            raise ProfileError(
                "git.access: url needs an address, and this repository has no remote.",
                where=str(here.root),
                hint="Set git.url, or leave git.access out: the commit then travels over ssh.",
            )
        source = source_of(here, snapshot_of(here, "commit", profile))
        return None, None, _with_tags(here, replace(source, tree=""))
    include = "commit" if request.committed_only else profile.git.include
    snapshot = snapshot_of(here, include, profile)
    return here, snapshot, _with_tags(here, source_of(here, snapshot))


def _with_tags(here: LocalRepository, source: Source) -> Source:
    from bootstrap.repo.objects import find_tags

    tags = find_tags(here)
    return replace(source, tags=tags.rows, tag_objects=tags.objects)


def snapshot_of(here: LocalRepository, include: Include, profile: Profile) -> Snapshot:
    """Take the snapshot to send; with a ref in the profile, changes only count if it is HEAD."""
    from bootstrap.repo.local import read_repository
    from bootstrap.repo.snapshot import take_snapshot

    limit = profile.git.max_file_mib
    if include == "commit" or here.bare or here.asked is None:
        return take_snapshot(here, include, max_file_mib=limit)
    stood_on = read_repository(here.root)
    snapshot = take_snapshot(stood_on, include, max_file_mib=limit)
    if stood_on.commit == here.commit:
        return snapshot
    if snapshot.changes:
        raise UsageError(
            f"your changes ({snapshot.changes}) are to commit {stood_on.commit[:12]}, and "
            f"git.ref names {here.commit[:12]}.",
            where=str(here.root),
            hint="Check that one out, or say that the commit is enough: --committed-only",
        )
    return take_snapshot(here, "commit")


def source_of(here: LocalRepository, snapshot: Snapshot) -> Source:
    """Return the source for a snapshot of a repository."""
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
        tree=snapshot.content,
    )


def _by_url(url: str, ref: str | None) -> Source:
    """Return the source for `ref` at the URL; this machine resolves it, with the user's access."""
    from bootstrap.repo.local import name_and_key
    from bootstrap.repo.urls import without_user_info

    clean = without_user_info(url)
    commit = ref if ref and _COMMIT.fullmatch(ref) else _resolved(url, ref)
    name, key = name_and_key(clean, Path())  # the same as inside a clone of it
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
    """Return the first commit if a paste passed it; else "", since a URL has none."""
    told = os.environ.get(ROOT, "")
    return told if _COMMIT.fullmatch(told) else ""


def _resolved(url: str, ref: str | None) -> str:
    from bootstrap.repo.mirror import git_credentials
    from bootstrap.repo.urls import without_user_info

    clean, options = without_user_info(url), ref or "HEAD"
    refs = [f"refs/heads/{options}", f"refs/tags/{options}^{{}}", f"refs/tags/{options}"]
    patterns = ["HEAD"] if options == "HEAD" else refs
    lines = git_credentials(url, "ls-remote", "--end-of-options", clean, *patterns).splitlines()
    found = {name: commit for commit, _, name in (line.partition("\t") for line in lines)}
    for pattern in patterns:
        if pattern in found:
            return found[pattern]
    raise ProfileError(
        f"git.ref: {clean} has no branch or tag {options!r}.",
        hint="Name one, or a whole commit id.",
    )


def _of_url(url: str, ref: str | None, place: Path) -> LocalRepository:
    """Return the repository at the URL; the user's own clone if `place` is in it."""
    from bootstrap.repo.local import read_repository
    from bootstrap.repo.mirror import read_url
    from bootstrap.repo.urls import without_user_info

    try:
        mine = read_repository(place).url == without_user_info(url)
    except UsageError:
        mine = False
    return read_repository(place, ref) if mine else read_url(url, ref)


def address_warning(profile: Profile, source: Source) -> str | None:
    """Return a warning about the address from which this machine or the box fetches, if any."""
    from bootstrap.repo.urls import check_url

    url = source.url if profile.git.access == "url" else profile.git.url
    return check_url(url).warning if url else None


def report_source(
    here: LocalRepository | None, snapshot: Snapshot | None, source: Source, reporter: Reporter
) -> None:
    """Report the commit, the changes sent with it, new files, and files that can't be sent."""
    changes = f" with your changes ({snapshot.changes})" if snapshot and snapshot.changes else ""
    reporter.note("commit", f"{source.commit[:12]}{changes} of {source.name}")
    if here is not None and snapshot is not None:
        report_new_files(snapshot, reporter)


def report_new_files(snapshot: Snapshot, reporter: Reporter) -> None:
    """Report files not in git that are sent for the first time, and files that can't be sent."""
    from bootstrap.repo.names import shown

    if snapshot.first_time:
        names = [shown(name) for name in snapshot.first_time[:_MOST_NAMED]]
        more = len(snapshot.first_time) - len(names)
        listed = ", ".join(names) + (f" and {more} more" if more else "")
        reporter.note("new", f"{listed}: not in git yet, and sent with it")
    for path, why in snapshot.left[:_MOST_NAMED]:
        reporter.warn(f"stays here: {shown(path)}, {why}")
    if len(snapshot.left) > _MOST_NAMED:
        reporter.warn(f"stays here: {len(snapshot.left) - _MOST_NAMED} more of this kind")


def warnings_of(profile: Profile, source: Source, request: SetupRequest) -> tuple[str, ...]:
    """Return warnings about the repository's address, and about changes that are not sent."""
    said = (address_warning(profile, source), _changes_warning(profile, request))
    return tuple(each for each in said if each)


def _changes_warning(profile: Profile, request: SetupRequest) -> str | None:
    """Return a warning if the box clones the commit itself, and there are changes here."""
    from bootstrap.repo.local import read_repository
    from bootstrap.repo.snapshot import take_snapshot

    if profile.git.access != "url" or profile.git.url or request.committed_only:
        return None
    try:
        snapshot = take_snapshot(read_repository(request.place))
    except UsageError:  # some changes must not be sent; none are
        return "your changes stay here: with git.access: url the box clones the commit."
    if not snapshot.changes or snapshot.only_profile:
        return None
    return (
        f"your changes ({snapshot.changes}) stay here: with git.access: url the box clones commit "
        f"{snapshot.commit[:12]} alone."
    )


def nothing_is_missing(here: LocalRepository) -> None:
    """Raise UsageError if a partial clone lacks files of the commit; they are not fetched."""
    if not here.partial:
        return
    from bootstrap.repo.objects import missing_objects

    names = missing_objects(here)
    if names:
        listed = "\n".join(f"  {name}" for name in names[:10])
        raise UsageError(
            f"this clone is partial, and {len(names)} files of commit {here.commit[:12]} are not "
            f"in it:\n{listed}",
            where=str(here.root),
            hint="Let git fetch them: git archive --output=/dev/null HEAD",
        )


def nothing_shared_is_sent(profile: Profile, here: LocalRepository) -> None:
    """Raise UsageError if a path of `shared:` is in the commit, or is sent with the changes."""
    from bootstrap.repo.git import run_git

    new = ("-o",) if profile.git.include == "all" and not profile.git.ref else ()
    for number, path in enumerate(profile.shared):

        def listed(*which: str, below: str = path) -> list[str]:
            words = ("ls-files", "-z", *which, "--exclude-standard", "--", f":(top,literal){below}")
            return run_git(here.folders, *words).decode("utf-8", "replace").split("\0")[:-1]

        if sent := listed("-c", *new):
            ignored = listed("-o", "-i", "--directory")[:_MOST_IGNORED]
            those = f"shared: [{', '.join(ignored)}]"
            raise UsageError(
                f"git doesn't ignore {sent[0]}, so it is sent, and each tree has its own.",
                where=f"shared[{number}]: {path}",
                hint=f"Share what git ignores there: {those}" if ignored else "Let git ignore it.",
            )
