"""`verify_box`: run only the gpu step, and the smoke test if there is an environment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from bootstrap.errors import ReturnBoxError
from bootstrap.setup.context import get_context
from bootstrap.setup.executor import SetupExecutor
from bootstrap.setup.result import fetch_verdict

if TYPE_CHECKING:
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.reporter import Reporter
    from bootstrap.verdict import Verdict


@dataclass(frozen=True)
class Verification:
    """The result of checking a box."""

    verdict: Verdict
    where: str
    """The box's address, as shown to the user."""
    provider: str
    error: ReturnBoxError | None
    """The error to raise if the box should be returned."""


def verify_box(request: SetupRequest, reporter: Reporter) -> Verification:
    """Check a box now. Raises the errors of `bootstrap.errors`, except for a bad verdict."""
    context = get_context(replace(request, committed_only=True), reporter, with_source=False)
    smoke = any(step.name == "smoke" for step in context.payload.steps)
    context.request = replace(context.request, only="gpu,smoke" if smoke else "gpu")
    profile, error = context.payload.profile, None
    try:
        try:
            SetupExecutor(context).run(context.link.ask(context.probe))
        except ReturnBoxError as returned:
            error, verdict = returned, cast("Verdict", returned.verdict)
        else:
            known = context.box.known
            context.box.save(replace(known, workdir=profile.box.workdir, profile=profile.name))
            advice = profile.provider.advice
            verdict = fetch_verdict(context.link.wire, profile.box.workdir, advice)
        return Verification(verdict, context.link.wire.label, profile.provider.name, error)
    finally:
        context.link.close()
