"""What stands before any setup: the profile, the box, a link to it, and the script to send."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial

from bootstrap.link.handle import LOCAL, BoxHandle, BoxOptions, find_box
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.profile.load import Loaded
from bootstrap.profile.providers import FALLBACK, Hints, all_hints, other_than
from bootstrap.profile.providers import recognise as by_hints
from bootstrap.protocol.probe import BoxState, probe
from bootstrap.setup import secrets
from bootstrap.setup.ahead import Ahead
from bootstrap.setup.consent import EVERYTHING, FOR_THE_BOX, load_profile
from bootstrap.setup.prepare import Prepared, prepare
from bootstrap.ui.screen import Screen


@dataclass
class Ready:
    """A link to a box, and what is to become of it."""

    box: BoxHandle
    link: ReconnectingLink
    prepared: Prepared
    loaded: Loaded
    ahead: Ahead

    def look(self) -> BoxState | None:
        """What the box said of this very script already, if it was asked."""
        prepared = self.prepared
        return self.ahead.look(
            (
                prepared.profile.box.workdir,
                prepared.repo_key,
                prepared.repo_root,
                prepared.script_id,
            )
        )


def get_ready(
    options: BoxOptions, screen: Screen, *, committed_only: bool, with_work: bool = True
) -> Ready:
    """Profile, box, repository, script; the connection is made while they are read.

    A box whose provider nobody named is logged in to before the script is made, and
    asked; what can be refused without it is refused before.
    """
    loaded = load_profile(options, kinds=EVERYTHING if with_work else FOR_THE_BOX)
    box = reach(options, loaded, screen)
    ahead = Ahead(box)
    made = partial(
        prepare,
        place=options.place,
        local=box.is_local,
        chosen_repo=options.repo is not None,
        committed_only=committed_only,
        with_work=with_work,
    )
    link = None
    if loaded.needs_provider:
        provider = LOCAL if box.is_local else box.known.provider
        if not provider:
            made(loaded.for_provider(FALLBACK))
            link = connect(ahead, screen)
            provider = recognise(box, link, screen)
        loaded = loaded.for_provider(provider)
    prepared = made(loaded)
    screen.redact = secrets.redactor_of([box.known], prepared.secrets).text
    if prepared.warning:
        screen.warn(prepared.warning)
    if with_work:
        screen.note("commit", f"{prepared.commit[:12]} of {prepared.repo_name}")
    link = link or connect(ahead, screen)
    secrets.warn_of_unredacted(box.known, screen, {**os.environ, **prepared.secrets})
    if with_work:
        if not box.known.repo_key:
            # Also where this setup ends badly, `status` finds the box by its repository.
            key, root = prepared.repo_key, prepared.repo_root
            box.save(replace(box.known, repo_key=key, repo_root=root))
        secrets.remember(box, prepared.secrets)
    return Ready(box, link, prepared, loaded, ahead)


def reach(options: BoxOptions, loaded: Loaded, screen: Screen) -> BoxHandle:
    """The box that is meant; the connection to it begins."""
    repo_key = ""
    if not options.host:
        from bootstrap.repo.here import read

        repo_key = read(options.place).key
    ssh = loaded.profile.ssh
    box = find_box(
        options,
        screen.say,
        repo_key=repo_key,
        user=ssh.user,
        identity=ssh.identity,
        first_contact=ssh.first_contact,
    )
    box.dial()
    return box


def connect(ahead: Ahead, screen: Screen) -> ReconnectingLink:
    """Log in, or wait for the login that was begun."""
    return ReconnectingLink(ahead.login, lost=screen.lost, back=screen.back, warn=screen.warn)


def recognise(box: BoxHandle, link: ReconnectingLink, screen: Screen) -> str:
    """Ask the box which provider's it is, say it, and keep it."""
    hints = all_hints()
    box_state = link.ask(partial(probe, hint_names=hints.env, hint_files=hints.files))
    provider = by_hints(box_state.env, box_state.files)
    signs = _signs(box_state)
    why = f"it shows {signs}" if signs else "it shows no provider's signs"
    screen.note("profile", f"{provider} ({why})")
    box.save(replace(box.known, provider=provider))
    return provider


def warn_of_provider(ready: Ready, box_state: BoxState, screen: Screen) -> None:
    """Say it where the profile is one provider's, and the box shows another one's signs."""
    provider = ready.prepared.profile.provider
    own = Hints(frozenset(provider.detect.env), frozenset(provider.detect.files))
    shown = other_than(own, box_state.env, box_state.files)
    if shown:
        screen.warn(
            f"the profile is for {provider.name}, and this box shows {_signs(box_state)}. "
            f"If it is one of {shown}: --profile {shown}, or extends: {shown}"
        )


def _signs(box_state: BoxState) -> str:
    hints = all_hints()
    return ", ".join(sorted((box_state.env & hints.env) | (box_state.files & hints.files))[:3])


def remember(ready: Ready) -> None:
    """Keep what later commands need: the working folder, the profile, the repository."""
    prepared = ready.prepared
    known = replace(
        ready.box.known,
        profile=prepared.profile.name,
        repo_key=prepared.repo_key,
        repo_root=prepared.repo_root,
        workdir=prepared.profile.box.workdir,
        venv=prepared.profile.python.venv,
        console=prepared.profile.provider.console or "",
        script=prepared.script_id,
    )
    ready.box.save(known)
