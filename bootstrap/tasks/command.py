"""Shared by all tasks: their options, their screen, and how they end, by Ctrl-C too."""

from __future__ import annotations

import _thread
import contextlib
import errno
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap.errors import (
    INTERRUPTED,
    NO_ROOM,
    UNREAD,
    BoxstrapError,
    UnreachableError,
    UsageError,
    WhichBoxError,
    exit_code,
    write_error,
)
from bootstrap.paths import expanded, make_private, state_dir, trust_absolute_path
from bootstrap.tasks.options import IDENTITY, PROFILE, REPO, Option, flag_of
from bootstrap.tasks.streams import End, leave_unread, tell
from bootstrap.value import dataclass, field

if TYPE_CHECKING:
    from bootstrap.fleet.fan_out import Outcome
    from bootstrap.link.target import BoxOptions, Once
    from bootstrap.setup.request import SetupRequest
    from bootstrap.ui.screen import Screen


_SOON_S = 0.1  # seconds after which Python has left the cleanup in which it dropped the Ctrl-C


@contextlib.contextmanager
def resend_dropped_interrupts() -> Iterator[None]:
    """Send a Ctrl-C again if Python drops it: it does so in cleanup, such as __del__."""
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


JSON = Option("json_", "One JSON document on standard output, nothing else.", False)
HOST = Option(
    "host", "The box: [user@]address[:port], an alias, a known box, a quoted ssh command, local."
)
HOSTS = (
    Option("host", f"{HOST.help} Repeatable; gpu-* is each known box of such a name.", many=True),
    Option("hosts", "The boxes of this group, of groups.yaml or of `up --count`."),
)
MAX_SIZE = Option("max_size", "What a run's results may be at the most, as in 200G.", "50G")
SET = Option("set_", "A value on top of the profile, as in gpu.count=2. Repeatable.", many=True)
EVENTS = Option(
    "events", "With --json: a line for each thing that happens, before the document.", False
)
CONSENT = Option("consent", "The digest of the list that this repository's profile may take.")
BOX = (
    *(HOST, PROFILE, SET, JSON, REPO, IDENTITY),
    Option("host_key", "The fingerprint the box's host key must have, as in SHA256:…"),
    Option("name", "What to call the box; only a setup renames a known one."),
    Option("new_box", "A new box at a known address: pin its key apart from the old one's.", False),
    CONSENT,
)
BOXES = (*HOSTS, *BOX[1:])  # for a command that may work on several boxes at a time


@dataclass
class Call:
    """One call of a task: its options, and its screen."""

    given: Mapping[str, Any] = field(default_factory=dict)
    dry: bool = False  # whether to only show what would be done
    redact: Callable[[str], str] | None = None
    """Redacts secrets, for a task that does not use `screen`."""
    _screen: Screen | None = None
    among: str = ""  # the box, if this is the part of a call on several that is about this one
    once: Once | None = None  # what the parts share; None for a call on one box

    @property
    def screen(self) -> Screen:
        """The screen on which the task talks to the user; created on first use."""
        if self._screen is None:
            from bootstrap.ui.screens import make_screen

            events = bool(self.given.get("events"))
            if events and not self.is_json:
                raise UsageError("--events are lines for programs: add --json.")
            self._screen = make_screen(self.is_json, events=events)
            if said := self.given.get("says"):
                self._screen.say(said)
        return self._screen

    @property
    def is_json(self) -> bool:
        return bool(self.given.get("json_"))

    @property
    def place(self) -> Path:
        return expanded(self.given["repo"]) if self.given.get("repo") else Path.cwd()

    @property
    def max_size(self) -> int:
        """What `--max-size` says, in bytes. Raises UsageError."""
        from bootstrap.sizes import bytes_of

        most = bytes_of(text := self.given["max_size"])
        if most is None:
            raise UsageError(f"--max-size: {text!r} is no size.", hint="As in: 50G, 1.5T")
        return most

    def options(self) -> BoxOptions:
        from bootstrap.link.target import BoxOptions, EachTime

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
            once=self.once or EachTime(),
        )

    def show_lines(self, lines: Sequence[str]) -> None:
        if not self.given.get("follow"):  # which shows the log from its begin
            self.screen.result({}, "\n".join(f"  {line}" for line in lines))

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


COMMANDS: dict[str, Command] = {}
"""The commands whose modules are imported; `bootstrap.tasks.find` imports one's."""


@dataclass(frozen=True)
class Command:
    """A command: what it is called, its options as data, what it does. `command` makes it."""

    name: str
    body: Callable[[Call], None]
    options: Sequence[Option]
    changes: Sequence[str] | None
    interrupted: str
    shown: tuple[bool, bool]
    """Of several boxes: whether it is brief, and whether it streams, see `command`."""
    is_for_each: bool  # whether its body is called for each of several boxes

    @property
    def text(self) -> str:
        """What it does, with an example: its help."""
        import inspect  # late: for help alone

        return (inspect.getdoc(self.body) or "").replace("\nExample:", "\n\nExample:")

    @property
    def bare(self) -> Option | None:
        """The option that takes words without an option."""
        return next((option for option in self.options if option.bare), None)

    def run(self, given: Mapping[str, Any], *, dry: bool) -> int:
        """Run it, say how it ended, and return the documented exit code."""
        trust_absolute_path()
        try:
            call = Call(_with_box(given), dry=dry)
        except UsageError as wrong:
            return tell(_failed(Call(given, dry=dry), wrong))
        changing = self.changes is None or any(given[name] for name in self.changes)
        work = _refuse_dry if dry and changing else self.body
        if self.is_for_each and not is_about_one(call):
            work = partial(_on_several, work, *self.shown)
        with resend_dropped_interrupts():
            return tell(_guarded(work, call, self.interrupted))


def command(
    *options: Option,
    changes: Sequence[str] | None = None,
    interrupted: str = "",
    brief: bool = False,
    streams: bool = False,
    takes_all: bool = False,
) -> Callable[[Callable[[Call], None]], Command]:
    """Make a command from a function that takes a `Call`; its options are data.

    `changes`: the options with which it changes something, and so refuses --dry; None: it always
    does. `interrupted` tells the user what to do after Ctrl-C: `{again}` stands for the whole
    command that was typed, `{host}` for its --host. With the options of `HOSTS` its body is called
    for each box; `brief`: what each says at the end is only summed up then; `streams`: its lines
    are printed as they come; `takes_all`: it is called once, and asks which they are (`chosen`).
    """

    def make(body: Callable[[Call], None]) -> Command:
        name = body.__name__.rstrip("_").replace("_", "-")
        is_for_each = HOSTS[1] in options and not takes_all
        shown = (brief, streams)
        COMMANDS[name] = Command(name, body, options, changes, interrupted, shown, is_for_each)
        return COMMANDS[name]

    return make


def _guarded(body: Callable[[Call], None], call: Call, interrupted: str) -> End:
    """Run the task; turn whatever ends it into the documented exit code and one clear message."""
    try:
        return _end(body, call, interrupted)
    except BrokenPipeError as error:
        if not leave_unread():  # of another program, or of a socket
            return _failed(call, own_error(error, _redacting(call)))
        told = error.__context__
        known = isinstance(told, BoxstrapError | KeyboardInterrupt)
        code = exit_code(told) if known and told else UNREAD
        return End(code, str(told) if code != UNREAD else "")


def _end(body: Callable[[Call], None], call: Call, interrupted: str) -> End:
    """Run the task. Raises BrokenPipeError where the reader of the output is gone."""
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
        _complete_error(error, call)
        return _failed(call, error)
    except KeyboardInterrupt:
        from bootstrap.tasks.setup_report import program_name

        # It was asked for once: said again it would end what that began.
        words = (word for word in sys.argv[1:] if word != "--restart")
        again = shlex.join([program_name(sys.argv[0]), *words])
        head = "\ninterrupted here; the box continues."
        said = interrupted.format(again=again, host=_same_host(call))
        if call._screen and not call._screen.has_begun:
            head, said = "\ninterrupted here.", "Nothing began on the box."
        elif call._screen and (begun := call._screen.begun_run):
            which = f"--run {begun}{_same_host(call)}"
            follow, end = f"boxstrap logs -f {which}", f"boxstrap stop {which}"
            said = f"{begun} goes on. To follow it: {follow}; to end it: {end}"
        _close(call, KeyboardInterrupt(said))
        return End(INTERRUPTED, f"{head}\n{said}".rstrip())
    except BrokenPipeError:
        raise
    except Exception as error:
        return _failed(call, own_error(error, _redacting(call)))
    return End(0)


def _with_box(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let `--run BOX/RUN` name the box too, where no other is named; `--run RUN` and `--resume RUN`
    the only one of this repository's boxes that is known to have it."""
    run = given.get("run") or ("host" in given and given.get("resume")) or []
    names = [run] if isinstance(run, str) else run
    if not given.get("run") and "/" in "".join(names):  # it goes on on another box
        return given
    box, *others = {name.rpartition("/")[0] for name in names} or {""}
    if not names or others or given.get("hosts") or given["host"] not in (None, [], box, [box]):
        return given
    from bootstrap.link.forgotten import is_forgotten
    from bootstrap.link.record import all_boxes
    from bootstrap.link.registry import only_box
    from bootstrap.runs.known_runs import box_of_runs, is_box_of_runs

    plain = [name.removeprefix(f"{box}/") for name in names]
    if not box or not is_box_of_runs(box, plain):
        # REPOSITORY/RUN is as the box calls it
        if given["host"] or len(boxes := all_boxes()) == 1:
            return given
        only, called = box_of_runs(Call(given).place, names), ", ".join(names)
        if box and boxes and not only:
            with contextlib.suppress(WhichBoxError):  # the one box has runs of others, too
                only_box(Call(given).options().repository[0])
                return given
            raise UsageError(
                f"{box} was forgotten here, and {called} did not come home."
                if is_forgotten(box)
                else f"no box here is called {box}, and none is known to have {called}.",
                hint="The boxes: boxstrap boxes. The runs: boxstrap runs --all",
            )
        said = f"{only} is the one box here that is known to have {called}"
        with contextlib.suppress(WhichBoxError):
            only = "" if only_box(Call(given).options().repository[0]).name == only else only
        return {**given, "host": only, "says": said} if only else given
    return {**given, "host": box, "run": plain[0] if isinstance(run, str) else plain}


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


def _on_several(body: Callable[[Call], None], brief: bool, streams: bool, call: Call) -> None:
    """Do the task for each box that is meant, at the same time. Raises BoxesFailedError."""
    from bootstrap.fleet.fan_out import raise_for_failures
    from bootstrap.fleet.hosts import choose

    hosts = choose(call.given["host"], call.given["hosts"])
    raise_for_failures(for_each_box(call, hosts, body, brief=brief, streams=streams))


def for_each_box(  # noqa: PLR0913 - what a task says of itself, and a sweep of its boxes
    call: Call,
    hosts: Sequence[str],
    body: Callable[[Call], None],
    *,
    brief: bool,
    streams: bool = False,
    once: Once | None = None,
) -> list[Outcome[None]]:
    """Call `body` with a call for each box, at the same time, and show how each ended. Raises
    UsageError for options that are about one box."""
    from bootstrap.fleet.fan_out import fan_out
    from bootstrap.fleet.screens import make_box_screens
    from bootstrap.link.target import Once

    wrong = next((name for name in _OF_ONE if call.given.get(name)), None)
    if wrong and not (wrong == "to" and "path" in call.given):  # a push's is a folder on the box
        raise UsageError(f"{flag_of(wrong)} is about one box, and several are named.")
    screens = make_box_screens(
        hosts, call.screen, as_json=call.is_json, brief=brief, streams=streams
    )
    shared = once or Once(hosts)

    def work(host: str) -> None:
        given = {**call.given, "host": host, "hosts": None}
        own = Call(given, call.dry, _screen=screens.of(host), among=host, once=shared)
        try:
            body(own)
        except BoxstrapError as error:
            _complete_error(error, own)
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


def _failed(call: Call, error: BoxstrapError) -> End:
    _close(call, error)
    return End(exit_code(error), error.text())


def complete(error: WhichBoxError) -> None:
    """Let it say the command that was typed, completed for one of the boxes, and which boxes are
    being rented."""
    from bootstrap.renting.rental import unfinished

    if error.boxes:
        before = error.hint.partition("Name the one")[0]
        typed = {*pairwise(sys.argv)}  # also where it would be a word of the command
        meant = next((one for one in error.boxes if ("--host", one) in typed), error.boxes[0])
        named = _typed_with("--host", meant)
        error.hint = f"{before}Name the one you mean, as in: {named}"
    error.hint = "\n".join([*unfinished(time.time()), error.hint])


def _typed_with(option: str, value: str) -> str:
    """Return the command as it was typed, with this value of an option before its command."""
    from bootstrap.tasks.setup_report import program_name

    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    command = words[at:]
    if (option, value) in (pairs := [*pairwise(command)]):
        place = pairs.index((option, value))
        del command[place : place + 2]
    own = [word for word in words[:at] if not word.startswith(f"{option}=")]
    if option in own:
        del own[own.index(option) : own.index(option) + 2]
    typed = [*own, option, value, *command]
    return f"{program_name(sys.argv[0])} {shlex.join(typed)}"


def _same_host(call: Call) -> str:
    """Return the --host of this call, so that a recommended command is for the same box."""
    hosts = call.given.get("host") or ()
    named = [hosts] if isinstance(hosts, str) else hosts
    words = [word for host in named for word in ("--host", host)]
    words += ["--hosts", group] if (group := call.given.get("hosts")) else []
    return f" {shlex.join(words)}" if words else ""


def _complete_error(error: BoxstrapError, call: Call) -> None:
    """Redact it, and let it call its box by name, unless an address was typed."""
    error.redact(_redacting(call))
    if "@" in error.where:
        from bootstrap.link.record import all_boxes

        place, host = re.split(r",|: ", error.where)[0], call.given.get("host")
        at = (box for box in all_boxes() if f"{box.user}@{box.address}:{box.port}" == place)
        names = [box.name for box in at]  # the newest first
        if name := host if host in names else names and not host and names[0]:
            error.where = error.where.replace(place, name, 1)


def _redacting(call: Call) -> Callable[[str], str]:
    """Return the function that redacts this call's secrets in its final messages."""
    return call.redact or (call._screen.redact if call._screen else str)


def _refuse_dry(call: Call) -> None:  # noqa: ARG001 - replaces a task's body
    raise UsageError(
        "--dry is not supported here: this command changes something. Nothing was done.",
        hint="What a setup would do: boxstrap plan, or boxstrap --dry setup",
    )


def _close(call: Call, error: BaseException | None) -> None:
    screen = call._screen
    if screen is None and call.is_json and error is not None:
        screen = call.screen
    if screen is not None:
        if error is not None:
            screen.failed(error, exit_code(error))
        screen.close()


_NOT_OURS = (errno.EACCES, errno.EPERM)


def own_error(error: Exception, redact: Callable[[str], str]) -> BoxstrapError:
    """Return the error for one of boxstrap's own; what happened is kept in a file."""
    import traceback

    named = _NOT_OURS if isinstance(error, OSError) and error.filename else ()
    if isinstance(error, OSError) and error.errno in (*NO_ROOM, *named):
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
