"""What was made in a box's trees, and where the results of its runs are, as the box reports it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bootstrap.link.answers import number, rows
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import BASH, stream_answer
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import build_long_query
from bootstrap.protocol.trees import TreeContent, is_content

_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,140}")
_LONGEST_REF = 250
_WORDS = frozenset({"holds", "ref", "tree", "results"})


@dataclass(frozen=True)
class UnsentContent:
    """A tree, and its contents that were neither sent to the box nor are results of a run."""

    repo_key: str
    root: str
    """The first commit of its repository, as the box has it; "" if unknown."""
    name: str
    beside: bool
    holds: tuple[TreeContent, ...] = ()
    refs: tuple[tuple[str, str], ...] = ()
    """Commit and name of each ref that leads to commits made there."""


@dataclass(frozen=True)
class BoxContent:
    """All trees and results of a box. All text in it is sanitized."""

    is_set_up: bool = False
    """Whether boxstrap has a folder there at all."""
    trees: tuple[UnsentContent, ...] = ()
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Runs that have started, by key and name, the newest first: a digest of where their results
    are; two runs with results in the same place have the same digest."""


def read_content(wire: Wire, *, workdir: str) -> BoxContent:
    """Ask the box, changing nothing on it. Raises LinkLost, NoAnswer."""
    query = build_long_query("made", WORKDIR=workdir)
    return parse_made(stream_answer(wire, query, BASH).whole(), wire)


def parse_made(answer: bytes, wire: Wire) -> BoxContent:
    """Parse an answer. Raises as `read_content`."""
    trees: list[UnsentContent] = []
    places: list[tuple[int, tuple[str, str], str]] = []
    holds: list[TreeContent] = []
    refs: list[tuple[str, str]] = []
    words = set[str]()
    for word, value in rows(answer):
        fields = value.split("\t")
        words.add(word)
        if word == "holds" and len(fields) > 1 and is_content(fields[0]):
            holds.append(TreeContent(fields[0], number(fields[1]) or 1, tuple(fields[2:])))
        elif word == "ref" and len(fields) == 2 and _ID.fullmatch(fields[0]):
            refs.append((fields[0], fields[1][:_LONGEST_REF]))
        elif word == "tree" and len(fields) == 4 and all(map(_NAME.fullmatch, fields[:2])):
            key, name, at, root = fields
            root = root if _ID.fullmatch(root) else ""
            trees.append(UnsentContent(key, root, name, at != "1", tuple(holds), tuple(refs)))
            holds, refs = [], []
        elif word == "results" and len(fields) == 3:
            begun, place, (key, _, run) = number(fields[0]), fields[1], fields[2].partition("/")
            places.append((begun or 0, (key, run), place))
        elif word in _WORDS:  # malformed: skipping it would hide work that exists
            raise _no_answer(wire)
    if "over" not in words:
        if not wire.alive():
            raise LinkLost(wire.label)
        raise _no_answer(wire)
    places.sort(reverse=True)
    return BoxContent("home" in words, tuple(trees), {run: place for _, run, place in places})


def _no_answer(wire: Wire) -> NoAnswer:
    return NoAnswer(
        "it did not say what was made in its trees.",
        where=wire.label,
        hint="Nothing was done. Log in and look.",
    )
