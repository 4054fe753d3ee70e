"""`python -m tools.bench`: run the benchmarks, print one table. Exit 1 when a bar is missed."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from tests.boxes import RigError
from tools.bench import (
    again,
    biglog,
    breakdown,
    fresh,
    init,
    logs,
    many,
    monitor,
    quiet,
    reuse,
    run,
    several,
    start,
    status,
    sync,
    transfer,
    uv,
    verify,
    warm,
)
from tools.bench.clock import BenchError
from tools.bench.competitors import BARE, BOXSTRAP, BOXSTRAP_NOUV
from tools.bench.fresh import FreshBench
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import BenchRow, as_text
from tools.bench.tell import load

_PARTS = ("fresh", "uv", "again", "verify", "logs", "start", "status", "sync", "run", "warm")
_ALONE = ("init", "reuse", "biglog", "monitor", "transfer", "many", "several", "64")
"""Measured only on request: whole builds, minutes of writing."""


def main() -> int:
    """Measure what was requested; return the exit code."""
    asked = _arguments()
    parts = [asked.only] if asked.only else _PARTS
    rows: list[BenchRow] = []
    found: dict[str, FreshBench] = {}
    places: dict[str, StagePlace] = {}
    before = load()
    with Stage(asked.cores) as stage:
        if "fresh" in parts:
            found, places = fresh.measure(stage, asked.runs, asked.peers_runs, asked.patience)
            rows += fresh.rows(found, asked.cores or os.cpu_count() or 1)
        if "uv" in parts:
            rows += uv.measure(stage, 2 * asked.again_runs, asked.patience)
        if "again" in parts:
            quiet.wait(asked.patience)
            rows += again.measure(stage, asked.again_runs, places, with_peers=asked.peers_runs > 0)
        if "verify" in parts:
            quiet.wait(asked.patience)
            rows += verify.measure(stage, asked.runs, asked.again_runs, asked.patience)
        if "logs" in parts:
            quiet.wait(asked.patience)
            rows += logs.measure(stage, asked.runs)
        if "start" in parts:
            quiet.wait(asked.patience)
            rows += start.measure(stage, asked.again_runs, places)
        if "status" in parts:
            quiet.wait(asked.patience)
            rows += status.measure(stage, asked.again_runs)
        if "sync" in parts:
            quiet.wait(asked.patience)
            rows += sync.measure(stage, asked.again_runs)
        if "run" in parts:
            quiet.wait(asked.patience)
            rows += run.measure(stage, asked.again_runs)
        if "warm" in parts:
            quiet.wait(asked.patience)
            rows += warm.measure(stage, asked.again_runs)
        if "several" in parts:
            rows += several.measure(stage, asked.again_runs, 16)
        if "64" in parts:
            rows += several.measure(stage, asked.again_runs, several.MANY)
        if "init" in parts:
            rows += init.measure(stage)
        if "reuse" in parts:
            rows += reuse.measure(stage, asked.runs, asked.patience)
        if "biglog" in parts:
            rows += biglog.measure(stage)
        if "monitor" in parts:
            rows += monitor.measure(stage, min(asked.runs, 3))
        if "transfer" in parts:
            rows += transfer.measure(stage, asked.runs, asked.large_mb)
        if "many" in parts:
            rows += many.measure(stage, asked.again_runs)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    print(f"{machine}; load before {before}, after {load()}; {time.strftime('%Y-%m-%d %H:%M')}\n")
    print(as_text(rows))
    if asked.breakdown:
        for competitor in (BARE, BOXSTRAP, BOXSTRAP_NOUV):
            if competitor.key in found:
                print(f"\n{breakdown.as_text(competitor.name, found[competitor.key].moments)}")
    if asked.json:
        asked.json.write_text(json.dumps(_document(machine, before, rows, found), indent=1) + "\n")
    return 1 if any(row.is_missed for row in rows) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="fresh runs and logs (default 3)")
    parser.add_argument(
        "--peers-runs", type=int, default=1, help="fresh runs of (a), (b), (c); 0: none of them"
    )
    parser.add_argument("--again-runs", type=int, default=5, help="runs of what is quick")
    parser.add_argument(
        "--large-mb", type=int, default=4000, help="transfer: size of its large file (4000)"
    )
    parser.add_argument("--cores", type=int, default=0, help="cores of each box (all)")
    parser.add_argument("--only", choices=(*_PARTS, *_ALONE))
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="SECONDS",
        help="how long each fresh run may wait until the cores are idle (0)",
    )
    parser.add_argument("--breakdown", action="store_true", help="where the time of fresh went")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, for programs")
    return parser.parse_args()


def _document(
    machine: str, before: str, rows: list[BenchRow], found: dict[str, FreshBench]
) -> dict[str, object]:
    return {
        "v": 1,
        "machine": machine,
        "load": [before, load()],
        "rows": [row.as_dict() for row in rows],
        "moments": {key: fresh.moments for key, fresh in found.items()},
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BenchError, RigError) as error:
        sys.exit(f"bench: {error}")
