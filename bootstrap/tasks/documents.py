"""What `--json` prints of each command, as types; `boxstrap schema` makes JSON Schemas of them.

A document's own keys are there unless it has `error`; then each of them may be missing.
Within a version keys are only added. Times are seconds since 1970, prices dollars an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import NotRequired, TypedDict

from bootstrap.protocol.verdict import Verdict
from bootstrap.tasks.box_documents import (
    AccountsDocument,
    BoxesDocument,
    CleanDocument,
    DownDocument,
    EstimateDocument,
    ForgottenBox,
    GrantDocument,
    GuardDocument,
    LeaseDocument,
    LeaseOfABox,
    OffersDocument,
    SecretsDocument,
    WipedSecretsDocument,
)
from bootstrap.tasks.run_documents import (
    BackDocument,
    Changes,
    ComparisonDocument,
    DealtSweep,
    EventLine,
    ExecDocument,
    LogLine,
    LogsDocument,
    PulledRun,
    PulledRuns,
    PushDocument,
    PushedData,
    QueuedRuns,
    RentedBoxDocument,
    RentedResumption,
    ReportDocument,
    ResumedElsewhereDocument,
    ResumedRunDocument,
    RunDocument,
    RunsDocument,
    RunStatus,
    StartedRunDocument,
    StopDocument,
    SweepReportDocument,
    SyncDocument,
    SyncLine,
    TopLine,
    WaitDocument,
    WaitLine,
    WayIn,
)
from bootstrap.ui.screens import VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Problem(TypedDict):
    """What is wrong in a profile."""

    file: str | None
    line: int | None
    key: str
    message: str


class ErrorDocument(TypedDict):
    """Why it did not succeed: what, where, and what to do next; `exit` is the exit code.

    `command` is the command that goes on, where the user agrees to it.
    """

    error: str
    what: str
    exit: int
    where: NotRequired[str]
    next: NotRequired[str]
    command: NotRequired[str]
    boxes: NotRequired[list[str]]
    problems: NotRequired[list[Problem]]
    digest: NotRequired[str]
    takes: NotRequired[list[GrantDocument]]
    sum: NotRequired[float]
    cap: NotRequired[float]


class StepState(TypedDict):
    """A step of a setup."""

    step: str
    state: str
    why: NotRequired[str]
    said: NotRequired[str]
    noted: NotRequired[str]
    seconds: NotRequired[float]


class AnyDocument(TypedDict):
    """What every document has. `cut`: the keys of which a part was dropped, as too long."""

    v: int
    exit: int
    steps: NotRequired[list[StepState]]
    said: NotRequired[list[str]]
    notes: NotRequired[dict[str, str]]
    warnings: NotRequired[list[str]]
    logs: NotRequired[dict[str, list[str]]]
    cut: NotRequired[list[str]]
    error: NotRequired[ErrorDocument]


class SetupFailure(TypedDict):
    """The step with which a setup failed, and its code."""

    step: str
    code: str


class LastSetup(TypedDict):
    """The last setup on a box. `state`: none, at work, cut, over."""

    id: str | None
    state: str
    exit: NotRequired[int | None]
    switch: NotRequired[str]
    why: NotRequired[SetupFailure]


class TreeBesideUse(TypedDict):
    """A tree beside the main one, its size, and the last run in it."""

    tree: str
    bytes: int | None
    run: str | None


class FilesAtRisk(TypedDict):
    """What git ignores, was made since the run began, and no `pull` brings; `path` for a shell."""

    run: str
    files: int
    bytes: int
    path: str


class BoxStatusDocument(TypedDict):
    """One box, as `status` tells of it; with `error` if it could not be asked."""

    box: str
    price: NotRequired[float | None]
    dollars: NotRequired[float | None]
    dollars_before: NotRequired[float | None]
    lease: NotRequired[LeaseDocument | None]
    setup: NotRequired[LastSetup]
    runs: NotRequired[list[RunStatus]]
    trees: NotRequired[list[TreeBesideUse]]
    at_risk: NotRequired[list[FilesAtRisk]]
    ends: NotRequired[float | None]
    price_increase: NotRequired[float | None]
    error: NotRequired[ErrorDocument]


class StatusDocument(TypedDict):
    """All boxes: read `boxes`. Of a single one the keys are at the top level too, since the first
    documents of this version had only these. `why`: why there is none, and what there is instead.
    """

    boxes: list[BoxStatusDocument]
    why: NotRequired[str]
    box: NotRequired[str]
    price: NotRequired[float | None]
    dollars: NotRequired[float | None]
    dollars_before: NotRequired[float | None]
    lease: NotRequired[LeaseDocument | None]
    setup: NotRequired[LastSetup]
    runs: NotRequired[list[RunStatus]]
    trees: NotRequired[list[TreeBesideUse]]
    at_risk: NotRequired[list[FilesAtRisk]]
    ends: NotRequired[float | None]
    price_increase: NotRequired[float | None]


class SetupDocument(TypedDict):
    """How a setup ended."""

    setup: str | None
    box: str
    alias: str | None
    commit: str | None
    snapshot: str | None
    changes: Changes
    repo_dir: str
    run: RunDocument | None
    waits_for: str | None
    differs: list[str]
    seconds: float
    price: float | None
    dollars: float | None
    lease: LeaseDocument | None


class SetupOfABox(SetupDocument):
    """The same; `verdict` alone, with `error`, where the box is to be returned."""

    verdict: NotRequired[Verdict]


class RentedSetup(SetupDocument):
    """A box that was rented and set up."""

    rented: RentedBoxDocument


class BoxOfGroup(AnyDocument):
    """One of several boxes that were rented together, with `error` if it didn't come."""

    host: str
    seconds: float
    box: NotRequired[str]
    rented: NotRequired[RentedBoxDocument]


class RentedGroup(TypedDict):
    """Several boxes that were rented together: the first, and the rest."""

    group: str
    count: int
    came: int
    rented: RentedBoxDocument
    first: SetupDocument
    boxes: NotRequired[list[BoxOfGroup]]


class PlannedStep(TypedDict):
    """Whether a step would run, and why."""

    step: str
    runs: bool
    why: str


class PlanDocument(TypedDict):
    """What a setup would do."""

    box: str
    commit: str | None
    snapshot: str | None
    changes: Changes
    steps: list[PlannedStep]
    reused: NotRequired[str]


class VerifyDocument(TypedDict):
    """The verdict, and the page that was written."""

    verdict: Verdict
    report: NotRequired[str]


class DoctorCheck(TypedDict):
    """One check of this machine, or of the way to a box."""

    check: str
    ok: bool
    says: str


class DoctorDocument(TypedDict):
    """The checks."""

    checks: list[DoctorCheck]


class InitDocument(TypedDict):
    """The profile that was written, and what to know about it."""

    written: str
    notes: list[str]


class ListedProfile(TypedDict):
    """A profile, and whether it is the user's own."""

    name: str
    path: str
    own: bool


class ProfilesDocument(TypedDict):
    """The profiles there are."""

    profiles: list[ListedProfile]


class ValidDocument(TypedDict):
    """The files of a profile without an error."""

    valid: bool
    files: list[str]


class ShownProfile(TypedDict):
    """A profile, whole; the shape is that of `boxstrap schema profile`."""

    profile: dict[str, Any]


class ScriptDocument(TypedDict):
    """A script: its lines, or the file it was written to."""

    door: NotRequired[str | None]
    limit: NotRequired[int | None]
    use: NotRequired[str]
    bytes: NotRequired[int]
    lines: NotRequired[list[str]]
    written: NotRequired[str]
    sha256: NotRequired[str]
    text: NotRequired[str]


class PoolDocument(TypedDict):
    """Known boxes as another program's file: its lines, or the file it was written to."""

    format: str
    boxes: list[str]
    bytes: int
    lines: NotRequired[list[str]]
    written: NotRequired[str]


class CodeDocument(TypedDict):
    """What was opened in the editor, and the link that opens it."""

    editor: str
    opened: bool
    folder: str
    python: str
    host: NotRequired[str]
    folder_uri: NotRequired[str]
    link: NotRequired[str]
    lacks: NotRequired[list[dict[str, str]]]


class SshEntries(TypedDict):
    """The entries in the user's ssh config."""

    file: str
    included_by: str
    windows: Any
    aliases: list[str]
    left_out: dict[str, str]


class SshRemoved(TypedDict):
    """The ssh config without them."""

    file: str
    removed: bool


class OpenTunnel(TypedDict):
    """A port of the box, and its address here."""

    name: str
    here: int
    url: str
    address: str
    port: int
    found: NotRequired[bool]


class TunnelLine(TypedDict):
    """The tunnels that are open now."""

    v: int
    box: str
    tunnels: list[OpenTunnel]


class TunnelEnd(TypedDict):
    """How it ended."""


class StoppedServers(TypedDict):
    """The servers that were ended on the box."""

    box: str
    stopped: list[str]


class SchemaList(TypedDict):
    """The names that `boxstrap schema` takes."""

    schemas: list[str]


class SchemaDocument(TypedDict):
    """A JSON Schema."""

    schema: dict[str, Any]


class ShippedText(TypedDict):
    """The lines of a text, or the files it was written to."""

    text: NotRequired[list[str]]
    written: NotRequired[list[str]]


DOCUMENTS: Mapping[str, tuple[Any, ...]] = {
    "attach": (WayIn,),
    "boxes": (BoxesDocument, AccountsDocument, ForgottenBox),
    "clean": (CleanDocument,),
    "code": (CodeDocument,),
    "completion": (ShippedText,),
    "demo": (SetupDocument,),
    "doctor": (DoctorDocument,),
    "down": (DownDocument,),
    "estimate": (EstimateDocument,),
    "exec": (ExecDocument,),
    "guard": (GuardDocument,),
    "init": (InitDocument,),
    "lease": (LeaseOfABox,),
    "logs": (LogsDocument,),
    "oneliner": (ScriptDocument,),
    "plan": (PlanDocument,),
    "profiles": (ProfilesDocument, ValidDocument, ShownProfile),
    "pull": (PulledRun, PulledRuns),
    "push": (PushDocument, PushedData),
    "render": (ScriptDocument, PoolDocument),
    "report": (ReportDocument, ComparisonDocument, SweepReportDocument),
    "run": (
        StartedRunDocument,
        ResumedElsewhereDocument,
        ResumedRunDocument,
        DealtSweep,
        QueuedRuns,
    ),
    "runs": (RunsDocument,),
    "schema": (SchemaList, SchemaDocument),
    "secrets": (SecretsDocument, WipedSecretsDocument),
    "setup": (SetupOfABox, PlanDocument),
    "shell": (WayIn,),
    "skill": (ShippedText,),
    "ssh-config": (SshEntries, SshRemoved),
    "status": (StatusDocument,),
    "stop": (StopDocument,),
    "sync": (SyncDocument, BackDocument),
    "top": (TunnelEnd,),
    "tunnel": (TunnelEnd, StoppedServers),
    "up": (RentedSetup, RentedResumption, RentedGroup, OffersDocument),
    "verify": (VerifyDocument,),
    "wait": (WaitDocument,),
}
"""The result of each command; of several, one: an option says which."""
LINES: Mapping[str, Any] = {
    "logs": LogLine,
    "sync": SyncLine,
    "top": TopLine,
    "tunnel": TunnelLine,
    "setup": EventLine,
    "up": EventLine,
    "wait": WaitLine | EventLine,
}
"""What a command that streams prints a line of, before its document."""


_PRINTED: Literal["serialization"] = "serialization"


SEVERAL = frozenset(
    {"down", "exec", "logs", "plan", "pull", "push", "run", "setup", "stop", "sync", "verify"}
    | {"wait"}
)
"""Commands that print a document of each box, as `boxes`, where several are named."""


class _AllRequired(GenerateJsonSchema):
    """A field with a default is always printed, too."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401
        if field["type"] == "typed-dict-field":
            return super().field_is_required(field, total)
        return True


def json_schema(name: str, *, lines: bool = True) -> dict[str, Any]:
    """Return the JSON Schema of what `boxstrap NAME --json` prints; without `lines` that of its
    document alone. Raises KeyError."""
    kinds = DOCUMENTS[name]
    schemas, defs = _schemas((AnyDocument, *kinds))
    base, *own = schemas
    properties = dict(base["properties"])
    for one in own:
        for key, value in one["properties"].items():
            before = properties.get(key, value)
            properties[key] = value if before == value else _either(before, value)
    document = {
        "type": "object",
        "properties": properties,
        "required": base["required"],
        # An error may come before anything is known.
        "if": {"not": {"required": ["error"]}},
        "then": {"anyOf": [{"required": one.get("required", [])} for one in own]},
    }
    if name in SEVERAL:
        part = {"host": {"type": "string"}, "seconds": {"type": "number"}}
        each = {**document, "properties": {**properties, **part}}
        defs["OneOfSeveral"] = {**each, "required": [*base["required"], *part]}
        boxes = {"type": "array", "items": {"$ref": "#/$defs/OneOfSeveral"}}
        document["properties"] = {**properties, "boxes": boxes}
        document["then"]["anyOf"].append({"required": ["boxes"]})
    streams = lines and name in LINES
    if streams:
        (line,), more = _schemas((LINES[name],))
        defs |= more
        document = {"anyOf": [line, document]}
    return {
        "$schema": DIALECT,
        "title": f"boxstrap {name} --json, version {VERSION}",
        **({"description": "Each line is one of these."} if streams else {}),
        **document,
        "$defs": defs,
    }


def _schemas(kinds: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the schema of each type, and those that they refer to."""
    inputs = [(at, _PRINTED, TypeAdapter(kind)) for at, kind in enumerate(kinds)]
    found, all_ = TypeAdapter.json_schemas(inputs, schema_generator=_AllRequired)
    defs = all_.get("$defs", {})
    schemas = []
    for at, _, _ in inputs:
        one = found[at, _PRINTED]
        if "$ref" in one:
            one = defs[one["$ref"].rpartition("/")[2]]
        schemas.append(one)
    return schemas, defs


def _either(one: Any, other: Any) -> dict[str, Any]:  # noqa: ANN401
    known = one["anyOf"] if set(one) == {"anyOf"} else [one]
    return {"anyOf": known if other in known else [*known, other]}
