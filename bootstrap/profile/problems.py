"""The problems of a profile, reported all together, each with its file, line and key.

Where each value of a profile comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bootstrap.errors import ProfileError


@dataclass(frozen=True)
class Origin:
    """A file and line (from 1), or a word for a place that is no file, such as `--set`."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


SET = Origin("--set")
DEFAULT = Origin("default")


MOST_SHOWN = 20


@dataclass(frozen=True)
class ProfileProblem:
    """One problem: where, at which dotted key, and what is wrong."""

    origin: Origin
    key: str
    message: str

    @property
    def where(self) -> str:
        """The origin, and for `--set` also the key, as the user typed it."""
        return f"{SET} {self.key}" if self.origin == SET and self.key else str(self.origin)

    @property
    def what(self) -> str:
        """What is wrong, after the key if `where` does not name it."""
        return self.message if self.origin == SET or not self.key else f"{self.key}: {self.message}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class WrongProfileError(ProfileError):
    """A profile with problems; its text has one line for each."""

    def __init__(self, problems: Sequence[ProfileProblem]) -> None:
        self.problems = tuple(problems)
        first, *others = self.problems
        shown = [first.what, *map(str, others[: MOST_SHOWN - 1])]
        left = len(others) - (MOST_SHOWN - 1)
        if left > 0:
            shown.append(f"and {left} more")
        super().__init__("\n".join(shown), where=first.where)

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it, with a list of its problems."""
        return {
            **super().as_dict(),
            "error": "Profile",
            "problems": [
                {
                    "file": problem.origin.file,
                    "line": problem.origin.line,
                    "key": problem.key,
                    "message": problem.message,
                }
                for problem in self.problems
            ],
        }


def raise_problems(problems: Iterable[ProfileProblem], files: Sequence[str]) -> None:
    """Raise WrongProfileError if there are problems, in the order of `files`, then of lines."""
    found = list(dict.fromkeys(problems))
    if not found:
        return
    ranks = {file: rank for rank, file in enumerate(files)}
    found.sort(key=lambda p: (ranks.get(p.origin.file, len(ranks)), p.origin.line or 0))
    raise WrongProfileError(found)
