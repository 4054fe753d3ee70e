"""The secrets of a profile and of boxes: name, source, and which boxes hold each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import BusyError
from bootstrap.link.exchange import answer_rows
from bootstrap.link.record import all_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.profile.consent import load_profile
from bootstrap.repo.place import repository_root
from bootstrap.secrets import find_sources, folder_of, identity_of
from bootstrap.shell import functions
from bootstrap.ui.screen import Screen

_WIPERS = ("have", "write_file"), ("as_shell", "wipe_secrets")


@dataclass(frozen=True)
class SecretRow:
    """One secret: whether the profile names it, where its value is, and which boxes hold it."""

    name: str
    origin: str | None
    """`environment`, `.env`, `command`; None if it has no source on this machine."""
    named: bool
    boxes: tuple[str, ...]
    """The boxes that hold it, by the records on this machine."""
    held: bool | None = None
    """Whether the box that was asked holds it; None if none was asked."""
    same: bool | None = None
    """Whether the box has the same value as this machine; None if unknown."""

    def as_dict(self) -> dict[str, object]:
        """The row as `--json` prints it."""
        return {
            "name": self.name,
            "from": self.origin,
            "named": self.named,
            "boxes": list(self.boxes),
            "held": self.held,
            "same": self.same,
        }

    def cells(self) -> tuple[str, ...]:
        """The row as printed in a table."""
        origin = f"from {self.origin}" if self.origin else "no value here"
        held = {True: "the box holds it", False: "the box has none", None: ""}[self.held]
        if self.same is False:
            held = "the box holds another value"
        whose = f"held by {', '.join(self.boxes)}" if self.boxes else "held by no box"
        named = "" if self.named else "not in the profile here"
        return (self.name, origin, held or whose, named)


@dataclass(frozen=True)
class WipedSecrets:
    """The secrets that were removed from a box."""

    box: str
    names: tuple[str, ...]
    runs: tuple[str, ...]
    """Live runs, which keep the secrets that they were started with."""


def list_secrets(options: BoxOptions, screen: Screen) -> list[SecretRow]:
    """List every secret that is named or held. Only a box given by `--host` is asked.

    Raises ProfileError, UsageError, and as `connect`.
    """
    loaded = load_profile(options, kinds=())
    folder = folder_of(loaded, repository_root(options.place))
    held = None
    if options.host is not None:
        with BoxLogin.open(options, screen) as box:
            held = box.state.secrets
            # Don't trust the box with other names: if it said HOME, HOME would always be redacted.
            ours = {*(box.known.secrets or ()), *loaded.profile.secrets}
            box.note_held(name for name in held if name in ours)
    return _rows(loaded.profile.secrets, folder, held)


def _rows(named: list[str], folder: Path | None, held: Mapping[str, str] | None) -> list[SecretRow]:
    holders: dict[str, list[str]] = {}
    for box in all_boxes():
        ever = box.secrets or ()
        for name in ever if box.held_secrets is None else box.held_secrets:
            holders.setdefault(name, []).append(box.name)
    names = [*dict.fromkeys((*named, *sorted({*holders, *(held or ())})))]
    sources = {source.name: source for source in find_sources(names, folder)}
    found = []
    for name in names:
        source, its_id = sources.get(name), (held or {}).get(name)
        found.append(
            SecretRow(
                name,
                origin=source.origin if source else None,
                named=name in named,
                boxes=tuple(sorted(holders.get(name, ()))),
                held=None if held is None else name in held,
                same=its_id == identity_of(source) if source and its_id else None,
            )
        )
    return found


def wipe_secrets(options: BoxOptions, screen: Screen) -> WipedSecrets:
    """Remove all secrets from the box. Raises BusyError while a setup is running on it."""
    with BoxLogin.open(options, screen) as box:
        base, shell = _WIPERS
        answer = box.query(
            "wipe",
            functions=functions("lib", "base", base) + functions("steps", "shell", shell),
            names=" ".join(box.known.secrets or ()),
        )
        wiped = what_was_wiped(answer, box.label)
        box.note_held(())
        living = tuple(run.name for run in box.state.runs if run.state == "running")
        return WipedSecrets(box.name, wiped, living)


def what_was_wiped(answer: bytes, label: str) -> tuple[str, ...]:
    """Read the wiped names from the box's answer. Raises BusyError while a setup is running."""
    said = list(answer_rows(answer))
    if any(word == "busy" for word, _ in said):
        raise BusyError(
            "a setup is at work on this box; nothing was wiped.",
            where=label,
            hint="Wait for it to end, or cancel it: boxstrap stop --setup",
        )
    return tuple(dict.fromkeys(name for word, name in said if word == "wiped"))
