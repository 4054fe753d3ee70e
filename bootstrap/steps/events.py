"""What a setup reports while it works, one JSON object per line.

    {"v":1,"setup":"…","seq":7,"t":1700000000.25,"step":"python","event":"progress",
     "done":12,"total":90,"unit":"packages"}

The box is a stranger's machine, so a line has no prose: strings are words of the
tables below or plain version numbers, numbers are finite, a line has at most
`MAX_LINE` bytes. An unknown field is left out; a line that isn't an event is
skipped without an error.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

from bootstrap.steps.event_codes import CODES
from bootstrap.steps.plan import NAMES
from bootstrap.value import dataclass, field

VERSION = 1
MAX_LINE = 4096  # bytes
MAX_NUMBER = 2.0**53  # above it a float can't count in ones

EVENTS = frozenset({"start", "progress", "note", "skip", "ok", "fail", "warn", "wait", "done"})
UNITS = frozenset({"objects", "packages", "bytes", "seconds", "lines", "commands"})
VERDICTS = frozenset({"keep", "warn", "return"})

# Why a step is skipped, or why it runs.
WHY: Mapping[str, str] = {
    "done": "already right",
    "not-asked": "not asked for",
    "local": "never on this machine",
    "changed": "its settings changed",
    "commit": "new commit",
    "snapshot": "changes that are not there",
    "requirements": "new requirements",
    "build": "files that its build may read changed",
    "files": "files that it names changed",
    "command": "new command",
    "data": "its data changed",
    "restarted": "the box was restarted",
    "ran": "noted: this work ran before",
    "broken": "the check found it wrong",
    "new": "never done here",
    "asked": "asked for now",
    "after": "an earlier step decides it",
    "alive": "a run is alive",
    "died": "died with the box: --restart",
    "failed": "failed before: --restart",
    "needs": "a step that it needs failed",
}

WORDS: Mapping[str, frozenset[str]] = {
    "why": frozenset(WHY),
    "code": frozenset(CODES),
    "unit": UNITS,
    "verdict": VERDICTS,
}
# done, total: of `unit`; secs: seconds; rc: exit code; free: as the code's
# sentence says; need, have: a number or a version such as 3.11 in quotes;
# files, all_files: how many of how many, if `unit` is bytes.
NUMBERS = frozenset(
    {"done", "total", "secs", "rc", "count", "need", "have", "free", "pid", "files", "all_files"}
)

_STEPS = frozenset({*NAMES, "setup"})
_SETUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_VERSION = r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}"


@dataclass(frozen=True)
class Event:
    """One event. `t` is in seconds on the box's clock; `fields` as the tables above say."""

    setup: str
    seq: int
    t: float
    step: str
    event: str
    fields: Mapping[str, float | str] = field(default_factory=dict)
    v: int = VERSION

    def number(self, name: str) -> float | None:
        value = self.fields.get(name)
        return None if isinstance(value, str) else value

    def word(self, name: str) -> str:
        """The field, if it is there and a word; else an empty string."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def as_dict(self) -> dict[str, object]:
        head = {"v": self.v, "setup": self.setup, "seq": self.seq, "t": self.t}
        return {**head, "step": self.step, "event": self.event, **self.fields}


def parse_event(line: bytes) -> Event | None:
    """Return the event in a line, or None. Never raises."""
    if len(line) > MAX_LINE:
        return None
    try:
        # RecursionError: deeply nested brackets; ValueError: everything else, bad UTF-8 too.
        data = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return _event(data) if isinstance(data, dict) else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN and Infinity are not JSON


def _event(data: dict[str, Any]) -> Event | None:
    setup, step, event = data.get("setup"), data.get("step"), data.get("event")
    seq, t = data.get("seq"), data.get("t")
    if data.get("v") != VERSION or not isinstance(setup, str) or not _SETUP.fullmatch(setup):
        return None
    if not (isinstance(step, str) and step in _STEPS and isinstance(event, str)):
        return None
    if event not in EVENTS or not _is_number(t) or not _is_number(seq):
        return None
    if not isinstance(seq, int) or seq < 0:
        return None
    fields = {name: value for name, value in data.items() if _is_known(name, value)}
    return Event(setup, seq, float(t), step, event, fields)


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Compared, not converted: float() of an enormous integer overflows.
    return -MAX_NUMBER <= value <= MAX_NUMBER and not math.isnan(value)


def _is_known(name: str, value: object) -> bool:
    if name in WORDS:
        return isinstance(value, str) and value in WORDS[name]
    if name not in NUMBERS:
        return False
    if name in {"need", "have"} and isinstance(value, str):
        return re.fullmatch(_VERSION, value) is not None
    return _is_number(value)


class EventLines:
    """Reads events from a byte stream that arrives in pieces of any size.

    Memory is bounded: at most `MAX_LINE` bytes of an unfinished line are kept.
    `consumed` counts the bytes of whole lines read so far, which is where a
    follower continues after a lost link; `refused` counts the lines that had
    no event.
    """

    def __init__(self) -> None:
        self.consumed = 0
        self.refused = 0
        self._rest = b""
        self._rest_size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        events: list[Event] = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._keep(end)
            self.consumed += self._rest_size + 1
            event = parse_event(self._rest) if self._rest_size <= MAX_LINE else None
            self.link_lost()
            if event is None:
                self.refused += 1
            else:
                events.append(event)
        self._keep(rest)
        return events

    @property
    def read(self) -> int:
        """Bytes read of the file, including those of an unfinished line."""
        return self.consumed + self._rest_size

    def link_lost(self) -> None:
        """Drop the unfinished line: it is read again from `consumed` on."""
        self._rest, self._rest_size = b"", 0

    def _keep(self, piece: bytes) -> None:
        self._rest_size += len(piece)
        self._rest += piece[: MAX_LINE - len(self._rest)]
