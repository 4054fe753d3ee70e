"""`mcp`: the SDK's own client against the real server, over standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from bootstrap.tasks.documents import json_schema
from bootstrap.tasks.mcp_server import command_line, note_consent, question, tasks, tool_of
from bootstrap.tasks.skill import over_mcp, skill_text
from tests.cli import User
from tests.documents import closed
from tests.plain_environment import HERE

MODES = ["legacy", "auto"]
CALLS = 30
LOCAL = "version: 1\nextends: local\nbox: {workdir: ~/box}\ntrain: {command: echo hello}\n"


def talk(
    user: User,
    do: Callable[[Client], Awaitable[Any]],
    *,
    mode: str = "auto",
    answer: Callable[[str], str] | None = None,
) -> Any:
    """Return what `do` returns with a client; `answer` is what its user does with a question."""

    async def asked(_: Any, params: Any) -> types.ElicitResult:
        assert answer is not None
        action = answer(params.message)
        content = {"agree": True} if action == "accept" else None
        return types.ElicitResult(action=action, content=content)

    async def run() -> Any:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "bootstrap", "mcp"],
            env={**user.env, "PYTHONPATH": str(HERE)},
            cwd=user.place,
        )
        callback = asked if answer else None
        async with Client(stdio_client(server), mode=mode, elicitation_callback=callback) as client:
            return await do(client)

    return asyncio.run(asyncio.wait_for(run(), 120))


def document(result: types.CallToolResult) -> Mapping[str, Any]:
    found = result.structured_content
    assert isinstance(found, dict)
    assert json.loads(result.content[-1].text.splitlines()[-1]) == found
    assert result.is_error == (found["exit"] != 0)
    return found


def test_tools_are_the_commands_with_their_schemas_and_hints() -> None:
    tools = {name: tool_of(name, task) for name, task in tasks().items()}
    assert {"setup", "up", "down", "wait", "exec", "ssh_config"} <= set(tools)
    assert not {"attach", "shell", "tunnel", "mcp"} & set(tools)
    for name, tool in tools.items():
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.output_schema == json_schema(name.replace("_", "-"), lines=False)
        assert "json" not in tool.input_schema["properties"]
        given = dict.fromkeys(tool.input_schema["properties"], True)
        assert tool.annotations
        if tool.annotations.read_only_hint:
            assert not question(name, {**given, "consent": ""}), name
    reads = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert {"status", "logs", "wait", "plan", "estimate"} <= reads
    assert not {"up", "down", "setup", "stop", "run", "boxes", "secrets"} & reads
    assert tools["down"].annotations.destructive_hint


@pytest.mark.parametrize(
    ("name", "arguments", "is_asked"),
    [
        ("up", {"max_price": "0.6"}, True),
        ("up", {"dry_run": True}, False),
        ("run", {"argv": ["true"]}, False),
        ("run", {"up": True}, True),
        ("setup", {"host": "gpu"}, False),
        ("setup", {"consent": "ab12"}, True),
        ("down", {}, True),
        ("lease", {}, False),
        ("lease", {"extend": "2h"}, True),
        ("stop", {"host": "gpu"}, True),
        ("boxes", {"all": True}, False),
        ("boxes", {"forget": "gpu"}, True),
    ],
)
def test_what_costs_money_or_destroys_is_asked(
    name: str, arguments: dict[str, Any], is_asked: bool
) -> None:
    assert bool(question(name, arguments)) == is_asked


def test_who_agrees_to_a_digest_is_shown_its_list_and_what_the_command_does() -> None:
    up = {"max_price": "0.6", "consent": "0a1b"}
    blind = question("up", up)
    assert blind.splitlines()[1].startswith("This rents a box")
    assert "asks for (secrets, files, keys or money)." in blind
    takes = [{"key": "secrets", "takes": "TOKEN"}, {"key": "provider.account", "takes": "vast"}]
    for document in ({"error": {"digest": "0a1b", "takes": takes}}, {"consent": {}}, {}):
        note_consent(document)
    assert question("up", up).endswith(
        "what it asks for:\n  secrets: TOKEN\n  provider.account: vast\nDo you agree?"
    )
    assert "This" not in question("setup", {"consent": "0a1b"})
    assert "down` or its lease ends it, at 0.6 dollars an hour at the most." in question("up", up)
    assert "what it has: gpu, cpu.\n" in question("down", {"host": ["gpu", "cpu"]})
    rents = question("run", {"up": True, "max_price": "0.6", "argv": ["python"]})
    assert rents.splitlines()[1].endswith("at 0.6 dollars an hour at the most.")


def test_arguments_become_the_command_line() -> None:
    found = tasks()
    words = command_line(
        "setup", found["setup"], {"host": ["a b"], "set": ["x=1", "y=2"], "wait": 5}
    )
    assert words == ["setup", "--json", "--host=a b", "--set=x=1", "--set=y=2", "--wait=5"]
    words = command_line("exec", found["exec"], {"argv": ["ls", "--all"], "host": "-x"})
    assert words == ["exec", "--json", "--host=-x", "--", "ls", "--all"]
    assert command_line("up", found["up"], {"dry_run": False}) == ["up", "--json"]
    with pytest.raises(ValueError, match="has no 'colour'"):
        command_line("up", found["up"], {"colour": "red"})


@pytest.mark.slow
def test_a_client_lists_calls_and_reads(user: User) -> None:
    user.repository(boxstrap__yaml=LOCAL)
    user.run("setup", "--host", "local").must(0)

    async def do(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == set(tasks())
        status = document(await client.call_tool("status", {"host": ["local"]}))
        Draft202012Validator(closed(json_schema("status", lines=False))).validate(status)
        assert status["runs"][0]["name"] == "train-1"
        done = await client.call_tool("wait", {"host": ["local"]})
        assert document(done)["runs"][0]["rc"] == 0
        logs = await client.call_tool("logs", {"host": ["local"]})
        assert logs.content[0].text.splitlines()[0] == "hello"
        wrong = document(await client.call_tool("status", {"host": ["nowhere.invalid"]}))
        assert wrong["exit"] == 3
        assert "nowhere.invalid" in wrong["error"]["where"] + wrong["error"]["what"]
        listed = {str(one.uri) for one in (await client.list_resources()).resources}
        log = "boxstrap://logs/local/homework%2Ftrain-1"
        assert {"boxstrap://skill", log} <= listed
        skill = (await client.read_resource("boxstrap://skill")).contents[0].text
        assert skill == f"{skill_text()}\n{over_mcp()}"
        assert (await client.read_resource(log)).contents[0].text == "hello"
        report = await client.read_resource(log.replace("logs", "reports"))
        assert report.contents[0].text.startswith("<!DOCTYPE html>")
        assert len((await client.list_resource_templates()).resource_templates) == 2

    talk(user, do)


@pytest.mark.parametrize("mode", MODES)
def test_a_person_is_asked_and_no_is_no(user: User, mode: str) -> None:
    user.repository()
    questions: list[str] = []

    def answers(action: str) -> Callable[[str], str]:
        return lambda text: questions.append(text) or action

    async def up(client: Client) -> Mapping[str, Any]:
        return document(await client.call_tool("up", {"max_price": "0.60", "provider": "vast"}))

    for action in ("decline", "cancel"):
        error = talk(user, up, mode=mode, answer=answers(action))["error"]
        assert error["what"] == "the user did not agree: nothing was done"
    assert questions[0].startswith("boxstrap up --max-price 0.60 --provider vast\nThis rents a box")
    agreed = talk(user, up, mode=mode, answer=answers("accept"))["error"]
    assert "no ssh key" in agreed["what"] or "VAST_API_KEY" in f"{agreed['what']}{agreed['next']}"
    alone = talk(user, up, mode=mode)["error"]
    assert "this client can't ask one" in alone["what"]
    assert "boxstrap up --max-price 0.60" in alone["next"]


@pytest.mark.slow
def test_thirty_calls_at_once(user: User) -> None:
    user.repository(boxstrap__yaml=LOCAL)

    async def do(client: Client) -> list[Any]:
        calls = [
            client.call_tool("boxes", {})
            if at % 2
            else client.call_tool("profiles", {"show": f"nobody-{at}"})
            for at in range(CALLS)
        ]
        return await asyncio.gather(*calls)

    for at, result in enumerate(talk(user, do)):
        found = document(result)
        if at % 2:
            assert found["boxes"] == []
        else:
            assert f"nobody-{at}" in json.dumps(found["error"])


def test_without_the_library_one_line_says_how_to_get_it(user: User) -> None:
    (user.home / "lib").mkdir()
    (user.home / "lib/mcp_types.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'mcp_types'\", name='mcp_types')\n"
    )
    done = user.run("mcp", PYTHONPATH=f"{user.home / 'lib'}:{HERE}").must(2)
    assert done.err == "the MCP server needs the `mcp` library.\npip install 'boxstrap[mcp]'\n"
