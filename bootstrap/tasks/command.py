"""Shared by all tasks: their options, their screen, and how they end.

Make Ctrl-C work, also when Python drops it.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import functools
import inspect
import os
import select
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from bootstrap.errors import (
    INTERRUPTED,
    UNREAD,
    BoxstrapError,
    UnreachableError,
    UsageError,
    WhichBoxError,
    exit_code,
    write_error,
)
from bootstrap.paths import expanded, make_private, trust_absolute_path
from bootstrap.tasks.usage import WrongUsageError

if TYPE_CHECKING:
    from bootstrap.fleet.fan_out import Outcome
    from bootstrap.link.target import BoxOptions, Once
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.screen import Screen


_SOON_S = 0.1
"""Seconds after which Python has left the cleanup in which it dropped the Ctrl-C."""


@contextlib.contextmanager
def resend_dropped_interrupts() -> Iterator[None]:
    """Send a Ctrl-C again if Python drops it: it does so in cleanup, such as `__del__`."""
    before, waiting, main = sys.unraisablehook, [False], threading.get_ident()

    def send_again() -> None:
        time.sleep(_SOON_S)
        if waiting[0]:
            waiting[0] = False
            signal.pthread_kill(main, signal.SIGINT)

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):
            before(dropped)
        elif not waiting[0]:
            waiting[0] = True
            # Thread.start() would wait here, and a signal inside this hook would be dropped too.
            _thread.start_new_thread(send_again, ())

    sys.unraisablehook = hook
    try:
        yield
    finally:
        waiting[0] = False
        sys.unraisablehook = before


@dataclass(frozen=True)
class Option:
    """One option: its parameter, what it means, and a short form if it has one."""

    name: str
    help: str
    default: object = None
    short: str = ""
    many: bool = False
    bare: bool = False
    """Whether a word without an option is a value of this one."""


JSON = Option("json_", "One JSON document on standard output, nothing else.", False)
HOST = Option(
    "host", "The box: [user@]address[:port], an alias, a known box, a quoted ssh command, local."
)
HOSTS = (
    Option("host", f"{HOST.help} Repeatable; gpu-* is each known box of such a name.", many=True),
    Option("hosts", "The boxes of this group, of groups.yaml or of `up --count`."),
)
SET = Option("set_", "A value on top of the profile, as in gpu.count=2. Repeatable.", many=True)
EVENTS = Option(
    "events", "With --json: a line for each thing that happens, before the document.", False
)
CONSENT = Option("consent", "The digest of the list that this repository's profile may take.")
BOX = (
    HOST,
    Option("profile", "A profile: its name, or a path."),
    SET,
    JSON,
    Option("repo", "The repository; default: that of the current folder."),
    Option("identity", "The private key to log in with."),
    Option("host_key", "The fingerprint the box's host key must have, as in SHA256:…"),
    Option("name", "What to call the box; a known one is renamed."),
    Option("new_box", "A new box at a known address: pin its key apart from the old one's.", False),
    CONSENT,
)
BOXES = (*HOSTS, *BOX[1:])
"""For a command that may work on several boxes at a time."""


@dataclass
class Call:
    """One call of a task: its options, and its screen."""

    given: Mapping[str, Any] = field(default_factory=dict)
    dry: bool = False
    """Whether to only show what would be done."""
    redact: Callable[[str], str] | None = None
    """Redacts secrets, for a task that does not use `screen`."""
    _screen: Screen | None = None
    among: str = ""
    """The box, if this is the part of a call on several that is about this one."""
    once: Once | None = None
    """What the parts share; None for a call on one box."""

    @property
    def screen(self) -> Screen:
        """The screen on which the task talks to the user; created on first use."""
        if self._screen is None:
            from bootstrap.ui.screens import make_screen

            events = bool(self.given.get("events"))
            if events and not self.is_json:
                raise UsageError("--events are lines for programs: add --json.")
            self._screen = make_screen(self.is_json, events=events)
        return self._screen

    @property
    def is_json(self) -> bool:
        """Whether the output is JSON."""
        return bool(self.given.get("json_"))

    @property
    def place(self) -> Path:
        """The folder that the command is about."""
        return expanded(self.given["repo"]) if self.given.get("repo") else Path.cwd()

    def options(self) -> BoxOptions:
        """The options about a box."""
        from bootstrap.link.target import BoxOptions

        given = self.given
        return BoxOptions(
            host=given.get("host"),
            profile=given.get("profile"),
            sets=tuple(given.get("set_") or ()),
            repo=expanded(given["repo"]) if given.get("repo") else None,
            identity=given.get("identity"),
            host_key=given.get("host_key"),
            name=given.get("name"),
            new_box=bool(given.get("new_box")),
            consent=given.get("consent"),
            **({"once": self.once} if self.once else {}),
        )

    def request(self) -> SetupRequest:
        """The options about a setup, including those about its box."""
        from bootstrap.setup.request import SetupRequest

        flags = ("committed_only", "restart", "adopt", "strict")
        own: dict[str, Any] = {name: bool(self.given.get(name)) for name in flags}
        return SetupRequest(
            **vars(self.options()),
            **own,
            overwrite=bool(self.given.get("overwrite_results")),
            wait_s=self.given.get("wait", 60),
        )


class _Checked(Argument):
    """An argument that reports wrong usage if its value is empty, or is no number but should be."""

    def __repr__(self) -> str:
        """As it is typed, for Invoke's messages."""
        return f"--{self.names[0]}"

    def set_value(self, value: object, cast: bool = True) -> None:
        """As Invoke's, but without a traceback for a wrong value, and never with an empty one.

        `--gpus "$MINE"` without that variable doesn't mean what leaving the option out means.
        """
        if isinstance(value, str) and not value.strip():
            raise WrongUsageError(f"{self!r}: its value is empty; leave it out, or give it one")
        try:
            super().set_value(value, cast)
        except ValueError:
            raise WrongUsageError(f"{self!r}: {value!r} is no whole number") from None


class BoxTask(Task[Callable[..., None]]):
    """A task with short forms only for the options that define one."""

    options: Sequence[Option] = ()
    shorts: Mapping[str, str] = {}
    bare: str = ""
    """The option that takes words without an option, such as `--port`; "" for none."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """As Invoke's, each checked; keeps the help texts that Invoke's drops, for later calls."""
        described = dict(self.help)
        arguments: list[Argument] = super().get_arguments(ignore_unknown_help)
        self.help = described
        for argument in arguments:
            argument.__class__ = _Checked
            if argument.kind is list:
                argument.raw_value = None  # Invoke takes the empty list for a value that was given
        return arguments

    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        """As Invoke's, with the defined short forms instead of guessed ones."""
        options: dict[str, Any] = super().arg_opts(name, default, taken_names)
        if name in self.shorts:
            options["names"] = (*options["names"], self.shorts[name])
        return options


def command(
    *options: Option,
    changes: Sequence[str] | None = None,
    interrupted: str = "",
    brief: bool = False,
    takes_all: bool = False,
) -> Callable[[Callable[[Call], None]], BoxTask]:
    """Make a task from a function that takes a `Call`; its options are data.

    `changes`: the options with which it changes something, and so refuses --dry; None: it always
    does. `interrupted` tells the user what to do after Ctrl-C: `{again}` stands for the whole
    command that was typed, `{host}` for its --host. With the options of `HOSTS` its body is called
    for each box; `brief`: what each says at the end is only summed up then; `takes_all`: it is
    called once, and asks which they are (`chosen`).
    """
    for_several = HOSTS[1] in options and not takes_all

    def make(body: Callable[[Call], None]) -> BoxTask:
        @functools.wraps(body)
        def run(context: Context, **given: Any) -> None:  # noqa: ANN401
            # Invoke turns bytecode off, and uv installs none: each start would compile all its
            # imports again, which takes a second.
            sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
            trust_absolute_path()
            call = Call(given, dry=bool(context.config.run.dry))
            changing = changes is None or any(given[name] for name in changes)
            work = _refuse_dry if call.dry and changing else body
            if for_several and not is_about_one(call):
                work = functools.partial(_on_several, work, brief)
            with resend_dropped_interrupts():
                _guarded(work, call, interrupted)

        run.__signature__ = _signature(options)  # type: ignore[attr-defined]
        task = BoxTask(
            run,
            name=body.__name__.rstrip("_"),
            positional=[],
            iterable=[option.name for option in options if option.many],
            auto_shortflags=False,
            help={option.name: option.help for option in options},
        )
        task.options = options
        task.shorts = {option.name: option.short for option in options if option.short}
        task.bare = next((f"--{option.name}" for option in options if option.bare), "")
        return task

    return make


def _signature(options: Sequence[Option]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("context", kind)]
    for option in options:
        parameters.append(inspect.Parameter(option.name, kind, default=option.default))
    return inspect.Signature(parameters)


def _guarded(body: Callable[[Call], None], call: Call, interrupted: str) -> None:
    """Run the task; turn whatever ends it into the documented exit code and one clear message."""
    try:
        _end(body, call, interrupted)
    except BrokenPipeError as error:
        if not leave_unread():  # of another program, or of a socket
            raise _exit(call, own_error(error, _redacting(call))) from None
        told = error.__context__
        known = isinstance(told, BoxstrapError | KeyboardInterrupt)
        code = exit_code(told) if known and told else UNREAD
        raise Exit(str(told) if code != UNREAD else None, code=code) from None


def leave_unread() -> bool:
    """Drop what is printed from now on where nobody reads it; return whether there is any such."""
    watched = select.poll()
    for stream in (1, 2):
        watched.register(stream, 0)
    gone = watched.poll(0)
    for stream, _ in gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return bool(gone)


def _end(body: Callable[[Call], None], call: Call, interrupted: str) -> None:
    """Run the task. Raises Exit, and BrokenPipeError where the reader of the output is gone."""
    try:
        try:
            body(call)
        except UnreachableError as error:
            if call.dry or not _start_stopped(call, error):
                raise
            body(call)
        _close(call, None)
    except BoxstrapError as error:
        if isinstance(error, WhichBoxError):
            complete(error)
        if error.answered_by:
            error.command = _typed_with(*error.answered_by)
            error.hint = error.hint.removesuffix(" ".join(error.answered_by)) + error.command
        error.redact(_redacting(call))
        raise _exit(call, error) from None
    except KeyboardInterrupt:
        words = interrupted.format(again=_typed_again(), host=_same_host(call))
        _close(call, KeyboardInterrupt(words))
        raise Exit(f"{_INTERRUPTED_WORDS}\n{words}".rstrip(), code=INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except Exception as error:
        raise _exit(call, own_error(error, _redacting(call))) from None


def is_about_one(call: Call) -> bool:
    """Whether the call is about one box, or about the repository's only one; `host` is its text."""
    given = call.given["host"]
    hosts = [given] if isinstance(given, str) else list(given or ())
    if call.given["hosts"] or len(hosts) > 1 or any(set("*?") & set(host) for host in hosts):
        return False
    call.given = {**call.given, "host": hosts[0] if hosts else None}
    return True


def chosen(call: Call) -> list[str]:
    """Return the boxes that were named, each once. Raises UsageError, see `fleet.hosts.choose`."""
    if is_about_one(call):
        return [call.given["host"]] if call.given["host"] else []
    from bootstrap.fleet.hosts import choose

    hosts = choose(call.given["host"], call.given["hosts"])
    call.given = {**call.given, "host": None}
    return hosts


_OF_ONE = ("name", "host_key", "to", "out", "report", "new_box")
"""Options that name one box, or a file of this machine that each box would write."""


def _on_several(body: Callable[[Call], None], brief: bool, call: Call) -> None:
    """Do the task for each box that is meant, at the same time. Raises BoxesFailedError."""
    from bootstrap.fleet.fan_out import raise_for_failures
    from bootstrap.fleet.hosts import choose

    hosts = choose(call.given["host"], call.given["hosts"])
    raise_for_failures(for_each_box(call, hosts, body, brief=brief))


def for_each_box(
    call: Call,
    hosts: Sequence[str],
    body: Callable[[Call], None],
    *,
    brief: bool,
    once: Once | None = None,
) -> list[Outcome[None]]:
    """Call `body` with a call for each box, at the same time, and show how each ended.

    Raises UsageError for options that are about one box.
    """
    from bootstrap.fleet.fan_out import fan_out
    from bootstrap.fleet.screens import make_box_screens
    from bootstrap.link.target import Once

    wrong = next((name for name in _OF_ONE if call.given.get(name)), None)
    if wrong and not (wrong == "to" and "path" in call.given):  # a push's is a folder on the box
        raise UsageError(f"--{wrong.replace('_', '-')} is about one box, and several are named.")
    screens = make_box_screens(hosts, call.screen, as_json=call.is_json, brief=brief)
    shared = once or Once(hosts)

    def work(host: str) -> None:
        given = {**call.given, "host": host, "hosts": None}
        own = Call(given, call.dry, _screen=screens.of(host), among=host, once=shared)
        try:
            body(own)
        except BoxstrapError as error:
            error.redact(_redacting(own))
            raise
        except BrokenPipeError:  # judged where all have ended
            raise
        except Exception as error:
            raise own_error(error, _redacting(own)) from None

    def show(one: Outcome[None]) -> None:
        screens.ended(one.host, one.error, exit_code(one.error) if one.error else 0, one.seconds)

    try:
        outcomes = fan_out(hosts, work, done=show)
    except BaseException:
        screens.leave()
        raise
    screens.close()
    return outcomes


def _start_stopped(call: Call, error: UnreachableError) -> bool:
    """Offer to start the stopped box that the error is about; return whether it runs now."""
    if not error.stopped:
        return False
    from bootstrap.link.prompt import Prompt
    from bootstrap.link.record import all_boxes
    from bootstrap.renting.start import start_asked

    say = call.screen.say
    known = next((box for box in all_boxes() if box.host_text == error.stopped), None)
    return start_asked(error.stopped, known.price if known else 0.0, Prompt(say).confirm, say)


def _exit(call: Call, error: BoxstrapError) -> Exit:
    """Report how the task ended; Invoke prints the returned Exit and exits with its code."""
    _close(call, error)
    return Exit(error.text(), code=exit_code(error))


def complete(error: WhichBoxError) -> None:
    """Let it say the command that was typed, completed for one of the boxes, and which boxes are
    being rented."""
    from bootstrap.renting.rental import unfinished

    if error.boxes:
        before = error.hint.partition("Name the one")[0]
        named = _typed_with("--host", error.boxes[0])
        error.hint = f"{before}Name the one you mean, as in: {named}"
    error.hint = "\n".join([*unfinished(time.time()), error.hint])


def _typed_with(option: str, value: str) -> str:
    """Return the command as it was typed, with this value of an option."""
    from bootstrap.tasks.setup_report import program_name

    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    own = [word for word in words[:at] if not word.startswith(f"{option}=")]
    if option in own:
        del own[own.index(option) : own.index(option) + 2]
    typed = [*own, option, value, *words[at:]]
    return f"{program_name(sys.argv[0])} {shlex.join(typed)}"


def _same_host(call: Call) -> str:
    """Return the --host of this call, so that a recommended command is for the same box."""
    hosts = call.given.get("host") or ()
    named = [hosts] if isinstance(hosts, str) else hosts
    words = [word for host in named for word in ("--host", host)]
    words += ["--hosts", group] if (group := call.given.get("hosts")) else []
    return f" {shlex.join(words)}" if words else ""


def _typed_again() -> str:
    """Return the command line that was typed, so that it can be typed again."""
    from bootstrap.tasks.setup_report import program_name

    return shlex.join([program_name(sys.argv[0]), *sys.argv[1:]])


def _redacting(call: Call) -> Callable[[str], str]:
    """Return the function that redacts this call's secrets in its final messages."""
    return call.redact or (call._screen.redact if call._screen else str)


def _refuse_dry(call: Call) -> None:  # noqa: ARG001 - replaces a task's body
    raise UsageError(
        "--dry is not supported here: this command changes something. Nothing was done.",
        hint="What a setup would do: boxstrap plan, or boxstrap --dry setup",
    )


_INTERRUPTED_WORDS = "\ninterrupted here; the box continues."


def _close(call: Call, error: BaseException | None) -> None:
    screen = call._screen
    if screen is None and call.is_json and error is not None:
        screen = call.screen
    if screen is not None:
        if error is not None:
            screen.failed(error, exit_code(error))
        screen.close()


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NOT_OURS = (errno.EACCES, errno.EPERM)


def own_error(error: Exception, redact: Callable[[str], str]) -> BoxstrapError:
    """Return the error for one of boxstrap's own; what happened is kept in a file."""
    from bootstrap.paths import state_dir

    named = _NOT_OURS if isinstance(error, OSError) and error.filename else ()
    if isinstance(error, OSError) and error.errno in (*_NO_ROOM, *named):
        return write_error(error.filename or "the output, or a file,", error)
    folder = state_dir() / "reports"
    report = folder / time.strftime("%Y%m%d-%H%M%S.txt")
    hint = f"What happened is in {report}; please send it with a report of this error."
    try:
        make_private(folder)
        report.write_text(redact("".join(traceback.format_exception(error))), encoding="utf-8")
    except OSError as unwritten:
        hint = f"No report was kept of it: {write_error(report, unwritten).what}"
    what = redact(f"boxstrap itself failed: {type(error).__name__}: {error}")
    return BoxstrapError(what, hint=hint)
