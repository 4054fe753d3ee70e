"""Why a box did not take a state, as errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable

from bootstrap.codes import explain
from bootstrap.errors import BoxstrapError, BusyError, NotSafeError, StepFailedError, UsageError
from bootstrap.protocol.run_details import results_in_the_way
from bootstrap.protocol.sync_state import SyncAnswer

_OF_THE_BOX = ("box-edits", "box-commits", "untracked-in-the-way")
"""Codes for work made on the box that would be lost or mixed up."""


def not_set_up(where: str, name: str) -> UsageError:
    """Return the error for a box without a tree of this repository."""
    return UsageError(
        "this repository was not set up on this box yet.",
        where=where,
        hint=f"Do that first: boxstrap setup --host {name}",
    )


def refusal(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    """Return the error for an answer that nothing was placed."""
    return _REFUSALS.get(answer.problem, _failed)(answer, where, name)


def _fresh(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:  # noqa: ARG001
    return not_set_up(where, name)


def _alive(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    run = answer.detail.rpartition("/")[2]
    return BusyError(
        f"{run} is running and uses these files: they stay as they are.",
        where=where,
        hint=f"Wait for its end, or: boxstrap stop --host {name}",
    )


def _busy(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    of = f" ({answer.detail})" if answer.detail else ""
    return BusyError(
        f"a setup is at work on this box{of}.",
        where=where,
        hint=f"See what it does: boxstrap status --host {name}. Wait longer with --wait SECONDS.",
    )


def _refused(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:  # noqa: ARG001
    why = answer.detail[:300] or "it does not say why"
    return BoxstrapError(
        f"the box did not take what was sent: {why}.",
        where=where,
        hint="Nothing changed on it; run the same command again.",
    )


def _failed(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    code = explain(answer.detail, {})
    log = "".join(f"\n  {line}" for line in answer.log[-20:])
    if answer.detail == "results-unsafe":
        return results_in_the_way(answer.log, where, name)
    if answer.detail in _OF_THE_BOX:
        return NotSafeError(
            f"{code.what}:{log}",
            where=where,
            hint="Nothing changed there. To see and take what was made on the box:\n"
            f"  boxstrap sync --back --host {name}\n"
            "To drop it, on the box: git checkout HEAD -- FILE, or move the file away. "
            "Then run the same command again.",
        )
    return StepFailedError(
        f"{code.what}.{log}", where=where, hint=f"{code.hint[:1].upper()}{code.hint[1:]}."
    )


_REFUSALS: dict[str, Callable[[SyncAnswer, str, str], BoxstrapError]] = {
    "fresh": _fresh,
    "alive": _alive,
    "busy": _busy,
    "refused": _refused,
    "lacks": _refused,
    "": _refused,
}
