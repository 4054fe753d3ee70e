"""What stands before a setup: the profile, the box, a link to it, and what is to be sent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from bootstrap.cancel import CancelToken
from bootstrap.link.handle import LOCAL, BoxHandle, find_box
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.plan import Step, steps_for
from bootstrap.profile.providers import FALLBACK, Hints, all_hints, other_than
from bootstrap.profile.providers import recognise as by_hints
from bootstrap.repo.place import repository_root
from bootstrap.setup import secret_sources, secret_values
from bootstrap.setup.consent import EVERYTHING, FOR_THE_BOX, load_profile
from bootstrap.setup.early_login import EarlyLogin, ProbeRequest, ask_box
from bootstrap.setup.secret_values import SecretSet

if TYPE_CHECKING:
    from bootstrap.link.wire import Wire
    from bootstrap.profile.git_dependencies import GitDependency
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.profile.schema import Profile
    from bootstrap.protocol.probe import BoxState
    from bootstrap.render.quote import Value
    from bootstrap.render.variables import Source
    from bootstrap.repo.changes import ChangeCount
    from bootstrap.repo.here import LocalRepository
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.reporter import Reporter


@dataclass(frozen=True)
class Payload:
    """What is sent: the script, the commit and the secrets."""

    profile: Profile
    here: LocalRepository | None
    """The repository whose objects are sent; None where the box clones by itself, or needs none."""
    snapshot: Snapshot | None
    """What is sent of it."""
    source: Source
    steps: tuple[Step, ...]
    values: Sequence[tuple[str, Value]]
    """The variables of the script."""
    secrets: SecretSet = field(default_factory=SecretSet)
    dependencies: tuple[GitDependency, ...] = ()
    """Those that this machine fetches and sends."""
    warnings: tuple[str, ...] = ()
    """What to say of the repository's address, and of changes that stay here."""

    @cached_property
    def script(self) -> str:
        """What the box runs."""
        return self._rendered(self.values)

    @cached_property
    def script_id(self) -> str:
        """What tells it from others."""
        from bootstrap.render.script import script_id

        return script_id(self.script)

    @property
    def program_id(self) -> str:
        """Of the script without what differs between runs: the same for all of a profile's."""
        from bootstrap.render.script import script_id
        from bootstrap.render.variables import OF_ONE_RUN

        values = [(name, value) for name, value in self.values if name not in OF_ONE_RUN]
        return script_id(self._rendered(values))

    def _rendered(self, values: Sequence[tuple[str, Value]]) -> str:
        from bootstrap.render.script import render_script

        return render_script(self.profile.name, values, self.steps)

    @property
    def changes(self) -> ChangeCount:
        """How many files differ from the commit, and travel."""
        from bootstrap.repo.changes import ChangeCount

        return self.snapshot.changes if self.snapshot else ChangeCount()

    @property
    def probe_request(self) -> ProbeRequest:
        """What the box is asked about before this is sent."""
        source = self.source
        return ProbeRequest(self.profile.box.workdir, source.key, source.root, self.script_id)


@dataclass
class SetupContext:
    """A request, a link to the box that is meant, and what is to become of it."""

    request: SetupRequest
    reporter: Reporter
    box: BoxHandle
    link: ReconnectingLink
    loaded: LoadedProfile
    payload: Payload
    early: EarlyLogin

    def box_state(self) -> BoxState:
        """What the box says of this very script: it may have said so already."""
        return self.early.answer(self.payload.probe_request) or self.link.ask(self.probe)

    @property
    def secrets_here(self) -> dict[str, str]:
        """The values at hand of whatever the box may have been given."""
        return {**os.environ, **self.payload.secrets.values}

    def ask_commands(self, box_state: BoxState) -> None:
        """Ask the person's commands for the secrets that the box lacks; they are redacted then."""
        secrets = self.payload.secrets
        if secrets.ask_commands(box_state.secrets):
            redactor = secret_values.redactor_of([self.box.known], secrets.values)
            self.reporter.redact = redactor.text

    def probe(self, wire: Wire) -> BoxState:
        """Ask the box now."""
        return ask_box(wire, self.payload.probe_request)

    def remember(self) -> None:
        """Keep what later commands need: the working folder, the profile, the repository."""
        profile, source = self.payload.profile, self.payload.source
        known = replace(
            self.box.known,
            profile=profile.name,
            repo_key=source.key,
            repo_root=source.root,
            workdir=profile.box.workdir,
            venv=profile.python.venv,
            console=profile.provider.console or "",
            script=self.payload.script_id,
            snapshot=source.snapshot,
        )
        self.box.save(known)


def get_context(
    request: SetupRequest,
    reporter: Reporter,
    cancel: CancelToken | None = None,
    early: EarlyLogin | None = None,
    *,
    with_source: bool = True,
) -> SetupContext:
    """Profile, box, repository, script; the connection is made while they are read.

    A box whose provider nobody named is logged in to before the script is made, and
    asked; what can be refused without it is refused before. `early`: the login that was begun
    to the box as it was reached last. `with_source`: False leaves the repository and all that
    follows from it out.
    """
    if request.strict:
        request = replace(request, sets=(*request.sets, "gpu.strict=true"))
    try:
        loaded = load_profile(request, kinds=EVERYTHING if with_source else FOR_THE_BOX)
        early = _early_login(request, loaded, reporter, cancel or CancelToken(), early)
        return _context(request, reporter, loaded, early.box, early, with_source=with_source)
    except BaseException:
        if early is not None:
            early.close()
        raise


def _context(  # noqa: PLR0913 - the parts that a context is made of
    request: SetupRequest,
    reporter: Reporter,
    loaded: LoadedProfile,
    box: BoxHandle,
    early: EarlyLogin,
    *,
    with_source: bool,
) -> SetupContext:
    connect = partial(
        ReconnectingLink,
        early.login,
        lost=reporter.lost,
        back=reporter.back,
        warn=reporter.warn,
        cancel=early.cancel,
    )
    build = partial(build_payload, request=request, local=box.is_local, with_source=with_source)
    link = None
    if loaded.needs_provider:
        provider = LOCAL if box.is_local else box.known.provider
        if not provider:
            build(loaded.for_provider(FALLBACK))
            link = connect()
            provider = _recognise(box, link, reporter)
        loaded = loaded.for_provider(provider)
    payload = build(loaded)
    reporter.redact = secret_values.redactor_of([box.known], payload.secrets.values).text
    for warning in payload.warnings:
        reporter.warn(warning)
    if with_source:
        from bootstrap.setup.source import tell_source

        tell_source(payload.here, payload.snapshot, payload.source, reporter)
    link = link or connect()
    if with_source:
        if not box.known.repo_key:
            # Also where this setup ends badly, `status` finds the box by its repository.
            key, root = payload.source.key, payload.source.root
            box.save(replace(box.known, repo_key=key, repo_root=root))
        secret_values.remember(box, payload.secrets.names)
    return SetupContext(request, reporter, box, link, loaded, payload, early)


def build_payload(
    loaded: LoadedProfile,
    request: SetupRequest,
    *,
    local: bool,
    with_source: bool = True,
    with_secrets: bool = True,
) -> Payload:
    """Read the repository, and what the script is made of. Nothing is asked of any box.

    `with_secrets`: False for a script that is only looked at. Raises ProfileError, UsageError:
    no repository, boxstrap's own checkout, or changes that must not travel.
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
        prepare=bool(profile.prepare),
    )
    secrets = SecretSet()
    if with_source and with_secrets and profile.secrets:
        folder = secret_sources.folder_of(loaded, repository_root(request.place))
        secrets = secret_values.take(profile.secrets, folder)
    values = variables(
        profile,
        source,
        steps,
        local=local,
        secrets_id=secrets.id,
        secret_ids=secrets.ids,
        dependencies=dependency_rows,
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
        warnings=warnings,
    )


def _early_login(
    request: SetupRequest,
    loaded: LoadedProfile,
    reporter: Reporter,
    cancel: CancelToken,
    begun: EarlyLogin | None,
) -> EarlyLogin:
    """The login to the box that is meant: the one that was begun, unless the profile differs."""
    ssh = loaded.profile.ssh
    if begun is not None:
        endpoint = begun.box.endpoint
        if ssh.identity is None and (endpoint is None or ssh.user in (None, endpoint.user)):
            return begun
        begun.close()
    return EarlyLogin(_find_box(request, loaded, reporter), cancel)


def _find_box(request: SetupRequest, loaded: LoadedProfile, reporter: Reporter) -> BoxHandle:
    """The box that is meant; the connection to it begins."""
    repo_key = ""
    if not request.host:
        from bootstrap.repo.here import read

        repo_key = read(request.place).key
    ssh = loaded.profile.ssh
    box = find_box(
        request,
        reporter.say,
        repo_key=repo_key,
        user=ssh.user,
        identity=ssh.identity,
        first_contact=ssh.first_contact,
    )
    box.dial()
    return box


def _recognise(box: BoxHandle, link: ReconnectingLink, reporter: Reporter) -> str:
    """Ask the box which provider's it is, say it, and keep it."""
    box_state = link.ask(partial(ask_box, request=ProbeRequest()))
    provider = by_hints(box_state.env, box_state.files)
    signs = _signs(box_state)
    why = f"it shows {signs}" if signs else "it shows no provider's signs"
    reporter.note("profile", f"{provider} ({why})")
    box.save(replace(box.known, provider=provider))
    return provider


def warn_of_provider(context: SetupContext, box_state: BoxState) -> None:
    """Say it where the profile is one provider's, and the box shows another one's signs."""
    provider = context.payload.profile.provider
    own = Hints(frozenset(provider.detect.env), frozenset(provider.detect.files))
    shown = other_than(own, box_state.env, box_state.files)
    if shown:
        context.reporter.warn(
            f"the profile is for {provider.name}, and this box shows {_signs(box_state)}. "
            f"If it is one of {shown}: --profile {shown}, or extends: {shown}"
        )


def _signs(box_state: BoxState) -> str:
    hints = all_hints()
    return ", ".join(sorted((box_state.env & hints.env) | (box_state.files & hints.files))[:3])
