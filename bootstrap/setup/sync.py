"""The local state, sent to its tree on a box that is set up already.

It is the repository, its snapshot, and the variables that place it there. States go one after the
other over one command; the files that differ are those between two trees, as git compares them. Why
a box did not take a state becomes an error that says what to do.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run_details import results_in_the_way
from bootstrap.errors import BoxstrapError, BusyError, NotSafeError, StepFailedError, UsageError
from bootstrap.link.exchange import answer_rows, stream_script
from bootstrap.link.query import ask
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.record import LOCAL
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.repo.names import decoded, shown, unquoted
from bootstrap.setup.request import SetupRequest, not_set_up
from bootstrap.steps.event_codes import edited_there, explain
from bootstrap.ui.screen import Screen
from bootstrap.value import Document, dataclass

if TYPE_CHECKING:  # the login to the box begins before these are imported
    from bootstrap.profile.schema import Profile
    from bootstrap.repo.git import Folders
    from bootstrap.repo.local import LocalRepository
    from bootstrap.repo.objects import ObjectStream, SharePack
    from bootstrap.repo.snapshot import Snapshot
    from bootstrap.setup.script import Source

_KINDS = {"A": "new", "D": "removed"}
_SHOWN = 5


@dataclass(frozen=True)
class FileChanges(Document):
    """Files by how they changed."""

    updated: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.new or self.removed)

    def __str__(self) -> str:
        """One line: the number of each kind, and the names if they are few."""
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in vars(self).items() if names)
        names = (*self.updated, *self.new, *self.removed)
        listed = f" ({', '.join(names)})" if 0 < len(names) <= _SHOWN else ""
        return f"{counts or 'no file changed'}{listed}"


def file_changes(folders: Folders, before: Sequence[str], after: str) -> FileChanges:
    """Return the files of `after` that differ from all trees `before`, by how they differ from
    the first one. Raises GitError."""
    from bootstrap.repo.snapshot_store import changes_between

    others = [
        {change.path for change in changes_between(folders, other, after)} for other in before[1:]
    ]
    found = (
        (change.status.decode(), decoded(change.path))
        for change in changes_between(folders, before[0], after)
        if all(change.path in other for other in others)
    )
    return _by_kind(found)


def _by_kind(changes: Iterable[tuple[str, str]]) -> FileChanges:
    """Group files, each with git's letter for how it changed."""
    found: dict[str, list[str]] = {"updated": [], "new": [], "removed": []}
    for letter, name in changes:
        found[_KINDS.get(letter, "updated")].append(shown(name))
    return FileChanges(**{kind: tuple(names) for kind, names in found.items()})


@dataclass(frozen=True)
class Synced(Document):
    """The result: a tree on a box that is now equal to the local state."""

    KEYS = (
        "box, commit=state.snapshot.commit, snapshot=state.snapshot.id, **changed, edited, "
        "seconds:3"
    )

    box: str
    state: LocalState
    changed: FileChanges
    edited: tuple[str, ...]  # tracked files that were edited on the box, and stay so
    seconds: float

    def __str__(self) -> str:
        changes = self.state.snapshot.changes
        with_them = f" with your changes ({changes})" if changes else ""
        commit = f"commit {self.state.snapshot.commit[:12]}{with_them}"
        same = "as here but for what was edited there" if self.edited else "already as here"
        return f"{self.box}: {self.changed or same}; {commit}"


def send_state(request: SetupRequest, screen: Screen) -> Synced:
    """Bring the tree on the box to the local state, and do nothing else.

    Raises UsageError if the box has no such tree, BusyError during a live run or a setup,
    NotSafeError if something made on the box is in the way, UnreachableError.
    """
    began = time.monotonic()
    with box_of(request, screen) as box:
        from bootstrap.setup.payload import report_new_files

        profile = usable_profile(request, box)
        key = ("state", str(profile.git), request.committed_only)
        state = request.once.get(key, lambda: read_local_state(request, profile))
        report_new_files(state.snapshot, screen)
        values = values_for_box(state, box, request.wait_s)
        backoff, waits = Backoff(), partial(say_waiting, screen, request)

        def send(sent: SyncState, objects: EarlyObjects) -> SyncAnswer:
            with exchange(box.wire, values, sent, objects, waits=waits) as (_, answer):
                return answer

        while True:
            try:
                answer = state.send_by(send, base_of(box, state))
                return take_answer(answer, state, box, began)
            except LinkLost as lost:  # the box accepts the same state again
                backoff.lost(lost, news=0)
                box.link.reconnect(lost)


def say_waiting(screen: Screen, request: SetupRequest) -> None:
    screen.say(f"waiting for another setup of this box, at most {request.wait_s} s (--wait)")


def box_of(request: SetupRequest, screen: Screen) -> BoxLogin:
    """Find the box and start to log in. Raises UsageError, see `resolve_box`."""
    key = "" if request.host else request.repository[0]
    box = BoxLogin.find(request, screen, repo_key=key)
    if not box.is_known or not box.known.workdir:
        raise not_set_up(box.name, request.host or box.name)
    box.begin(asks=False)
    return box


def base_of(box: BoxLogin, state: LocalState) -> str:
    """Return the box's last snapshot of this repository, as far as this machine knows."""
    known = box.known.of(state.here.key)
    return known.snapshot if known else ""


def take_answer(
    answer: SyncAnswer, state: LocalState, box: BoxLogin, began: float, named: tuple[str, ...] = ()
) -> Synced:
    """Return the result of sending a state, and remember the state. Raises as `send_state`.

    `named`: the edited files that the user was warned of just before.
    """
    from bootstrap.repo.snapshot import remember_snapshot

    answer.warn(box, named)
    if not answer.placed:
        raise refusal(answer, box.endpoint.label if box.endpoint else box.name, box.name)
    here = state.here
    workdir = box.known.workdir_of(here.key)
    box.note_sent(here, here.key, workdir, root=here.root_commit, snapshot=state.snapshot.id)
    remember_snapshot(here, state.snapshot)
    return Synced(box.name, state, answer.changed, answer.edited, time.monotonic() - began)


_MADE_EARLY = 1024 * 1024  # bytes of objects that are made while the login is in progress


@dataclass(frozen=True)
class LocalState:
    here: LocalRepository
    snapshot: Snapshot
    share: SharePack | None = None  # set if several boxes get it

    def on(self, base: str) -> SyncState:
        """Return it as sent to a box that has `base`, which is here too."""
        snapshot = self.snapshot
        branch = self.here.branch or ""
        return SyncState(snapshot.id, snapshot.commit, snapshot.content, branch, base)

    def objects(self, have: list[str]) -> EarlyObjects:
        """Return what a box with these commits needs. Raises BoxstrapError if one isn't here."""
        from bootstrap.repo.objects import ObjectStream

        what = ObjectStream(self.here, have=have, snapshot=self.snapshot, share=self.share)
        return EarlyObjects(what)

    def send_by(
        self, send: Callable[[SyncState, EarlyObjects], SyncAnswer], base: str
    ) -> SyncAnswer:
        """Send it packed on `base`, if that is here; if the box lacks that, on what it has."""
        from bootstrap.repo.objects import have_locally

        sent, objects = self._packed_on(base)
        try:
            answer = send(sent, objects)
            if answer.problem == "lacks":
                objects.close()
                have = have_locally(self.here, answer.have, self.snapshot)
                objects = self.objects(have)
                answer = send(self.on(have[0] if have else ""), objects)
            return answer
        finally:
            objects.close()

    def _packed_on(self, base: str) -> tuple[SyncState, EarlyObjects]:
        if base:
            with contextlib.suppress(BoxstrapError):
                return self.on(base), self.objects([base])
        return self.on(""), self.objects([])


def read_local_state(request: SetupRequest, profile: Profile) -> LocalState:
    """Read it. Raises UsageError, and as `take_snapshot` for files that must not travel."""
    from bootstrap.repo.local import read_repository
    from bootstrap.repo.urls import without_user_info
    from bootstrap.setup.payload import snapshot_of

    here = read_repository(request.place, profile.git.ref)
    if profile.git.url and here.url != without_user_info(profile.git.url):
        raise _files_come_from("git.url")
    include = "commit" if request.committed_only else profile.git.include
    return LocalState(here, snapshot_of(here, include, profile), request.once.share)


def usable_profile(request: SetupRequest, box: BoxLogin) -> Profile:
    """Return the profile after consent. Raises ProfileError, and UsageError if the box fetches
    its files itself, from the address that the profile names."""
    from bootstrap.profile.consent import NO_SECRET, load_profile
    from bootstrap.profile.detect_provider import FALLBACK

    loaded = load_profile(request, kinds=NO_SECRET)
    if loaded.needs_provider:
        provider = LOCAL if box.is_local else box.known.provider or FALLBACK
        loaded = loaded.for_provider(provider)
    if loaded.profile.git.access == "url":
        raise _files_come_from("git.access")
    return loaded.profile


def _files_come_from(key: str) -> UsageError:
    return UsageError(
        "the profile names an address from which the files come, so none are sent from here.",
        where=key,
        hint="Leave it out of the profile; or commit, push, and set up again: boxstrap setup",
    )


def values_for_box(state: LocalState, box: BoxLogin, wait_s: int) -> dict[str, object]:
    """Return what a box is asked that places states of this repository."""
    from bootstrap.setup.payload import source_of

    values = tree_values(source_of(state.here, state.snapshot), wait_s)
    # Where the setup put it, even if the profile has changed.
    workdir = box.known.workdir_of(state.here.key)
    return {**values, "workdir": workdir, "format": state.here.object_format}


def tree_values(source: Source, wait_s: int) -> dict[str, object]:
    from bootstrap.repo.urls import without_user_info

    return {
        "key": source.key,
        "root": source.root,
        "name": source.name,
        "url": without_user_info(source.url or ""),
        "wait_s": wait_s,
    }


class EarlyObjects:
    """The objects that a box needs; the first ones are made now, before they are waited for."""

    def __init__(self, objects: ObjectStream) -> None:
        self._objects = objects
        self._pieces = iter(objects)
        self._made: list[bytes] = []
        self.is_whole = False  # whether all objects are made
        size = 0
        while size < _MADE_EARLY:
            piece = next(self._pieces, None)
            if piece is None:
                self.is_whole = True
                break
            self._made.append(piece)
            size += len(piece)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._made
        yield from self._pieces

    def few(self, most: int) -> bytes | None:
        """Return all of it if that is at most `most` bytes, else None."""
        made = b"".join(self._made)
        return made if self.is_whole and len(made) <= most else None

    def close(self) -> None:
        self._objects.close()


_MOST_ANSWER = 4 * 1024 * 1024
_WAITS = re.compile(rb"^waits\t", re.MULTILINE)
_ALL = "-"
_MODULES = {"sync": ("work.sync", "fresh\t\nover\t"), "run": ("setup.run", "setup\tscript\nover\t")}
"""What a box asks for the word, and what it answers if it has no such program yet."""
_OVER = b"\nover\t\n"
WITH_COMMAND = 8 * 1024  # bytes of objects that fit into a command


@dataclass(frozen=True)
class SyncState:
    """The wanted state of a tree: snapshot, the commit it is based on, content, branch.

    `base` is a commit that the box should have, "" for none: the objects are packed against it.
    """

    snapshot: str
    commit: str
    tree: str
    branch: str
    base: str = ""

    def header(self, size: int | None) -> bytes:
        """Return the line before its objects; with `size` None they extend to the end of input."""
        words = (self.base, self.snapshot, self.commit, self.tree, self.branch)
        shown = [*(word or "-" for word in words), _ALL if size is None else str(size)]
        return f"{' '.join(shown)}\n".encode()


@dataclass(frozen=True)
class SyncAnswer:
    """A box's answer to a state. All text in it is sanitized."""

    placed: bool
    problem: str
    """Why it was not placed, in one word: fresh, alive, lacks, refused, busy, failed, setup."""
    detail: str
    have: tuple[str, ...]  # commits in its store, if it lacks the base
    changed: FileChanges
    warnings: tuple[str, ...]  # codes of warnings
    edited: tuple[str, ...]  # tracked files that are other ones than were sent, and stay so
    log: tuple[str, ...]  # the last lines of the log, if placing failed
    facts: Mapping[str, str]  # all other values it reported, by word

    def warn(self, box: BoxLogin, named: tuple[str, ...] = ()) -> None:
        """Pass on its warnings; not that of edited files, if these were named before."""
        for code in self.warnings:
            box.reporter.warn(f"{explain(code, {}).what}.")
        if self.edited not in ((), named):
            box.reporter.warn(edited_there(self.edited, box.name))


class SyncStream:
    """The command on the box, which takes several states, the last perhaps of unknown size.

    A `first` state with few objects is part of the command, as its only state: sending it as input
    would cost another round trip, since sshd reads none before the command runs. The query `run`
    also starts a run. `waits` is called if the box reports that it waits for a setup.
    """

    def __init__(  # noqa: PLR0913 - what is sent, and who hears of it
        self,
        wire: Wire,
        values: Mapping[str, object],
        first: SyncState | None = None,
        objects: bytes = b"",
        query: str = "sync",
        *,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self._wire, self._waits = wire, waits
        self._after = b""
        state = first.header(None).decode().strip() if first else ""
        given = {"state": state, "objects": objects.hex(), **values}
        module, lacking = _MODULES[query]
        request = {"key": "", "root": "", "name": "", **given}
        workdir = str(given.get("workdir", ""))
        asked = ask(module, request, workdir=workdir, lacking=lacking, tool="git")
        self._stream = stream_script(wire, asked)

    def answer(self) -> SyncAnswer:
        """Return the answer to the state in the command itself. Raises LinkLost, NoAnswer."""
        self._stream.close_write()
        return self._answer()

    def send_last(self, state: SyncState, objects: Iterable[bytes]) -> SyncAnswer:
        """Send a last state with objects that are streamed. Raises LinkLost, NoAnswer."""
        self._write(state.header(None), objects)
        self._stream.close_write()
        return self._answer()

    def send(self, state: SyncState, objects: bytes) -> SyncAnswer:
        """Send a state; more may follow. Raises LinkLost, NoAnswer."""
        pieces = (objects[at : at + PIECE] for at in range(0, len(objects), PIECE))
        self._write(state.header(len(objects)), pieces)
        return self._answer()

    def rest(self, until: bytes = b"") -> bytes:
        """Read the output after the last answer: to its end, or to the first `until`.

        Raises LinkLost, also if the output ends before `until`.
        """
        said, self._after = bytearray(self._after), b""
        while not (until and until in said) and len(said) <= _MOST_ANSWER:
            piece = self._stream.read(PIECE)
            if not piece and (until or not self._wire.alive()):
                raise LinkLost(self._wire.label)
            if not piece:
                break
            said += piece
        if until:
            found, _, self._after = bytes(said).partition(until)
            return found
        return bytes(said)

    def close(self) -> None:
        """Close the stream; the command then ends on its own."""
        self._stream.close()

    def _write(self, header: bytes, objects: Iterable[bytes]) -> None:
        try:
            self._stream.write(header)
            for piece in objects:
                self._stream.write(piece)
        except BrokenPipeError:
            pass  # the box's answer says why

    def _answer(self) -> SyncAnswer:
        answer, told = bytearray(b"\n"), False
        while _OVER not in answer[-PIECE - 16 :]:
            piece = self._stream.read(PIECE)
            answer += piece
            if not told and _WAITS.search(answer):
                told = True
                self._waits()
            if not piece:
                self._fail("it did not say what became of the state that was sent.")
            if len(answer) > _MOST_ANSWER:
                self._fail(f"it answers with more than {_MOST_ANSWER // 2**20} MiB.")
        said, _, self._after = bytes(answer).partition(_OVER)
        return _parse(said)

    def _fail(self, what: str) -> None:
        self._stream.close()
        if not self._wire.alive():
            raise LinkLost(self._wire.label)
        raise NoAnswer(what, where=self._wire.label, hint="Log in with ssh and look.")


@contextlib.contextmanager
def exchange(  # noqa: PLR0913 - what is sent, and who hears of it
    wire: Wire,
    values: Mapping[str, object],
    sent: SyncState | None,
    objects: EarlyObjects | None,
    query: str = "sync",
    *,
    waits: Callable[[], None] = lambda: None,
) -> Iterator[tuple[SyncStream, SyncAnswer]]:
    """Send one state, if any, and yield the stream with its answer. Raises LinkLost, NoAnswer."""
    few = objects.few(WITH_COMMAND) if objects else None
    stream = SyncStream(wire, values, None if few is None else sent, few or b"", query, waits=waits)
    with contextlib.closing(stream):
        if sent and objects and few is None:
            yield stream, stream.send_last(sent, objects)
        else:
            yield stream, stream.answer()


def _parse(answer: bytes) -> SyncAnswer:
    facts: dict[str, str] = {}
    many: dict[str, list[str]] = {"have": [], "warn": [], "edited": [], "log": []}
    changes = list[tuple[str, str]]()
    for word, value in answer_rows(answer):
        if word in many:
            many[word].append(value)
        elif len(word) == 1 and word.isupper():
            changes.append((word, unquoted(value)))
        else:
            facts[word] = value
    problems = ("fresh", "alive", "queued", "lacks", "refused", "busy", "failed", "setup")
    problem = next((word for word in problems if word in facts), "")
    return SyncAnswer(
        placed="placed" in facts and not problem,
        problem=problem,
        detail=facts.get(problem, ""),
        have=tuple(many["have"]),
        changed=_by_kind(changes),
        warnings=tuple(many["warn"]),
        edited=tuple(many["edited"]),
        log=tuple(many["log"]),
        facts=facts,
    )


_OF_THE_BOX = ("box-edits", "box-commits", "untracked-in-the-way")
"""Codes for work made on the box that would be lost or mixed up."""


def refusal(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    return _REFUSALS.get(answer.problem, _failed)(answer, where, name)


def _alive(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    run = answer.detail.rpartition("/")[2]
    does = "is queued" if answer.problem == "queued" else "is running"
    return BusyError(
        f"{run} {does} and uses these files: they stay as they are.",
        where=where,
        hint=f"boxstrap run starts this beside it, in a tree of its own; or wait for its end, or: "
        f"boxstrap stop --host {name} --run {run}",
    )


def _busy(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    of = f" ({answer.detail})" if answer.detail else ""
    return BusyError(
        f"a setup is at work on this box{of}.",
        where=where,
        hint=f"See what it does: boxstrap status --host {name}. Wait longer with --wait SECONDS.",
    )


def _refused(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:  # noqa: ARG001
    why = answer.detail[:300] or "it does not say why"
    return BoxstrapError(
        f"the box did not take what was sent: {why}.",
        where=where,
        hint="Nothing changed on it; run the same command again.",
    )


def _failed(answer: SyncAnswer, where: str, name: str) -> BoxstrapError:
    code = explain(answer.detail, {})
    log = "".join(f"\n  {line}" for line in answer.log[-20:])
    if answer.detail == "results-unsafe":
        return results_in_the_way(answer.log, where, name)
    if answer.detail in _OF_THE_BOX:
        take = ""
        drop = "git checkout HEAD -- FILE (rm FILE where git knows none), or move the file away"
        if answer.detail == "box-commits":
            take = ", then merge it here, as that says"
            drop = "git reset --keep ID^, with the last ID that is listed"
        return NotSafeError(
            f"{code.what}:{log}",
            where=where,
            hint="Nothing changed there. To see and take what was made on the box:\n"
            f"  boxstrap sync --back --host {name}{take}\n"
            f"To drop it, on the box: {drop}. Then run the same command again.",
        )
    return StepFailedError(
        f"{code.what}.{log}", where=where, hint=f"{code.hint[:1].upper()}{code.hint[1:]}."
    )


_REFUSALS: dict[str, Callable[[SyncAnswer, str, str], BoxstrapError]] = {
    "fresh": lambda _, where, name: not_set_up(where, name),
    "alive": _alive,
    "queued": _alive,
    "busy": _busy,
    "refused": _refused,
    "lacks": _refused,
    "": _refused,
}
