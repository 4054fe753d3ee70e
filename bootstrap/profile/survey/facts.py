"""The facts of a repository, each with its reason: what trains in it, reads, writes and needs."""

import posixpath
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path

from bootstrap.onbox.python.lacking import PACKAGES as PACKAGES_OF
from bootstrap.profile.survey import commands, files, scripts
from bootstrap.profile.survey.commands import Said, ScriptCommand
from bootstrap.profile.survey.environment import Environment, Reasoned, find_environment
from bootstrap.profile.survey.files import PACKAGES, package_name, provides, same
from bootstrap.profile.survey.scripts import Imported
from bootstrap.profile.values import COMMAND, ENV_NAME, PACKAGE, REPO_PATH, fits

_RESULTS = ("out", "outputs", "results", "checkpoints", "runs", "logs")
# Packages that need a secret, and the variable from which they read it.
_SECRETS = {"wandb": "WANDB_API_KEY", "huggingface-hub": "HF_TOKEN", "transformers": "HF_TOKEN"}
_AMBIGUOUS = 15  # scripts that score less than this below the best one are candidates too
# Names of scripts that prepare data or a tokenizer for the training.
_PREPARES = re.compile(
    r"(?!.*eval).*(?:prepar|download|preproc|get_data|dataset|tok)", re.IGNORECASE
)
_OF_PYTHON_2 = re.compile(r"python(2[.7]*)?(-(?!.*is-python3).*)?")
"""Debian's names of its packages; no release has had them since 2021."""
_CALLS = re.compile(
    r"(?:system|run|call|output|Popen)\(\s*\[?\s*f?[\"'](wget|unzip|curl|make|cmake|g\+\+)[ \"']"
)
_OF_USERS = re.compile(r"\b(?:custom|own)\b", re.IGNORECASE)
_NAMED = 3
_MOST_PREPARED = 5
_A_LIST = 2  # commands of one program with the same arguments: more are a list of what it can do
GUESSED = "a guess: .gitignore names it"
_TRACKED = re.compile(
    r"--report[_-]to[= ]'?(wandb|tensorboard)|^report_to: *(wandb|tensorboard)"
    r"|--(?:use[_-]?)?(wandb)\b",
    re.MULTILINE,
)
_GATED = re.compile(r"\b((?:meta-llama|mistralai|google/gemma|bigcode|stabilityai)[\w/.-]+)")
_READS = re.compile(
    r"data|image|corpus|train|val|text|file|checkpoint|ckpt|adapter|input|init|path"
)
_PARSES = re.compile(r"\b(?:HfArgumentParser|TrlParser)\(|[\"']--c(?:on)?fi?g(?:[-_]file)?[\"']")
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_OF_DATA = re.compile(r"data|corpus|corpora", re.IGNORECASE)


@dataclass(frozen=True)
class Facts:
    """What was found in a repository; paths are relative to its root."""

    name: str
    url: str | None = None
    environment: Environment = field(default_factory=Environment)
    env: tuple[tuple[str, Reasoned], ...] = ()
    system: tuple[Reasoned, ...] = ()  # packages of the box's own package manager
    prepare: tuple[Reasoned, ...] = ()
    command: Reasoned | None = None
    script: str | None = None
    candidates: tuple[str, ...] = ()
    """Scripts that may be the training: several if `script` is a guess; none if the user chose."""
    uncovered: tuple[tuple[str, str], ...] = ()
    """A script or notebook, and a package that it imports but nothing installs."""
    results: tuple[Reasoned, ...] = ()
    shared: tuple[Reasoned, ...] = ()
    data: tuple[Reasoned, ...] = ()  # what the command reads and the repository lacks
    data_told: tuple[str, ...] = ()  # where pages tell which data to have
    last_commit: str = ""  # its date, for a repository without a lock
    secrets: tuple[Reasoned, ...] = ()
    remarks: tuple[str, ...] = field(default=())


def inspect_repository(root: Path, *, command: str = "", script: str = "") -> Facts:
    """Collect the facts of the files at `root`: all but its `url` and `last_commit`. `command` is
    the training command, or `script` the training script, that the user chose."""
    said = commands.read_commands(root)
    found = scripts.candidates(root, [run.script for run in said.runs], said.called)
    usable = [each for each in found if fits(REPO_PATH, each.path)]
    likely = [each for each in usable if each.score >= scripts.LIKELY]
    scores = {run: commands.score_run(run, said) for run in said.runs}
    shown = max(scores, key=scores.__getitem__, default=None)
    users = commands.run_of_user(said, command)
    shown = shown if shown and scores[shown] >= scripts.LIKELY else None
    by_name = likely[0].path if likely else ""
    chosen = script or (
        (users.script if users else "") if command else shown.script if shown else by_name
    )
    near = [each.path for each in usable if not chosen or each.score > usable[0].score - _AMBIGUOUS]
    run = _run_of(said, chosen, scores, users) or (shown if command else None)
    told = Reasoned(command, "as you said") if command else _command(root, run, chosen)
    words = told.value if told else ""
    before, page = _before(said, run), run.file if run else ""
    brought = scripts.imported(root, chosen) if chosen else Imported({}, {}, ())
    named = scripts.configurations(root, words.split(), run.folder if run else "")
    configured = "\n".join(files.text_of_file(root / path) for path in named.values() if path)
    for tracker in filter(None, chain(*_TRACKED.findall(f"{words}\n{configured}"))):
        brought.packages.setdefault(tracker, "the command")
    environment = find_environment(said, brought, run or users, chosen)
    if told and not command and environment.lacks_torchrun:
        told = Reasoned(_by_module(root, chosen, told.value), told.why)
    near = near if command or not shown or chosen in near else [chosen]
    if not shown and "/" in chosen:  # a collection: each folder may have one
        own = f"{posixpath.dirname(chosen)}/"
        near += [at for at, _ in likely if at not in near and not at.startswith(own)]
    known = {*environment.names, *map(package_name, (each.value for each in environment.packages))}
    known |= {package_name(each.value) for each in environment.last}
    run = users or run
    results = tuple(_results(root, chosen, words, brought, configured, run.folder if run else ""))
    lacking = () if before else tuple(_lacking(root, run, results))
    return Facts(
        name=root.resolve().name,
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
        results=results,
        shared=tuple(_shared_folders(root, [*(each.text for each in before), words])),
        data=lacking,
        data_told=tuple(said.data[:_NAMED]),
        secrets=tuple(_secrets(said, chosen, f"{words}\n{configured}", brought, known)),
        remarks=(
            *(_without_script(said) if not told else ()),
            *_remarks(root, chosen, run, environment),
            *_configurations(said, run, named),
            *(
                f"the command reads {each}, which the repository does not have"
                for each in (*(one.value for one in lacking), *(_absent(root, run) if run else ()))
            ),
            *(_unfetched(root, run.folder if run else "", chosen) if not before else ()),
            *([] if results else scripts.folder_variables(root, brought)),
            *(f"{each} is a submodule that isn't checked out here" for each in brought.absent),
            *_remark_on_preparation(before, page),
            *_beside_it(said, run, scores),
            *[*said.not_taken.values()][:_MOST_PREPARED],
        ),
    )


def look_where_you_stand(root: Path, place: Path, *, command: str = "", script: str = "") -> Facts:
    """As `inspect_repository`, at the folder `place` of `root`; at all of it if that shows nothing.
    The facts are those of `root` in each case, since a profile's paths start there."""
    root, place = root.resolve(), place.resolve()
    folder = place.relative_to(root).as_posix() if root in place.parents else ""
    if folder and fits(REPO_PATH, folder):
        found = inspect_repository(place, command=command, script=script.removeprefix(f"{folder}/"))
        if found.command or found.script or found.environment.has_files:
            return _moved(found, folder, root.name)
    return inspect_repository(root, command=command, script=script)


def _moved(found: Facts, folder: str, name: str) -> Facts:
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
        data_told=tuple(f"{folder}/{each}" for each in found.data_told),
        remarks=(
            f"taken from {folder}/, where you stand; the profile goes to the repository's top, and "
            "its paths start there",
            *remarks,
        ),
    )


def _run_of(
    said: Said, script: str, scores: dict[ScriptCommand, int], users: ScriptCommand | None
) -> ScriptCommand | None:
    """Return the command of a page or a run script that runs it; those for a machine that is
    rented come first, and then ones without gaps. What only fetches runs no script."""
    runs = [run for run in said.runs if script == run.script != "" and fits(COMMAND, run.text)]
    if users and users.words[0] in said.own:
        runs = [run for run in runs if run.words[:2] == users.words[:2]]
    runs = [run for run in runs if scores[run] > -100] or [
        run for run in runs if not run.script.endswith(".py")
    ]
    usable = [run for run in runs if not run.file.endswith(".sh") or not run.unfilled]
    own = [run for run in said.runs if said.is_own(run)]
    order = {
        run: (
            run.file.endswith(".sh"),
            bool(commands.OTHER_MACHINES.search(run.place.headings)),
            bool(run.unfilled),
            len(_absent(said.root, run)) + sum("conf" in word for word in run.unfilled),
            sum((o.place, o.words[2:]) == (run.place, run.words[2:]) for o in own) > _A_LIST,
        )
        for run in usable
    }
    return min(usable, key=order.__getitem__, default=None)


def _command(root: Path, run: ScriptCommand | None, script: str) -> Reasoned | None:
    """Return how to run the script: as the README or a run script does, else without arguments."""
    if run:
        return Reasoned(run.text, f"{run.file} says so")
    launched = script and scripts.needs_launcher(scripts.source_of(root / script))
    launcher = "torchrun --standalone --nproc_per_node=gpu" if launched else "python"
    plain = f"{launcher} {shlex.quote(script)}"
    return (
        Reasoned(plain, "chosen by its name and contents")
        if script and fits(COMMAND, plain)
        else None
    )


def _by_module(root: Path, script: str, command: str) -> str:
    """Return the command by the launcher that torch had before torchrun."""
    tells = "" if "local_rank" in scripts.source_of(root / script) else " --use_env"
    every = f'-m torch.distributed.launch{tells} --nproc_per_node="$(nvidia-smi -L | wc -l)"'
    return re.sub(r"\btorchrun (--standalone )?--nproc_per_node=gpu", f"python {every}", command)


def _before(said: Said, taken: ScriptCommand | None) -> list[ScriptCommand]:
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
    each: ScriptCommand, taken: ScriptCommand, said: Said, runs: list[ScriptCommand]
) -> bool:
    """Whether a command fetches or makes what the training reads."""
    if _OF_USERS.search(each.place.headings):
        return False
    if each.words[0] in said.own or not each.script.endswith(".py"):
        is_near = each.place[:2] == taken.place[:2]
        fetches = [run for run in runs if run.place == each.place and commands.fetches(run)]
        return is_near and bool(fetches)
    return bool(_PREPARES.match(each.script)) or each.script.startswith("data/")


def _absent(root: Path, run: ScriptCommand) -> list[str]:
    """Return the configurations that a command names by their paths, and that aren't there."""
    found = scripts.configurations(root, run.words, run.folder)
    lacking = [word for word, path in found.items() if not path and word not in run.unfilled]
    return [word for word in lacking if re.fullmatch(r".*/.*\.ya?ml", word)]


def _unfetched(root: Path, folder: str, script: str) -> Iterator[str]:
    """Remark on files that the training opens by their name, and that aren't there."""
    for name in scripts.opened(scripts.source_of(root / script)) if script else ():
        beside = (root / folder / name, (root / script).parent / name)
        if not any(path.exists() for path in beside):
            yield f"{script} reads {name}, which the repository does not have"


def _remark_on_preparation(before: list[ScriptCommand], page: str) -> Iterator[str]:
    """Only remark on what another file runs first: it may be for another size of the training."""
    if before and before[0].file != page and before[0].file.endswith(".sh"):
        named = ", ".join(run.text for run in before)
        yield f"{before[0].file} runs first: {named} (what this training needs goes into `prepare`)"


def _beside_it(
    said: Said, run: ScriptCommand | None, scores: dict[ScriptCommand, int]
) -> Iterator[str]:
    """Name the run scripts that train too, by a page, and what the box's image may lack."""
    train = [each.file for each in said.runs if scores[each] >= scripts.LIKELY]
    others = [
        each
        for each in dict.fromkeys(train)
        if run and each != run.file and any(f"/{one}".endswith(f"/{each}") for one in said.shells)
    ]
    if others:
        yield f"pages name other run scripts: {', '.join(others[:_MOST_PREPARED])}"
    if "CUDAExtension" in files.text_of_file(said.root / "setup.py", files.LARGEST_SCRIPT):
        yield "setup.py builds its parts for CUDA only where nvcc is: take an image that has it"
    root, called = said.root, dict[str, str]()
    for path in files.below(root, 3):
        for program in _CALLS.findall(scripts.source_of(path)) if path.suffix == ".py" else ():
            called.setdefault(PACKAGES_OF[program], f"{path.relative_to(root)} calls {program}")
    installed = {name for each in said.installs for name in each.system}
    for package, what in called.items():
        if package not in installed:
            yield f"{what}, which an image may lack: packages: [{package}]"


def _variables(
    brought: Imported, run: ScriptCommand | None, *, is_installed: bool
) -> Iterator[tuple[str, Reasoned]]:
    set_ = dict(run.env) if run else {}
    folders = [] if is_installed else [*brought.folders]
    if run and run.script.startswith("src/") and "-m" in run.words and not is_installed:
        folders = list(dict.fromkeys(["src", *folders]))
    if folders and "PYTHONPATH" not in set_:
        there = [posixpath.relpath(each, run.folder if run else "") for each in folders]
        yield ("PYTHONPATH", Reasoned(":".join(there), "the training imports modules from there"))
    for name, value in set_.items():
        if run and fits(ENV_NAME, name) and value:
            yield name, Reasoned(value, f"{run.file} sets it")
    for name in _AS_ROOT if run and run.words[0] in ("mpiexec", "mpirun") else ():
        yield name, Reasoned("1", "Open MPI refuses to run as root otherwise")
    if "wandb" in brought.packages and "WANDB_MODE" not in set_:
        yield (
            "WANDB_MODE",
            Reasoned(
                "offline",
                f"{brought.packages['wandb']} uses wandb; remove this once the secret below is set",
            ),
        )


def _system(said: Said, run: ScriptCommand | None, known: set[str]) -> Iterator[Reasoned]:
    """Yield the system's packages that a page installs, and those that MPI needs."""
    seen = set[str]()
    for each in said.installs:
        is_sure = not commands.OTHER_MACHINES.search(each.place.headings)
        for name in each.system if is_sure and not each.file.endswith(".sh") else ():
            if fits(PACKAGE, name) and name not in seen and not _OF_PYTHON_2.fullmatch(name):
                seen.add(name)
                yield Reasoned(name, f"{each.file} installs it")
    by_mpi = run is not None and run.words[0] in ("mpiexec", "mpirun")
    if not seen and (by_mpi or provides(known, "mpi4py")):
        why = "the training runs by mpiexec" if by_mpi else "mpi4py needs it"
        yield from (Reasoned(name, why) for name in ("libopenmpi-dev", "openmpi-bin"))


def _uncovered(
    root: Path, script: str, brought: Imported, near: list[str], known: set[str]
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


def _ignored(root: Path) -> list[str]:
    text = files.text_of_file(root / ".gitignore")
    return re.findall(r"^/?([\w./-]+?)/?[ \t]*$", text, re.MULTILINE)


def _results(  # noqa: PLR0913, PLR0917
    root: Path, script: str, command: str, brought: Imported, configured: str, folder: str
) -> Iterator[Reasoned]:
    written = scripts.outputs(root, script, command, brought, configured) if script else []
    for name in written:
        if fits(REPO_PATH, f"{name}/") and "%" not in name and "{" not in name:
            path = f"{folder}/{name}/" if folder else f"{name}/"
            yield Reasoned(path, "the training writes there")
    ignored = _ignored(root)
    for name in _RESULTS:
        there = root / name
        if name not in written and there.is_dir() and not any(there.glob("*.[ps][yh]")):
            yield Reasoned(f"{name}/", "a folder of results")
        elif not written and name in ignored and not re.search(r"[<{][^<>{}]*conf", command):
            yield Reasoned(f"{name}/", GUESSED)


def _lacking(
    root: Path, run: ScriptCommand | None, results: tuple[Reasoned, ...]
) -> Iterator[Reasoned]:
    """Yield what the command is told to read, by a path of the repository that isn't there."""
    words = [part for word in run.words for part in word.split("=", 1)] if run else []
    written = tuple(each.value for each in results)
    for option, value in pairwise(words):
        path = posixpath.normpath(posixpath.join(run.folder if run else "", value))
        is_path = value.startswith("./") or re.search(
            r"\.(?!ya?ml|toml|cfg|py$)[a-z]\w+$|/$|/.*/", value
        )
        reads = option.startswith("-") and _READS.search(option) and is_path
        inside = run and value not in run.unfilled and fits(REPO_PATH, path) and path != "."
        if reads and inside and not (root / path).exists() and not f"{path}/".startswith(written):
            yield Reasoned(path, value)


def _shared_folders(root: Path, lines: list[str]) -> Iterator[Reasoned]:
    """Yield folders of data that git ignores whole, and that the training's lines name."""
    for name in dict.fromkeys(each for each in _ignored(root) if _OF_DATA.search(each)):
        is_named = any(
            re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", re.sub(r"\w+://\S+", "", line))
            for line in lines
        )
        has_own = any(path.suffix in (".py", ".sh", ".md") for path in files.below(root / name, 2))
        if is_named and not has_own and fits(REPO_PATH, f"{name}/"):
            yield Reasoned(f"{name}/", "git ignores it, and the training reads it")


def _secrets(
    said: Said, script: str, command: str, brought: Imported, known: set[str]
) -> Iterator[Reasoned]:
    found = {name: f"{file} logs in with it" for name, file in said.logins.items()}
    for model in _GATED.findall(command):
        found.setdefault("HF_TOKEN", f"{model} may be gated")
    for package, name in _SECRETS.items():
        if package in brought.packages or package in known:
            where = brought.packages.get(package)
            found.setdefault(name, f"{where} uses {package}" if where else f"{package} reads it")
    for name in scripts.reads_variables(said.root, script) if script else ():
        if fits(ENV_NAME, name):
            found.setdefault(name, f"{script} reads it")
    yield from (Reasoned(name, why) for name, why in found.items())


def _without_script(said: Said) -> Iterator[str]:
    """Name what trains in a repository that has no script for it."""
    for book in files.inside(said.root):
        if book.suffix == ".ipynb" and scripts.is_training(scripts.source_of(book)):
            line = f"jupyter nbconvert --to notebook --execute {shlex.quote(book.name)}"
            yield f"{book.name} trains: `init --command {shlex.quote(line)}` takes it"
    own = [run for run in said.runs if run.script.endswith(".py") and run.script != "setup.py"]
    shown = {run.text: run.file for run in own if not commands.fetches(run)}
    for text, file in [*shown.items()][:_NAMED]:
        yield f"{file} runs a script: `init --command {shlex.quote(text)}` takes it"
    yield from said.examples[:_NAMED]


def _configurations(said: Said, run: ScriptCommand | None, named: dict[str, str]) -> Iterator[str]:
    """Name the configurations that may be filled in, and the buckets that they read."""
    paths = [path for path in named.values() if path]
    if run and any("conf" in word for word in run.unfilled) and said.configurations:
        paths = said.configurations
        yield f"{run.file} names configurations: {', '.join(paths[:_NAMED])}"
    for path in paths[:_NAMED]:
        text = files.text_of_file(said.root / path)
        if bucket := re.search(r"\b(?:s3|gs|r2)://[\w.-]+", text):
            yield f"{path} names {bucket[0]}, whose credentials would be `secrets`"
        if path not in named.values() and (folder := scripts.CONFIGURED.search(text)):
            yield f"{path} says where results go: {folder[0].strip()}"


def _remarks(
    root: Path, script: str, run: ScriptCommand | None, environment: Environment
) -> Iterator[str]:
    if run and run.unfilled:
        yield f"the command has places to fill in: {', '.join(run.unfilled[:5])}"
    words = [word.partition("=")[0] for word in run.words] if run else [script]
    after = [n for n, word in enumerate(words) if word.endswith((".py", script or ".py"))]
    given = words[after[0] + 1 :] if after else words
    plain = sum(not (a.startswith("-") or b.startswith("-")) for a, b in pairwise(["", *given]))
    lacking = []
    for names in scripts.required(scripts.source_of(root / script)) if script else ():
        if names[0].startswith("-"):
            is_told = environment.lacks_torchrun and "--local_rank" in names  # by its launcher
            lacking += [names[-1]] if not (is_told or {*names} & {*given}) else []
        elif plain:
            plain -= 1
        else:
            lacking.append(names[0])
    if not (given or lacking) and script and _PARSES.search(scripts.source_of(root / script)):
        yield f"{script} reads arguments, and the command gives none"
    if lacking:
        yield f"{script} requires {' and '.join(lacking)}, which the command lacks"
