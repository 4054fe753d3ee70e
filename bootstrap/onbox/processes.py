"""Is a recorded process still the same one? Numbers are used again, so a record has number, start
and boot, as `templates/lib/process.sh` writes it. All else here asks this module about a process.
"""

from __future__ import annotations

import os

TICKS = os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "none"


class ProcessStat:
    """What the kernel says of a process: proc(5), `stat`. CPU time and start are in ticks."""

    def __init__(self, fields: list[str]) -> None:
        self.state, self.parent = fields[0], fields[1]
        self.session = fields[3]
        self.cpu = int(fields[11]) + int(fields[12])
        self.start = fields[19]


def stat_of(number: str) -> ProcessStat | None:
    """Return what is said of it; None if there is no such process.

    A program gives itself its name, which may contain anything: the fields come after it.
    """
    try:
        with open(f"/proc/{int(number)}/stat", "rb") as file:
            return ProcessStat(file.read().rpartition(b")")[2].decode("ascii").split())
    except (OSError, ValueError, IndexError):  # it ended just now
        return None


def is_alive(process: str) -> bool:
    """Return whether a recorded process runs and is no zombie."""
    number, start, boot = [*process.split(), "", "", ""][:3]
    stat = stat_of(number)
    return stat is not None and (stat.start, boot_id()) == (start, boot) and stat.state != "Z"
