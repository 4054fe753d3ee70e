"""What the tests of the screens share: events, a clock, a stream to write to."""

import io
import json
from itertools import count
from typing import Any

from bootstrap.steps.events import Event, parse_event

STEPS = ["preflight", "shell", "gpu", "repo", "python", "train"]
_seq = count(1)


def ev(t: float, step: str, event: str, **fields: Any) -> Event:
    head = {"v": 1, "setup": "s1", "seq": next(_seq), "t": t, "step": step, "event": event}
    told = parse_event(json.dumps({**head, **fields}).encode())
    assert told is not None
    assert set(told.fields) == set(fields), "a field isn't in the vocabularies"
    return told


class Clock:
    """Seconds since the test started, also as a time of day."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def show(self) -> str:
        return f"12:{int(self.now) // 60:02}:{int(self.now) % 60:02}"


def paper(encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)


def written(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(stream.encoding)


RUN: list[tuple[float, str, str, dict[str, Any]]] = [
    (0.0, "setup", "start", {}),
    (0.0, "preflight", "start", {"why": "new"}),
    (0.3, "preflight", "ok", {}),
    (0.3, "shell", "skip", {"why": "done"}),
    (0.3, "gpu", "start", {"why": "new"}),
    (0.4, "repo", "start", {"why": "commit"}),
    (1.4, "repo", "progress", {"done": 10_000_000, "total": 40_000_000, "unit": "bytes"}),
    (1.9, "gpu", "warn", {"code": "no-tmux"}),
    (2.0, "gpu", "ok", {"secs": 1.7}),
    (2.4, "repo", "progress", {"done": 20_000_000, "total": 40_000_000, "unit": "bytes"}),
    (7.4, "repo", "progress", {"done": 39_000_000, "total": 40_000_000, "unit": "bytes"}),
    (8.0, "repo", "ok", {}),
    (8.0, "python", "start", {"why": "requirements"}),
    (14.0, "python", "progress", {"done": 12, "total": 90, "unit": "packages"}),
    (74.0, "python", "fail", {"code": "build-failed"}),
    (74.0, "train", "skip", {"why": "needs"}),
    (74.1, "setup", "done", {"rc": 7}),
]


def run_events() -> list[Event]:
    return [ev(t, step, event, **fields) for t, step, event, fields in RUN]
