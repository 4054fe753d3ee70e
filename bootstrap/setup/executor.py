"""A setup from probe to done: what must travel goes over, the box works, its events are told."""

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
from bootstrap.secrets.values import note_held, packed, redacted_there
from bootstrap.setup.result import SetupEnd, raise_for
from bootstrap.setup.senders import SetupSenders

if TYPE_CHECKING:
    from bootstrap.protocol.probe import BoxState
    from bootstrap.setup.context import SetupContext

_MOST_SAME = 5
"""How often a box may answer that the same setup is at work already, without showing one end."""
_LAUNCHES = 5
"""How often a setup is launched over links that break meanwhile."""


class SetupExecutor:
    """Drives one setup over a link that may come and go."""

    def __init__(self, context: SetupContext) -> None:
        self.request = context.request
        self.link = context.link
        self.payload = context.payload
        self.reporter = context.reporter
        self.setup = ""
        self.own_folder = False
        """Whether another repository of the box has the folder of its name."""
        self.began_run = False
        """Whether the setup that was followed began the training."""
        self.context = context
        self.redacted_there: Sequence[str] = ()
        """The secrets that the box holds, and of which no value is here."""
        self._holder = ""
        self._failed_step = ""
        self._failed_name = ""
        self._failed_code = Code("", "")
        self._senders = SetupSenders(context)
        self._same = 0
        self._launches = 0

    @property
    def workdir(self) -> str:
        """The working folder, as the profile has it."""
        return self.payload.profile.box.workdir

    def run(self, box_state: BoxState) -> str:
        """Bring the box to the profile; the setup's id, or "" where nothing was to do.

        A setup of the same script that is at work already is followed. Raises
        what `result.raise_for` raises.
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
        self.redacted_there = redacted_there(
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
        """What the box calls what is asked for: one that begins a run is no other's."""
        run = self.request.run
        return f"{self.payload.script_id}+{run.id}" if run else self.payload.script_id

    def _follow_another(self, setup: str, box_state: BoxState) -> str:
        """Somebody began the same already. It may be asked for less: the rest is done then."""
        self.reporter.say(f"this setup is at work already ({setup}): following it")
        self._follow(setup, box_state.have)
        box_state = self.context.box_state()
        if self.request.only or self.request.run or box_state.nothing_to_do:
            return setup
        self._count_the_same()
        return self.run(box_state) or setup

    def _look_after(self, setup: str, lost: LinkLost) -> str:
        """The link broke while a setup was launched: the box knows whether it began."""
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
            redact=self.redacted_there,
        )

    def _follow_the_same(self) -> str:
        """Two of the same began at once, and the other one won."""
        self._count_the_same()
        box_state = self.context.box_state()
        if box_state.working:
            return self._follow(box_state.working[0], box_state.have)
        return self.run(box_state)

    def _count_the_same(self) -> None:
        self._same += 1
        if self._same > _MOST_SAME:
            raise StepFailedError(
                "it says again and again that the same setup is at work, and shows none.",
                where=self.link.label,
                hint="Run the same command again; if it stays so, don't trust this box.",
            )

    def _say_for_whom(self) -> None:
        """Another setup holds the box: which, and how long it is waited for."""
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
            self.began_run = True
        self.own_folder = self.own_folder or event.word("code") == "own-folder"
        if event.event == "fail":
            self._failed_step = event.step
            self._failed_name = event.word("code")
            self._failed_code = explain(self._failed_name, event.fields)
        self._senders.tell(event)
