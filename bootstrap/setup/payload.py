"""What is sent to a box: the script, the commit, the secrets, private dependencies.

Private dependencies of a setup: find them in the files that are sent, and get consent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from bootstrap.plan import Step, steps_for
from bootstrap.profile.consent import agree_to_addresses
from bootstrap.profile.survey.declared import (
    GitDependency,
    find_git_dependencies,
    is_named,
    sent_from_here,
)
from bootstrap.profile.survey.files import check_requirements, decode
from bootstrap.repo.git import Folders, GitError, git_error, run_git
from bootstrap.repo.mirror import key_of
from bootstrap.repo.place import repository_root
from bootstrap.secrets import SecretSet, folder_of, take_secrets

if TYPE_CHECKING:
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.profile.schema import Profile
    from bootstrap.render.variables import Source
    from bootstrap.repo.local import LocalRepository
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.repo.snapshot_store import ChangeCount
    from bootstrap.setup.request import SetupRequest
    from bootstrap.shell import Value
    from bootstrap.transfer.push import LocalItem


@dataclass(frozen=True)
class Payload:
    """What is sent: the script, the commit and the secrets."""

    profile: Profile
    here: LocalRepository | None
    """The repository whose objects are sent; None if the box clones it itself, or needs none."""
    snapshot: Snapshot | None
    """The snapshot of it that is sent."""
    source: Source
    steps: tuple[Step, ...]
    values: Sequence[tuple[str, Value]]
    """The variables of the script."""
    secrets: SecretSet = field(default_factory=SecretSet)
    dependencies: tuple[GitDependency, ...] = ()
    """The dependencies that this machine fetches and sends."""
    data: tuple[LocalItem, ...] = ()
    """The items of `data:` that are on this machine."""
    warnings: tuple[str, ...] = ()
    """Warnings about the repository's address, and about changes that are not sent."""

    @cached_property
    def script(self) -> str:
        """The script that the box runs."""
        return self._rendered(self.values)

    @cached_property
    def script_id(self) -> str:
        """The script's id, a digest."""
        from bootstrap.render.script import script_id

        return script_id(self.script)

    @cached_property
    def program_id(self) -> str:
        """The id of the script without values that differ between a profile's runs."""
        from bootstrap.render.script import script_id
        from bootstrap.render.variables import OF_ONE_RUN

        values = [(name, value) for name, value in self.values if name not in OF_ONE_RUN]
        return script_id(self._rendered(values))

    def _rendered(self, values: Sequence[tuple[str, Value]]) -> str:
        from bootstrap.render.script import render_script

        return render_script(self.profile.name, values, self.steps)

    @property
    def changes(self) -> ChangeCount:
        """How many files that differ from the commit are sent."""
        from bootstrap.repo.snapshot_store import ChangeCount

        return self.snapshot.changes if self.snapshot else ChangeCount()


def build_payload(
    loaded: LoadedProfile,
    request: SetupRequest,
    *,
    local: bool,
    with_source: bool = True,
    with_secrets: bool = True,
) -> Payload:
    """Read the repository and everything the script needs, without contacting a box.

    `with_secrets`: False for a script that is only shown. Raises ProfileError, UsageError:
    no repository, boxstrap's own checkout, or changes that must not be sent.
    """
    from bootstrap.render.variables import NO_SOURCE, variables
    from bootstrap.setup.source import (
        nothing_is_missing,
        nothing_shared_is_sent,
        resolve_source,
        warnings_of,
    )

    profile = loaded.profile
    here, snapshot, source = None, None, NO_SOURCE
    if with_source:
        here, snapshot, source = resolve_source(profile, request)
    if here is not None:
        nothing_is_missing(here)
        nothing_shared_is_sent(profile, here)
    dependencies: tuple[GitDependency, ...] = ()
    dependency_rows: list[str] = []
    if here is not None and not local:
        dependencies, dependency_rows = private_dependencies(profile, here, snapshot)
        if with_secrets:
            agree_to_dependencies(profile, dependencies, here, request)
    steps = steps_for(
        local=local,
        train=profile.train is not None,
        repo=with_source,
        smoke=profile.gpu.require and profile.gpu.smoke != "none",
        data=bool(profile.data),
        prepare=bool(profile.prepare),
        lease=profile.lease is not None,
    )
    data: tuple[LocalItem, ...] = ()
    if with_source and with_secrets and profile.data:
        from bootstrap.transfer.push import local_items

        data = local_items(profile)
    secrets = SecretSet()
    if with_source and with_secrets and profile.secrets:
        folder = folder_of(loaded, repository_root(request.place))
        secrets = take_secrets(profile.secrets, folder)
    values = variables(
        profile,
        source,
        steps,
        local=local,
        secrets_id=secrets.id,
        secret_ids=secrets.ids,
        dependencies=dependency_rows,
        sent_data={item.number: item.sent for item in data},
        rented=request.rented,
    )
    warnings = warnings_of(profile, source, request) if with_source else ()
    return Payload(
        profile=profile,
        here=here,
        snapshot=snapshot,
        source=source,
        steps=steps,
        values=values,
        secrets=secrets,
        dependencies=dependencies,
        data=data,
        warnings=warnings,
    )


_LARGEST = 16 * 1024 * 1024
"""Limit for a file in bytes; a lock file of a thousand packages has two million."""
_USUAL = ("uv.lock", "requirements.txt", "pyproject.toml")


def private_dependencies(
    profile: Profile, here: LocalRepository, snapshot: Snapshot | None
) -> tuple[tuple[GitDependency, ...], list[str]]:
    """Return the dependencies that this machine sends, and the rows about them for the box.

    Raises BoxstrapError if git fails, UsageError for requirements that no box can install.
    """
    folders, commit = (snapshot.folders, snapshot.id) if snapshot else (here.folders, here.commit)

    known: dict[str, bytes | None] = {}

    def read_data(names: Sequence[str]) -> dict[str, bytes]:
        # The usual ones with the first, since each call of git takes its time.
        asked = [name for name in (*names, *([] if known else _USUAL)) if name not in known]
        try:
            found = _read(folders, commit, asked) if asked else {}
        except GitError as failure:
            raise git_error(here.root, failure) from failure
        known.update({name: found.get(name) for name in asked})
        return {name: data for name in names if (data := known[name]) is not None}

    def read(names: Sequence[str]) -> dict[str, str]:
        return {name: decode(data) for name, data in read_data(names).items()}

    check_requirements(profile.python, read_data)
    found = find_git_dependencies(profile.python, read)
    sent = sent_from_here(profile.python, found)
    rows = [f"{key_of(each.address)} {_commit(each)} {each.address}" for each in sent]
    # git uses the longest matching address, so public ones that extend a private one get own rows.
    others = {each.address for each in found} - {each.address for each in sent}
    begins = tuple({each.address for each in sent})
    rows += [f"- - {other}" for other in sorted(others) if other.startswith(begins)]
    return tuple(sent), rows if sent else []


def _commit(dependency: GitDependency) -> str:
    return dependency.ref if dependency.is_pinned else "-"


def _read(folders: Folders, commit: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of those files that the commit has; paths outside of it are skipped."""
    inside = (name for name in dict.fromkeys(names) if not name.startswith(("../", "/")))
    asked = [name for name in inside if "\n" not in name]
    stdin = "".join(f"{commit}:{name}\n" for name in asked).encode("utf-8", "surrogateescape")
    answer = run_git(folders, "cat-file", "--batch", stdin=stdin)
    texts: dict[str, bytes] = {}
    at = 0
    for name in asked:
        line, _, _ = answer[at:].partition(b"\n")
        at += len(line) + 1
        words = line.rsplit(b" ", 2)
        if len(words) == 3 and words[2].isdigit():
            size = int(words[2])
            if words[1] == b"blob" and size <= _LARGEST:
                texts[name] = answer[at : at + size]
            at += size + 1
    return texts


def agree_to_dependencies(
    profile: Profile,
    dependencies: Sequence[GitDependency],
    here: LocalRepository,
    request: SetupRequest,
) -> None:
    """Raise ConsentError unless the user agreed to each address. Those in `python.private` need no
    question: they are part of the profile, which the user agreed to or wrote."""
    private = profile.python.private or []
    asked = {each.address for each in dependencies if not is_named(private, each.address)}
    if asked:
        agree_to_addresses(asked, here.root.resolve(), request.consent)
