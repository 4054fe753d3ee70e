"""One training on several boxes: checked before, begun on all or none.

Each box is worked on in its own thread (`fan_out`). They meet where all must be ready: `Meeting`.
Once the runs have begun, the boxes hold them together on their own: see `onbox/nodes/watch.py`.
"""

from __future__ import annotations

import copy
import json
import math
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from statistics import median
from typing import TYPE_CHECKING, Any

from bootstrap.errors import (
    BoxLacksError,
    BoxstrapError,
    BusyError,
    ReturnBoxError,
    StepFailedError,
    UsageError,
)
from bootstrap.link.cancel import CancelToken
from bootstrap.link.exchange import stream_script
from bootstrap.link.query import ask
from bootstrap.link.target import shortened
from bootstrap.link.wire import PIECE, LinkLost
from bootstrap.onbox.nodes.check import is_private
from bootstrap.runs.run_end import end_run
from bootstrap.sanitize import one_line, sanitize
from bootstrap.setup.new_run import Show, StartedRun, begin_run
from bootstrap.setup.request import RunOptions, SetupRequest
from bootstrap.setup.sequence import alone_error, complete, execute, prepare, result_of
from bootstrap.sizes import first_of

if TYPE_CHECKING:
    from bootstrap.boxes.login import BoxLogin
    from bootstrap.setup.context import SetupContext
    from bootstrap.setup.executor import SetupExecutor
    from bootstrap.setup.result import SetupResult
    from bootstrap.ui.screen import Screen

ANSWER_S = 30.0  # how long a node's program may take for one answer, in seconds
MOST_APART_S = 1.0  # by how many seconds clocks may differ
_MOST_LINE = 4 << 20
_ELASTIC = re.compile(r"--nnodes[= ]([0-9]{1,4}):[0-9]{1,4}\b")
_NUMBER = r"[= ](?P<least>[0-9]{1,4})(?::(?P<most>[0-9]{1,4}))?)(?=[\s'\"]|$)"
_LAUNCHERS = (
    re.compile(r"\b(?:torchrun|torch\.distributed\.\w+)\b.*?(--standalone|--nnodes" + _NUMBER),
    re.compile(r"\baccelerate launch\b.*?(--num[-_]machines" + _NUMBER),
    re.compile(r"\bdeepspeed\b.*?(--num[-_]nodes" + _NUMBER),
)
"""How launchers are told of how many nodes they are."""
_MOST_NAMED = 3
_MUCH_SLOWER = 8  # how many times slower than the fastest node one is that is warned of
_NETWORK = (
    "They need one private network on which they reach each other on all TCP ports: in a cloud, a "
    "rule of its firewall (security group) that lets them in among themselves. Where ports are "
    "mapped there is none."
)


class Meeting:
    """Where the threads of a training's boxes wait for each other. If one fails, all do."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.id, self.token = secrets.token_hex(8), secrets.token_hex(32)
        self.check_token = secrets.token_hex(16)
        self._barrier = threading.Barrier(len(hosts))
        self._said: dict[str, dict[int, Any]] = {}
        self._lock = threading.Lock()
        self._first: tuple[str, BoxstrapError] | None = None

    @contextmanager
    def attended_by(self, host: str) -> Iterator[int]:
        """Take part, with a rank; leaving it with an error fails all that still wait."""
        try:
            yield self.hosts.index(host)
        except BaseException as error:
            known = error if isinstance(error, BoxstrapError) else StepFailedError("it broke off.")
            with self._lock:
                self._first = self._first or (host, known)
            self._barrier.abort()
            raise

    def gather(self, what: str, rank: int, value: object) -> list[Any]:
        """Return what all say, by rank, once they have. Raises an error of the first that failed's
        kind, if one did."""
        with self._lock:
            self._said.setdefault(what, {})[rank] = value
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise self._others_error() from None
        return self.said(what)

    def said(self, what: str) -> list[Any]:
        """Return what all said before, by rank."""
        return [self._said[what][rank] for rank in range(len(self.hosts))]

    def _others_error(self) -> BoxstrapError:
        with self._lock:
            host, first = self._first or ("another node", StepFailedError("it broke off."))
        what = f"not started: {shortened(host)} failed, and all begin or none."
        if isinstance(first, ReturnBoxError):
            return StepFailedError(what)
        error = copy.copy(first)
        error.args, error.what, error.where, error.hint = (what,), what, "", ""
        return error


def set_up_node(request: SetupRequest, screen: Screen, host: str) -> SetupResult:
    """Set one of several boxes up; with `train.nodes` they begin the training together. Raises as
    `run_setup`; BoxLacksError with what keeps the nodes from training together."""
    began = time.monotonic()
    with _attended(request, screen, host) as (context, meeting, rank):
        if not _is_node(context):
            return complete(context, began)
        node = _NodeStart(context, meeting, rank)
        executor, setup = node.set_up()
        if node.has_begun(restart=request.restart):
            return result_of(executor, context.box_state(), setup, began)
        node.begin(RunOptions(overwrite=request.overwrite), screen, lambda _: None)
        executor.started_run = True
        return result_of(executor, context.box.state_for(""), setup or node.id, began)


def run_node(request: SetupRequest, screen: Screen, show: Show, host: str) -> StartedRun:
    """Start a run on one of several boxes; with `train.nodes` on all or none. Raises as
    `start_run`, and as `set_up_node`."""
    assert request.run is not None  # noqa: S101 - callers always set it
    with _attended(request, screen, host) as (context, meeting, rank):
        if not _is_node(context):
            return begin_run(context, screen, show)
        node = _NodeStart(context, meeting, rank)
        node.set_up()
        return node.begin(request.run, screen, show)


@contextmanager
def _attended(
    request: SetupRequest, screen: Screen, host: str
) -> Iterator[tuple[SetupContext, Meeting, int]]:
    """Prepare one of several boxes, in the meeting of all: one that can't be reached fails it."""
    meeting = request.once.get("nodes", lambda: Meeting(request.once.hosts))
    with meeting.attended_by(host) as rank:
        context = prepare(request, screen, CancelToken())
        try:
            yield context, meeting, rank
        finally:
            context.box.close()


def _is_node(context: SetupContext) -> bool:
    """Whether the training needs all boxes of the command. Raises UsageError for another number."""
    train, boxes = context.payload.profile.train, len(context.request.once.hosts)
    if train is None or train.nodes == 1:
        return False
    if train.nodes != boxes:
        raise alone_error(train.nodes, boxes)
    wanted = context.request.run
    if said := wrong_number((wanted and wanted.command) or train.command, train.nodes):
        raise UsageError(
            f"train.nodes is {train.nodes}, and the command says {said}.",
            hint="Leave it out: torchrun finds its nodes by variables that each box has; for other "
            "launchers see docs/nodes.md. To train on each box alone: --set train.nodes=1",
        )
    return True


def wrong_number(command: str, nodes: int) -> str:
    """Return the words by which a launcher takes another number of nodes; "" if none does."""
    for found in filter(None, (one.search(command) for one in _LAUNCHERS)):
        least = int(found["least"] or 1)
        if not least <= nodes <= int(found["most"] or least):
            return found[1]
    return ""


class _NodeStart:
    """One box of the training, from its setup to its run's first lines."""

    def __init__(self, context: SetupContext, meeting: Meeting, rank: int) -> None:
        self._context, self._meeting, self._rank = context, meeting, rank
        self.id = meeting.id

    def set_up(self) -> tuple[SetupExecutor, str]:
        """Set it up without the training; return when all are. Raises as `execute`."""
        context = self._context
        self._refuse_provider()
        wanted = context.request.run
        context.request = replace(context.request, holds=True, run=None)
        live = context.box_state().live_run if context.request.restart and wanted is None else None
        if live:
            told = f"{live.name} is {live.state}: it is stopped first"
            context.box.reporter.note("restart", told)
            end_run(context.box, live)
            context.box.refresh(context.payload.script_id)
        executor, _, setup = execute(context)
        self._meeting.gather("set up", self._rank, context.box.name)
        return executor, setup

    def _refuse_provider(self) -> None:
        from bootstrap.providers.accounts import PROVIDERS, find_rented

        box, name = self._context.box, self._context.payload.profile.provider.account
        why = PROVIDERS[name].no_private_network if name else ""
        if not why or (box.target.is_rented and find_rented(box.target.text).cluster):
            return
        raise UsageError(
            f"train.nodes can't be on a box of {name}: {why}.",
            where=box.name,
            hint="Several boxes can still each train alone: --set train.nodes=1",
        )

    def has_begun(self, *, restart: bool) -> bool:
        """Whether this work was begun on all of them before. Raises BusyError if other work is
        alive on one, UsageError if some have begun it and others not."""
        state = self._context.box.ask(lambda box: box.refresh(self._context.payload.script_id))
        why, live = state.plan.get("train", ""), state.live_run
        word = "begun" if why in {"done", "failed", "died"} else "new"
        if word == "new" and live:
            word = live.name
        words = self._meeting.gather("work", self._rank, word)
        names = self._names()
        busy = [
            f"{names[at]} ({each})" for at, each in enumerate(words) if each not in ("begun", "new")
        ]
        if busy and not restart:
            raise BusyError(
                f"other work is running on {', '.join(busy)}; nothing was started.",
                hint="Wait for its end, or stop it: boxstrap stop; --restart does it first.",
            )
        if restart or "begun" not in words:
            return False
        if "new" in words:
            fresh = [names[at] for at, each in enumerate(words) if each == "new"]
            raise UsageError(
                f"this work was begun before, but not on {', '.join(fresh)}.",
                hint="To begin it again on all: --restart",
            )
        return True

    def begin(self, wanted: RunOptions, screen: Screen, show: Show) -> StartedRun:
        """Check the nodes, and start its run with those of the others; on all, or none."""
        context, meeting, rank = self._context, self._meeting, self._rank
        wanted = wanted.of(context.payload.profile)
        if wanted.queue:
            raise UsageError("a training of several nodes waits in no queue: each box has its own.")
        self._check(wanted)
        context.request = replace(context.request, holds=False, run=replace(wanted, nodes=self.id))
        # Mostly node 0 alone prints: nothing is waited for on the others.
        begun = begin_run(context, screen, show, waits=rank == 0)
        try:
            meeting.gather("started", rank, True)
        except BoxstrapError:
            with suppress(BoxstrapError):
                end_run(context.box, begun.run)
            raise
        return begun

    def _check(self, wanted: RunOptions) -> None:
        """Check that all can talk and are alike, and leave for each what it needs."""
        meeting, rank, names = self._meeting, self._rank, self._names()
        elastic = _ELASTIC.search(wanted.command)
        with _Check(self._context.box, wanted.gpus) as check:
            facts = meeting.gather("facts", rank, check.hear("facts"))
            if problems := differences(dict(zip(names, facts, strict=True))):
                raise BoxLacksError(
                    f"the nodes can't train together: {'; '.join(problems)}.",
                    hint="Nothing was started. Make them the same, or use other boxes.",
                )
            peers = [each["addresses"] for each in facts]
            check.say({"rank": rank, "token": meeting.check_token, "peers": peers})
            links = meeting.gather("links", rank, check.hear("links"))
            network = judge(names, announced(links, peers))
            if rank == 0:
                self._context.box.reporter.note("nodes", network.sentence(names))
                if slow := network.slow(names):
                    self._context.box.reporter.warn(slow)
            port, watch_port = facts[0]["ports"]
            wishes = {
                "rank": rank,
                "id": meeting.id,
                "token": meeting.token,
                "least": int(elastic[1]) if elastic else 0,
                "addresses": network.addresses,
                "names": names,
                "gpus": facts[rank]["gpus"],
                "port": port,
                "watch_port": watch_port,
            }
            check.say({"write": wishes})
            check.hear("written")
            meeting.gather("written", rank, True)

    def _names(self) -> list[str]:
        return self._meeting.said("set up")


class _Check:
    """The program `onbox/nodes/check.py` on one node. A context manager: leaving it ends that."""

    def __init__(self, box: BoxLogin, gpus: str) -> None:
        state = box.ask(lambda one: one.refresh())
        asked = {"tree": state.repo_dir, "venv": state.venv, "gpus": gpus}
        query = ask("nodes.check", asked, workdir=box.workdir)
        self._box, self._stream, self._held = box, stream_script(box.wire, query), b""

    def __enter__(self) -> _Check:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def say(self, word: Mapping[str, object]) -> None:
        """Send a line. Raises LinkLost."""
        with suppress(BrokenPipeError):  # what it says next tells why
            self._stream.write(json.dumps(word).encode() + b"\n")

    def hear(self, what: str) -> Any:  # noqa: ANN401 - as each answer is
        """Return the answer of this name. Raises LinkLost, BoxLacksError."""
        timer = threading.Timer(ANSWER_S, self._stream.close)
        timer.daemon = True
        timer.start()
        try:
            while b"\n" not in self._held and len(self._held) < _MOST_LINE:
                piece = self._stream.read(PIECE)
                if not piece:
                    break
                self._held += piece
        finally:
            timer.cancel()
        line, _, self._held = self._held.partition(b"\n")
        try:
            return read_answer(line, what)
        except NOT_AN_ANSWER:
            if not self._box.wire.alive():
                raise LinkLost(self._box.label) from None
            said = sanitize(self._stream.read_err()).strip().rpartition("\n")[2][:300]
            raise BoxLacksError(
                f"it did not answer the check of the nodes{said and ': ' + said}.",
                where=self._box.name,
                hint="Nothing was started. Run the same command again.",
            ) from None


_MOST_ADDRESSES = 64
NOT_AN_ANSWER = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError),
)


def read_answer(line: bytes, what: str) -> Any:  # noqa: ANN401 - as each answer is
    """Return what a node says, checked: it is a stranger's machine. Raises one of `NOT_AN_ANSWER`
    if it says something else."""
    said = json.loads(line)[what]
    if what == "facts":
        return {
            "same": {one_line(str(k))[:40]: one_line(str(v))[:80] for k, v in said["same"].items()},
            "packages": [one_line(str(each))[:120] for each in said["packages"]],
            "addresses": [
                [_address(each[0], of_node=True), _port(each[1])]
                for each in said["addresses"][:_MOST_ADDRESSES]
            ],
            "public": [_address(each) for each in said["public"][:_MOST_ADDRESSES]],
            "ports": [_port(said["ports"][at]) for at in range(2)],
            "gpus": min(1024, max(0, int(said["gpus"]))),
        }
    if what == "links":
        return {
            int(link["to"]): {
                _address(way["address"]): Way(*(_number(way[k]) for k in ("ahead", "ms", "mbps")))
                for way in link["by"]
            }
            for link in said
        }
    return one_line(str(said))[:40]


def _address(text: object, *, of_node: bool = False) -> str:
    """Return the address; the others dial that `of_node`, so it must be a private one."""
    address = IPv4Address(text if isinstance(text, str) else "")
    if of_node and not is_private(str(address)):
        raise ValueError("no private address")
    return str(address)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def _port(number: object) -> int:
    if not isinstance(number, int) or not 0 < number < 65536:
        raise ValueError("no port")
    return number


@dataclass(frozen=True)
class Way:
    ahead: float  # seconds by which the other one's clock is ahead
    ms: float
    mbps: float


Links = Mapping[int, Mapping[str, Way]]
"""What a node reaches: for each other rank, the addresses by which it does."""


@dataclass(frozen=True)
class Network:
    """The address of each node, and how they reach each other by it."""

    addresses: list[str]
    ways: Mapping[tuple[int, int], Way]

    def sentence(self, names: Sequence[str]) -> str:
        (a, b), slowest = min(self.ways.items(), key=lambda each: each[1].mbps)
        longest = max(way.ms for way in self.ways.values())
        return (
            f"{len(names)} reach each other: {slowest.mbps / 1000:.1f} Gbit/s at the least "
            f"({names[a]} to {names[b]}), {longest:.1f} ms at the most"
        )

    def slow(self, names: Sequence[str]) -> str:
        """Warn of the node that is much slower than the fastest; "" if there is none."""
        of_node = {
            at: max(way.mbps for pair, way in self.ways.items() if at in pair)
            for at in range(len(names))
        }
        slowest, fastest = min(of_node, key=lambda at: of_node[at]), max(of_node.values())
        if of_node[slowest] > fastest / _MUCH_SLOWER:
            return ""
        return (
            f"{names[slowest]} has {of_node[slowest]:.0f} Mbit/s to the others at the most, which "
            f"have up to {fastest:.0f} among themselves: all wait for the slowest"
        )


def differences(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what keeps these nodes from training together, each named; [] for nothing."""
    problems = []
    for name, each in facts.items():
        if not each["addresses"]:
            only = f" (only {', '.join(each['public'])})" if each["public"] else ""
            problems.append(
                f"{name} has no private address{only}: torch's c10d knows no authentication and "
                "NCCL no encryption, so not over public ones"
            )
    labels = dict.fromkeys(label for each in facts.values() for label in each["same"])
    for label in labels:
        values = {name: each["same"].get(label, "") for name, each in facts.items()}
        counts = Counter(values.values())
        usual = max(counts, key=lambda value: counts[value])
        for name, value in values.items():
            if value == usual:
                continue
            here, there = value, usual
            if label == "environment":
                here, there = _packages_apart(facts[name], facts, usual)
            problems.append(f"{name}: {label} {here or 'none'} (the others: {there or 'none'})")
    return problems


def _packages_apart(
    own: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]], usual: str
) -> tuple[str, str]:
    others = next(each for each in facts.values() if each["same"].get("environment") == usual)
    here = sorted({*own["packages"]} - {*others["packages"]})
    there = sorted({*others["packages"]} - {*own["packages"]})
    return ", ".join(first_of(here, _MOST_NAMED)), ", ".join(first_of(there, _MOST_NAMED))


def announced(
    links: Sequence[Links], peers: Sequence[Sequence[Sequence[object]]]
) -> list[dict[int, Mapping[str, Way]]]:
    """Return the links without addresses that the node itself, of these `peers`, did not name."""
    own = [{address for address, _ in each} for each in peers]
    return [
        {to: {one: way for one, way in ways.items() if one in own[to]}
         for to, ways in link.items() if 0 <= to < len(own)}
        for link in links
    ]  # fmt: skip


def judge(names: Sequence[str], links: Sequence[Links]) -> Network:
    """Choose the address of each node by which all others reach it, the fastest one. Raises
    BoxLacksError with the pairs that don't reach each other, and clocks that differ."""
    ranks = range(len(names))
    addresses, ways, unreachable = [], dict[tuple[int, int], Way](), []
    for to in ranks:
        others = [each for each in ranks if each != to]
        known = dict.fromkeys(address for each in others for address in links[each].get(to, {}))
        common = [each for each in known if all(each in links[one].get(to, {}) for one in others)]
        if common:
            best = max(common, key=lambda each: min(links[one][to][each].mbps for one in others))
            addresses.append(best)
            ways |= {(one, to): links[one][to][best] for one in others}
            continue
        cut = [one for one in others if not links[one].get(to)] or others
        unreachable += [f"{names[one]} does not reach {names[to]}" for one in cut]
    if unreachable:
        raise BoxLacksError(f"{'; '.join(unreachable)}.", hint=f"Nothing was started. {_NETWORK}")
    clocks = {to: median(ways[one, to].ahead for one in ranks if one != to) for to in ranks}
    wrong = [to for to, ahead in clocks.items() if abs(ahead) > MOST_APART_S]
    if wrong and len(names) == 2:  # either may be the wrong one
        wrong = [1]
    if wrong:
        told = [
            f"the clock of {names[to]} is {abs(clocks[to]):.0f} s "
            f"{'ahead of' if clocks[to] > 0 else 'behind'} the others'"
            for to in wrong
        ]
        raise BoxLacksError(
            f"{'; '.join(told)}.", hint="Nothing was started. Set it right, as by ntp."
        )
    return Network(addresses, ways)
