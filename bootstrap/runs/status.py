"""`status`: the state of the runs on a box and of its last setup, for one box or several."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bootstrap.boxes.at_home import LOG, RunAtHome, kept_of_repository
from bootstrap.boxes.disk import LowDisk
from bootstrap.boxes.failure import RunThatEnded, find_failures
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import BoxLease, BoxState
from bootstrap.boxes.run import (
    MADE_NOTHING,
    Run,
    RunOnABox,
    blocked_words,
    called,
    repository_names,
)
from bootstrap.boxes.run_details import (
    NO_DETAILS,
    GpuUse,
    ResultsThere,
    RunDetails,
    gpu_use,
    gpus_in_words,
    seen_from,
)
from bootstrap.boxes.secrets import redactor_of_all
from bootstrap.boxes.trees import risk_in_words
from bootstrap.errors import BoxstrapError, HostKeyError, UnreachableError
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.link.registry import meant
from bootstrap.link.target import BoxOptions, KeyAndRoot
from bootstrap.onbox.run_folder import END_BYTES
from bootstrap.providers import WITH_CONTRACTS
from bootstrap.runs.known_runs import (
    WIDEST_COMMAND,
    as_of,
    box_or_home,
    find_gone,
    known_of_host,
)
from bootstrap.sizes import dollars, duration, size, spent, spent_in_words
from bootstrap.steps.event_codes import explain
from bootstrap.steps.events import Event, parse_event
from bootstrap.ui.layout import aligned, cut, laid_out
from bootstrap.ui.screen import Screen
from bootstrap.ui.screens import JsonScreen
from bootstrap.value import Document, dataclass, replace

if TYPE_CHECKING:
    from bootstrap.boxes.trees import RiskyFolder, TreeUse
    from bootstrap.providers.offer import RentedBox


class AtHome(NamedTuple):
    """What is known here of a run whose box is gone, or could not be asked."""

    seen: float
    log: str | None
    results: str


@dataclass(frozen=True)
class RunStatus(RunThatEnded):
    """A run, as `status` tells of it."""

    KEYS = f"{RunOnABox.KEYS}, gpu_use, metric, disk, untold, failure, results"

    gpu_use: tuple[GpuUse, ...] = ()
    disk: LowDisk | None = None
    untold: tuple[str, ...] = ()
    results: ResultsThere | None = None


@dataclass(frozen=True)
class RunFromHome(RunStatus):
    """The same of a run whose box was not asked."""

    KEYS = f"{RunOnABox.KEYS}, gpu_use, metric, failure, from_home"

    from_home: AtHome | None = None


_SHOWN = 10
"""Number of ended runs shown; runs that are live or wait for their turn are always shown."""
_FIRST = 4  # number of a run's cells that stand in the first of two lines: name, state, times, cost
_NEXT = {
    "died": "{}; to start it again: boxstrap setup --restart{}",
    "waiting": "the next boxstrap setup of its work begins it",
}
"""What to do about a run that died, or never started."""


def run_lines(
    rows: Sequence[RunStatus], now: int, *, width: int | None = None, own: str = "", box: str = ""
) -> list[str]:
    """Newest first; with the log's end for the newest failed run, a sentence for other failed ones.

    Those of `own`, the key on the box of the repository that is meant, come first; of the others
    only those that go on are shown. "" is no repository: then all are meant.
    A run takes two lines where one would be wider than `width` columns. Commands name the `box`.
    """
    there = f" --host {box}" if box else ""
    shown, others = _chosen(rows, own)
    cells = [
        (
            *_cells(row, now),
            spent_in_words(row.seconds, row.price),
            gpus_in_words(row.run, row.gpu_use),
            *_about(row, now),
        )
        for row in shown
    ]
    newest = next((row for row in shown if row.failure), None)
    lines: list[str] = []
    for row, of_run in zip(shown, laid_out(cells, width, _FIRST), strict=True):
        below = [row.metric] if row.metric else []
        below += filter(None, [blocked_words(row.run, (one.run for one in rows), there)])
        below += [f"{row.disk.words()}. See: boxstrap clean{there}"] if row.disk else []
        below += [*row.untold, *_below(row, there, whole=row is newest)]
        lines += [*of_run, *(f"      {line}" for line in below)]
    older = len(rows) - len(shown) - others
    left_out = [f"{older} older ones"] if older else []
    left_out += [f"{others} of other repositories"] if others else []
    none = "" if lines else "no run of this repository, "
    return [*lines, f"  {none}and {' and '.join(left_out)}: --json has all"] if left_out else lines


def _chosen(rows: Sequence[RunStatus], own: str) -> tuple[list[RunStatus], int]:
    mine = [row for row in rows if own in {"", row.run.repo_key}]
    live = [row for row in rows if own not in {"", row.run.repo_key} and row.run.goes_on]
    left_out = {*[row.run for row in mine if not row.run.goes_on][_SHOWN:]}
    others = len(rows) - len(mine) - len(live)
    return [*(row for row in mine if row.run not in left_out), *live], others


def _cells(row: RunStatus, now: int) -> tuple[str, ...]:
    run = row.run
    where = f" in {run.tree}" if run.tree else ""
    if node := run.node:
        all_ = f" on {len(node.names)} nodes: {', '.join(node.names)}"
        where += f" (node {node.rank} of {node.names[0]}'s)" if node.rank else all_
    from_home = isinstance(row, RunFromHome)
    old = f", as of {_ago(row.now, now)}" if from_home and run.goes_on else ""
    name = f"  {row.repository}/{called(run.name)}{where}"
    return (name, f"{run.outcome()}{old}", _when(run, now))


def _about(row: RunStatus, now: int) -> tuple[str, ...]:
    run, results = row.run, row.results
    quiet = f", last wrote {_ago(run.written, now)}" if run.state == "running" else ""
    log = f"log {size(run.log_bytes)}{quiet}"
    # What changes all the time is not noted here.
    if isinstance(row, RunFromHome) and not run.log_bytes:
        log = ""
    elif run.made_nothing(results.files if results else 0):
        log = MADE_NOTHING
    return (log, str(results or ""), run.short_commit, cut(run.typed, WIDEST_COMMAND))


def _when(run: Run, now: int) -> str:
    if run.state == "queued":
        return f"made {_ago(run.started, now)}"
    if run.over:
        took = run.seconds(now)
        return f"ended {_ago(run.over, now)}" + ("" if took is None else f", ran {duration(took)}")
    return f"started {_ago(run.begun or run.started, now)}"


def _ago(moment: int, now: int) -> str:
    return f"{duration(max(0, now - moment))} ago"


def _below(row: RunStatus, there: str, *, whole: bool) -> list[str]:
    run, failure = row.run, row.failure
    lines = []
    if failure:
        # Skip it if the log lines below repeat it.
        is_said = whole and failure.what in failure.lines
        lines += [failure.what] if failure.what and not is_said else []
        lines += [f"| {line}" for line in failure.lines] if whole else []
        lines += [failure.hint] if failure.hint and whole else []
    if run.uploaded:
        lines.append(run.uploaded.sentence())
    if run.resumed_by:
        return [*lines, f"{run.resumed_by} went on from it"]
    if run.interruption and run.is_over and run.begun:
        lines.append(f"to go on on another box: boxstrap up --resume {run.name}")
    made_none = row.results is not None and row.results.where == "none"
    what = "its log is still there" if made_none else "its log and results are still there"
    if run.can_resume:
        lines.append(f"{what}; to resume it: boxstrap run --resume {run.name}{there}")
    elif run.state == "died" and run.left:
        lines.append(f"to end what lives on of it: boxstrap stop --run {run.name}{there}")
    elif run.state in _NEXT:
        lines.append(_NEXT[run.state].format(what, there))
    return lines


_EVENTS_BYTES = 16 * 1024
_CONTRACT_S = 3.0  # how long to wait for an account once the box has answered
_ENDS = {
    5: "its last setup{} changed nothing",
    6: "to be returned",
    7: "its last setup{} failed",
    8: "its last setup{} did not begin",
}
"""What the exit codes of setups mean; what it was of stands in it, the reason after it."""


class SetupFailure(NamedTuple):
    """The step with which a setup failed, and its code."""

    step: str
    code: str


@dataclass
class LastSetup(Document):
    """The last setup on a box. `state`: none, at work, cut, over."""

    KEYS = "id, state, of?, exit??, switch?, why?"

    id: str | None
    state: str
    text: str
    of: str | None = None  # the repository and the commit that it was of
    exit: int | None = None
    switch: str | None = None  # the commit of a switch that was cut short
    why: SetupFailure | None = None

    def absent(self) -> Collection[str]:
        """Return the keys that are missing now; one that is over has its exit code, or null."""
        return {*super().absent()} - ({"exit"} if self.state == "over" else set())


class RentalContract(NamedTuple):
    """When a box's contract ends, and what more its host asks for."""

    ends: float | None
    price_increase: float | None


@dataclass
class BoxStatus(Document):
    """One box, as `status` tells of it, or the `error` if it could not be asked."""

    KEYS = (
        "box, price??, dollars??, dollars_before??, lease??, setup?, runs?, trees?, at_risk?, "
        "ends??=contract.ends, price_increase??=contract.price_increase, error?"
    )

    box: str
    price: float | None = None
    dollars: float | None = None
    dollars_before: float | None = None
    lease: BoxLease | None = None
    setup: LastSetup | None = None
    runs: Sequence[RunStatus | RunFromHome] | None = None
    trees: Sequence[TreeUse] | None = None
    at_risk: Sequence[RiskyFolder] | None = None
    contract: RentalContract | None = None
    lines: Sequence[str] = ()  # the same as text
    error: BoxstrapError | None = None

    def absent(self) -> Collection[str]:
        """Return what is unknown of a box that was not asked."""
        asked = () if self.setup else ("dollars", "dollars_before", "lease", "setup", "at_risk")
        known = () if self.runs is not None else ("price", "runs", "trees")
        contract = () if self.contract else ("ends", "price_increase")
        return {*asked, *known, *contract, *(() if self.error else ("error",))}


@dataclass
class StatusOfAll(Document):
    """All boxes: read `boxes`. Of a single one the keys are at the top level too, since the first
    documents of this version had only these. `why`: why there is none, and what there is instead.
    """

    KEYS = "**single, boxes, why?"

    boxes: Sequence[BoxStatus]
    why: str | None = None

    @property
    def single(self) -> BoxStatus | None:
        return self.boxes[0] if len(self.boxes) == 1 else None


def find_status(
    options: BoxOptions, screen: Screen, name: str | None = None, hosts: Sequence[str] = ()
) -> list[BoxStatus]:
    """Ask the box, or `hosts`, or all that are meant. An unreachable one hides no others.

    `name`: only this run, which is shown from home if its box is gone. Raises the box's error if
    there is only one, it could not be asked, and none of its runs is at home.
    """
    if name is not None:
        return [_of_run(options, screen, name)]
    if not hosts and find_gone(options):
        return [_from_home(options, "it was given back", screen.width)]
    boxes = [options] if options.host else meant(options, hosts)
    # With a host `connect` reads it later: a host that turns out invalid must leave no record.
    here = None if options.host else options.repository
    if len(boxes) == 1:
        try:
            return [_ask(boxes[0], screen, here)]
        except UnreachableError as error:
            told = _from_home(boxes[0], error.what, screen.width)
            if not told.runs:
                raise
            return [replace(told, error=error)]
    screen.redact = redactor_of_all(options).text
    return _ask_all(boxes, here, screen.width)


def _of_run(options: BoxOptions, screen: Screen, name: str) -> BoxStatus:
    found = box_or_home(options, screen, [name], with_details=True)
    if isinstance(found, list):
        screen.redact = redactor_of_all(options).text
        return _from_home(options, "", screen.width, found)
    with found as box:
        runs = tuple(box.runs(name)[:1])
        box.state, box.own = replace(box.state, runs=runs), ""  # it is shown, whosever it is
        return _told(box, screen.width, with_trees=False)


def _from_home(
    options: BoxOptions, why: str, width: int | None, named: Sequence[RunAtHome] = ()
) -> BoxStatus:
    """Return what is known here of a box's runs, or of one `named`; `why` the box is not asked."""
    host = options.host or ""
    found = named or known_of_host(host)
    if not found:
        return BoxStatus(host, lines=[f"{host}: {why}"])
    runs, last = [one.run for one in found], max(found, key=lambda one: one.seen)
    now, box = int(last.now(time.time())), found[0].box
    mine = kept_of_repository(found, options.repository[0])
    ends = {f"{one.repository}/{one.run.name}": one.log_tail(END_BYTES) for one in found}
    failures = find_failures(runs, ends, str)
    names = repository_names({run.repo_key for run in runs})
    rows = [
        RunFromHome(
            one.run,
            names[one.repository],
            one.box_time or int(one.seen),
            one.price,
            one.metric or None,
            failures.get(one.run),
            from_home=AtHome(one.seen, f"{one.place}/{LOG}" if one.place else None, one.results),
        )
        for one in found
    ]
    lines = [f"{box}: {why.rstrip('.')}; from home:" if why else as_of(found[0])]
    own = "" if named else mine[0].repository if mine else options.repository[0]
    lines += run_lines(rows, now, width=width, own=own, box=box)
    return BoxStatus(box, found[0].price or None, runs=rows, trees=(), lines=lines)


def failure(found: Sequence[BoxStatus]) -> BoxstrapError | None:
    """Return the HostKeyError of any box, else the first error if no box could be asked."""
    errors = [status.error for status in found if status.error]
    host_keys = [error for error in errors if isinstance(error, HostKeyError)]
    return (host_keys or errors)[0] if host_keys or len(errors) == len(found) else None


def _ask_all(
    boxes: Sequence[BoxOptions], here: KeyAndRoot | None, width: int | None
) -> list[BoxStatus]:
    """Ask all boxes in parallel, each in its own thread; their progress is not shown."""
    found = [BoxStatus(str(box.host)) for box in boxes]

    def look(at: int) -> None:
        try:
            found[at] = _ask(boxes[at], JsonScreen(io.StringIO()), here, width)
        except UnreachableError as error:
            found[at] = replace(_from_home(boxes[at], error.what, width), error=error)
        except BoxstrapError as error:
            name = str(boxes[at].host)
            found[at] = BoxStatus(name, lines=[f"{name}: {error.what}"], error=error)

    threads = [
        threading.Thread(target=look, args=(at,), name=f"status {at}", daemon=True)
        for at in range(len(boxes))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _ask(
    options: BoxOptions, screen: Screen, here: KeyAndRoot | None, width: int | None = None
) -> BoxStatus:
    contract = _Contract(options.host or "")
    with BoxLogin.open(options, screen, here, with_details=True) as box:
        told = _told(box, screen.width if width is None else width)
    contract.add_to(told)
    return told


class _Contract:
    """When a box's contract ends, and what more its host asks for: its account knows that. It is
    asked at the same time as the box, and left out if it doesn't answer."""

    def __init__(self, host: str) -> None:
        known = (one.host_text for one in all_boxes() if one.name == host)
        self._host = next(known, host)
        self._box: RentedBox | None = None
        self._asking: threading.Thread | None = None
        if self._host.partition(":")[0] in WITH_CONTRACTS:
            self._asking = threading.Thread(target=self._ask, name="contract", daemon=True)
            self._asking.start()

    def _ask(self) -> None:
        from bootstrap.runs.rented import with_contract  # here, as most boxes have none

        self._box = with_contract(self._host)

    def add_to(self, told: BoxStatus) -> None:
        if self._asking:
            self._asking.join(_CONTRACT_S)
        if box := self._box:
            from bootstrap.runs.rented import contract_words

            told.contract = RentalContract(box.ends, box.increase)
            words = [f"  {', '.join(found)}"] if (found := contract_words(box, time.time())) else []
            told.lines = [*told.lines[:1], *words, *told.lines[1:]]


def _told(box: BoxLogin, width: int | None, *, with_trees: bool = True) -> BoxStatus:
    box_state, known, details = box.state, box.known, box.details
    rows = rows_of(box_state, details, known, box.redactor.text)
    if any(row.failure and row.failure.lines for row in rows):
        box.warn_of_unredacted()
    setup = _setup(box_state)
    why = _why(box, setup)
    setup.switch = box_state.unfinished_switch or None
    setup.why = SetupFailure(why.step, why.word("code")) if why and setup.exit else None
    trees = [one for one in details.trees if with_trees and box.own in {"", one.repo_key}]
    return BoxStatus(
        known.name,
        known.price or None,
        so_far(known),
        known.before or None,
        box_state.lease,
        setup,
        rows,
        details.trees,
        [one for each in details.at_risk for one in each],
        lines=[
            *status_lines(box.name, box_state, rows, why, known, width, box.own),
            *_tree_lines(trees),  # those that `clean` means
            *risk_in_words(box.name, details.at_risk),
        ],
    )


def rows_of(
    box_state: BoxState,
    details: RunDetails = NO_DETAILS,
    known: KnownBox | None = None,
    redact: Callable[[str], str] = str,
) -> list[RunStatus]:
    """Return what the box told of each of its runs, and what is known of the box."""
    runs, now = box_state.runs, _box_time(box_state)
    failures = find_failures(runs, details.log_ends, redact)
    metrics = details.metric_lines(redact)
    names = repository_names({run.repo_key for run in runs})
    return [
        RunStatus(
            run,
            names[run.repo_key],
            now,
            known.price if known else None,
            metrics.get(run.path),
            failures.get(run),
            gpu_use(run, runs, details.gpus),
            details.disks.get(run.path),
            details.untold.get(run.path, ()),
            seen_from(known, run, details.results.get(run.path)),
        )
        for run in runs
    ]


def status_lines(  # noqa: PLR0913, PLR0917 - each from another place
    name: str,
    box_state: BoxState,
    rows: Sequence[RunStatus],
    why: Event | None = None,
    known: KnownBox | None = None,
    width: int | None = None,
    own: str = "",
) -> list[str]:
    """Return the status as text; `why` is what `_why` returned."""
    if why and any(row.run.begun > why.t for row in rows):
        told = "is set up"  # that setup's failure is past
    else:
        told = _setup(box_state).text + (f": {_reason(why)}" if why else "")
    lines = [f"{name}: {told}"]
    if box_state.unfinished_switch:
        cut = f"the switch of {box_state.repo_dir} to {box_state.unfinished_switch[:12]}"
        lines.append(f"  {cut} was cut short: the next setup completes it")
    if known and known.price:
        lines.append(f"  {cost_so_far(known)}")
    if box_state.lease:
        lines += [f"  {line}" for line in box_state.lease.lines()]
    runs = run_lines(rows, _box_time(box_state), width=width, own=own, box=name)
    return [*lines, *(runs or ["no run was started here"])]


def so_far(known: KnownBox) -> float | None:
    """Return the dollars that the box has cost since it was rented, as this machine knows it."""
    return spent(max(0.0, time.time() - known.costs_since), known.price)


def cost_so_far(known: KnownBox) -> str:
    """Return that as a sentence, for a box whose price is known."""
    since = duration(max(0.0, time.time() - known.costs_since))
    met = "it was started" if known.since else "this machine first connected to it"
    before = f", and {dollars(known.before)} on boxes before it" if known.before else ""
    return (
        f"{dollars(known.price)} an hour: about {dollars(so_far(known) or 0)} in the {since} "
        f"since {met}{before}"
    )


def _tree_lines(trees: Sequence[TreeUse]) -> list[str]:
    if not trees:
        return []
    rows = [
        (
            f"  {tree.name}",
            "size unknown" if tree.bytes is None else size(tree.bytes),
            f"last used by {tree.last_run}" if tree.last_run else "used by no run",
        )
        for tree in trees
    ]
    return ["trees beside the main one (boxstrap clean removes what nobody needs):", *aligned(rows)]


def _setup(box_state: BoxState) -> LastSetup:
    last = box_state.last_setup
    if box_state.working:
        words = f"a {box_state.holder or 'setup is at work'}"
        return LastSetup(box_state.working[0], "at work", words)
    if not last:
        return LastSetup(None, "none", "no setup was made here")
    id_, code = str(last.get("setup")), last.get("exit")
    code = code if isinstance(code, int) else None
    what = str(last.get("of") or "")
    of = f", of {what}," if what else ""
    if last.get("state") == "running":
        return LastSetup(id_, "cut", f"its last setup{of} was cut short", what or None)
    usual = "is set up" if code == 0 else f"its last setup{of} ended with exit code {code}"
    words = usual if code is None else _ENDS.get(code, usual).format(of)
    return LastSetup(id_, "over", words, what or None, code)


def _why(box: BoxLogin, setup: LastSetup) -> Event | None:
    """Return the event with which it failed, or with which the step began that is at work."""
    is_at_work = setup.state == "at work"
    if not is_at_work and setup.exit not in _ENDS:
        return None
    tail = box.tail(f"setups/{setup.id}/events.jsonl", _EVENTS_BYTES)
    events = [*filter(None, map(parse_event, tail.split(b"\n")))]
    if is_at_work:
        over = {event.step for event in events if event.event in ("ok", "fail", "skip")}
        begun = (one for one in events[::-1] if one.event == "start" and one.step not in over)
        return next(begun, None)
    ends = (event for event in events if event.event in ("fail", "done") and event.word("code"))
    return next(ends, None)


def _reason(why: Event) -> str:
    """Return the reason in words, with the step unless it is obvious: `no GPU`."""
    if why.event == "start":
        return why.step
    what = explain(why.word("code"), why.fields).what.removeprefix("the box shows ")
    return what if why.step in ("setup", "gpu", "preflight") else f"{what} (step {why.step})"


def _box_time(box_state: BoxState) -> int:
    return box_state.time or int(time.time())
