"""Everything that can be known and refused before a box is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import ProfileError, UsageError
from bootstrap.paths import real
from bootstrap.plan import Step, steps_for
from bootstrap.setup import secrets

if TYPE_CHECKING:
    from bootstrap.profile.load import Loaded
    from bootstrap.profile.schema import Profile
    from bootstrap.repo.changes import Changes
    from bootstrap.repo.here import Here


@dataclass(frozen=True)
class Prepared:
    """A setup that is ready to be sent."""

    profile: Profile
    here: Here | None
    """The repository whose objects are sent; None where the box clones by itself, or needs none."""
    repo_key: str
    repo_root: str
    """Its first commit, which tells it from others; "" where nobody knows."""
    repo_name: str
    commit: str
    steps: tuple[Step, ...]
    script: str
    script_id: str
    secrets: dict[str, str]
    warning: str | None = None
    """What to say of the repository's address, if anything."""


def repository_root(place: Path) -> Path | None:
    """The nearest folder upwards that holds a `.git`; a look, no git."""
    place = real(place)
    return next((folder for folder in (place, *place.parents) if (folder / ".git").exists()), None)


def check_keys(loaded: Loaded) -> None:
    """Read the public keys that the profile names, before any box hears of it.

    Raises ProfileError with the file and line that names the wrong one.
    """
    if loaded.profile.ssh.authorized_keys:
        from bootstrap.profile.public_keys import public_keys

        try:
            public_keys(loaded.profile)
        except ProfileError as error:
            origin = loaded.origins.get("ssh.authorized_keys")
            raise ProfileError(error.what, where=str(origin or ""), hint=error.hint) from None


def prepare(  # noqa: PLR0913
    loaded: Loaded,
    place: Path,
    *,
    local: bool,
    chosen_repo: bool = False,
    committed_only: bool = False,
    with_work: bool = True,
    with_secrets: bool = True,
) -> Prepared:
    """Read the repository and render the script. `place` is where the person stands.

    `chosen_repo`: the person named the repository. `with_work`: False leaves the
    repository and all that follows from it out. `with_secrets`: False for a script
    that is only looked at. Raises ProfileError, UsageError:
    no repository, boxstrap's own checkout, or work that would stay behind.
    """
    from bootstrap.render.script import render_script, script_id
    from bootstrap.render.variables import NO_SOURCE, variables
    from bootstrap.setup.work import address_warning, resolve_source

    profile = loaded.profile
    here, work = (
        resolve_source(profile, place, chosen_repo=chosen_repo) if with_work else (None, NO_SOURCE)
    )
    if here is not None:
        if not committed_only:
            nothing_stays_behind(here)
        nothing_is_missing(here)
    steps = steps_for(
        local=local,
        train=profile.train is not None,
        repo=with_work,
        smoke=profile.gpu.require and profile.gpu.smoke != "none",
    )
    taken = secrets.take(profile.secrets) if with_work and with_secrets else {}
    values = variables(profile, work, steps, local=local, secrets_id=secrets.fingerprint(taken))
    script = render_script(profile.name, values, steps)
    return Prepared(
        profile=profile,
        here=here,
        repo_key=work.key,
        repo_root=work.root,
        repo_name=work.name,
        commit=work.commit,
        steps=steps,
        script=script,
        script_id=script_id(script),
        secrets=taken,
        warning=address_warning(profile, work) if with_work else None,
    )


def nothing_stays_behind(here: Here) -> None:
    """Raise UsageError where the repository has work that is in no commit."""
    from bootstrap.profile.find import OF_A_REPOSITORY
    from bootstrap.repo.changes import left_behind

    # The profile is read from the working tree, committed or not.
    changes: Changes = left_behind(here).without(OF_A_REPOSITORY)
    if changes:
        listed = "\n".join(f"  {line}" for line in changes.lines(10))
        raise UsageError(
            f"this would stay behind, since only commit {here.commit[:12]} travels:\n{listed}",
            where=str(here.root),
            hint="Commit it, or say that the commit is enough: --committed-only",
        )


def nothing_is_missing(here: Here) -> None:
    """Raise UsageError where a partial clone lacks files of the commit: none is fetched for it."""
    if not here.partial:
        return
    from bootstrap.repo.changes import missing

    names = missing(here)
    if names:
        listed = "\n".join(f"  {name}" for name in names[:10])
        raise UsageError(
            f"this clone is partial, and {len(names)} files of commit {here.commit[:12]} are not "
            f"in it:\n{listed}",
            where=str(here.root),
            hint="Let git fetch them: git archive --output=/dev/null HEAD",
        )
