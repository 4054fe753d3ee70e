"""Keep this box, or return it?

`judge.py` documents the result; `summary` has it as lines for people and for sed: `verdict return`,
`driver 550.54.15`, `cuda 12.4`, `gpus 8`, then `reason OUTCOME CODE SENTENCE` and `advice
SENTENCE`, and what the step tells of it, for `report` of `step_report.py`. The driver alone is in
a file of its own, for what is asked without starting a process.

Data flow: readers (`gpu_reader.py` and others, by `readers.py`) -> facts -> the checks
(`gpu_checks.py`, `box_checks.py`; thresholds in `thresholds.py`) -> `judge.py`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from ..run_folder import write_whole
from .check import RETURN, WARN
from .expected_hardware import ExpectedHardware
from .gpu_errors import CRASH, HANG
from .judge import judge
from .readers import Facts, Reader, Report, run

LIMIT = 9.5  # seconds for reading the GPUs, so that a hang costs less than 10 in all


class Inquiry(NamedTuple):
    """What is asked of the box besides what was ordered."""

    workdir: str = ""
    """Its working folder, without which the machine isn't judged."""
    index_url: str = ""
    """A package index, without which the network isn't."""
    wheel: str = ""
    """A file of the index, to measure its speed with."""
    git: str = ""
    """The URL from which the box is to clone."""
    ahead: float | None = None
    """By how many seconds its clock is ahead of the user's machine."""
    limit: float = LIMIT


def read(asked: Inquiry, wanted: ExpectedHardware) -> Facts:
    """Return the facts that the readers report, in one document."""
    others = around(asked, wanted)
    gpus, *reports = run([Reader("gpu_reader", (), asked.limit), *others])
    surroundings = facts_of_surroundings(reports, asked, wanted)
    return {**gpus.facts, **stopped(gpus, asked.limit), **surroundings}


def stopped(report: Report, limit: float) -> Facts:
    """Return the problem that kept the GPUs from being read to the end, if any."""
    if report.whole:
        return {}
    problem = HANG if report.late else CRASH
    return {"stopped": problem._replace(says=problem.says.format(limit=limit, asked=report.last))}


def summary(result: dict[str, Any]) -> str:
    """Format the result as lines that start with a keyword."""
    lines = [f"verdict {result['verdict']}", f"gpus {len(result['gpus'])}"]
    lines += [f"{key} {result[key]}" for key in ("driver", "cuda") if result[key]]
    for reason in result["reasons"]:
        which = ", ".join(map(str, reason["gpus"]))
        says = f"GPU {which}: {reason['says']}" if which else reason["says"]
        lines.append(f"reason {reason['outcome']} {reason['code']} {says}")
        lines.append(f"advice {reason['advice']}")
    lines += [f"warn code={one['code']}" for one in result["reasons"] if one["outcome"] == WARN]
    if result["verdict"] == RETURN:  # the weightiest reason comes first
        lines.append(f"code {result['reasons'][0]['code']}")
    return "\n".join(lines) + "\n"


def write(document: dict[str, Any], file: str) -> None:
    write_whole(file, json.dumps(document) + "\n")


# Seconds for each reader: its own limits are lower, but it starts slowly on a busy box.
MACHINE_LIMIT = NETWORK_LIMIT = 6.0


def around(asked: Inquiry, wanted: ExpectedHardware) -> list[Reader]:
    """Return the readers of machine and network, without those that would slow down a live run."""
    chosen = []
    if asked.workdir:
        place = (asked.workdir, not wanted.run_alive)
        chosen.append(Reader("machine_reader", place, MACHINE_LIMIT))
    if asked.index_url and not wanted.run_alive:
        places = (asked.index_url, asked.wheel, asked.git)
        chosen.append(Reader("network_reader", places, NETWORK_LIMIT))
    return chosen


def facts_of_surroundings(reports: list[Report], asked: Inquiry, wanted: ExpectedHardware) -> Facts:
    """Merge their reports; None for what isn't measured while a run of boxstrap's is alive."""
    facts: Facts = {}
    for report in reports:
        del report.facts["gpus"]
        facts.update(report.facts)
    if wanted.run_alive:
        measured = {"disk_speed": asked.workdir, "index": asked.index_url}
        facts.update({key: None for key, asked in measured.items() if asked})
    ahead = {"index": facts.pop("date", None), "client": asked.ahead}
    if reports:
        facts["clock"] = {who: by for who, by in ahead.items() if by is not None}
    return facts


def ask(asked: Inquiry, wanted: ExpectedHardware) -> dict[str, Any]:
    """Return the verdict. Raises OwnError."""
    started = time.monotonic()
    return judge(read(asked, wanted), wanted, time.monotonic() - started)


def keep(result: dict[str, Any], file: str) -> None:
    write(result, file)
    write_whole(Path(file).with_suffix(".driver"), f"{result['driver'] or ''}\n")
