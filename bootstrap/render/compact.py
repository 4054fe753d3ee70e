"""The compact script: those parts of the full one's library, steps and checks that fit in a paste.

It adds only `templates/compact/main.sh`. What it leaves out: the steps and parts listed here, lines
that end in `# full`, and what nothing calls then (`reduce.py`).

The full script with its carrier, for doors that are wide enough.

Over SSH this machine passes the secrets to the script and starts it. Behind a door
the carrier, a few lines in front of the script, asks for the secrets and starts it.

Reduce the library for doors with a size limit: leave parts out, but rewrite none.

Lines that end in `# full` are removed first, then all shell functions that nothing calls any
more, then comments and indentation (`pack.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache

from bootstrap import __version__
from bootstrap.plan import Step, steps_for
from bootstrap.profile.schema import Profile
from bootstrap.render import uv_release
from bootstrap.render.doors import COMPACT, needs_full
from bootstrap.render.pack import bare_python, bare_shell
from bootstrap.render.parts import LIBRARY, box_files, functions, known_hosts, shell_part
from bootstrap.render.quote import Value, harmless
from bootstrap.render.script import Parts, assemble_script, render_script, render_text
from bootstrap.render.variables import Source, variables

TAKEN = (
    (
        "lib",
        "base",
        (
            *("have", "reset_shell", "expand_home", "read_text", "is_text"),
            *("write_file", "write_if_changed"),
        ),
    ),
    ("lib", "process", ("read_stat", "find_identity", "alive")),
    ("lib", "run_state", ("run_state", "in_state", "find_state")),
    ("lib", "git", ("box_git", "work_git", "with_token")),
    (
        "lib",
        "repository",
        ("find_repository", "is_rooted", "root_of", "has_folder", "is_taken", "placed_by_us"),
    ),
)
AT_BOOT = {"leave": "", "restart": "revive", "resume": "resume"}
"""What the script should do about a run that died with the box, by `train.at_boot`."""
MARKER = "END_OF_FULL_SCRIPT"


def render_carrier(
    profile: Profile,
    source: Source,
    *,
    leave: tuple[str, ...] = (),
    bare: bool = False,
) -> str:
    """Return a script that sets up the box it runs on.

    `leave`: steps to leave out. `bare`: without
    comments, docstrings and indentation, which are of no use in a packed script.
    """
    steps = carried_steps(profile, leave)
    mark = "door" if profile.secrets else ""
    values = variables(by_address(profile), source, steps, local=False, secrets_id=mark)
    script = render_script(profile.name, values, steps, bare=bare)
    at_boot = profile.train.at_boot if profile.train else "leave"
    own: list[tuple[str, Value]] = [
        ("WORKDIR", profile.box.workdir),
        ("REPO_KEY", source.key),
        ("REPO_ROOT", source.root),
        ("REPO_NAME", source.name),
        ("REPO_COMMIT", source.commit),
        ("REPO_URL", (source.url or "") if "repo" not in leave else ""),
        ("SECRETS", profile.secrets),
        ("WORDS", AT_BOOT[at_boot]),
        ("WAIT", False),
    ]
    parts = [
        shell_part("doors", "carrier"),
        shell_part("doors", "terminal"),
        shell_part("doors", "access"),
        *(functions(*taken) for taken in TAKEN),
    ]
    return render_text(
        "doors/carrier.sh.j2",
        {
            "version": __version__,
            "profile_name": harmless(profile.name),
            "variables": own,
            "parts": parts,
            "script": script,
            "marker": _marker(script),
        },
    )


def _marker(script: str) -> str:
    """Return an end marker that is not a line of the script."""
    marker, lines = MARKER, set(script.splitlines())
    while marker in lines:
        marker += "_"
    return marker


def by_address(profile: Profile) -> Profile:
    """Return the profile for a door: the box fetches the commit itself."""
    return profile.replace(git=profile.git.replace(access="url"))


def carried_steps(profile: Profile, leave: tuple[str, ...]) -> tuple[Step, ...]:
    """Return the steps of a profile, without those in `leave`."""
    train = profile.train is not None
    smoke = profile.gpu.require and profile.gpu.smoke != "none"
    steps = steps_for(
        local=False,
        train=train,
        smoke=smoke,
        data=bool(profile.data),
        prepare=bool(profile.prepare),
        lease=profile.lease is not None,
    )
    return tuple(step for step in steps if step.name not in leave)


_FULL = re.compile(r"^.* # full\n", re.MULTILINE)
_FUNCTION = re.compile(
    r"^(?P<name>[a-z_]+)\(\) (?:\{ .* \}|\{\n(?:.*\n)*?\}(?: 2>/dev/null)?)\n", re.MULTILINE
)
_ASSIGNED = re.compile(r"^(?:declare -A )?([A-Z_]+)=", re.MULTILINE)
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_CODE = re.compile(r"[$|;&]")
_WORD = re.compile(r"[A-Za-z_]+")


def without_full(text: str) -> str:
    """Remove the lines that only the full script has, in shell or Python."""
    return _FULL.sub("", text)


def reachable_shell(parts: Iterable[str], roots: Iterable[str]) -> list[str]:
    """Return the parts, bare, with only the functions that are reachable from `roots`."""
    # Find functions before removing indentation: they end with a `}` that is not indented.
    texts = [without_full(part) for part in parts]
    bodies = {
        found["name"]: bare_shell(found[0]) for part in texts for found in _FUNCTION.finditer(part)
    }
    kept, waiting = set[str](), [*roots]
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in kept:
            kept.add(name)
            waiting += _WORD.findall(_QUOTED.sub(_code, bodies[name]))
    words = {word for name in kept for word in _WORD.findall(bodies[name])}
    return [bare_shell(_kept_of(part, kept, words)) for part in texts]


def _code(quoted: re.Match[str]) -> str:
    """Keep quoted text only if it may contain code: words of a sentence are not calls."""
    return quoted[0] if _CODE.search(quoted[0]) else ""


def _kept_of(part: str, functions: set[str], words: set[str]) -> str:
    """Return a part with the kept functions, and the tables that they read."""
    names = [found["name"] for found in _FUNCTION.finditer(part)]
    between = _FUNCTION.split(part)[::2]
    texts = [found[0] for found in _FUNCTION.finditer(part)]
    tables = [text if words.intersection(_ASSIGNED.findall(text)) else "" for text in between]
    own = [text if name in functions else "" for name, text in zip(names, texts, strict=True)]
    return "".join(a + b for a, b in zip(tables, [*own, ""], strict=True))


def program(text: str) -> str:
    """Return a shell program of the box, bare, without functions that it doesn't call."""
    text = without_full(text)
    words = _WORD.findall(bare_shell(text))
    kept = _FUNCTION.sub(lambda found: found[0] if words.count(found["name"]) > 1 else "", text)
    return bare_shell(kept).rstrip("\n")


def without_unused(sources: Mapping[str, str]) -> dict[str, str]:
    """Remove definitions from Python modules that none of the modules uses any more."""
    trees = {name: ast.parse(without_full(text)) for name, text in sources.items()}
    while True:
        named = {
            name for tree in trees.values() for node in ast.walk(tree) for name in _named(node)
        }
        unused = [
            (tree, node)
            for tree in trees.values()
            for node in tree.body
            if (defined := _defined(node)) and not defined & named
        ]
        if not unused:
            return {name: ast.unparse(tree) for name, tree in trees.items()}
        for tree, node in unused:
            tree.body.remove(node)


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a module's statement defines; empty for other statements."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _named(node: ast.AST) -> list[str]:
    """Return the names that a node of a syntax tree reads."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    # Rows of a table are looked up in their module by name, a string.
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


LEFT_OUT_STEPS = ("smoke",)
"""Skipped steps. A profile that needs more is refused instead (`needs_full`)."""
LEFT_OUT_PARTS = ("main",)
"""Parts of the library that it leaves out: it has its own `main`."""

OWN_PARTS = (("compact", "main"), ("doors", "terminal"), ("doors", "access"))

PROGRAMS = ("verify.py", "gpu_reader.py", "fetch_uv.py", "pip_indexes.py")
SHELL_PROGRAMS = ("runner.sh",)
"""What it puts into `box/` on the box, together with the modules that these import."""

_IMPORTED = re.compile(r"^from \.(\w*) import (.*)$", re.MULTILINE)


def render_compact(profile: Profile, source: Source) -> str:
    """Return the compact script, without comments and indentation.

    Raises UsageError if the profile needs a feature that it lacks.
    """
    needs_full(profile, COMPACT)
    steps = carried_steps(profile, LEFT_OUT_STEPS)
    library = [*own_parts(), *library_parts()]
    step_parts = [shell_part("steps", step.name) for step in steps]
    roots = [f"{verb}_{step.name}" for verb in ("inputs", "check", "apply") for step in steps]
    parts = reachable_shell([*library, *step_parts], ["main", "unpack_programs", *roots])
    named = set(re.findall(r"[A-Z_]+", "".join(parts)))
    mark = "door" if profile.secrets else ""
    every = variables(by_address(profile), source, steps, local=False, secrets_id=mark)
    values = [(name, _own(name, value, source)) for name, value in every if name in named]
    carried = Parts(parts[: len(library)], parts[len(library) :], compact_files())
    return assemble_script(profile.name, values, carried, bare=True)


def own_parts() -> list[str]:
    """Return the parts that the full script over SSH doesn't have."""
    return [shell_part(folder, name) for folder, name in OWN_PARTS]


def library_parts() -> list[str]:
    """Return its parts of `templates/lib`, before they are reduced."""
    return [shell_part("lib", name) for name in LIBRARY if name not in LEFT_OUT_PARTS]


@cache
def compact_files() -> tuple[tuple[str, str], ...]:
    """Return name and text of the files that it puts into `box/` on the box."""
    own = dict(box_files())
    names, waiting = set[str](), [*PROGRAMS]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _imports(without_full(own[name]))
    python = without_unused({name: own[name] for name in sorted(names)})
    return (
        *((name, bare_python(text)) for name, text in python.items()),
        *((name, program(own[name])) for name in SHELL_PROGRAMS),
    )


def _imports(text: str) -> list[str]:
    """Return the files in the same folder that a program of the box imports."""
    found = []
    for module, names in _IMPORTED.findall(text):
        found += [f"{module}.py"] if module else [f"{name.strip()}.py" for name in names.split(",")]
    return found


def _own(name: str, value: Value, source: Source) -> Value:
    """Return a variable's value; only the keys and hashes it needs, since these don't compress."""
    if name == "EDITION":
        return "compact"
    if name == "UV_WHEELS":
        return [row for row in uv_release.release_rows() if row.startswith("Linux")]
    if name == "KNOWN_HOSTS":
        own = [line for line in known_hosts() if line.split()[0] in (source.url or "")]
        return [line for line in own if " ssh-ed25519 " in line] or own
    return value
