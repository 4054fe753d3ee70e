"""The same command again with nothing to do, near and 100 ms away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from tools.bench import clock
from tools.bench.competitors import ANSIBLE, BARE, BOXSTRAP, PYINFRA, Competitor, ssh_true
from tools.bench.fresh import once
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUPS = {
    False: "again, nothing to do: until the command is back",
    True: "again, nothing to do, 100 ms away",
}
_TRUE = "ssh host true"
_QUICK, _PEERS = (BOXSTRAP, BARE), (PYINFRA, ANSIBLE)
_NEAR_FACTOR = 1.7
_FAR_FACTOR, _FAR_MORE_S = 1.1, 0.2


def measure(
    stage: Stage, runs: int, places: dict[str, StagePlace], *, with_peers: bool = True
) -> list[BenchRow]:
    """Measure all in turn. `places` are boxes that are set up; missing ones are made."""
    parts = (*_QUICK, *(_PEERS if with_peers else ()))
    for competitor in parts:
        if competitor.key not in places:
            tell(f"{competitor.name}: a box to repeat on")
            places[competitor.key] = once(stage, competitor).place
    found: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for is_far in (False, True):
        for turn in range(runs + 1):
            counts = turn > 0  # the first turn is the first contact at this address
            for competitor in parts:
                took = _again(stage, competitor, places[competitor.key], is_far)
                if counts:
                    found[is_far, competitor.name].append(took)
            took = _login(stage, places[BOXSTRAP.key], is_far)
            if counts:
                found[is_far, _TRUE].append(took)
        tell(f"again, {'100 ms away' if is_far else 'near'}: {runs} of each")
    return _rows(found, parts)


def _at(stage: Stage, place: StagePlace, is_far: bool) -> StagePlace:
    return stage.far(place) if is_far else place


def _again(stage: Stage, competitor: Competitor, place: StagePlace, is_far: bool) -> float:
    calls = competitor.calls(stage, _at(stage, place, is_far))
    return sum(clock.run(call, stage.file("again.out")) for call in calls)


def _login(stage: Stage, place: StagePlace, is_far: bool) -> float:
    return clock.run(ssh_true(stage, _at(stage, place, is_far)), stage.file("true.out"))


def _rows(
    found: dict[tuple[bool, str], list[float]], parts: Sequence[Competitor]
) -> list[BenchRow]:
    near = _NEAR_FACTOR * median(found[False, _TRUE])
    far = _FAR_FACTOR * median(found[True, _TRUE]) + _FAR_MORE_S
    bars = {
        (False, BOXSTRAP.name): Bar(near, f"{_NEAR_FACTOR} of {_TRUE}"),
        (True, BOXSTRAP.name): Bar(far, f"{_FAR_FACTOR} of {_TRUE} + {_FAR_MORE_S} s"),
    }
    names = [_TRUE, *(competitor.name for competitor in parts)]
    return [
        BenchRow(GROUPS[is_far], name, found[is_far, name], bar=bars.get((is_far, name)))
        for is_far in GROUPS
        for name in names
    ]
