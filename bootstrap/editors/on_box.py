"""The box's side: what an editor's server finds there, and the settings that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bootstrap.editors import jsonc
from bootstrap.editors.editors import Editor
from bootstrap.link.exchange import exchange
from bootstrap.link.parsing import rows
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import build_query

_LARGEST = 1_000_000
"""Bytes of settings; a box that sends more is not believed."""
_PATHS = (
    ("python.defaultInterpreterPath",),
    ("terminal.integrated.env.linux", "PATH"),
    ("terminal.integrated.env.linux", "PROMPT_COMMAND"),
)


@dataclass(frozen=True)
class EditorState:
    """What the box said."""

    facts: Mapping[str, list[str]]
    settings: str = ""
    """The settings' text; empty where there are none."""
    sum: str = ""
    """Their checksum, by which a change in between is noticed."""

    @property
    def has_python(self) -> bool:
        """Whether the interpreter is there and runs."""
        return "python" in self.facts


@dataclass(frozen=True)
class EditorSettings:
    """The settings that make the environment the editor's own."""

    values: Mapping[tuple[str, ...], str] = field(default_factory=dict)


def read_state(wire: Wire, editor: Editor, python: str) -> EditorState:
    """Ask the box. Nothing is changed."""
    script = build_query("editor", settings=editor.machine_settings, python=python)
    head, _, rest = exchange(wire, script, timeout=60).partition(b"settings\n")
    facts: dict[str, list[str]] = {}
    for name, value in rows(head):
        facts.setdefault(name, []).append(value[:500])
    text = rest[: _LARGEST + 1].decode("utf-8", errors="surrogateescape")
    return EditorState(facts, text, next(iter(facts.get("sum", ())), ""))


def wanted(venv: str, folder: str) -> EditorSettings:
    """The settings for an environment.

    One inside the folder is named relative to the folder that is open, so that several
    repositories share a box.

    A terminal's PATH begins with it; and since some images' start-up files activate one of their
    own, the first prompt of bash activates it once more.
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
    """The settings' new text, and the names of settings that stay as somebody else set them.

    `ours` is what was written last, by `name_of`: such a value may be replaced. Raises
    jsonc.JsoncError where the settings can't be read.
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
    """How a setting is remembered."""
    return "/".join(path)


def write(wire: Wire, editor: Editor, found: EditorState, text: str) -> bool:
    """Write the settings; False where somebody changed them meanwhile, or there is no room."""
    data = text.encode("utf-8", errors="surrogateescape")
    script = build_query(
        "settings", settings=editor.machine_settings, bytes=len(data), sum=found.sum
    )
    return b"written" in exchange(wire, script, stdin=data, timeout=60)
