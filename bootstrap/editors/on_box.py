"""The box's side: what an editor's server finds there, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bootstrap.editors import jsonc
from bootstrap.editors.editors import Editor
from bootstrap.link.answers import rows
from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import build_query

_LARGEST = 1_000_000
"""Most bytes of settings that are read from a box."""
_PATHS = (
    ("python.defaultInterpreterPath",),
    ("terminal.integrated.env.linux", "PATH"),
    ("terminal.integrated.env.linux", "PROMPT_COMMAND"),
)


@dataclass(frozen=True)
class EditorState:
    """The box's answer to the query `editor`."""

    facts: Mapping[str, list[str]]
    settings: str = ""
    """The text of the settings; empty if there are none."""
    sum: str = ""
    """Checksum of the settings, to notice a change before they are written."""

    @property
    def has_python(self) -> bool:
        """Whether the interpreter exists and is executable."""
        return "python" in self.facts


@dataclass(frozen=True)
class EditorSettings:
    """The settings that make the editor use the environment."""

    values: Mapping[tuple[str, ...], str] = field(default_factory=dict)


def read_state(wire: Wire, editor: Editor, python: str) -> EditorState:
    """Query the box; nothing is changed."""
    script = build_query("editor", settings=editor.machine_settings, python=python)
    head, _, rest = exchange(wire, script, timeout=60).partition(b"settings\n")
    facts: dict[str, list[str]] = {}
    for name, value in rows(head):
        facts.setdefault(name, []).append(value[:500])
    text = rest[: _LARGEST + 1].decode("utf-8", errors="surrogateescape")
    return EditorState(facts, text, next(iter(facts.get("sum", ())), ""))


def wanted(venv: str, folder: str) -> EditorSettings:
    """Return the settings for an environment.

    An environment inside `folder` is named relative to the open workspace, so that several
    repositories can share a box.

    It is put first in a terminal's PATH. Some images' start-up files activate an environment of
    their own, so the first bash prompt activates this one again.
    """
    inside = venv.startswith(folder + "/")
    place = "${workspaceFolder}" + venv[len(folder) :] if inside else venv
    script = f"{place}/bin/activate"
    once = f'[ -n "$_BOXSTRAP" ] || {{ _BOXSTRAP=1; [ ! -f "{script}" ] || . "{script}"; }}'
    values = (f"{place}/bin/python", f"{place}/bin:${{env:PATH}}", once)
    return EditorSettings(dict(zip(_PATHS, values, strict=True)))


def merged(
    found: EditorState, want: EditorSettings, ours: Mapping[str, object]
) -> tuple[str, list[str]]:
    """Return the new text of the settings, and the names of settings that somebody else set.

    Those are kept. `ours` has the values written last, under their `name_of`: these may be
    replaced. Raises jsonc.JsoncError if the settings can't be parsed.
    """
    text, kept = found.settings, []
    before = jsonc.read(text)
    for path, value in want.values.items():
        now = jsonc.at(before, path)
        if now is None or now == ours.get(name_of(path)):
            text = text if now == value else jsonc.with_value(text, path, value)
        elif now != value:
            kept.append(".".join(path))
    return text, kept


def name_of(path: tuple[str, ...]) -> str:
    """Return the key under which a setting is kept in the box's record."""
    return "/".join(path)


def write(wire: Wire, editor: Editor, found: EditorState, text: str) -> bool:
    """Write the settings; False if they were changed in the meantime, or the disk is full."""
    data = text.encode("utf-8", errors="surrogateescape")
    script = build_query(
        "settings", settings=editor.machine_settings, bytes=len(data), sum=found.sum
    )
    return b"written" in exchange(wire, script, stdin=data, timeout=60)
