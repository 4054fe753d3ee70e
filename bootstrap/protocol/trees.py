"""The trees beside a repository's main one, as the box reports them, and their removal; copies of
results go with them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bootstrap.errors import BusyError, UsageError
from bootstrap.link.exchange import BASH, answer_number, answer_rows, stream_script
from bootstrap.link.wire import LinkLost, NoAnswer, Wire
from bootstrap.protocol.query import AskedBox, build_long_query

_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}@[0-9]{1,6}")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,120}")
_LONGEST = 120
_STATES = ("removed", "safe", "kept", "left")
_LOOK = "Look what it has: boxstrap status"
_USES = ("run", "left", "link", "mount")
"""What prevents a tree's removal even if the user asks for it."""
_WORDS = {
    "run": "{names} runs in it, or uses its environment",
    "left": "processes of {names} still running: {count}",
    "link": "it is a link to {names}",
    "mount": "{names} is mounted there",
    "unread": "git can't tell what was made there",
    "edits": "edited ({count}): {names}",
    "staged": "staged ({count}): {names}",
    "commits": "commits that are only there ({count}): {names}",
    "files": "files created there ({count}): {names}",
    "repositories": "submodules with commits of their own, perhaps ({count}): {names}",
}


def is_content(kind: str) -> bool:
    """Whether this is a known kind of content."""
    return kind in _WORDS


@dataclass(frozen=True)
class TreeContent:
    """Something in a tree that was not placed there, or a use of the tree."""

    kind: str
    count: int
    names: tuple[str, ...]
    """The first few."""

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.names) else ""
        return _WORDS[self.kind].format(count=self.count, names=", ".join(self.names) + more)


@dataclass(frozen=True)
class TreeBeside:
    """A tree beside the main one of its repository."""

    repo_key: str
    name: str
    state: str
    """removed, safe (to remove), kept (see `holds`), left (removing it failed)."""
    bytes: int
    holds: tuple[TreeContent, ...] = ()

    @property
    def is_in_use(self) -> bool:
        """Whether something uses it now."""
        return any(one.kind in _USES for one in self.holds)

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        holds = [{"what": one.kind, "count": one.count, "names": one.names} for one in self.holds]
        return {"tree": self.name, "state": self.state, "bytes": self.bytes, "holds": holds}


@dataclass(frozen=True)
class TreeUse:
    """A tree beside the main one, and the last run in it."""

    repo_key: str
    name: str
    last_run: str
    """The newest run in it; "" for none."""
    bytes: int | None = None
    """Its size, if it could be measured in time."""

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {"tree": self.name, "bytes": self.bytes, "run": self.last_run or None}


class Cleaned(NamedTuple):
    """What `clean` removed, or would remove."""

    trees: list[TreeBeside]
    copied: int
    """Bytes of copies of results that are at home."""


def parse_uses(told: bytes) -> tuple[TreeUse, ...]:
    """Parse the trees from the query `status`; text in the result is sanitized."""
    uses: dict[str, TreeUse] = {}
    for word, value in answer_rows(told):
        fields = value.split("\t")
        if word == "tree" and len(fields) == 3 and _are_names(*fields[:2]):
            uses[fields[1]] = TreeUse(fields[0], fields[1], fields[2][:_LONGEST])
        elif (
            word == "size" and fields[0] in uses and (kib := answer_number(fields[-1])) is not None
        ):
            uses[fields[0]] = dataclasses.replace(uses[fields[0]], bytes=kib * 1024)
    return tuple(sorted(uses.values(), key=_order))


def clean_trees(box: AskedBox, *, repo_key: str, discard: Sequence[str], look: bool) -> Cleaned:
    """Remove trees without content of their own, and those in `discard`; with `look` remove none.
    `repo_key`: only trees of this repository, "" for all.

    Raises BusyError if a setup is running, UsageError if `discard` has an unknown name (then none
    is removed), LinkLost, NoAnswer.
    """
    query = build_long_query(
        "clean",
        WORKDIR=box.workdir,
        repo_key=repo_key,
        discard="\n".join(discard),
        look=look,
    )
    return parse_trees(stream_script(box.wire, query, BASH).whole(), box.wire)


def parse_trees(answer: bytes, wire: Wire) -> Cleaned:
    """Parse an answer; text in the result is sanitized. Raises as `clean_trees`."""
    trees: list[TreeBeside] = []
    holds: list[TreeContent] = []
    copied = 0
    said = list(answer_rows(answer))
    words = dict(said)
    for word, value in said:
        fields = value.split("\t")
        if word == "holds" and len(fields) > 1 and fields[0] in _WORDS:
            holds.append(TreeContent(fields[0], answer_number(fields[1]) or 1, tuple(fields[2:])))
        elif word == "tree" and (tree := _tree(fields, holds)):
            trees.append(tree)
            holds = []
        elif word == "copies":
            copied += answer_number(value) or 0
    if "busy" in words:
        raise BusyError(
            "a setup is at work on this box; nothing was removed.",
            where=wire.label,
            hint="Wait for it to end, or cancel it: boxstrap stop --setup",
        )
    if "unknown" in words:
        listed = "".join(f"\n  {tree.name}" for tree in trees) or " none"
        raise UsageError(
            f"there is no tree {words['unknown']} on this box; there is:{listed}",
            where=wire.label,
            hint="Nothing was removed.",
        )
    if "over" not in words:
        if not wire.alive():
            raise LinkLost(wire.label)
        raise NoAnswer("it did not say what became of its trees.", where=wire.label, hint=_LOOK)
    return Cleaned(sorted(trees, key=_order), copied)


def _order(tree: TreeBeside | TreeUse) -> tuple[str, int, str]:
    """Sort key: by repository, then by number."""
    return (tree.repo_key, len(tree.name), tree.name)


def _are_names(key: str, name: str) -> bool:
    return bool(_KEY.fullmatch(key) and _NAME.fullmatch(name))


def _tree(fields: Sequence[str], holds: Sequence[TreeContent]) -> TreeBeside | None:
    if len(fields) != 4 or fields[2] not in _STATES:
        return None
    key, name, state, kib = fields
    if not _are_names(key, name):
        return None
    return TreeBeside(key, name, state, (answer_number(kib) or 0) * 1024, tuple(holds))
