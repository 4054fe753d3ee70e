"""Write a first `boxstrap.yaml` from the facts of a repository. Nothing in it is run."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from bootstrap.profile.survey.environment import Environment, Reasoned
from bootstrap.profile.survey.facts import GUESSED, Facts
from bootstrap.providers import NAMES

# What wheels need of the box's system.
_OF_SYSTEM = {
    "opencv-python": ("libgl1", "libglib2.0-0"),
    "opencv-contrib-python": ("libgl1", "libglib2.0-0"),
    "pydub": ("ffmpeg",),
    "ffmpeg-python": ("ffmpeg",),
    "torchcodec": ("ffmpeg",),
    "openai-whisper": ("ffmpeg",),
    "graphviz": ("graphviz",),
    "box2d-py": ("swig",),
}
# Words that need no quotes: YAML can't read them as a number, a date or a boolean.
_SURELY_TEXT = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z][A-Za-z0-9_./-]*", re.I
)
_LONGEST_LIST = 70  # characters of a list on one line
_GPU = [
    "# What you ordered. A box that has less is one to return, and costs you seconds.",
    "# gpu:",
    "#   count: 1",
    "#   name: A100",
    "#   min_memory_gib: 40",
]
_MOST_UNBOUNDED = 12
_MOST_CANDIDATES = 5
_LONGEST_NOTE = 400  # characters


def write_profile(facts: Facts) -> str:
    """Return the text of a profile with comments; it can be loaded as it is."""
    lines = [f"  {name}: {_quoted(each.value)}{_why(each.why)}" for name, each in facts.env]
    url = f" ({_plain(facts.url)})" if facts.url else ""
    parts = (
        [
            f"# What a rented box should become to train {_plain(facts.name)}.",
            "# Every key is explained by: boxstrap profiles --show vast",
            "version: 1",
            "",
            f"# Where you rent: {', '.join(NAMES)}, or ssh for any other host.",
            "# Left out, the box itself says what it is.",
            "# extends: vast",
        ],
        [
            f"# The repository of this folder{url} goes over at the commit",
            "# you stand on. To have another one, or to let the box clone it by itself:",
            "# git:",
            "#   url: https://github.com/me/homework.git",
            "#   ref: main",
            "#   access: url",
        ],
        _python(facts.environment, facts.last_commit),
        _packages(facts),
        _GPU,
        ["env:", *lines] if lines else [],
        _secret_lines(facts),
        _prepare(facts),
        _shared(facts),
        _data(facts),
        _train(facts),
    )
    return "\n".join("\n".join(part) + "\n" for part in parts if part)


def notes(facts: Facts) -> list[str]:
    """Return what the user has to decide, one line each."""
    found, environment = [], facts.environment
    if _unsure(facts):
        taken = (
            f" (taken is {facts.script}; `init --command` takes another)" if facts.script else ""
        )
        named = ", ".join(facts.candidates[:_MOST_CANDIDATES])
        more = len(facts.candidates) - _MOST_CANDIDATES
        others = f" and {more} more" if more > 0 else ""
        found.append(_plain(f"may be the training: {named}{others}{taken}"))
    elif not facts.command:
        found.append("no training script was found: `train` in the profile says what runs")
    for where, package in facts.uncovered[:10]:
        found.append(_plain(f"{where} imports {package}, which no requirement names"))
    return [*found, *map(_plain, [*environment.remarks, *facts.remarks])]


def _python(found: Environment, last_commit: str) -> list[str]:
    lines = ["python:"]
    if found.python:
        lines.append(f"  version: {_quoted(found.python.value)}{_why(found.python.why)}")
    else:
        asked = f"pyproject.toml asks for {found.requires_python}" if found.requires_python else ""
        lines.append(f'  # version: "{_example(found.requires_python or "")}"{_why(asked)}')
    if last_commit and not found.lock:
        newer = ", ".join(found.unbounded[:_MOST_UNBOUNDED])
        why = "as it was at the last commit" + (f": nothing bounds {newer}" if newer else "")
        lines.append(f'  # as_of: "{last_commit}"{_why(why)}')
    if found.conda:
        lines.append(f"  conda: {found.conda.value}{_why(found.conda.why)}")
    elif found.lock:
        lines.append(f"  lock: {found.lock}{_why('the exact versions that the project has')}")
    elif found.requirements:
        lines.append(f"  requirements: {_listed(found.requirements)}{_why(found.why)}")
    elif found.project:
        lines.append("  # requirements: []    # left out: what pyproject.toml asks for")
    elif found.packages or found.groups:
        why = "no file that pip or uv takes lists them"
        why = "the project itself asks for the rest" if found.has_own else why
        lines.append(f"  requirements: []{_why(why)}")
    else:
        lines.append("  # requirements: [requirements.txt]    # none was found")
    for key, values in (
        ("extras", found.extras),
        ("groups", found.groups),
        ("packages", found.packages),
        ("no_build_isolation", found.last),
        ("index", found.index),
    ):
        lines += _items(key, values)
    lines.append("  torch_backend: auto    # the build of torch that fits the box's driver")
    return lines


def _example(range_: str) -> str:
    """Return a version of Python that the project accepts, as far as it says so."""
    bounds = [(op, int(minor)) for op, minor in re.findall(r"(>=|<=|<|>|~=)\s*3\.(\d+)", range_)]
    tests = {">=": int.__ge__, "<=": int.__le__, "<": int.__lt__, ">": int.__gt__, "~=": int.__ge__}
    return next(
        (f"3.{n}" for n in (11, 12, 10, 13, 9, 8, 14) if all(tests[op](n, m) for op, m in bounds)),
        "3.11",
    )


def _items(key: str, values: tuple[Reasoned, ...]) -> list[str]:
    """Put a short list with one reason for all its items on one line, else each item on its own."""
    if len({each.why for each in values}) == 1:
        listed = _listed(each.value for each in values)
        if len(listed) < _LONGEST_LIST:
            return [f"  {key}: {listed}{_why(values[0].why)}"]
    lines = [f"    - {_word(each.value)}{_why(each.why)}" for each in values]
    return [f"  {key}:", *lines] if values else []


def _packages(facts: Facts) -> list[str]:
    why = _why("; ".join(dict.fromkeys(each.why for each in facts.system)))
    listed = _listed(each.value for each in facts.system)
    if facts.system:
        return ["# Of the box's own package manager.", f"packages: {listed}{why}"]
    names = facts.environment.names | {package for _, package in facts.uncovered}
    needed = {name: _OF_SYSTEM[name] for name in sorted(names & {*_OF_SYSTEM})}
    needed |= {f"the build of {each.value}": ("g++",) for each in facts.environment.last}
    wanted = dict.fromkeys(each for names in needed.values() for each in names)
    why = _why(f"for {' and '.join(needed)}, if the image has none")
    return [f"# packages: {_listed(wanted)}{why}"] if needed else []


def _secret_lines(facts: Facts) -> list[str]:
    named = ", ".join(each.value for each in facts.secrets) or "WANDB_API_KEY"
    return [
        "# Names only: values come from your environment, a .env that git ignores, or a",
        "# command of yours. The box's owner can read them.",
        f"# secrets: [{named}]{_why('; '.join(each.why for each in facts.secrets))}",
    ]


def _prepare(facts: Facts) -> list[str]:
    lines = [f"  - {_quoted(each.value)}{_why(each.why)}" for each in facts.prepare]
    return ["# In the environment, once for the same files.", "prepare:", *lines] if lines else []


def _shared(facts: Facts) -> list[str]:
    listed = _listed(each.value for each in facts.shared)
    told = _plain(", ".join(facts.data_told))
    return [
        *([f"# Which data it reads: {told}"] if told else []),
        "# Data that git ignores, for all runs: a run beside a live one has a tree of its own.",
        f"shared: {listed}{_why(facts.shared[0].why)}" if facts.shared else "# shared: [data/]",
    ]


def _data(facts: Facts) -> list[str]:
    lines = [
        f"#   - {{from: {_quoted('./' + each.value)}, to: {_quoted(each.value)}}}"
        for each in facts.data
    ]
    return (
        ["# What goes over beside the repository, from where you have it:", "# data:", *lines]
        if lines
        else []
    )


def _train(facts: Facts) -> list[str]:
    found = [f"# {line}" for line in notes(facts)[:1]] if _unsure(facts) else []
    sure = [each for each in facts.results if each.why != GUESSED]
    facts = replace(facts, results=tuple(sure or facts.results))
    results = _listed(each.value for each in facts.results) if facts.results else "[]"
    why = _why("; ".join(dict.fromkeys(each.why for each in facts.results)) or _NO_RESULTS)
    if facts.command:
        return [
            *found,
            "train:",
            f"  command: {_quoted(facts.command.value)}{_why(facts.command.why)}",
            "  session: train",
            f"  {'' if sure else '# '}results: {results}{why}",
        ]
    usual = f"python {facts.candidates[0]}" if found else "python train.py"
    return [
        *(found or ["# No training script was found."]),
        "# Without this section, a setup ends when the box is ready.",
        "# train:",
        f"#   command: {_plain(usual)}",
        f"#   results: {results}",
    ]


_NO_RESULTS = "none is known: the folders that the training writes"


def _unsure(facts: Facts) -> bool:
    return len(facts.candidates) > (1 if facts.script else 0)


def _why(reason: str) -> str:
    return f"    # {_plain(reason)}" if reason else ""


def _plain(text: str | None) -> str:
    """Return `text` for a comment: on one line, without unprintable characters."""
    return "".join(char if char.isprintable() else "?" for char in text or "")[:_LONGEST_NOTE]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _word(text: str) -> str:
    return text if _SURELY_TEXT.fullmatch(text) else _quoted(text)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_word, texts))}]"
