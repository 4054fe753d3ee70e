"""Write a first `boxstrap.yaml` from the facts of a repository. Nothing in it is run."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from bootstrap.profile.survey import commands, files, scripts
from bootstrap.profile.survey.environment import Environment, Reasoned, find_environment
from bootstrap.profile.survey.files import PACKAGES, package_name, provides, same
from bootstrap.profile.values import COMMAND, ENV_NAME, PACKAGE, REPO_PATH, fits
from bootstrap.providers import NAMES

_RESULTS = ("out", "outputs", "results", "checkpoints", "runs", "logs")
# Packages that need a secret, and the variable from which they read it.
_SECRETS = {"wandb": "WANDB_API_KEY", "huggingface-hub": "HF_TOKEN", "transformers": "HF_TOKEN"}
_AMBIGUOUS = 15
"""Scripts that score less than this below the best one are candidates too."""


# Names of scripts that prepare data or a tokenizer for the training.
_PREPARES = re.compile(
    r"(?!.*eval).*(?:prepar|download|preproc|get_data|dataset|tok)", re.IGNORECASE
)
_MOST_PREPARED = 5


@dataclass(frozen=True)
class Facts:
    """What was found in a repository; paths are relative to its root."""

    name: str
    url: str | None = None
    environment: Environment = field(default_factory=Environment)
    env: tuple[tuple[str, Reasoned], ...] = ()
    system: tuple[Reasoned, ...] = ()
    """Packages of the box's own package manager."""
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


def inspect_repository(
    root: Path, *, url: str | None = None, command: str = "", script: str = ""
) -> Facts:
    """Collect the facts of the repository at `root`; `url` is its origin, without user-info.

    `command` is the training command, or `script` the training script, that the user chose.
    """
    said = commands.read_commands(root)
    found = scripts.candidates(root, [run.script for run in said.runs], said.called)
    usable = [each for each in found if fits(REPO_PATH, each.path)]
    likely = [each for each in usable if each.score >= scripts.LIKELY]
    scores = {run: commands.score_run(run, said, root) for run in said.runs}
    shown = max(scores, key=scores.__getitem__, default=None) if not command else None
    shown = shown if shown and scores[shown] >= scripts.LIKELY else None
    by_name = likely[0].path if likely else ""
    chosen = script or (
        _script_of(root, command) if command else shown.script if shown else by_name
    )
    near = [each.path for each in usable if not chosen or each.score > usable[0].score - _AMBIGUOUS]
    run = _run_of(said, chosen, scores)
    told = Reasoned(command, "as you said") if command else _command(run, chosen)
    before, page = _before(said, run), run.file if run else ""
    brought = scripts.imported(root, chosen) if chosen else scripts.Imported({}, {}, ())
    environment = find_environment(root, said, brought, run)
    near = near if not shown or chosen in near else [chosen]
    known = {*environment.names, *map(package_name, (each.value for each in environment.packages))}
    known |= {package_name(each.value) for each in environment.last}
    words = told.value if told else ""
    return Facts(
        name=root.resolve().name,
        url=url,
        environment=environment,
        env=tuple(_variables(brought, run, is_installed=environment.has_own)),
        system=tuple(_system(said, run, {*known, *brought.packages})),
        prepare=tuple(
            Reasoned(each.text, f"{each.file} runs it before")
            for each in before
            if each.file == page or not each.file.endswith(".sh")
        ),
        command=told,
        script=chosen or None,
        candidates=tuple(near if not command and not script else ()),
        uncovered=tuple(_uncovered(root, chosen, brought, near, known)),
        results=tuple(_results(root, chosen, words, brought, run.folder if run else "")),
        secrets=tuple(_secrets(root, chosen, brought, known)),
        remarks=(*_remarks(run if not command else None), *_remark_on_preparation(before, page)),
    )


def look_where_you_stand(
    root: Path, place: Path, *, url: str | None = None, command: str = "", script: str = ""
) -> Facts:
    """As `look`, at the folder of `root` that `place` is; at all of `root` if that shows nothing.

    The facts are those of `root` in each case, since a profile's paths start there.
    """
    root, place = root.resolve(), place.resolve()
    folder = place.relative_to(root).as_posix() if root in place.parents else ""
    if folder and fits(REPO_PATH, folder):
        own = script.removeprefix(f"{folder}/")
        found = inspect_repository(place, url=url, command=command, script=own)
        if found.command or found.script or found.environment.has_files:
            return _moved(found, folder, root.name)
    return inspect_repository(root, url=url, command=command, script=script)


def _moved(found: Facts, folder: str, name: str) -> Facts:
    """Return the facts of a folder as those of its repository."""

    def moved(each: Reasoned) -> Reasoned:
        return replace(each, value=f"{folder}/{each.value}")

    def run_there(each: Reasoned) -> Reasoned:
        return replace(each, value=f"cd {shlex.quote(folder)} && {each.value}")

    environment, remarks = found.environment, list(found.remarks)
    listed_files = [f"{folder}/{each}" for each in environment.requirements]
    if environment.project:
        listed_files = [f"{folder}/pyproject.toml"]
    for key, names in (("groups", environment.groups), ("extras", environment.extras)):
        if names and (key == "groups" or environment.project):
            listed = ", ".join(each.value for each in names)
            remarks.append(f"{folder}/pyproject.toml has {key} ({listed}): only one at the top can")
    return replace(
        found,
        name=name,
        environment=replace(
            environment,
            lock=environment.lock and f"{folder}/{environment.lock}",
            requirements=tuple(listed_files),
            why=environment.why or "you stand there",
            project=False,
            groups=(),
            extras=() if environment.project else environment.extras,
            conda=environment.conda and moved(environment.conda),
        ),
        prepare=tuple(map(run_there, found.prepare)),
        command=found.command and run_there(found.command),
        script=found.script and f"{folder}/{found.script}",
        candidates=tuple(f"{folder}/{each}" for each in found.candidates),
        uncovered=tuple((f"{folder}/{where}", package) for where, package in found.uncovered),
        results=tuple(map(moved, found.results)),
        remarks=(
            f"taken from {folder}/, where you stand; the profile goes to the repository's top, and "
            "its paths start there",
            *remarks,
        ),
    )


def _script_of(root: Path, command: str) -> str:
    """Return the script of the repository that a command runs, or ""."""
    words = command.split()
    modules = [
        f"{words[at + 1].replace('.', '/')}.py"
        for at, word in enumerate(words[:-1])
        if word == "-m"
    ]
    found = [word for word in [*words, *modules] if word.endswith(".py") and files.has(root, word)]
    return next((each for each in found if fits(REPO_PATH, each)), "")


def _run_of(
    said: commands.Said, script: str, scores: dict[commands.ScriptCommand, int]
) -> commands.ScriptCommand | None:
    """Return the command of a page or a run script that runs it; one without gaps first."""
    runs = [run for run in said.runs if run.script == script and fits(COMMAND, run.text)]
    runs = [run for run in runs if scores[run] > -100] or [
        run for run in runs if not run.script.endswith(".py")
    ]
    usable = [run for run in runs if not run.file.endswith(".sh") or not run.unfilled]
    return min(usable, key=lambda run: (run.file.endswith(".sh"), bool(run.unfilled)), default=None)


def _command(run: commands.ScriptCommand | None, script: str) -> Reasoned | None:
    """Return how to run the script: as the README or a run script does, else without arguments."""
    if run:
        return Reasoned(run.text, f"{run.file} says so")
    plain = f"python {shlex.quote(script)}"
    return (
        Reasoned(plain, "chosen by its name and contents")
        if script and fits(COMMAND, plain)
        else None
    )


def _before(
    said: commands.Said, taken: commands.ScriptCommand | None
) -> list[commands.ScriptCommand]:
    """Return what the README, or else a run script, prepares before the chosen training."""
    if not taken:
        return []
    its = (taken.script, taken.file)
    files_ = [run.file for run in said.runs if run.script in its]
    for file in dict.fromkeys([taken.file, *files_]):
        runs = [run for run in said.runs if run.file == file and fits(COMMAND, run.text)]
        at = next(n for n, run in enumerate(runs) if run == taken or run.script in its)
        at = runs.index(taken) if taken in runs else at
        found = [
            each
            for each in runs[:at]
            if not each.unfilled and _prepares(each, taken, said, runs[:at])
        ]
        if found:
            by_script = {
                run.text if run.words[0] in said.own else run.script or run.text: run
                for run in reversed(found)
            }
            return [*by_script.values()][::-1][-_MOST_PREPARED:]
    return []


def _prepares(
    each: commands.ScriptCommand,
    taken: commands.ScriptCommand,
    said: commands.Said,
    runs: list[commands.ScriptCommand],
) -> bool:
    """Whether a command fetches or makes what the training reads."""
    if each.words[0] in said.own or not each.script.endswith(".py"):
        is_near = each.place[:2] == taken.place[:2]
        fetches = [run for run in runs if run.place == each.place and commands.fetches(run)]
        return is_near and bool(fetches)
    return bool(_PREPARES.match(each.script)) or each.script.startswith("data/")


def _remark_on_preparation(before: list[commands.ScriptCommand], page: str) -> Iterator[str]:
    """Only remark on what another file runs first: it may be for another size of the training."""
    if before and before[0].file != page and before[0].file.endswith(".sh"):
        named = ", ".join(run.text for run in before)
        yield f"{before[0].file} runs first: {named} (what this training needs goes into `prepare`)"


def _variables(
    brought: scripts.Imported, run: commands.ScriptCommand | None, *, is_installed: bool
) -> Iterator[tuple[str, Reasoned]]:
    set_ = dict(run.env) if run else {}
    folders = [] if is_installed else [*brought.folders]
    if run and run.script.startswith("src/") and "-m" in run.words and not is_installed:
        folders = list(dict.fromkeys(["src", *folders]))
    if folders and "PYTHONPATH" not in set_:
        yield (
            "PYTHONPATH",
            Reasoned(":".join(folders), "the training imports modules from there"),
        )
    for name, value in set_.items():
        if run and fits(ENV_NAME, name) and value:
            yield name, Reasoned(value, f"{run.file} sets it")
    if "wandb" in brought.packages and "WANDB_MODE" not in set_:
        yield (
            "WANDB_MODE",
            Reasoned(
                "offline",
                f"{brought.packages['wandb']} imports wandb; remove this once the secret below "
                f"is set",
            ),
        )


def _system(
    said: commands.Said, run: commands.ScriptCommand | None, known: set[str]
) -> Iterator[Reasoned]:
    """Yield the system's packages that a page installs, and those that MPI needs."""
    seen = set[str]()
    for each in said.installs:
        is_sure = not re.search(r"docker|npu|rocm|windows|mac", each.place.headings, re.IGNORECASE)
        for name in each.system if is_sure and not each.file.endswith(".sh") else ():
            if fits(PACKAGE, name) and name not in seen:
                seen.add(name)
                yield Reasoned(name, f"{each.file} installs it")
    by_mpi = run is not None and run.words[0] in ("mpiexec", "mpirun")
    if not seen and (by_mpi or provides(known, "mpi4py")):
        why = "the training runs by mpiexec" if by_mpi else "mpi4py needs it"
        yield from (Reasoned(name, why) for name in ("libopenmpi-dev", "openmpi-bin"))


def _uncovered(
    root: Path, script: str, brought: scripts.Imported, near: list[str], known: set[str]
) -> Iterator[tuple[str, str]]:
    seen = set(known)
    found = [(where, module) for module, where in {**brought.packages, **brought.unknown}.items()]
    for other in near if not script else ():
        theirs = scripts.imported(root, other)
        own = {**theirs.packages, **theirs.unknown}.items()
        found += [(where, package) for package, where in own if where == other]
    for where, module in scripts.notebook_imports(root) if not script else ():
        if module not in sys.stdlib_module_names and not scripts.is_at_home(root, where, module):
            found.append((where, PACKAGES.get(module, module)))
    for where, package in found:
        if not provides(seen, package):
            seen.add(same(package))
            yield where, package


def _results(
    root: Path, script: str, command: str, brought: scripts.Imported, folder: str
) -> Iterator[Reasoned]:
    written = scripts.outputs(root, script, command, brought) if script else []
    for name in written:
        if fits(REPO_PATH, f"{name}/") and "%" not in name and "{" not in name:
            path = f"{folder}/{name}/" if folder else f"{name}/"
            yield Reasoned(path, "the training writes there")
    ignored = {*files.text_of_file(root / ".gitignore").split()}
    for name in _RESULTS:
        there = root / name
        if name not in written and there.is_dir() and not any(there.glob("*.[ps][yh]")):
            yield Reasoned(f"{name}/", "a folder of results")
        elif not written and {name, f"{name}/", f"/{name}/"} & ignored:
            yield Reasoned(f"{name}/", _GUESSED)


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


def _remarks(run: commands.ScriptCommand | None) -> Iterator[str]:
    if run and run.unfilled:
        yield f"the command has places to fill in: {', '.join(run.unfilled[:5])}"


# Words that need no quotes: YAML can't read them as a number, a date or a boolean.
_SURELY_TEXT = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z][A-Za-z0-9_./-]*", re.I
)
_LONGEST_LIST = 70  # characters of a list on one line


def write_profile(facts: Facts) -> str:
    """Return the text of a profile with comments; it can be loaded as it is."""
    parts = (
        _head(facts),
        _git(facts),
        _python(facts.environment),
        _packages(facts),
        _gpu(),
        _env(facts),
        _secret_lines(facts),
        _prepare(facts),
        _shared(),
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
        found.append(_plain(f"may be the training: {', '.join(facts.candidates[:5])}{taken}"))
    elif not facts.command:
        found.append("no training script was found: `train` in the profile says what runs")
    if environment.lock and environment.torch_extras:
        named = " or ".join(environment.torch_extras)
        found.append(f"torch is not in {environment.lock} itself, but in its extra {named}")
    for where, package in facts.uncovered[:10]:
        found.append(_plain(f"{where} imports {package}, which no requirement names"))
    return [*found, *map(_plain, [*environment.remarks, *facts.remarks])]


def _head(facts: Facts) -> list[str]:
    return [
        f"# What a rented box should become to train {_plain(facts.name)}.",
        "# Every key is explained by: boxstrap profiles --show vast",
        "version: 1",
        "",
        f"# Where you rent: {', '.join(NAMES)}, or ssh for any other host.",
        "# Left out, the box itself says what it is.",
        "# extends: vast",
    ]


def _git(facts: Facts) -> list[str]:
    url = f" ({_plain(facts.url)})" if facts.url else ""
    return [
        f"# The repository of this folder{url} goes over at the commit",
        "# you stand on. To have another one, or to let the box clone it by itself:",
        "# git:",
        "#   url: https://github.com/me/homework.git",
        "#   ref: main",
        "#   access: url",
    ]


def _python(found: Environment) -> list[str]:
    lines = ["python:"]
    if found.python:
        lines.append(f"  version: {_quoted(found.python.value)}{_why(found.python.why)}")
    else:
        asked = f"pyproject.toml asks for {found.requires_python}" if found.requires_python else ""
        lines.append(f'  # version: "{_example(found.requires_python or "")}"{_why(asked)}')
    if found.conda:
        lines.append(f"  conda: {found.conda.value}{_why(found.conda.why)}")
    elif found.lock:
        lines.append(f"  lock: {found.lock}{_why('the exact versions that the project has')}")
    elif found.requirements:
        lines.append(f"  requirements: {_listed(found.requirements)}{_why(found.why)}")
    elif found.project:
        lines.append("  # requirements: []    # left out: what pyproject.toml asks for")
    elif found.packages or found.groups:
        lines.append(f"  requirements: []{_why('no file that pip or uv takes lists them')}")
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
    if provides(facts.environment.names, "opencv-python") and not (
        {"opencv-python-headless"} & facts.environment.names
    ):
        return ["# packages: [libgl1, libglib2.0-0]    # cv2 needs them, if the image has none"]
    return []


def _gpu() -> list[str]:
    return [
        "# What you ordered. A box that has less is one to return, and costs you seconds.",
        "# gpu:",
        "#   count: 1",
        "#   name: A100",
        "#   min_memory_gib: 40",
    ]


def _env(facts: Facts) -> list[str]:
    lines = [f"  {name}: {_quoted(each.value)}{_why(each.why)}" for name, each in facts.env]
    return ["env:", *lines] if lines else []


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


def _shared() -> list[str]:
    return [
        "# Data that git ignores, for all runs: a run beside a live one has a tree of its own.",
        "# shared: [data/]",
    ]


def _train(facts: Facts) -> list[str]:
    found = [f"# {line}" for line in notes(facts)[:1]] if _unsure(facts) else []
    sure = [each for each in facts.results if each.why != _GUESSED]
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


_GUESSED = "a guess: .gitignore names it"
_NO_RESULTS = "none is known: the folders that the training writes"


def _unsure(facts: Facts) -> bool:
    return len(facts.candidates) > (1 if facts.script else 0)


def _why(reason: str) -> str:
    return f"    # {_plain(reason)}" if reason else ""


def _plain(text: str | None) -> str:
    """Return `text` for a comment: on one line, without unprintable characters."""
    return "".join(char if char.isprintable() else "?" for char in text or "")[:200]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _word(text: str) -> str:
    return text if _SURELY_TEXT.fullmatch(text) else _quoted(text)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_word, texts))}]"
