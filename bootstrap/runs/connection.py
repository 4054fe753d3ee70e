"""A connection to a known box: its link, its state, and which of its runs are meant."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.handle import BoxHandle, BoxOptions, find_box
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.protocol.probe import BoxState, probe
from bootstrap.protocol.run import Run
from bootstrap.protocol.run_details import NO_DETAILS, RunDetails, ask_details
from bootstrap.runs.selection import repository_names, select_runs
from bootstrap.text.redact import Redactor
from bootstrap.ui.screen import Screen

KeyAndRoot = tuple[str, str]
"""Key and first commit of a repository."""


@dataclass
class BoxConnection:
    """A login to a known box. A context manager: leaving it closes the link."""

    box: BoxHandle
    link: ReconnectingLink
    box_state: BoxState
    workdir: str
    redactor: Redactor
    """Redacts the secrets that the box was given."""
    redacted_by_box: Sequence[str] = ()
    """Names of the secrets that the box redacts, because their values are not on this machine."""
    details: RunDetails = NO_DETAILS
    """Details of its runs that were asked together with the probe."""
    own: str = ""
    """The box's key for the current repository; "" outside a repository."""

    def __enter__(self) -> BoxConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def runs(self, name: str | None, *, every: bool = False) -> list[Run]:
        """Return the selected runs, newest first. Raises UsageError, see `select_runs`."""
        return select_runs(self.box_state.runs, self.own, name, every=every, where=self.link.label)

    def repository(self, run: Run) -> str:
        """Return the name of the run's repository on this box."""
        return repository_names({one.repo_key for one in self.box_state.runs})[run.repo_key]


def connect(
    options: BoxOptions,
    screen: Screen,
    here: KeyAndRoot | None = None,
    *,
    with_details: bool = False,
    opens_forwards: bool = False,
) -> BoxConnection:
    """Log in and probe the box; `here` is the current repository, if it was read already.

    `opens_forwards` is passed to `find_box`. Raises UsageError, UnreachableError, HostKeyError.
    """
    from bootstrap.secrets.values import redacted_by_box

    if here is None and not options.host:
        here = current_repository(options)
    own, root = here or ("", "")
    box = find_box(options, screen.say, repo_key=own, opens_forwards=opens_forwards)
    box.dial()
    redactor = redactor_for(box.known, options)
    screen.redact = redactor.text
    if here is None:
        own, root = current_repository(options)  # in parallel with connecting
    link = ReconnectingLink(box.login, lost=screen.lost, back=screen.back, warn=screen.warn)
    try:
        workdir = box.known.workdir
        key, first = (own, root) if own else (box.known.repo_key, box.known.repo_root)
        if with_details:
            box_state, details = ask_details(
                link.wire,
                workdir=workdir,
                repo_key=key,
                repo_root=first,
                redact=box.known.secrets or (),
            )
        else:
            box_state = probe(link.wire, workdir=workdir, repo_key=key, repo_root=first)
            details = NO_DETAILS
    except BaseException:
        link.close()
        raise
    own = own and (box_state.repo_key or own)
    if own and own not in {run.repo_key for run in box_state.runs}:
        own = _named_here(options) or own
    if box_state.lease and not with_details:  # `status` shows it itself
        screen.note("lease", "; ".join(box_state.lease.lines()).removeprefix("lease: "))
    there = redacted_by_box(box.known, box_state, redactor.secrets)
    return BoxConnection(box, link, box_state, workdir, redactor, there, details, own)


def current_repository(options: BoxOptions) -> KeyAndRoot:
    """Return key and first commit of the current repository; both "" (no error) outside of one.

    If it can't be read, its folder's name is the key: no box has runs under that.
    """
    from bootstrap.repo.here import read
    from bootstrap.repo.place import repository_root

    try:
        here = read(options.place)
        return here.key, here.root_commit
    except BoxstrapError:
        root = repository_root(options.place)
        return (root.name if root else "", "")


def redactor_for(box: KnownBox, options: BoxOptions) -> Redactor:
    """Redact the secrets the box was given or, if that is not recorded, those of the profile."""
    from bootstrap.consent import usable
    from bootstrap.secrets.values import redactor_of

    if box.secrets is not None:
        return redactor_of([box])
    try:
        names = tuple(usable(options, "secrets"))
    except BoxstrapError:
        names = ()
    return redactor_of([replace(box, secrets=names)])


def _named_here(options: BoxOptions) -> str:
    """Return the key of the repository at the profile's `git.url`; "" if it has none."""
    from bootstrap.consent import usable
    from bootstrap.repo.here import name_and_key

    try:
        url = "".join(usable(options, "git.url"))
    except BoxstrapError:
        return ""
    return name_and_key(url, options.place)[1] if url else ""


def redactor_of_all(options: BoxOptions) -> Redactor:
    """Redact the secrets of every known box, for use before it is clear which boxes are meant."""
    from bootstrap.secrets.values import redactor_of

    boxes = all_boxes()
    here = redactor_for(KnownBox("", ""), options)
    return Redactor({**redactor_of(boxes).secrets, **here.secrets})


def meant(options: BoxOptions, hosts: Sequence[str]) -> list[BoxOptions]:
    """Return options for each box: the named ones, else this repository's, else all known."""
    if not hosts:
        from bootstrap.repo.here import read

        with contextlib.suppress(UsageError):
            key = read(options.place).key
            hosts = [box.name for box in all_boxes() if box.repo_key == key]
        hosts = hosts or [box.name for box in all_boxes()]
    if not hosts:
        raise UsageError(
            "which box? None is known yet.", hint="Say how it is reached: --host root@ADDRESS:PORT"
        )
    return [replace(options, host=host) for host in dict.fromkeys(hosts)]
