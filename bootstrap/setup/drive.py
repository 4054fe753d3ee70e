"""A setup from hello to done: what must travel goes over, the box works, its events are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.codes import Code, explain
from bootstrap.errors import BoxstrapError, StepFailedError
from bootstrap.events import Event
from bootstrap.link.errors import LinkLost
from bootstrap.link.steady import SteadyLink
from bootstrap.link.wire import Wire
from bootstrap.profile.providers import all_hints
from bootstrap.setup import secrets
from bootstrap.setup.outcome import Ended, raise_for
from bootstrap.setup.prepare import Prepared
from bootstrap.talk.follow import follow_events
from bootstrap.talk.hello import Hello, greet
from bootstrap.talk.launch import Launch, launch, new_setup_id
from bootstrap.talk.objects import Sending
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
        link: SteadyLink,
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

    def hello(self) -> Hello:
        """Ask the box what it has of this work, for as long as it takes to get an answer."""
        return self.link.ask(self._greet)

    def _greet(self, wire: Wire) -> Hello:
        prepared, hints = self.prepared, all_hints()
        return greet(
            wire,
            workdir=self.workdir,
            repo_key=prepared.repo_key,
            repo_root=prepared.repo_root,
            script=prepared.script_id,
            hint_names=hints.env,
            hint_files=hints.files,
        )

    def run(self, hello: Hello) -> str:
        """Bring the box to the profile; the setup's id, or "" where nothing was to do.

        A setup of the same script that is at work already is followed. Raises
        what `outcome.raise_for` raises.
        """
        if hello.working and hello.working[1] == self.prepared.script_id:
            return self._follow_another(hello.working[0], hello)
        if hello.nothing_to_do and not self.wishes.restart:
            return ""
        if self.prepared.secrets:
            self.screen.note("secrets", ", ".join(self.prepared.secrets))
        if self.wishes.restart and hello.alive:
            self.screen.note("restart", f"{hello.alive.name} is running: it is stopped first")
        setup = new_setup_id()
        try:
            launch(self.link.wire, self._launch(setup))
        except LinkLost as lost:
            return self._look_after(setup, lost)
        return self._follow(setup, hello.have)

    def _follow_another(self, setup: str, hello: Hello) -> str:
        """Somebody began the same already. It may be asked for less: the rest is done then."""
        self.screen.say(f"this setup is at work already ({setup}): following it")
        self._follow(setup, hello.have)
        hello = self.hello()
        if self.wishes.only or hello.nothing_to_do:
            return setup
        self._count_the_same()
        return self.run(hello) or setup

    def _look_after(self, setup: str, lost: LinkLost) -> str:
        """The link broke while a setup was launched: the box knows whether it began."""
        self._launches += 1
        if self._launches > _LAUNCHES:
            raise lost
        self.link.again(lost)
        hello = self.hello()
        if setup in (hello.working or ()) or setup == hello.last_setup.get("setup"):
            return self._follow(setup, hello.have)
        return self.run(hello)

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
        hello = self.hello()
        return self._follow(hello.working[0], hello.have) if hello.working else self.run(hello)

    def _count_the_same(self) -> None:
        self._same += 1
        if self._same > _MOST_SAME:
            raise StepFailedError(
                "it says again and again that the same setup is at work, and shows none.",
                where=self.link.label,
                next_="Run the same command again; if it stays so, don't trust this box.",
            )

    def _say_for_whom(self) -> None:
        """Another setup holds the box: which, and how long it is waited for."""
        holder = self.hello().holder
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
            self._send_commit(self._greet(self.link.wire).have)

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
