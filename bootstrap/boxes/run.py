"""A run as the box reports it: one training command, its state, and why it failed.

The state is decided on the box, only by `onbox/run_folder.py`. Runs of a box are selected here:
those of the current repository, unless more is asked for.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

from bootstrap.boxes.answers import BoxDocument
from bootstrap.errors import NoSuchRunError, UsageError
from bootstrap.link.exchange import answer_exit_code, answer_number
from bootstrap.link.record import name_of_key
from bootstrap.paths import sweeps_dir
from bootstrap.sizes import size, spent
from bootstrap.value import Document, dataclass, replace

_NOTE = (
    r"(going|failing|left|whole) ([0-9]{1,12}) ([0-9]{1,18}) ([0-9]{1,12}) ([A-Za-z0-9.-]{1,60}) "
    r"(s3://[A-Za-z0-9._+@=/-]{1,400})"
)


class Uploaded(NamedTuple):
    """Which results are in the bucket, and how many are missing."""

    word: str
    """going, failing (still retrying), left (stopped retrying), whole (complete)."""
    files: int
    bytes: int
    left: int
    """Number of files whose current content is not in the bucket."""
    why: str | None
    """Why it fails: the bucket's error code, `unreachable`, `no-key`; None if it doesn't."""
    address: str

    def sentence(self) -> str:
        there = f"{self.files} files ({size(self.bytes)}) are in {self.address}"
        if self.word == "whole":
            return f"results: {there}"
        if self.word == "going":
            return f"results: {there}; {self.left} more are to come"
        stopped = "; the next setup or run tries again" if self.word == "left" else ""
        return f"results: {there}; {self.left} are not: {self.why or 'still written to'}{stopped}"


def parse_uploaded(note: str) -> Uploaded | None:
    found = re.fullmatch(_NOTE, note)
    if not found:
        return None
    word, files, bytes_, left, why, address = found.groups()
    known = None if why == "-" else why
    return Uploaded(word, int(files), int(bytes_), int(left), known, address)


CLOUDS = {"ec2": "EC2", "gcp": "Google Cloud", "azure": "Azure"}
"""Whose metadata services give notice, by their names on the box."""
_INTERRUPTION = re.compile(r"(ec2|gcp|azure|container) ([0-9]{1,12}) ([0-9]{1,12})")


class Interruption(NamedTuple):
    """A notice that the box is taken away, and the run with it. Times are the box's."""

    by: str  # ec2, gcp, azure, container
    noticed: int
    leaves: int  # when the box goes

    def sentence(self) -> str:
        if self.by == "container":
            return "its container, or machine, was stopped"
        return f"{CLOUDS[self.by]} took its box back"


def parse_interruption(text: str) -> Interruption | None:
    found = _INTERRUPTION.fullmatch(text)
    return Interruption(found[1], int(found[2]), int(found[3])) if found else None


_NODES = r"([0-9]{1,3}) ([0-9]{1,3}) [0-9a-f]{16}((?: [A-Za-z0-9._-]{1,120}){1,64})"
_BY_NODE = re.compile(r"node ([0-9]{1,3}) ([0-9]{1,3}) (exit|lost|missing|interrupted|unwatched)")
_BY_NODE_WORDS = {
    "exit": "{} ended with exit code {}",
    "lost": "{} was not heard any more",
    "missing": "{} did not come",
    "interrupted": "{} is taken away",
    "unwatched": "on {} nothing held it together with the others any more",
}


class NodeOf(NamedTuple):
    """Which node of a training a run is, and the names of all, by rank."""

    rank: int
    names: tuple[str, ...]

    def called(self, rank: int) -> str:
        name = self.names[rank] if rank < len(self.names) else "?"
        return f"{name} (node {rank})"


def parse_node(note: str) -> NodeOf | None:
    found = re.fullmatch(_NODES, note)
    names = tuple(found[3].split()) if found else ()
    if not found or int(found[2]) != len(names) or int(found[1]) >= len(names):
        return None
    return NodeOf(int(found[1]), names)


_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")
STOPPED = 143  # the exit code of a run that `stop` ended, unless it has another one: 128 + SIGTERM
_RUN = r"([A-Za-z0-9._-]{1,120}/)?[A-Za-z0-9._-]{1,120}"
_ENDED = (
    rf"stop|interrupted {_INTERRUPTION.pattern}|exit [0-9]{{1,3}}|pipeline( [0-9]{{1,3}}){{1,40}}"
    rf"|after {_RUN}|{_BY_NODE.pattern}"
)
_QUEUE = re.compile(rf"gpus|after(-any)? {_RUN}")
_GPUS = re.compile(r"[A-Za-z0-9-]{1,60}(,[A-Za-z0-9-]{1,60}){0,63}")
WORDS = {"session": re.compile(r"[A-Za-z0-9_-]{1,64}"), "gpus": _GPUS}
"""What a run that goes on elsewhere takes along: words of the next box's command."""
_TREE = re.compile(r"[A-Za-z0-9._-]{1,120}@[0-9]{1,6}")
_RANKS = re.compile(r"[0-9]{1,3}( [0-9]{1,3}){0,63}")
_NO_TIME_S = 60
MADE_NOTHING = "printed nothing, left no results: was that the training?"
_LONGEST_WORD = 200  # characters of a note in a run's folder; a longer one is cut
_SIGNALS = {1: "HUP", 2: "INT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV"}
_SIGNALS |= {13: "PIPE", 15: "TERM"}  # Linux numbers: macOS has different ones
RunState = Literal["running", "finished", "died", "waiting", "queued"]
STATES = frozenset(get_args(RunState))
GOES_ON = ("running", "queued")


@dataclass(frozen=True)
class Run(Document):
    """One training command on a box. Times are seconds since 1970 on the box's clock."""

    KEYS = (
        "name, state, rc, ended or None, interrupted?=interruption, left, queue?, "
        "attended?, can_resume?, commit, snapshot?, command, session, started, "
        "begun or None, over or None, log_bytes, tree or None, uploaded?, gpus=given_gpus, "
        "node?"
    )

    repo_key: str
    name: str
    state: str
    """running, finished (see `rc`), died (ended without an exit code), waiting (never started),
    queued (not started until its turn comes)."""
    rc: int | None
    started: int
    commit: str
    work: str
    """Digest of content, command and environment; the same for the same work."""
    session: str
    written: int
    """When its log was last written to."""
    log_bytes: int
    command: str
    ended: str = ""
    """What decided the exit code: `exit 7`, `pipeline 1 0`, `stop`, `interrupted` with a
    notice; "" if that could not be noted."""
    snapshot: str = ""
    """The snapshot of its files; equals `commit` if nothing differed from that."""
    left: int = 0
    """How many of its processes are still alive after it ended on its own."""
    queue: str = ""
    """What a queued run waits for: `gpus`, `after NAME`, `after-any NAME`."""
    attended: bool = False
    """Whether a process on the box waits to start this queued run."""
    can_resume: bool = False
    """Whether a run that died has a command to resume it (`train.resume`), none did, and nothing of
    it lives on."""
    resumed_by: str = ""
    """The run that went on from it."""
    begun: int = 0
    """When its command began, after `started` if it was queued; 0 if it never has."""
    over: int = 0
    """When it ended; 0 if it has not, or if nothing was left to record it."""
    log_kept: int = 0
    """The first byte of its log that was kept; earlier ones were discarded."""
    gpus: str = ""
    """The GPUs that it was given, `0,1`; "" if it may use all."""
    restarted: bool = True
    """For a run that died: whether that was with its box, or container, which was restarted."""
    tree: str = ""
    """The name of its tree beside the main one, `homework@2`; "" for the main tree."""
    killed_for_memory: str = ""
    """The box's note about processes that the kernel killed for memory while it ran."""

    notice: str = ""
    """The notice that its box is taken away, in the box's words."""

    node: NodeOf | None = None
    """Which one of several nodes it is."""
    waits_for: str = ""
    """The ranks that have not come yet, before its command begins on all nodes."""

    uploaded: Uploaded | None = None
    """Which of its results are in the bucket of `train.results_to`."""

    @property
    def number(self) -> int:
        """The last part of its name, which counts up."""
        digits = re.search(r"[0-9]+$", self.name)
        return answer_number(digits[0]) or 0 if digits else 0

    @property
    def path(self) -> str:
        """What it is called on its box, and by each answer of it: `KEY/NAME`."""
        return f"{self.repo_key}/{self.name}"

    @property
    def log(self) -> str:
        """The path of its log in boxstrap's folder on the box."""
        return f"runs/{self.path}/log"

    @property
    def typed(self) -> str:
        """Its command as in the profile: `python` instead of the environment's full path."""
        return re.sub(r"\A/\S*/bin/(?=python3? )", "", self.command)

    @property
    def with_changes(self) -> bool:
        """Whether it ran with changes that are not in its commit."""
        return self.snapshot not in ("", self.commit)

    @property
    def short_commit(self) -> str:
        """Its commit, with a plus if it ran with changes to that."""
        return self.commit[:12] + "+" * self.with_changes

    def outcome(self) -> str:
        if self.state == "finished":
            return self._ending() + self._left_behind()
        if self.state == "queued":
            return self._waiting()
        if self.state == "running" and self.waits_for:
            return f"waits for {self._nodes_called(self.waits_for)}"
        if self.state in ("died", "running") and self.interruption:
            told = "died" if self.state == "died" else "is running, and was told to save its work"
            return f"{told}: {self.interruption.sentence()}"
        if self.state == "died" and not self.restarted:
            return "was killed, and its runner too" + self._left_behind()
        return {"died": "died with the box", "waiting": "was created, but never started"}.get(
            self.state, self.state
        )

    def _left_behind(self) -> str:
        return f"; {self.left} of its processes live on" if self.left else ""

    def _nodes_called(self, ranks: str) -> str:
        known = (answer_number(rank) or 0 for rank in ranks.split())
        return ", ".join(self.node.called(one) if self.node else f"node {one}" for one in known)

    @property
    def by_node(self) -> str:
        """What happened on the other node that ended it; "" if none did."""
        found = _BY_NODE.fullmatch(self.ended)
        if not found:
            return ""
        return _BY_NODE_WORDS[found[3]].format(self._nodes_called(found[1]), int(found[2]))

    def _waiting(self) -> str:
        if not self.attended:
            return (
                "queued, but no process waits to start it: the next setup or run on this box will"
            )
        kind, _, other = self.queue.partition(" ")
        after = {"after": f"once {other} has ended with 0", "after-any": f"once {other} has ended"}
        turn = "once its GPUs are free" if self.gpus else "once the runs before it are over"
        return f"queued: begins {after.get(kind, turn)}"

    def seconds(self, now: int) -> int | None:
        """Return how long it has run, or ran; None if unknown, or if it never began."""
        if self.state == "running":
            return max(0, now - (self.begun or self.started))
        if self.state != "finished" or not self.over or not self.begun:
            return None
        return max(0, self.over - self.begun)

    @property
    def goes_on(self) -> bool:
        return self.state in GOES_ON

    @property
    def has_begun(self) -> bool:
        return self.state not in ("waiting", "queued")

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "died")

    @property
    def interruption(self) -> Interruption | None:
        return parse_interruption(self.ended.removeprefix("interrupted ") or self.notice)

    @property
    def stopped(self) -> bool:
        ends = self.ended == "stop" or (not self.ended and self.rc == STOPPED)
        return self.state == "finished" and ends

    @property
    def failed(self) -> bool:
        """Whether it died, was interrupted or ended with a nonzero exit code, unless stopped."""
        return self.state == "died" or (
            self.state == "finished"
            and not self.stopped
            and (self.rc != 0 or self.interruption is not None)
        )

    def made_nothing(self, results: int) -> bool:
        """Whether it ended well in no time, without a word in its log or one of these results."""
        if self.state != "finished" or self.rc != 0 or (self.node and self.node.rank):
            return False
        soon = (self.seconds(self.over) or 0) < _NO_TIME_S
        return soon and not self.log_bytes and not results

    def _ending(self) -> str:  # noqa: PLR0911 - each end in its words
        if self.stopped and not self.begun:
            return "was stopped before it began"
        if self.stopped:
            # Its own exit code tells more: it saved its work and said so, or had to be killed.
            own = "" if self.rc == STOPPED else f", with exit code {self.rc}{self._decided()}"
            return f"was stopped{own}"
        if self.interruption:
            verb = "interrupted" if self.begun else "not started"
            own = "" if self.rc == STOPPED else f", after exit code {self.rc}"
            return f"was {verb}: {self.interruption.sentence()}{own}"
        if self.by_node:
            verb = "not started" if self.ended.endswith("missing") else "ended"
            return f"was {verb}: {self.by_node}"
        if self.ended.startswith("after "):
            return f"was not started, since {self.ended[6:]} did not end with 0"
        if self.rc is None:
            return "ended, but its exit code could not be written: the disk was full"
        return f"ended with exit code {self.rc}{self._decided()}" if self.rc else "finished"

    def _decided(self) -> str:
        """Name the pipeline part (counted from 1) and the signal that decided the exit code."""
        parts = self.ended.split()[1:]
        failed = [at for at, code in enumerate(parts, 1) if code != "0"]
        signal = _SIGNALS.get((self.rc or 0) - 128)
        by = f"SIG{signal}" if signal else ""
        if len(parts) > 1 and failed and parts[failed[-1] - 1] == str(self.rc):
            by = f"part {failed[-1]} of its pipeline{by and ', '}{by}"
        return f" ({by})" if by else ""

    def absent(self) -> Collection[str]:
        """Return the keys that say nothing of a run in this state."""
        return {
            *super().absent(),
            *(() if self.state == "queued" else ("queue", "attended")),
            *(() if self.state == "died" else ("can_resume",)),
            *(() if self.with_changes else ("snapshot",)),
        }

    @property
    def given_gpus(self) -> list[str] | None:
        """The GPUs that it was given; None if it may use all."""
        return self.gpus.split(",") if self.gpus else None


@dataclass(frozen=True)
class RunOnABox(Document):
    """A run, whose it is, how long it took until `now`, on the box's clock, and what that cost."""

    KEYS = "**run, repository, seconds, dollars"

    run: Run
    repository: str
    now: int
    price: float | None

    @property
    def seconds(self) -> int | None:
        """How long it took; None if it never began."""
        return self.run.seconds(self.now)

    @property
    def dollars(self) -> float | None:
        """What that cost; None if it is unknown."""
        return spent(self.seconds, self.price)


def is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text))


def parse_run(said: BoxDocument) -> Run | None:
    """Parse a run, as `onbox/runs/status.py` tells it; None if it is invalid."""
    key, _, name = said.text("run").partition("/")
    state, tree = said.text("state"), said.text("tree")
    words = {each: said.text(each) for each in WORDS}
    ended, queue, waits = said.text("ended"), said.text("queue"), said.text("waits_for")
    by = said.text("resumed_by")
    if state not in STATES or not _NAME.fullmatch(key) or not _NAME.fullmatch(name):
        return None
    return Run(
        repo_key=key,
        name=name,
        state=state,
        rc=answer_exit_code(str(said.count("rc"))),
        started=said.time("started"),
        commit=said.text("commit"),
        work=said.text("work"),
        written=said.time("written"),
        log_bytes=said.count("log_bytes") or 0,
        command=said.text("command"),
        ended=ended if re.fullmatch(_ENDED, ended) else "",
        snapshot=said.text("snapshot"),
        left=said.count("left") or 0,
        queue=queue if _QUEUE.fullmatch(queue) else "",
        attended=said.flag("attended"),
        can_resume=said.flag("can_resume"),
        resumed_by=by if _NAME.fullmatch(by) else "",
        begun=said.time("begun"),
        over=said.time("over"),
        log_kept=said.count("log_kept") or 0,
        **{each: text if WORDS[each].fullmatch(text) else "" for each, text in words.items()},
        restarted=said.flag("restarted"),
        tree=tree if _TREE.fullmatch(tree) else "",
        killed_for_memory=said.text("killed", _LONGEST_WORD),
        notice=said.text("notice", _LONGEST_WORD),
        node=parse_node(said.text("node")),
        waits_for=waits if _RANKS.fullmatch(waits) else "",
        uploaded=parse_uploaded(said.text("uploaded")),
    )


def as_it_ended(run: Run, said: str) -> Run | None:
    """Return the run with the state that the box now reports; None if that is invalid."""
    word, rc, why = [*said.split(" ", 2), "", ""][:3]
    if word not in STATES:
        return None
    ended = why if re.fullmatch(_ENDED, why) else ""
    return replace(run, state=word, rc=answer_exit_code(rc), ended=ended)


_SHOWN = 20


def repository_names(keys: Iterable[str]) -> dict[str, str]:
    """Map keys to short names of repositories; to the whole key if two names would be equal."""
    names = {key: name_of_key(key) for key in keys}
    often = Counter(names.values())
    return {key: name if often[name] == 1 else key for key, name in names.items()}


_CELL = r"(.+)-([0-9a-f]{8})-[0-9]+"


def called(run: str) -> str:
    """Return a run's name as it is shown: that of a sweep's cell has its parameters behind it."""
    cell = re.fullmatch(_CELL, run)
    words = _cells_of(cell[1]).get(cell[2]) if cell else ""
    return f"{run} ({words})" if words else run


def cell_words(parameters: Mapping[str, object]) -> str:
    """Return how a cell is called: `lr=3e-1,seed=1`."""
    return ",".join(f"{name}={value}" for name, value in parameters.items())


@cache
def _cells_of(sweep: str) -> dict[str, str]:
    """Return how the cells of all sweeps of this name are called, by key, as far as known here."""
    import glob  # late: of a run that has a sweep's name

    found = {}
    for file in sweeps_dir().glob(f"*-{glob.escape(sweep)}.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            for key, cell in json.loads(file.read_text(encoding="utf-8"))["cells"].items():
                found[key] = cell_words(cell["parameters"])
    return found


def blocked_words(run: Run, runs: Iterable[Run], there: str) -> str:
    """Return what frees a queued run if the one that it waits for died, else ""; `there` is the
    option that names its box."""
    kind, _, other = run.queue.partition(" ")
    waits_for = {other, f"{run.repo_key}/{other}"} if kind == "after" else set()
    dead = (one for one in runs if one.state == "died")
    name = next((one.name for one in dead if one.path in waits_for), "")
    if run.state != "queued" or not name:
        return ""
    ends = f"boxstrap stop --run {run.name}{there}"
    return f"{name} died. To go on: boxstrap run --resume {name}{there}; or end this one: {ends}"


def qualified(run: Run, names: Mapping[str, str]) -> str:
    """Return a run with its repository, as `--run` takes it: `homework/train-2`."""
    return f"{names[run.repo_key]}/{run.name}"


def select_runs(  # noqa: PLR0913
    runs: Sequence[Run],
    own: str,
    name: str | None,
    *,
    every: bool = False,
    where: str = "",
    setup_at: str = "",
) -> list[Run]:
    """Return the selected runs, newest first, all of one repository unless `every` is set.

    `own` is the key of the current repository, "" for none; `name` may be qualified; `setup_at` is
    the box's name if a setup is at work there.
    Raises UsageError if there is no such run, or if several repositories could be meant.
    """
    names = repository_names({run.repo_key for run in runs})
    found = [run for run in runs if name in (None, run.name, qualified(run, names))]
    if not every:
        mine = [run for run in found if run.repo_key == own]
        found = mine or (found if name or not own else [])
    several = len({run.repo_key for run in found}) > 1
    if found and not (several and (name or not every)):
        return found
    listed = "".join(f"\n  --run {qualified(run, names)}" for run in (found or runs)[:_SHOWN])
    if several:
        what = f"{name} is a run of several repositories:" if name else "whose run is meant?"
        raise UsageError(f"{what}{listed}", where=where, hint="Name one of them.")
    error = _nothing(name, own, listed, where)
    if setup_at:
        error.hint = "A setup is at work there; to follow it, and the run that it begins: "
        error.hint += f"boxstrap setup --host {setup_at}"
    raise error


def _nothing(name: str | None, own: str, listed: str, where: str) -> NoSuchRunError:
    if not listed:
        what = f"there is no run {name} on this box" if name else "no run was started on this box"
        return NoSuchRunError(f"{what}.", where=where, hint="To start one: boxstrap setup")
    if name:
        what = f"there is no run {name} on this box; there is:{listed}"
    else:
        what = f"no run of {name_of_key(own)} is on this box; of others there is:{listed}"
    return NoSuchRunError(what, where=where, hint="Name one of them; `status` says what they do.")
