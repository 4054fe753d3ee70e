"""The readers of the machine and the network around the GPUs, and what they report."""

from __future__ import annotations

from types import SimpleNamespace

from .expected_hardware import ExpectedHardware
from .readers import Facts, Reader, Report

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
