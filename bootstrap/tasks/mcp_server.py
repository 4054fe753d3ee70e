"""`mcp`: the commands as tools of an MCP server, by the official SDK.

A tool is a command: its options are the input, its `--json` the output, with the schema that
`boxstrap schema` prints. Each call is a process of its own, without a terminal. What costs money or
destroys is agreed to by a person first, by elicitation; a client that can't ask one is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from bootstrap import __version__
from bootstrap.tasks.command import BoxTask, Option
from bootstrap.tasks.documents import json_schema
from bootstrap.tasks.effects import ALWAYS, EFFECTS
from bootstrap.tasks.skill import over_mcp, skill_text
from bootstrap.tasks.usage import WITH_COMMAND

_NO_TOOLS = frozenset(
    {"attach", "shell", "tunnel", "top", "code", "demo", "guard", "mcp", "skill", "schema"}
)
"""Commands that need a terminal or a desktop, run until somebody ends them, or are about these."""
_NO_OPTIONS = frozenset({"json_", "follow", "watch", "events", "detach", "output", "install"})
_ASKS = "agree"
_INPUT_REQUIRED = "2026-07-28"
"""The first version of the protocol in which a question is an answer to the call."""
_LONGEST_LOG = 200_000
"""Characters of a log that a resource has at most: its end."""
_MOST_RUNS = 100
_SCHEME = "boxstrap://"
_INSTRUCTIONS = (
    "Tools are boxstrap's commands. The loop: init, plan, setup (or up, which rents a box), wait, "
    "pull, down. Read the resource boxstrap://skill first. A rented box costs money until down."
)


def tasks() -> dict[str, BoxTask]:
    """Return the commands that are tools, by the tools' names."""
    from bootstrap.tasks import FAMILIES

    named = {str(task.name).replace("-", "_"): task for task in chain(*FAMILIES.values())}
    return {name: task for name, task in named.items() if name not in _NO_TOOLS}


def tool_of(name: str, task: BoxTask) -> types.Tool:
    """Return the tool of a command."""
    effect = EFFECTS[_command_name(name)]
    is_read = effect.kind == "reads" and not effect.asks
    about = (task.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return types.Tool(
        name=name,
        description=f"{about} {effect.sentence}".rstrip(),
        input_schema=input_schema(name, task),
        output_schema=json_schema(_command_name(name), lines=False),
        annotations=types.ToolAnnotations(
            read_only_hint=is_read,
            destructive_hint=None if is_read else effect.kind == "destroys",
            idempotent_hint=None if is_read else name in ("setup", "up", "pull", "sync", "down"),
            open_world_hint=True,
        ),
    )


def input_schema(name: str, task: BoxTask) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: the command's options."""
    properties = {_key(option): _property(option) for option in _options(task)}
    if _command_name(name) in WITH_COMMAND:
        properties["argv"] = {
            "type": "array",
            "items": {"type": "string"},
            "description": "The command and its arguments, as after `--`.",
        }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def command_line(name: str, task: BoxTask, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command. Raises ValueError for an argument that it doesn't have."""
    options = {_key(option): option for option in _options(task)}
    words = [_command_name(name), "--json"]
    for key, value in arguments.items():
        option = options.get(key)
        if key == "argv" and _command_name(name) in WITH_COMMAND:
            continue
        if option is None:
            raise ValueError(f"{name} has no {key!r}; it has: {', '.join(options)}")
        flag = f"--{key.replace('_', '-')}"
        if option.default is False:
            words += [flag] if value else []
        elif option.many:
            words += [f"{flag}={each}" for each in ([value] if isinstance(value, str) else value)]
        elif value is not None:
            words.append(f"{flag}={value}")
    return [*words, "--", *arguments["argv"]] if arguments.get("argv") else words


def question(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what a person must agree to before this call; "" for nothing."""
    effect = EFFECTS[_command_name(name)]
    given = {key for key, value in arguments.items() if value}
    if effect.except_with in given:
        return ""
    what = []
    if ALWAYS in effect.asks or given & {*effect.asks}:
        what.append(f"This {effect.does}{_subject(name, arguments)}.")
    if "consent" in given:
        taken = _consents.get(arguments["consent"])
        listed = f":\n{taken}" if taken else " (secrets, files, keys or money)."
        what.append(f"It gives the repository's profile what it asks for{listed}")
    if not what:
        return ""
    words = " ".join(["boxstrap", _command_name(name), *_shown(arguments)])
    return "\n".join([words, *what, "Do you agree?"])


def _subject(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the boxes that a call is about, or the price of one to rent; "" if unknown."""
    if name == "up" or arguments.get("up"):
        price = arguments.get("max_price")
        return f", at {price} dollars an hour at the most" if price else ""
    from bootstrap.errors import BoxstrapError
    from bootstrap.link.registry import boxes_to_show
    from bootstrap.repo.local import read_repository

    hosts = arguments.get("host") or ()
    named = [hosts] if isinstance(hosts, str) else [*hosts]
    if not named and not arguments.get("hosts"):
        with contextlib.suppress(BoxstrapError):
            place = Path(arguments.get("repo") or ".").expanduser()
            named = [box.name for box in boxes_to_show(read_repository(place).key)]
    return f": {', '.join(map(str, named))}" if named else ""


_consents: dict[str, str] = {}
"""The lists that commands printed, by digest: who agrees to a digest is shown its list."""


def note_consent(document: Mapping[str, Any]) -> None:
    """Keep the list that a document asks the user's consent for, if it does."""
    for part in (document.get("error", {}), document.get("consent", {})):
        if "digest" in part:
            rows = (f"  {each['key']}: {each['takes']}" for each in part["takes"])
            _consents[part["digest"]] = "\n".join(rows)


def _shown(arguments: Mapping[str, Any]) -> list[str]:
    found = []
    for key, value in arguments.items():
        flag = f"--{key.replace('_', '-')}"
        if key == "argv":
            found += ["--", *map(str, value)]
        elif value is True:
            found.append(flag)
        elif value not in (False, None):
            found += [f"{flag} {each}" for each in (value if isinstance(value, list) else [value])]
    return found


def _options(task: BoxTask) -> Sequence[Option]:
    return [option for option in task.options if option.name not in _NO_OPTIONS]


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
    return {"type": "string", "description": option.help}


async def run_command(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command of boxstrap; return its exit code, its output and its errors.

    A call that is cancelled interrupts it, as Ctrl-C does: what is on a box goes on.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bootstrap", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # without the terminal of whoever started the server
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)
        raise
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


def document_of(code: int, out: str, err: str) -> tuple[dict[str, Any], str]:
    """Return the document that a command printed last, and the text of its lines before."""
    lines, found = [], dict[str, Any]()
    for text in out.splitlines():
        line = json.loads(text)
        if "line" in line:
            lines.append(line["line"])
        else:
            found = line
    if not found:  # such as an option that the parser doesn't know
        error = {"error": "Usage", "what": err.strip(), "exit": code}
        found = {"v": 1, "exit": code, "error": error}
    return found, "\n".join(lines)


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
    return answer.action == "accept" and bool((answer.content or {}).get(_ASKS))


def _can_ask(context: _Context) -> bool:
    wanted = types.ClientCapabilities(elicitation=types.ElicitationCapability())
    return context.session.check_client_capability(wanted)


def _refusal(text: str, why: str) -> types.CallToolResult:
    command = text.partition("\n")[0]
    then = (
        "Ask the user. If they agree: call it again, and let them accept the question; or they run "
        f"it in their terminal: {command}"
    )
    error = {"error": "Usage", "what": f"{why}: nothing was done", "next": then, "exit": 2}
    return _result({"v": 1, "exit": 2, "error": error}, "")


def _result(document: dict[str, Any], log: str) -> types.CallToolResult:
    text = "\n".join(filter(None, [log, json.dumps(document)]))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=document,
        is_error=document["exit"] != 0,
    )


async def _call_tool(
    context: _Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    task, arguments = tasks().get(params.name), params.arguments or {}
    if task is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
    try:
        words = command_line(params.name, task, arguments)
    except ValueError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    if text := question(params.name, arguments):
        if not _can_ask(context):
            return _refusal(text, "a person must agree to this, and this client can't ask one")
        answer = await _agreed(context, params, text)
        if isinstance(answer, types.InputRequiredResult):
            return answer
        if not answer:
            return _refusal(text, "the user did not agree")
    document, log = document_of(*await run_command(words))
    note_consent(document)
    return _result(document, log)


async def _list_tools(
    _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[tool_of(name, task) for name, task in tasks().items()])


_KINDS = {"logs": ("text/plain", "the log"), "reports": ("text/html", "the report")}


async def _list_resources(
    _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    found = [
        types.Resource(
            name="skill",
            uri=f"{_SCHEME}skill",
            mime_type="text/markdown",
            description="How to use it.",
        )
    ]
    from bootstrap.link.record import name_of_key

    document, _log = document_of(*await run_command(["runs", "--all", "--json"]))
    for run in document.get("runs", [])[:_MOST_RUNS]:
        name = f"{name_of_key(run['repository'])}/{run['name']}"
        place = "/".join(quote(each, safe="") for each in (run["box"], name))
        found += [
            types.Resource(
                name=f"{kind} of {name} on {run['box']}",
                uri=f"{_SCHEME}{kind}/{place}",
                mime_type=mime,
                description=f"{what} of a run that was {run['state']} when it was seen last",
            )
            for kind, (mime, what) in _KINDS.items()
        ]
    return types.ListResourcesResult(resources=found)


async def _list_templates(
    _: _Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                name=kind,
                uri_template=f"{_SCHEME}{kind}/{{box}}/{{run}}",
                mime_type=mime,
                description=f"{what} of a run on a box",
            )
            for kind, (mime, what) in _KINDS.items()
        ]
    )


async def _read_resource(
    _: _Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    kind, *place = params.uri.removeprefix(_SCHEME).split("/")
    if params.uri == f"{_SCHEME}skill":
        return _resource(params.uri, "text/markdown", f"{skill_text()}\n{over_mcp()}")
    if kind not in _KINDS or len(place) != 2:
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri!r}")
    box, run = map(unquote, place)
    about = [f"--host={box}", f"--run={run}", "--json"]
    if kind == "logs":
        document, log = document_of(*await run_command(["logs", *about]))
        text = log[-_LONGEST_LOG:]
    else:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            document, log = document_of(*await run_command(["report", *about, f"--out={page}"]))
            text = page.read_text(encoding="utf-8") if page.is_file() else ""
    error = document.get("error")
    if error and not text:
        raise MCPError(types.INTERNAL_ERROR, f"{error['what']}\n{error.get('next', '')}".rstrip())
    return _resource(params.uri, _KINDS[kind][0], text)


def _resource(uri: str, mime: str, text: str) -> types.ReadResourceResult:
    content = types.TextResourceContents(uri=uri, mime_type=mime, text=text)
    return types.ReadResourceResult(contents=[content])


def make_server() -> Server[Any]:
    """Return the server, without a transport."""
    return Server(
        "boxstrap",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
    )


def serve() -> None:
    """Serve on standard input and output, until the client closes them."""

    async def run() -> None:
        server = make_server()
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(run())
