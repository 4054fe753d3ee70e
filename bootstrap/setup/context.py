"""Prepare a setup: the profile, the box with the login to it, and what is to be sent."""

import contextlib
import json
import time
from functools import partial
from typing import Any

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import BoxState
from bootstrap.errors import BoxstrapError
from bootstrap.link.cancel import CancelToken
from bootstrap.link.record import LOCAL
from bootstrap.link.registry import ask_account
from bootstrap.link.target import parse_host
from bootstrap.profile.consent import EVERYTHING, FOR_THE_BOX, load_profile
from bootstrap.profile.detect_provider import FALLBACK, Hints, all_hints, other_than, recognise
from bootstrap.profile.load import LoadedProfile
from bootstrap.providers import FIXED_END, ONLY_END, end_does
from bootstrap.repo.local import read_repository
from bootstrap.setup.payload import Payload, build_payload, report_source
from bootstrap.setup.request import SetupRequest
from bootstrap.sizes import duration, seconds_of
from bootstrap.ui.screen import Reporter
from bootstrap.value import dataclass, replace


@dataclass
class SetupContext:
    """Everything a setup needs: the request, the box, and what is sent there."""

    request: SetupRequest
    box: BoxLogin
    loaded: LoadedProfile
    payload: Payload

    def box_state(self) -> BoxState:
        """Return the box's state for this script; the early login may have asked already."""
        return self.box.state_for(self.payload.script_id)

    def ask_commands(self, box_state: BoxState) -> None:
        """Run the user's commands for secrets that the box lacks, and redact their values."""
        secrets = self.payload.secrets
        with self.request.once.turn:
            asked = secrets.ask_commands(box_state.secrets)
        if asked or self.request.once.is_shared:  # another box may have needed them before
            self.box.redact(secrets.values)

    def note_begun(self) -> None:
        """Save the repository and its folder: other commands find the box by it while this setup is
        at work, and if it fails. Where none begins, the box isn't the repository's own."""
        box, source = self.box, self.payload.source
        if not (self.request.only or box.known.of(source.key)):
            known = replace(box.known, workdir=box.workdir)
            own = {"stood_in": stood_in(self.request, self.payload), "root": source.root}
            box.save(known.using(source.key, workdir=box.workdir, **own))

    def remember(self) -> None:
        """Save what later commands need: the working folder, the profile, the repository."""
        profile, source = self.payload.profile, self.payload.source
        workdir = profile.box.workdir
        self.box.known = replace(
            self.box.known,
            profile=profile.name,
            workdir=workdir,
            console=profile.provider.console or "",
            keep_open=float(seconds_of(profile.ssh.keep_open) or 0),
        )
        self.box.note_sent(
            self.payload.here,
            source.key,
            workdir,
            stood_in=stood_in(self.request, self.payload),
            root=source.root,
            venv=profile.python.venv,
            script=self.payload.script_id,
            snapshot=source.snapshot,
        )


def stood_in(request: SetupRequest, payload: Payload) -> str:
    """Return the key of the current repository if the profile names another one; else ""."""
    if not payload.profile.git.url:
        return ""
    key = request.repository[0]
    return "" if key == payload.source.key else key


def get_context(
    request: SetupRequest,
    reporter: Reporter,
    cancel: CancelToken | None = None,
    early: BoxLogin | None = None,
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
    box = early
    try:
        loaded = load_profile(request, kinds=EVERYTHING if with_source else FOR_THE_BOX)
        # Without a repository it doesn't matter which box is meant.
        if with_source and not (request.host or loaded.profile.git.url or request.repository[1]):
            read_repository(request.place)
        box = _box_of(request, loaded, reporter, cancel, early)
        return _context(request, loaded, box, with_source=with_source)
    except BaseException:
        if box is not None:
            box.close()
        raise


def _context(
    request: SetupRequest, loaded: LoadedProfile, box: BoxLogin, *, with_source: bool
) -> SetupContext:
    if isinstance(rented := box.known.lease.get("rented"), float):
        request = replace(request, rented=rented)
    if loaded.profile.lease and not box.target.is_rented:
        request = replace(request, price=box.known.price or None)
    if box.known.host_text.partition(":")[0] in FIXED_END:
        request, loaded = _with_fixed_end(request, loaded, box)
    build = partial(build_payload, request=request, local=box.is_local, with_source=with_source)
    if loaded.needs_provider:
        provider = LOCAL if box.is_local else box.known.provider
        if not provider:
            box.redact(build(loaded.for_provider(FALLBACK)).secrets.values)
            provider = _recognise(box)
        loaded = loaded.for_provider(provider)
    payload, reporter = build(loaded), box.reporter
    box.redact(payload.secrets.values)
    for warning in payload.warnings:
        reporter.warn(warning)
    if with_source:
        report_source(payload.here, payload.snapshot, payload.source, reporter)
    _ = box.link
    source = payload.source
    box.workdir, box.repo_key, box.repo_root = payload.profile.box.workdir, source.key, source.root
    box.set_price(payload.profile.box.price)
    return SetupContext(request, box, loaded, payload)


_BEFORE_END_S = 300.0
"""How long before its provider ends a box its lease is over: so that runs can end, and upload."""
_SAME_S = 120.0  # seconds by which a lease that was cut short may differ from the one that is kept


def _with_fixed_end(
    request: SetupRequest, loaded: LoadedProfile, box: BoxLogin
) -> tuple[SetupRequest, LoadedProfile]:
    """Return both with a lease that is over before the box's provider ends it; and that destroys,
    if such a box can't be stopped.

    Raises UsageError if the user's lease says to stop one that can't be.
    """
    if 0 < box.known.ends <= time.time():  # then it was started again since that was last known
        with contextlib.suppress(BoxstrapError):
            ends = ask_account(parse_host(box.known.host_text)).ends
            box.save(replace(box.known, ends=ends))
    lease, known = loaded.profile.lease, box.known
    provider = known.host_text.partition(":")[0]
    sets = list[str]()
    if provider not in ONLY_END:
        if known.ends <= time.time():  # it is somebody's own, or nobody says
            return request, loaded
    elif "lease.then" not in loaded.origins:
        sets.append("lease.then=destroy")
    elif lease and lease.then == "stop":
        from bootstrap.providers.accounts import never_stops

        raise never_stops(provider)
    most = _most_seconds(request, box)
    if most is not None and not (lease and lease.hours and lease.hours * 3600 <= most):
        sets.append(f"lease.hours={most / 3600:.4f}")
        left = duration(max(0.0, known.ends - time.time()))
        box.reporter.warn(
            f"{box.name}: it ends in {left} by its own limit, which nothing moves, and "
            f"{end_does(provider)}: so its lease is {duration(most)}"
        )
    elif said := known.end_words(time.time()):
        box.reporter.warn(f"{box.name}: {said}")
    request = replace(request, sets=(*request.sets, *sets), ends=True)
    return request, load_profile(request, kinds=())


def _most_seconds(request: SetupRequest, box: BoxLogin) -> float | None:
    """Return how long a lease may be that is over before the box ends; None if that is unknown."""
    known, since = box.known, box.known.lease.get("set")
    if not known.ends:
        return None
    since = request.rented or (since if isinstance(since, float) else time.time())
    most = max(60.0, round(known.ends - _BEFORE_END_S - since))
    before = known.lease.get("seconds")
    # A setup that finds nothing to do must find the same terms.
    is_same = isinstance(before, float | int) and abs(before - most) <= _SAME_S
    return float(before) if is_same else most  # type: ignore[arg-type]


def keep_lease(box: BoxLogin, payload: Payload) -> None:
    """Record the lease that this setup sets, for a guard; an existing one keeps its start time."""
    terms: dict[str, Any] = json.loads(str(payload.values["lease"]["LEASE"]))
    if not terms or box.is_local:
        return
    before = box.known.lease
    kept = {"set": time.time(), "extended": 0.0, "held": "", **before, **terms}
    kept = {name: kept[name] for name in (*terms, "set", "extended", "held")}
    if kept != before:
        box.save(replace(box.known, lease=kept))


def _box_of(
    request: SetupRequest,
    loaded: LoadedProfile,
    reporter: Reporter,
    cancel: CancelToken | None,
    early: BoxLogin | None,
) -> BoxLogin:
    """Return the box: with the login that was started, unless the profile differs."""
    ssh = loaded.profile.ssh
    if early is not None:
        endpoint = early.endpoint
        if ssh.identity is None and (endpoint is None or ssh.user in (None, endpoint.user)):
            if not early.is_known:
                early.first_contact = ssh.first_contact
                early.dial()
            return early
        early.close()
    box = BoxLogin.find(
        request,
        reporter,
        repo_key="" if request.host else request.repository[0],
        user=ssh.user,
        identity=ssh.identity,
        first_contact=ssh.first_contact,
        cancel=cancel,
    )
    box.begin(asks=request.run is None)  # a run sends its files first, and asks then if it has to
    return box


def _recognise(box: BoxLogin) -> str:
    """Ask the box which provider it is from; report and save that."""
    box_state = box.state_for("")
    provider = recognise(box_state.env, box_state.files)
    signs = _signs(box_state)
    why = f"it shows {signs}" if signs else "it shows no provider's signs"
    box.reporter.note("profile", f"{provider} ({why})")
    box.save(replace(box.known, provider=provider))
    return provider


def warn_of_provider(context: SetupContext, box_state: BoxState) -> None:
    provider = context.payload.profile.provider
    own = Hints(frozenset(provider.detect.env), frozenset(provider.detect.files))
    if shown := other_than(own, box_state.env, box_state.files):
        context.box.reporter.warn(
            f"the profile is for {provider.name}, and this box shows {_signs(box_state)}. "
            f"If it is one of {shown}: --profile {shown}, or extends: {shown}"
        )


def _signs(box_state: BoxState) -> str:
    hints = all_hints()
    return ", ".join(sorted((box_state.env & hints.env) | (box_state.files & hints.files))[:3])
