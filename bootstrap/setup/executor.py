"""Drive a setup from probe to done: send what is needed, and report the box's events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bootstrap.boxes.follow import follow_events
from bootstrap.boxes.secrets import packed
from bootstrap.errors import BoxstrapError, BusyError, StepFailedError, UnreachableError, UsageError
from bootstrap.link.query import LaunchOptions, launch, new_setup_id
from bootstrap.link.wire import LinkLost
from bootstrap.setup.result import SetupEnd, raise_for
from bootstrap.steps.event_codes import Code, edited_there, explain
from bootstrap.steps.events import Event
from bootstrap.steps.plan import closure
from bootstrap.value import replace

if TYPE_CHECKING:
    from bootstrap.boxes.probe import BoxState, Holder
    from bootstrap.setup.context import SetupContext
    from bootstrap.transfer.buckets import BucketItems
    from bootstrap.transfer.sender import Sender
    from bootstrap.transfer.source_files import PushProgress


# Senders are imported only when there is something to send, so that no box waits for that.
_TELLS_S = 0.2  # minimum seconds between two progress events


class SetupSenders:
    """The senders of one setup. Each has its own thread, and is started again after a lost link."""

    def __init__(self, context: SetupContext) -> None:
        self.setup = ""  # the setup's id, once there is one
        self.machine = ""  # the box's system and processor, as `uname` names them
        self.unsent: BoxstrapError | None = None
        """Why something could not be sent, the first of all."""
        self._context = context
        self._box, self._payload = context.box, context.payload
        self._reporter, self._telling = context.box.reporter, threading.Lock()
        self._sending: dict[str, Sender] = {}
        self._asked_for: dict[str, Callable[[], Sender]] = {
            "uv-unlisted": self._uv_sender,
            "dependencies": self._dependency_sender,
            "data": self._data_sender,
            "data-addresses": self._address_sender,
        }
        """Makes the sender for each code that the box may wait with."""
        self._in_buckets: BucketItems | None = None
        """The profile's data in buckets, once the box has asked for it."""
        self._last_tell = 0.0
        self._box.link.on_reconnect.append(self._send_again)

    def tell(self, event: Event) -> None:
        """Show an event; thread-safe, since senders report their own."""
        with self._telling:
            self._reporter.event(event)

    def send_asked(self, code: str) -> None:
        """Send what the box waits for with this code, if this machine has a sender for it."""
        if code in self._asked_for:
            self._sending[code] = self._asked_for[code]()
            self._sending[code].start()

    def _send_again(self) -> None:
        """After a reconnect, send again what had not arrived."""
        for what, sender in list(self._sending.items()):
            if sender.arrived:
                continue
            sender.join()
            if what in self._asked_for:
                self.send_asked(what)
            else:
                self.send_commit(self._box.refresh(self._payload.script_id).have)

    def send_commit(self, have: Sequence[str]) -> None:
        """Send the commit in the background, unless the box has it."""
        here, snapshot = self._payload.here, self._payload.snapshot
        if here is None or snapshot is None or snapshot.id in have or self._context.request.only:
            return
        from bootstrap.setup.send import CommitSender

        self._sending["commit"] = CommitSender(
            **self._about,
            here=here,
            snapshot=snapshot,
            have=have,
            repo_key=self._payload.source.key,
            repo_root=self._payload.source.root,
            progress=self._tell_objects,
            share=self._context.request.once.share,
        )
        self._sending["commit"].start()

    @property
    def _about(self) -> dict[str, Any]:
        box = self._box
        about = {"wire": box.wire, "workdir": box.workdir, "setup": self.setup}
        return {**about, "failed": self._not_sent}

    def _uv_sender(self) -> Sender:
        """Make the sender for a box whose package index lacks uv."""
        from bootstrap.setup.send import UvSender

        return UvSender(
            **self._about,
            machine=self.machine,
            progress=partial(self._tell_bytes, "agent"),
            sent=self._uv_arrived,
        )

    def _dependency_sender(self) -> Sender:
        """Make the sender for private dependencies that the box lacks for its environment."""
        from bootstrap.setup.send import DependencySender

        return DependencySender(
            **self._about,
            dependencies=self._payload.dependencies,
            progress=partial(self._tell_bytes, "python"),
            say=self._say,
        )

    def _data_sender(self) -> Sender:
        """Make the sender for the profile's data on this machine."""
        from bootstrap.setup.push import DataSender
        from bootstrap.transfer.push import upload_of_several

        once, items = self._context.request.once, self._payload.data

        def tell() -> None:
            sources = [(item.source, item.exclude) for item in items]
            if said := upload_of_several(sources, len(once.hosts)):
                self._reporter.say(said)

        if once.is_shared:
            once.get("cost of data", tell)
        return DataSender(**self._about, items=self._payload.data, progress=self._tell_push)

    def _address_sender(self) -> Sender:
        """Make the sender for addresses of data in buckets, which are missing or expired."""
        from bootstrap.transfer.buckets import AddressSender, BucketItems

        data = enumerate(self._payload.profile.data)
        addresses = {n: each.source for n, each in data if each.place == "bucket"}
        self._in_buckets = self._in_buckets or BucketItems(addresses)
        return AddressSender(**self._about, items=self._in_buckets)

    def _tell_objects(self, done: int, total: int, sent: int) -> None:
        if self._is_time(done, total):
            self._tell_sent("repo", "objects", {"done": done, "total": total})
            self._tell_sent("repo", "bytes", {"done": sent})

    def _tell_bytes(self, step: str, done: int, total: int, **files: int) -> None:
        if self._is_time(done, total):
            self._tell_sent(step, "bytes", {"done": done, "total": total, **files})

    def _tell_push(self, progress: PushProgress) -> None:
        files = {"files": progress.files, "all_files": progress.all_files}
        self._tell_bytes("data", progress.bytes, progress.all_bytes, **files)

    def _is_time(self, done: int, total: int) -> bool:
        """Whether to report progress now: not too often, but always at the end."""
        now = time.time()
        if not total or (now - self._last_tell < _TELLS_S and done < total):
            return False
        self._last_tell = now
        return True

    def _tell_sent(self, step: str, unit: str, fields: dict[str, float | str]) -> None:
        self.tell(Event(self.setup, 0, time.time(), step, "progress", {**fields, "unit": unit}))

    def _uv_arrived(self) -> None:
        from bootstrap.onbox.python import uv_release

        self._say(
            f"uv {uv_release.VERSION} was sent from this machine: "
            "the box's package index does not have it"
        )

    def _say(self, text: str) -> None:
        with self._telling:
            self._reporter.say(text)

    def _not_sent(self, error: BoxstrapError) -> None:
        if not isinstance(error, UnreachableError):  # a lost link is tried again
            self.unsent = self.unsent or error
        with self._telling:
            self._reporter.warn(error.text())


_MOST_SAME = 5
"""How often a box may claim that the same setup is already running, without one ending."""
_LAUNCHES = 5  # how often to launch a setup when the link breaks while launching


class SetupExecutor:
    """Drives one setup over a link that may be lost and come back."""

    def __init__(self, context: SetupContext) -> None:
        self.request = context.request
        self.box = context.box
        self.payload = context.payload
        self.reporter = context.box.reporter
        self.setup = ""
        self.own_folder = False
        """Whether another repository on the box already has the folder of this name."""
        self.started_run = False  # whether the followed setup started the training
        self.left_alone = False  # whether it left steps as they are for a live run
        self.context = context
        self._holder: Holder | None = None
        self._failed_step = ""
        self._failed_name = ""
        self._failed_code = Code("", "")
        self._senders = SetupSenders(context)
        self._same = 0
        self._launches = 0

    def run(self, box_state: BoxState) -> str:
        """Set the box up, or follow a setup of the same script; return its id, "" for nothing to
        do. Raises as `result.raise_for`."""
        self.reporter.has_begun, self.left_alone = True, False
        self._senders.machine = box_state.system.replace(" ", "-")
        begins = self.request.restart or self.request.run or self.request.redo
        if self.request.holds:
            rest = {name: why for name, why in box_state.plan.items() if name != "train"}
            box_state, begins = replace(box_state, plan=rest), self.request.redo
        # With a run, what the box reports of this request is unique.
        own = self.payload.script_id + (f"+{self.request.run.id}" if self.request.run else "")
        if box_state.working and box_state.working[1] == own:
            return self._follow_another(box_state.working[0], box_state)
        if box_state.nothing_to_do and not begins:
            if box_state.edited:
                self.reporter.warn(edited_there(box_state.edited, self.box.name))
            return ""
        if self.request.redo:
            self._check_redo(box_state)
        if self.payload.secrets.names:
            self.context.ask_commands(box_state)
            self.reporter.note("secrets", self.payload.secrets.describe(box_state.secrets))
        if not self.request.only:
            self.box.note_held({*(self.box.known.held_secrets or ()), *self.payload.secrets.names})
        if self.request.restart and box_state.live_run:
            live = box_state.live_run
            self.reporter.note("restart", f"{live.name} is {live.state}: it is stopped first")
        setup = new_setup_id()
        self.box.cancel.check()
        try:
            launch(self.box.wire, self._launch(setup, box_state))
        except LinkLost as lost:
            return self._look_after(setup, lost)
        return self._follow(setup, box_state.have)

    def _check_redo(self, box_state: BoxState) -> None:
        """Raise UsageError for a step that this profile lacks, BusyError if a run needs it."""
        for name in self.request.redo.split(","):
            step = next((step for step in self.payload.steps if step.name == name), None)
            if step is None:
                raise UsageError(f"--redo {name}: the profile asks for nothing there.")
            live = box_state.live_run
            if step.per_repo and live and not self.request.restart:
                raise BusyError(
                    f"{live.name} is {live.state}: its tree stays as it is.",
                    where=self.box.label,
                    hint="Wait for its end, or add --restart, which stops it first.",
                )

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
        self.context.note_begun()  # perhaps
        self.box.link.reconnect(lost)
        box_state = self.context.box_state()
        if setup in (box_state.working or ()) or setup == box_state.last_setup.get("setup"):
            return self._follow(setup, box_state.have)
        return self.run(box_state)

    def _launch(self, setup: str, box_state: BoxState) -> LaunchOptions:
        words = [word for word in ("restart", "adopt", "overwrite") if getattr(self.request, word)]
        if self.request.only:
            words.append(f"only={self.request.only}")
        if self.request.redo:
            words.append(f"redo={self.request.redo}")
        if self.request.holds:
            words = [*(word for word in words if word != "restart"), "without=train"]
        if self.request.run:
            words += self.request.run.words(self.payload.profile)
        return LaunchOptions(
            script=self.payload.script,
            program=self.payload.program,
            has_program=box_state.has_program(self.payload.program.digest),
            setup=setup,
            workdir=self.box.workdir,
            wait_s=self.request.wait_s,
            words=words,
            secrets=packed(self.payload.secrets.values),
        )

    def _follow(self, setup: str, have: Sequence[str]) -> str:
        self.setup = self._senders.setup = setup
        self.context.note_begun()
        names = [step.name for step in self.payload.steps if self._takes_part(step.name)]
        if self.request.run and "train" not in names:
            names.append("train")
        self.reporter.plan(names)
        self._senders.send_commit(have)
        box = self.box
        for event in follow_events(box.link, setup, workdir=box.workdir, redact=box.redacted_there):
            if event.event == "done" and event.word("code") == "same":
                self._count_the_same()
                box_state = self.context.box_state()
                if box_state.working:
                    return self._follow(box_state.working[0], box_state.have)
                return self.run(box_state)
            self._tell(event)
            if (event.event, event.word("code")) == ("wait", "busy"):
                holder = self.context.box_state().holder
                if holder and holder.setup != self.setup:
                    self._holder = holder
                    self.reporter.say(
                        f"waits for {holder}; at most {self.request.wait_s} s (--wait)"
                    )
            if event.event == "wait":
                self._senders.send_asked(event.word("code"))
            if event.event == "done":
                raise_for(event, self._end(), self.reporter)
        return setup

    def _end(self) -> SetupEnd:
        return SetupEnd(
            box=self.box,
            setup=self.setup,
            wait_s=self.request.wait_s,
            step=self._failed_step,
            code=self._failed_code,
            code_name=self._failed_name,
            holder=self._holder,
            advice=self.payload.profile.provider.advice,
            unsent=self._senders.unsent,
        )

    def _count_the_same(self) -> None:
        self._same += 1
        if self._same > _MOST_SAME:
            raise StepFailedError(
                "it repeatedly reports that the same setup is running, but shows none.",
                where=self.box.label,
                hint="Run the same command again; if it stays so, don't trust this box.",
            )

    def _takes_part(self, name: str) -> bool:
        if self.request.holds and name == "train":
            return False
        only = self.request.only
        return not only or any(name in closure(step) for step in only.split(","))

    def _tell(self, event: Event) -> None:
        if (event.step, event.event) == ("train", "ok"):
            self.started_run = True
        if (event.event, event.word("why")) == ("skip", "alive"):
            self.left_alone = True
        self.own_folder = self.own_folder or event.word("code") == "own-folder"
        if event.event == "fail":
            self._failed_step = event.step
            self._failed_name = event.word("code")
            self._failed_code = explain(self._failed_name, event.fields)
        self._senders.tell(event)
