"""Prepare a setup: the profile, the box, a link to it, and what is to be sent."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.cancel import CancelToken
from bootstrap.consent import EVERYTHING, FOR_THE_BOX, load_profile
from bootstrap.link.handle import LOCAL, BoxHandle, find_box
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.profile.detect_provider import FALLBACK, Hints, all_hints, other_than
from bootstrap.profile.detect_provider import recognise as by_hints
from bootstrap.secrets.values import redactor_of, remember
from bootstrap.setup.early_login import EarlyLogin, ProbeRequest, ask_box
from bootstrap.setup.payload import Payload, build_payload

if TYPE_CHECKING:
    from bootstrap.link.wire import Wire
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.protocol.probe import BoxState
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.reporter import Reporter


@dataclass
class SetupContext:
    """Everything a setup needs: the request, a link to the box, and what is sent there."""

    request: SetupRequest
    reporter: Reporter
    box: BoxHandle
    link: ReconnectingLink
    loaded: LoadedProfile
    payload: Payload
    early: EarlyLogin

    def box_state(self) -> BoxState:
        """Return the box's state for this script; the early login may have asked already."""
        return self.early.answer(self.payload.probe_request) or self.link.ask(self.probe)

    def box_state_after_start(self) -> BoxState:
        """Return the box's state after the training started. No plan is requested, since its checks
        would slow down the training's start."""
        request = self.payload.probe_request._replace(script="")
        return self.link.ask(lambda wire: ask_box(wire, request))

    @property
    def secrets_here(self) -> dict[str, str]:
        """Return all values on this machine among which the box's secrets are looked up."""
        return {**os.environ, **self.payload.secrets.values}

    def ask_commands(self, box_state: BoxState) -> None:
        """Run the user's commands for secrets that the box lacks, and redact their values."""
        secrets = self.payload.secrets
        if secrets.ask_commands(box_state.secrets):
            redactor = redactor_of([self.box.known], secrets.values)
            self.reporter.redact = redactor.text

    def probe(self, wire: Wire) -> BoxState:
        """Probe the box now."""
        return ask_box(wire, self.payload.probe_request)

    def remember(self) -> None:
        """Save what later commands need: the working folder, the profile, the repository."""
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
    """Get profile, box, repository and script, while the connection is being made.

    If the provider is not named, the box is logged in to and asked before the script is
    rendered; errors that don't depend on that are raised before. `early`: the login that was
    started to where the box was last reached. `with_source`: False leaves out the repository
    and all that depends on it.
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
    if isinstance(rented := box.known.lease.get("rented"), float):
        request = replace(request, rented=rented)
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
    reporter.redact = redactor_of([box.known], payload.secrets.values).text
    for warning in payload.warnings:
        reporter.warn(warning)
    if with_source:
        from bootstrap.setup.source import report_source

        report_source(payload.here, payload.snapshot, payload.source, reporter)
    link = link or connect()
    _set_price(box, payload.profile.box.price, reporter)
    _keep_lease(box, payload)
    if with_source:
        if not box.known.repo_key:
            # So that `status` finds the box by its repository even if this setup fails.
            key, root = payload.source.key, payload.source.root
            box.save(replace(box.known, repo_key=key, repo_root=root))
        remember(box, payload.secrets.names)
    return SetupContext(request, reporter, box, link, loaded, payload, early)


def _set_price(box: BoxHandle, said: float | None, reporter: Reporter) -> None:
    """Set the box's price: by its account, else by the profile, else as it was the last time."""
    by_account = box.target.is_rented and box.known.price
    if said is not None and not by_account:
        box.known = replace(box.known, price=float(said))
    reporter.price = box.known.price or None


def _keep_lease(box: BoxHandle, payload: Payload) -> None:
    """Record the lease that this setup sets, for a guard; an existing one keeps its start time."""
    sent = dict(payload.values)["LEASE"]
    if not sent or box.is_local:
        return
    before = box.known.lease
    terms = json.loads(str(sent))
    kept = {"set": time.time(), "extended": 0.0, "held": "", **before, **terms}
    kept = {name: kept[name] for name in (*terms, "set", "extended", "held")}
    if kept != before:
        box.save(replace(box.known, lease=kept))


def _early_login(
    request: SetupRequest,
    loaded: LoadedProfile,
    reporter: Reporter,
    cancel: CancelToken,
    begun: EarlyLogin | None,
) -> EarlyLogin:
    """Return the login to the box: the one that was started, unless the profile differs."""
    ssh = loaded.profile.ssh
    if begun is not None:
        endpoint = begun.box.endpoint
        if ssh.identity is None and (endpoint is None or ssh.user in (None, endpoint.user)):
            if not begun.box.is_known:
                begun.box.first_contact = ssh.first_contact
                begun.box.dial()
            return begun
        begun.close()
    return EarlyLogin(_find_box(request, loaded, reporter), cancel)


def _find_box(request: SetupRequest, loaded: LoadedProfile, reporter: Reporter) -> BoxHandle:
    """Find the box and start connecting to it."""
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
    """Ask the box which provider it is from; report and save that."""
    box_state = link.ask(partial(ask_box, request=ProbeRequest()))
    provider = by_hints(box_state.env, box_state.files)
    signs = _signs(box_state)
    why = f"it shows {signs}" if signs else "it shows no provider's signs"
    reporter.note("profile", f"{provider} ({why})")
    box.save(replace(box.known, provider=provider))
    return provider


def warn_of_provider(context: SetupContext, box_state: BoxState) -> None:
    """Warn if the profile is for one provider, and the box shows signs of another."""
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
