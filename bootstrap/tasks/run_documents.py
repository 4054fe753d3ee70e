"""What `--json` prints of runs, of their files, and of what is started in them, as types.

Times are seconds since 1970 or a duration, prices dollars an hour.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from bootstrap.protocol.run_history import Card, Machine, Newest
from bootstrap.runs.status import GpuUse


class Interrupted(TypedDict):
    """The notice that the box is taken away, by whom, and when it was noticed and goes."""

    by: str
    noticed: int
    leaves: int


class UploadedResults(TypedDict):
    """Results in the run's bucket."""

    word: str
    files: int
    bytes: int
    left: int
    why: str | None
    address: str


class NodeOfARun(TypedDict):
    """Which of several nodes it is, and the boxes of all by rank."""

    rank: int
    names: list[str]


class RunDocument(TypedDict):
    """A run. `state`: running, finished, died, queued, waiting; `rc`: its exit code."""

    name: str
    state: str
    rc: int | None
    ended: str | None
    interrupted: NotRequired[Interrupted]
    left: int
    queue: NotRequired[str]
    attended: NotRequired[bool]
    can_resume: NotRequired[bool]
    commit: str
    snapshot: NotRequired[str]
    command: str
    session: str
    started: int
    begun: int | None
    over: int | None
    log_bytes: int
    tree: str | None
    uploaded: NotRequired[UploadedResults]
    gpus: list[str] | None
    node: NotRequired[NodeOfARun]


class FailureDocument(TypedDict):
    """Why a run failed."""

    kind: str
    what: str
    hint: str
    lines: list[str]


class RunOnABox(RunDocument):
    """A run, whose it is, how long it took and what that cost."""

    repository: str
    seconds: float | None
    dollars: float | None


class RunThatEnded(RunOnABox):
    """A run that was waited for. `metric`: the last line of its log that has one."""

    metric: str | None
    failure: FailureDocument | None


class ResultsOnTheBox(TypedDict):
    """A run's results, as the box tells of them."""

    where: str
    files: int
    bytes: int
    kept_bytes: int
    lost_files: int
    overwritten_by: list[str]


class AtHome(TypedDict):
    """What is known here of a run whose box is gone, or could not be asked."""

    seen: float
    log: str | None
    results: str


class WrittenFile(TypedDict):
    """A file of a run's tree, below it."""

    path: str
    bytes: int


class LowDiskDocument(TypedDict):
    """A disk that will soon be full: bytes, and seconds until then if it is filling up."""

    free: int
    total: int
    full_in: int | None
    files: list[WrittenFile]


class RunStatus(RunThatEnded):
    """A run, as `status` tells of it."""

    gpu_use: list[GpuUse]
    disk: NotRequired[LowDiskDocument | None]
    untold: NotRequired[list[str]]
    results: NotRequired[ResultsOnTheBox | None]
    from_home: NotRequired[AtHome]


class Changes(TypedDict):
    """Uncommitted changes that travel with a commit, as counts."""

    modified: int
    new: int
    deleted: int


class RentedBoxDocument(TypedDict):
    """A box that was rented: its host for `--host`, its mark, and its price."""

    host: str
    mark: str
    price: float
    gpu: str


class StartedRunDocument(TypedDict):
    """A run that was started."""

    box: str
    run: RunDocument
    id: str
    gpus: str | None
    commit: str
    snapshot: str
    changes: Changes
    tree: str
    environment: str
    first_lines: list[str]
    seconds: float
    rented: NotRequired[RentedBoxDocument]


class ResumedRunDocument(TypedDict):
    """A run that goes on from an earlier one, whose name is `resumes`."""

    box: str
    run: RunDocument
    resumes: str
    first_lines: list[str]


class EarlierRun(TypedDict):
    """A run of a box that is gone."""

    box: str
    run: str


class ResumedElsewhereDocument(TypedDict):
    """A run that goes on on another box."""

    box: str
    run: RunDocument
    id: str
    gpus: str | None
    commit: str
    snapshot: str
    changes: Changes
    tree: str
    environment: str
    first_lines: list[str]
    seconds: float
    resumes: EarlierRun
    results_from: str
    spent_before: float


class RentedResumption(ResumedElsewhereDocument):
    """The same, with the box that was rented for it."""

    rented: RentedBoxDocument


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

    runs: list[StartedRunDocument]


class ComparedRunDocument(TypedDict):
    """A run among others, or a cell and its newest run, and the last value of each metric."""

    cell: str | None
    command: str
    parameters: dict[str, str]
    box: str | None
    run: str | None
    state: str
    seconds: float | None
    dollars: float | None
    metrics: dict[str, float]


class BestValueDocument(TypedDict):
    """The best value that any run ever logged of the metric; `axis`: step, epoch or seconds."""

    value: float
    at: float
    axis: str
    box: str | None
    run: str | None
    seconds: float | None
    dollars: float | None


class ComparedDocument(TypedDict):
    """The page about several runs, and what is beside it; `best` by the metric, at its end."""

    report: str
    csv: str
    lines: str
    metric: str | None
    best: ComparedRunDocument | None
    best_value: BestValueDocument | None


class SweepReportDocument(ComparedDocument):
    """The same of a sweep, and its cells."""

    sweep: str
    cells: list[ComparedRunDocument]


class ComparisonDocument(ComparedDocument):
    """The same of runs that were named."""

    runs: list[ComparedRunDocument]


class KnownResults(TypedDict):
    """Where a run's results are."""

    where: str
    files: int
    bytes: int
    place: str | None


class KnownLog(TypedDict):
    """Where a run's log is."""

    where: str
    bytes: int
    dropped: int
    place: str | None


class KnownRun(RunDocument):
    """A run, as this machine knows it."""

    repository: str
    box: str
    host: str
    box_gone: bool
    seen: float
    seconds: float | None
    dollars: float | None
    metric: str | None
    results: KnownResults
    log: KnownLog


class RunsDocument(TypedDict):
    """The runs, the newest first."""

    runs: list[KnownRun]


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
    run: RunDocument


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
    low: NotRequired[LowDiskDocument | None]


class FileLists(TypedDict):
    """Files by how they changed."""

    updated: list[str]
    new: list[str]
    removed: list[str]


class SyncDocument(FileLists):
    """The state that was placed."""

    box: str
    commit: str
    snapshot: str
    seconds: float


class SyncLine(SyncDocument):
    """A state that `--watch` placed."""

    v: int


class BackDocument(TypedDict):
    """Work that was made on the box, as refs here and what they are at."""

    box: str
    refs: dict[str, str]
    new: list[str]
    edits: FileLists
    left: list[str]
    commands: list[str]


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


class RecordAtHome(TypedDict):
    """A run's log and record at home; empty if they could not be brought."""

    place: NotRequired[str]
    log: NotRequired[int]
    dropped: NotRequired[int]


class PulledRun(TypedDict):
    """The results of a run; only `run`, `files` and `record` if it has none."""

    run: str
    files: int
    record: RecordAtHome
    box: NotRequired[str]
    repository: NotRequired[str]
    commit: NotRequired[str]
    snapshot: NotRequired[str | None]
    with_changes: NotRequired[bool]
    command: NotRequired[str]
    profile: NotRequired[str | None]
    place: NotRequired[str]
    live: NotRequired[bool]
    landed: NotRequired[dict[str, str]]
    received: NotRequired[int]
    seconds: NotRequired[float]
    missing: NotRequired[dict[str, str]]
    left_out: NotRequired[dict[str, str]]
    links: NotRequired[dict[str, str]]
    without: NotRequired[list[str]]
    receipt: NotRequired[str | None]


class PulledRuns(TypedDict):
    """The results of all runs."""

    runs: list[PulledRun]
