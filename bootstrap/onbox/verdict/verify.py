"""Keep this box, or return it? `onbox verdict.verify --order ORDER.json --out RESULT.json`.

The order has the keys of `ExpectedHardware`; `judge.py` documents the result. Exit
code: 0 keep or warn, 6 return, 1 own error. Standard output gets the result as
lines for people and for sed: `verdict return`, `driver 550.54.15`, `cuda 12.4`,
`gpus 8`, then `reason OUTCOME CODE SENTENCE` and `advice SENTENCE`, and what the
step tells of it, for `report` of `step_report.py`. The driver alone is in
a file of its own, for what is asked without starting a process. With `--out -` it
gets only the result itself, as JSON.

Data flow: readers (`gpu_reader.py` and others, by `readers.py`) -> facts -> the checks
(`gpu_checks.py`, `box_checks.py`; thresholds in `thresholds.py`) -> `judge.py`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from getopt import GetoptError, getopt  # importing argparse takes as long as all of our code
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..run_folder import write_whole
from .check import RETURN, WARN
from .expected_hardware import ExpectedHardware, parse_expected
from .gpu_errors import CRASH, HANG
from .judge import judge
from .readers import Facts, OwnError, Reader, Report, run

LIMIT = 9.5  # seconds for reading the GPUs, so that a hang costs less than 10 in all

# Options with a value, and their defaults: the file with the order, as JSON; the file for the
# result, - is standard output; seconds for reading the GPUs; the working folder, without which the
# machine isn't judged; a package index, without which the network isn't, and a file of it to
# measure its speed with; the URL from which the box is to clone; by how many seconds the box's
# clock is ahead of the user's machine.
OPTIONS: dict[str, Any] = {
    **{"order": "", "out": "-", "limit": LIMIT, "workdir": ""},
    **{"index": "", "wheel": "", "git": "", "ahead": None},
}


def read(options: SimpleNamespace, wanted: ExpectedHardware) -> Facts:
    """Return the facts that the readers report, in one document."""
    others = around(options, wanted)
    gpus, *reports = run([Reader("gpu_reader", (), options.limit), *others])
    surroundings = facts_of_surroundings(reports, options, wanted)
    return {**gpus.facts, **stopped(gpus, options.limit), **surroundings}


def stopped(report: Report, limit: float) -> Facts:
    """Return the problem that kept the GPUs from being read to the end, if any."""
    if report.whole:
        return {}
    problem = HANG if report.late else CRASH
    return {"stopped": problem._replace(says=problem.says.format(limit=limit, asked=report.last))}


def read_expected(path: str) -> ExpectedHardware:
    """Read what was ordered. Raises OwnError."""
    try:
        return parse_expected(Path(path).read_text("utf-8"))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise OwnError(f"the order {path} can't be read: {error}") from error


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


def parse(words: Sequence[str]) -> SimpleNamespace:
    """Parse the options; those without a text as default are numbers. Raises OwnError."""
    options = SimpleNamespace(**OPTIONS, run_alive=False)
    try:
        named = ["run-alive", *(f"{name}=" for name in OPTIONS)]
        for option, value in getopt(list(words), "", named)[0]:
            name = option[2:]
            if name == "run-alive":
                options.run_alive = True
            else:
                setattr(options, name, value if isinstance(OPTIONS[name], str) else float(value))
    except (GetoptError, ValueError) as error:
        raise OwnError(str(error)) from error
    return options


# Seconds for each reader: its own limits are lower, but it starts slowly on a busy box.
MACHINE_LIMIT = NETWORK_LIMIT = 6.0


def around(options: SimpleNamespace, wanted: ExpectedHardware) -> list[Reader]:
    """Return the readers of machine and network, without those that would slow down a live run."""
    chosen = []
    if options.workdir:
        write = () if wanted.run_alive else ("--write",)
        chosen.append(Reader("machine_reader", (options.workdir, *write), MACHINE_LIMIT))
    if options.index and not wanted.run_alive:
        git = ("--git", options.git) if options.git else ()
        words = ("--index", options.index, "--wheel", options.wheel, *git)
        chosen.append(Reader("network_reader", words, NETWORK_LIMIT))
    return chosen


def facts_of_surroundings(
    reports: list[Report], options: SimpleNamespace, wanted: ExpectedHardware
) -> Facts:
    """Merge their reports; None for what isn't measured while a run of boxstrap's is alive."""
    facts: Facts = {}
    for report in reports:
        del report.facts["gpus"]
        facts.update(report.facts)
    if wanted.run_alive:
        measured = {"disk_speed": options.workdir, "index": options.index}
        facts.update({key: None for key, asked in measured.items() if asked})
    ahead = {"index": facts.pop("date", None), "client": options.ahead}
    if reports:
        facts["clock"] = {who: by for who, by in ahead.items() if by is not None}
    return facts


def ask(options: SimpleNamespace) -> dict[str, Any]:
    """Return the verdict. Raises OwnError."""
    started = time.monotonic()
    wanted = read_expected(options.order)._replace(run_alive=options.run_alive)
    return judge(read(options, wanted), wanted, time.monotonic() - started)


def keep(result: dict[str, Any], file: str) -> None:
    write(result, file)
    write_whole(Path(file).with_suffix(".driver"), f"{result['driver'] or ''}\n")


def main() -> int:
    try:
        options = parse(sys.argv[1:])
        result = ask(options)
    except OwnError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.out == "-":
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        keep(result, options.out)
        sys.stdout.write(summary(result))
    return 6 if result["verdict"] == RETURN else 0
