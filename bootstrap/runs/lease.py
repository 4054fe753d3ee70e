"""The lease of a box: show, extend or release it, and report which results are safe."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import UsageError
from bootstrap.link.exchange import answer_rows
from bootstrap.link.record import GUARD
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.protocol.probe import BoxLease, parse_lease
from bootstrap.protocol.run import Run
from bootstrap.text.sizes import duration, seconds_of
from bootstrap.transfer.manifest import Manifest
from bootstrap.ui.screen import Screen

_LONGEST_S = 30 * 86400


def show_lease(options: BoxOptions, screen: Screen, *, extend: str | None, release: bool) -> None:
    """Show the box's lease, after extending it by a time (`2h`) or releasing it.

    Raises UsageError if the box has no lease or the time is invalid; as `connect`.
    """
    added = _seconds(extend) if extend is not None else 0
    if extend is not None and release:
        raise UsageError("--extend or --release: not both.")
    with BoxLogin.open(options, screen) as box:
        name = box.name
        what = "release" if release else "extend" if added else "look"
        asked_as = secrets.token_hex(8)
        word, lease = box.ask(lambda box: ask_lease(box, what, added, asked_as))
        _note(box, word, added)
    if word == "none":
        raise UsageError(
            "this box has no lease.",
            where=name,
            hint="A setup sets one, as in: boxstrap setup --set lease.hours=12",
        )
    if word == "released":
        screen.result({"box": name, "lease": None}, f"{name}: nothing ends this box any more")
        return
    lines = lease.lines() if lease else []
    if added:
        lines = [f"extended by {duration(added)}", *lines]
    screen.result(
        {"box": name, "lease": lease.as_dict() if lease else None},
        "\n".join(f"{name}: {line}" for line in lines),
    )


def _note(box: BoxLogin, word: str, added: int) -> None:
    """Record the change for a guard on this machine."""
    lease = box.known.lease
    if word == "released" and lease:
        box.save(replace(box.known, lease={}))
        (box.known.folder / GUARD).unlink(missing_ok=True)
    elif added and lease:
        before = lease.get("extended")
        extended = (before if isinstance(before, int | float) else 0.0) + added
        box.save(replace(box.known, lease={**lease, "extended": extended}))


def _seconds(text: str) -> int:
    found = seconds_of(text)
    if not found or found > _LONGEST_S:
        raise UsageError(
            f"--extend: {text!r} is no time to extend a lease by.",
            hint="As in: --extend 2h (m, h, d; 30 days at most)",
        )
    return found


def ask_lease(box: BoxLogin, what: str, seconds: int, asked_as: str) -> tuple[str, BoxLease | None]:
    """`look` at, `extend` or `release` the lease; return the box's word and the lease as it is now.

    Repeating a request with the same `asked_as` has no further effect. Raises LinkLost, NoAnswer.
    """
    answer = box.query("lease", what=what, seconds=str(seconds), id=asked_as)
    found = list(answer_rows(answer))
    word, said = found[0] if found else ("", "")
    return word, parse_lease(said)


def report_safe_results(box: BoxLogin, run: Run, manifest: Manifest) -> None:
    """Report a run's verified results to the box: its lease only destroys it if they are safe."""
    name, note = f"{run.repo_key}/{run.name}", manifest.safe_note()
    with suppress(LinkLost, NoAnswer):  # without this note the box is not destroyed
        box.query("safe", run=name, note=note, made=manifest.home_note())
