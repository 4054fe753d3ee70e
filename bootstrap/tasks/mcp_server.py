"""`mcp`: the commands as tools of an MCP server, by the official SDK.

A tool is a command: its options are the input, its `--json` the output, with the schema that
the tool `schema` prints. Each call is a process of its own, without a terminal. What `agreement.py`
says is agreed to by a person first, by elicitation; a client that can't ask one is refused. Files
are written only below the folder that `boxstrap mcp --write` names, and only new ones.
"""

import asyncio
import contextlib
import json
import re
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
from jsonschema import Draft202012Validator
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from bootstrap import __version__
from bootstrap.errors import INTERRUPTED
from bootstrap.paths import own_command
from bootstrap.tasks import NAMES, find
from bootstrap.tasks.agreement import note_consent, question
from bootstrap.tasks.command import Command
from bootstrap.tasks.effects import EFFECTS, NOT_OBEYED, over_mcp, skill_text
from bootstrap.tasks.options import WITH_COMMAND, Option

_NO_TOOLS = frozenset(
    {"attach", "shell", "tunnel", "top", "code", "demo", "guard", "mcp", "skill", "completion"}
)
"""Commands that need a terminal or a desktop, run until somebody ends them, or are about these."""
_NO_OPTIONS = frozenset({"json_", "follow", "watch", "events", "detach", "output", "install"})
_DOLLARS = frozenset({"max_price", "limit", "kwh"})
"""Options that take a number too, as models write amounts."""
_ASKS = "agree"
_INPUT_REQUIRED = "2026-07-28"
"""The first version of the protocol in which a question is an answer to the call."""
_LONGEST_LOG = 200_000  # characters of a log that a result has at most: its end
_LONGEST_ARGUMENT = 100_000  # characters of a word of a command line; Linux takes 131,071 bytes
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_LONGEST_LINE = 2**28
_LONGEST_NOTE = 200
_LEAST_TIMEOUT_S = 5  # seconds in which a command has begun
_EVERY_S = 10.0  # seconds between two notices of progress at the most
_SKILL = "boxstrap://skill"
_INSTRUCTIONS = (
    "Tools are boxstrap's commands. The loop: init, plan, setup (or up, which rents a box), wait, "
    f"pull, down. Read the resource {_SKILL} first. A rented box costs money until down."
)


def tasks() -> dict[str, Command]:
    return {name.replace("-", "_"): find(name) for name in NAMES if name not in _NO_TOOLS}


def tool_of(name: str, task: Command, into: Path | None = None) -> types.Tool:
    """Return the tool of a command; it may write files below `into`."""
    effect = EFFECTS[_command_name(name)]
    writes = bool(effect.writes and into)
    is_read = effect.kind == "reads" and not effect.asks and not writes
    about = task.text.partition("\n\n")[0].replace("\n", " ")
    return types.Tool(
        name=name,
        description=f"{about} {effect.sentence}".rstrip(),
        input_schema=input_schema(name, task, into),
        annotations=types.ToolAnnotations(
            read_only_hint=is_read,
            destructive_hint=None if is_read else effect.kind == "destroys",
            idempotent_hint=None if is_read else name in ("setup", "up", "pull", "sync", "down"),
            open_world_hint=True,
        ),
    )


def input_schema(name: str, task: Command, into: Path | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: the command's options."""
    properties = {_key(option): _property(option) for option in _options(name, task, into)}
    if _command_name(name) in WITH_COMMAND:
        properties["argv"] = {
            "type": "array",
            "items": {"type": "string"},
            "description": "The command and its arguments, as after `--`.",
        }
    properties["timeout"] = {
        "type": "integer",
        "minimum": _LEAST_TIMEOUT_S,
        "description": "Seconds after which it returns how far it is (exit 130); the box goes on.",
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def check_arguments(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise ValueError, with the name, for an argument that is not as the tool's schema has it."""
    if unknown := arguments.keys() - schema["properties"].keys():
        has = ", ".join(schema["properties"])
        raise ValueError(f"{name} has no {min(unknown)!r}; it has: {has}")
    for error in Draft202012Validator(schema).iter_errors(arguments):
        raise ValueError(f"{name}: {error.json_path.removeprefix('$.')}: {error.message[:300]}")
    for key, value in arguments.items():
        for word in map(str, value if isinstance(value, list) else [value]):
            if _UNWRITABLE.search(word):
                raise ValueError(f"{name}: {key}: it has a character that no command line can hold")
            if len(word.encode()) > _LONGEST_ARGUMENT:
                raise ValueError(f"{name}: {key}: it is too long")


def command_line(
    name: str, task: Command, arguments: Mapping[str, Any], into: Path | None = None
) -> list[str]:
    """Return the words of the command. Raises ValueError as `check_arguments`."""
    check_arguments(name, input_schema(name, task, into), arguments)
    options = {_key(option): option for option in _options(name, task, into)}
    words = [_command_name(name), "--json"]
    for key, option in options.items():
        value = arguments.get(key)
        if option.default is False:
            words += [option.flag] if value else []
        elif option.many:
            words += [f"{option.flag}={each}" for each in value or ()]
        elif value is not None:
            words.append(f"{option.flag}={value}")
    return [*words, "--", *arguments["argv"]] if arguments.get("argv") else words


def _claim(name: str, arguments: Mapping[str, Any], into: Path | None) -> Path | None:
    """Make the file or folder that the command is to write, so that it is a new one; return it.
    Raises ValueError for one that is not below `into`, or there already."""
    option = EFFECTS[_command_name(name)].writes
    if not into or option not in arguments:
        return None
    place = into / str(arguments[option])
    try:
        if not place.parent.resolve(strict=True).is_relative_to(into):
            raise ValueError(f"{name}: {option}: it is not below {into}")
        if name == "pull":
            place.mkdir()
        else:
            place.touch(exist_ok=False)
    except OSError as error:
        raise ValueError(f"{name}: {option}: {place}: {(error.strerror or '').lower()}") from None
    return place


def _options(name: str, task: Command, into: Path | None) -> Sequence[Option]:
    writes = "" if into else EFFECTS[_command_name(name)].writes
    return [option for option in task.options if option.name not in {*_NO_OPTIONS, writes}]


def _key(option: Option) -> str:
    return option.name.rstrip("_")


def _command_name(name: str) -> str:
    return name.replace("_", "-")


def _property(option: Option) -> dict[str, Any]:
    if option.many:
        return {"type": "array", "items": {"type": "string"}, "description": option.help}
    if option.default is False:
        return {"type": "boolean", "description": option.help}
    if isinstance(option.default, int):
        return {"type": "integer", "description": option.help, "default": option.default}
    kinds = [{"type": kind} for kind in ("string", "number")]
    kind = {"anyOf": kinds} if option.name in _DOLLARS else kinds[0]
    return {**kind, "description": option.help}


Tell = Callable[[float, str], Awaitable[None]]
"""Takes the seconds so far, and a note of what happens."""


async def _tell_nobody(_seconds: float, _note: str) -> None:
    pass


async def run_command(
    words: Sequence[str], limit_s: float | None = None, tell: Tell = _tell_nobody
) -> tuple[int, str, str]:
    """Run a command of boxstrap; return its exit code, its output and its errors.

    A call that is cancelled, or not over after `limit_s`, interrupts it, as Ctrl-C does: what is
    on a box goes on.
    """
    process = await asyncio.create_subprocess_exec(
        *own_command(*words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        start_new_session=True,  # without the terminal of whoever started the server
    )
    began, note, out = time.monotonic(), "", list[str]()

    async def read_lines() -> None:
        nonlocal note
        assert process.stdout is not None  # noqa: S101 - a pipe
        async for line in process.stdout:
            out.append(line.decode(errors="replace"))
            if said := note_of(out[-1]):
                note = said
                await tell(time.monotonic() - began, note)

    assert process.stderr is not None  # noqa: S101 - a pipe
    work = asyncio.gather(process.stderr.read(), read_lines(), process.wait())
    try:
        while not work.done():
            left = limit_s - (time.monotonic() - began) if limit_s else _EVERY_S
            await asyncio.wait([work], timeout=min(_EVERY_S, max(0.0, left)))
            if not work.done() and left <= _EVERY_S and limit_s:
                process.send_signal(signal.SIGINT)
                limit_s = None
            await tell(time.monotonic() - began, note)
        err = work.result()[0].decode(errors="replace")
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        raise
    return process.returncode or 0, "".join(out), err


def note_of(line: str) -> str:
    """Return what a line of `--events` tells, on one line; "" for a line that is none."""
    if not line.startswith('{"v": 1, "event":'):
        return ""
    told = json.loads(line)
    words = (told.get(key) for key in ("label", "text", "step", "run", "state"))
    return " ".join(" ".join(filter(None, words)).split())[:_LONGEST_NOTE]


def document_of(code: int, out: str, err: str) -> tuple[dict[str, Any], str]:
    """Return the document that a command printed last, and the end of its lines' text before."""
    lines, found = [], dict[str, Any]()
    for text in out.splitlines():
        line = json.loads(text)
        if "line" in line:
            lines.append(line["line"])
        elif "exit" in line:
            found = line
    if not found:  # such as an option that the parser doesn't know
        error = {"error": "Usage", "what": err.strip(), "exit": code}
        found = {"v": 1, "exit": code, "error": error}
    log = "\n".join(lines)
    if len(log) > _LONGEST_LOG:
        found = {**found, "cut": [*found.get("cut", []), "log"]}
    return found, log[-_LONGEST_LOG:]


_Context = ServerRequestContext[Any]
_AGREEMENT = {
    "type": "object",
    "properties": {_ASKS: {"type": "boolean", "title": "Agree"}},
    "required": [_ASKS],
}


async def _agreed(
    context: _Context, params: types.CallToolRequestParams, text: str
) -> bool | types.InputRequiredResult:
    """Ask the client's user; return whether they agree, or the question for this call's answer."""
    form = types.ElicitRequestFormParams(message=text, requested_schema=_AGREEMENT)
    if context.protocol_version < _INPUT_REQUIRED:
        return _is_yes(await context.session.elicit_form(text, _AGREEMENT, context.request_id))
    answer = (params.input_responses or {}).get(_ASKS)
    if isinstance(answer, types.ElicitResult) and params.request_state == text:
        return _is_yes(answer)
    asked: types.InputRequests = {_ASKS: types.ElicitRequest(params=form)}
    return types.InputRequiredResult(input_requests=asked, request_state=text)


def _is_yes(answer: types.ElicitResult) -> bool:
    return answer.action == "accept" and (answer.content or {}).get(_ASKS) is True


def _refusal(text: str, why: str) -> types.CallToolResult:
    command = text.partition("\n")[0]
    then = (
        "Ask the user. If they agree: call it again, and let them accept the question; or they run "
        f"it in their terminal: {command}"
    )
    error = {"error": "Usage", "what": f"{why}: nothing was done", "next": then, "exit": 2}
    return _result({"v": 1, "exit": 2, "error": error}, "")


def _result(document: dict[str, Any], log: str) -> types.CallToolResult:
    texts = filter(None, [NOT_OBEYED, log, json.dumps(document)])
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text) for text in texts],
        structured_content=document,
        is_error=document["exit"] not in (0, INTERRUPTED),
    )


async def _call_tool(
    into: Path | None, context: _Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    name, arguments = params.name, params.arguments or {}
    task = tasks().get(name)
    if task is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {name!r}")
    try:
        command_line(name, task, arguments, into)
        if text := question(_command_name(name), arguments):
            wanted = types.ClientCapabilities(elicitation=types.ElicitationCapability())
            if not context.session.check_client_capability(wanted):
                return _refusal(text, "a person must agree to this, and this client can't ask one")
            answer = await _agreed(context, params, text)
            if isinstance(answer, types.InputRequiredResult):
                return answer
            if not answer:
                return _refusal(text, "the user did not agree")
        place = _claim(name, arguments, into)
    except (OSError, RuntimeError, ValueError) as error:  # pathlib's, of a path that can't be
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    written = {EFFECTS[_command_name(name)].writes: str(place)} if place else {}
    words = command_line(name, task, {**arguments, **written}, into)
    if any(option.name == "events" for option in task.options):
        words.insert(2, "--events")

    async def tell(seconds: float, note: str) -> None:
        await context.session.report_progress(seconds, None, note or None)

    document, log = document_of(*await run_command(words, arguments.get("timeout"), tell))
    note_consent(document)
    if place and document["exit"]:
        with contextlib.suppress(OSError):
            if place.is_dir():
                place.rmdir()
            elif not place.stat().st_size:
                place.unlink()
    return _result(document, log)


async def _list_tools(
    into: Path | None, _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[tool_of(name, task, into) for name, task in tasks().items()]
    )


async def _list_resources(
    _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    skill = types.Resource(
        name="skill", uri=_SKILL, mime_type="text/markdown", description="How to use it."
    )
    return types.ListResourcesResult(resources=[skill])


async def _read_resource(
    _: _Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    if params.uri != _SKILL:
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri!r}")
    text = f"{skill_text()}\n{over_mcp()}"
    skill = types.TextResourceContents(uri=_SKILL, mime_type="text/markdown", text=text)
    return types.ReadResourceResult(contents=[skill])


def make_server(into: Path | None = None) -> Server[Any]:
    """Return the server, without a transport; its commands may write new files below `into`."""
    return Server(
        "boxstrap",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=partial(_list_tools, into),
        on_call_tool=partial(_call_tool, into),
        on_list_resources=_list_resources,
        on_read_resource=_read_resource,
    )


def serve(into: Path | None) -> None:
    """Serve on standard input and output, until the client closes them; see `make_server`."""

    async def run() -> None:
        server = make_server(into)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(run())
