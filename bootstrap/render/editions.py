"""The editions of the script for doors, of which the narrowest take a shorter one.

Full: with its carrier, for doors that are wide enough. Over SSH this machine passes the secrets to
the script and starts it. Behind a door the carrier, a few lines in front of the script, asks for
the secrets and starts it.

Compact: those parts of the full one's library, steps and checks that fit in a paste. It adds only
`templates/compact/main.sh`; parts are left out, but none is rewritten. Lines that end in `# full`
are removed first, then all functions that nothing calls any more, then comments and indentation
(`bootstrap/shell.py`).

Minimal: as much of a setup as fits into the narrowest door, 4,048 characters. It uses the same
paths as `status`, `logs` and `stop`, and lists what it leaves out. shellcheck reads the same
template, rendered with `for_lint`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache

from bootstrap import __version__, uv_release
from bootstrap.errors import UsageError
from bootstrap.onbox.verdict import thresholds
from bootstrap.onbox.verdict.gpu_models import least_gib, ordered_gib, read_name
from bootstrap.plan import Step, steps_for
from bootstrap.profile.load import public_keys
from bootstrap.profile.schema import Profile
from bootstrap.render.door_table import COMPACT, MINIMAL, needs_full
from bootstrap.render.script import (
    Parts,
    Source,
    assemble_script,
    python_id,
    render_script,
    render_text,
    requirement_words,
    variables,
)
from bootstrap.shell import (
    LIBRARY,
    Value,
    bare_python,
    bare_shell,
    box_files,
    functions,
    harmless,
    known_hosts,
    own_imports,
    quote,
    shell_part,
)

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
        ("TRAINS", profile.train is not None),
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
    return tuple(step for step in steps_for(profile, local=False) if step.name not in leave)


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

_STARTED = ("verdict/verify", "verdict/gpu_reader", "python/fetch_uv", "pip_indexes")
PROGRAMS = tuple(f"onbox/{name}.py" for name in ("__init__", "__main__", *_STARTED))
SHELL_PROGRAMS = ("runner.sh",)
"""What it puts into `box/` on the box, together with the modules that these import."""


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
            waiting += own_imports(name, without_full(own[name]))
    python = without_unused({name: own[name] for name in sorted(names)})
    return (
        *((name, bare_python(text)) for name, text in python.items()),
        *((name, program(own[name])) for name in SHELL_PROGRAMS),
    )


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


TEMPLATE = "minimal.sh.j2"


def render_minimal(profile: Profile, source: Source, *, for_lint: bool = False) -> str:
    """Return the minimal script. `for_lint` keeps the lines that only a linter needs.

    Raises UsageError if the profile needs a feature that it lacks.
    """
    python, train = profile.python, profile.train
    if python.installer == "pip":
        raise UsageError(
            "the minimal script builds with uv alone.", where="python.installer", hint=_LONGER
        )
    needs_full(profile, MINIMAL)
    if profile.prepare:
        raise UsageError(
            "the minimal script runs nothing before the training.", where="prepare", hint=_LONGER
        )
    variables: list[tuple[str, Value]] = [
        ("W", profile.box.workdir),
        ("K", source.key),
        ("N", source.name),
        ("Q", source.root[:16] or "none"),
        ("U", source.url or ""),
        ("C", source.commit),
        ("V", python.venv),
        ("E", "".join(f"export {name}={quote(value)}\n" for name, value in profile.env.items())),
    ]
    if train:
        variables += [("T", train.command), ("s", train.session)]
    return render_text(
        TEMPLATE,
        {
            "for_lint": for_lint,
            "version": __version__,
            "profile_name": harmless(profile.name),
            "variables": variables,
            "secrets": profile.secrets,
            "packages": " ".join(profile.packages),
            "keys": [" ".join(key.split()[:2]) for key in public_keys(profile)],
            "order": _order(profile),
            "name": profile.gpu.name,
            "memory": profile.gpu.min_memory_gib or ordered_gib(profile.gpu.name),
            "branch": source.branch or "",
            "user_name": profile.git.user.name or source.user_name or "",
            "user_email": profile.git.user.email or source.user_email or "",
            "used": round(thresholds.GPU["used_gib"] + _RESERVED_GIB),
            "uv": _uv(),
            "torch": python.torch_backend if python.torch_backend != "none" else "",
            "python": python.version or "",
            "python_id": python_id(python),
            "install": _install(profile),
            "env": " ".join(map(quote, [*(profile.env or [""]), *(profile.env.values() or [""])])),
            "command": _command(train.command if train else ""),
            "train": train is not None,
            "restart": "yes" if train and train.at_boot == "restart" else "",
        },
    )


def _command(command: str) -> str:
    """Return the command of a run, with the environment's `python` (as `absolute_command`)."""
    program, _, rest = command.partition(" ")
    own = rest and program in ("python", "python3")
    return f'"$V/bin/python "{quote(rest)}' if own else '"$T"'


_RESERVED_GIB = 1.0
"""Memory reserved by the driver: the older NVML call in this script counts it as used."""
_LONGER = "Leave --small out, or: boxstrap oneliner --url https://…"


def _order(profile: Profile) -> str:
    """Return the check's input: exit code, minimum GPU count, models as words that the driver's
    name of the card has, minimum memory in GiB."""
    gpu = profile.gpu
    least = round(least_gib(gpu.min_memory_gib or ordered_gib(gpu.name) or 0, ecc=True), 2)
    count = gpu.count or (1 if gpu.require else 0)
    models = ",".join(" ".join(sorted(read_name(name).words)[::-1]) for name in gpu.names)
    return repr([6 if gpu.require else 0, count, models, least])


def _uv() -> str:
    hashes = [row[1] for name, row in uv_release.WHEELS.items() if name.startswith("Linux")]
    return " ".join([f"uv=={uv_release.VERSION}", *(f"--hash=sha256:{sha}" for sha in hashes)])


def _install(profile: Profile) -> str:
    """Return the lines that install packages, in the order of `templates/lib/sources.sh`."""
    python = profile.python
    words = {name: "".join(map(_word, each)) for name, each in requirement_words(python).items()}
    extras = "".join(f" --extra {quote(extra)}" for extra in python.extras)
    install, beside = '"$u" pip install -qp "$V/bin/python"', words["ADDED_ARGUMENTS"]
    sync = f'"$u" sync -q --frozen --inexact{words["LOCK_OPTIONS"]}'
    late = f"\n{install}{words['ADDED_TO_LOCK']}" if words["ADDED_TO_LOCK"] else ""
    lines = [f"export UV_INDEX={quote(' '.join(python.index))}"] if python.index else []
    if python.no_build_isolation:
        lines += [f'printf "%s;python_version<\'0\'\n"{words["NAMES_OF_LAST"]} >"$B/last"']
        beside += ' --override "$B/last"'
    if python.lock:
        folder = python.lock.rpartition("/")[0] or "."
        lines.append(f"{sync} --project {quote(folder)}{extras}{late}")
    elif python.requirements is not None:
        files = "".join(f" -r {quote(file)}" for file in python.requirements)
        lines.append(f"{install}{files}{beside}" if files or words["ADDED_ARGUMENTS"] else ":")
    else:
        lines += [
            f"if [ -f uv.lock ];then {sync}{extras}{late}",
            f"elif [ -f requirements.txt ];then {install} -r requirements.txt{beside}",
            f"elif [ -f pyproject.toml ];then {install} -r pyproject.toml{extras}{beside}",
            *([f"else {install}{beside}"] if words["ADDED_ARGUMENTS"] else []),
            "fi",
        ]
    return "\n".join(
        [*lines, *([f"{install}{words['BUILT_LAST']}"] if words["BUILT_LAST"] else [])]
    )


def _word(text: str) -> str:
    return f" {quote(text)}"
