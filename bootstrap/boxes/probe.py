"""The probe, a command's first query: which box is this, and what does it already have? The report
on its lease comes from the box's monitor, so every value is checked."""

from __future__ import annotations

import json
import math
import posixpath
import re
import time
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import NamedTuple

from bootstrap.boxes.answers import BoxDocument, documents
from bootstrap.boxes.run import Run, parse_run
from bootstrap.errors import BoxLacksError
from bootstrap.link.exchange import (
    answer_number,
    answer_rows,
    answer_time,
    answer_version,
    run_script_checked,
)
from bootstrap.link.query import NO_REDACTION, build_query
from bootstrap.link.wire import Wire
from bootstrap.sanitize import one_line
from bootstrap.sizes import dollars, duration
from bootstrap.steps.shell import sent_module
from bootstrap.value import Document, dataclass, field, replace

_HELD = {
    "yes": "held by the box",
    "trying": "nothing on this box holds it yet",
    "no-answer": (
        "nothing on this box holds it yet: the account has not answered the box, which asks again"
    ),
    "no-boot": "held by the box until it is restarted",
    "no-key": "nothing on this box holds it: the box has no key of its own for its account",
    "refused": "nothing on this box holds it: its account refuses the box's own key",
    "wipes": "nothing on this box holds it: a stop would wipe what lies outside its volume",
}
"""What the monitor's codes mean."""
_BY_OLDER = ", by its provider's older API (GraphQL, until early 2027)"
_BY_SHUTDOWN = ", which shuts itself down"
_WIPED_BY_SHUTDOWN = "nothing on this box holds it: its shutdown would destroy it"
_MAY_NOT_SHUT_DOWN = "nothing on this box holds it: sudo refuses to shut it down"
UNPRICED = (
    "; its dollars are not counted, as nothing says what an hour costs: boxstrap setup "
    "--set box.price=PRICE"
)
"""What is said of a lease that limits dollars."""
LOST = "lost"
_GONE = "nothing on this box holds it: its monitor is gone. The next setup starts it again"
_MOST = 1e12
_MOST_UNSAFE, _LONGEST = 10, 300


class LeaseLimit(NamedTuple):
    """How much of a limit is used, since the box was ordered: seconds, and of `dollars` dollars."""

    is_: float
    limit: float


_ENDS_ITSELF = ("yes", "no-boot")


@dataclass(frozen=True)
class BoxLease(Document):
    """A lease, as counted on its box."""

    KEYS = "held, by, limits, over or None, unpriced=is_unpriced, then, unsafe, extended"

    held: str
    """yes, no-boot, no-answer, no-key, refused, wipes, trying; lost: its monitor is gone."""
    limits: Mapping[str, LeaseLimit] = field(default_factory=dict)
    """For hours, dollars, idle, stall: the amount used, and the limit. Seconds, dollars."""
    over: str = ""  # the limit that was reached
    soon: str = ""
    extended: float = 0.0
    kept: float = 0.0
    """Seconds for which, since it was extended, idle and stall don't end the box."""
    has_error: bool = False  # whether the last request to the account failed
    destroys: bool = False
    """Whether the box is destroyed at the end if nothing is unsafe; else it is stopped."""
    unsafe: tuple[str, ...] = ()  # what is unsafe, by the box's last look
    is_unpriced: bool = False  # whether it limits dollars, and nothing says what an hour costs
    is_by_older: bool = False
    """Whether the box is held by RunPod's older API, which is to be switched off in 2027."""
    shutdown: str = ""
    """What the box's own shutdown does to it, if that ends it: stop or terminate."""

    @property
    def is_held(self) -> bool:
        """Whether the box ends itself (with `no-boot`, only until it is restarted)."""
        return self.held in _ENDS_ITSELF

    def lines(self) -> list[str]:
        """Lines for the user: what is left, and who holds it."""
        return [f"lease: {self.left()}; {self._holder()}"]

    def note(self, before: object = "") -> str:
        """The same for a command about something else: "" unless it can't wait for `status`.
        `before`: `held` when it was set, which was told then."""
        is_new = before in _ENDS_ITSELF and not self.is_held and self.held != "trying"
        is_urgent = self.over or self.soon or self.held == LOST or is_new or self._uncounted()
        return f"{self.left()}; {self._holder()}" if is_urgent else ""

    @property
    def by(self) -> str | None:
        """How the box ends itself, if not as usual: graphql, shutdown."""
        return "graphql" if self.is_by_older else "shutdown" if self.shutdown else None

    @property
    def then(self) -> str:
        return "destroy" if self.destroys else "stop"

    def left(self) -> str:
        if self.over:
            return f"over ({self.over})"
        kept = [name for name in ("idle", "stall") if self.kept and name in self.limits]
        parts = [_LEFT[n](*pair) for n, pair in self.limits.items() if n not in kept]
        if kept:
            parts.append(f"{' and '.join(kept)} paused for {duration(self.kept)} by the extension")
        return ", ".join(parts) or "nothing is counted yet"

    def _holder(self) -> str:
        if self.held == LOST:
            return _GONE
        error = ""
        if self.has_error and self.held != "no-answer":
            error = "; its account did not answer the last time, and is asked again"
        if self.over and self.is_held:
            return f"the box is asked to be {self._end()}{error}"
        if self.over:
            return f"it keeps running and costing money: {self._why_not()}"
        end = f", then {self._end()}" if self.destroys and self.is_held else ""
        way = _BY_OLDER if self.is_by_older and self.is_held else ""
        way = _BY_SHUTDOWN if self.shutdown and self.is_held else way
        return f"{self._why_not()}{way}{end}{error}{self._uncounted()}"

    def _uncounted(self) -> str:
        # An account that does not answer says no price either.
        return UNPRICED if self.is_unpriced and self.held != "no-answer" else ""

    def _why_not(self) -> str:
        if self.held == "wipes" and self.shutdown:
            return _WIPED_BY_SHUTDOWN
        if self.held == "refused" and self.shutdown:
            return _MAY_NOT_SHUT_DOWN
        return _HELD.get(self.held, _HELD["trying"])

    def _end(self) -> str:
        if self.destroys and self.shutdown == "stop":
            return "stopped: it can't destroy itself"
        if self.destroys and self.unsafe and self.shutdown:
            return f"destroyed, and {self.unsafe[0]}"
        if self.destroys and self.unsafe:
            first, *others = self.unsafe
            more = f", and {len(others)} more" if others else ""
            return f"stopped, not destroyed ({first}{more})"
        return "destroyed" if self.destroys else "stopped"


_LEFT = {
    "hours": lambda is_, most: f"{duration(max(0.0, most - is_))} left",
    "dollars": lambda is_, most: f"{dollars(is_)} of {dollars(most)}",
    "idle": lambda is_, most: f"idle for {duration(is_)} of {duration(most)}",
    "stall": lambda is_, most: f"without growth for {duration(is_)} of {duration(most)}",
}


def parse_lease(said: str) -> BoxLease | None:
    word, _, text = said.partition("\t")
    if word not in {"kept", LOST}:
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        return BoxLease(LOST if word == LOST else "trying")
    held = str(state.get("held"))
    limits, counted = _limits(state.get("limits")), state.get("counted")
    counted = counted if isinstance(counted, dict) else {}
    kept = _number(counted.get("kept_until")) - _number(counted.get("elapsed"))
    return BoxLease(
        held=LOST if word == LOST else held if held in _HELD else "trying",
        limits=limits,
        over=_limit(state.get("over")),
        soon=_limit(state.get("soon")),
        extended=_number(counted.get("extended")),
        kept=max(0.0, kept),
        has_error=bool(state.get("error")),
        destroys=state.get("then") == "destroy",
        unsafe=_unsafe(state.get("unsafe")),
        is_unpriced="dollars" in limits and "price" in state and state["price"] is None,
        is_by_older=state.get("way") == "graphql",
        shutdown=str(state["way"]) if state.get("way") in ("stop", "terminate") else "",
    )


def _unsafe(said: object) -> tuple[str, ...]:
    lines = said[:_MOST_UNSAFE] if isinstance(said, list) else []
    return tuple(one_line(line)[:_LONGEST] for line in lines if isinstance(line, str))


def _limits(said: object) -> dict[str, LeaseLimit]:
    pairs = said if isinstance(said, dict) else {}
    return {
        name: LeaseLimit(round(_number(pairs[name][0]), 4), _number(pairs[name][1]))
        for name in _LEFT
        if isinstance(pairs.get(name), list) and len(pairs[name]) == 2
    }


def _limit(said: object) -> str:
    return said if isinstance(said, str) and said in _LEFT else ""


def _number(said: object) -> float:
    is_one = isinstance(said, int | float) and not isinstance(said, bool)
    return float(said) if is_one and math.isfinite(said) and abs(said) < _MOST else 0.0  # type: ignore[arg-type]


OLDEST_BASH = (4, 4)
_LONGEST_WHAT = 80
_SHOWN = 60
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,255}"
_IDENTITY = r"[0-9a-f]{32}"
_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)
_SETUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_SETUP_STATES = ("running", "over")


@dataclass(frozen=True)
class Holder:
    """The setup that holds the box: its id, for how many seconds, and what it works on."""

    setup: str
    seconds: int
    what: str

    def __str__(self) -> str:
        about = f" of {self.what}" if self.what else ""
        return f"setup {self.setup}{about}, at work for {duration(self.seconds)}"


class _Fact:
    """A word of a box as it said it; "" if it said none."""

    def __init__(self, word: str) -> None:
        self._word = word

    def __get__(self, state: BoxState, _: type[BoxState]) -> str:
        return state.facts.get(self._word, "")


@dataclass(frozen=True)
class BoxState:
    """State of a box, as it reports it. All text in it is sanitized."""

    facts: dict[str, str] = field(default_factory=dict)
    """Its other words, as it said them: what is used of them has a property."""
    env: frozenset[str] = frozenset()  # names of the provider's variables that are set there
    files: frozenset[str] = frozenset()
    have: tuple[str, ...] = ()  # commits in its store
    working: tuple[str, str] | None = None  # the running setup: its id, and the id of its script
    holder: Holder | None = None
    last_setup: dict[str, object] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()  # newest first
    alive: str = ""  # the run that is alive in the repository's folder, as KEY/NAME
    had_other_secrets: bool = False
    """Whether a run may have been started with earlier values of its secrets."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Id by name of each secret on the box; "" if it has no id."""
    lease: BoxLease | None = None
    script: str = ""
    plan: dict[str, str] = field(default_factory=dict)
    """Why each step would run; empty unless the box has the script that was asked about."""
    edited: tuple[str, ...] = ()
    """Tracked files that were edited on the box, if the plan finds the repository right."""
    is_noisy: bool = False  # whether its shell prints something at each login
    told: float = field(default=0.0, compare=False)  # when it told this, on this machine's clock

    repo_key = _Fact("key")  # the box's key for the repository that was asked about
    repo_dir = _Fact("dir")  # the repository's folder on the box, as an absolute path
    venv = _Fact("venv")
    """The repository's environment, as its last setup named it; "" if unknown."""
    work = _Fact("work")  # the id of the work that the last setup there had
    home = _Fact("boxhome")  # boxstrap's folder, as an absolute path; "" if there is none
    system = _Fact("system")  # its system and processor, as `uname` names them
    bash = _Fact("bash")  # the version of its bash; "" if it has none

    @property
    def is_placed(self) -> bool:
        """Whether that folder has what boxstrap placed there."""
        return "placed" in self.facts and self.repo_dir.startswith("/")

    @property
    def differs(self) -> list[str]:
        """Words for what differs between the last setup and the live run in that folder."""
        return self.facts.get("differs", "").split()

    def has_program(self, digest: str) -> bool:
        return digest[:16] in self.facts.get("programs", "").split("/")

    @property
    def has_tmux(self) -> bool:
        """Whether a run has a session that can be attached to."""
        return bool(self.facts.get("tmux"))

    def in_home(self, path: str) -> str:
        """Return the path, its `~/` replaced by the user's home there."""
        return posixpath.join(self.facts.get("home", "/"), path[2:]) if path[:2] == "~/" else path

    @property
    def time(self) -> int:
        """The time on its clock, seconds since 1970; 0 if it did not tell."""
        return answer_time(self.facts.get("time", ""))

    @property
    def now(self) -> int:
        """The time on its clock now, however long ago it told; 0 if it did not tell."""
        since = max(0.0, time.time() - self.told) if self.told else 0.0
        return self.time and int(self.time + since)

    @property
    def can_redact(self) -> bool:
        """Whether the box can redact its secrets itself."""
        return "redacts" in self.facts

    @property
    def unfinished_switch(self) -> str:
        """The snapshot of an interrupted switch in that folder; "" for none."""
        return "" if self.working else self.facts.get("switch", "")

    @property
    def reused(self) -> dict[str, int]:
        """The image's packages that its environment reuses, as in the event; {} for none."""
        numbers = self.facts.get("reused", "").split()
        known = len(numbers) == 3 and all(_COUNT.fullmatch(number) for number in numbers)
        return dict(zip(("count", "have", "secs"), map(int, numbers), strict=True)) if known else {}

    @property
    def live_run(self) -> Run | None:
        """The run that is alive in that folder, whoever started it."""
        return next((run for run in self.runs if run.path == self.alive), None)

    @property
    def nothing_to_do(self) -> bool:
        """Whether no step of the plan would run, and what reads its runs is there."""
        is_done = all(why in {"done", "alive", "died", "failed"} for why in self.plan.values())
        return bool(self.plan) and is_done and self.has_readable_runs

    @property
    def has_readable_runs(self) -> bool:
        """Whether it has none, or a program that could read them."""
        return "unread" not in self.facts


def probe(  # noqa: PLR0913 - one value for each thing a box can be asked
    wire: Wire,
    workdir: str = "",
    repo_key: str = "",
    repo_root: str = "",
    *,
    script: str = "",
    hint_names: Collection[str] = (),
    hint_files: Collection[str] = (),
    needs_runs: bool = True,
) -> BoxState:
    """Probe the box in one exchange, writing nothing on it. `script` is the id of the script to
    compare, `repo_root` the repository's first commit, if known. Only a setup, which brings what
    reads a box's runs, doesn't need them.

    Raises LinkLost, NoAnswer, and BoxLacksError if it isn't Linux, or bash is missing or too old.
    """
    signs = {"hint_names": " ".join(sorted(hint_names)), "hint_files": " ".join(sorted(hint_files))}
    query = probe_query(workdir, repo_key, repo_root, script_id=script, **signs)
    answer = run_script_checked(wire, query, timeout=60)
    box_state = read_probe(answer.output, wire.label, needs_runs=needs_runs)
    return replace(box_state, is_noisy=answer.is_noisy)


def probe_query(workdir: str, repo_key: str, repo_root: str, **more: str) -> str:
    asked = dict.fromkeys(("script_id", "hint_names", "hint_files", "details"), "") | more
    text, place = sent_module("onbox/probe.py"), {"repo_key": repo_key, "repo_root": repo_root}
    return build_query("probe", NO_REDACTION, workdir=workdir, text=text, **place, **asked)


def read_probe(answer: bytes, label: str, *, needs_runs: bool = True) -> BoxState:
    """Parse a box's answer and check it. Raises BoxLacksError as `probe`."""
    box_state = replace(parse_probe(answer), told=time.time())
    system = box_state.system
    if not system.startswith("Linux"):
        raise BoxLacksError(
            f"this box runs {system[:_SHOWN] or 'an unknown system'}; a box runs Linux.",
            where=label,
            hint="On a Mac, `local` and `demo` work inside a Linux container or VM; "
            "rented boxes are set up from the Mac itself.",
        )
    _check_bash(box_state, label)
    if needs_runs and not box_state.has_readable_runs:
        raise BoxLacksError(
            "there are runs on this box, and nothing on it that can read them.",
            where=label,
            hint="`boxstrap setup` brings what reads them.",
        )
    return box_state


def parse_probe(answer: bytes) -> BoxState:
    """Parse an answer: lines of a word, a tab, and a value, and documents. What is invalid is left
    out."""
    facts: dict[str, str] = {}
    words = ("env", "file", "have", "plan", "edited")
    many: dict[str, list[str]] = {word: [] for word in words}
    for word, value in answer_rows(answer):
        if word in many:
            many[word].append(value)
        else:
            facts[word] = value
    runs, beside = [], BoxDocument({})
    for said in documents(answer):
        if said.kind == "run" and (run := parse_run(said)):
            runs.append((run.started, said.count("made_us") or 0, run.number, run))
        elif said.kind == "box":
            beside = said
    setup, _, script = facts.get("working", "").partition("\t")
    from bootstrap.steps.events import WHY  # late: only a setup asks for a plan
    from bootstrap.steps.plan import NAMES

    rows = (line.partition("\t") for line in many["plan"])
    return BoxState(
        facts=facts,
        env=frozenset(many["env"]),
        files=frozenset(many["file"]),
        have=tuple(commit for commit in many["have"] if _COMMIT.fullmatch(commit)),
        working=((setup, script) if _SETUP.fullmatch(setup) else None),
        holder=_holder(facts.get("holder", ""), answer_number(facts.get("time", "")) or 0),
        last_setup=_status(facts.get("last", "")),
        runs=tuple(run for *_, run in sorted(runs, key=itemgetter(0, 1, 2), reverse=True)),
        alive=beside.text("alive"),
        had_other_secrets=beside.flag("earlier"),
        secrets={
            name: known if re.fullmatch(_IDENTITY, known) else ""
            for name, known in beside.texts("secrets").items()
            if re.fullmatch(_NAME, name)
        },
        lease=parse_lease(facts.get("lease", "")),
        script=facts.get("script", ""),
        plan={step: why for step, _, why in rows if step in NAMES and why in WHY},
        edited=tuple(many["edited"]),
    )


def _holder(value: str, now: int) -> Holder | None:
    setup, _, rest = value.partition("\t")
    since, _, what = rest.partition("\t")
    if not _SETUP.fullmatch(setup):
        return None
    return Holder(setup, max(0, now - (answer_number(since) or now)), what[:_LONGEST_WHAT])


def _status(value: str) -> dict[str, object]:
    """Return setup, state, exit code and what it worked on only; {} if one has the wrong type."""
    said, _, what = value.partition("\t")
    try:
        status = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(status, dict):
        return {}
    setup, state, code = status.get("setup"), status.get("state"), status.get("exit")
    if not isinstance(setup, str) or not _SETUP.fullmatch(setup) or state not in _SETUP_STATES:
        return {}
    code = code if code in range(256) else None
    return {"setup": setup, "state": state, "exit": code, "of": what[:_LONGEST_WHAT]}


def _check_bash(box_state: BoxState, label: str) -> None:
    bash = box_state.bash
    numbers = answer_version(bash)
    if not bash and box_state.can_redact:
        return  # it was set up by one
    if not numbers:
        raise BoxLacksError(
            "there is no bash on this box.",
            where=label,
            hint="Install bash on it, or rent it with another image.",
        )
    if numbers < OLDEST_BASH:
        wanted = ".".join(map(str, OLDEST_BASH))
        raise BoxLacksError(
            f"its bash is {bash[:_SHOWN]}; {wanted} or later is needed.",
            where=label,
            hint="Install a newer bash on it, or rent it with a newer image.",
        )
