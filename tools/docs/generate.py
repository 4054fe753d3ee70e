"""Write the generated parts of docs/ from the code: python -m tools.docs.generate   (make docs)

A part is between `<!-- begin: NAME -->` and `<!-- end -->`; everything else is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from bootstrap.onbox.verdict.check import Check
from bootstrap.onbox.verdict.judge import BOX_CHECKS, OF_GPUS
from bootstrap.profile import PROFILE
from bootstrap.profile.values import EXPECTED, REQUIRED, Field
from bootstrap.setup.door_table import DOORS
from bootstrap.steps.event_codes import CODES
from bootstrap.steps.plan import STEPS
from bootstrap.tasks import find
from bootstrap.tasks.options import Option
from tools.docs import json_reference, profile_schema

ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(r"<!-- begin: ([a-z-]+)(?: ([a-z-]+))? -->\n(.*?)<!-- end -->", re.DOTALL)
_WORD = re.compile(r"\{([a-z]+)\}")


def documents() -> list[Path]:
    """Every document of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(text: str) -> str:
    """Return `text` with its generated parts made again from the code."""

    def part(found: re.Match[str]) -> str:
        name, about, _ = found.groups()
        title = f"{name} {about}" if about else name
        return f"<!-- begin: {title} -->\n{PARTS[name](about or '')}\n<!-- end -->"

    return PART.sub(part, text)


def _table(*head: str, rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def profile_keys(_: str) -> str:
    """Every key that a profile may have."""
    rows = (
        (f"`{key}`", _expected(field), _default(field), field.description)
        for key, field in PROFILE.leaves()
    )
    return _table("key", "value", "default", "what it says", rows=rows)


def _expected(field: Field) -> str:
    if field.choices:
        return " or ".join(f"`{choice}`" for choice in field.choices)
    if field.rule:
        return field.rule.expected
    if field.kind == "list" and field.item and field.item.rule:
        return f"list; each {field.item.rule.expected}"
    return EXPECTED[field.kind].replace("names and values", "variables")


def _default(field: Field) -> str:
    value = field.default
    if value is REQUIRED:
        return "must be given"
    if value is None or isinstance(value, type):
        return "-"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def options(task: str) -> str:
    """The options of a task."""
    return _table("option", "meaning", rows=(_option(option) for option in find(task).options))


def _option(option: Option) -> tuple[str, ...]:
    flag, *shorts = option.flags
    number = " N" if isinstance(option.default, int) else " …"
    value = "" if option.default is False else number
    return ", ".join([f"`{flag}{value}`", *(f"`{short}`" for short in shorts)]), option.help


def codes(_: str) -> str:
    """The codes that a box may report about a step, and what to do."""

    def readable(text: str) -> str:
        return _WORD.sub(lambda found: f"*{found[1]}*", text)

    rows = ((f"`{name}`", readable(c.what), readable(c.hint)) for name, c in CODES.items())
    return _table("code", "what happened", "what to do", rows=rows)


def steps(_: str) -> str:
    """The steps of a setup."""
    rows = (
        (f"`{s.name}`", ", ".join(s.needs) or "-", s.does, "yes" if s.on_local else "no")
        for s in STEPS
    )
    return _table("step", "needs", "what it brings", "on `local`", rows=rows)


def checks(_: str) -> str:
    """The checks of a verdict, the most important first."""
    rows: list[tuple[str, ...]] = [
        ("`gpu`", "GPUs can be read at all; each reason why not has its own sentence.", "return"),
        ("`answers`", "The GPU answers: neither lost nor waiting for a reset.", "return"),
        *((f"`{each.name}`", _wants(each), _means(each)) for each in (*OF_GPUS, *BOX_CHECKS)),
    ]
    return _table("check", "what it wants", "what it can say", rows=iter(rows))


def _wants(check: Check) -> str:
    return (check.judge.__doc__ or "").split("\n")[0]


def _means(check: Check) -> str:
    """The outcomes named in the judge's own code, the worst first."""
    words = set(check.judge.__code__.co_names)
    if "at_least" in words:
        words.add("RETURN")
    found = [word.lower() for word in ("RETURN", "WARN") if word in words]
    return ", ".join([*found, *(["n/a during a run"] if check.idle else [])]) or "a note only"


INSIDE = 128 * 1024
"""Bytes; a script with its program in it has more, packed."""


def doors(_: str) -> str:
    """The doors, their limits and how to use them."""
    rows = (
        (
            f"`{door.name}`",
            f"{door.limit:,} bytes: {door.source}" if door.limit else door.source or "none known",
            "fetched" if door.limit and door.limit < INSIDE else "inside",
            "at every start" if door.every_boot else "once",
            door.use,
        )
        for door in DOORS.values()
    )
    return _table("`--for`", "limit", "program", "runs", "how to use it", rows=rows)


def of_json(_: str) -> str:
    """The keys of each document of `--json`."""
    return json_reference.sections()


PARTS: dict[str, Callable[[str], str]] = {
    "profile-keys": profile_keys,
    "options": options,
    "codes": codes,
    "steps": steps,
    "checks": checks,
    "doors": doors,
    "documents": of_json,
}


def main() -> None:
    """Write the documents that changed, and the JSON Schema of profiles."""
    files = {path: renewed(path.read_text(encoding="utf-8")) for path in documents()}
    files[ROOT / "profiles/schema.json"] = profile_schema.text()
    for path, new in files.items():
        if new != path.read_text(encoding="utf-8"):
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
