"""A setup from probe to done: what must travel goes over, the box works, its events are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.codes import Code, explain
from bootstrap.errors import BoxstrapError, StepFailedError
from bootstrap.events import Event
from bootstrap.link.errors import LinkLost
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.link.wire import Wire
from bootstrap.profile.providers import all_hints
from bootstrap.protocol.follow import follow_events
from bootstrap.protocol.launch import Launch, launch, new_setup_id
from bootstrap.protocol.objects import Sending
from bootstrap.protocol.probe import BoxState, probe
from bootstrap.setup import secrets
from bootstrap.setup.outcome import Ended, raise_for
from bootstrap.setup.prepare import Prepared
from bootstrap.ui.screen import Screen

_OBJECT_TELLS_S = 0.2
"""Seconds between two words on objects sent."""
_MOST_SAME = 5
"""How often a box may answer that the same setup is at work already, without showing one end."""
_LAUNCHES = 5
"""How often a setup is launched over links that break meanwhile."""


@dataclass(frozen=True)
class Wishes:
    """How this setup is to go."""

    restart: bool = False
    adopt: bool = False
    """Take the clone that lies in the repository's folder, though boxstrap did not make it."""
    only: str = ""
    """Steps, with commas between: they and what they need, each whatever its stamp says."""
    wait_s: int = 60


class Drive:
    """Drives one setup over a link that may come and go."""

    def __init__(
        self,
        box_name: str,
        link: ReconnectingLink,
        prepared: Prepared,
        screen: Screen,
        wishes: Wishes,
    ) -> None:
        self.box_name = box_name
        self.link = link
        self.prepared = prepared
        self.screen = screen
        self.wishes = wishes
        self.setup = ""
        self.own_folder = False
        """Whether another repository of the box has the folder of its name."""
        self.began_run = False
        """Whether the setup that was followed began the training."""
        self._holder = ""
        self._failed_step = ""
        self._failed_name = ""
        self._failed_code = Code("", "")
        self._sending: Sending | None = None
        self._last_tell = 0.0
        self._same = 0
        self._telling = threading.Lock()
        self._launches = 0

    @property
    def workdir(self) -> str:
        """The working folder, as the profile has it."""
        return self.prepared.profile.box.workdir

    def box_state(self) -> BoxState:
        """Ask the box what it has of this work, for as long as it takes to get an answer."""
        return self.link.ask(self._probe)

    def _probe(self, wire: Wire) -> BoxState:
        prepared, hints = self.prepared, all_hints()
        return probe(
            wire,
            workdir=self.workdir,
            repo_key=prepared.repo_key,
            repo_root=prepared.repo_root,
            script=prepared.script_id,
            hint_names=hints.env,
            hint_files=hints.files,
        )

    def run(self, box_state: BoxState) -> str:
        """Bring the box to the profile; the setup's id, or "" where nothing was to do.

        A setup of the same script that is at work already is followed. Raises
        what `outcome.raise_for` raises.
        """
        if box_state.working and box_state.working[1] == self.prepared.script_id:
            return self._follow_another(box_state.working[0], box_state)
        if box_state.nothing_to_do and not self.wishes.restart:
            return ""
        if self.prepared.secrets:
            self.screen.note("secrets", ", ".join(self.prepared.secrets))
        if self.wishes.restart and box_state.alive:
            self.screen.note("restart", f"{box_state.alive.name} is running: it is stopped first")
        setup = new_setup_id()
        try:
            launch(self.link.wire, self._launch(setup))
        except LinkLost as lost:
            return self._look_after(setup, lost)
        return self._follow(setup, box_state.have)

    def _follow_another(self, setup: str, box_state: BoxState) -> str:
        """Somebody began the same already. It may be asked for less: the rest is done then."""
        self.screen.say(f"this setup is at work already ({setup}): following it")
        self._follow(setup, box_state.have)
        box_state = self.box_state()
        if self.wishes.only or box_state.nothing_to_do:
            return setup
        self._count_the_same()
        return self.run(box_state) or setup

    def _look_after(self, setup: str, lost: LinkLost) -> str:
        """The link broke while a setup was launched: the box knows whether it began."""
        self._launches += 1
        if self._launches > _LAUNCHES:
            raise lost
        self.link.reconnect(lost)
        box_state = self.box_state()
        if setup in (box_state.working or ()) or setup == box_state.last_setup.get("setup"):
            return self._follow(setup, box_state.have)
        return self.run(box_state)

    def _launch(self, setup: str) -> Launch:
        wishes = {"restart": self.wishes.restart, "adopt": self.wishes.adopt}
        words = [word for word, wished in wishes.items() if wished]
        if self.wishes.only:
            words.append(f"only={self.wishes.only}")
        return Launch(
            script=self.prepared.script,
            setup=setup,
            workdir=self.workdir,
            wait_s=self.wishes.wait_s,
            words=words,
            secrets=secrets.packed(self.prepared.secrets),
        )

    def _follow(self, setup: str, have: Sequence[str]) -> str:
        self.setup = setup
        self.screen.plan([step.name for step in self.prepared.steps if self._takes_part(step.name)])
        self._send_commit(have)
        for event in follow_events(self.link, setup, workdir=self.workdir):
            if event.event == "done" and event.word("code") == "same":
                return self._follow_the_same()
            self._tell(event)
            if (event.event, event.word("code")) == ("wait", "busy"):
                self._say_for_whom()
            if event.event == "done":
                raise_for(event, self._ended(), self.screen)
        return setup

    def _ended(self) -> Ended:
        return Ended(
            wire=self.link.wire,
            workdir=self.workdir,
            setup=self.setup,
            box_name=self.box_name,
            wait_s=self.wishes.wait_s,
            step=self._failed_step,
            code=self._failed_code,
            code_name=self._failed_name,
            holder=self._holder,
            advice=self.prepared.profile.provider.advice,
        )

    def _follow_the_same(self) -> str:
        """Two of the same began at once, and the other one won."""
        self._count_the_same()
        box_state = self.box_state()
        return (
            self._follow(box_state.working[0], box_state.have)
            if box_state.working
            else self.run(box_state)
        )

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
        holder = self.box_state().holder
        if holder and holder.setup != self.setup:
            self._holder = str(holder)
            self.screen.say(f"waits for {holder}; at most {self.wishes.wait_s} s (--wait)")

    def _takes_part(self, name: str) -> bool:
        if not self.wishes.only:
            return True
        from bootstrap.plan import closure

        return any(name in closure(step) for step in self.wishes.only.split(","))

    def again(self) -> None:
        """The link is back: a commit that was on its way is sent again."""
        sending = self._sending
        if sending is not None and not sending.arrived:
            sending.join()
            self._send_commit(self._probe(self.link.wire).have)

    def _send_commit(self, have: Sequence[str]) -> None:
        here = self.prepared.here
        if here is None or here.commit in have or self.wishes.only:
            return
        self._sending = Sending(
            self.link.wire,
            here,
            have,
            workdir=self.workdir,
            repo_key=self.prepared.repo_key,
            repo_root=self.prepared.repo_root,
            progress=self._tell_objects,
            failed=self._not_sent,
        )
        self._sending.start()

    def _tell(self, event: Event) -> None:
        if (event.step, event.event) == ("train", "ok"):
            self.began_run = True
        self.own_folder = self.own_folder or event.word("code") == "own-folder"
        if event.event == "fail":
            self._failed_step = event.step
            self._failed_name = event.word("code")
            self._failed_code = explain(self._failed_name, event.fields)
        with self._telling:
            self.screen.event(event)

    def _tell_objects(self, done: int, total: int, sent: int) -> None:
        now = time.time()
        if not total or (now - self._last_tell < _OBJECT_TELLS_S and done < total):
            return
        self._last_tell = now
        for unit, fields in (
            ("objects", {"done": done, "total": total}),
            ("bytes", {"done": sent}),
        ):
            self._tell(Event(self.setup, 0, now, "repo", "progress", {**fields, "unit": unit}))

    def _not_sent(self, error: BoxstrapError) -> None:
        with self._telling:
            self.screen.warn(error.text())
