"""Where each value of a profile comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """A file and line (from 1), or a word for a place that is no file, such as `--set`."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


SET = Origin("--set")
DEFAULT = Origin("default")
