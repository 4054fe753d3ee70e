"""The same work on several boxes at a time: each in a thread, and one failure stops no other."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from bootstrap.errors import BoxesFailedError, BoxstrapError, TrainingFailedError, exit_code
from bootstrap.link.target import AT_ONCE, shortened
from bootstrap.sizes import first_of

_T = TypeVar("_T")

_SOON_S = 0.2  # seconds for which a Ctrl-C may wait at the most
_MOST_NAMED = 5


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """How the work on one box ended: with a value, or with an error."""

    host: str
    value: _T | None = None
    error: BoxstrapError | None = None
    seconds: float = 0.0


def fan_out(
    hosts: Sequence[str],
    work: Callable[[str], _T],
    *,
    done: Callable[[Outcome[_T]], None] = lambda _: None,
    at_once: int = AT_ONCE,
) -> list[Outcome[_T]]:
    """Call `work` for each host, `at_once` at a time; return how each ended, in the hosts' order.

    `done` is called in this thread, as each ends. A BoxstrapError is the outcome of its box; other
    errors are raised once all have ended. After Ctrl-C, which is raised at once, the threads are
    left alone: what they began on their boxes goes on there.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[int, Outcome[_T] | BaseException]] = queue.SimpleQueue()
    for at in range(len(hosts)):
        waiting.put(at)

    def take_turns() -> None:
        while True:
            try:
                at = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            try:
                value = work(hosts[at])
            except BoxstrapError as error:
                took = time.monotonic() - began
                ended.put((at, Outcome(hosts[at], error=error, seconds=took)))
            except BaseException as error:  # raised in the caller's thread
                ended.put((at, error))
            else:
                ended.put((at, Outcome(hosts[at], value, seconds=time.monotonic() - began)))

    for number in range(min(at_once, len(hosts))):
        threading.Thread(target=take_turns, name=f"box {number}", daemon=True).start()
    found: dict[int, Outcome[_T]] = {}
    broken: list[BaseException] = []
    while len(found) + len(broken) < len(hosts):
        try:
            at, outcome = ended.get(timeout=_SOON_S)
        except queue.Empty:
            continue
        if isinstance(outcome, BaseException):
            broken.append(outcome)
        else:
            found[at] = outcome
            done(outcome)
    if broken:
        raise broken[0]
    return [found[at] for at in range(len(hosts))]


def raise_for_failures(outcomes: Sequence[Outcome[_T]]) -> None:
    """Raise BoxesFailedError if any failed: with the code that all failures share, else with 7."""
    failed = [each for each in outcomes if each.error]
    if not failed:
        return
    codes = {exit_code(each.error) for each in failed if each.error}
    names = first_of([shortened(each.host) for each in failed], _MOST_NAMED)
    of_runs = all(isinstance(each.error, TrainingFailedError) for each in failed)
    what = "had a failed run" if of_runs else "failed"
    raise BoxesFailedError(
        f"{len(failed)} of {len(outcomes)} boxes {what}: {', '.join(names)}.",
        code=codes.pop() if len(codes) == 1 else BoxesFailedError.MIXED,
    )
