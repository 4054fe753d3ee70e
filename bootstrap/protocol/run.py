"""A run as the box reports it: one training command, and what became of it.

What became of it is decided on the box, by `templates/lib/run_state.sh` alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bootstrap.link.parsing import exit_code, number
from bootstrap.protocol.uploaded import Uploaded, parse_uploaded

_FIELDS = 8
_NAME = re.compile(r"[A-Za-z0-9._-]{1,120}")
STOPPED = 143
"""The exit code of a run that `stop` ended, where nothing else is known of it: 128 + SIGTERM."""
_RUN = r"([A-Za-z0-9._-]{1,120}/)?[A-Za-z0-9._-]{1,120}"
_ENDED = re.compile(rf"stop|exit [0-9]{{1,3}}|pipeline( [0-9]{{1,3}}){{1,40}}|after {_RUN}")
_QUEUE = re.compile(rf"gpus|after(-any)? {_RUN}")
_GPUS = re.compile(r"[A-Za-z0-9-]{1,60}(,[A-Za-z0-9-]{1,60}){0,63}")
_TREE = re.compile(r"[A-Za-z0-9._-]{1,120}@[0-9]{1,6}")
_LONGEST_WORD = 200
"""Characters of what is noted beside a run; a longer note is cut."""
_SIGNALS = {1: "HUP", 2: "INT", 4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV"}
_SIGNALS |= {13: "PIPE", 15: "TERM"}  # Linux's numbers: a Mac has others
RunState = Literal["running", "finished", "died", "waiting", "queued"]
STATES = frozenset(get_args(RunState))
GOES_ON = ("running", "queued")


@dataclass(frozen=True)
class Run:
    """One training command on a box. Times are seconds since 1970 on the box's clock."""

    repo_key: str
    name: str
    state: str
    """running, finished (see `rc`), died (it ended without an exit code), waiting (never begun),
    queued (never begun, since its turn has not come)."""
    rc: int | None
    started: int
    commit: str
    work: str
    """Which content, command and environment; the same for the same work."""
    session: str
    written: int
    """When its log was last written to."""
    log_bytes: int
    command: str
    ended: str = ""
    """What decided the exit code: `exit 7`, `pipeline 1 0`, `stop`; "" from earlier versions."""
    snapshot: str = ""
    """What its files were; `commit` where nothing differed from it."""
    left: int = 0
    """How many of its processes live on, where it ended by itself."""
    queue: str = ""
    """What a queued run waits for: `gpus`, `after NAME`, `after-any NAME`."""
    attended: bool = False
    """Whether a process on the box waits for the turn of a queued run."""
    can_resume: bool = False
    """Whether a run that died has a command that goes on from it (`train.resume`)."""
    begun: int = 0
    """When it began: later than `started` where it waited for its turn; 0 where it has not."""
    over: int = 0
    """When it ended; 0 while it has not, and where nobody was left to write it down."""
    log_kept: int = 0
    """Where its log begins: what lies before that byte was let go."""
    gpus: str = ""
    """The GPUs that it was given, `0,1`; "" where it may use all."""
    restarted: bool = True
    """Of one that died: whether its box, or container, was started again since it began."""
    tree: str = ""
    """The tree beside the main one that it has, `homework@2`; "" for the main one."""
    killed_for_memory: str = ""
    """What the box noted of processes that the kernel killed for memory while it ran."""

    uploaded: Uploaded | None = None
    """What of its results is in the bucket of `train.results_to`."""

    @property
    def number(self) -> int:
        """The last part of its name, which counts up."""
        digits = re.search(r"[0-9]+$", self.name)
        return number(digits[0]) or 0 if digits else 0

    @property
    def log(self) -> str:
        """Its log, below boxstrap's folder on the box."""
        return f"runs/{self.repo_key}/{self.name}/log"

    @property
    def typed(self) -> str:
        """Its command as the profile had it: with `python`, not the environment's by its path."""
        return re.sub(r"\A/\S*/bin/(?=python3? )", "", self.command)

    @property
    def with_changes(self) -> bool:
        """Whether it ran with changes that its commit has not."""
        return self.snapshot not in ("", self.commit)

    def outcome(self) -> str:
        """What became of it, in a few words."""
        if self.state == "finished":
            return self._ending() + (f"; {self.left} of its processes live on" if self.left else "")
        if self.state == "queued":
            return self._waiting()
        if self.state == "died" and not self.restarted:
            return "was killed, and its runner too"
        return {"died": "died with the box", "waiting": "was made, but never begun"}.get(
            self.state, self.state
        )

    def _waiting(self) -> str:
        if not self.attended:
            return "queued, nobody waits for it: the next setup or run on this box takes it up"
        kind, _, other = self.queue.partition(" ")
        after = {"after": "once {} has ended with 0", "after-any": "once {} has ended"}
        return f"queued: begins {after.get(kind, 'once its GPUs are free').format(other)}"

    def seconds(self, now: int) -> int | None:
        """How long it has run, or ran; None where nobody knows."""
        end = now if self.state == "running" else self.over
        if not end or self.state not in ("running", "finished"):
            return None
        return max(0, end - (self.begun or self.started))

    @property
    def goes_on(self) -> bool:
        """Whether it lives, or waits for its turn."""
        return self.state in GOES_ON

    @property
    def stopped(self) -> bool:
        """Whether somebody ended it."""
        ends = self.ended == "stop" or (not self.ended and self.rc == STOPPED)
        return self.state == "finished" and ends

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than well, and nobody ended it."""
        return self.state == "died" or (
            self.state == "finished" and not self.stopped and self.rc != 0
        )

    def _ending(self) -> str:
        if self.stopped:
            # What its own exit code adds: it saved its work and said so, or it had to be killed.
            own = "" if self.rc == STOPPED else f", with exit code {self.rc}{self._decided()}"
            return f"was stopped{own}"
        if self.ended.startswith("after "):
            return f"was not begun, since {self.ended[6:]} did not end with 0"
        if self.rc is None:
            return "ended, but its exit code could not be written: the disk was full"
        return f"ended with exit code {self.rc}{self._decided()}" if self.rc else "finished"

    def _decided(self) -> str:
        """Which part of a pipeline it was, and by which signal, as shells count them."""
        parts = self.ended.split()[1:]
        failed = [at for at, code in enumerate(parts, 1) if code != "0"]
        signal = _SIGNALS.get((self.rc or 0) - 128)
        by = f"SIG{signal}" if signal else ""
        if len(parts) > 1 and failed and parts[failed[-1] - 1] == str(self.rc):
            by = f"part {failed[-1]} of its pipeline{by and ', '}{by}"
        return f" ({by})" if by else ""

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "name": self.name,
            "state": self.state,
            "rc": self.rc,
            "ended": self.ended or None,
            "left": self.left,
            **({"queue": self.queue, "attended": self.attended} if self.state == "queued" else {}),
            **({"can_resume": self.can_resume} if self.state == "died" else {}),
            "commit": self.commit,
            **({"snapshot": self.snapshot} if self.with_changes else {}),
            "command": self.command,
            "session": self.session,
            "started": self.started,
            "begun": self.begun or None,
            "over": self.over or None,
            "log_bytes": self.log_bytes,
            "tree": self.tree or None,
            **({"uploaded": self.uploaded.as_dict()} if self.uploaded else {}),
            "gpus": self.gpus.split(",") if self.gpus else None,
        }


def is_name(text: str) -> bool:
    """Whether a run can be called that."""
    return bool(_NAME.fullmatch(text))


def parse_run(value: str) -> Run | None:
    """A run from its line: fields with tabs between. None where it is not one."""
    parts = value.split("\t", _FIELDS - 1)
    if len(parts) != _FIELDS:
        return None
    key, name, state, started, commit, work, session, command = parts
    word, rc, (ended, left) = _state(state)
    commit, _, snapshot = commit.partition(" ")
    if word not in STATES or not _NAME.fullmatch(key) or not _NAME.fullmatch(name):
        return None
    return Run(
        repo_key=key,
        name=name,
        state=word,
        rc=rc,
        started=number(started) or 0,
        commit=commit,
        work=work,
        session=session,
        written=0,
        log_bytes=0,
        command=command,
        ended=ended,
        snapshot=snapshot,
        left=left,
        **_of_state(state),
    )


def _of_state(said: str) -> dict[str, Any]:
    """What the box says of a queued run, and of one that died."""
    word, how, what = [*said.split(" ", 2), "", ""][:3]
    if word == "queued":
        return {"queue": what if _QUEUE.fullmatch(what) else "", "attended": how == "waits"}
    return {"can_resume": word == "died" and how == "resume"}


def with_files(run: Run, files: Mapping[str, str], notes: Mapping[str, str]) -> Run:
    """The run with what lies in its folder: `files`, by path, has time and size of each; `notes`,
    by path too, what is noted beside it."""
    path = f"{run.repo_key}/{run.name}"
    written, size = _time_and_size(files.get(f"{path}/log", ""))
    begun, _ = _time_and_size(files.get(f"{path}/pid", ""))
    over, _ = _time_and_size(files.get(f"{path}/exit", ""))
    gpus = notes.get(f"{path}/gpus", "")
    return dataclasses.replace(
        run,
        written=written,
        log_bytes=size,
        log_kept=number(notes.get(f"{path}/times", "").partition(" ")[2]) or 0,
        begun=begun,
        over=over if run.state == "finished" else 0,
        gpus=gpus if _GPUS.fullmatch(gpus) else "",
        tree=tree if _TREE.fullmatch(tree := notes.get(f"{path}/tree", "")) else "",
        restarted=notes.get(f"{path}/boot") != "same",
        uploaded=parse_uploaded(notes.get(f"{path}/uploaded", "")),
        killed_for_memory=notes.get(f"{path}/killed", "")[:_LONGEST_WORD],
    )


def _time_and_size(said: str) -> tuple[int, int]:
    time, size = [*said.split("\t"), "", ""][:2]
    return number(time) or 0, number(size) or 0


def as_it_ended(run: Run, said: str) -> Run | None:
    """The run in the state that the box says it is in now; None where it says none."""
    word, rc, (ended, _) = _state(said)
    return dataclasses.replace(run, state=word, rc=rc, ended=ended) if word in STATES else None


def _state(said: str) -> tuple[str, int | None, tuple[str, int]]:
    """State and exit code; what decided it, and how many processes it left."""
    word, rc, rest = [*said.split(" ", 2), "", ""][:3]
    ended, _, left = rest.partition(" left ")
    return word, exit_code(rc), (ended if _ENDED.fullmatch(ended) else "", number(left) or 0)
