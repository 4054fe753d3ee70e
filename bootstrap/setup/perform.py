"""`inv setup`: from the person's words to a training that runs. One direction, in this order."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import partial

from bootstrap.errors import BusyError, TrainingFailedError
from bootstrap.link.handle import BoxOptions
from bootstrap.protocol.probe import BoxState
from bootstrap.protocol.run import Run
from bootstrap.setup.drive import Drive, Wishes
from bootstrap.setup.ready import Ready, get_ready, remember, warn_of_provider
from bootstrap.setup.report import next_steps, repo_dir
from bootstrap.setup.training import (
    FIRST_OUTPUT_S,
    Beginning,
    differences,
    not_started,
    run_of_work,
    watch_beginning,
)
from bootstrap.sshconfig.alias import preload, update_alias
from bootstrap.ui.screen import Screen


@dataclass(frozen=True)
class Order:
    """What `inv setup` was asked for."""

    options: BoxOptions
    wishes: Wishes
    committed_only: bool = False


def perform(order: Order, screen: Screen) -> None:
    """Take the box to its profile and its training to its first output.

    Raises the errors of the contract's exit codes.
    """
    began = time.monotonic()
    ready = get_ready(order.options, screen, committed_only=order.committed_only)
    drive = Drive(ready.box.known.name, ready.link, ready.prepared, screen, order.wishes)
    ready.link.on_reconnect.append(drive.again)
    try:
        preload(ready.box)  # while the box answers
        box_state = ready.look() or drive.box_state()
        warn_of_provider(ready, box_state, screen)
        setup = drive.run(box_state)
        remember(ready)
        _finish(ready, drive, drive.box_state() if setup else box_state, setup, began)
    finally:
        ready.link.close()


def _finish(ready: Ready, drive: Drive, box_state: BoxState, setup: str, began: float) -> None:
    prepared, screen = ready.prepared, drive.screen
    blocking = _blocking(box_state)
    run = None
    if prepared.profile.train and not blocking:
        run = run_of_work(box_state, prepared.commit)
    beginning = None
    if run and (drive.began_run or (setup and run.state == "running")):
        screen.say(
            f"{run.name}: waiting up to {FIRST_OUTPUT_S} s for its first line "
            "(Ctrl-C is safe: it goes on)"
        )
        beginning = ready.link.ask(partial(watch_beginning, run=run, workdir=drive.workdir))
        run = dataclasses.replace(run, state=beginning.state, rc=beginning.rc)
    differing = differences(box_state)
    text = [] if blocking else _told(screen, run, beginning, setup, differing)
    if drive.own_folder:
        text.append(f"another repository has its name on this box: it lies in {box_state.repo_dir}")
    alias = update_alias(ready.box, screen)
    took = time.monotonic() - began
    screen.result(
        {
            "setup": setup or None,
            "box": ready.box.known.name,
            "alias": alias or None,
            "commit": prepared.commit,
            "repo_dir": repo_dir(prepared, box_state),
            "run": run.as_dict() if run else None,
            "waits_for": blocking.name if blocking else None,
            "differs": differing,
            "seconds": round(took, 3),
        },
        "\n".join([*text, "", next_steps(ready.box, prepared, box_state, run or blocking, alias)]),
    )
    if blocking:
        train = prepared.profile.train
        command = train.command if train else ""
        raise BusyError(
            not_started(blocking, prepared.commit, command, differing),
            where=ready.box.known.name,
            hint="--restart stops it and starts this; or wait for it to end.",
        )
    if beginning and beginning.rc:
        raise TrainingFailedError(
            f"the training ended with exit code {beginning.rc}.",
            where=run.name if run else "",
            hint=f"Its log: boxstrap logs --host {ready.box.known.name}\n"
            "Fix it, commit, and run the same command again.",
        )


def _blocking(box_state: BoxState) -> Run | None:
    """The live run in this repository's folder, if tree, environment or work wait for it."""
    waits = "alive" in box_state.plan.values() and box_state.plan.get("train") != "done"
    return box_state.alive if waits else None


def _told(
    screen: Screen, run: Run | None, beginning: Beginning | None, setup: str, differing: list[str]
) -> list[str]:
    """What happened, in lines."""
    lines = [] if setup else ["nothing to do: the box is as the profile says"]
    if beginning:
        lines += [f"  {screen.sanitize(line)}" for line in beginning.lines]
    elif run:
        lines.append(f"{run.name} {run.outcome()}; to start it again: --restart")
    if run and run.state == "running" and differing == ["secrets"]:
        lines.append("its secrets are the earlier ones; --restart starts it with those of now")
    return lines
