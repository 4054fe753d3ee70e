"""The facts of a repository that a first profile is made from, each with its reason."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.profile.rule import fits
from bootstrap.profile.survey import commands, files, scripts
from bootstrap.profile.survey.environment import Environment, Reasoned, find_environment
from bootstrap.profile.survey.packages import PACKAGES, name_of, same
from bootstrap.profile.values import COMMAND, ENV_NAME, REPO_PATH

_RESULTS = ("out", "outputs", "results", "checkpoints", "runs", "logs")
# Packages that need a secret, and the variable from which they read it.
_SECRETS = {"wandb": "WANDB_API_KEY", "huggingface-hub": "HF_TOKEN", "transformers": "HF_TOKEN"}
_AMBIGUOUS = 15
"""Scripts that score less than this below the best one are candidates too."""


# Names of scripts that prepare data or a tokenizer for the training.
_PREPARES = re.compile(
    r"(?!.*eval).*(?:prepar|download|preproc|get_data|dataset|tok)", re.IGNORECASE
)
_MOST_PREPARED = 3


@dataclass(frozen=True)
class Facts:
    """What was found in a repository; paths are relative to its root."""

    name: str
    url: str | None = None
    environment: Environment = field(default_factory=Environment)
    env: tuple[tuple[str, Reasoned], ...] = ()
    prepare: tuple[Reasoned, ...] = ()
    command: Reasoned | None = None
    script: str | None = None
    candidates: tuple[str, ...] = ()
    """Scripts that may be the training: several if `script` is a guess; none if the user chose."""
    uncovered: tuple[tuple[str, str], ...] = ()
    """A script or notebook, and a package that it imports but nothing installs."""
    results: tuple[Reasoned, ...] = ()
    secrets: tuple[Reasoned, ...] = ()
    remarks: tuple[str, ...] = field(default=())


def look(root: Path, *, url: str | None = None, command: str = "", script: str = "") -> Facts:
    """Collect the facts of the repository at `root`; `url` is its origin, without user-info.

    `command` is the training command, or `script` the training script, that the user chose.
    """
    said = commands.read(root)
    found = scripts.candidates(root, [run.script for run in said.runs])
    usable = [each for each in found if fits(REPO_PATH, each.path)]
    likely = [each for each in usable if each.score >= scripts.LIKELY]
    chosen = script or (_script_of(root, command) if command else likely[0].path if likely else "")
    near = [each.path for each in usable if not chosen or each.score > usable[0].score - _AMBIGUOUS]
    told = Reasoned(command, "as you said") if command else _command(said, chosen)
    before = [] if command else _before(said, told)
    page = next((run.file for run in said.runs if told and run.text == told.value), "")
    brought = scripts.imported(root, chosen) if chosen else scripts.Imported({}, {}, ())
    environment = find_environment(root, said, brought)
    known = {*environment.names, *map(name_of, (each.value for each in environment.packages))}
    words = told.value if told else ""
    return Facts(
        name=root.resolve().name,
        url=url,
        environment=environment,
        env=tuple(_variables(brought)),
        prepare=tuple(
            Reasoned(run.text, f"{run.file} runs it before") for run in before if run.file == page
        ),
        command=told,
        script=chosen or None,
        candidates=tuple(near if not command and not script else ()),
        uncovered=tuple(_uncovered(root, chosen, brought, near, known)),
        results=tuple(_results(root, chosen, words)),
        secrets=tuple(_secrets(root, chosen, brought, known)),
        remarks=(*_remarks(said, told), *_remark_on_preparation(before, page)),
    )


def _script_of(root: Path, command: str) -> str:
    """Return the script of the repository that a command runs, or ""."""
    words = command.split()
    modules = [
        f"{words[at + 1].replace('.', '/')}.py"
        for at, word in enumerate(words[:-1])
        if word == "-m"
    ]
    found = [
        word for word in [*words, *modules] if word.endswith(".py") and (root / word).is_file()
    ]
    return next((each for each in found if fits(REPO_PATH, each)), "")


def _command(said: commands.Said, script: str) -> Reasoned | None:
    """Return how to run the script: as the README or a run script does, else without arguments."""
    runs = [run for run in said.runs if run.script == script and fits(COMMAND, run.text)]
    whole = [run for run in runs if not run.unfilled]
    for run in (whole or runs)[:1]:
        if not run.file.endswith(".sh") or not run.unfilled:
            return Reasoned(run.text, f"{run.file} says so")
    plain = f"python {shlex.quote(script)}"
    return (
        Reasoned(plain, "chosen by its name and contents")
        if script and fits(COMMAND, plain)
        else None
    )


def _before(said: commands.Said, told: Reasoned | None) -> list[commands.ScriptCommand]:
    """Return what the README, or else a run script, prepares before the chosen training."""
    taken = next((run for run in said.runs if told and run.text == told.value), None)
    for file in dict.fromkeys(
        run.file for run in said.runs if taken and run.script == taken.script
    ):
        runs = [run for run in said.runs if run.file == file and fits(COMMAND, run.text)]
        at = next(n for n, run in enumerate(runs) if taken and run.script == taken.script)
        found = [r for r in runs[:at] if _PREPARES.match(r.script) and not r.unfilled]
        if found:
            return [*{run.script: run for run in reversed(found)}.values()][::-1][:_MOST_PREPARED]
    return []


def _remark_on_preparation(before: list[commands.ScriptCommand], page: str) -> Iterator[str]:
    """Only remark on what another file runs first: it may be for another size of the training."""
    if before and before[0].file != page:
        named = ", ".join(run.text for run in before)
        yield f"{before[0].file} runs first: {named} (what this training needs goes into `prepare`)"


def _variables(brought: scripts.Imported) -> Iterator[tuple[str, Reasoned]]:
    if brought.folders:
        yield (
            "PYTHONPATH",
            Reasoned(":".join(brought.folders), "the training imports modules from there"),
        )
    if "wandb" in brought.packages:
        yield (
            "WANDB_MODE",
            Reasoned(
                "offline",
                f"{brought.packages['wandb']} imports wandb; remove this once the secret below "
                f"is set",
            ),
        )


def _uncovered(
    root: Path, script: str, brought: scripts.Imported, near: list[str], known: set[str]
) -> Iterator[tuple[str, str]]:
    seen = set(known)
    found = [(where, module) for module, where in {**brought.packages, **brought.unknown}.items()]
    for other in near if not script else ():
        theirs = scripts.imported(root, other)
        own = {**theirs.packages, **theirs.unknown}.items()
        found += [(where, package) for package, where in own if where == other]
    for where, module in scripts.notebook_imports(root):
        if module not in sys.stdlib_module_names and not scripts.is_at_home(root, where, module):
            found.append((where, PACKAGES.get(module, module)))
    for where, package in found:
        if same(package) not in seen:
            seen.add(same(package))
            yield where, package


def _results(root: Path, script: str, command: str) -> Iterator[Reasoned]:
    written = scripts.outputs(root, script, command) if script else []
    for name in written:
        if fits(REPO_PATH, f"{name}/") and "%" not in name and "{" not in name:
            yield Reasoned(f"{name}/", "the training writes there")
    ignored = files.text(root / ".gitignore").split()
    for name in _RESULTS:
        there = (root / name).is_dir()
        if name not in written and (
            there or (not written and {name, f"{name}/", f"/{name}/"} & {*ignored})
        ):
            yield Reasoned(f"{name}/", "a folder of results" if there else ".gitignore names it")


def _secrets(
    root: Path, script: str, brought: scripts.Imported, known: set[str]
) -> Iterator[Reasoned]:
    found = dict[str, str]()
    for package, name in _SECRETS.items():
        if package in brought.packages or package in known:
            where = brought.packages.get(package)
            found.setdefault(name, f"{where} imports {package}" if where else f"{package} reads it")
    for name in scripts.reads_variables(root, script) if script else ():
        if fits(ENV_NAME, name):
            found.setdefault(name, f"{script} reads it")
    yield from (Reasoned(name, why) for name, why in found.items())


def _remarks(said: commands.Said, told: Reasoned | None) -> Iterator[str]:
    run = next((each for each in said.runs if told and each.text == told.value), None)
    if run and run.unfilled:
        yield f"the command has places to fill in: {', '.join(run.unfilled[:5])}"
