"""The skill that tells a coding agent how to use boxstrap: a shipped text, and tables of the code.

Agents look for it in folders of the user's home and of a repository: Claude Code and Cursor in
`.claude/skills`, Codex, Gemini CLI and Cursor in `.agents/skills`.
"""

from __future__ import annotations

from pathlib import Path

from bootstrap.errors import UsageError, write_error
from bootstrap.paths import leads_out, shipped, write_users_file
from bootstrap.providers import NAMES
from bootstrap.tasks.effects import EFFECTS, NEXT, NOT_OBEYED, VALUES
from bootstrap.tasks.options import flag_of

FOLDERS = (".claude/skills", ".agents/skills")
_FILE = "boxstrap/SKILL.md"


def skill_text() -> str:
    text = (shipped("templates") / "agents/SKILL.md").read_text(encoding="utf-8")
    only_read = ", ".join(f"`{name}`" for name, one in EFFECTS.items() if one.kind == "reads")
    parts = {"exits": _exits(), "costs": _costs(), "reads": f"Only read: {only_read}."}
    parts |= {"providers": ", ".join(NAMES), "values": _values(), "not_obeyed": NOT_OBEYED}
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def over_mcp() -> str:
    """Return what the skill lacks for one who calls the commands as tools of the MCP server."""
    return (shipped("templates") / "agents/over_mcp.md").read_text(encoding="utf-8")


def install_skill(repo: Path | None = None) -> list[Path]:
    """Write it where agents look, in a repository or the home. Raises BoxstrapError."""
    files = [(repo or Path.home()) / folder / _FILE for folder in FOLDERS]
    for file in files:
        if led := leads_out(file, repo):
            raise UsageError(
                f"a link leads out of the repository, to {led}: the skill is not written there.",
                where=str(file),
                hint="Remove the link; or for all repositories: boxstrap skill --install",
            )
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_users_file(file, skill_text(), root=repo)
        except OSError as error:
            raise write_error(file, error) from None
    return files


def _exits() -> str:
    rows = [f"| {code} | {what} | {then} |" for code, (what, then) in NEXT.items()]
    return "\n".join(["| exit | meaning | do this |", "|---|---|---|", *rows])


def _costs() -> str:
    kinds = {"money": "**costs money**", "destroys": "**destroys**", "changes": "changes"}
    return "\n".join(
        f"- `{name}` ({kinds.get(effect.kind, effect.kind)}): {effect.does}"
        for name, effect in EFFECTS.items()
        if effect.does
    )


def _values() -> str:
    here = ", ".join(f"`{name}`" for name, effect in EFFECTS.items() if effect.here)
    rows = [f"- `{flag_of(name)}`, where it {does}" for name, does in VALUES.items()]
    return "\n".join([*rows, f"- {here} on `local`: that is this machine"])
