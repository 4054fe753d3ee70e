"""The box that a command works on: `BoxLogin`, from the host that was typed to its answers."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bootstrap.boxes.probe import BoxState, probe
from bootstrap.boxes.run import Run, repository_names, select_runs
from bootstrap.errors import BoxstrapError, HostKeyError, UnreachableError, UsageError, write_error
from bootstrap.link import forgotten, record, registry
from bootstrap.link.cancel import CancelToken
from bootstrap.link.endpoint import resolve
from bootstrap.link.exchange import run_script
from bootstrap.link.local import LocalWire
from bootstrap.link.query import NO_REDACTION, ask, build_query
from bootstrap.link.reconnecting import PAUSES_S, DeferredLogin, ReconnectingLink
from bootstrap.link.record import KnownBox
from bootstrap.link.target import BoxOptions, KeyAndRoot
from bootstrap.link.wire import Wire
from bootstrap.onbox.redact import Redactor
from bootstrap.steps.shell import Value
from bootstrap.value import replace

if TYPE_CHECKING:
    from bootstrap.boxes.run_details import RunDetails
    from bootstrap.link.dial import PendingConnection
    from bootstrap.link.hostkeys import FirstContact
    from bootstrap.link.mux import SharedWire
    from bootstrap.repo.local import LocalRepository
    from bootstrap.ui.screen import Reporter

_Answer = TypeVar("_Answer")
_About = tuple[str, str, str]
"""Working folder, key and first commit of the repository that a box is asked about."""
_MUCH = 16_000_000  # bytes; at 100 ms they take as long as a login


class BoxLogin:
    """A box, how to log in to it, and what it says. A context manager: leaving it logs out.

    Nothing is sent before `wire` or `link` is used, or `begin` called.
    """

    def __init__(
        self,
        options: BoxOptions,
        found: registry.FoundBox,
        reporter: Reporter,
        *,
        first_contact: FirstContact = "pin",
        cancel: CancelToken | None = None,
    ) -> None:
        self.options, self.reporter = options, reporter
        self.target, self.known, self.endpoint = found
        self.first_contact: FirstContact = first_contact
        self.cancel = cancel or CancelToken()
        self.state = BoxState()  # what it said last; empty before it was asked
        self._details: RunDetails | None = None
        self.own = ""  # the box's key for the current repository; "" outside a repository
        self.here: KeyAndRoot = ("", "")  # the current repository on this machine
        last = self.known.last  # until it is clear which one is meant
        self.workdir = self.known.workdir_of(last.key)
        self.repo_key, self.repo_root = last.key, last.root
        """The repository that the box is asked about: its key there, and its first commit."""
        self._redactor: Redactor | None = None
        self._link: ReconnectingLink | None = None
        self._dialing: PendingConnection | None = None
        self._shared: SharedWire | None = None
        self.shares = True
        """Whether it may go over the box's shared connection. What moves much data logs in."""
        self._early: DeferredLogin | None = None
        self._early_question: tuple[_About, str] | None = None
        self._early_answer: BoxState | None = None
        self._logs_in_anew = False
        self._unwritten = False
        self.set_price(None)

    @classmethod
    def find(  # noqa: PLR0913 - where each of the profile's words goes
        cls,
        options: BoxOptions,
        reporter: Reporter,
        *,
        repo_key: str = "",
        user: str | None = None,
        identity: str | None = None,
        first_contact: FirstContact = "pin",
        opens_forwards: bool = False,
        cancel: CancelToken | None = None,
    ) -> BoxLogin:
        """Return the box that `options` means; nothing is sent. Raises as `resolve_box`."""
        found = registry.resolve_box(
            options,
            reporter.say,
            repo_key=repo_key,
            user=user,
            identity=identity,
            opens_forwards=opens_forwards,
        )
        return cls(options, found, reporter, first_contact=first_contact, cancel=cancel)

    @classmethod
    def open(  # noqa: PLR0913
        cls,
        options: BoxOptions,
        reporter: Reporter,
        here: KeyAndRoot | None = None,
        *,
        with_details: bool = False,
        opens_forwards: bool = False,
        shares: bool = True,
    ) -> BoxLogin:
        """Log in and ask for the box's state; `here` is the current repository, if it was read.

        `shares`: whether its shared connection will do. Raises UsageError, UnreachableError,
        HostKeyError.
        """
        if here is None and not options.host:
            here = options.repository
        key = here[0] if here else ""
        box = cls.find(options, reporter, repo_key=key, opens_forwards=opens_forwards)
        box.shares = shares and not opens_forwards
        box.dial()
        _ = box.redactor  # made, and the repository read, in parallel with connecting
        box._look(options.repository if here is None else here, with_details=with_details)
        return box

    def _look(self, here: KeyAndRoot, *, with_details: bool) -> None:
        """Ask for the state, find out which repository is the current one, and note its runs."""
        self.here = key, root = here
        known = self.known.of(key)
        self.workdir = self.known.workdir_of(key)
        if known and known.key != key:  # its profile names another repository
            self.repo_key, self.repo_root = known.key, known.root
        elif key:
            self.repo_key, self.repo_root = key, root
        _ = self.link
        try:
            self.refresh_details() if with_details else self.refresh()
        except BaseException:
            self.close()
            raise
        self.own = key and (self.state.repo_key or self.repo_key)
        there = {run.repo_key for run in self.state.runs}
        if key and self.state.repo_key in there and known is None:
            from bootstrap.boxes.at_home import find_kept

            self.save(self.known.found_on(key, root=root, workdir=self.workdir))
            own = (run for run in self.state.runs if run.repo_key == self.state.repo_key)
            if not any(find_kept(self.known, run) for run in own):  # else it was forgotten here
                self.reporter.warn(
                    f"{self.name} says that it has runs of this repository, and nothing of them is "
                    "here: where it is the only box, commands without --host mean it from now on"
                )
        if self.own and self.own not in there:
            from bootstrap.profile.consent import named_repository

            self.own = named_repository(self.options) or self.own
        lease = None if with_details else self.state.lease  # `status` shows it itself
        if lease and (said := lease.note(self.known.lease.get("held"))):
            self.reporter.note("lease", said)
        if said := self.known.end_words(time.time()):
            self.reporter.warn(f"{self.name}: {said}")
        self.note_runs()

    def __enter__(self) -> BoxLogin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at(self, *, workdir: str = "", repo_key: str = "") -> BoxLogin:
        """Return the same login, to be asked about another working folder or repository."""
        other = copy.copy(self)
        other.workdir = workdir or self.workdir
        if repo_key:
            other.repo_key, other.repo_root = repo_key, ""
        return other

    # What is known of it.

    @property
    def name(self) -> str:
        return self.known.name

    @property
    def is_local(self) -> bool:
        return self.endpoint is None

    @property
    def is_known(self) -> bool:
        """Whether its host key is pinned, so that a login asks nothing and pins nothing."""
        return self.is_local or self.known.known_hosts.is_file()

    def save(self, known: KnownBox) -> None:
        """Save `known`, with the route that led to it. A failure to write is reported, once."""
        self.known = self._reached(known)
        try:
            self.known = record.save_box(self.known, is_new=self.is_local)
        except (OSError, UsageError) as error:
            own = write_error(self.known.folder, error) if isinstance(error, OSError) else error
            if not self._unwritten:
                self.reporter.say(f"this box's record can't be saved: {own.what}")
            self._unwritten = True

    def note_sent(self, here: LocalRepository | None, key: str, workdir: str, **known: str) -> None:
        """Record what was sent, and say whose files share the folder on the box with it."""
        place = str(here.root) if here is not None else ""
        others = self.known.others_words(place, key, known.get("root", ""), workdir)
        for said in filter(None, (self.known.left_words(key, workdir), others)):
            self.reporter.warn(f"{self.name}: {said}")
        self.save(self.known.using(key, workdir=workdir, place=place, **known))

    def _reached(self, known: KnownBox) -> KnownBox:
        """Note time and route of the login; via boxstrap's own ssh entry the route is known."""
        known = replace(known, seen=time.time())
        if self.endpoint is None or registry.entry_owner(self.endpoint):
            return known
        return replace(known, route=record.route_of(self.endpoint, record.boxes_folder()))

    def note_given(self, names: Iterable[str]) -> None:
        """Record in advance which secrets it will be given."""
        ever = tuple(sorted({*(self.known.secrets or ()), *names}))
        if ever != self.known.secrets:
            self.save(replace(self.known, secrets=ever))

    def note_held(self, names: Iterable[str]) -> None:
        """Record which secrets it has now, in place of those recorded before."""
        held = tuple(sorted(names))
        self.note_given(held)
        if held != self.known.held_secrets:
            self.save(replace(self.known, held_secrets=held))

    def set_price(self, said: float | None) -> None:
        """Set what it costs: by its account, else by the profile, else as it was the last time."""
        if said is not None and not (self.target.is_rented and self.known.price):
            self.known = replace(self.known, price=float(said))
        self.reporter.price = self.known.price or None

    # What is redacted.

    @property
    def redactor(self) -> Redactor:
        """Redacts the secrets that it was given; the reporter redacts them too from then on."""
        if self._redactor is None:
            from bootstrap.boxes.secrets import redactor_for

            self._redactor = redactor_for(self.known, self.options)
            self.reporter.redact = self._redactor.text
        return self._redactor

    def redact(self, values: Mapping[str, str]) -> None:
        """Redact these values too: they are given to it now."""
        from bootstrap.boxes.secrets import redactor_of

        self._redactor = redactor_of([self.known], values)
        self.reporter.redact = self._redactor.text

    @property
    def redacted_there(self) -> Sequence[str]:
        """Names of the secrets that the box redacts, because their values are not here."""
        from bootstrap.boxes.secrets import redacted_by_box

        return redacted_by_box(self.known, self.state, self.redactor.secrets)

    def warn_of_unredacted(self) -> None:
        """Warn of secrets that can't be redacted: their values are neither here nor there."""
        from bootstrap.boxes.secrets import unredacted

        if gone := unredacted(self.known, self.state, self.redactor.secrets):
            self.reporter.warn(
                f"{', '.join(gone)}: given to this box before, but not in your environment now, "
                "so it can't be redacted in what the box says"
            )

    def note_runs_now(self) -> None:
        """Ask for its runs again, and record them for `runs`; a failure records nothing."""
        with contextlib.suppress(BoxstrapError):
            self.refresh()
            self.note_runs()

    def note_runs(self) -> None:
        from bootstrap.boxes.at_home import note_seen

        note_seen(
            self.known,
            self.state.runs,
            self.redactor.text,
            keys={self.here[0]: self.own} if self.own else {},
            box_time=self.state.now,
            every=True,
            results={name: there.where for name, there in self.details.results.items()},
            metrics=self.details.metric_lines(self.redactor.text),
        )

    # The login.

    def dial(self) -> None:
        """Start to connect in the background, unless there is a connection to share."""
        self._shared = self._joined()
        if self._shared is not None:
            return
        self._dialing = self._dialed()
        if self._dialing is not None:
            # The login needs this module anyway. Loaded in parallel with others it would be last.
            import bootstrap.link.ssh  # noqa: F401

    def _joined(self) -> SharedWire | None:
        """Return the box's shared connection, if there is one and nothing speaks against it."""
        if self.endpoint is None or not self.shares or self.options.host_key:
            return None
        from bootstrap.link.shared import join

        return join(self.known, self.endpoint, self._log_in_instead)

    @property
    def shared_socket(self) -> str:
        """The control socket of the connection that it shares, for ssh; "" if it logged in."""
        from bootstrap.link.mux import SharedWire

        wire = self._link.wire if self._link else None
        return wire.path if isinstance(wire, SharedWire) and wire.is_shared else ""

    def expect(self, size: int) -> bool:
        """Log in after all, if so many bytes will come that the window of a shared connection, a
        fifth of a login's, is too small; return whether it did. Raises as `link`, and LinkLost."""
        if is_much := size > _MUCH and bool(self.shared_socket):
            wire = DeferredLogin(self._log_in_instead).wire(has_answered=True)
            shared, self.link.wire = self.link.wire, wire
            shared.close()
        return is_much

    def _dialed(self) -> PendingConnection | None:
        if self.endpoint is None:
            return None
        from bootstrap.link.dial import dial

        return dial(self.endpoint, self._met)

    def _met(self) -> float:
        from bootstrap.boxes.at_home import last_met

        return last_met(self.known)

    def begin(self, *, asks: bool = True) -> None:
        """Start to connect, and log in in the background while this machine reads profile and
        repository, which takes about as long. An unknown box is only dialed.

        With `asks` the box is also asked about its last script, since usually the same one is
        rendered again. Errors of the login are raised when the link is used.
        """
        self.dial()
        if self.is_known:
            if asks and self.known.last.script and self.workdir and self.repo_key:
                self._early_question = self._about, self.known.last.script
            self._early = DeferredLogin(self._new_wire, self._ask_early)
            self._early.begin()

    def _ask_early(self, wire: Wire) -> None:
        if self._early_question:
            with contextlib.suppress(BoxstrapError):  # it is asked again later
                self._early_answer = _probed(wire, *self._early_question)

    def _told_early(self, script: str) -> BoxState | None:
        """Return what it said early, once, if that also holds for this; else None."""
        about, asked = self._early_question or (None, "")
        if self._early is None or about != self._about:
            return None
        self._early.join()
        answer, self._early_answer = self._early_answer, None
        if answer is None or script == asked:
            return answer
        # A box gives no plan for a script that it doesn't have.
        return None if answer.script == script else replace(answer, plan={})

    @property
    def link(self) -> ReconnectingLink:
        """The login, made again when it is lost. Raises as `link.ssh.login`, CancelledError."""
        if self._link is None:
            _ = self.redactor  # whoever logs in reads what the box says
            self._link = ReconnectingLink(
                self._next_wire,
                lost=self._lost,
                back=self.reporter.back,
                warn=self.reporter.warn,
                cancel=self.cancel,
            )
        return self._link

    @property
    def wire(self) -> Wire:
        """The current login. Raises as `link`."""
        return self.link.wire

    @property
    def label(self) -> str:
        """It in messages: `user@address:port`."""
        return self.link.label

    def ask(self, question: Callable[[BoxLogin], _Answer]) -> _Answer:
        """Ask what may be asked twice, over a lost link too. Raises as `ReconnectingLink.ask`."""
        return self.link.ask(lambda _: question(self))

    def _lost(self, seconds: float) -> None:
        if seconds < PAUSES_S[0]:
            record.note_reached(self.known.folder)
        self.reporter.lost(seconds)

    def close(self) -> None:
        """Log out, now or as soon as the login is made."""
        if self._link is not None and self._link.wire.alive():
            record.note_reached(self.known.folder)
        for each in (self._link, self._early):
            if each is not None:
                each.close()

    def _next_wire(self) -> Wire:
        """Return the login that was begun; on later calls, a new one."""
        self.cancel.check()
        if self._early and not self._logs_in_anew:
            self._logs_in_anew = True
            return self._early.first(self.cancel)
        return self._new_wire()

    def _new_wire(self) -> Wire:
        """Return the shared connection, if there is one, or a login."""
        shared, self._shared = self._shared, None
        wire = shared if shared is not None else self._log_in_instead()
        # It showed its pinned key: a new name is noted, or that it was forgotten.
        if not self._was_forgotten():
            before = record.load_box(self.known.folder)
            if before is not None and before.name != self.name:
                self._is_now(before, f"{before.name} is called {self.name} now")
        return wire

    def _was_forgotten(self, own: Collection[float] = ()) -> bool:
        """Return whether it was known here before, and take up what was; see `met_again`."""
        if before := forgotten.met_again(self.known, own):
            said = f"{self.name} was known here as {before.name} until it was forgotten"
            if before.name == self.name:
                said = f"{self.name} was forgotten here"
            if not self.options.name:
                self.known = registry.called_again(self.known, before.name)
            if before.name == self.name:
                said += ", and is called so again"
            said += "; what is known of its runs is its own again: boxstrap runs"
            more = (one for one in before.repositories if not self.known.of(one.key))
            self.known = replace(self.known, repositories=(*self.known.repositories, *more))
            self._is_now(before, said)
        return before is not None

    def _is_now(self, before: KnownBox, said: str) -> None:
        """What came home of the box `before` is this one's."""
        from bootstrap.boxes import at_home, receipt

        at_home.note_name(before, self.known)
        receipt.note_name(self.known.folder, before.name, self.name)
        self.save(self.known)
        self.reporter.say(said)

    def _log_in_instead(self) -> Wire:
        """Log in; if that fails for a rented box, at the new address that its account may have."""
        try:
            return self._log_in()
        except (UnreachableError, HostKeyError):
            if not self._found_elsewhere():
                raise
            return self._log_in()

    def _found_elsewhere(self) -> bool:
        if self.endpoint is None or not self.target.is_rented:
            return False
        target = registry.ask_account_again(self.target, self.known)
        if (target.address, target.port) == (self.endpoint.hostname, self.endpoint.port):
            return target.let_in
        identity = self.options.identity or registry.identity_of(self.known, self.target)
        self.endpoint = resolve(target, identity=identity)
        self.known = registry.moved(self.known, target, self.endpoint)
        self.reporter.say(f"{self.target.text} is at {self.endpoint.address} now")
        return True

    def _log_in(self) -> Wire:
        if self._link and self.endpoint and not self.known.folder.exists():
            what = "it was forgotten or given back here: at its address may be another box now."
            raise HostKeyError(what, where=self.label, hint="The boxes known here: boxstrap boxes")
        dialing, self._dialing = self._dialing or self._dialed(), None
        if dialing is None:
            return LocalWire()
        from bootstrap.link.ssh import login

        wire = login(
            dialing,
            self._reached(self.known),
            host_key=self.options.host_key,
            first_contact=self.first_contact,
            say=self.reporter.say,
            again=self._log_in,
        )
        self.known = replace(self.known, key=wire.used_key)
        if wire.silent_key and self.endpoint:
            from bootstrap.link.shared import offer

            offer(self.known, self.endpoint, wire.silent_key)
        return wire

    # What it says.

    def refresh(self, script: str | None = None) -> BoxState:
        """Ask for its state now, once, and keep it. Raises as `probe`.

        `script` is the id of one that it may have, or "": the answer then has the signs of
        providers, and why each step of that script would run.
        """
        self.state = _probed(self.wire, self._about, script)
        self._tell_by_runs()
        return self.state

    def _tell_by_runs(self) -> None:
        """Take up what is known of it from before it showed another key: it has the same runs."""
        from bootstrap.boxes.at_home import boxes_of

        if own := boxes_of(self.known, self.state.runs):
            self._was_forgotten(own)

    def as_it_is(self, run: Run) -> Run:
        """Return the run as the box told of it last; as given, if it doesn't know it."""
        own = (run.repo_key, run.name)
        return next((one for one in self.state.runs if (one.repo_key, one.name) == own), run)

    def refresh_details(self) -> None:
        """Ask for its state together with details of its runs. Raises as `refresh`."""
        from bootstrap.boxes.run_details import ask_details  # late: a setup asks for none

        redact = self.known.secrets or ()
        self.state, self._details = ask_details(self.wire, *self._about, redact=redact)
        self._tell_by_runs()

    @property
    def details(self) -> RunDetails:
        """Details of its runs, if they were asked together with its state."""
        from bootstrap.boxes.run_details import NO_DETAILS

        return self._details or NO_DETAILS

    def state_for(self, script: str) -> BoxState:
        """As `refresh`, across lost links; the early login may have asked already."""
        self.state = self._told_early(script) or self.ask(lambda box: box.refresh(script))
        return self.state

    @property
    def _about(self) -> _About:
        return self.workdir, self.repo_key, self.repo_root

    def query(self, name: str, /, *, timeout: float = 60, **values: Value) -> bytes:
        """Send a query about its working folder, once. Raises LinkLost, NoAnswer."""
        script = build_query(name, NO_REDACTION, workdir=self.workdir, **values)
        return run_script(self.wire, script, timeout=timeout)

    def ask_word(self, verb: str, *, timeout: float = 60, **asked: str) -> bytes:
        """Ask for one of the verbs of `onbox/verbs.py`. Raises as `query`."""
        script = ask("verbs", {"verb": verb, **asked}, workdir=self.workdir)
        return run_script(self.wire, script, timeout=timeout)

    def tail(self, file: str, most: int, *, redacted: bool = False) -> bytes:
        """Return the last `most` bytes of a file in its folder. Raises as `query`."""
        from bootstrap.boxes.follow import file_tail

        redact = self.redacted_there if redacted else ()
        return file_tail(self.wire, file, self.workdir, most, redact)

    def runs(self, name: str | None, *, every: bool = False) -> list[Run]:
        """Return the selected runs, newest first. Raises UsageError, see `select_runs`."""
        at, where = self.name if self.state.working else "", self.label
        return select_runs(self.state.runs, self.own, name, every=every, where=where, setup_at=at)

    def begun_run(self, name: str | None, *, every: bool = False) -> Run:
        """Return the run of that name, else the newest that has begun, else the newest."""
        found = self.runs(name, every=every)
        return next((run for run in found if run.has_begun), found[0])

    def repository(self, run: Run) -> str:
        return repository_names({one.repo_key for one in self.state.runs})[run.repo_key]


def _probed(wire: Wire, about: _About, script: str | None) -> BoxState:
    if script is None:
        return probe(wire, *about)
    from bootstrap.profile.detect_provider import all_hints  # late, to not delay the login

    hints = all_hints()
    signs: dict[str, Any] = {"hint_names": hints.env, "hint_files": hints.files}
    return probe(wire, *about, script=script, **signs, needs_runs=False)
