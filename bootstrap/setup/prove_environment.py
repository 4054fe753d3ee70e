"""Prove the profile's variables in each kind of shell on a box, by comparing fingerprints only."""

from __future__ import annotations

import hashlib
import json
import posixpath
import secrets as random
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.exchange import ask
from bootstrap.protocol.environment_comparison import EnvironmentProof, read_answer
from bootstrap.protocol.probe import BoxState
from bootstrap.render.quote import quote
from bootstrap.secrets.sources import BYTES
from bootstrap.secrets.values import fingerprint
from bootstrap.setup.context import SetupContext, get_context

if TYPE_CHECKING:
    from bootstrap.link.wire import Wire
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.reporter import Reporter

_LIMIT_S = 60


def verify_environment(request: SetupRequest, reporter: Reporter) -> EnvironmentProof:
    """Prove the current repository's environment on a box that was set up.

    Raises the errors of `bootstrap.errors`, but not for a wrong variable.
    """
    context = get_context(replace(request, committed_only=True), reporter)
    try:
        if not wanted(context):
            raise UsageError(
                "the profile has neither `env` nor `secrets`: there is nothing to prove.",
                where=context.box.known.name,
            )
        box_state = context.box_state()
        proof = prove(context, box_state, context.link.wire)
        if proof is None:
            raise UsageError(
                "this box was not set up yet, or by an earlier version.",
                where=context.link.label,
                hint=f"Do that first: boxstrap setup --host {context.box.known.name}",
            )
        remember(context, proof)
        return proof
    finally:
        context.link.close()


class BackgroundProof(Thread):
    """Proves the environment of a box that was just set up, while its training starts.

    If the link breaks, only the proof is missing; the next setup repeats it.
    """

    def __init__(self, context: SetupContext, box_state: BoxState) -> None:
        super().__init__(daemon=True)
        self._context, self._box_state = context, box_state
        self._wire = context.link.wire
        self.proof: EnvironmentProof | None = None

    def run(self) -> None:
        """Prove, ignoring errors."""
        try:
            self.proof = prove(self._context, self._box_state, self._wire)
        except (BoxstrapError, OSError):
            return

    def report(self) -> None:
        """Wait for the proof, and warn about each wrong variable."""
        self.join(_LIMIT_S)
        if self.proof is None:
            return
        for line in self.proof.advice():
            self._context.reporter.warn(line)
        remember(self._context, self.proof)


def start_if_new(context: SetupContext, box_state: BoxState) -> BackgroundProof | None:
    """Start the proof if these variables are not those that were proved last on this box."""
    if not wanted(context) or context.box.known.proved == _id_of(context):
        return None
    proof = BackgroundProof(context, box_state)
    proof.start()
    return proof


def remember(context: SetupContext, proof: EnvironmentProof) -> None:
    """Save in the box's record that its environment is proved, if nothing is wrong."""
    if not proof.wrong:
        context.box.save(replace(context.box.known, proved=_id_of(context)))


def wanted(context: SetupContext) -> tuple[str, ...]:
    """Return the names of the profile's variables, secrets last."""
    profile = context.payload.profile
    return tuple(dict.fromkeys((*profile.env, *profile.secrets)))


def _values(context: SetupContext) -> dict[str, str]:
    return {**context.payload.profile.env, **context.payload.secrets.values}


def _id_of(context: SetupContext) -> str:
    return fingerprint({**context.payload.profile.env, "": context.payload.secrets.id})


def prove(context: SetupContext, box_state: BoxState, wire: Wire) -> EnvironmentProof | None:
    """Ask the box and compare; None if it lacks boxstrap's program for that.

    Raises LinkLost, NoAnswer.
    """
    names, salt = wanted(context), random.token_hex(16)
    home, folder = box_state.facts.get("boxhome", ""), box_state.repo_dir
    venv = box_state.facts.get("venv") or ".venv"
    asked = {
        "salt": salt,
        "names": names,
        "folder": folder,
        "venv": posixpath.join(folder, venv),
        "local": context.box.is_local,
    }
    # Not a query with variables in front: they would overwrite exported ones of the same names.
    words = (
        f"{home}/agent/bin/python",
        *("-I", "-S", f"{home}/box/environment_probe.py", "ask", json.dumps(asked)),
    )
    answer = ask(wire, "exec " + " ".join(map(quote, words)), timeout=_LIMIT_S)
    if answer.code != 0:
        return None
    expected = {name: _digest(salt, value) for name, value in _values(context).items()}
    return read_answer(
        answer.output,
        names,
        expected,
        secrets=context.payload.profile.secrets,
        box=context.box.known.name,
    )


def _digest(salt: str, value: str) -> str:
    return hashlib.sha256(salt.encode() + value.encode(*BYTES)).hexdigest()
