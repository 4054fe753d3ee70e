"""Work out an environment from the files of a repository, each part with its reason."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bootstrap.profile.survey import commands, declared, files, scripts
from bootstrap.profile.survey.files import is_known, package_name, provides, same
from bootstrap.profile.values import EXTRA, INDEX_URL, PYTHON, REPO_PATH, REQUIREMENT, fits

# Up to which release a package has wheels for no newer Python than this one.
_LAST_FOR = {
    "torch": (((1, 3), "3.7"), ((1, 10), "3.8"), ((2, 1), "3.10"), ((2, 4), "3.11")),
    "numpy": (((1, 20), "3.8"), ((1, 22), "3.10"), ((1, 25), "3.11")),
    "tensorflow": (((2, 1), "3.7"), ((2, 4), "3.8"), ((2, 7), "3.9"), ((2, 11), "3.10")),
    "timm": (((0, 3), "3.8"),),
}


@dataclass(frozen=True)
class Reasoned:
    """A value, and why it is taken."""

    value: str
    why: str


class _TrainingPage(NamedTuple):
    """What pages say, and where the training is among it."""

    said: commands.Said
    own: commands.Install | None
    """How the repository itself is installed."""
    run: commands.ScriptCommand | None

    def trains(self, each: commands.Install) -> bool:
        """Whether it is in the training's block or section; what has no heading is none."""
        run = self.run
        return run is not None and (
            each.place == run.place or (each.place[:2] == run.place[:2] and run.place.section > 1)
        )

    def is_near(self, each: commands.Install) -> bool:
        """Whether it belongs to the training, or to the install of the repository."""
        return self.trains(each) or (self.own is not None and each.place == self.own.place)


@dataclass(frozen=True)
class Environment:
    """Where packages come from, and which ones are known to be among them (`names`)."""

    names: frozenset[str] = frozenset()
    lock: str | None = None
    requirements: tuple[str, ...] = ()
    why: str = ""
    has_own: bool = False
    """Whether the repository itself is installed."""
    project: bool = False
    """Whether the dependencies in pyproject.toml are installed."""
    python: Reasoned | None = None
    requires_python: str | None = None
    torch_extras: tuple[str, ...] = ()
    extras: tuple[Reasoned, ...] = ()
    groups: tuple[Reasoned, ...] = ()
    packages: tuple[Reasoned, ...] = ()
    index: tuple[Reasoned, ...] = ()
    last: tuple[Reasoned, ...] = ()
    conda: Reasoned | None = None
    """The file to build from conda's packages, if a Python package index does not have them all."""
    remarks: tuple[str, ...] = ()
    is_pinned: bool = False
    """Whether a lock, or most requirements, say which versions."""

    @property
    def has_files(self) -> bool:
        """Whether a file says what it consists of."""
        return bool(self.lock or self.requirements or self.project or self.conda or self.groups)


def find_environment(
    root: Path,
    said: commands.Said,
    brought: scripts.Imported,
    run: commands.ScriptCommand | None = None,
) -> Environment:
    """Return the environment of the repository at `root`; `brought`: what its training imports.

    `run` is the training on the page that shows it: what is installed nearest to it counts.
    """
    project, lock = said.project, files.text_of_file(root / "uv.lock", files.LARGEST)
    has_lock = (root / "uv.lock").is_file()
    page = _TrainingPage(said, _own_install(said, run), run)
    own = page.own
    listed, why = ((), "") if has_lock else _requirement_files(root, page)
    takes_project = project.has_dependencies and not has_lock and not listed
    takes_project = takes_project and not (own and project.needs_torch)
    extras = declared.torch_extras(lock)
    chosen = tuple(_extras(extras, project, own))
    link = own and project.is_built and not (has_lock or takes_project)
    groups = _groups(project) if not listed else ()
    other = None
    if not (has_lock or listed or takes_project or groups):
        kinds = _OTHERS[:3] if link else _OTHERS
        other = next(filter(None, (kind(root) for kind in kinds)), declared.Declared(""))
    by_conda = _by_conda(other) if other else None
    required = [each for file in listed for each in declared.with_includes(root, file).requirements]
    if takes_project or link:
        required += _with_extras(project, [each.value for each in chosen])
    required += [each for group in groups for each in project.groups[group.value]]
    packages = _of_other(other, said, project.name) if other and not by_conda else []
    if link and own and not any(each.value.startswith("-e .") for each in packages):
        names_of = f"[{','.join(each.value for each in chosen)}]" if chosen else ""
        packages.append(Reasoned(f"-e .{names_of}", f"{own.file} installs it"))
    packages += _beside(page, other is not None and not other.file)
    required += [*other.requirements, *other.left_out] if other and by_conda else []
    names = declared.locked(lock) | _names([*required, *(each.value for each in packages)])
    names |= _brought_by(names) if takes_project or link else set()
    imports = list(
        _of_imports(said, brought, names | ({same(project.name)} if takes_project else set()))
    )
    unnamed = next((each for each in required if _may_bring(each)), "")
    packages += imports if not unnamed else []
    packages[:0] = [
        Reasoned(f"{name}=={version}", "the training insists on it")
        for name, version in brought.asserted.items()
        if is_known(name)
    ]
    wanted = [*required, *(each.value for each in packages)]
    python_of_pins = _python_of(wanted)
    packages += _of_launcher(run, names | _names(each.value for each in packages))
    wheels = {package_name(each.value) for each in packages if _is_wheel(each.value)}
    built = [] if has_lock else sorted((_BUILT_LAST & names) - wheels)
    packages += [Reasoned(each, "its build needs torch") for each in built]
    early, last = _in_order(root, said, packages)
    return Environment(
        names=frozenset(
            names | declared.names(project.dependencies) | _names(each.value for each in imports)
        ),
        has_own=bool(takes_project or link or (has_lock and project.is_built)),
        lock="uv.lock" if has_lock else None,
        requirements=listed,
        why=why,
        project=takes_project,
        python=None
        if by_conda
        else _python(root, other.python if other else project.python, python_of_pins),
        requires_python=project.python or None,
        torch_extras=extras,
        groups=groups,
        extras=chosen if has_lock or takes_project else (),
        packages=early,
        index=tuple(_indexes(page, listed, is_all=other is not None)),
        last=last,
        conda=by_conda,
        is_pinned=has_lock or 2 * sum("==" in each for each in wanted) > len(wanted),
        remarks=(
            *(_left_out(other) if other and not by_conda else ()),
            *(_undecided(imports, unnamed) if unnamed else ()),
            *_not_taken(page, listed, names, {each.value for each in chosen}),
        ),
    )


def _may_bring(requirement: str) -> bool:
    """Whether nobody can tell from it what it installs: an address or a path without a name."""
    address = "/" in requirement and not re.match(
        r"[\w.-]+(\[[^]]*\])?\s*@|.*[#&]egg=", requirement
    )
    return bool(
        address and not is_known(package_name(requirement)) and requirement not in (".", "./")
    )


def _undecided(imports: list[Reasoned], unnamed: str) -> Iterator[str]:
    for each in imports:
        yield (
            f"{each.why.removesuffix(' it')} {each.value}: {unnamed} may bring it; if it doesn't, "
            f"add {each.value} to python.packages"
        )


def _groups(project: declared.Project) -> tuple[Reasoned, ...]:
    """Return the dependency groups to install, if the project itself names no dependencies."""
    if project.dependencies:
        return ()
    return tuple(
        Reasoned(name, "pyproject.toml has the dependencies in this group")
        for name in declared.groups_for_training(project)
    )


def _by_conda(other: declared.Declared) -> Reasoned | None:
    """Return an environment.yml that asks for more than a Python package index has."""
    beyond = [each for each in other.left_out if not _OF_TORCH.fullmatch(each)]
    if not beyond or other.file not in declared.CONDA_FILES:
        return None
    more = ", …" if len(beyond) > _NAMED else ""
    return Reasoned(other.file, f"for {', '.join(beyond[:_NAMED])}{more}")


def _left_out(other: declared.Declared) -> Iterator[str]:
    if other.left_out:
        named = ", ".join(other.left_out[:10])
        yield f"{other.file} also asks for {named}, which no index of Python packages may have" + (
            f" (python.conda: {other.file} takes all of it from conda's channels)"
            if other.file in declared.CONDA_FILES
            else ""
        )


def _names(requirements: Iterable[str]) -> set[str]:
    return declared.names(map(_plain_requirement, requirements))


def _of_other(other: declared.Declared, said: commands.Said, own: str) -> list[Reasoned]:
    """Return what a file that uv and pip can't read asks for; without one, what a page installs."""
    if other.file:
        return [Reasoned(each, f"{other.file} asks for it") for each in other.requirements]
    return _of_installs(said, own)


def _in_order(
    root: Path, said: commands.Said, packages: list[Reasoned]
) -> tuple[tuple[Reasoned, ...], tuple[Reasoned, ...]]:
    """Split into packages installed together, and those built last with the others present."""
    late = {package for each in said.installs if not each.is_isolated for package in each.packages}
    late |= {f"./{each.folder}" for each in said.installs if not each.is_isolated and each.folder}
    late |= {"-e ."} if said.project.needs_torch else set()
    plain = [Reasoned(_plain_requirement(each.value), each.why) for each in packages]
    fitting = [each for each in plain if fits(REQUIREMENT, each.value)]
    last = [
        each
        for each in fitting
        if (package_name(each.value) in _BUILT_LAST and not _is_wheel(each.value))
        or re.sub(r"\[.*", "", each.value) in late
        or _builds_with_torch(root, each.value)
    ]
    early = [each for each in fitting if each not in last]
    if last:
        what = package_name(last[0].value) or last[0].value
        tools = _FOR_FLASH_ATTN if what == "flash-attn" else ("torch", *_FOR_FLASH_ATTN[:2])
        early += [Reasoned(each, f"the build of {what} needs it") for each in tools]
    return _once(early), _once(last)


def _is_wheel(requirement: str) -> bool:
    return requirement.partition("#")[0].endswith(".whl")


def _builds_with_torch(root: Path, requirement: str) -> bool:
    folder = root / requirement
    return requirement.startswith("./") and declared.own_project(folder).needs_torch


def _own_install(
    said: commands.Said, run: commands.ScriptCommand | None
) -> commands.Install | None:
    """Return how a page installs the repository: in the training's section, else for training."""

    def score(each: commands.Install) -> int:
        here = _TrainingPage(said, None, run).trains(each)
        fit = any(_FOR_TRAINING.fullmatch(name) for name in each.extras)
        other = each.extras and all(map(declared.is_for_others, each.extras))
        return 4 * here + 2 * fit - 3 * bool(other)

    found = [each for each in said.installs if each.own and not each.file.endswith(".sh")]
    return max(found, key=score, default=None)


def _of_launcher(run: commands.ScriptCommand | None, names: set[str]) -> Iterator[Reasoned]:
    """Yield the packages of the program that launches the training."""
    for each in _LAUNCHES.get(run.words[0], ()) if run else ():
        if run and each not in names:
            yield Reasoned(each, f"{run.file or 'the command'} launches the training by it")


def _brought_by(names: Iterable[str]) -> set[str]:
    """Return what well-known packages among these require themselves."""
    return {each for name in names for each in _BRINGS.get(name, "").split()}


def _with_extras(project: declared.Project, chosen: list[str]) -> Iterator[str]:
    """Yield what the project requires with these extras; one may name others of its own."""
    yield from project.dependencies
    seen = set[str]()
    while chosen:
        name = chosen.pop()
        seen.add(name)
        for each in project.extras.get(name, ()):
            inner = re.fullmatch(r"[\w.-]+\[(.*)\]", each)
            if inner and package_name(each) == same(project.name):
                chosen += {one.strip() for one in inner[1].split(",")} - seen
            else:
                yield each


def _beside(page: _TrainingPage, is_all: bool) -> Iterator[Reasoned]:
    """Yield what the page installs in the block of that, or where it trains."""
    for each in page.said.installs:
        near = page.is_near(each)
        if near and not is_all:
            yield from (Reasoned(one, f"{each.file} installs it") for one in each.packages)
        if each.folder not in ("", ".") and (near or not each.file.endswith(".sh")):
            path = f"{'-e ' if each.is_link else ''}./{each.folder}"
            yield Reasoned(path, f"{each.file} installs it")


def _not_taken(
    page: _TrainingPage, listed: tuple[str, ...], names: Iterable[str], taken: set[str]
) -> Iterator[str]:
    """Name what a page installs besides."""
    others, known = dict[str, None](), set(names)
    for each in page.said.installs:
        if each.file.endswith(".sh"):
            continue
        if each.own and not {*each.extras} <= taken:
            others |= {f".[{','.join(each.extras)}]": None}
        others |= dict.fromkeys(
            f"-r {file}" for file in each.requirement_files if file not in listed
        )
        if page.is_near(each):
            continue
        others |= dict.fromkeys(
            one
            for one in each.packages
            if package_name(one) and not provides(known, package_name(one))
        )
    own_names = {"pip", "uv", "setuptools", "wheel", same(page.said.project.name)} - {""}
    named = [each for each in others if package_name(each) not in own_names]
    if named:
        more = ", …" if len(named) > _MOST_NAMED else ""
        yield f"a page also installs, for other uses: {', '.join(named[:_MOST_NAMED])}{more}"


_OTHERS = (declared.conda, declared.poetry, declared.pipfile, declared.setup_py, declared.setup_cfg)
# Conda's packages for the build of torch, which boxstrap chooses by the box's driver instead.
_OF_TORCH = re.compile(r"pytorch-(?:cuda|mutex)|cudatoolkit|cudnn|cuda(?:-\w+)*|cpuonly|mkl|blas")
_LAUNCHES = {"accelerate": ["accelerate"], "deepspeed": ["deepspeed"]}
_LAUNCHES |= {"jupyter": ["nbconvert", "ipykernel"]}
_NAMED = 3
_MOST_NAMED = 8
_BUILT_LAST = {"flash-attn", "causal-conv1d", "mamba-ssm", "apex"}
_OF_HUB = "huggingface-hub requests tqdm pyyaml packaging filelock typing-extensions"
_BRINGS = {
    "torch": "typing-extensions filelock",
    "torchvision": "numpy pillow torch",
    "transformers": f"{_OF_HUB} numpy tokenizers safetensors regex",
    "datasets": f"{_OF_HUB} numpy pandas pyarrow",
    "accelerate": f"{_OF_HUB} numpy psutil safetensors torch",
    "diffusers": f"{_OF_HUB} numpy pillow safetensors",
    "timm": f"{_OF_HUB} torch torchvision safetensors numpy pillow",
    "lightning": "torch pyyaml packaging tqdm lightning-utilities numpy",
    "pydantic": "pydantic-core annotated-types typing-extensions",
    "wandb": "click requests protobuf pyyaml psutil",
    "peft": "transformers accelerate torch numpy",
    "trl": "transformers accelerate datasets torch numpy",
    "fastapi": "pydantic pydantic-core annotated-types",
    "boto3": "botocore",
}
_FOR_TRAINING = re.compile(r"(?:pre)?train(?:ing)?|fine-?tune|gpu|all|full|extra", re.IGNORECASE)
_FOR_FLASH_ATTN = ("setuptools", "wheel", "packaging", "psutil", "ninja")


def _requirement_files(root: Path, page: _TrainingPage) -> tuple[tuple[str, ...], str]:
    """Return the files to install from, and why: named by a page, at the root, or the likeliest."""
    said, own = page.said, page.own
    named = [each for each in said.installs if each.requirement_files]
    near = [each for each in named if page.is_near(each)]
    top = (root / "requirements.txt").is_file()
    for install in near or ([] if own or top else named):
        there = [each for each in install.requirement_files if files.has(root, each)]
        if there and all(fits(REPO_PATH, each) for each in there):
            return tuple(there), f"{install.file} says so"
    is_named = any("requirements.txt" in each.requirement_files for each in named)
    usual = top and (is_named or not own or not said.project.is_built)
    folder = posixpath.dirname(page.run.script) if page.run else ""
    beside = f"{folder}/requirements.txt"
    if folder and files.has(root, beside) and fits(REPO_PATH, beside):
        return (*(["requirements.txt"] if usual else []), beside), "beside the training"
    if usual:
        return ("requirements.txt",), "at the top"
    if said.project.is_built and (own or said.project.dependencies):
        return (), ""
    found = [each for each in declared.requirement_files(root) if fits(REPO_PATH, each)]
    return (
        ((found[0],), "the only one" if len(found) == 1 else "the likeliest") if found else ((), "")
    )


def _of_installs(said: commands.Said, own: str) -> list[Reasoned]:
    """Return what a page says to install, if no file declares it."""
    return [
        Reasoned(each, f"{install.file} installs it")
        for install in said.installs
        for each in install.packages
        if package_name(each) not in (same(own), "pip", "uv", "setuptools", "wheel")
    ]


def _of_imports(
    said: commands.Said, brought: scripts.Imported, names: set[str]
) -> Iterator[Reasoned]:
    """Yield what training imports but nothing installs, if its package is known or on a page."""
    named = {package_name(each): each for install in said.installs for each in install.packages}
    for package, where in {**brought.packages, **brought.unknown}.items():
        known = package if is_known(package) else named.get(same(package), "")
        if known and not provides(names, package):
            yield Reasoned(named.get(same(package), known), f"{where} imports it")


def _plain_requirement(text: str) -> str:
    """Put the name of a repository or a wheel before its address."""
    text = re.sub(r"^-e\s+(?=git\+)", "", text.strip())
    if _is_wheel(text) and text.startswith("https://"):
        return f"{package_name(text)} @ {text}"
    address = re.fullmatch(
        r"git\+https://\S+?/([\w.-]+?)(?:\.git)?(?:@[\w./-]+)?(?:#egg=([\w.-]+))?", text
    )
    return f"{address[2] or address[1]} @ {text}" if address else text


def _once(each: list[Reasoned]) -> tuple[Reasoned, ...]:
    return tuple({package_name(one.value): one for one in reversed(each)}.values())[::-1]


def _extras(
    torch: tuple[str, ...], project: declared.Project, own: commands.Install | None
) -> Iterator[Reasoned]:
    """Yield the extra that brings torch; without one, those that the page installs for training."""
    if torch:
        gpu = [name for name in torch if re.search(r"gpu|cuda|cu\d", name)]
        others = "" if len(torch) == 1 else f", as in {' and '.join(torch)}"
        yield Reasoned((gpu or [*torch])[0], f"torch is in it{others}")
    elif own:
        for name in own.extras:
            known = name in project.extras or not project.extras
            if known and not declared.is_for_others(name) and fits(EXTRA, name):
                yield Reasoned(name, f"{own.file} installs it")


def _indexes(page: _TrainingPage, listed: tuple[str, ...], *, is_all: bool) -> Iterator[Reasoned]:
    """Yield further indexes but torch's: which of its builds fits is only known on the box."""
    for install in page.said.installs:
        is_taken = is_all or page.is_near(install) or {*install.requirement_files} & {*listed}
        for address in install.indexes if is_taken else ():
            if "download.pytorch.org" not in address and fits(INDEX_URL, address):
                yield Reasoned(address, f"{install.file} names it")


def _python_of(requirements: Iterable[str]) -> Reasoned | None:
    """Return the newest Python that all pinned packages have wheels for, if they are old."""
    found = list[tuple[int, Reasoned]]()
    for each in requirements:
        bound = re.search(r"(?:==|<=|<|~=)\s*(\d+)\.(\d+)", each)
        release = (int(bound[1]), int(bound[2])) if bound else (0, 0)
        for last, python in _LAST_FOR.get(package_name(each), ()) if bound else ():
            if release <= last:
                why = (
                    f"{package_name(each)} {release[0]}.{release[1]} has no wheels for a newer one"
                )
                found.append((int(python[2:]), Reasoned(python, why)))
                break
    return min(found, default=(0, None), key=lambda each: each[0])[1]


def _python(root: Path, asked: str, of_pins: Reasoned | None) -> Reasoned | None:
    """Return the Python to use, if one is named or what is pinned has wheels for older ones."""
    named = files.text_of_file(root / ".python-version").strip()
    if fits(PYTHON, named):
        return Reasoned(named, "from .python-version")
    exact = re.search(r"(?:^|==)\s*(3\.\d{1,2})(?:\.\d+)?(?:\.\*)?$", asked)
    if exact:
        return Reasoned(exact[1], f"asked for: {asked}")
    return of_pins
