"""What is sent to a box: the script, the commit, the secrets, private dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from bootstrap.plan import Step, steps_for
from bootstrap.repo.place import repository_root
from bootstrap.secrets.sources import folder_of
from bootstrap.secrets.values import SecretSet, take_secrets
from bootstrap.setup.early_login import ProbeRequest

if TYPE_CHECKING:
    from bootstrap.profile.git_dependencies import GitDependency
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.profile.schema import Profile
    from bootstrap.render.quote import Value
    from bootstrap.render.variables import Source
    from bootstrap.repo.changes import ChangeCount
    from bootstrap.repo.here import LocalRepository
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.setup.request import SetupRequest
    from bootstrap.transfer.local_data import LocalItem


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
        from bootstrap.repo.changes import ChangeCount

        return self.snapshot.changes if self.snapshot else ChangeCount()

    @property
    def probe_request(self) -> ProbeRequest:
        """What to ask the box about before this is sent."""
        source = self.source
        return ProbeRequest(self.profile.box.workdir, source.key, source.root, self.script_id)


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
    from bootstrap.setup.dependencies import agree_to_dependencies, private_dependencies
    from bootstrap.setup.source import nothing_is_missing, resolve_source, warnings_of

    profile = loaded.profile
    here, snapshot, source = None, None, NO_SOURCE
    if with_source:
        here, snapshot, source = resolve_source(profile, request)
    if here is not None:
        nothing_is_missing(here)
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
        from bootstrap.transfer.local_data import local_items

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
