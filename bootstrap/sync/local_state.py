"""The local state: the repository, its snapshot, and the variables that place it on a box."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.record import LOCAL
from bootstrap.plan import steps_for
from bootstrap.profile.consent import NO_SECRET, load_profile
from bootstrap.profile.detect_provider import FALLBACK
from bootstrap.profile.schema import Profile
from bootstrap.protocol.sync_state import SyncState
from bootstrap.render.variables import variables
from bootstrap.repo.local import LocalRepository, read_repository
from bootstrap.repo.objects import ObjectStream, wanted_ref
from bootstrap.repo.snapshot import Snapshot
from bootstrap.repo.urls import without_user_info
from bootstrap.setup.request import SetupRequest
from bootstrap.setup.source import snapshot_of, source_of
from bootstrap.shell import Value

_OF_THE_TREE = (
    *("IS_LOCAL", "REPO_KEY", "REPO_USUAL_KEY", "REPO_ROOT", "REPO_NAME", "REPO_URL"),
    *("REPO_ACCESS", "COMMIT_PATIENCE", "GIT_USER_NAME", "GIT_USER_EMAIL", "VENV", "REPO_STEPS"),
)
"""The variables of a setup that say where its tree is, and what belongs to it."""

_MADE_EARLY = 1024 * 1024
"""Bytes of objects that are made while the login is in progress."""


@dataclass(frozen=True)
class LocalState:
    """The repository as it is now."""

    here: LocalRepository
    snapshot: Snapshot

    def on(self, base: str) -> SyncState:
        """Return it as sent to a box that has `base`, which is here too."""
        snapshot = self.snapshot
        branch = self.here.branch or ""
        return SyncState(snapshot.id, snapshot.commit, snapshot.content, branch, base)

    def objects(self, have: list[str]) -> EarlyObjects:
        """Return what a box with these commits needs. Raises BoxstrapError if one isn't here."""
        ref = wanted_ref(self.snapshot.id)
        return EarlyObjects(ObjectStream(self.here, snapshot=self.snapshot, ref=ref, have=have))

    def packed_on(self, base: str) -> tuple[SyncState, EarlyObjects]:
        """Return it as sent to a box that has `base`; complete if `base` is no longer here."""
        if base:
            with contextlib.suppress(BoxstrapError):
                return self.on(base), self.objects([base])
        return self.on(""), self.objects([])


def read_local_state(request: SetupRequest, profile: Profile) -> LocalState:
    """Read it. Raises UsageError, and as `take_snapshot` for files that must not travel."""
    here = read_repository(request.place, profile.git.ref)
    if profile.git.url and here.url != without_user_info(profile.git.url):
        raise _files_come_from("git.url")
    include = "commit" if request.committed_only else profile.git.include
    return LocalState(here, snapshot_of(here, include, profile))


def usable_profile(request: SetupRequest, box: BoxLogin) -> Profile:
    """Return the profile after consent. Raises ProfileError, and UsageError if the box fetches
    its files itself, from the address that the profile names."""
    loaded = load_profile(request, kinds=NO_SECRET)
    if loaded.needs_provider:
        provider = LOCAL if box.is_local else box.known.provider or FALLBACK
        loaded = loaded.for_provider(provider)
    if loaded.profile.git.access == "url":
        raise _files_come_from("git.access")
    return loaded.profile


def _files_come_from(key: str) -> UsageError:
    return UsageError(
        "the profile names an address from which the files come, so none are sent from here.",
        where=key,
        hint="Leave it out of the profile; or commit, push, and set up again: boxstrap setup",
    )


def values_for_box(
    profile: Profile, state: LocalState, box: BoxLogin, wait_s: int
) -> dict[str, Value]:
    """Return the variables of the query that places states of this repository."""
    steps = steps_for(local=box.is_local, train=True, repo=True, smoke=False)
    source = source_of(state.here, state.snapshot)
    named = dict(variables(profile, source, steps, local=box.is_local, secrets_id=""))
    return {
        **{name: named[name] for name in _OF_THE_TREE},
        # Where the setup put it, even if the profile has changed.
        "WORKDIR": box.known.workdir_of(state.here.key),
        "OBJECT_FORMAT": state.here.object_format,
        "WAIT_S": wait_s,
    }


class EarlyObjects:
    """The objects that a box needs; the first ones are made now, before they are waited for."""

    def __init__(self, objects: ObjectStream) -> None:
        self._objects = objects
        self._pieces = iter(objects)
        self._made: list[bytes] = []
        self.is_whole = False
        """Whether all objects are made."""
        size = 0
        while size < _MADE_EARLY:
            piece = next(self._pieces, None)
            if piece is None:
                self.is_whole = True
                break
            self._made.append(piece)
            size += len(piece)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._made
        yield from self._pieces

    def few(self, most: int) -> bytes | None:
        """Return all of it if that is at most `most` bytes, else None."""
        made = b"".join(self._made)
        return made if self.is_whole and len(made) <= most else None

    def close(self) -> None:
        """Make no more objects."""
        self._objects.close()
