"""What `--json` prints of each command, as types; `boxstrap schema` makes JSON Schemas of them.

A result is a class (`bootstrap/value.py`), or a table of its keys with their types, of
which `key?` may be missing. A document's own keys are there unless it has `error`; then each of
them may be missing. Within a version keys are only added. Times are seconds since 1970 or a
duration, prices dollars an hour.
"""

import functools
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from inspect import isclass
from pathlib import PurePath
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import NotRequired, TypedDict, is_typeddict

from bootstrap.boxes.disk import LowDisk
from bootstrap.boxes.failure import RunThatEnded
from bootstrap.boxes.probe import BoxLease
from bootstrap.boxes.run import Run, RunOnABox
from bootstrap.boxes.run_history import Card, Machine, RunNow
from bootstrap.boxes.trees import DisposableThing, TreeBeside
from bootstrap.boxes.verdict import Verdict
from bootstrap.fleet.comparison import BestValue, ComparedRun
from bootstrap.fleet.sweep import Dealt
from bootstrap.profile.consent import Grant, Grants
from bootstrap.profile.load import ListedProfile
from bootstrap.profile.yaml_source import ProfileProblem
from bootstrap.providers.estimate import Row, Usage
from bootstrap.providers.offer import Leftover, RentOrder
from bootstrap.renting.guard import GuardedBox
from bootstrap.renting.loss_check import Loss
from bootstrap.renting.order import FoundOffer
from bootstrap.renting.rental import Rental, RentedNow
from bootstrap.renting.resumption import ResumedElsewhere
from bootstrap.runs.known_runs import ListedRun, MeasuredRun
from bootstrap.runs.pull_result import BroughtRun
from bootstrap.runs.rented import RentedBoxes
from bootstrap.runs.run_end import StoppedRun
from bootstrap.runs.status import StatusOfAll
from bootstrap.runs.tunnel import OpenTunnel
from bootstrap.runs.upkeep import SecretRow
from bootstrap.setup.back import FetchedWork
from bootstrap.setup.new_run import ResumedRun, StartedRun
from bootstrap.setup.push import PushedFiles
from bootstrap.setup.result import SetupResult
from bootstrap.setup.sequence import SetupPlan
from bootstrap.setup.sync import Synced
from bootstrap.tasks.boxes import EndedBox, ListedBox
from bootstrap.tasks.doctor import Finding
from bootstrap.ui.screens import VERSION
from bootstrap.value import keys_of

TABLE = "Keys"  # the name of a type that was written as a table of its keys
_NONE, _UNIONS = type(None), (Union, UnionType)


@functools.cache
def typed_dict(kind: Any) -> Any:  # noqa: ANN401 - a class
    types: dict[str, Any] = {}
    if is_typeddict(kind):
        return kind
    for key in keys_of(kind):
        found, can_lack = _hint(kind, key.path)
        if key.is_merged:
            lacks = can_lack or get_origin(found) in _UNIONS
            merged = typed_dict(_without_none(found)).__annotations__
            types |= {
                at: NotRequired[of] if lacks and get_origin(of) is not NotRequired else of
                for at, of in merged.items()
            }
            continue
        is_left_out = key.is_maybe and not key.is_nullable
        printed = shape(_without_none(found) if is_left_out else found)
        if key.is_null_if_empty or (can_lack and not is_left_out):
            printed = printed | None
        types[key.name] = NotRequired[printed] if key.is_maybe else printed
    return _made(kind.__name__, kind.__doc__, types)


def keyed(name: str, described: str, keys: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the type of an object with these keys: `key?` may be missing, `**` stands for all keys
    of a class."""
    types: dict[str, Any] = {}
    for key, kind in keys.items():
        if key == "**":
            types |= typed_dict(kind).__annotations__
        else:
            types[key.rstrip("?")] = NotRequired[shape(kind)] if "?" in key else shape(kind)
    return _made(name, described, types)


def _made(name: str, described: str | None, types: Mapping[str, Any]) -> Any:  # noqa: ANN401
    made: Any = TypedDict(name, types)  # type: ignore[misc]
    made.__doc__ = described
    return made


def shape(kind: Any) -> Any:  # noqa: ANN401, PLR0911 - any type
    if isinstance(kind, dict):
        return keyed(TABLE, "", kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        return Union[tuple(map(shape, args))]  # noqa: UP007 - of how many
    if origin is NotRequired:
        return NotRequired[shape(args[0])]
    if isclass(origin) and args and issubclass(origin, Mapping):
        return dict[shape(args[0]), shape(args[1])]  # type: ignore[misc]
    if isclass(origin) and args:
        return list[shape(args[0])]  # type: ignore[misc]
    if isclass(kind) and issubclass(kind, Enum | PurePath):
        return str
    has_keys = is_typeddict(kind) or (isclass(kind) and keys_of(kind))
    return typed_dict(kind) if has_keys else kind


def _hint(kind: Any, path: str) -> tuple[Any, bool]:  # noqa: ANN401
    """Return the type of the attribute at a dotted path, and whether one on the way may be None."""
    can_lack = False
    for name in path.split("."):
        can_lack = can_lack or get_origin(kind) in _UNIONS
        kind = _without_none(kind)
        owner = next(one for one in kind.__mro__ if name in _own_annotations(one))
        kind = _own_annotations(owner)[name]
        if isinstance(kind, str):
            kind = eval(kind, {**_all_names(), **vars(sys.modules[owner.__module__])})  # noqa: S307
    return (get_args(kind)[0] if get_origin(kind) is ClassVar else kind), can_lack


def _without_none(kind: Any) -> Any:  # noqa: ANN401
    left = [one for one in get_args(kind) if one is not _NONE]
    return left[0] if get_origin(kind) in (*_UNIONS, type) else kind


@functools.cache
def _own_annotations(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    getters = {
        name: getattr(one, "fget", getattr(one, "func", None))
        for name, one in [*vars(kind).items()]
    }
    given = {name: of.__annotations__["return"] for name, of in getters.items() if of}
    return {**vars(kind).get("__annotations__", {}), **given}


@functools.cache
def _all_names() -> dict[str, Any]:
    """What a module imports for type checkers alone is in another one of ours."""
    ours = [module for name, module in [*sys.modules.items()] if name.startswith("bootstrap.")]
    return {name: one for module in ours for name, one in [*vars(module).items()] if isclass(one)}


DIALECT = "https://json-schema.org/draft/2020-12/schema"

# Tables of keys, in rows.
# fmt: off
_ERROR = keyed(
    "ErrorDocument",
    """Why it did not succeed: what, where, and what to do next; `exit` is the exit code.

    `command` is the command that goes on, where the user agrees to it.
    """,
    {
        "error": str, "what": str, "exit": int, "where?": str, "next?": str, "command?": str,
        "boxes?": list[str], "problems?": list[ProfileProblem],
        "digest?": str, "takes?": list[Grant], "sum?": float, "cap?": float,
    },
)
_STEP = keyed(
    "StepState",
    "A step of a setup.",
    {"step": str, "state": str, "why?": str, "said?": str, "noted?": str, "seconds?": float},
)
_ANY = {
    "v": int, "exit": int, "steps?": list[_STEP],  # type: ignore[valid-type]
    "said?": list[str], "notes?": dict[str, str], "warnings?": list[str],
    "logs?": dict[str, list[str]], "cut?": list[str], "error?": _ERROR,
}
_EVERY = keyed(
    "AnyDocument",
    "What every document has. `cut`: the keys of which a part was dropped, as too long.",
    _ANY,
)
_OF_GROUP = keyed(
    "BoxOfGroup",
    "One of several boxes that were rented together, with `error` if it didn't come.",
    {**_ANY, "host": str, "seconds": float, "box?": str, "rented?": RentedNow},
)
_MEMORY = keyed(
    "NeededMemory",
    "Of each GPU, in GB.",
    {
        "gb": float, "low_gb": float, "high_gb": float, "parameters": float, "assumed": str,
        "other_methods_gb": dict[str, float],  # by the methods of `--method` that take less
        "sharded_gb": dict[str, float],  # by number of GPUs, of each of them
    },
)
_SCRIPT = {
    "door?": str | None, "limit?": int | None, "use?": str, "bytes?": int,
    "lines?": list[str], "written?": str, "sha256?": str, "text?": str,
}
_POOL = {"format": str, "boxes": list[str], "bytes": int, "lines?": list[str], "written?": str}
_COMPARED = {
    "report": str, "csv": str, "lines": str, "metric": str | None,
    "best": ComparedRun | None, "best_value": BestValue | None,
}
_TEXT = {"text?": list[str], "written?": list[str]}
_WAY_IN = {"box": str, "argv": list[str]}
_RENTED = {"rented": RentedNow}

DOCUMENTS: Mapping[str, tuple[Any, ...]] = {
    "attach": (_WAY_IN,),
    "boxes": (
        {"boxes": list[ListedBox], "unreadable": list[str], "ended": list[EndedBox]},
        {"**": RentedBoxes, "perhaps_rented": list[Rental]},
        {"forgotten": list[str], "removed": list[str]},
    ),
    "clean": (
        {
            "box": str, "trees": list[TreeBeside], "copies_of_results": int,
            "things": list[DisposableThing],
        },
    ),
    "code": (
        {
            "editor": str, "opened": bool, "folder": str, "python": str,
            "host?": str, "folder_uri?": str, "link?": str, "lacks?": list[dict[str, str]],
        },
    ),
    "completion": (_TEXT,),
    "demo": (SetupResult,),
    "doctor": ({"checks": list[Finding]},),
    "down": (
        {
            "box": str, "destroyed": bool, "host?": str | None, "was_gone?": bool,
            "spent?": float | None, "discarded?": list[Loss], "left?": list[Leftover],
            "unsafe?": list[Loss],  # refused: what would be lost
            "why_not?": str, "console?": str | None,  # it keeps running: why, and where it is ended
        },
    ),
    "estimate": (
        {
            "usage": Usage, "rows": list[Row], "failed": dict[str, str], "oldest": str,
            "past_runs": list[MeasuredRun],
            "left_out": list[str],  # providers of which no price is known here
            "memory?": _MEMORY, "plot?": str,
        },
    ),
    # `code` is also `exit`.
    "exec": ({"box": str, "output": str, "code": int},),
    "guard": (
        {
            "boxes": list[GuardedBox],
            "not_by_id": list[str],  # names whose id is unknown
            "without_lease": list[str],
            "resumed?": list[ResumedElsewhere],
        },
    ),
    "init": ({"written": str, "notes": list[str]},),
    "lease": ({"box": str, "lease": BoxLease | None},),
    "logs": ({"run?": RunOnABox, "runs?": list[RunOnABox]},),
    "oneliner": (_SCRIPT,),
    "plan": (SetupPlan,),
    "profiles": (
        {"profiles": list[ListedProfile]},
        {"valid": bool, "files": list[str]},
        {"profile": dict[str, Any]},
    ),
    "pull": (BroughtRun, {"runs": list[BroughtRun]}),
    "push": ({"**": PushedFiles, "box": str}, {"box": str, "items": list[PushedFiles]}),
    "render": (_SCRIPT, _POOL),
    "report": (
        {"report": str, "run": Run},
        {**_COMPARED, "runs": list[ComparedRun]},
        {**_COMPARED, "sweep": str, "cells": list[ComparedRun]},
    ),
    "run": (
        {"**": StartedRun, "rented?": RentedNow},
        ResumedElsewhere,
        ResumedRun,
        {"sweep": Dealt},
        {"runs": list[StartedRun]},
    ),
    "runs": ({"runs": list[ListedRun]},),
    "schema": ({"schemas": list[str]}, {"schema": dict[str, Any]}),
    "secrets": (
        {"box": str | None, "secrets": list[SecretRow]},
        {"box": str, "wiped": list[str], "running": list[str]},
    ),
    "setup": (SetupResult, SetupPlan, {"verdict": Verdict}),
    "shell": (_WAY_IN,),
    "skill": (_TEXT,),
    "ssh-config": (
        {
            "file": str, "included_by": str, "windows": Any, "aliases": list[str],
            "left_out": dict[str, str],
        },
        {"file": str, "removed": bool},
    ),
    "status": (StatusOfAll,),
    "stop": (
        {
            "box": str, "stopped": list[str], "runs": list[StoppedRun],
            "left": list[list[str]],  # processes that are not ended: run, pid, user, program
        },
    ),
    "sync": (Synced, FetchedWork),
    "top": ({},),
    "tunnel": ({}, {"box": str, "stopped": list[str]}),
    "up": (
        {"**": SetupResult, **_RENTED},
        {"**": ResumedElsewhere, **_RENTED},
        {
            "group": str, "count": int, "came": int, **_RENTED, "first": SetupResult,
            "boxes?": list[_OF_GROUP],  # type: ignore[valid-type]
        },
        {
            "order": RentOrder, "offers": list[FoundOffer], "nearest": list[FoundOffer],
            "left?": dict[str, int],  # how many remain without that key, where none fits
            "consent?": Grants,  # what `up` will ask the user for
        },
    ),
    "verify": ({"verdict": Verdict, "report?": str},),
    "wait": (
        {
            "box": str, "runs": list[RunThatEnded],
            "told?": list[str],  # with --detach: the addresses that the box tells
        },
    ),
}
"""The result of each command; of several, one: an option says which."""

_EVENT = keyed(
    "EventLine",
    "What happens (`--events`): a fact with its `label`, a sentence, a warning, a step's state.",
    {
        "v": int, "event": Literal["note", "said", "warning", "step"],
        "label?": str, "text?": str, "step?": str, "state?": str,
    },
)
LINES: Mapping[str, Any] = {
    "logs": keyed(
        "LogLine",
        "A line of a log; `cut` if the line goes on in the next one.",
        {"v": int, "line": str, "box?": str, "run?": str, "cut?": bool},
    ),
    "sync": keyed("SyncLine", "A state that `--watch` placed.", {"v": int, "**": Synced}),
    "top": keyed(
        "TopLine",
        "One look at a box. `state`: live, or why there is none.",
        {
            "v": int, "box": str, "state": str, "why?": str, "t?": float,
            "host?": Machine | None, "gpus?": list[Card], "error?": int | None,
            "run?": RunNow | None, "others?": list[RunNow], "low?": LowDisk | None,
        },
    ),
    "tunnel": keyed(
        "TunnelLine",
        "The tunnels that are open now.",
        {"v": int, "box": str, "tunnels": list[OpenTunnel]},
    ),
    "setup": _EVENT,
    "up": _EVENT,
    "wait": keyed(
        "WaitLine",
        "What has become of a run that is waited for, now and at each change.",
        {
            "v": int, "event": Literal["run"], "box": str, "run": str, "state": str,
            "rc": int | None,
        },
    )
    | _EVENT,
}
"""What a command that streams prints a line of, before its document."""
# fmt: on
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
    schemas, defs = _schemas((_EVERY, *DOCUMENTS[name]))
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
    inputs = [(at, _PRINTED, TypeAdapter(shape(kind))) for at, kind in enumerate(kinds)]
    found, all_ = TypeAdapter.json_schemas(inputs, schema_generator=_AllRequired)
    defs = all_.get("$defs", {})
    schemas = []
    for at, _, _ in inputs:
        one = found[at, _PRINTED]
        if "$ref" in one:
            one = defs[one["$ref"].rpartition("/")[2]]
        schemas.append(one)
    return schemas, {name: of for name, of in defs.items() if of.get("title") != TABLE}


def _either(one: Any, other: Any) -> dict[str, Any]:  # noqa: ANN401
    known = one["anyOf"] if set(one) == {"anyOf"} else [one]
    return {"anyOf": known if other in known else [*known, other]}
