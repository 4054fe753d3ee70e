"""`inv setup`: from the person's words to a training that runs. One direction, in this order."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

from bootstrap.contact import LOCAL, Asked, Contact, contact
from bootstrap.errors import TrainingFailedError
from bootstrap.link.steady import SteadyLink
from bootstrap.profile.load import Loaded, load
from bootstrap.setup.drive import Drive, Wishes
from bootstrap.setup.prepare import Prepared, prepare, repository_root
from bootstrap.setup.report import next_steps, repo_dir
from bootstrap.setup.training import Beginning, run_of_work, watch_beginning
from bootstrap.talk.hello import Hello, greet
from bootstrap.talk.run import Run
from bootstrap.ui.redact import Redactor
from bootstrap.ui.screen import Screen


@dataclass(frozen=True)
class Order:
    """What `inv setup` was asked for."""

    asked: Asked
    wishes: Wishes
    committed_only: bool = False


@dataclass
class Ready:
    """A link to a box, and what is to become of it."""

    box: Contact
    link: SteadyLink
    prepared: Prepared
    loaded: Loaded


def perform(order: Order, screen: Screen) -> None:
    """Take the box to its profile and its training to its first output.

    Raises the errors of the contract's exit codes.
    """
    began = time.monotonic()
    ready = get_ready(order.asked, screen, committed_only=order.committed_only)
    drive = Drive(ready.box.known.name, ready.link, ready.prepared, screen, order.wishes)
    ready.link.then.append(drive.again)
    try:
        hello = drive.hello()
        setup = drive.run(hello)
        remember(ready)
        _finish(ready, screen, drive.hello() if setup else hello, setup, began)
    finally:
        ready.link.close()


def get_ready(
    asked: Asked, screen: Screen, *, committed_only: bool, with_work: bool = True
) -> Ready:
    """Profile, box, repository, script; the connection is made while they are read.

    A box whose provider nobody named is logged in to first, and asked.
    """
    loaded = load(asked.profile, sets=asked.sets, repo_root=repository_root(asked.place))
    box = reach(asked, loaded, screen)
    link = None
    if loaded.needs_provider:
        provider = LOCAL if box.is_local else box.recall("provider")
        if not provider:
            link = connect(box, screen)
            provider = recognise(box, link, screen)
        loaded = loaded.for_provider(provider)
    prepared = prepare(
        loaded,
        asked.place,
        local=box.is_local,
        chosen_repo=asked.repo is not None,
        committed_only=committed_only,
        with_work=with_work,
    )
    if prepared.secrets:
        screen.hide = Redactor(prepared.secrets).text
    if with_work:
        screen.note("commit", f"{prepared.commit[:12]} of {prepared.repo_name}")
    return Ready(box, link or connect(box, screen), prepared, loaded)


def reach(asked: Asked, loaded: Loaded, screen: Screen) -> Contact:
    """The box that is meant; the connection to it begins."""
    repo_key = ""
    if not asked.host:
        from bootstrap.repo.here import read

        repo_key = read(asked.place).key
    ssh = loaded.profile.ssh
    box = contact(
        asked,
        screen.say,
        repo_key=repo_key,
        user=ssh.user,
        identity=ssh.identity,
        first_contact=ssh.first_contact,
    )
    box.dial()
    return box


def connect(box: Contact, screen: Screen) -> SteadyLink:
    """Log in."""
    return SteadyLink(box.login, lost=screen.lost, back=screen.back)


def recognise(box: Contact, link: SteadyLink, screen: Screen) -> str:
    """Ask the box which provider's it is, say it, and keep it."""
    from bootstrap.profile.providers import all_hints
    from bootstrap.profile.providers import recognise as by_hints

    hints = all_hints()
    hello = greet(link.wire, hint_names=hints.env, hint_files=hints.files)
    provider = by_hints(hello.env, hello.files)
    signs = sorted(hello.env | hello.files)
    why = f"it shows {', '.join(signs[:3])}" if signs else "it shows no provider's signs"
    screen.note("profile", f"{provider} ({why})")
    box.remember(provider=provider)
    return provider


def remember(ready: Ready) -> None:
    """Keep what later commands need: the working folder, the profile, the repository."""
    prepared = ready.prepared
    ready.box.remember(
        profile=prepared.profile.name,
        repo_key=prepared.repo_key,
        repo_name=prepared.repo_name,
        workdir=prepared.profile.box.workdir,
        console=prepared.profile.provider.console or "",
    )


def _finish(ready: Ready, screen: Screen, hello: Hello, setup: str, began: float) -> None:
    prepared = ready.prepared
    run = None
    if prepared.profile.train:
        run = run_of_work(hello, prepared.repo_key, prepared.commit)
    alive = next((r for r in hello.runs if r.state == "running"), None)
    beginning = None
    if run and setup and (run.state == "running" or not run.log_bytes):
        beginning = watch_beginning(ready.link.wire, run, prepared.profile.box.workdir)
        run = dataclasses.replace(run, state=beginning.state, rc=beginning.rc)
    text = _told(screen, run, alive, beginning, setup)
    took = time.monotonic() - began
    screen.result(
        {
            "setup": setup or None,
            "box": ready.box.known.name,
            "commit": prepared.commit,
            "repo_dir": repo_dir(prepared, hello),
            "run": run.as_dict() if run else None,
            "seconds": round(took, 3),
        },
        "\n".join([*text, "", next_steps(ready.box, prepared, hello, run)]),
    )
    if beginning and beginning.rc:
        raise TrainingFailedError(
            f"the training ended with exit code {beginning.rc}.",
            where=run.name if run else "",
            next_=f"Its log: boxstrap logs --host {ready.box.known.name}\n"
            "Mend it, commit, and run the same command again.",
        )


def _told(
    screen: Screen, run: Run | None, alive: Run | None, beginning: Beginning | None, setup: str
) -> list[str]:
    """What happened, in lines."""
    lines = [] if setup else ["nothing to do: the box is as the profile says"]
    if alive and run != alive:
        lines.append(
            f"{alive.name} is running ({alive.commit[:12]}); this commit was not started: "
            "wait for it, or --restart"
        )
    if beginning:
        lines += [f"  {screen.fair(line)}" for line in beginning.lines]
    elif run and not setup:
        lines.append(f"{run.name} {run.outcome()}; to start it again: --restart")
    return lines
