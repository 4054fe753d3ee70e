"""The trees on a box, their removal, and work that was made in them and may not be here: branches,
edits, their objects, and where the results of runs are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Timer
from typing import NamedTuple

from bootstrap.boxes.answers import BoxDocument, documents
from bootstrap.errors import BoxLacksError, BusyError, UsageError
from bootstrap.link.exchange import AnswerStream, stream_script
from bootstrap.link.query import AskedBox, ask
from bootstrap.link.record import name_of_key
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.sizes import size
from bootstrap.value import Document, dataclass, field

_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}@[0-9]{1,6}")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,120}")
_THING = re.compile(r"[A-Za-z0-9._-]{1,120}(/[A-Za-z0-9._-]{1,120})?")
_LONGEST = 120
_STATES = ("removed", "safe", "kept", "left")
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
    "unpulled": "results that are not at home, of {names}",
    "pulled": "results that are at home, of {names}",
    "ignored": "files created there that git ignores ({count}): {names}",
    "repositories": "submodules with commits of their own, perhaps ({count}): {names}",
}


@dataclass(frozen=True)
class TreeContent(Document):
    """Something in a tree that was not placed there, or a use of the tree."""

    KEYS = "what=kind, count, names"

    kind: str
    count: int
    names: tuple[str, ...]  # the first few

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.names) else ""
        return _WORDS[self.kind].format(count=self.count, names=", ".join(self.names) + more)


@dataclass(frozen=True)
class TreeBeside(Document):
    """A tree beside the main one of its repository."""

    KEYS = "tree=name, state, bytes, holds"

    repo_key: str
    name: str
    state: str  # removed, safe (to remove), kept (see `holds`), left (removing it failed)
    bytes: int
    holds: tuple[TreeContent, ...] = ()

    @property
    def is_in_use(self) -> bool:
        return any(one.kind in _USES for one in self.holds)


@dataclass(frozen=True)
class TreeUse(Document):
    """A tree beside the main one, and the last run in it."""

    KEYS = "tree=name, bytes, run=last_run or None"

    repo_key: str
    name: str
    last_run: str  # the newest run in it; "" for none
    bytes: int | None = None  # its size, if it could be measured in time


@dataclass(frozen=True)
class DisposableThing:
    """Something that a box can do without, see `onbox/results/disposable.py`."""

    kind: str  # results (of a run), cache (downloads)
    name: str  # the run, as KEY/NAME, or the folder of the downloads
    state: str  # removed, safe (to remove), used, kept (of a run that did not end with 0), unpulled
    bytes: int

    def line(self) -> str:
        run = self.name.rpartition("/")[2]
        where = "not at home" if self.state == "unpulled" else "at home"
        what = f"results of {run}, which are {where}"
        if self.kind == "cache":
            what = f"downloads in .boxstrap/cache/{self.name}"
        return f"{what}: {_BECAME[self.state]} ({size(self.bytes)})"


_BECAME = {
    "removed": "removed",
    "safe": "would be removed",
    "used": "stay, for other runs",
    "unpulled": "stay until a pull has brought them (boxstrap pull --all)",
    "kept": "stay, since it did not end with 0, and a resume may need them; "
    "what you don't need goes with boxstrap exec rm",
}


class Cleaned(NamedTuple):
    """What `clean` removed, or would remove."""

    trees: list[TreeBeside]
    copied: int  # bytes of copies of results that are at home
    things: list[DisposableThing]

    def removable(self, discard: Sequence[str]) -> int | None:
        """Return how many bytes can go; None if nothing can. `discard`: trees that go with all."""
        trees = [
            tree.bytes
            for tree in self.trees
            if tree.state == "safe" or (tree.name in discard and not tree.is_in_use)
        ]
        things = [thing.bytes for thing in self.things if thing.state == "safe"]
        return sum([*trees, *things, self.copied]) if trees or things or self.copied else None


def read_uses(told: Sequence[BoxDocument]) -> tuple[TreeUse, ...]:
    """Read the trees that `onbox/runs/status.py` tells of; text in the result is sanitized."""
    uses: dict[str, TreeUse] = {}
    for said in told:
        key, name, kib = said.text("key"), said.text("name"), said.count("kib")
        if _are_names(key, name):
            size = None if kib is None else kib * 1024
            uses[name] = TreeUse(key, name, said.text("last", _LONGEST), bytes=size)
    return tuple(sorted(uses.values(), key=_order))


def read_risks(told: Sequence[BoxDocument]) -> tuple[tuple[RiskyFolder, ...], ...]:
    """Read what `onbox/runs/status.py` tells of what would go with the box, by tree."""
    trees: dict[str, list[RiskyFolder]] = {}
    for said in told:
        if row := _risky(said):
            trees.setdefault(said.text("tree"), []).append(row)
    return tuple(map(tuple, trees.values()))


def _risky(said: BoxDocument) -> RiskyFolder | None:
    run, files, bytes_ = said.text("run"), said.count("files") or 0, said.count("bytes") or 0
    is_sound = said.kind == "risk" and _PLAIN_NAME.fullmatch(run)
    return RiskyFolder(run, files, bytes_, said.text("path")) if is_sound else None


def clean_trees(box: AskedBox, *, repo_key: str, discard: Sequence[str], look: bool) -> Cleaned:
    """Remove trees without content of their own, and those in `discard`; with `look` remove none.
    `repo_key`: only trees of this repository, "" for all.

    Raises BusyError if a setup is running, UsageError if `discard` has an unknown name (then none
    is removed), LinkLost, NoAnswer.
    """
    asked = {"key": repo_key, "discard": list(discard), "look": look}
    query = ask("work.clean", asked, workdir=box.workdir)
    return parse_trees(stream_script(box.wire, query).whole(), box.wire, box.name)


def parse_trees(answer: bytes, wire: Wire, box: str) -> Cleaned:
    """Parse an answer; text in the result is sanitized. Raises as `clean_trees`."""
    trees: list[TreeBeside] = []
    holds: list[TreeContent] = []
    things: list[DisposableThing] = []
    copied = 0
    unknown: BoxDocument | None = None
    kinds = set[str]()
    for said in documents(answer):
        kinds.add(said.kind)
        what, name, became = said.text("what"), said.text("name"), said.text("became")
        size = said.count("bytes") or 0
        if said.kind == "holds" and what in _WORDS:
            holds.append(_content(said))
        elif said.kind == "tree":
            key, kib = said.text("key"), said.count("kib") or 0
            if became in _STATES and _are_names(key, name):
                trees.append(TreeBeside(key, name, became, kib * 1024, tuple(holds)))
            holds = []
        elif said.kind == "copies":
            copied += size
        elif said.kind == "thing" and what in ("results", "cache") and _THING.fullmatch(name):
            if became in _BECAME:
                things.append(DisposableThing(what, name, became, size))
        elif said.kind == "unknown":
            unknown = said
    if "busy" in kinds:
        raise BusyError(
            "a setup is at work on this box; nothing was removed.",
            where=wire.label,
            hint=f"Wait for it to end, or cancel it: boxstrap stop --setup --host {box}",
        )
    if unknown:
        what, hint = _unknown_tree(unknown, trees, box)
        raise UsageError(what, where=wire.label, hint=f"Nothing was removed.{hint}")
    if "over" not in kinds:
        if not wire.alive():
            raise LinkLost(wire.label)
        raise NoAnswer(
            "it did not say what became of its trees.",
            where=wire.label,
            hint=f"Look what it has: boxstrap status --host {box}",
        )
    return Cleaned(sorted(trees, key=_order), copied, things)


def _unknown_tree(said: BoxDocument, trees: Sequence[TreeBeside], box: str) -> tuple[str, str]:
    """Return whose tree this is, or which there are; and how it is discarded there."""
    name, key = said.text("name"), said.text("key")
    if _are_names(key, name):
        hint = f" In its repository: boxstrap clean --host {box} --discard {name}"
        return f"{name} is a tree of {name_of_key(key)}, another repository.", hint
    listed = "; there is:" + "".join(f"\n  {tree.name}" for tree in trees) if trees else "."
    return f"there is no tree {name} on this box{listed}", ""


def _content(said: BoxDocument) -> TreeContent:
    names = tuple(said.names("names"))
    return TreeContent(said.text("what"), said.count("count") or 1, names)


def _order(tree: TreeBeside | TreeUse) -> tuple[str, int, str]:
    """Sort key: by repository, then by number."""
    return (tree.repo_key, len(tree.name), tree.name)


def _are_names(key: str, name: str) -> bool:
    return bool(_KEY.fullmatch(key) and _NAME.fullmatch(name))


_READY, _NONE = b'{"kind": "ready"}\n', b'{"kind": "over", "told": 0}\n'
_MOST = 1024 * 1024
_MOST_REFS = 200
_ID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_BRANCH = re.compile(r"refs/heads/([A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199})")


@dataclass(frozen=True)
class BoxWork:
    """The work that a box reports. All text in it is sanitized; commit ids are not verified."""

    folder: str
    branches: dict[str, str]  # commit by branch name; the name is `HEAD` if HEAD is detached
    base: str  # the commit that was placed there last; the edits are based on it
    edits: str  # the commit of its edits; "" if there are none
    sent: tuple[str, ...]  # commits that were sent to the box, and their parents
    left: tuple[str, ...]
    """New files that are not transferred: too large, or repositories of their own."""
    unread: bool  # whether the edits could not be read

    @property
    def commits(self) -> list[str]:
        named = (*self.branches.values(), self.edits)
        return list(dict.fromkeys(commit for commit in named if commit))


class BoxWorkStream:
    """One command on the box: it lists the work, then sends a pack of the wanted commits."""

    def __init__(  # noqa: PLR0913 - the query's own values
        self,
        wire: Wire,
        *,
        workdir: str,
        key: str,
        folder: str,
        object_format: str,
        most_file_mib: int,
        seconds: float,
    ) -> None:
        """`key`, `folder`: the repository's on the box, which may have a note of another folder."""
        asked = {"key": key, "dir": folder, "format": object_format, "most_mib": most_file_mib}
        query = ask("work.back", asked, workdir=workdir)
        self._label = wire.label
        self._wire = wire
        self._stream: AnswerStream = stream_script(wire, query)
        self._late = False
        self._seconds = seconds
        self._timer = Timer(seconds, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def read_work(self) -> BoxWork | None:
        """Read the box's list of work, if it has the repository. Raises LinkLost, NoAnswer."""
        answer = bytearray()
        while not answer.endswith(_READY):
            piece = self._stream.read(PIECE)
            answer += piece
            if answer.endswith(_NONE):
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
    folder = base = edits = ""
    branches: dict[str, str] = {}
    left: list[str] = []
    sent: list[str] = []
    unread = False
    for said in documents(answer):
        commit = _id(said, "commit")
        if said.kind == "tree":
            folder, base = said.text("dir"), _id(said, "base")
        elif said.kind == "ref":
            ref = said.text("name")
            named = "HEAD" if ref == "HEAD" else _branch(ref)
            if named and commit and len(branches) < _MOST_REFS:
                branches[named] = commit
        elif said.kind == "left":
            left.append(said.text("path"))
        elif said.kind == "sent":
            sent += [commit for commit in said.names("commits") if _ID.fullmatch(commit)]
        elif said.kind == "edits":
            edits = commit
        unread = unread or said.kind == "unread"
    return BoxWork(folder, branches, base, edits, tuple(sent), tuple(left), unread)


def _id(said: BoxDocument, name: str) -> str:
    text = said.text(name)
    return text if _ID.fullmatch(text) else ""


def _branch(ref: str) -> str:
    """The branch's name; "" if it can't be part of our refs (git-check-ref-format(1))."""
    found = _BRANCH.fullmatch(ref)
    if not found or re.search(r"\.\.|//|/\.|@\{|\.lock(/|$)|[/.]$", found[1]):
        return ""
    return found[1]


_PLAIN_NAME = re.compile(r"[A-Za-z0-9._@-]{1,140}")
_LONGEST_REF = 250


class RiskyFolder(NamedTuple):
    """A folder, or a file, with what git ignores, what runs may have made, and no run's results."""

    run: str  # the newest run in its tree
    files: int
    bytes: int
    path: str  # as a word for a shell; sanitized

    def __str__(self) -> str:
        many = f"{self.files} file{'' if self.files == 1 else 's'}, {size(self.bytes)}"
        return f"{self.path} ({many}) is ignored by git, and no run's result"


@dataclass(frozen=True)
class UnsentContent:
    """A tree, and its contents that were neither sent to the box nor are results of a run."""

    repo_key: str
    root: str  # the first commit of its repository, as the box has it; "" if unknown
    name: str
    beside: bool
    holds: tuple[TreeContent, ...] = ()
    refs: tuple[tuple[str, str], ...] = ()
    """Commit and name of each ref that leads to commits made there."""
    risky: tuple[RiskyFolder, ...] = ()


@dataclass(frozen=True)
class BoxContent:
    """All trees and results of a box. All text in it is sanitized."""

    is_set_up: bool = False  # whether boxstrap has a folder there at all
    trees: tuple[UnsentContent, ...] = ()
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Runs that have started, by key and name, the newest first: a digest of where their results
    are; two runs with results in the same place have the same digest."""


def ask_content(box: AskedBox) -> AnswerStream:
    """Ask the box, changing nothing on it; it looks while other things are done. Raises
    LinkLost."""
    return stream_script(box.wire, ask("work.made", {}, workdir=box.workdir))


def read_content(box: AskedBox, asked: AnswerStream | None = None) -> BoxContent:
    """Return what the box answers. Raises LinkLost, NoAnswer."""
    return parse_made((asked or ask_content(box)).whole(), box.wire)


_MOST_RISKY, _MOST_OPTIONS = 20, 5


def find_at_risk(
    box: AskedBox, own: str, asked: AnswerStream | None = None
) -> list[tuple[RiskyFolder, ...]]:
    """Return, of each tree of the repository `own`, what no pull brings, as no profile names it.
    `asked`: the question, where it was asked before; if its answer is lost it is asked again."""
    with contextlib.suppress(LinkLost, NoAnswer, BoxLacksError):  # what it told before holds
        trees = read_content(box, asked).trees
        return [tree.risky for tree in trees if tree.risky and tree.repo_key == own]
    return find_at_risk(box, own) if asked else []


def risk_in_words(box: str, trees: Sequence[Sequence[RiskyFolder]]) -> list[str]:
    """Return lines that say what would be lost of these trees, and the commands about it."""
    risky = [one for tree in trees for one in tree][:_MOST_RISKY]
    named = [f"  {one}" + f", in the tree of {one.run}" * (len(trees) > 1) for one in risky]
    pull = f"boxstrap pull --host {box}"
    ways = (line for tree in trees for line in also_commands(pull, tree, trees).splitlines())
    return ["this would go with the box:", *named, *dict.fromkeys(ways)] if named else []


def also_commands(
    pull: str, risky: Sequence[RiskyFolder], trees: Iterable[Sequence[RiskyFolder]]
) -> str:
    """Return the commands that bring what is at risk, and that let go of it: the same ones for all
    of the `trees` in which the same is."""
    paths = [one.path for one in risky]
    same = [tree[0].run for tree in trees if [one.path for one in tree] == paths]
    pull = " --run ".join([pull, *same[:_MOST_OPTIONS]])
    options = [f"--{{}} {path}" for path in paths[:_MOST_OPTIONS]]
    bring, let_go = (" ".join(options).replace("{}", word) for word in ("also", "without"))
    return f"To bring what git ignores: {pull} {bring}\nTo let go of it: {pull} {let_go}"


def parse_made(answer: bytes, wire: Wire) -> BoxContent:
    """Parse an answer. Raises as `read_content`."""
    trees: list[UnsentContent] = []
    places: list[tuple[int, tuple[str, str], str]] = []
    holds: list[TreeContent] = []
    refs: list[tuple[str, str]] = []
    risky: list[RiskyFolder] = []
    kinds, count = set[str](), 0
    for said in documents(answer):
        kinds.add(said.kind)
        what, name, commit = said.text("what"), said.text("name", _LONGEST_REF), _id(said, "commit")
        run, key = said.text("run"), said.text("key")
        if said.kind == "holds" and what in _WORDS:
            holds.append(_content(said))
        elif said.kind == "ref" and commit:
            refs.append((commit, name))
        elif row := _risky(said):
            risky.append(row)
        elif said.kind == "tree" and _PLAIN_NAME.fullmatch(key) and _PLAIN_NAME.fullmatch(name):
            told = tuple(holds), tuple(refs), tuple(risky)
            beside = said.text("number") != "1"
            trees.append(UnsentContent(key, _id(said, "root"), name, beside, *told))
            holds, refs, risky = [], [], []
        elif said.kind == "results":
            key, _, run = run.partition("/")
            places.append((said.count("begun") or 0, (key, run), said.text("place")))
        elif said.kind == "over" and said.count("told") == count:
            places.sort(reverse=True)
            found = {run: place for _, run, place in places}
            return BoxContent("home" in kinds, tuple(trees), found)
        elif said.kind != "home":  # malformed: skipping it would hide work that exists
            raise _no_answer(wire)
        count += said.kind != "home"
    if not wire.alive():
        raise LinkLost(wire.label)
    raise _no_answer(wire)


def _no_answer(wire: Wire) -> NoAnswer:
    return NoAnswer(
        "it did not say what was made in its trees.",
        where=wire.label,
        hint="Nothing was done. Log in and look.",
    )
