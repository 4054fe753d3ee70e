"""Drive a setup from probe to done: send what is needed, and report the box's events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.codes import Code, explain
from bootstrap.errors import StepFailedError
from bootstrap.events import Event
from bootstrap.link.errors import LinkLost
from bootstrap.plan import closure
from bootstrap.protocol.follow import follow_events
from bootstrap.protocol.launch import Launch, launch, new_setup_id
from bootstrap.secrets.values import note_held, packed, redacted_by_box
from bootstrap.setup.result import SetupEnd, raise_for
from bootstrap.setup.senders import SetupSenders

if TYPE_CHECKING:
    from bootstrap.protocol.probe import BoxState
    from bootstrap.setup.context import SetupContext

_MOST_SAME = 5
"""How often a box may claim that the same setup is already running, without one ending."""
_LAUNCHES = 5
"""How often to launch a setup when the link breaks while launching."""


class SetupExecutor:
    """Drives one setup over a link that may be lost and come back."""

    def __init__(self, context: SetupContext) -> None:
        self.request = context.request
        self.link = context.link
        self.payload = context.payload
        self.reporter = context.reporter
        self.setup = ""
        self.own_folder = False
        """Whether another repository on the box already has the folder of this name."""
        self.started_run = False
        """Whether the followed setup started the training."""
        self.context = context
        self.redacted_by_box: Sequence[str] = ()
        """Names of the secrets that the box has, but whose values are not on this machine."""
        self._holder = ""
        self._failed_step = ""
        self._failed_name = ""
        self._failed_code = Code("", "")
        self._senders = SetupSenders(context)
        self._same = 0
        self._launches = 0

    @property
    def workdir(self) -> str:
        """The profile's working folder."""
        return self.payload.profile.box.workdir

    def run(self, box_state: BoxState) -> str:
        """Set the box up; return the setup's id, or "" if there was nothing to do.

        A running setup of the same script is followed instead. Raises as
        `result.raise_for`.
        """
        self._senders.machine = box_state.facts.get("system", "").replace(" ", "-")
        begins = self.request.restart or self.request.run
        if box_state.working and box_state.working[1] == self._own_id:
            return self._follow_another(box_state.working[0], box_state)
        if box_state.nothing_to_do and not begins:
            return ""
        if self.payload.secrets.names:
            self.context.ask_commands(box_state)
            self.reporter.note("secrets", self.payload.secrets.describe(box_state.secrets))
        if not self.request.only:
            note_held(self.context.box, self.payload.secrets.names)
        self.redacted_by_box = redacted_by_box(
            self.context.box.known, box_state, self.context.secrets_here
        )
        if self.request.restart and box_state.live_run:
            self.reporter.note(
                "restart", f"{box_state.live_run.name} is running: it is stopped first"
            )
        setup = new_setup_id()
        self.link.cancel.check()
        try:
            launch(self.link.wire, self._launch(setup))
        except LinkLost as lost:
            return self._look_after(setup, lost)
        return self._follow(setup, box_state.have)

    @property
    def _own_id(self) -> str:
        """The script id that the box reports for this request; with a run, it is unique."""
        run = self.request.run
        return f"{self.payload.script_id}+{run.id}" if run else self.payload.script_id

    def _follow_another(self, setup: str, box_state: BoxState) -> str:
        """Follow a setup of the same script, then run again if this request asks for more."""
        self.reporter.say(f"this setup is already running ({setup}): following it")
        self._follow(setup, box_state.have)
        box_state = self.context.box_state()
        if self.request.only or self.request.run or box_state.nothing_to_do:
            return setup
        self._count_the_same()
        return self.run(box_state) or setup

    def _look_after(self, setup: str, lost: LinkLost) -> str:
        """Ask the box whether a setup was started when the link broke while launching it."""
        self._launches += 1
        if self._launches > _LAUNCHES:
            raise lost
        self.link.reconnect(lost)
        box_state = self.context.box_state()
        if setup in (box_state.working or ()) or setup == box_state.last_setup.get("setup"):
            return self._follow(setup, box_state.have)
        return self.run(box_state)

    def _launch(self, setup: str) -> Launch:
        words = [word for word in ("restart", "adopt") if getattr(self.request, word)]
        if self.request.only:
            words.append(f"only={self.request.only}")
        if self.request.run:
            words += self.request.run.words(self.payload.profile)
        return Launch(
            script=self.payload.script,
            setup=setup,
            workdir=self.workdir,
            wait_s=self.request.wait_s,
            words=words,
            secrets=packed(self.payload.secrets.values),
        )

    def _follow(self, setup: str, have: Sequence[str]) -> str:
        self.setup = self._senders.setup = setup
        names = [step.name for step in self.payload.steps if self._takes_part(step.name)]
        if self.request.run and "train" not in names:
            names.append("train")
        self.reporter.plan(names)
        self._senders.send_commit(have)
        for event in follow_events(self.link, setup, workdir=self.workdir):
            if event.event == "done" and event.word("code") == "same":
                return self._follow_the_same()
            self._tell(event)
            if (event.event, event.word("code")) == ("wait", "busy"):
                self._say_for_whom()
            if event.event == "wait":
                self._senders.send_asked(event.word("code"))
            if event.event == "done":
                raise_for(event, self._end(), self.reporter)
        return setup

    def _end(self) -> SetupEnd:
        return SetupEnd(
            wire=self.link.wire,
            workdir=self.workdir,
            setup=self.setup,
            box_name=self.context.box.known.name,
            wait_s=self.request.wait_s,
            step=self._failed_step,
            code=self._failed_code,
            code_name=self._failed_name,
            holder=self._holder,
            advice=self.payload.profile.provider.advice,
            redact=self.redacted_by_box,
        )

    def _follow_the_same(self) -> str:
        """Follow the other one of two same setups that were started at the same time."""
        self._count_the_same()
        box_state = self.context.box_state()
        if box_state.working:
            return self._follow(box_state.working[0], box_state.have)
        return self.run(box_state)

    def _count_the_same(self) -> None:
        self._same += 1
        if self._same > _MOST_SAME:
            raise StepFailedError(
                "it repeatedly reports that the same setup is running, but shows none.",
                where=self.link.label,
                hint="Run the same command again; if it stays so, don't trust this box.",
            )

    def _say_for_whom(self) -> None:
        """Report which other setup holds the box, and how long this one waits for it."""
        holder = self.context.box_state().holder
        if holder and holder.setup != self.setup:
            self._holder = str(holder)
            self.reporter.say(f"waits for {holder}; at most {self.request.wait_s} s (--wait)")

    def _takes_part(self, name: str) -> bool:
        if not self.request.only:
            return True
        return any(name in closure(step) for step in self.request.only.split(","))

    def _tell(self, event: Event) -> None:
        if (event.step, event.event) == ("train", "ok"):
            self.started_run = True
        self.own_folder = self.own_folder or event.word("code") == "own-folder"
        if event.event == "fail":
            self._failed_step = event.step
            self._failed_name = event.word("code")
            self._failed_code = explain(self._failed_name, event.fields)
        self._senders.tell(event)
