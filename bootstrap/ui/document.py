"""`--json`: collect everything, and print exactly one document at the end."""

# ruff: noqa: ARG002, D102 - `Screen` gives the methods their arguments and docstrings

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from bootstrap.errors import BoxstrapError
from bootstrap.events import Event
from bootstrap.ui.screen import Paint, Redact, Screen
from bootstrap.ui.steps import Steps

VERSION = 1
MOST = 200  # of sentences, notes, warnings and logs each; more are dropped


class DocumentScreen(Screen):
    """Prints nothing until `close`, then one JSON object on `out`, also after an error.

    It always has `v` and `exit`; `steps`, `said`, `notes`, `warnings`, `logs`
    and `error` if they are not empty; and the result's own keys.
    """

    def __init__(self, out: TextIO, redact: Redact = str) -> None:
        super().__init__(redact)
        self._out = out
        self._steps = Steps()
        self._parts: dict[str, object] = {}
        self._said: list[str] = []
        self._notes: dict[str, str] = {}
        self._warnings: list[str] = []
        self._logs: dict[str, list[str]] = {}
        self._error: dict[str, object] | None = None
        self._exit = 0
        self._is_closed = False

    def plan(self, steps: Sequence[str]) -> None:
        self._steps.plan(steps)

    def event(self, event: Event) -> None:
        if self._steps.take(event) and event.event == "warn":
            row = self._steps.rows.get(event.step, self._steps.setup)
            self.warn(f"{row.step}: {row.said}")

    def say(self, text: str) -> None:
        if len(self._said) < MOST:
            self._said.append(self.safe_text(text))

    def note(self, label: str, text: str) -> None:
        if len(self._notes) < MOST:
            self._notes[self.safe_text(label)] = self.safe_text(text)

    def warn(self, text: str) -> None:
        if len(self._warnings) < MOST:
            self._warnings.append(self.safe_text(text))

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        if len(self._logs) < MOST:
            self._logs[self.safe_text(step)] = self.safe_tail(lines)

    def result(
        self, data: Mapping[str, object], text: str = "", paint: Paint | None = None
    ) -> None:
        self._parts.update(
            {self.safe_text(key): self._safe_value(value) for key, value in data.items()}
        )

    def lost(self, seconds: float) -> None:
        """Ignore it: the document only says how the task ended."""

    def back(self) -> None:
        """Ignore it: the document only says how the task ended."""

    def failed(self, error: BaseException, code: int) -> None:
        """Keep the error and the program's exit code for the document."""
        if isinstance(error, BoxstrapError):
            told = {key: self._safe_value(value) for key, value in error.as_dict().items()}
        elif isinstance(error, KeyboardInterrupt):
            told = {"error": "Interrupted", "what": "interrupted here"}
        else:
            what = self.safe_text(f"{type(error).__name__}: {error}")
            told = {"error": "Internal", "what": what}
        self._exit, self._error = code, {**told, "exit": code}

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        document: dict[str, object] = {"v": VERSION, "exit": self._exit, **self._parts}
        extras = {
            "steps": self._step_list(),
            "said": self._said,
            "notes": self._notes,
            "warnings": self._warnings,
            "logs": self._logs,
            "error": self._error,
        }
        document.update({key: value for key, value in extras.items() if value})
        document.update(v=VERSION, exit=self._exit)
        self._out.write(json.dumps(document) + "\n")
        self._out.flush()

    def _step_list(self) -> list[dict[str, object]]:
        return [
            {
                "step": row.step,
                "state": row.state,
                **({"why": row.why} if row.why else {}),
                **({"said": row.said} if row.said else {}),
                **({"noted": row.noted} if row.noted else {}),
                **({} if row.seconds is None else {"seconds": row.seconds}),
            }
            for row in self._steps.rows.values()
        ]

    def _safe_value(self, value: object) -> object:
        """Return the value with each text made safe. Raises TypeError if it is not JSON."""
        if isinstance(value, str):
            return self.safe_text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.safe_text(key): self._safe_value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._safe_value(each) for each in value]
        raise TypeError(f"a result of type {type(value).__name__} is no JSON")
