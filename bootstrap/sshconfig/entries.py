"""All live boxes as one file of ssh config entries. Pure, except for checks that files exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bootstrap.link.record import KnownBox
from bootstrap.sshconfig.entry import (
    Entry,
    UnwritableError,
    added_entry,
    is_users_alias,
    own_entry,
)

HEAD = """\
# Written by boxstrap, and again when a box changes: edit nothing here.
# Your ssh config includes this file. To take it out: boxstrap ssh-config --remove
"""
TAKEN = "your own ssh config has a host of that name"
_SAME = "its name differs from a newer box's only in upper and lower case"
_LEFT_OUT = "# left out: "


@dataclass(frozen=True)
class Entries:
    """The file's entries, and the boxes without an entry, each with the reason."""

    entries: tuple[Entry, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names that may be typed after `ssh`."""
        return tuple(entry.alias for entry in self.entries)

    def text(self) -> str:
        """Return the text of the file."""
        notes = [f"{_LEFT_OUT}{alias}: {why}\n" for alias, why in self.left_out.items()]
        return "\n".join([HEAD + "".join(notes), *(entry.text() for entry in self.entries)])


def reachable(boxes: Iterable[KnownBox]) -> list[KnownBox]:
    """List the boxes that ssh can reach, in the given order (newest first).

    Rented addresses are reused: of the boxes at one address only the first,
    which is the newest, is still alive.
    """
    found: dict[tuple[object, ...], KnownBox] = {}
    for box in boxes:
        if box.address and box.known_hosts.is_file():
            place = (box.address.lower(), box.port, box.route.jump, box.route.proxy)
            found.setdefault(place, box)
    return list(found.values())


def entries(
    boxes: Iterable[KnownBox], *, sockets: str = "", taken: Collection[str] = ()
) -> Entries:
    """Make the entries of `boxes`, newest first.

    `taken` are aliases that mean something else in the user's own ssh config; they are left out.
    """
    everything = list(boxes)
    made: dict[str, Entry] = {}
    left_out: dict[str, str] = {}
    for box in reachable(everything):
        alias = box.name
        if alias.lower() in (other.lower() for other in made):
            left_out[alias] = _SAME
            continue
        if alias in taken:
            left_out[alias] = TAKEN
            continue
        try:
            made[alias] = _entry(box, everything, sockets)
        except UnwritableError as error:
            left_out[alias] = str(error)
    return Entries(tuple(made.values()), left_out)


def _entry(box: KnownBox, boxes: Iterable[KnownBox], sockets: str) -> Entry:
    if not is_users_alias(box):
        return own_entry(box, sockets)
    # Host keys that were pinned under this alias before, for any box, stay known.
    others = [b for b in boxes if b.name != box.name and b.host_text == box.host_text and b.address]
    return added_entry([box, *others])


def aliases_in(text: str) -> frozenset[str]:
    """Return the aliases that have an entry in an earlier file's text."""
    lines = text.splitlines()
    return frozenset(line.split()[1] for line in lines if line.startswith("Host "))


def taken_in(text: str) -> frozenset[str]:
    """Return the aliases that an earlier file left to the user's own ssh config."""
    notes = (line.partition(": ")[2] for line in text.splitlines() if line.startswith(_LEFT_OUT))
    found = (note.partition(": ") for note in notes)
    return frozenset(alias for alias, _, why in found if why == TAKEN)
