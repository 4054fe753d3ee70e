"""A first `boxstrap.yaml`, from what a repository shows. Nothing in it is run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.profile import survey
from bootstrap.profile.values import COMMAND, PYTHON, REPO_PATH, Rule

_SCRIPTS = ("train.py", "src/train.py", "scripts/train.py")
_RESULTS = ("out", "outputs", "results", "checkpoints", "runs", "logs")
_REQUIRES_PYTHON = re.compile(r"^requires-python\s*=\s*[\"']([^\"'\n]{1,80})[\"']", re.MULTILINE)
# What YAML can't take for a number, a date or a truth, and needs no quotes.
_SURELY_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*[./][A-Za-z0-9_./-]*")
# Packages that ask for a secret, by the name of the variable they read.
_SECRETS = {"wandb": "WANDB_API_KEY", "huggingface_hub": "HF_TOKEN", "transformers": "HF_TOKEN"}


@dataclass(frozen=True)
class Facts:
    """What was found in a repository; paths are relative to its root."""

    name: str
    url: str | None = None
    requirements: tuple[str, ...] = ()
    lock: str | None = None
    has_pyproject: bool = False
    python: str | None = None
    requires_python: str | None = None
    torch_extras: tuple[str, ...] = ()
    script: str | None = None
    candidates: tuple[str, ...] = ()
    """Scripts that may be the training; more than one where `script` is a guess, or none."""
    uncovered: tuple[tuple[str, str], ...] = ()
    """Script or notebook, and a package that it imports and no requirement names."""
    results: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def look(root: Path, *, url: str | None = None) -> Facts:
    """What the repository at `root` shows; `url` is its origin, without user-info."""
    pyproject, lock = survey.text(root / "pyproject.toml"), survey.lock_text(root)
    wanted = f"{survey.text(root / 'requirements.txt')}\n{pyproject}"
    asked = _REQUIRES_PYTHON.search(pyproject)
    python = survey.text(root / ".python-version").strip()
    candidates = (
        tuple(_there(root, _SCRIPTS))[:1]
        or tuple(_there(root, survey.scripts_below(root)))
        or tuple(_there(root, survey.programs(root)))
    )
    return Facts(
        name=root.resolve().name,
        url=url,
        requirements=tuple(_there(root, ["requirements.txt"])),
        lock=next(_there(root, ["uv.lock"]), None),
        has_pyproject=bool(pyproject),
        python=python if _fits(PYTHON, python) else None,
        requires_python=asked.group(1) if asked else None,
        torch_extras=survey.torch_extras(lock),
        script=_surely(candidates),
        candidates=candidates,
        uncovered=survey.uncovered(root, candidates, wanted, lock),
        results=tuple(f"{name}/" for name in _RESULTS if (root / name).is_dir()),
        secrets=tuple(dict.fromkeys(s for word, s in _SECRETS.items() if word in wanted)),
    )


def sketch(facts: Facts) -> str:
    """The text of a profile with comments; it loads as it stands."""
    parts = (_head(facts), _git(facts), _python(facts), _gpu(), _secrets(facts), _train(facts))
    return "\n".join("\n".join(part) + "\n" for part in parts)


def notes(facts: Facts) -> list[str]:
    """What the person has to decide, a line each."""
    found = []
    if _unsure(facts):
        found.append(f"may be the training: {_plain(', '.join(facts.candidates[:10]))}")
    elif not facts.script:
        found.append("no training script was found: `train` in the profile says what runs")
    if facts.lock and facts.torch_extras:
        named = " or ".join(facts.torch_extras)
        found.append(f"torch is not in {facts.lock} itself, but in its extra {named}")
    for where, package in facts.uncovered[:10]:
        found.append(_plain(f"{where} imports {package}, which no requirement names"))
    return found


def _head(facts: Facts) -> list[str]:
    return [
        f"# What a rented box should become to train {_plain(facts.name)}.",
        "# Every key is explained by: boxstrap profiles --show vast",
        "version: 1",
        "",
        "# Where you rent: vast, runpod, lambda, paperspace, or ssh for any other host.",
        "# Left out, the box itself says what it is.",
        "# extends: vast",
    ]


def _git(facts: Facts) -> list[str]:
    url = f" ({_plain(facts.url)})" if facts.url else ""
    return [
        f"# The repository you stand in{url} goes over at the commit",
        "# you stand on. To have another one, or to let the box clone it by itself:",
        "# git:",
        "#   url: https://github.com/me/homework.git",
        "#   ref: main",
        "#   access: url",
    ]


def _python(facts: Facts) -> list[str]:
    lines = ["python:"]
    if facts.python:
        lines.append(f"  version: {_quoted(facts.python)}    # from .python-version")
    else:
        why = f"    # pyproject.toml asks for {_plain(facts.requires_python)}"
        lines.append('  # version: "3.11"' + (why if facts.requires_python else ""))
    if facts.lock:
        lines.append(f"  lock: {facts.lock}")
        if facts.torch_extras:
            mark = "" if len(facts.torch_extras) == 1 else "# "
            named = " or ".join(facts.torch_extras)
            lines.append(f"  {mark}extras: [{facts.torch_extras[0]}]    # torch is in {named}")
    elif facts.requirements:
        lines.append(f"  requirements: {_listed(facts.requirements)}")
    elif facts.has_pyproject:
        lines.append("  # requirements: []    # left out: what pyproject.toml asks for")
    else:
        lines.append("  # requirements: [requirements.txt]    # none was found")
    lines.append("  torch_backend: auto    # the build of torch that fits the box's driver")
    return lines


def _gpu() -> list[str]:
    return [
        "# What you ordered. A box that has less is one to return, and costs you seconds.",
        "# gpu:",
        "#   count: 1",
        "#   name: A100",
        "#   min_memory_gib: 40",
    ]


def _secrets(facts: Facts) -> list[str]:
    names = facts.secrets or ("WANDB_API_KEY",)
    return [
        "# Names only: values come from your environment, and the box's owner can",
        "# read them.",
        f"# secrets: [{', '.join(names)}]",
    ]


def _train(facts: Facts) -> list[str]:
    results = _listed(facts.results or ("out/",))
    found = [f"# {line}" for line in notes(facts)[:1]] if _unsure(facts) else []
    if facts.script:
        lines = ["train:", f"  command: {_quoted(_command(facts.script))}", "  session: train"]
        return [*found, *lines, f"  {'' if facts.results else '# '}results: {results}"]
    return [
        *(found or ["# No training script was found."]),
        "# Without this section, set-up stops when the box is ready.",
        "# train:",
        f"#   command: {_command(facts.candidates[0] if found else 'train.py')}",
        f"#   results: {results}",
    ]


def _surely(candidates: tuple[str, ...]) -> str | None:
    """The first, where its name says that it trains, and it stands at the top or alone."""
    first = candidates[0] if candidates else ""
    trains = "train" in first.rpartition("/")[2].lower()
    return (
        first
        if trains and (len(candidates) == 1 or first in _SCRIPTS or "/" not in first)
        else None
    )


def _unsure(facts: Facts) -> bool:
    return len(facts.candidates) > (1 if facts.script else 0)


def _there(root: Path, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        usable = _fits(REPO_PATH, name) and _fits(COMMAND, _command(name))
        if usable and (root / name).is_file():
            yield name


def _command(script: str) -> str:
    return f"python {shlex.quote(script)}"


def _fits(rule: Rule, text: str) -> bool:
    try:
        rule(text)
    except ValueError:
        return False
    return True


def _plain(text: str | None) -> str:
    """`text` for a comment: on one line, with nothing unseen in it."""
    return "".join(char if char.isprintable() else "?" for char in text or "")[:200]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _listed(texts: Iterable[str]) -> str:
    words = (text if _SURELY_TEXT.fullmatch(text) else _quoted(text) for text in texts)
    return f"[{', '.join(words)}]"
