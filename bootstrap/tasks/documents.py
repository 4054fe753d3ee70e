"""What `--json` prints of each command, as types; `boxstrap schema` makes JSON Schemas of them.

A document's own keys are there unless it has `error`; then each of them may be missing.
Within a version keys are only added. Times are seconds since 1970, prices dollars an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import NotRequired, TypedDict

from bootstrap.doctor import Finding
from bootstrap.profile.consent import Grant
from bootstrap.profile.yaml_source import ProfileProblem
from bootstrap.protocol.verdict import Verdict
from bootstrap.renting.resumption import ResumedElsewhere
from bootstrap.runs.pull import BroughtRun
from bootstrap.runs.status import StatusOfAll
from bootstrap.runs.tunnel import OpenTunnel
from bootstrap.setup.result import SetupResult
from bootstrap.setup.sequence import SetupPlan
from bootstrap.sync.back import FetchedWork
from bootstrap.sync.new_run import ResumedRun
from bootstrap.sync.send import Synced
from bootstrap.tasks.box_documents import (
    AccountsDocument,
    BoxesDocument,
    CleanDocument,
    DownDocument,
    EstimateDocument,
    ForgottenBox,
    GuardDocument,
    LeaseOfABox,
    OffersDocument,
    SecretsDocument,
    WipedSecretsDocument,
)
from bootstrap.tasks.run_documents import (
    ComparisonDocument,
    DealtSweep,
    EventLine,
    ExecDocument,
    LogLine,
    LogsDocument,
    PulledRuns,
    PushDocument,
    PushedData,
    QueuedRuns,
    RentedBoxDocument,
    RentedResumption,
    ReportDocument,
    RunOnRented,
    RunsDocument,
    StopDocument,
    SweepReportDocument,
    SyncLine,
    TopLine,
    WaitDocument,
    WaitLine,
    WayIn,
)
from bootstrap.text.document import Document
from bootstrap.text.document_types import shape
from bootstrap.ui.screens import VERSION

DIALECT = "https://json-schema.org/draft/2020-12/schema"


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
    problems: NotRequired[list[ProfileProblem]]
    digest: NotRequired[str]
    takes: NotRequired[list[Grant]]
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


class ReturnedBox(TypedDict):
    """The verdict, with `error`, where the box is to be returned."""

    verdict: Verdict


@dataclass
class RentedSetup(Document):
    """A box that was rented and set up."""

    KEYS = "**setup, rented"

    setup: SetupResult
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
    first: SetupResult
    boxes: NotRequired[list[BoxOfGroup]]


class VerifyDocument(TypedDict):
    """The verdict, and the page that was written."""

    verdict: Verdict
    report: NotRequired[str]


class DoctorDocument(TypedDict):
    """The checks."""

    checks: list[Finding]


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
    "demo": (SetupResult,),
    "doctor": (DoctorDocument,),
    "down": (DownDocument,),
    "estimate": (EstimateDocument,),
    "exec": (ExecDocument,),
    "guard": (GuardDocument,),
    "init": (InitDocument,),
    "lease": (LeaseOfABox,),
    "logs": (LogsDocument,),
    "oneliner": (ScriptDocument,),
    "plan": (SetupPlan,),
    "profiles": (ProfilesDocument, ValidDocument, ShownProfile),
    "pull": (BroughtRun, PulledRuns),
    "push": (PushDocument, PushedData),
    "render": (ScriptDocument, PoolDocument),
    "report": (ReportDocument, ComparisonDocument, SweepReportDocument),
    "run": (
        RunOnRented,
        ResumedElsewhere,
        ResumedRun,
        DealtSweep,
        QueuedRuns,
    ),
    "runs": (RunsDocument,),
    "schema": (SchemaList, SchemaDocument),
    "secrets": (SecretsDocument, WipedSecretsDocument),
    "setup": (SetupResult, SetupPlan, ReturnedBox),
    "shell": (WayIn,),
    "skill": (ShippedText,),
    "ssh-config": (SshEntries, SshRemoved),
    "status": (StatusOfAll,),
    "stop": (StopDocument,),
    "sync": (Synced, FetchedWork),
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
    inputs = [(at, _PRINTED, TypeAdapter(shape(kind))) for at, kind in enumerate(kinds)]
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
