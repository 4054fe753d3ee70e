"""What can go wrong. Every error says what happened, where, and what to do next.

    BoxstrapError             an error of boxstrap itself
    ├── UsageError            wrong usage
    │   ├── ProfileError      a profile that is wrong (file, line, key)
    │   ├── NoSuchRunError    there is no run of that name
    │   └── WhichBoxError     without --host: no box of this repository is known, or several
    ├── UnreachableError      can't reach the box or log in
    ├── HostKeyError          host key changed, or not the one expected
    ├── BoxLacksError         the box lacks what a setup needs; nothing was changed
    ├── ReturnBoxError        verdict: return this box
    ├── StepFailedError       a step failed, or `stop` could not end everything
    ├── BusyError             another setup, or a live run, holds the box
    ├── NotSafeError          work or results are not safe yet
    ├── TrainingFailedError   training ended non-zero while it was watched
    ├── NoOfferError          nothing could be rented
    └── CommandFailedError    a command of the user's ended with another code than 0
        └── BoxesFailedError  of several boxes, some failed

The exit code of each is in the table at the end. The script on the box has its own codes: `_EXITS`
in `bootstrap/onbox/setup/graph.py`; `setup/result.py` turns those into errors.
"""

import errno
from collections.abc import Callable, Sequence

from bootstrap.value import Document

LONGEST = 20_000  # characters of one part of an error; only a box makes longer ones


class BoxstrapError(Exception, Document):
    """Something went wrong: `what` happened, `where`, and what to do `hint`."""

    KEYS = "error=kind, what, where, next=hint, command?, exit"

    what: str
    where: str
    hint: str
    has_ended: bool = False
    """Whether a box is meant that its account says is stopped or gone."""
    answered_by: Sequence[str] = ()
    """The options with which the same command would go on; `hint` ends with them."""
    command: str | None = None
    """That command, once it is known which one it was."""

    def __init_subclass__(cls, keys: str = "") -> None:
        """`keys`: what `--json` prints of such an error beside what it prints of all."""
        cls.KEYS = f"{cls.KEYS.removesuffix(', exit')}, {keys}, exit" if keys else cls.KEYS

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = _harmless(what)
        self.where = _harmless(where)
        self.hint = _harmless(hint)
        super().__init__(self.text())

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The error as the user reads it: one to three short paragraphs."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n{self.hint}" if self.hint else head

    def redact(self, redact: Callable[[str], str]) -> None:
        """Redact the secrets in it: what a box or a library said may hold one."""
        self.what, self.where, self.hint = redact(self.what), redact(self.where), redact(self.hint)
        self.command = self.command and redact(self.command)

    @property
    def kind(self) -> str:
        """The name of its class, for programs."""
        return type(self).__name__.removesuffix("Error")

    @property
    def exit(self) -> int:
        """The exit code with which it ends the program."""
        return exit_code(self)


def _harmless(text: str) -> str:
    """Return the text, shortened if too long, and without what a terminal would obey."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}…"
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from bootstrap.sanitize import sanitize

    return sanitize(text)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Nothing can be written there: the disk is full, or read-only."""


def write_error(path: object, error: OSError) -> BoxstrapError:
    """Return the error to show for a full disk, a read-only folder and the like."""
    return BoxstrapError(
        f"{path} can't be used: {(error.strerror or str(error)).lower()}.",
        hint="Make room there, or make it writable for you, and run the same command again.",
    )


class UsageError(BoxstrapError):
    """Wrong usage."""


class ProfileError(UsageError):
    """A profile that is wrong; `where` is `file:line`, `what` names the key."""


class NoSuchRunError(UsageError):
    """There is no run of that name."""


class WhichBoxError(UsageError, keys="boxes"):
    """Without a host it is unclear which box is meant. `boxes` are the names that may be given."""

    def __init__(self, what: str, *, hint: str, boxes: Sequence[str], has_several: bool) -> None:
        super().__init__(what, hint=hint)
        self.boxes = boxes
        self.has_several = has_several
        """Whether the repository has several of its own; else `boxes` are of others."""


class UnreachableError(BoxstrapError):
    """Can't reach the box or log in."""

    stopped: str = ""
    """The host of a box that is stopped, and that its account can start."""


class HostKeyError(BoxstrapError):
    """Host key changed, or not the one expected."""


class BoxLacksError(BoxstrapError):
    """The box lacks what a setup needs; nothing was changed."""


class ReturnBoxError(BoxstrapError):
    """Verdict: return this box. `verdict` is the whole verdict, if there is one."""

    verdict: object = None


class StepFailedError(BoxstrapError):
    """A step failed, `stop` could not end everything, or nothing starts a queued run."""


class BusyError(BoxstrapError):
    """Another setup held the box longer than `--wait`, or a live run of other work holds it."""


class NotSafeError(BoxstrapError):
    """Refused: work or results are not safe yet."""


class TrainingFailedError(BoxstrapError):
    """Training ended non-zero while it was watched."""


class NoOfferError(BoxstrapError):
    """Nothing could be rented: no offer fits, or the provider refused."""

    may_pass: bool | None = False
    """Whether the same offer may be had later; None: nobody knows."""

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", is_final: bool = False
    ) -> None:
        """`is_final`: whether no other offer may be tried."""
        super().__init__(what, where=where, hint=hint)
        self.is_final = is_final


class CommandFailedError(BoxstrapError):
    """A command of the user's ended with `code`, which is the exit code then."""

    def __init__(self, what: str, *, code: int) -> None:
        super().__init__(what)
        self.code = code


class BoxesFailedError(CommandFailedError):
    """Of several boxes some failed. `code` is what their exit codes have in common, or MIXED."""

    MIXED = 7


INTERRUPTED = 130
UNREAD = 141
"""Nobody reads the output any more (`| head`), and the command had no other end: as by SIGPIPE."""
EXIT_CODES: dict[type[BaseException], int] = {
    BoxstrapError: 1,
    UsageError: 2,
    UnreachableError: 3,
    HostKeyError: 4,
    BoxLacksError: 5,
    ReturnBoxError: 6,
    StepFailedError: 7,
    BusyError: 8,
    NotSafeError: 9,
    TrainingFailedError: 10,
    NoOfferError: 11,
    CommandFailedError: 7,
    BoxesFailedError: BoxesFailedError.MIXED,
    KeyboardInterrupt: INTERRUPTED,
}


def exit_code(error: BaseException) -> int:
    """Return its own code, else that of its class or its nearest base class; 1 if none has one."""
    if isinstance(error, CommandFailedError):
        return error.code
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), 1)
