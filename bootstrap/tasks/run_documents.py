"""What `--json` prints of runs, of their files, and of what is started in them, as types.

Times are seconds since 1970 or a duration, prices dollars an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from typing_extensions import NotRequired, TypedDict

from bootstrap.fleet.comparison import BestValue, ComparedRun
from bootstrap.protocol.disk import LowDisk
from bootstrap.protocol.run import Run, RunOnABox, RunThatEnded
from bootstrap.protocol.run_history import Card, Machine, Newest
from bootstrap.renting.resumption import ResumedElsewhere
from bootstrap.runs.known_runs import ListedRun
from bootstrap.runs.pull import BroughtRun
from bootstrap.sync.new_run import StartedRun
from bootstrap.sync.send import Synced
from bootstrap.text.document import Document


class RentedBoxDocument(TypedDict):
    """A box that was rented: its host for `--host`, its mark, and its price."""

    host: str
    mark: str
    price: float
    gpu: str


@dataclass
class RentedResumption(Document):
    """The same, with the box that was rented for it."""

    KEYS = "**run, rented"

    run: ResumedElsewhere
    rented: RentedBoxDocument


@dataclass
class RunOnRented(Document):
    """A run that was started, and the box if that was rented for it."""

    KEYS = "**run, rented?"

    run: StartedRun
    rented: RentedBoxDocument | None


class CellDocument(TypedDict):
    """A cell of a sweep, and the box and GPUs whose queue has it."""

    cell: str
    command: str
    parameters: dict[str, str]
    box: NotRequired[str]
    gpus: NotRequired[str | None]


class DealtCells(TypedDict):
    """The cells of a sweep by what is done with them; `held` are those of a box not reached."""

    name: str
    cells: int
    finished: list[CellDocument]
    live: list[CellDocument]
    queued: list[CellDocument]
    held: list[CellDocument]


class DealtSweep(TypedDict):
    """A sweep whose cells were dealt to the boxes."""

    sweep: DealtCells


class QueuedRuns(TypedDict):
    """The runs of one call that were started or queued on a box."""

    runs: list[StartedRun]


class ComparedDocument(TypedDict):
    """The page about several runs, and what is beside it; `best` by the metric, at its end."""

    report: str
    csv: str
    lines: str
    metric: str | None
    best: ComparedRun | None
    best_value: BestValue | None


class SweepReportDocument(ComparedDocument):
    """The same of a sweep, and its cells."""

    sweep: str
    cells: list[ComparedRun]


class ComparisonDocument(ComparedDocument):
    """The same of runs that were named."""

    runs: list[ComparedRun]


class RunsDocument(TypedDict):
    """The runs, the newest first."""

    runs: list[ListedRun]


class LogLine(TypedDict):
    """A line of a log; `cut` if the line goes on in the next one."""

    v: int
    line: str
    box: NotRequired[str]
    run: NotRequired[str]
    cut: NotRequired[bool]


class LogsDocument(TypedDict):
    """The end of the log: the run that is over, or the runs."""

    run: NotRequired[RunOnABox]
    runs: NotRequired[list[RunOnABox]]


class ReportDocument(TypedDict):
    """The page that was written, and its run."""

    report: str
    run: Run


class WaitDocument(TypedDict):
    """The runs that were waited for; with --detach `told` are the addresses that the box tells."""

    box: str
    runs: list[RunThatEnded]
    told: NotRequired[list[str]]


class EventLine(TypedDict):
    """What happens (`--events`): a fact with its `label`, a sentence, a warning, a step's state."""

    v: int
    event: Literal["note", "said", "warning", "step"]
    label: NotRequired[str]
    text: NotRequired[str]
    step: NotRequired[str]
    state: NotRequired[str]


class WaitLine(TypedDict):
    """What has become of a run that is waited for, now and at each change."""

    v: int
    event: Literal["run"]
    box: str
    run: str
    state: str
    rc: int | None


class StoppedRun(TypedDict):
    """A run that was ended, and the state it ended in."""

    name: str
    repository: str
    state: str
    rc: int | None
    over: int | None
    seconds: float | None


class StopDocument(TypedDict):
    """What was ended; `left` are processes that are not: run, pid, user, program."""

    box: str
    stopped: list[str]
    runs: list[StoppedRun]
    left: list[list[str]]


class WayIn(TypedDict):
    """The command that opens the terminal: it needs one, so with --json it is not started."""

    box: str
    argv: list[str]


class ExecDocument(TypedDict):
    """A command's output, its errors in between, and its exit code, which is also `exit`."""

    box: str
    output: str
    code: int


class TopLine(TypedDict):
    """One look at a box. `state`: live, or why there is none."""

    v: int
    box: str
    state: str
    why: NotRequired[str]
    t: NotRequired[float]
    host: NotRequired[Machine | None]
    gpus: NotRequired[list[Card]]
    error: NotRequired[int | None]
    run: NotRequired[Newest | None]
    low: NotRequired[LowDisk | None]


@dataclass
class SyncLine(Document):
    """A state that `--watch` placed."""

    KEYS = "v, **synced"

    v: int
    synced: Synced


class PushedFiles(TypedDict):
    """What was sent: files and bytes; files that were there; names that stayed or failed."""

    to: str
    files: int
    bytes: int
    had: int
    kept: list[str]
    failed: list[str]
    left_out: list[str]
    seconds: float


class PushDocument(PushedFiles):
    """A file or folder that was sent."""

    box: str


class PushedData(TypedDict):
    """The profile's data that was sent."""

    box: str
    items: list[PushedFiles]


class PulledRuns(TypedDict):
    """The results of all runs."""

    runs: list[BroughtRun]
