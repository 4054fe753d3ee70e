"""`status`: the state of the runs on a box and of its last setup, for one box or several."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from bootstrap.codes import explain
from bootstrap.errors import BoxstrapError, HostKeyError
from bootstrap.events import Event, parse
from bootstrap.link.answers import number
from bootstrap.link.handle import BoxOptions
from bootstrap.protocol.follow import file_tail
from bootstrap.protocol.probe import BoxState
from bootstrap.protocol.run import Run
from bootstrap.protocol.run_details import END_BYTES, UsedGpu
from bootstrap.runs.connection import (
    BoxConnection,
    KeyAndRoot,
    connect,
    current_repository,
    meant,
    redactor_of_all,
)
from bootstrap.runs.failure import Failure, find_failures
from bootstrap.runs.gpu_use import gpu_use
from bootstrap.runs.run_lines import metric_lines, run_lines
from bootstrap.runs.selection import repository_names
from bootstrap.secrets.values import warn_of_unredacted
from bootstrap.text.sizes import dollars, duration, size, spent
from bootstrap.ui.document import DocumentScreen
from bootstrap.ui.layout import aligned
from bootstrap.ui.screen import Screen

if TYPE_CHECKING:
    from bootstrap.link.record import KnownBox
    from bootstrap.protocol.trees import TreeUse

_EVENTS_BYTES = 16 * 1024
_ENDS = {
    5: "its last setup changed nothing",
    6: "returned",
    7: "its last setup failed",
    8: "its last setup did not begin",
}
"""What the exit codes of setups mean; the reason is added after it."""


@dataclass
class BoxStatus:
    """The status of one box, or the `error` if it could not be asked."""

    document: dict[str, object] = field(default_factory=dict)
    lines: Sequence[str] = ()
    error: BoxstrapError | None = None


def find_status(options: BoxOptions, screen: Screen) -> list[BoxStatus]:
    """Ask the box, or without a host all that are meant. An unreachable one hides no others.

    Raises the box's error if there is only one and it could not be asked.
    """
    boxes = [options] if options.host else meant(options, [])
    # With a host `connect` reads it later: a host that turns out invalid must leave no record.
    here = None if options.host else current_repository(options)
    if len(boxes) == 1:
        return [_ask(boxes[0], screen, here)]
    screen.redact = redactor_of_all(options).text
    return _ask_all(boxes, here)


def failure(found: Sequence[BoxStatus]) -> BoxstrapError | None:
    """Return the HostKeyError of any box, else the first error if no box could be asked."""
    errors = [status.error for status in found if status.error]
    host_keys = [error for error in errors if isinstance(error, HostKeyError)]
    return (host_keys or errors)[0] if host_keys or len(errors) == len(found) else None


def _ask_all(boxes: Sequence[BoxOptions], here: KeyAndRoot | None) -> list[BoxStatus]:
    """Ask all boxes in parallel, each in its own thread; their progress is not shown."""
    found = [BoxStatus() for _ in boxes]

    def look(at: int) -> None:
        name = str(boxes[at].host)
        try:
            found[at] = _ask(boxes[at], DocumentScreen(io.StringIO()), here)
        except BoxstrapError as error:
            found[at] = BoxStatus({"box": name}, [f"{name}: {error.what}"], error)

    threads = [
        threading.Thread(target=look, args=(at,), name=f"status {at}", daemon=True)
        for at in range(len(boxes))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _ask(options: BoxOptions, screen: Screen, here: KeyAndRoot | None) -> BoxStatus:
    with connect(options, screen, here, with_details=True) as connection:
        box_state, name = connection.box_state, connection.box.known.name
        failures = find_failures(
            box_state.runs, connection.details.log_ends, connection.redactor.text, END_BYTES
        )
        if any(failure.lines for failure in failures.values()):
            known, values = connection.box.known, connection.redactor.secrets
            warn_of_unredacted(known, box_state, screen, values)
        metrics = metric_lines(box_state.runs, connection.details.metrics, connection.redactor.text)
        why = _why(connection, _setup(box_state))
        return BoxStatus(
            _document(connection, why, failures, metrics),
            [
                *status_lines(
                    name,
                    box_state,
                    why,
                    connection.details.gpus,
                    failures,
                    metrics,
                    connection.box.known,
                ),
                *_tree_lines(connection.details.trees),
            ],
        )


def _document(
    connection: BoxConnection,
    why: Event | None,
    failures: Mapping[Run, Failure],
    metrics: Mapping[Run, str],
) -> dict[str, object]:
    box_state, gpus = connection.box_state, connection.details.gpus
    known = connection.box.known
    now, names = _box_time(box_state), repository_names({run.repo_key for run in box_state.runs})
    setup = {key: value for key, value in _setup(box_state).items() if key != "text"}
    if box_state.unfinished_switch:
        setup["switch"] = box_state.unfinished_switch
    if why:
        setup["why"] = {"step": why.step, "code": why.word("code")}
    runs = [
        {
            **run.as_dict(),
            "repository": names[run.repo_key],
            "seconds": run.seconds(now),
            "dollars": spent(run.seconds(now), known.price),
            "gpu_use": [use.as_dict() for use in gpu_use(run, box_state.runs, gpus)],
            "metric": metrics.get(run),
            "failure": failures[run].as_dict() if run in failures else None,
        }
        for run in box_state.runs
    ]
    trees = [tree.as_dict() for tree in connection.details.trees]
    return {
        "box": known.name,
        "price": known.price or None,
        "dollars": so_far(known),
        "lease": box_state.lease.as_dict() if box_state.lease else None,
        "setup": setup,
        "runs": runs,
        "trees": trees,
    }


def status_lines(  # noqa: PLR0913, PLR0917 - all from a box's answer
    name: str,
    box_state: BoxState,
    why: Event | None = None,
    gpus: Sequence[UsedGpu] = (),
    failures: Mapping[Run, Failure] = MappingProxyType({}),
    metrics: Mapping[Run, str] = MappingProxyType({}),
    known: KnownBox | None = None,
) -> list[str]:
    """Return the status as text; `why` is the event with which the box's last setup failed."""
    reason = f": {_reason(why)}" if why else ""
    lines = [f"{name}: {_setup(box_state)['text']}{reason}"]
    if box_state.unfinished_switch:
        lines.append(f"  {_switch(box_state)}: the next setup completes it")
    if known and known.price:
        lines.append(f"  {cost_so_far(known)}")
    if box_state.lease:
        lines += [f"  {line}" for line in box_state.lease.lines()]
    price = known.price if known else None
    runs = run_lines(box_state.runs, _box_time(box_state), gpus, failures, metrics, price)
    return [*lines, *(runs or ["no run was started here"])]


def so_far(known: KnownBox) -> float | None:
    """Return the dollars that the box has cost since it was rented, as this machine knows it."""
    return spent(max(0.0, time.time() - known.costs_since), known.price)


def cost_so_far(known: KnownBox) -> str:
    """Return that as a sentence, for a box whose price is known."""
    since = duration(max(0.0, time.time() - known.costs_since))
    met = "it was started" if known.since else "this machine first connected to it"
    return (
        f"{dollars(known.price)} an hour: about {dollars(so_far(known) or 0)} in the {since} "
        f"since {met}"
    )


def _tree_lines(trees: Sequence[TreeUse]) -> list[str]:
    if not trees:
        return []
    rows = [(f"  {tree.name}", _size(tree), _last_use(tree)) for tree in trees]
    return ["trees beside the main one (boxstrap clean removes what nobody needs):", *aligned(rows)]


def _size(tree: TreeUse) -> str:
    return "size unknown" if tree.bytes is None else size(tree.bytes)


def _last_use(tree: TreeUse) -> str:
    return f"last used by {tree.last_run}" if tree.last_run else "used by no run"


def _switch(box_state: BoxState) -> str:
    cut = box_state.unfinished_switch[:12]
    return f"the switch of {box_state.repo_dir} to {cut} was cut short"


def _setup(box_state: BoxState) -> dict[str, object]:
    last = box_state.last_setup
    if box_state.working:
        return {"id": box_state.working[0], "state": "at work", "text": "a setup is at work"}
    if not last:
        return {"id": None, "state": "none", "text": "no setup was made here"}
    code = last.get("exit")
    if last.get("state") == "running":
        return {"id": last.get("setup"), "state": "cut", "text": "its last setup was cut short"}
    usual = "is set up" if code == 0 else f"its last setup ended with exit code {code}"
    words = _ENDS.get(code, usual) if isinstance(code, int) else usual
    return {"id": last.get("setup"), "state": "over", "exit": code, "text": words}


def _why(connection: BoxConnection, setup: dict[str, object]) -> Event | None:
    """Return the event with which the last setup failed, if the box kept it."""
    if setup.get("exit") not in _ENDS:
        return None
    kept = f"setups/{setup['id']}/events.jsonl"
    tail = file_tail(connection.link.wire, kept, connection.workdir, _EVENTS_BYTES)
    events = [event for event in map(parse, tail.split(b"\n")) if event and event.word("code")]
    return next((event for event in events if event.event in ("fail", "done")), None)


def _reason(why: Event) -> str:
    """Return the reason in words, with the step unless it is obvious: `no GPU`."""
    what = explain(why.word("code"), why.fields).what.removeprefix("the box shows ")
    return what if why.step in ("setup", "gpu", "preflight") else f"{what} (step {why.step})"


def _box_time(box_state: BoxState) -> int:
    return number(box_state.facts.get("time", "")) or int(time.time())
