"""schema, skill, mcp: for programs and agents that use boxstrap."""

import sys

from bootstrap.errors import UsageError
from bootstrap.paths import expanded, shipped
from bootstrap.tasks.command import JSON, Call, command
from bootstrap.tasks.effects import install_skill, skill_text
from bootstrap.tasks.options import Option


@command(
    Option(
        "command",
        "The command whose --json is meant, or profile; without one, the list. "
        "The word --command may be left out.",
        bare=True,
    ),
    JSON,
    changes=(),
)
def schema(call: Call) -> None:
    """Print the JSON Schema of what a command prints with --json, or of profiles.
    Example: boxstrap schema status"""
    import json

    from bootstrap.tasks.documents import DOCUMENTS, json_schema

    name, names = call.given["command"], [*DOCUMENTS, "profile"]
    if not name:
        call.screen.result({"schemas": names}, "\n".join(names))
        return
    if name not in names:
        raise UsageError(f"there is no schema {name!r}.", hint="See which: boxstrap schema")
    if name == "profile":
        found = json.loads((shipped("profiles") / "schema.json").read_text(encoding="utf-8"))
    else:
        found = json_schema(name)
    if call.is_json:
        call.screen.result({"schema": found})
    else:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")


@command(
    JSON,
    Option(
        "install", "Write it where Claude Code, Codex, Cursor, Gemini look: in the home.", False
    ),
    Option("repo", "With --install: in this repository instead."),
    changes=("install",),
)
def skill(call: Call) -> None:
    """Print the skill that tells a coding agent how to use boxstrap; or install it.
    Example: boxstrap skill --install"""
    given = call.given
    if given["repo"] and not given["install"]:
        raise UsageError("--repo says where the skill is installed: add --install.")
    if given["install"]:
        repo = expanded(given["repo"]) if given["repo"] else None
        if repo and not repo.is_dir():
            raise UsageError("there is no such folder.", where=str(repo))
        files = [str(file) for file in install_skill(repo)]
        call.screen.result({"written": files}, "\n".join(f"written: {file}" for file in files))
    elif call.is_json:
        call.screen.result({"text": skill_text().splitlines()})
    else:
        sys.stdout.write(skill_text())


@command(
    Option(
        "write",
        "A folder below which tools may write new files: reports, pictures, results; without it "
        "they write none but a pull's, in the repository.",
    ),
    changes=(),
)
def mcp(call: Call) -> None:
    """Serve the commands as tools of an MCP server, on standard input and output.

    Your agent starts it itself, once it knows it: `claude mcp add boxstrap -- boxstrap mcp`.
    Example: boxstrap mcp"""
    try:
        from bootstrap.tasks.mcp_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError(
            "the MCP server needs the `mcp` library.", hint="pip install 'boxstrap[mcp]'"
        ) from None
    into = expanded(call.given["write"]).resolve() if call.given["write"] else None
    if into and not into.is_dir():
        raise UsageError("--write: there is no such folder.", where=str(into))
    serve(into)
