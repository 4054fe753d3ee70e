"""From what the user typed to a box: which one is meant, and a link to it."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.errors import HostKeyError, UnreachableError, UsageError, cant_write
from bootstrap.link import record, registry, rented
from bootstrap.link.local import LocalWire
from bootstrap.link.record import KnownBox, boxes_folder
from bootstrap.link.resolve import Endpoint, resolve
from bootstrap.link.route import route_of
from bootstrap.link.target import Target
from bootstrap.link.wire import Wire

if TYPE_CHECKING:
    from bootstrap.link.dial import PendingConnection
    from bootstrap.link.hostkeys import FirstContact

LOCAL = "local"


@dataclass(frozen=True)
class BoxOptions:
    """The options that every task about a box has."""

    host: str | None = None
    profile: str | None = None
    sets: tuple[str, ...] = ()
    repo: Path | None = None
    identity: str | None = None
    host_key: str | None = None
    name: str | None = None
    new_box: bool = False
    consent: str | None = None

    @property
    def place(self) -> Path:
        """The folder that the task is about."""
        return self.repo or Path.cwd()


@dataclass
class BoxHandle:
    """The box that was named: where it is, what is known of it, and how to log in to it."""

    options: BoxOptions
    target: Target
    known: KnownBox
    endpoint: Endpoint | None
    say: Callable[[str], None]
    first_contact: FirstContact = "pin"
    _dialing: PendingConnection | None = field(default=None, repr=False)
    _unwritten: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the box is this machine."""
        return self.endpoint is None

    @property
    def is_known(self) -> bool:
        """Whether its host key is pinned, so that a login asks nothing and pins nothing."""
        return self.is_local or self.known.known_hosts.is_file()

    def dial(self) -> None:
        """Start to connect in the background."""
        self._dialing = self._dialed()
        if self._dialing is not None:
            # The login needs this module anyway. Loaded in parallel with others it would be last.
            import bootstrap.link.ssh  # noqa: F401

    def _dialed(self) -> PendingConnection | None:
        if self.endpoint is None:
            return None
        from bootstrap.link.dial import dial

        return dial(self.endpoint, self.known.seen)

    def login(self) -> Wire:
        """Log in, over the connection that `dial` started or a new one. Raises as `link.ssh.login`.

        If that fails for a rented box, its account is asked for a new address (after a restart).
        """
        try:
            return self._login()
        except (UnreachableError, HostKeyError):
            if not self._found_elsewhere():
                raise
            return self._login()

    def _found_elsewhere(self) -> bool:
        if self.endpoint is None or not self.target.is_rented:
            return False
        target = rented.look_up(self.target)
        if (target.address, target.port) == (self.endpoint.hostname, self.endpoint.port):
            return False
        identity = self.options.identity or _identity_of(self.known, self.target)
        self.endpoint = resolve(target, identity=identity)
        self.known = dataclasses.replace(
            _now_at(self.known, self.endpoint),
            price=target.price or self.known.price,
            since=target.since or self.known.since,
        )
        self.say(f"{self.target.text} is at {self.endpoint.address} now")
        return True

    def _login(self) -> Wire:
        dialing, self._dialing = self._dialing or self._dialed(), None
        if dialing is None:
            return LocalWire()
        from bootstrap.link.ssh import login

        wire = login(
            dialing,
            self._reached(self.known),
            host_key=self.options.host_key,
            first_contact=self.first_contact,
            say=self.say,
        )
        self.known = dataclasses.replace(self.known, key=wire.used_key)
        return wire

    def save(self, known: KnownBox) -> None:
        """Save `known` as the box's record, with the route that led to it.

        A failure to write is only reported, once: the box itself is fine.
        """
        self.known = self._reached(known)
        try:
            record.save(self.known, is_new=self.is_local)
        except OSError as error:
            self._not_kept(cant_write(self.known.folder, error).what)
        except UsageError as error:
            self._not_kept(str(error))

    def _not_kept(self, why: str) -> None:
        if not self._unwritten:
            self._unwritten = True
            self.say(f"this box's record can't be saved: {why}")

    def _reached(self, known: KnownBox) -> KnownBox:
        """Note time and route of the login; via boxstrap's own ssh entry the route is known."""
        known = dataclasses.replace(known, seen=time.time())
        if self.endpoint is None or registry.entry_owner(self.endpoint):
            return known
        return dataclasses.replace(known, route=route_of(self.endpoint, boxes_folder()))


def find_box(  # noqa: PLR0913
    options: BoxOptions,
    say: Callable[[str], None],
    *,
    repo_key: str = "",
    user: str | None = None,
    identity: str | None = None,
    first_contact: FirstContact = "pin",
    opens_forwards: bool = False,
) -> BoxHandle:
    """Return the box that `options` means. Nothing is sent to it.

    `user` and `identity` are the profile's; with `opens_forwards` the caller opens the `-L` of a
    pasted command, `target.forwards`. Without a host the only known box of the repository is
    meant, or the only one at all. Raises UsageError if there is not exactly one, and for an
    invalid option.
    """
    _check(options)
    target, box = registry.lookup(options.host or _only_box(repo_key).name)
    if target.forwards and options.host == target.text and not opens_forwards:
        forwards = " ".join(f"-L {each}" for each in target.forwards)
        say(f"this command doesn't open {forwards}; use: boxstrap tunnel --host …")
    if target.is_local:
        box = record.by_name(LOCAL) or KnownBox(LOCAL, LOCAL, created=time.time())
        return BoxHandle(options, target, box, None, say)
    if target.is_rented and box is None:
        box = registry.find(target)
        if box is None:
            rented.refuse_alias(target)
    identity = options.identity or identity or _identity_of(box, target)
    reached = rented.reached(target, box) if target.is_rented else target
    endpoint = resolve(reached, user=user, identity=identity)
    target = dataclasses.replace(target, price=reached.price, since=reached.since)
    box = _registered(options, target, endpoint, box)
    return BoxHandle(options, target, box, endpoint, say, first_contact)


def _check(options: BoxOptions) -> None:
    """Refuse invalid options early, before any box is contacted."""
    if options.repo is not None and not os.path.isdir(options.repo):  # noqa: PTH112 - never raises
        raise UsageError(f"there is no folder {options.repo}.", where="--repo")
    if options.name is not None:
        registry.check_name(options.name)
    if options.host_key is not None:
        from bootstrap.link.hostkeys import check_fingerprint

        check_fingerprint(options.host_key)


def _registered(
    options: BoxOptions, target: Target, endpoint: Endpoint, box: KnownBox | None
) -> KnownBox:
    """Return the host's record; a known box's own name means that box, whatever its address."""
    if box is not None and not options.new_box and options.name in (None, box.name):
        return _now_at(box, endpoint)
    return registry.get_or_create(target, endpoint, name=options.name, new_box=options.new_box)


def _now_at(box: KnownBox, endpoint: Endpoint) -> KnownBox:
    return dataclasses.replace(
        box, address=endpoint.hostname, port=endpoint.port, user=endpoint.user
    )


def _identity_of(box: KnownBox | None, target: Target) -> str | None:
    """Return the key file that was named for this box before, if it still exists."""
    named = box.route.identity if box and not target.identity else ""
    return named if named and Path(named).is_file() else None


def _only_box(repo_key: str) -> KnownBox:
    boxes = record.all_boxes()
    fitting = [box for box in boxes if repo_key and box.repo_key == repo_key] or boxes
    if len(fitting) == 1:
        return fitting[0]
    if not boxes:
        for box in record.unreadable():
            record.refuse_newer(box.folder)
        raise UsageError(
            "which box? None is known yet.",
            hint='Say how it is reached: --host root@ADDRESS:PORT, or --host "ssh -p PORT root@…" '
            "as the provider's page shows it.",
        )
    listed = "\n".join(f"  --host {box.name}" for box in fitting[:20])
    raise UsageError(f"which box? There are {len(fitting)}:\n{listed}", hint="Name one of them.")
