"""Compare a box's variables, as each kind of shell has them, with the profile's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bootstrap.link.answers import rows

WAYS = {
    "ssh": "ssh host cmd",
    "login": "login shell",
    "tmux": "run's tmux",
    "own-tmux": "other tmux",
    "vscode": "VS Code",
    "python": "training",
}
"""Ways to start a program on a box: name in `environment_probe.py`, and name shown to users."""
NOT_PROVED = {
    "no-tmux": "there is no tmux on this box",
    "not-built": "no environment was built yet",
    "local": "on your own machine only the training sees them",
    "read-only-home": "the home folder can't be written, so only the training sees them",
}
"""Why a way is left out, by the box's code for it."""
RIGHT, OTHER, MISSING, SILENT, NONE = "right", "other", "missing", "no answer", "n/a"
WRONG = {OTHER: "another value", MISSING: "missing"}
_MOST_PLACES = 3
_PLACE = 200


@dataclass(frozen=True)
class ProvedVariable:
    """One variable: its state in each way, and where start-up files set it again."""

    name: str
    secret: bool
    found: Mapping[str, str]
    """By way: `right`, `other`, `missing`, `no answer`, `n/a`."""
    in_file: str
    """The same for the environment file itself."""
    set_in: tuple[str, ...] = ()

    @property
    def wrong(self) -> dict[str, str]:
        """The ways in which its value differs from the profile, is missing, or gave no answer."""
        return {way: what for way, what in self.found.items() if what not in (RIGHT, NONE)}


@dataclass(frozen=True)
class EnvironmentProof:
    """Comparison of all of a profile's variables on a box."""

    box: str
    shell: str
    variables: tuple[ProvedVariable, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The ways that can't be checked on this box, with the box's code for why."""

    @property
    def wrong(self) -> list[ProvedVariable]:
        """The variables that are wrong in at least one way."""
        return [variable for variable in self.variables if variable.wrong]

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            "shell": self.shell,
            "proved": not self.wrong,
            "variables": [
                {
                    "name": each.name,
                    "secret": each.secret,
                    "found": dict(each.found),
                    "set_in": list(each.set_in),
                }
                for each in self.variables
            ],
            "left_out": {way: NOT_PROVED.get(why, why) for way, why in self.left_out.items()},
        }

    def advice(self) -> list[str]:
        """For each problem, a sentence or two: what is wrong, where, and what to do."""
        silent = [way for way in WAYS if all(v.found[way] == SILENT for v in self.variables)]
        lines = [
            f"no answer from a shell in {_named(silent)}. "
            f"A start-up file of {self.shell} waits, or ends the shell: look at it."
        ]
        return (lines if silent else []) + [
            f"{each.name}: {_lacks(each)}. {self._cure(each)}"
            for each in self.variables
            if {OTHER, MISSING} & set(each.wrong.values())
        ]

    def _cure(self, variable: ProvedVariable) -> str:
        if variable.in_file != RIGHT:
            return (
                f"The box doesn't have this profile's value yet: boxstrap setup --host {self.box}"
            )
        if variable.set_in and OTHER in variable.wrong.values():
            return f"It is set again in {', '.join(variable.set_in)}: remove it there."
        return (
            f"Start-up files of {self.shell} undo it, or lack the line that reads ~/.boxstrap/env: "
            f"boxstrap setup --host {self.box} puts that back."
        )


def _lacks(variable: ProvedVariable) -> str:
    found = {what: [w for w, it in variable.found.items() if it == what] for what in WRONG}
    return "; ".join(f"{WRONG[what]} in {_named(ways)}" for what, ways in found.items() if ways)


def _named(ways: Iterable[str]) -> str:
    return ", ".join(WAYS[way] for way in ways)


def read_answer(
    answer: bytes,
    names: Sequence[str],
    expected: Mapping[str, str],
    *,
    secrets: Iterable[str] = (),
    box: str = "",
) -> EnvironmentProof:
    """Compare a box's answer with `expected`, a digest for each name.

    A secret without a digest (its value is not on this machine) is compared with the box's copy.
    """
    digests: dict[tuple[str, str], str] = {}
    answered: set[str] = set()
    left_out: dict[str, str] = {}
    places: dict[str, list[str]] = {}
    shell = "the shell"
    for word, rest in rows(answer):
        first, _, value = rest.partition("\t")
        if word == "digest":
            name, _, digest = value.partition("\t")
            digests[first, name] = digest
        elif word == "answered":
            answered.add(first)
        elif word == "not" and first in WAYS and value in NOT_PROVED:
            left_out[first] = value
        elif word == "set" and len(places.setdefault(first, [])) < _MOST_PLACES:
            places[first].append(value[:_PLACE])
        elif word == "shell" and re.fullmatch(r"[a-z0-9._-]{1,20}", first):
            shell = first
    wants = {name: expected.get(name) or digests.get(("file", name), "") for name in names}

    def found(way: str, name: str) -> str:
        if way in left_out:
            return NONE
        if way not in answered:
            return SILENT
        digest = digests.get((way, name))
        return MISSING if digest is None else RIGHT if digest == wants[name] else OTHER

    variables = tuple(
        ProvedVariable(
            name,
            name in secrets,
            {way: found(way, name) for way in WAYS},
            found("file", name),
            tuple(places.get(name, ())),
        )
        for name in names
    )
    return EnvironmentProof(box, shell, variables, left_out)
