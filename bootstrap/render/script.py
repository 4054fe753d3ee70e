"""Assemble the script with Jinja: variables, library, steps and the box's files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bootstrap import __version__
from bootstrap.paths import cache_dir, shipped, write_private
from bootstrap.plan import Step
from bootstrap.shell import (
    LIBRARY,
    STEPS_LIBRARY,
    Value,
    bare_python,
    bare_shell,
    box_files,
    harmless,
    quote,
    shell_part,
    step_of,
)

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "setup.sh.j2"
MARKER = "END_OF_BOX_FILES"
OVER_SSH = ("client", "dependencies", "projects")
"""Parts that a narrow door leaves out, with the lines that end in `# ssh # full`: nobody sends
anything through it, its commit is fixed, and so is what the environment is made from."""
_OVER_SSH = re.compile(r"^.* # ssh # full\n", re.MULTILINE)
KEPT = 20
"""Number of scripts to keep in the cache."""


class Parts(NamedTuple):
    """What follows a script's variables: shell code, and name and text of the box's files."""

    library: Sequence[str]
    steps: Sequence[str]
    files: Sequence[tuple[str, str]]


class _Bare(str):
    """Text that a template writes unquoted, through the filter `bare`."""

    __slots__ = ()


def assemble_script(
    profile_name: str,
    variables: Sequence[tuple[str, Value]],
    parts: Parts,
    *,
    bare: bool = False,
) -> str:
    """Return one bash script that sets a box up; the same input gives the same script.

    `bare`: without the template's own comments.

    The last scripts are cached under a hash of all their input, so that a second
    setup needn't import Jinja, which takes longer than anything else here.
    """
    values = {
        "version": __version__,
        "profile_name": harmless(profile_name),
        "variables": variables,
        **parts._asdict(),
        "marker": MARKER[:1] if bare else MARKER,
    }
    return render_text(TEMPLATE, values, bare=bare)


def render_script(
    profile_name: str,
    variables: Sequence[tuple[str, Value]],
    steps: Sequence[Step],
    *,
    bare: bool = False,
) -> str:
    """Return the full script: all of the library, readable.

    `bare`: without comments and indentation, for a door with a limit.
    """
    left_out = OVER_SSH if bare else ()
    library = [shell_part("lib", name) for name in LIBRARY if name not in STEPS_LIBRARY]
    beside = [
        shell_part("lib", name)
        for name in LIBRARY
        if name in STEPS_LIBRARY and name not in left_out
    ]
    names = [step.name for step in steps]
    if "repo" in names and "train" not in names:
        names.append("train")  # for a run that is started by its command (`run -- COMMAND`)
    parts = [*beside, *(shell_part("steps", name) for name in names)]
    files = bare_box_files() if bare else box_files()
    needed = {"", *names, *(name for name, value in variables if value)}
    files = tuple(file for file in files if step_of(file[0]) in needed)
    if bare:  # a quarter less, packed
        parts = [_OVER_SSH.sub("", text) for text in parts]
        library, parts = (list(map(bare_shell, texts)) for texts in (library, parts))
        # What programs of the box contain too stands right before them: gzip looks 32 KiB back.
        twice = [text for text in library if any(text.rstrip() in own for _, own in files)]
        parts += [*(text for text in library if text not in twice), *twice]
        library = []
    return assemble_script(profile_name, variables, Parts(library, parts, files))


@cache
def bare_box_files() -> tuple[tuple[str, str], ...]:
    """Return the files of `box/` without comments and docstrings: a third smaller when packed."""
    return tuple(
        (name, bare_python(text) if name.endswith(".py") else bare_shell(text).rstrip("\n"))
        for name, text in box_files()
    )


def render_text(name: str, values: Mapping[str, object], *, bare: bool = False) -> str:
    """Render the template `name` with `values`; from the cache if it was rendered before.

    `bare`: without the template's own comments and indentation.
    """
    template = (shipped("templates") / name).read_text(encoding="utf-8")
    if bare:
        template = bare_shell(template)
    key = hashlib.sha256(json.dumps([template, values]).encode()).hexdigest()
    kept = cache_dir() / "scripts" / f"{key}.sh"
    # Read bytes: reading as text would change carriage returns.
    with contextlib.suppress(OSError):
        digest, _, script = kept.read_bytes().partition(b"\n")
        if digest == _digest(key, script):
            return script.decode()
    made: str = _environment().from_string(template).render(values)
    _keep(kept, _digest(key, made.encode()) + b"\n" + made.encode())
    return made


def _digest(key: str, script: bytes) -> bytes:
    """Checksum of a cached script: a power cut or a full disk can leave a corrupt file."""
    return hashlib.sha256(key.encode() + script).hexdigest().encode()


def _keep(file: Path, content: bytes) -> None:
    """Cache a script, readable only by this user; ignore a cache that can't be written."""
    with contextlib.suppress(OSError):
        write_private(file, content)
        # Includes temporary files that a kill left half-written.
        kept = sorted(file.parent.glob("*.*"), key=lambda other: other.stat().st_mtime)
        for old in kept[:-KEPT]:
            old.unlink()


def script_id(script: str) -> str:
    """Return the script's id: the SHA-256 of its bytes."""
    return hashlib.sha256(script.encode()).hexdigest()


def _environment() -> jinja2.Environment:
    import jinja2

    # The default delimiters occur in bash (`${#array[@]}`).
    environment = jinja2.Environment(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<%=",
        variable_end_string="%>",
        comment_start_string="<%#",
        comment_end_string="%>",
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, _Bare) else quote(value),
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - shell, not HTML: `finalize` quotes every value
    )
    environment.filters["bare"] = _Bare
    environment.filters["json"] = lambda value: _Bare(json.dumps(value))
    return environment
