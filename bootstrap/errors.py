"""What can go wrong, and the exit code that says so.

    BoxstrapError             1   an error of boxstrap itself
    ├── UsageError            2   wrong usage
    │   └── ProfileError      2   a profile that is wrong (file, line, key)
    ├── UnreachableError      3   can't reach the box or log in
    ├── HostKeyError          4   host key changed, or not the one expected
    ├── BoxLacksError         5   the box lacks what set-up needs; nothing was changed
    ├── ReturnBoxError        6   verdict: return this box
    ├── StepFailedError       7   a step failed, or `stop` could not end everything
    ├── BusyError             8   another setup, or a live run, holds the box
    ├── NotSafeError          9   work or results are not safe yet
    └── TrainingFailedError  10   training ended non-zero while it was watched

Every error tells what happened, where, and what to do next. They derive from
Invoke's `Exit`, so that `inv` and `boxstrap` both print them and leave with
their code, without a traceback.
"""

from __future__ import annotations

from collections.abc import Callable

from invoke.exceptions import Exit

INTERRUPTED = 130
LONGEST = 20_000
"""Characters of one part of an error; what is longer, a box has made so."""


class BoxstrapError(Exit):
    """Something went wrong: `what` happened, `where`, and what to do `hint`."""

    code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = _harmless(what)
        self.where = _harmless(where)
        self.hint = _harmless(hint)
        super().__init__(message=self.text(), code=type(self).code)

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The error as the user reads it: one to three short paragraphs."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n{self.hint}" if self.hint else head

    def redact(self, redact: Callable[[str], str]) -> None:
        """Redact the secrets in it: what a box or a library said may hold one."""
        self.what, self.where, self.hint = redact(self.what), redact(self.where), redact(self.hint)
        self.message = self.text()

    def as_dict(self) -> dict[str, object]:
        """The error as `--json` prints it."""
        return {
            "error": type(self).__name__.removesuffix("Error"),
            "what": self.what,
            "where": self.where,
            "next": self.hint,
            "exit": type(self).code,
        }


def _harmless(text: str) -> str:
    """Whoever's words these are, no terminal obeys them, and they have an end."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}…"
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from bootstrap.text.sanitize import sanitize

    return sanitize(text)


def cant_write(path: object, error: OSError) -> BoxstrapError:
    """What a full disk, a read-only folder and the like are to a person."""
    return BoxstrapError(
        f"{path} can't be used: {(error.strerror or str(error)).lower()}.",
        hint="Make room there, or make it writable for you, and run the same command again.",
    )


class UsageError(BoxstrapError):
    """Wrong usage."""

    code = 2


class ProfileError(UsageError):
    """A profile that is wrong; `where` is `file:line`, `what` names the key."""


class UnreachableError(BoxstrapError):
    """Can't reach the box or log in."""

    code = 3


class HostKeyError(BoxstrapError):
    """Host key changed, or not the one expected."""

    code = 4


class BoxLacksError(BoxstrapError):
    """The box lacks what set-up needs; nothing was changed."""

    code = 5


class ReturnBoxError(BoxstrapError):
    """Verdict: return this box."""

    code = 6


class StepFailedError(BoxstrapError):
    """A step failed, or `stop` could not end everything."""

    code = 7


class BusyError(BoxstrapError):
    """Another setup held the box longer than `--wait`, or a live run of other work holds it."""

    code = 8


class NotSafeError(BoxstrapError):
    """Refused: work or results are not safe yet."""

    code = 9


class TrainingFailedError(BoxstrapError):
    """Training ended non-zero while it was watched."""

    code = 10
