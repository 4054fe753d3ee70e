"""From the command to the first training step, on a new box."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tools.bench import clock, quiet
from tools.bench.breakdown import Moments, moments
from tools.bench.clock import BenchError
from tools.bench.competitors import BARE, BOXSTRAP, BOXSTRAP_NOUV, QUICK, SLOW, Competitor
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "fresh: from the command to the first training step"
_STEP_LIMIT_S = 120
_OF_BARE, _OF_BARE_ON_ONE_CORE, _FOR_UV_S = 0.85, 1.05, 1.0


@dataclass
class FreshBench:
    """All fresh runs of one competitor."""

    first_step: list[float] = field(default_factory=list)
    returned: list[float] = field(default_factory=list)
    moments: list[Moments] = field(default_factory=list)


@dataclass(frozen=True)
class FreshRun:
    """One fresh run: seconds to its first step and to the command's end, and its box."""

    place: StagePlace
    first_step: float
    returned: float
    moments: Moments


def measure(
    stage: Stage, runs: int, slow_runs: int, patience: float
) -> tuple[dict[str, FreshBench], dict[str, StagePlace]]:
    """Run all in turn; return the figures, and one box of each that is set up."""
    found: dict[str, FreshBench] = {}
    places: dict[str, StagePlace] = {}
    warm(stage)
    for turn in range(max(runs, slow_runs)):
        for competitor in _order(turn, runs, slow_runs):
            quiet.wait(patience)
            done = once(stage, competitor)
            tell(f"{competitor.name}: first step after {done.first_step:.2f} s")
            fresh = found.setdefault(competitor.key, FreshBench())
            fresh.first_step.append(done.first_step)
            fresh.returned.append(done.returned)
            fresh.moments.append(done.moments)
            if competitor.key in places or not competitor.can_repeat:
                done.place.box.stop()
            else:
                places[competitor.key] = done.place
    return found, places


def _order(turn: int, runs: int, slow_runs: int) -> Iterator[Competitor]:
    """Start each turn with another competitor, so that none always gets the quiet moment."""
    if turn < runs:
        first = turn % len(QUICK)
        yield from QUICK[first:] + QUICK[:first]
    if turn < slow_runs:
        yield from SLOW


def once(stage: Stage, competitor: Competitor) -> FreshRun:
    """Do one run on its own box. The clock is this machine's, the same for all."""
    place = stage.box(competitor.kind)
    calls = competitor.calls(stage, place)
    log = stage.file(f"{place.box.name}.out")
    # Watched through /proc, so that nothing extra runs on the box.
    root = Path(f"/proc/{place.box._alive()}/root")
    pattern = competitor.log.lstrip("/")
    watch = clock.Stopwatch(lambda: any(_has_begun(file) for file in root.glob(pattern)))
    watch.start()
    epoch = time.time()
    began = time.perf_counter()
    for call in calls:
        clock.run(call, log)
    returned = time.perf_counter() - began
    try:
        first_step = watch.wait(_STEP_LIMIT_S) - began
    except BenchError as error:
        said = "\n".join(file.read_text()[-2000:] for file in root.glob(pattern))
        raise BenchError(f"{competitor.name}: {error}; the training's output:\n{said}") from None
    return FreshRun(place, first_step, returned, moments(root, epoch))


def _has_begun(file: Path) -> bool:
    return b"step 1 " in file.read_bytes()


def warm(stage: Stage) -> None:
    """Do one uncounted install of each sort, so that all find the same warm mirror."""
    tell("warming the mirror")
    for competitor in (BARE, BOXSTRAP_NOUV):
        once(stage, competitor).place.box.stop()
    place = stage.box("vast")
    place.box.write("/tmp/list", (stage.homework / "requirements.txt").read_text())
    place.box.run(
        "python3 -m venv /tmp/v && /tmp/v/bin/pip install -q --upgrade pip &&"
        " /tmp/v/bin/pip install -q --dry-run -r /tmp/list",
        timeout=600,
    )
    place.box.stop()


def rows(found: dict[str, FreshBench], cores: int) -> list[BenchRow]:
    """Return the figures, with their bars."""
    bare = median(found[BARE.key].first_step)
    ours = median(found[BOXSTRAP.key].first_step)
    share = _OF_BARE if cores > 1 else _OF_BARE_ON_ONE_CORE
    bars = {
        BOXSTRAP.key: Bar(share * bare, f"{share} of (d); it is {ours / bare:.2f}"),
        BOXSTRAP_NOUV.key: Bar(ours + _FOR_UV_S, f"{_FOR_UV_S:.0f} s over boxstrap with uv there"),
    }
    return [
        BenchRow(
            GROUP,
            competitor.name,
            found[competitor.key].first_step,
            bar=bars.get(competitor.key),
            note=f"command back after {median(found[competitor.key].returned):.2f} s"
            if competitor.key not in bars
            else "",
        )
        for competitor in (BARE, BOXSTRAP, BOXSTRAP_NOUV, *SLOW)
        if competitor.key in found
    ]
