"""Work that was made on a box and may not be here.

Work made in the repository's folder on a box: its branches, its edits, and their objects.

What was made in a box's trees, and where the results of its runs are, as the box reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Timer

from bootstrap.link.exchange import BASH, AnswerStream, answer_number, answer_rows, stream_script
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.protocol.query import AskedBox, build_long_query, build_query
from bootstrap.protocol.trees import TreeContent, is_content

_READY = b"ready\t\n"
_MOST = 1024 * 1024
_MOST_REFS = 200
_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BRANCH = re.compile(r"refs/heads/([A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199})")


@dataclass(frozen=True)
class BoxWork:
    """The work that a box reports. All text in it is sanitized; commit ids are not verified."""

    folder: str
    branches: dict[str, str]
    """Commit by branch name; the name is `HEAD` if HEAD is detached."""
    base: str
    """The commit that was placed there last; the edits are based on it."""
    edits: str
    """The commit of its edits; "" if there are none."""
    sent: tuple[str, ...]
    """Commits that were sent to the box, and their parents."""
    left: tuple[str, ...]
    """New files that are not transferred: too large, or repositories of their own."""
    unread: bool
    """Whether the edits could not be read."""

    @property
    def commits(self) -> list[str]:
        """Return the commits of the branches and of the edits, each once."""
        named = (*self.branches.values(), self.edits)
        return list(dict.fromkeys(commit for commit in named if commit))


class BoxWorkStream:
    """One command on the box: it lists the work, then sends a pack of the wanted commits."""

    def __init__(  # noqa: PLR0913 - the query's own values
        self,
        wire: Wire,
        *,
        workdir: str,
        repo_key: str,
        repo_root: str,
        object_format: str,
        most_file_mib: int,
        seconds: float,
        without_results: bool = False,
    ) -> None:
        """With `without_results`, new files in the result folders of its runs are left out."""
        query = build_query(
            "back",
            workdir=workdir,
            repo_key=repo_key,
            repo_root=repo_root,
            object_format=object_format,
            most_mib=most_file_mib,
            without_results=without_results,
        )
        self._label = wire.label
        self._wire = wire
        self._stream: AnswerStream = stream_script(wire, query, BASH)
        self._late = False
        self._seconds = seconds
        self._timer = Timer(seconds, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def read_work(self) -> BoxWork | None:
        """Read the box's list of work; None if the box has no such repository.

        Raises LinkLost, NoAnswer.
        """
        answer = bytearray()
        while not answer.endswith(_READY):
            piece = self._stream.read(PIECE)
            answer += piece
            if answer.startswith(b"none\t"):
                return None
            if not piece or len(answer) > _MOST:
                raise self._no_answer()
        return _parse(bytes(answer))

    def pack(self, want: Sequence[str], have: Iterable[str]) -> Iterator[bytes]:
        """Yield the pack of `want` without `have`, in pieces. Raises LinkLost, NoAnswer."""
        asked = [*want, *(f"^{commit}" for commit in have), "."]
        self._stream.write("".join(f"{line}\n" for line in asked).encode())
        self._stream.close_write()
        while piece := self._stream.read(PIECE):
            yield piece
        if self._late:
            raise self._no_answer()
        if not self._wire.alive():
            raise LinkLost(self._label)

    def close(self) -> None:
        """Close the command's stream."""
        self._timer.cancel()
        self._stream.close()

    def _give_up(self) -> None:
        self._late = True
        self._stream.close()

    def _no_answer(self) -> NoAnswer:
        if self._late:
            what = f"it did not send its work within {self._seconds:.0f} s."
        else:
            what = "it did not say what was made on it."
        return NoAnswer(
            what, where=self._label, hint="Nothing was fetched. Log in to the box and check."
        )


def _parse(answer: bytes) -> BoxWork:
    facts: dict[str, str] = {}
    branches: dict[str, str] = {}
    left: list[str] = []
    sent: list[str] = []
    for word, value in answer_rows(answer):
        if word == "ref":
            commit, _, ref = value.partition("\t")
            named = "HEAD" if ref == "HEAD" else _branch(ref)
            if named and _ID.fullmatch(commit) and len(branches) < _MOST_REFS:
                branches[named] = commit
        elif word == "left":
            left.append(value)
        elif word == "sent":
            sent += [commit for commit in value.split(" ") if _ID.fullmatch(commit)]
        else:
            facts[word] = value
    base, edits = (facts.get(name, "") for name in ("base", "edits"))
    return BoxWork(
        folder=facts.get("dir", ""),
        branches=branches,
        base=base if _ID.fullmatch(base) else "",
        edits=edits if _ID.fullmatch(edits) else "",
        sent=tuple(sent),
        left=tuple(left),
        unread="unread" in facts,
    )


def _branch(ref: str) -> str:
    """The branch's name; "" if it can't be part of our refs (git-check-ref-format(1))."""
    found = _BRANCH.fullmatch(ref)
    if not found or re.search(r"\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$", found[1]):
        return ""
    return found[1]


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


def read_content(box: AskedBox) -> BoxContent:
    """Ask the box, changing nothing on it. Raises LinkLost, NoAnswer."""
    query = build_long_query("made", WORKDIR=box.workdir)
    return parse_made(stream_script(box.wire, query, BASH).whole(), box.wire)


def parse_made(answer: bytes, wire: Wire) -> BoxContent:
    """Parse an answer. Raises as `read_content`."""
    trees: list[UnsentContent] = []
    places: list[tuple[int, tuple[str, str], str]] = []
    holds: list[TreeContent] = []
    refs: list[tuple[str, str]] = []
    words = set[str]()
    for word, value in answer_rows(answer):
        fields = value.split("\t")
        words.add(word)
        if word == "holds" and len(fields) > 1 and is_content(fields[0]):
            holds.append(TreeContent(fields[0], answer_number(fields[1]) or 1, tuple(fields[2:])))
        elif word == "ref" and len(fields) == 2 and _ID.fullmatch(fields[0]):
            refs.append((fields[0], fields[1][:_LONGEST_REF]))
        elif word == "tree" and len(fields) == 4 and all(map(_NAME.fullmatch, fields[:2])):
            key, name, at, root = fields
            root = root if _ID.fullmatch(root) else ""
            trees.append(UnsentContent(key, root, name, at != "1", tuple(holds), tuple(refs)))
            holds, refs = [], []
        elif word == "results" and len(fields) == 3:
            begun, place, (key, _, run) = (
                answer_number(fields[0]),
                fields[1],
                fields[2].partition("/"),
            )
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
